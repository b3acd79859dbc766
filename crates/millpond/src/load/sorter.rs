//! An external merge sort of rows in bounded memory: sorted runs go to files in the database's directory, and are
//! merged.
//!
//! SORT-1  A sorter removes its files when it is dropped; the next open removes files that a crash left, known by their
//!         names. No name is used twice: it contains the number of the space that is loaded (STORE-7), and a number
//!         from a counter that all sorters of that space share.
//! SORT-2  Keys and rows are within the limits of leaves, so a record fits in a block.
//!
//! Memory for rows is in two halves: the rows of one are sorted and written to a run by a thread aside, while the other
//! one takes more rows. Rows of one key come in any order.

mod merge;
mod run;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use self::merge::Merge;
use self::run::{BLOCK_LEN, Run, RunWriter, record_at, record_len, write_record};
use crate::base::aligned::to_usize;
use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::base::waits::Waits;
use crate::btree::scan::RowRef;
use crate::io::device::Files;
use crate::load::aside::Aside;

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

/// Rows in memory, in any order until they are sorted.
#[derive(Default)]
pub(crate) struct Half {
    /// Records of the rows.
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Half {
    fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |place: &Place| record_at(&bytes[to_usize(u64::from(place.at))..]).0;
        self.places.sort_unstable_by(|a, b| a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b))));
    }

    /// The record of the row at `place`, and all behind it.
    fn from(&self, place: &Place) -> &[u8] {
        &self.bytes[to_usize(u64::from(place.at))..]
    }
}

/// Takes rows in any order, and sorts them.
pub(crate) struct Sorter {
    waits: Arc<Waits>,
    /// Bytes of memory for the rows of one half.
    half_max: usize,
    /// Rows that are in no run yet.
    half: Half,
    /// The half before, which is empty once its rows are in a run. `None`: that failed.
    spilling: Option<Aside<(Runs, Half)>>,
}

/// The runs of a sorter.
struct Runs {
    files: Arc<dyn Files>,
    space: SpaceId,
    memory: usize,
    /// Number of runs that are merged together.
    fan_in: usize,
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
        (memory, sharing): (usize, usize),
        waits: &Arc<Waits>,
    ) -> Sorter {
        let memory = (memory.min(1 << 30) / sharing).max(2 * BLOCK_LEN);
        let fan_in = (memory / BLOCK_LEN).min(FAN_IN_MAX / sharing).max(2);
        let runs = Runs { files, space, memory, fan_in, runs: Vec::new(), named: Arc::clone(named) };
        let spilling = Some(Aside::ended(waits, (runs, Half::default())));
        Sorter { waits: Arc::clone(waits), half_max: memory / 2, half: Half::default(), spilling }
    }

    /// Takes a row, whose payload has two parts.
    pub(crate) fn push(&mut self, key: &[u8], payload: [&[u8]; 2]) -> Result<(), Error> {
        let Half { bytes, places } = &self.half;
        let used = bytes.len() + places.len() * PLACE_LEN;
        let len = record_len(key.len(), payload[0].len() + payload[1].len());
        if used + len + PLACE_LEN > self.half_max && !places.is_empty() {
            self.spill_aside()?;
        }
        let head = head_of(key);
        let at = u32::try_from(self.half.bytes.len()).expect("SORT-2: rows of 1 GiB at most are in memory");
        self.half.places.push(Place { head, at });
        write_record(&mut self.half.bytes, key, payload);
        Ok(())
    }

    /// Has the rows of this half written to a run aside, after those of the half before.
    fn spill_aside(&mut self) -> Result<(), Error> {
        let (mut runs, empty) = self.spilled_wait()?;
        let mut half = std::mem::replace(&mut self.half, empty);
        self.spilling = Some(Aside::begin(&self.waits, move || {
            runs.spill(&mut half)?;
            Ok((runs, half))
        }));
        Ok(())
    }

    /// Waits until the rows of the half before are in a run.
    fn spilled_wait(&mut self) -> Result<(Runs, Half), Error> {
        let spilling = self.spilling.take();
        spilling.map_or_else(|| Err(Error::Bug("SORT: a sorter that failed goes on".into())), Aside::end_wait)
    }

    /// Ends the input.
    pub(super) fn finish(mut self) -> Result<Sorted, Error> {
        let (mut runs, _) = self.spilled_wait()?;
        let mut half = self.half;
        if runs.runs.is_empty() {
            half.sort();
            return Ok(Sorted::InMemory { half, next: 0 });
        }
        if !half.places.is_empty() {
            runs.spill(&mut half)?;
        }
        drop(half);
        runs.merged().map(Sorted::Merged)
    }
}

impl Runs {
    fn new_run(&mut self) -> Result<RunWriter, Error> {
        // Relaxed: the numbers need only be distinct.
        let number = self.named.fetch_add(1, Ordering::Relaxed) + 1;
        RunWriter::create(&self.files, &file_name(self.space, number))
    }

    /// Writes these rows to a run. The half is empty then.
    fn spill(&mut self, half: &mut Half) -> Result<(), Error> {
        half.sort();
        let mut run = self.new_run()?;
        for place in &half.places {
            let record = half.from(place);
            let (key, payload) = record_at(record);
            run.push(&record[..record_len(key.len(), payload.len())])?;
        }
        self.runs.push((0, run.finish()?));
        half.bytes.clear();
        half.places.clear();
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
        // Beside the two halves: so a single block of each run.
        let mut merge = Merge::new(last.into_iter().map(|(_, run)| run), 1)?;
        let mut run = self.new_run()?;
        while let Some(record) = merge.next()? {
            run.push(record)?;
        }
        self.runs.push((tier, run.finish()?));
        Ok(())
    }

    /// Merges all runs.
    fn merged(mut self) -> Result<Merge, Error> {
        // The last runs are the shortest.
        while self.runs.len() > self.fan_in {
            let count = (self.runs.len() - self.fan_in + 1).min(self.fan_in);
            self.merge_last(count, 0)?;
        }
        let blocks = self.memory / self.runs.len() / BLOCK_LEN;
        Merge::new(self.runs.into_iter().map(|(_, run)| run), blocks)
    }
}

/// The rows in the order of their keys.
pub(crate) enum Sorted {
    InMemory { half: Half, next: usize },
    Merged(Merge),
}

impl Sorted {
    /// Key and payload of the next row.
    pub(crate) fn next(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        match self {
            Sorted::InMemory { half, next } => {
                let place = half.places.get(*next);
                *next += 1;
                Ok(place.map(|place| record_at(half.from(place))))
            }
            Sorted::Merged(merge) => Ok(merge.next()?.map(record_at)),
        }
    }
}

/// The first 8 bytes of a key as a number. It orders keys as they are ordered, except those that share these bytes.
fn head_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|index| key.get(index).copied().unwrap_or(0)))
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
    use std::time::Duration;

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

    fn waits() -> Arc<Waits> {
        Arc::new(Waits::new(Duration::from_secs(1)))
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
            let mut sorter =
                Sorter::new(Arc::new(disk.clone()), SpaceId(3), &RunNumbers::default(), (memory, 1), &waits());
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
        let mut sorter =
            Sorter::new(Arc::new(disk.clone()), SpaceId(3), &RunNumbers::default(), (1 << 20, 1), &waits());
        for (key, payload) in rows(20_000, 8) {
            sorter.push(&key, [b"", &payload]).expect("taken");
        }
        let mut sorted = sorter.finish().expect("sorted");
        assert!(disk.flip_bit(&file_name(SpaceId(3), 1), 200_000, 3));
        let error = std::iter::from_fn(|| sorted.next().map(|row| row.map(drop)).transpose()).find_map(Result::err);
        assert!(matches!(error, Some(Error::Corruption(_))), "{error:?}");
        drop(sorted);
        disk.limit_space(Some(3 << 20));
        let mut sorter =
            Sorter::new(Arc::new(disk.clone()), SpaceId(4), &RunNumbers::default(), (1 << 20, 1), &waits());
        let error = rows(100_000, 9).iter().find_map(|(key, payload)| sorter.push(key, [b"", payload]).err());
        assert!(matches!(error, Some(Error::OutOfSpace(_))), "{error:?}");
        drop(sorter);
        assert_eq!(sorted_files(&disk), 0);
    }
}
