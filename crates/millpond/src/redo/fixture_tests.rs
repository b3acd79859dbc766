//! A log on a simulated disk, for the unit tests of the log.

use std::sync::Arc;
use std::time::Duration;

use super::files::{Geometry, Lap, LogFiles, Owner, Ring};
use super::group::{BEHIND_MAX, GroupKind};
use super::log::{Log, LogLimits, LogPolicies, Resume};
use crate::base::aligned::{BLOCK_U64, to_u64};
use crate::base::ids::Lsn;
use crate::base::waits::Waits;
use crate::simulation::{Image, ServiceTime, SimulatedDisk};

pub(super) const OWNER: Owner = Owner { uuid: [1, 2], page_size: 4096, features: 0 };
pub(super) const NONCE: u64 = 7;

/// The first group of a database.
pub(super) const START: Lsn = Lsn(BLOCK_U64);

/// The parameters of a log for a test.
pub(super) struct Setup {
    pub(super) capacity: u64,
    pub(super) generation: u32,
    /// The log begins here, and its checkpoint is here.
    pub(super) at: Lsn,
    pub(super) reserve: u64,
    pub(super) epochs: u64,
    pub(super) behind: u64,
    pub(super) policies: LogPolicies,
}

/// A log of 64 KiB with a buffer of 16 KiB.
impl Default for Setup {
    fn default() -> Self {
        Setup {
            capacity: 64 << 10,
            generation: 0,
            at: START,
            reserve: 8 << 10,
            epochs: 0,
            behind: BEHIND_MAX,
            policies: LogPolicies::default(),
        }
    }
}

impl Setup {
    pub(super) fn geometry(&self) -> Geometry {
        Geometry::of(self.generation, self.capacity)
    }

    /// Makes the log's files on `disk`, and opens the log.
    pub(super) fn make(&self, disk: &SimulatedDisk) -> Arc<Log> {
        let ring = Ring::create(disk, OWNER, self.geometry()).expect("made");
        let files = LogFiles::new(ring, None);
        files.write_lap(&Lap { boundary: self.at, first_group: self.at, nonce: NONCE }).expect("written");
        let resume = Resume { checkpoint: self.at, epochs: vec![(self.at, NONCE)], end: self.at };
        let (reserve, epochs, behind) = (self.reserve, self.epochs, self.behind);
        let limits = LogLimits { reserve, epochs, smallest: self.capacity, behind };
        let waits = Arc::new(Waits::new(Duration::from_secs(1)));
        let log = Log::resume(files, resume, limits, self.policies, Arc::default(), Arc::default(), waits);
        Arc::new(log.expect("nothing fails"))
    }

    /// The log's files on `disk`, opened anew.
    pub(super) fn files(&self, disk: &SimulatedDisk) -> LogFiles {
        LogFiles::open(disk, OWNER, self.geometry(), None).expect("opened")
    }
}

/// Appends a group, without a wait for room; returns its end.
pub(super) fn append(log: &Log, payload: usize) -> Lsn {
    let credit = log.try_reserve(payload, 0).expect("no failure").expect("room");
    log.append(credit, GroupKind::Pages, &vec![1; payload], |_| ()).expect("appended")
}

/// Appends a group and makes it durable; returns its end.
pub(super) fn append_durably(log: &Log, payload: usize) -> Lsn {
    let end = append(log, payload);
    log.flush_wait(end).expect("flushed");
    end
}

/// The disk without the file `name`.
pub(super) fn without(disk: &SimulatedDisk, name: &str) -> SimulatedDisk {
    let mut image: Image = disk.image();
    assert!(image.remove(name).is_some(), "there is no {name}");
    SimulatedDisk::with_image(image, ServiceTime::default())
}

/// Flips a bit of the byte at `lsn`, which is in the first file of the ring of generation 0, on its first lap.
pub(super) fn damage(disk: &SimulatedDisk, lsn: Lsn, bit: u8) {
    assert!(disk.flip_bit("redo-0-0.mpd", BLOCK_U64 + lsn.0, bit), "no byte at {lsn}");
}

/// Bytes of the disk's file `name`.
pub(super) fn len_of(disk: &SimulatedDisk, name: &str) -> u64 {
    disk.image().get(name).map_or(0, |bytes| to_u64(bytes.len()))
}
