//! An external merge sort of rows in bounded memory: sorted runs go to files in the database's directory, and are
//! merged.
//!
//! SORT-1  A sorter removes its files when it is dropped; the next open removes files that a crash left, known by their
//!         names. No name is used twice: it contains the number of the space that is loaded (STORE-7), and a number
//!         from a counter that all sorters of that space share.
//! SORT-2  Keys and rows are within the limits of leaves, so a record fits in a block.
//!
//! Rows of one key come in any order.

mod run;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use self::run::{BLOCK_LEN, Run, RunReader, RunWriter, record_at, record_len, write_record};
use crate::base::aligned::to_usize;
use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::btree::scan::RowRef;
use crate::io::device::Files;

/// Most runs that all sorters sharing memory merge at once: each run costs a block of memory and an open file.
const FAN_IN_MAX: usize = 64;

/// Bytes of memory for a row in addition to its record.
const PLACE_LEN: usize = size_of::<Place>();

fn file_name(space: SpaceId, number: u32) -> String {
    format!("sort-{}-{number}.mpd", space.0)
}

fn is_sort_file(name: &str) -> bool {
    name.starts_with("sort-") && name.ends_with(".mpd")
}

/// Removes the sort files of loads that a crash cut short.
pub(crate) fn remove_left_over(files: &dyn Files) -> io::Result<()> {
    files.list()?.iter().filter(|name| is_sort_file(name)).try_for_each(|name| files.remove(name))
}

/// A row in memory. `head`: the first 8 bytes of its key, big-endian, for fast comparison. `at`: the offset of its
/// record.
#[derive(Clone, Copy)]
struct Place {
    head: u64,
    at: u32,
}

/// Takes rows in any order, and sorts them.
pub(crate) struct Sorter {
    files: Arc<dyn Files>,
    space: SpaceId,
    memory: usize,
    /// Number of runs that are merged together.
    fan_in: usize,
    /// Records of rows that are in no run yet.
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// Each with its tier: the number of merges that its rows have been through.
    runs: Vec<(u32, Run)>,
    named: RunNumbers,
}

/// Number of runs made so far for a space; the next run's name follows from it.
pub(crate) type RunNumbers = Arc<AtomicU32>;

impl Sorter {
    /// A sorter for a load into `space`. `sharing` sorters share `memory` bytes for rows, at most 1 GiB; each gets at
    /// least enough to merge two runs. All sorters for the space share `named`.
    pub(super) fn new(
        files: Arc<dyn Files>,
        space: SpaceId,
        named: &RunNumbers,
        memory: usize,
        sharing: usize,
    ) -> Sorter {
        let memory = (memory.min(1 << 30) / sharing).max(2 * BLOCK_LEN);
        let fan_in = (memory / BLOCK_LEN).min(FAN_IN_MAX / sharing).max(2);
        let named = Arc::clone(named);
        Sorter { files, space, memory, fan_in, bytes: Vec::new(), places: Vec::new(), runs: Vec::new(), named }
    }

    /// Takes a row, whose payload has two parts.
    pub(crate) fn push(&mut self, key: &[u8], payload: [&[u8]; 2]) -> Result<(), Error> {
        let used = self.bytes.len() + self.places.len() * PLACE_LEN;
        let len = record_len(key.len(), payload[0].len() + payload[1].len());
        if used + len + PLACE_LEN > self.memory && !self.places.is_empty() {
            self.spill()?;
        }
        let head = u64::from_be_bytes(std::array::from_fn(|index| key.get(index).copied().unwrap_or(0)));
        let at = u32::try_from(self.bytes.len()).expect("SORT-2: rows of 1 GiB at most are in memory");
        self.places.push(Place { head, at });
        write_record(&mut self.bytes, key, payload);
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |place: &Place| record_at(&bytes[to_usize(u64::from(place.at))..]).0;
        self.places.sort_unstable_by(|a, b| a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b))));
    }

    fn new_run(&mut self) -> Result<RunWriter, Error> {
        // Relaxed: the numbers need only be distinct.
        let number = self.named.fetch_add(1, Ordering::Relaxed) + 1;
        RunWriter::create(&self.files, &file_name(self.space, number))
    }

    /// Writes the rows in memory to a run.
    fn spill(&mut self) -> Result<(), Error> {
        self.sort();
        let mut run = self.new_run()?;
        for place in &self.places {
            let record = &self.bytes[to_usize(u64::from(place.at))..];
            let (key, payload) = record_at(record);
            run.push(&record[..record_len(key.len(), payload.len())])?;
        }
        self.runs.push((0, run.finish()?));
        self.bytes.clear();
        self.places.clear();
        // Merges the last `fan_in` runs of one tier into a run of the next tier: so a row takes part in a number of
        // merges that is logarithmic in the number of runs.
        while let Some(&(tier, _)) = self.runs.last()
            && self.runs.iter().rev().take_while(|(other, _)| *other == tier).count() == self.fan_in
        {
            self.merge_last(self.fan_in, tier + 1)?;
        }
        Ok(())
    }

    /// Merges the last `count` runs into one.
    fn merge_last(&mut self, count: usize, tier: u32) -> Result<(), Error> {
        let last = self.runs.split_off(self.runs.len() - count);
        let mut merge = Merge::new(last)?;
        let mut run = self.new_run()?;
        while let Some(record) = merge.next()? {
            run.push(record)?;
        }
        self.runs.push((tier, run.finish()?));
        Ok(())
    }

    /// Ends the input.
    pub(super) fn finish(mut self) -> Result<Sorted, Error> {
        if self.runs.is_empty() {
            self.sort();
            return Ok(Sorted::InMemory { sorter: self, next: 0 });
        }
        if !self.places.is_empty() {
            self.spill()?;
        }
        // Merges the last runs, which are the shortest.
        while self.runs.len() > self.fan_in {
            let count = (self.runs.len() - self.fan_in + 1).min(self.fan_in);
            self.merge_last(count, 0)?;
        }
        Merge::new(self.runs).map(Sorted::Merged)
    }
}

/// The rows in the order of their keys.
pub(crate) enum Sorted {
    InMemory { sorter: Sorter, next: usize },
    Merged(Merge),
}

impl Sorted {
    /// Key and payload of the next row.
    pub(crate) fn next(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        match self {
            Sorted::InMemory { sorter, next } => {
                let place = sorter.places.get(*next);
                *next += 1;
                Ok(place.map(|place| record_at(&sorter.bytes[to_usize(u64::from(place.at))..])))
            }
            Sorted::Merged(merge) => Ok(merge.next()?.map(record_at)),
        }
    }
}

/// A merge of several runs.
pub(crate) struct Merge {
    readers: Vec<RunReader>,
    /// The key of each run's current record, except of the run whose record was lent last.
    keys: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    lent: Option<usize>,
    /// Buffer for the next key, reused.
    spare: Vec<u8>,
}

impl Merge {
    fn new(runs: Vec<(u32, Run)>) -> Result<Merge, Error> {
        let readers: Vec<_> = runs.into_iter().map(|(_, run)| RunReader::new(run)).collect();
        let mut merge =
            Merge { keys: BinaryHeap::with_capacity(readers.len()), readers, lent: None, spare: Vec::new() };
        (0..merge.readers.len()).try_for_each(|reader| merge.advance(reader))?;
        Ok(merge)
    }

    fn advance(&mut self, reader: usize) -> Result<(), Error> {
        if self.readers[reader].advance()? {
            let mut key = std::mem::take(&mut self.spare);
            key.clear();
            key.extend_from_slice(record_at(self.readers[reader].record()).0);
            self.keys.push(Reverse((key, reader)));
        }
        Ok(())
    }

    /// The next record, lent until the next call.
    fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        if let Some(reader) = self.lent.take() {
            self.advance(reader)?;
        }
        let Some(Reverse((key, reader))) = self.keys.pop() else { return Ok(None) };
        self.spare = key;
        self.lent = Some(reader);
        Ok(Some(self.readers[reader].record()))
    }
}

/// Bytes of memory that a load's sorters share for rows, with a buffer pool of `pool` bytes.
pub(crate) fn memory_for(pool: usize) -> usize {
    (pool / 4).clamp(256 << 10, 64 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::simulated::SimulatedDisk;
    use rand_core::{Rng, SeedableRng};

    /// Rows of about a hundred bytes, some with the same key.
    fn rows(count: u64, seed: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let row = |number: u64| {
            let mut draw = |below: u64| usize::try_from(rng.next_u64() % below).expect("small");
            let mut key = vec![b'k'; draw(12)];
            key.extend_from_slice(&draw(5000).to_be_bytes());
            (key, number.to_le_bytes().repeat(1 + draw(20)))
        };
        (0..count).map(row).collect()
    }

    fn sorted_files(disk: &SimulatedDisk) -> usize {
        Files::list(disk).expect("listed").iter().filter(|name| is_sort_file(name)).count()
    }

    #[test]
    fn rows_come_out_in_order_however_many_runs_they_made() {
        for (count, memory) in
            [(0, 1 << 20), (1, 1 << 20), (500, 1 << 20), (20_000, 1 << 20), (20_000, 200 << 10), (3000, 1)]
        {
            let disk = SimulatedDisk::new();
            let mut rows = rows(count, 7);
            let mut sorter = Sorter::new(Arc::new(disk.clone()), SpaceId(3), &RunNumbers::default(), memory, 1);
            let mut most = 0;
            for (key, payload) in &rows {
                sorter.push(key, [b"", payload]).expect("taken");
                most = most.max(sorted_files(&disk));
            }
            let mut sorted = sorter.finish().expect("sorted");
            let mut found = Vec::new();
            while let Some((key, payload)) = sorted.next().expect("read") {
                found.push((key.to_vec(), payload.to_vec()));
            }
            assert!(found.is_sorted_by_key(|(key, _)| key.clone()));
            rows.sort();
            found.sort();
            assert!(found == rows, "{} of {} rows", found.len(), rows.len());
            assert!(most <= 64, "{most} files");
            drop(sorted);
            assert_eq!(sorted_files(&disk), 0);
        }
    }

    #[test]
    fn changed_run_is_reported_and_a_full_disk_leaves_no_file() {
        let disk = SimulatedDisk::new();
        let mut sorter = Sorter::new(Arc::new(disk.clone()), SpaceId(3), &RunNumbers::default(), 1 << 20, 1);
        for (key, payload) in rows(20_000, 8) {
            sorter.push(&key, [b"", &payload]).expect("taken");
        }
        let mut sorted = sorter.finish().expect("sorted");
        assert!(disk.flip_bit(&file_name(SpaceId(3), 1), 200_000, 3));
        let error = std::iter::from_fn(|| sorted.next().map(|row| row.map(drop)).transpose()).find_map(Result::err);
        assert!(matches!(error, Some(Error::Corruption(_))), "{error:?}");
        drop(sorted);
        disk.limit_space(Some(3 << 20));
        let mut sorter = Sorter::new(Arc::new(disk.clone()), SpaceId(4), &RunNumbers::default(), 1 << 20, 1);
        let error = rows(100_000, 9).iter().find_map(|(key, payload)| sorter.push(key, [b"", payload]).err());
        assert!(matches!(error, Some(Error::OutOfSpace(_))), "{error:?}");
        drop(sorter);
        assert_eq!(sorted_files(&disk), 0);
    }
}
