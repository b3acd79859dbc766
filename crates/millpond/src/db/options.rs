//! What a database is opened with.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use super::classic_options::mistakes_in_classic_policies;
use super::option_text::size_text;
use super::profile::Profile;
use crate::base::aligned::{BLOCK_U64, to_u64};
use crate::base::error::Error;
use crate::base::page::layout::is_page_size;
use crate::io::batch::IoEngine;
use crate::io::directory::GroupAccess;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
use crate::pool::dirty::DirtyTracking;
use crate::pool::legacy::EmptyFreeListAlgorithm;
use crate::pool::memory::FRAMES_MAX;
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::replacement::PageReplacement;
use crate::redo::files::{CAPACITY_MAX, RING};
use crate::redo::group::GROUP_FRAME_LEN;
use crate::redo::log::{Log, MAP_RECORD_MAX};
use crate::redo::log_spin::LogSpin;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;
use crate::store::page_store::{LOADED_MAX, LOT_PAGES};

/// When a write is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// When it returns: it survives a crash of the process and a loss of power.
    #[default]
    Commit,
    /// When it returns it is in the hands of the device, and survives the process; a loss of power it survives a second
    /// later.
    Written,
    /// So many milliseconds after it returns, at the latest.
    Background(u32),
    /// With the next write that waits, or the next checkpoint. Still all or nothing, and in order: what survives is a
    /// prefix of what was written.
    None,
}

impl Durability {
    /// The mistake in it, if there is one.
    pub(crate) fn validate(self) -> Result<(), String> {
        match self {
            Durability::Background(ms) if !(1..=60_000).contains(&ms) => {
                Err(format!("durability is background({ms} ms): use 1 to 60000 ms"))
            }
            _ => Ok(()),
        }
    }
}

/// How pages get to the device; fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PageStoreKind {
    /// A page's new image goes to a free place, and a crash finds the old or the new one whole.
    #[default]
    CopyOnWrite,
    /// A page's new image overwrites the old one. A page that a crash tears while it is written is put back from a
    /// copy, or is lost, as [`Options::doublewrite`] says.
    InPlace,
}

/// As options name it.
impl fmt::Display for PageStoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageStoreKind::CopyOnWrite => "copy_on_write",
            PageStoreKind::InPlace => "in_place",
        })
    }
}

/// How a database is opened; [`Db::open`](crate::Db::open) checks all of it and reports every mistake at once.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(crate) page_size: Option<ByteSize>,
    pub(crate) profile: Profile,
    /// What the profile has filled in, and nobody has given since.
    pub(super) filled: Vec<&'static str>,
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
    /// A pool that is too large for the log is made smaller, instead of being refused.
    pub(crate) fit_pool: bool,
    /// Nothing is purged: what is there is only looked at.
    pub(crate) at_rest: bool,
    pub(crate) durability: Durability,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Frames that a pool must have.
pub(crate) const FRAMES_MIN: u64 = 32;

/// Bytes that a log must hold, per page byte: so that a split is a small part of it.
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

    /// Bytes of a page: 4, 8, 16, 32 or 64 KiB, fixed at creation. Default: 16 KiB, or what the database has.
    pub fn page_size(mut self, size: ByteSize) -> Self {
        self.page_size = Some(size);
        self
    }

    /// How pages get to the device, fixed at creation. Default: copy-on-write, or what the database has.
    pub fn page_store(mut self, kind: PageStoreKind) -> Self {
        self.page_store = Some(kind);
        self
    }

    /// What is kept of a page that is about to be written over, for a crash may tear it: with
    /// [`PageStoreKind::InPlace`] only. Each lot of pages is then written and synced twice. Where there is no copy,
    /// opening or reading reports [`Error::Corruption`]. Default: [`Doublewrite::On`] for a database that writes in
    /// place; the other overwrites nothing.
    pub fn doublewrite(mut self, doublewrite: Doublewrite) -> Self {
        self.given("doublewrite");
        self.doublewrite = Some(doublewrite);
        self
    }

    /// How several reads or writes are under way together. Default: [`IoEngine::Auto`]. [`Db::io_engine`] tells which
    /// it is.
    ///
    /// [`Db::io_engine`]: crate::Db::io_engine
    pub fn io_engine(mut self, engine: IoEngine) -> Self {
        self.io_engine = engine;
        self
    }

    /// Leaves that a scan which misses again and again has read together, at most; 0 and 1: each by itself. Never more
    /// than 1/64 of the pool, nor than frames are free at once. Range: 0 to 64; default: 32.
    pub fn read_ahead_pages(mut self, pages: usize) -> Self {
        self.read_ahead_pages = pages;
        self
    }

    /// How long an operation takes that is counted and remembered as a stall; measured to a few milliseconds. Default:
    /// 100 ms.
    pub fn stall_threshold(mut self, threshold: Duration) -> Self {
        self.stall_threshold = threshold;
        self
    }

    /// How long a recovery may take, about, from 1 s to an hour: the log is kept as short as is applied in this time,
    /// which is measured, and writers are slowed down for it if they have to; but it may always be 4 MiB long. May be
    /// [changed](crate::Db::set_recovery_time_target) while the database is open. Default: `None`, as long as the log's
    /// capacity.
    pub fn recovery_time_target(mut self, target: Option<Duration>) -> Self {
        self.recovery_time_target = target;
        self
    }

    /// Bytes of the buffer pool: 32 pages at least. Default: 128 MiB.
    pub fn buffer_pool_size(mut self, size: ByteSize) -> Self {
        self.buffer_pool_size = size;
        self
    }

    /// The size that the buffer pool may be [given](crate::Db::set_buffer_pool_size) while the database is open. The
    /// log keeps room for a pool of this size. Default: `buffer_pool_size`.
    pub fn buffer_pool_size_max(mut self, size: ByteSize) -> Self {
        self.buffer_pool_size_max = Some(size);
        self
    }

    /// Bytes that the redo log holds: 128 pages to 1 TiB. Default: 256 MiB, or what the database has, or what the
    /// buffer pool needs if that is more (192 bytes a page). A value that the database does not have gives it a new log
    /// at open. Up to 256 MiB, or what the pool needs, are there when open returns; a larger log is made beside the
    /// load, which has what is there meanwhile. The status text tells it. To wait for it, call
    /// [`Db::set_redo_capacity`](crate::Db::set_redo_capacity) with the same value. A database that is closed before
    /// keeps what it had.
    pub fn redo_capacity(mut self, size: ByteSize) -> Self {
        self.redo_capacity = Some(size);
        self
    }

    /// Whether files go through the page cache. Default: no (`O_DIRECT`). File systems without `O_DIRECT` need it.
    pub fn cached(mut self, cached: bool) -> Self {
        self.cached = cached;
        self
    }

    /// Whether a database is created where there is none. Default: yes.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Opens the database to be read only: also on a read-only file system, or by a user that may read its files and
    /// not write them. Nothing is written. What a crash left is redone and undone in memory, which takes up to as much
    /// as the buffer pool. More to redo than fits the pool is refused, with the size that does. All calls that
    /// write get [`Error::ReadOnly`]. Any number of processes may have a database open in this way, while none writes.
    /// Nothing is created, and `redo_capacity` and `recovery_time_target` say nothing. Default: no.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// What they come to for a database that is only read.
    pub(super) fn for_reading(self) -> Self {
        if !self.read_only {
            return self;
        }
        let fits = Options { create: false, at_rest: true, fit_pool: true, ..self };
        Options { redo_capacity: None, recovery_time_target: None, ..fits }
    }

    /// What the group of the database's files may do with them; other users may nothing. The group is the process's, or
    /// the directory's where that has its set-group-id bit. Given at open, it changes files that are there, too, and
    /// wants their owner for that. Default: [`GroupAccess::None`] (files of mode 0600, directories of mode 0700), or
    /// what all files of the database have.
    pub fn group_access(mut self, access: GroupAccess) -> Self {
        self.group_access = Some(access);
        self
    }

    /// A Unix domain socket on which the engine says how it is doing, while it is open: who connects and writes a line
    /// `text`, `prometheus` or `json` is answered in that form. Its file is the owner's alone (mode 0600) and goes with
    /// the database; one that is left of a process that died is replaced. A path that is too long, or where no socket
    /// can be made, is refused at open. Default: none.
    pub fn status_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.status_socket = Some(path.into());
        self
    }

    /// A port of 127.0.0.1 on which the engine answers `GET /metrics` with its [metrics](crate::Db::metrics_text), for
    /// Prometheus, while it is open. Everybody on this machine may read them, and nobody elsewhere; they are numbers
    /// only. A port that is taken is refused at open. Default: 0, which is none.
    pub fn metrics_port(mut self, port: u16) -> Self {
        self.metrics_port = port;
        self
    }

    /// When a write is safe, unless its batch says otherwise. Default: [`Durability::Commit`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// What does not go with how the database's pages are written.
    fn mistakes_of_store(&self, kind: PageStoreKind) -> Vec<String> {
        let settled = self.settled();
        let mut mistakes = Vec::new();
        if kind == PageStoreKind::CopyOnWrite && settled.doublewrite.is_some_and(|wanted| wanted != Doublewrite::Off) {
            let message = "doublewrite is for page_store=in_place, and this database is copy_on_write, which overwrites nothing: leave the option out";
            mistakes.push(message.to_owned());
        }
        if kind == PageStoreKind::CopyOnWrite && settled.flush_neighbors != FlushNeighbors::None {
            let message = "flush_neighbors is for page_store=in_place, and this database is copy_on_write, which writes pages that leave together side by side: leave the option out";
            mistakes.push(message.to_owned());
        }
        mistakes
    }

    /// What is kept of pages before they are written over.
    pub(crate) fn doublewrite_of(&self, kind: PageStoreKind) -> Doublewrite {
        match kind {
            PageStoreKind::CopyOnWrite => Doublewrite::Off,
            PageStoreKind::InPlace => self.doublewrite.unwrap_or_default(),
        }
    }

    /// Checks everything, for a database with pages of `page_size` that are written as `kind` says; all mistakes in one
    /// error.
    pub(crate) fn validate(&self, page_size: u64, kind: PageStoreKind) -> Result<(), Error> {
        invalid(self.mistakes(page_size, kind))
    }

    /// Every mistake, as [`validate`](Self::validate) looks for them.
    pub(super) fn mistakes(&self, page_size: u64, kind: PageStoreKind) -> Vec<String> {
        let settled = self.settled();
        let mut mistakes = Vec::new();
        if !is_page_size(page_size) {
            mistakes.push(format!("page_size is {}: use 4KiB, 8KiB, 16KiB, 32KiB or 64KiB", bytes(page_size)));
        } else {
            let pool = self.buffer_pool_size.as_u64();
            let pool_min = FRAMES_MIN * page_size;
            if pool < pool_min || pool / page_size > FRAMES_MAX {
                mistakes.push(format!(
                    "buffer_pool_size is {}: use {} ({FRAMES_MIN} pages) to {} (2^24 pages)",
                    size_text(self.buffer_pool_size),
                    bytes(pool_min),
                    bytes(FRAMES_MAX * page_size)
                ));
            }
            if let Some(max) = self.buffer_pool_size_max
                && (max < self.buffer_pool_size || max.as_u64() / page_size > FRAMES_MAX)
            {
                mistakes.push(format!(
                    "buffer_pool_size_max is {}: use {} (buffer_pool_size) to {} (2^24 pages)",
                    size_text(max),
                    size_text(self.buffer_pool_size),
                    bytes(FRAMES_MAX * page_size)
                ));
            }
            let redo_min = REDO_PAGES_MIN * page_size;
            if let Some(redo) = self.redo_capacity
                && !(redo_min..=CAPACITY_MAX).contains(&redo.as_u64())
            {
                let (redo, redo_min) = (size_text(redo), bytes(redo_min));
                mistakes.push(format!("redo_capacity is {redo}: use {redo_min} to 1TiB"));
            }
        }
        if self.read_ahead_pages > READ_AHEAD_MAX {
            mistakes.push(format!("read_ahead_pages is {}: use 0 to {READ_AHEAD_MAX}", self.read_ahead_pages));
        }
        if let Some(Err(mistake)) = self.recovery_time_target.map(validate_recovery_time) {
            mistakes.push(mistake);
        }
        if let Err(mistake) = self.durability.validate() {
            mistakes.push(mistake);
        }
        mistakes.extend(mistakes_in_classic_policies(&settled, page_size));
        mistakes.extend(self.mistakes_of_store(kind));
        mistakes
    }

    /// Frames that the pool may have, of pages of `page_size`.
    pub(super) fn frames_max(&self, page_size: u64) -> u64 {
        self.buffer_pool_size_max.unwrap_or(self.buffer_pool_size).max(self.buffer_pool_size).as_u64() / page_size
    }
}

/// All mistakes in one error, if there are any.
pub(super) fn invalid(mistakes: Vec<String>) -> Result<(), Error> {
    if mistakes.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(mistakes.join("; ").into())) }
}

/// Refuses what no recovery can be held to.
pub(super) fn validate_recovery_time(target: Duration) -> Result<(), String> {
    let is_possible = (Duration::from_secs(1)..=Duration::from_hours(1)).contains(&target);
    is_possible.then_some(()).ok_or_else(|| format!("recovery_time_target is {target:?}: use 1s to 3600s, or none"))
}

/// Leaves that may be read together.
pub(super) const READ_AHEAD_MAX: usize = 64;

/// Log bytes for epochs at most: a crash takes one of 25 bytes. Crashes one after the other, without a checkpoint
/// between them, add up: these bytes are good for some 2,600.
const EPOCHS_MAX: u64 = 64 << 10;

/// Images that may wait for their data sync, in a pool of `frames`: a checkpoint takes several syncs, and frames come
/// free meanwhile.
pub(crate) fn unsynced_max(frames: u64) -> u64 {
    (frames / 8).max(2 * to_u64(LOT_PAGES))
}

/// Bytes of a log of `capacity` that writers leave to cleaning: a map record for each frame and each image in flight,
/// those of bulk loads included, and room for epochs.
pub(crate) fn redo_reserve(frames: u64, capacity: u64) -> u64 {
    let holders = frames + unsynced_max(frames) + to_u64(LOT_PAGES + LOADED_MAX);
    MAP_RECORD_MAX * holders + epochs_reserve(capacity)
}

/// Of these, bytes that only epochs may use.
pub(crate) fn epochs_reserve(capacity: u64) -> u64 {
    EPOCHS_MAX.min(capacity / 16)
}

/// The smallest capacity of a large log that will do for a pool of `frames`, in whole blocks for each of its files.
pub(crate) fn needed_capacity(frames: u64) -> u64 {
    (4 * redo_reserve(frames, CAPACITY_MAX)).next_multiple_of(RING * BLOCK_U64)
}

/// A mebibyte, to which larger sizes are rounded up that nobody gave.
const MIB: u64 = 1 << 20;

/// So many bytes, as text that an option takes.
pub(super) fn bytes(count: u64) -> String {
    size_text(ByteSize::b(count))
}

/// What is wrong with a log in which writers would have less than three fourths for themselves.
pub(super) fn mistake_of_reserve(frames: u64, capacity: u64) -> Option<String> {
    let needed = 4 * redo_reserve(frames, capacity);
    (needed > capacity).then(|| {
        format!(
            "redo_capacity is {}, and a buffer pool of {frames} pages needs {}: leave redo_capacity out, or use a larger one or a smaller buffer_pool_size",
            bytes(capacity),
            bytes(needed.next_multiple_of(if needed > MIB { MIB } else { 1 }))
        )
    })
}

/// Refuses a log in which writers would have less than three fourths for themselves.
pub(crate) fn validate_reserve(frames: u64, capacity: u64) -> Result<(), Error> {
    invalid(mistake_of_reserve(frames, capacity).into_iter().collect())
}

/// The frames of a pool that a log of `capacity` is large enough for: `frames` or fewer.
pub(crate) fn fitting_frames(frames: u64, capacity: u64) -> u64 {
    let mut fitting = frames;
    while fitting > FRAMES_MIN && validate_reserve(fitting, capacity).is_err() {
        fitting = (fitting / 2).max(FRAMES_MIN);
    }
    fitting
}

/// How long keys, values and batches may be.
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
        // To the byte, or it would seem to be in its range.
        let nearly = Options::new().redo_capacity(ByteSize::kib(2047)).validate(16384, PageStoreKind::CopyOnWrite);
        let nearly = nearly.expect_err("too small").to_string();
        assert!(nearly.contains("redo_capacity is 2047KiB: use 2MiB to"), "{nearly}");
    }
}
