//! The options of a database.

#[macro_use]
mod declare;

pub(crate) mod durability;
pub(crate) mod in_force;
pub(crate) mod mistakes;
pub(crate) mod page_store;
mod policies;
pub(crate) mod profile;
mod profile_values;
pub(crate) mod table;
pub(crate) mod value;

use bytesize::ByteSize;

use crate::base::aligned::{BLOCK_U64, to_u64};
use crate::base::error::Error;
use crate::options::profile::Profile;
use crate::options::table::{DEFAULT_REDO_CAPACITY, DEFAULT_REDO_CAPACITY_MAX};
use crate::options::value::size_text;
use crate::redo::files::{CAPACITY_MAX, RING};
use crate::redo::group::GROUP_FRAME_LEN;
use crate::redo::log::{Log, MAP_RECORD_MAX};
use crate::store::lot::{LOADED_MAX, LOT_PAGES};

pub use page_store::PageStoreKind;
pub use table::{ClassicOptions, Options};

/// Least number of frames of a pool.
pub(crate) const FRAMES_MIN: u64 = 32;

/// Least capacity of a log in pages, so that a split takes only a small part of it.
pub(crate) const REDO_PAGES_MIN: u64 = 128;

/// All mistakes in one error, if there are any.
pub(crate) fn invalid(mistakes: Vec<String>) -> Result<(), Error> {
    if mistakes.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(mistakes.join("; ").into())) }
}

/// Most log bytes for epochs: a crash takes one of 25 bytes. Crashes without a checkpoint between them add up: these
/// bytes suffice for some 2,600.
const EPOCHS_MAX: u64 = 64 << 10;

/// Most images that may wait for their data sync, with a pool of `frames`. A checkpoint thus takes several syncs, and
/// frames come free meanwhile.
pub(crate) fn unsynced_max(frames: u64) -> u64 {
    (frames / 8).max(2 * to_u64(LOT_PAGES))
}

/// Bytes of a log of `capacity` that are reserved for cleaning: a map record for each frame and each image in flight,
/// including those of bulk loads, and room for epochs.
pub(crate) fn redo_reserve(frames: u64, capacity: u64) -> u64 {
    let holders = frames + unsynced_max(frames) + to_u64(LOT_PAGES + LOADED_MAX);
    MAP_RECORD_MAX * holders + epochs_reserve(capacity)
}

/// Bytes of the reserve that only epochs may use.
pub(crate) fn epochs_reserve(capacity: u64) -> u64 {
    EPOCHS_MAX.min(capacity / 16)
}

/// The smallest capacity of a large log that suffices for a pool of `frames`, in whole blocks for each log file.
pub(crate) fn needed_capacity(frames: u64) -> u64 {
    (4 * redo_reserve(frames, CAPACITY_MAX)).next_multiple_of(RING * BLOCK_U64)
}

impl Options {
    /// Bytes up to which the log grows: as asked for, or a fourth of the pool's.
    pub(crate) fn redo_capacity_most(&self, frames: u64, page_size: u64) -> u64 {
        let default = (frames * page_size / 4).clamp(DEFAULT_REDO_CAPACITY, DEFAULT_REDO_CAPACITY_MAX);
        self.redo_capacity.map_or(default.max(needed_capacity(frames)), |size| size.as_u64())
    }

    /// Bytes that the log has from the begin, of the `most` up to which it grows. The policies of a server go by the
    /// log's capacity, so with a server's profile it does not change.
    pub(crate) fn redo_capacity_least(&self, most: u64) -> u64 {
        match self.classic.profile {
            Profile::Millpond => self.redo_capacity_min.as_u64().min(most),
            _ => most,
        }
    }
}

/// A mebibyte: larger sizes that an error proposes are rounded up to a multiple of it.
const MIB: u64 = 1 << 20;

/// `count` bytes as text, in the form that options take.
pub(crate) fn bytes(count: u64) -> String {
    size_text(ByteSize::b(count))
}

/// The mistake, if the reserve leaves writers less than three fourths of the log.
pub(crate) fn mistake_of_reserve(frames: u64, capacity: u64) -> Option<String> {
    let needed = 4 * redo_reserve(frames, capacity);
    (needed > capacity).then(|| {
        format!(
            "redo_capacity is {}, and a buffer pool of {frames} pages needs {}: leave redo_capacity out, or use a larger one or a smaller buffer_pool_size",
            bytes(capacity),
            bytes(needed.next_multiple_of(if needed > MIB { MIB } else { 1 }))
        )
    })
}

/// Refuses a log whose reserve leaves writers less than three fourths of it.
pub(crate) fn validate_reserve(frames: u64, capacity: u64) -> Result<(), Error> {
    invalid(mistake_of_reserve(frames, capacity).into_iter().collect())
}

/// A number of frames for which a log of `capacity` is large enough: `frames` or fewer.
pub(crate) fn fitting_frames(frames: u64, capacity: u64) -> u64 {
    let mut fitting = frames;
    while fitting > FRAMES_MIN && validate_reserve(fitting, capacity).is_err() {
        fitting = (fitting / 2).max(FRAMES_MIN);
    }
    fitting
}

/// Most bytes of keys, values and batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) key: usize,
    pub(crate) value: usize,
    pub(crate) batch_bytes: usize,
}

impl Limits {
    pub(crate) fn new(page_size: usize, log: &Log) -> Limits {
        Limits {
            key: (page_size / 16 * 3).min(3072),
            value: page_size / 4,
            batch_bytes: log.group_max() - GROUP_FRAME_LEN,
        }
    }
}
