//! The options of a database.

pub(crate) mod classic;
pub(crate) mod classic_log;
pub(crate) mod durability;
pub(crate) mod in_force;
pub(crate) mod mistakes;
pub(crate) mod profile;
pub(crate) mod profile_values;
pub(crate) mod table;
pub(crate) mod text;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::base::aligned::{BLOCK_U64, to_u64};
use crate::base::error::Error;
use crate::io::batch::IoEngine;
use crate::io::directory::GroupAccess;
use crate::options::durability::Durability;
use crate::options::profile::Profile;
use crate::options::text::size_text;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
use crate::pool::dirty::DirtyTracking;
use crate::pool::legacy::EmptyFreeListAlgorithm;
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::replacement::PageReplacement;
use crate::redo::files::{CAPACITY_MAX, RING};
use crate::redo::group::GROUP_FRAME_LEN;
use crate::redo::log::{Log, MAP_RECORD_MAX};
use crate::redo::log_spin::LogSpin;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;
use crate::store::lot::{LOADED_MAX, LOT_PAGES};

/// The way in which page images get to the device; fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PageStoreKind {
    /// A page's new image goes to a free place. A crash leaves the old or the new image whole.
    #[default]
    CopyOnWrite,
    /// A page's new image overwrites the old one. If a crash tears the write, the next open restores the page from a
    /// copy, or the page is lost: see [`Options::doublewrite`].
    InPlace,
}

/// The name in options.
impl fmt::Display for PageStoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageStoreKind::CopyOnWrite => "copy_on_write",
            PageStoreKind::InPlace => "in_place",
        })
    }
}

/// The options of a database. [`Db::open`](crate::Db::open) checks them all, and reports every mistake at once.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(crate) page_size: Option<ByteSize>,
    pub(crate) profile: Profile,
    /// Names of options that the profile has set, and the caller has not set since.
    pub(crate) filled: Vec<&'static str>,
    pub(crate) page_store: Option<PageStoreKind>,
    pub(crate) doublewrite: Option<Doublewrite>,
    pub(crate) dirty_tracking: Option<DirtyTracking>,
    pub(crate) empty_free_list_algorithm: EmptyFreeListAlgorithm,
    pub(crate) page_replacement: Option<PageReplacement>,
    pub(crate) old_blocks_time: Option<Duration>,
    pub(crate) buffer_pool_instances: Option<usize>,
    pub(crate) lru_scan_depth: usize,
    pub(crate) free_list_target: Option<usize>,
    pub(crate) adaptive_flushing_method: AdaptiveFlushingMethod,
    pub(crate) page_cleaners: Option<usize>,
    pub(crate) io_capacity: Option<usize>,
    pub(crate) io_capacity_max: Option<usize>,
    pub(crate) max_dirty_pages_pct: Option<usize>,
    pub(crate) max_dirty_pages_pct_lwm: Option<usize>,
    pub(crate) cleaner_lsn_age_factor: Option<CleanerLsnAgeFactor>,
    pub(crate) flush_neighbors: FlushNeighbors,
    pub(crate) log_recent_closed: LogRecentClosed,
    pub(crate) log_recent_closed_size: Option<ByteSize>,
    pub(crate) log_writer_threads: bool,
    pub(crate) log_spin: Option<LogSpin>,
    pub(crate) log_spin_cpu_abs_lwm: Option<usize>,
    pub(crate) log_spin_cpu_pct_hwm: Option<usize>,
    pub(crate) flush_log_at_commit: Option<u8>,
    pub(crate) io_engine: IoEngine,
    pub(crate) read_ahead_pages: usize,
    pub(crate) stall_threshold: Duration,
    pub(crate) buffer_pool_size: ByteSize,
    pub(crate) buffer_pool_size_max: Option<ByteSize>,
    pub(crate) redo_capacity: Option<ByteSize>,
    pub(crate) recovery_time_target: Option<Duration>,
    pub(crate) cached: bool,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) group_access: Option<GroupAccess>,
    pub(crate) status_socket: Option<PathBuf>,
    pub(crate) metrics_port: u16,
    /// The open shrinks a pool that is too large for the log, instead of refusing it.
    pub(crate) fit_pool: bool,
    /// The data is only read: there is no purge.
    pub(crate) at_rest: bool,
    pub(crate) durability: Durability,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Least number of frames of a pool.
pub(crate) const FRAMES_MIN: u64 = 32;

/// Least capacity of a log in pages, so that a split takes only a small part of it.
pub(crate) const REDO_PAGES_MIN: u64 = 128;

impl Options {
    /// The defaults: 128 MiB of pool; for a new database pages of 16 KiB and 256 MiB of log; `O_DIRECT`; durable
    /// commits.
    pub fn new() -> Self {
        Options {
            page_size: None,
            profile: Profile::Millpond,
            filled: Vec::new(),
            page_store: None,
            doublewrite: None,
            dirty_tracking: None,
            empty_free_list_algorithm: EmptyFreeListAlgorithm::Handoff,
            page_replacement: None,
            old_blocks_time: None,
            buffer_pool_instances: None,
            lru_scan_depth: 1024,
            free_list_target: None,
            adaptive_flushing_method: AdaptiveFlushingMethod::Envelope,
            page_cleaners: None,
            io_capacity: None,
            io_capacity_max: None,
            max_dirty_pages_pct: None,
            max_dirty_pages_pct_lwm: None,
            cleaner_lsn_age_factor: None,
            flush_neighbors: FlushNeighbors::None,
            log_recent_closed: LogRecentClosed::None,
            log_recent_closed_size: None,
            log_writer_threads: false,
            log_spin: None,
            log_spin_cpu_abs_lwm: None,
            log_spin_cpu_pct_hwm: None,
            flush_log_at_commit: None,
            io_engine: IoEngine::Auto,
            read_ahead_pages: 32,
            stall_threshold: Duration::from_millis(100),
            buffer_pool_size: ByteSize::mib(128),
            buffer_pool_size_max: None,
            redo_capacity: None,
            recovery_time_target: None,
            cached: false,
            create: true,
            read_only: false,
            group_access: None,
            status_socket: None,
            metrics_port: 0,
            fit_pool: false,
            at_rest: false,
            durability: Durability::Commit,
        }
    }

    /// Bytes of a page: 4, 8, 16, 32 or 64 KiB, fixed at creation. Default: 16 KiB, or the existing database's size.
    pub fn page_size(mut self, size: ByteSize) -> Self {
        self.page_size = Some(size);
        self
    }

    /// The way in which page images get to the device, fixed at creation. Default: copy-on-write, or the existing
    /// database's kind.
    pub fn page_store(mut self, kind: PageStoreKind) -> Self {
        self.page_store = Some(kind);
        self
    }

    /// The record kept of a page before its image is overwritten, since a crash may tear the write. Only with
    /// [`PageStoreKind::InPlace`]: copy-on-write overwrites nothing. Each lot of pages is then written and synced
    /// twice. If there is no copy of a torn page, opening or reading reports [`Error::Corruption`]. Default:
    /// [`Doublewrite::On`].
    pub fn doublewrite(mut self, doublewrite: Doublewrite) -> Self {
        self.given("doublewrite");
        self.doublewrite = Some(doublewrite);
        self
    }

    /// The way in which several reads or writes run at once. Default: [`IoEngine::Auto`]. [`Db::io_engine`] tells the
    /// one in use.
    ///
    /// [`Db::io_engine`]: crate::Db::io_engine
    pub fn io_engine(mut self, engine: IoEngine) -> Self {
        self.io_engine = engine;
        self
    }

    /// Leaves that a scan reads ahead together when it misses repeatedly, at most; 0 and 1: each leaf by itself. Never
    /// more than 1/64 of the pool, or than the frames that are free at once. Range: 0 to 64; default: 32.
    pub fn read_ahead_pages(mut self, pages: usize) -> Self {
        self.read_ahead_pages = pages;
        self
    }

    /// Least duration of an operation that is counted and recorded as a stall; exact to a few milliseconds. Default:
    /// 100 ms.
    pub fn stall_threshold(mut self, threshold: Duration) -> Self {
        self.stall_threshold = threshold;
        self
    }

    /// The time that a recovery may take, about: 1 s to an hour. The engine measures how fast recovery applies log, and
    /// keeps the log short enough for the target; if necessary it slows writers down. The log may always be 4 MiB long.
    /// May be [changed](crate::Db::set_recovery_time_target) while the database is open. Default: `None`: only the
    /// log's capacity limits a recovery.
    pub fn recovery_time_target(mut self, target: Option<Duration>) -> Self {
        self.recovery_time_target = target;
        self
    }

    /// Bytes of the buffer pool: at least 32 pages. Default: 128 MiB.
    pub fn buffer_pool_size(mut self, size: ByteSize) -> Self {
        self.buffer_pool_size = size;
        self
    }

    /// The largest size that the buffer pool may be [given](crate::Db::set_buffer_pool_size) while the database is
    /// open. The log reserves room for a pool of this size. Default: `buffer_pool_size`.
    pub fn buffer_pool_size_max(mut self, size: ByteSize) -> Self {
        self.buffer_pool_size_max = Some(size);
        self
    }

    /// Capacity of the redo log in bytes: 128 pages to 1 TiB. Default: 256 MiB, or the existing database's capacity, or
    /// the buffer pool's need if that is more (192 bytes a page).
    ///
    /// A value other than the database's gives it a new log at open. If that is no larger than 256 MiB or the pool's
    /// need, it is complete when open returns. Otherwise a background thread makes it, the database uses the log that
    /// it has meanwhile, and the status text tells so. To wait for the larger log, call
    /// [`Db::set_redo_capacity`](crate::Db::set_redo_capacity) with the same value. A database that is closed earlier
    /// keeps the log that it has.
    pub fn redo_capacity(mut self, size: ByteSize) -> Self {
        self.redo_capacity = Some(size);
        self
    }

    /// Whether files go through the system's page cache, as file systems without `O_DIRECT` require. Default: no
    /// (`O_DIRECT`).
    pub fn cached(mut self, cached: bool) -> Self {
        self.cached = cached;
        self
    }

    /// Whether open creates a database where there is none. Default: yes.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Opens the database only for reading, and writes nothing. This works on a read-only file system, and for a user
    /// without permission to write the files. All calls that write get [`Error::ReadOnly`]. Any number of processes may
    /// open a database in this way while none has it open for writing. Default: no.
    ///
    /// Changes that a crash left unfinished are redone and undone in memory, which takes up to as much as the buffer
    /// pool. If they do not fit in the pool, open fails, and the error names the size that suffices. Open creates no
    /// database; `redo_capacity` and `recovery_time_target` have no effect.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// These options, adapted to a database that is only read.
    pub(crate) fn for_reading(self) -> Self {
        if !self.read_only {
            return self;
        }
        let fits = Options { create: false, at_rest: true, fit_pool: true, ..self };
        Options { redo_capacity: None, recovery_time_target: None, ..fits }
    }

    /// Access of the group of the database's files; other users have none. The group is that of the process, or of the
    /// directory if its set-group-id bit is set. A value given at open also changes existing files, which only their
    /// owner can do. Default: [`GroupAccess::None`] (files of mode 0600, directories of mode 0700), or the access that
    /// all files of the database have.
    pub fn group_access(mut self, access: GroupAccess) -> Self {
        self.group_access = Some(access);
        self
    }

    /// Path of a Unix domain socket on which the engine reports its state while the database is open. A client connects
    /// and writes a line `text`, `prometheus` or `json`; the engine answers in that form. Only the owner has access to
    /// the socket's file (mode 0600). Closing the database removes the file, and open replaces one that a dead process
    /// left. Open refuses a path that is too long, or where no socket can be made. Default: none.
    pub fn status_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.status_socket = Some(path.into());
        self
    }

    /// A port of 127.0.0.1 on which the engine answers `GET /metrics` with its [metrics](crate::Db::metrics_text), for
    /// Prometheus, while the database is open. All users of this machine may read them, and no other machine; they are
    /// only numbers. Open refuses a port that is taken. Default: 0: no port.
    pub fn metrics_port(mut self, port: u16) -> Self {
        self.metrics_port = port;
        self
    }

    /// When a write is durable, unless its batch sets another durability. Default: [`Durability::Commit`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The doublewrite mode in force with this page store.
    pub(crate) fn doublewrite_of(&self, kind: PageStoreKind) -> Doublewrite {
        match kind {
            PageStoreKind::CopyOnWrite => Doublewrite::Off,
            PageStoreKind::InPlace => self.doublewrite.unwrap_or_default(),
        }
    }

    /// Largest number of frames that the pool may have, with pages of `page_size`.
    pub(crate) fn frames_max(&self, page_size: u64) -> u64 {
        self.buffer_pool_size_max.unwrap_or(self.buffer_pool_size).max(self.buffer_pool_size).as_u64() / page_size
    }
}

/// All mistakes in one error, if there are any.
pub(crate) fn invalid(mistakes: Vec<String>) -> Result<(), Error> {
    if mistakes.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(mistakes.join("; ").into())) }
}

/// Refuses a target below 1 s or above an hour.
pub(crate) fn validate_recovery_time(target: Duration) -> Result<(), String> {
    let is_possible = (Duration::from_secs(1)..=Duration::from_hours(1)).contains(&target);
    is_possible.then_some(()).ok_or_else(|| format!("recovery_time_target is {target:?}: use 1s to 3600s, or none"))
}

/// Largest number of leaves that a scan may read ahead together.
pub(crate) const READ_AHEAD_MAX: usize = 64;

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

pub(crate) const DEFAULT_REDO_CAPACITY: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_is_named_with_its_value_and_the_way_out() {
        let options = Options::new()
            .buffer_pool_size(ByteSize::kib(8))
            .redo_capacity(ByteSize::kib(1))
            .durability(Durability::Background(0));
        let options = options.doublewrite(Doublewrite::On).flush_neighbors(FlushNeighbors::Area);
        let error = options.validate(16384, PageStoreKind::CopyOnWrite).expect_err("five mistakes").to_string();
        for part in [
            "buffer_pool_size is 8KiB",
            "512KiB",
            "redo_capacity is 1KiB",
            "background(0 ms)",
            "doublewrite is for page_store=in_place",
            "flush_neighbors is for page_store=in_place",
        ] {
            assert!(error.contains(part), "{part} in: {error}");
        }
        let of_new = |page_size| Options::new().validate(page_size, PageStoreKind::CopyOnWrite);
        assert!(of_new(5000).expect_err("odd").to_string().contains("page_size"));
        assert!(of_new(16384).is_ok());
        // The error shows the exact size: rounded, it would seem to be in its range.
        let nearly = Options::new().redo_capacity(ByteSize::kib(2047)).validate(16384, PageStoreKind::CopyOnWrite);
        let nearly = nearly.expect_err("too small").to_string();
        assert!(nearly.contains("redo_capacity is 2047KiB: use 2MiB to"), "{nearly}");
    }
}
