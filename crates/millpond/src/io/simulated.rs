//! An in-memory disk that can produce its state after a crash.
//!
//! It records every write, sync and naming in order. After the run it can produce the state of the disk at **any** I/O
//! boundary: with none, all or any subset of the writes that were unsynced then, torn at 512 bytes. Under the
//! deterministic scheduler each call takes virtual time and offers the baton.
//!
//! SIM-1  A crash image may contain a write from the moment it begins. It contains the write with certainty once a sync
//!        that began after the write's return has returned. The same holds for names and lengths.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::device::{Device, Files};
pub use super::service_time::ServiceTime;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::laws;
use crate::base::scheduler;
use crate::base::sync::{Mutex, Rank};

/// The unit, in bytes, that a device writes atomically.
pub const SECTOR: usize = 512;

#[derive(Clone, Debug)]
enum Change {
    Write { file: u64, offset: u64, bytes: Arc<[u8]> },
    Length { file: u64, len: u64 },
    Cut { file: u64, len: u64 },
    Empty { file: u64 },
    Name { name: String, file: Option<u64> },
}

#[derive(Clone, Debug)]
enum Event {
    /// A change began; `done_at` is the position in the history at which its call returned.
    Change { change: Change, done_at: Option<usize> },
    /// A sync of a file (or of the names: `None`) that began at position `began_at` returned here.
    Sync { file: Option<u64>, began_at: usize },
    /// A sync failed here.
    FailedSync { file: Option<u64> },
}

/// The contents of all files, by name.
pub type Image = BTreeMap<String, Vec<u8>>;

#[derive(Default)]
struct State {
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Vec<u8>>,
    next_file: u64,
    initial: Image,
    history: Vec<Event>,
    calls: u64,
    fail_at: Option<(u64, io::ErrorKind)>,
    /// The call from which on every call fails.
    halts_at: Option<u64>,
    slow: BTreeMap<String, u64>,
    refusing: BTreeSet<String>,
    space_limit: Option<u64>,
    refuses_cuts: bool,
}

impl State {
    /// Bytes of all named files.
    fn used(&self) -> u64 {
        self.names.values().filter_map(|file| self.files.get(file)).map(|bytes| to_u64(bytes.len())).sum()
    }

    /// Whether the disk had power at the last call.
    fn has_power(&self) -> bool {
        self.halts_at.is_none_or(|at| at >= self.calls)
    }
}

struct Shared {
    state: Mutex<State>,
    time: ServiceTime,
}

/// A simulated disk: one directory of files in memory. Clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

/// Which of the unsynced writes are on the disk after the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// None of them.
    None,
    /// All of them.
    All,
    /// Each with probability one half, chosen by the seed, in write order.
    Subset(u64),
    /// As `Subset`, and each 512-byte sector of the chosen writes with probability one half.
    Torn(u64),
    /// All but one write, chosen by the seed.
    AllButOne(u64),
    /// All writes, but only some sectors of one write, chosen by the seed.
    OneTorn(u64),
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::with_image(Image::new(), ServiceTime::default())
    }

    /// A disk that holds `image`, all of it durable.
    pub fn with_image(image: Image, time: ServiceTime) -> Self {
        let mut state = State { initial: image.clone(), ..State::default() };
        for (name, bytes) in image {
            let file = state.next_file;
            state.next_file += 1;
            state.names.insert(name, file);
            state.files.insert(file, bytes);
        }
        SimulatedDisk { shared: Arc::new(Shared { state: Mutex::new(Rank::Device, state), time }) }
    }

    /// The number of I/O boundaries so far: positions of its [`history`](Self::history).
    pub fn boundaries(&self) -> usize {
        self.shared.state.lock().history.len()
    }

    /// The number of calls so far.
    pub fn calls(&self) -> u64 {
        self.shared.state.lock().calls
    }

    /// Makes call number `call` (as [`calls`](Self::calls) counts) fail with `kind`. A failed write has written half of
    /// its sectors. A failed sync of a file gives up the earlier writes to it: they stay readable, and no later sync
    /// covers them (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). Any other failed
    /// call changes nothing.
    pub fn fail_at(&self, call: u64, kind: io::ErrorKind) {
        self.shared.state.lock().fail_at = Some((call, kind));
    }

    /// Cuts the power: every call from now on fails.
    pub fn halt(&self) {
        self.halt_at(0);
    }

    /// Makes every call from number `call` (as [`calls`](Self::calls) counts) on fail and change nothing, as if the
    /// process had died. Its earlier writes stay, synced or not.
    pub fn halt_at(&self, call: u64) {
        self.shared.state.lock().halts_at = Some(call);
    }

    /// Makes calls succeed again, as those of another process.
    pub fn go_on(&self) {
        self.shared.state.lock().halts_at = None;
    }

    /// Makes each write to file `name` take `ns` nanoseconds more from now on.
    pub fn slow_down(&self, name: &str, ns: u64) {
        self.shared.state.lock().slow.insert(name.to_owned(), ns);
    }

    /// Makes all writes to a file fail, or succeed again.
    pub fn refuse_writes(&self, name: &str, refuse: bool) {
        let refusing = &mut self.shared.state.lock().refusing;
        if refuse {
            refusing.insert(name.to_owned())
        } else {
            refusing.remove(name)
        };
    }

    /// Makes growth fail with `StorageFull` when all files together would exceed `bytes`; `None` lifts the limit.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.shared.state.lock().space_limit = bytes;
    }

    /// Makes all cuts of files fail, or succeed again.
    pub fn refuse_cuts(&self, refuse: bool) {
        self.shared.state.lock().refuses_cuts = refuse;
    }

    /// Flips bit `bit` of the byte at `offset` of file `name`, unseen by the engine. False: there is no such byte.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> bool {
        let mut state = self.shared.state.lock();
        let Some(&file) = state.names.get(name) else { return false };
        match state.files.get_mut(&file).and_then(|bytes| bytes.get_mut(to_usize(offset))) {
            Some(byte) => {
                *byte ^= 1 << (bit % 8);
                true
            }
            None => false,
        }
    }

    /// The current contents of the files, as after a clean power-off.
    pub fn image(&self) -> Image {
        let state = self.shared.state.lock();
        state.names.iter().map(|(name, file)| (name.clone(), state.files[file].clone())).collect()
    }

    /// The disk's history, for making crash images.
    pub fn history(&self) -> History {
        let state = self.shared.state.lock();
        let synced_at = synced_at(&state.history);
        History { initial: state.initial.clone(), events: state.history.clone(), synced_at }
    }

    /// The disk after a crash at this moment.
    pub fn crash_now(&self, unsynced: Unsynced) -> Image {
        let history = self.history();
        history.crash_image(history.boundaries(), unsynced)
    }

    /// Offers the baton for `service_ns` of virtual time, then does the checks common to all calls.
    fn enter(&self, service_ns: u64) -> io::Result<()> {
        if let Some(task) = scheduler::current() {
            task.sleep_ns(service_ns);
        }
        let mut state = self.shared.state.lock();
        let call = state.calls;
        state.calls += 1;
        if state.halts_at.is_some_and(|at| at <= call) {
            return Err(io::Error::other("the simulated disk has no power"));
        }
        match state.fail_at {
            Some((at, kind)) if at == call => Err(kind.into()),
            _ => Ok(()),
        }
    }

    /// Begins a change, lets time pass, and ends it. A crash in between may leave any part of the change.
    fn change(&self, change: Change, service_ns: u64) -> io::Result<()> {
        if let Err(error) = self.enter(0) {
            if let Change::Write { file, offset, bytes } = change {
                let half = bytes.len() / SECTOR / 2 * SECTOR;
                let change = Change::Write { file, offset, bytes: bytes[..half].into() };
                let mut state = self.shared.state.lock();
                if state.has_power() {
                    apply(&mut state, &change);
                    state.history.push(Event::Change { change, done_at: None });
                }
            }
            return Err(error);
        }
        let position = {
            let mut state = self.shared.state.lock();
            apply(&mut state, &change);
            state.history.push(Event::Change { change, done_at: None });
            state.history.len() - 1
        };
        if let Some(task) = scheduler::current() {
            task.sleep_ns(service_ns);
        }
        let mut state = self.shared.state.lock();
        let now = state.history.len();
        if let Event::Change { done_at, .. } = &mut state.history[position] {
            *done_at = Some(now);
        }
        Ok(())
    }

    fn sync(&self, file: Option<u64>) -> io::Result<()> {
        let began_at = self.boundaries();
        let outcome = self.enter(self.shared.time.sync_ns);
        let mut state = self.shared.state.lock();
        match outcome {
            Ok(()) => state.history.push(Event::Sync { file, began_at }),
            Err(_) if state.has_power() => state.history.push(Event::FailedSync { file }),
            Err(_) => {}
        }
        outcome
    }

    fn file(&self, name: &str, file: u64) -> Arc<dyn Device> {
        Arc::new(SimulatedFile { disk: self.clone(), file, name: name.to_owned() })
    }
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new()
    }
}

/// The history of a [`SimulatedDisk`], which yields the disk after a crash at any boundary.
pub struct History {
    initial: Image,
    events: Vec<Event>,
    synced_at: Vec<usize>,
}

impl History {
    /// The number of boundaries.
    pub fn boundaries(&self) -> usize {
        self.events.len()
    }

    /// The writes to the file `name`: boundary, offset, and length in bytes.
    pub fn writes(&self, name: &str) -> Vec<(usize, u64, usize)> {
        let begun = (0u64..).zip(self.initial.keys()).find(|(_, other)| *other == name).map(|(file, _)| file);
        let named = self.events.iter().rev().find_map(|event| match event {
            Event::Change { change: Change::Name { name: other, file }, .. } if other == name => Some(*file),
            _ => None,
        });
        let wanted = named.unwrap_or(begun);
        let write = |(position, event): (usize, &Event)| match event {
            Event::Change { change: Change::Write { file, offset, bytes }, .. } if Some(*file) == wanted => {
                Some((position, *offset, bytes.len()))
            }
            _ => None,
        };
        self.events.iter().enumerate().filter_map(write).collect()
    }

    /// The disk at the end with all writes, except that the write at `boundary`, which the device reported as done, was
    /// lost, or went `to` another offset of its file.
    pub fn image_with_fault(&self, boundary: usize, to: Option<u64>) -> Image {
        self.image(self.boundaries(), Unsynced::All, Some((boundary, to)))
    }

    /// The disk after a crash at `boundary`: after the first `boundary` events.
    pub fn crash_image(&self, boundary: usize, unsynced: Unsynced) -> Image {
        self.image(boundary, unsynced, None)
    }

    fn image(&self, boundary: usize, unsynced: Unsynced, fault: Option<(usize, Option<u64>)>) -> Image {
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        let mut files: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (file, (name, bytes)) in (0u64..).zip(&self.initial) {
            names.insert(name.clone(), file);
            files.insert(file, bytes.clone());
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(match unsynced {
            Unsynced::Subset(seed) | Unsynced::Torn(seed) => seed,
            Unsynced::AllButOne(seed) | Unsynced::OneTorn(seed) => seed,
            Unsynced::None | Unsynced::All => 0,
        });
        let unsynced_writes: Vec<usize> = (0..boundary)
            .filter(|&position| {
                let is_write = matches!(&self.events[position], Event::Change { change: Change::Write { .. }, .. });
                is_write && self.synced_at[position] >= boundary
            })
            .collect();
        let odd_one = match unsynced_writes.len() {
            0 => None,
            count => Some(unsynced_writes[to_usize(rng.next_u64() % to_u64(count))]),
        };
        // A file system's journal commits names in order: a prefix of the unsynced ones survives.
        let mut names_survive = true;
        for (position, event) in self.events[..boundary].iter().enumerate() {
            let Event::Change { change, .. } = event else { continue };
            let certain = self.synced_at[position] < boundary;
            let chosen = certain
                || match unsynced {
                    Unsynced::None => false,
                    Unsynced::All | Unsynced::OneTorn(_) => true,
                    Unsynced::AllButOne(_) => odd_one != Some(position),
                    Unsynced::Subset(_) | Unsynced::Torn(_) => rng.next_u64() % 2 == 0,
                };
            match change {
                Change::Name { name, file } => {
                    names_survive = certain || (names_survive && chosen);
                    if names_survive {
                        match file {
                            Some(file) => names.insert(name.clone(), *file),
                            None => names.remove(name),
                        };
                    }
                }
                Change::Length { file, len } if chosen => {
                    let bytes = files.entry(*file).or_default();
                    if bytes.len() < to_usize(*len) {
                        bytes.resize(to_usize(*len), 0);
                    }
                }
                Change::Cut { file, len } if chosen => files.entry(*file).or_default().truncate(to_usize(*len)),
                Change::Empty { file } if chosen => files.entry(*file).or_default().clear(),
                Change::Write { file, offset, bytes } if chosen => {
                    let torn = match unsynced {
                        Unsynced::Torn(_) => !certain,
                        Unsynced::OneTorn(_) => odd_one == Some(position),
                        _ => false,
                    };
                    let offset = match fault {
                        Some((at, None)) if at == position => continue,
                        Some((at, Some(other))) if at == position => other,
                        _ => *offset,
                    };
                    let target = files.entry(*file).or_default();
                    for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                        if torn && rng.next_u64() % 2 == 0 {
                            continue;
                        }
                        write_into(target, to_usize(offset) + index * SECTOR, sector);
                    }
                }
                _ => {}
            }
        }
        names.into_iter().map(|(name, file)| (name, files.get(&file).cloned().unwrap_or_default())).collect()
    }
}

/// For each change, the position of the first sync that makes it certain; `usize::MAX`: none does.
fn synced_at(history: &[Event]) -> Vec<usize> {
    let mut first = vec![usize::MAX; history.len()];
    let mut given_up = vec![false; history.len()];
    for (sync_position, event) in history.iter().enumerate() {
        let (synced_file, began_at) = match event {
            Event::Sync { file, began_at } => (file, Some(*began_at)),
            Event::FailedSync { file } => (file, None),
            Event::Change { .. } => continue,
        };
        for position in 0..sync_position {
            let Event::Change { change, done_at } = &history[position] else { continue };
            let same = match change {
                Change::Write { file, .. }
                | Change::Length { file, .. }
                | Change::Cut { file, .. }
                | Change::Empty { file } => *synced_file == Some(*file),
                Change::Name { .. } => synced_file.is_none(),
            };
            if !same || first[position] < usize::MAX {
                continue;
            }
            match began_at {
                None => given_up[position] = matches!(change, Change::Write { .. }),
                Some(began_at) if !given_up[position] && done_at.is_some_and(|done| done <= began_at) => {
                    first[position] = sync_position;
                }
                Some(_) => {}
            }
        }
    }
    first
}

fn write_into(target: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if target.len() < at + bytes.len() {
        target.resize(at + bytes.len(), 0);
    }
    target[at..at + bytes.len()].copy_from_slice(bytes);
}

fn apply(state: &mut State, change: &Change) {
    match change {
        Change::Write { file, offset, bytes } => {
            write_into(state.files.entry(*file).or_default(), to_usize(*offset), bytes);
        }
        Change::Length { file, len } => {
            let bytes = state.files.entry(*file).or_default();
            if bytes.len() < to_usize(*len) {
                bytes.resize(to_usize(*len), 0);
            }
        }
        Change::Cut { file, len } => state.files.entry(*file).or_default().truncate(to_usize(*len)),
        Change::Empty { file } => state.files.entry(*file).or_default().clear(),
        Change::Name { name, file } => {
            match file {
                Some(file) => state.names.insert(name.clone(), *file),
                None => state.names.remove(name),
            };
        }
    }
}

impl Files for SimulatedDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.enter(0)?;
        let file = self.shared.state.lock().names.get(name).copied();
        match file {
            Some(file) => Ok(self.file(name, file)),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        let there = self.shared.state.lock().names.get(name).copied();
        if let Some(file) = there {
            // It stays the same file, and a crash image may contain any part of its old contents.
            self.change(Change::Empty { file }, 0)?;
            return Ok(self.file(name, file));
        }
        let file = {
            let mut state = self.shared.state.lock();
            let file = state.next_file;
            state.next_file += 1;
            state.files.insert(file, Vec::new());
            file
        };
        self.change(Change::Name { name: name.to_owned(), file: Some(file) }, 0)?;
        Ok(self.file(name, file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let Some(file) = self.shared.state.lock().names.get(from).copied() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // The new name comes first: an image between the two changes has both names, and no image lacks both.
        self.change(Change::Name { name: to.to_owned(), file: Some(file) }, 0)?;
        self.change(Change::Name { name: from.to_owned(), file: None }, 0)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(Change::Name { name: name.to_owned(), file: None }, 0)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.enter(0)?;
        Ok(self.shared.state.lock().names.keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        laws::check_io();
        self.sync(None)
    }

    fn free_bytes(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        state.space_limit.map(|limit| limit.saturating_sub(state.used()))
    }

    fn place(&self) -> String {
        "simulated disk".to_owned()
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    file: u64,
    name: String,
}

impl Device for SimulatedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        laws::check_io();
        self.disk.enter(self.disk.shared.time.read_ns)?;
        let state = self.disk.shared.state.lock();
        let start = to_usize(offset);
        let bytes = state.files.get(&self.file).and_then(|bytes| bytes.get(start..start + buf.len()));
        match bytes {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        laws::check_io();
        let change = Change::Write { file: self.file, offset, bytes: buf.into() };
        let more = {
            let state = self.disk.shared.state.lock();
            if state.refusing.contains(&self.name) {
                return Err(io::Error::other("the simulated disk takes no writes"));
            }
            state.slow.get(&self.name).copied().unwrap_or(0)
        };
        self.disk.change(change, self.disk.shared.time.write_ns + more)
    }

    fn sync(&self) -> io::Result<()> {
        laws::check_io();
        self.disk.sync(Some(self.file))
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.disk.shared.state.lock();
        Ok(state.files.get(&self.file).map_or(0, |bytes| to_u64(bytes.len())))
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        laws::check_io();
        {
            let state = self.disk.shared.state.lock();
            let used = state.used();
            let have = state.files.get(&self.file).map_or(0, |bytes| to_u64(bytes.len()));
            if state.space_limit.is_some_and(|limit| used + len.saturating_sub(have) > limit) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.disk.change(Change::Length { file: self.file, len }, 0)
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        laws::check_io();
        if self.disk.shared.state.lock().refuses_cuts {
            return Err(io::Error::other("the simulated disk cuts no files"));
        }
        self.disk.change(Change::Cut { file: self.file, len }, self.disk.shared.time.write_ns)
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Vec<u8> {
        vec![byte; 4096]
    }

    #[test]
    fn images_have_all_synced_writes_and_unsynced_ones_by_choice() {
        let disk = SimulatedDisk::new();
        let file = disk.create("f").expect("created");
        disk.sync_names().expect("synced");
        file.write_at(&block(1), 0).expect("written");
        file.sync().expect("synced");
        file.write_at(&block(2), 0).expect("written");
        let end = disk.boundaries();
        assert_eq!(disk.history().crash_image(end, Unsynced::None)["f"], block(1));
        assert_eq!(disk.history().crash_image(end, Unsynced::All)["f"], block(2));
        let torn = disk.history().crash_image(end, Unsynced::Torn(3))["f"].clone();
        let mut kinds = std::collections::BTreeSet::new();
        for sector in torn.chunks(SECTOR) {
            assert!(sector.iter().all(|&b| b == sector[0]), "a sector is whole");
            kinds.insert(sector[0]);
        }
        assert!(kinds.is_subset(&[1, 2].into()));
        let torn_somewhere = (0..20).any(|seed| {
            let image = disk.history().crash_image(end, Unsynced::Torn(seed))["f"].clone();
            image.contains(&1) && image.contains(&2)
        });
        assert!(torn_somewhere, "some seed tears the write");
    }

    #[test]
    fn write_that_returned_after_the_sync_began_is_not_covered() {
        let history = vec![
            Event::Change { change: Change::Write { file: 0, offset: 0, bytes: block(1).into() }, done_at: Some(2) },
            Event::Change { change: Change::Length { file: 1, len: 9 }, done_at: Some(2) },
            Event::Sync { file: Some(0), began_at: 1 },
            Event::Sync { file: Some(1), began_at: 2 },
        ];
        assert_eq!(synced_at(&history), vec![usize::MAX, 3, usize::MAX, usize::MAX]);
    }

    #[test]
    fn data_of_a_failed_sync_is_read_and_never_covered_later() {
        let disk = SimulatedDisk::new();
        let file = disk.create("f").expect("created");
        disk.sync_names().expect("synced");
        file.write_at(&block(1), 0).expect("written");
        disk.fail_at(disk.calls(), io::ErrorKind::Other);
        assert!(file.sync().is_err());
        file.write_at(&block(2), 4096).expect("written");
        file.sync().expect("synced");
        assert_eq!(disk.image()["f"], [block(1), block(2)].concat());
        assert_eq!(disk.crash_now(Unsynced::None)["f"], [block(0), block(2)].concat());
        file.write_at(&block(1), 0).expect("written again");
        file.sync().expect("synced");
        assert_eq!(disk.crash_now(Unsynced::None)["f"], [block(1), block(2)].concat());
    }

    #[test]
    fn names_are_certain_only_after_they_are_synced() {
        let disk = SimulatedDisk::new();
        disk.create("a").expect("created");
        disk.sync_names().expect("synced");
        disk.rename("a", "b").expect("renamed");
        let end = disk.boundaries();
        let names = |unsynced| disk.history().crash_image(end, unsynced).into_keys().collect::<Vec<_>>();
        assert_eq!(names(Unsynced::None), ["a"]);
        assert_eq!(names(Unsynced::All), ["b"]);
    }

    #[test]
    fn a_file_that_is_created_again_is_emptied_at_once() {
        let disk = SimulatedDisk::new();
        let file = disk.create("f").expect("created");
        file.write_at(&block(1), 0).expect("written");
        file.sync().expect("synced");
        disk.sync_names().expect("synced");
        assert!(disk.create("f").expect("created").is_empty().expect("a length"));
        let after = |unsynced| disk.crash_now(unsynced)["f"].clone();
        assert_eq!(after(Unsynced::None), block(1));
        assert_eq!(after(Unsynced::All), Vec::<u8>::new(), "emptying needs no sync of names");
    }

    /// A cut that is not synced may be there after a crash or not; what grows behind it is zeroes.
    #[test]
    fn a_cut_is_certain_after_a_sync_and_growth_brings_zeroes() {
        let disk = SimulatedDisk::new();
        let file = disk.create("f").expect("created");
        disk.sync_names().expect("synced");
        file.write_at(&[block(1), block(2)].concat(), 0).expect("written");
        file.sync().expect("synced");
        file.cut(4096).expect("cut");
        let after = |unsynced| disk.crash_now(unsynced)["f"].clone();
        assert_eq!((after(Unsynced::None), after(Unsynced::All)), ([block(1), block(2)].concat(), block(1)));
        let lens: BTreeSet<usize> = (0..20).map(|seed| after(Unsynced::Subset(seed)).len()).collect();
        assert_eq!(lens, [4096, 8192].into());
        file.grow(8192).expect("grown");
        file.write_at(&block(3), 8192).expect("written");
        assert!(file.cut(20_000).is_ok(), "not longer");
        file.sync().expect("synced");
        assert_eq!(after(Unsynced::None), [block(1), block(0), block(3)].concat());
    }

    #[test]
    fn faults_come_when_they_are_asked_for() {
        let disk = SimulatedDisk::new();
        let file = disk.create("f").expect("created");
        disk.fail_at(disk.calls() + 1, io::ErrorKind::StorageFull);
        file.write_at(&block(1), 0).expect("the first call succeeds");
        assert_eq!(file.write_at(&block(1), 0).expect_err("the second call fails").kind(), io::ErrorKind::StorageFull);
        disk.limit_space(Some(8192));
        assert!(file.grow(8192).is_ok());
        assert_eq!(file.grow(12288).expect_err("over the limit").kind(), io::ErrorKind::StorageFull);
        disk.halt_at(disk.calls() + 1);
        file.write_at(&block(2), 0).expect("before the halt");
        assert!(file.write_at(&block(3), 0).is_err() && file.sync().is_err());
        disk.go_on();
        assert_eq!(disk.image()["f"][..4096], block(2), "writes before the halt stay");
        disk.halt();
        assert!(file.sync().is_err());
    }
}
