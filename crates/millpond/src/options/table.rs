//! The options by name: one table for all code that takes them as text, from a command line, the environment or a file.
//!
//! Sizes and times carry their unit (`64MiB`, `20ms`); switches are `true` or `false`.

use std::time::Duration;

use crate::base::page::layout::is_page_size;
use crate::io::batch::IoEngine;
use crate::io::directory::GroupAccess;
use crate::options::classic::OLD_BLOCKS_TIME_MAX;
use crate::options::classic_log::{SPIN_CPU_ABS_MAX, SPIN_CPU_PCT_MAX};
use crate::options::profile::Profile;
use crate::options::text::{
    durability, durability_text, millis_text, name_of, named, number, size, size_text, time_ms,
};
use crate::options::{Options, PageStoreKind, READ_AHEAD_MAX};
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
use crate::pool::dirty::DirtyTracking;
use crate::pool::legacy::EmptyFreeListAlgorithm;
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::replacement::PageReplacement;
use crate::redo::log_spin::LogSpin;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;

/// One option of [`Options`]: its description, and how to read and set it as text.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OptionInfo {
    /// The name, which is also the name of the setter.
    pub name: &'static str,
    /// A short description.
    pub help: &'static str,
    /// The placeholder for a value in help texts, such as `SIZE`; `BOOL` for a switch.
    pub value: &'static str,
    /// The unit of a value: `bytes` (written with a unit, as `64MiB`), `time` (as `20ms`), `pages`, `name`.
    pub unit: &'static str,
    /// The allowed values.
    pub range: &'static str,
    /// The last moment of a change: `creation`, each `open`, or `online`, by
    /// [`Db::set_option`](crate::Db::set_option).
    pub changes: &'static str,
    /// The default in words, if it depends on the database or other options; `None`: the default is a value.
    depends: Option<&'static str>,
    get: fn(&Options) -> Option<String>,
    set: fn(Options, &str) -> Result<Options, String>,
}

impl OptionInfo {
    /// All options but [`Options::create`], which depends on the task of the caller.
    pub const ALL: [OptionInfo; 39] = [
        // First, so that options given beside it override its values.
        OptionInfo {
            name: "profile",
            help: "Default policies of a server version; other options override them",
            value: "NAME",
            unit: "name",
            range: "millpond, mysql-5.5, mysql-5.6, mysql-8.0, percona-5.7, percona-8.0",
            changes: "open",
            depends: None,
            get: |options| Some(name_of(&PROFILES, options.profile)),
            set: |options, text| Ok(options.profile(named(&PROFILES, text)?)),
        },
        OptionInfo {
            name: "buffer_pool_size",
            help: "Memory for pages",
            value: "SIZE",
            unit: "bytes",
            range: "32 to 2^24 pages",
            changes: "online",
            depends: None,
            get: |options| Some(size_text(options.buffer_pool_size)),
            set: |options, text| Ok(options.buffer_pool_size(size(text)?)),
        },
        OptionInfo {
            name: "buffer_pool_size_max",
            help: "Size to which the buffer pool may grow while the database is open",
            value: "SIZE",
            unit: "bytes",
            range: "buffer_pool_size to 2^24 pages",
            changes: "open",
            depends: Some("buffer_pool_size"),
            get: |options| options.buffer_pool_size_max.map(size_text),
            set: |options, text| Ok(options.buffer_pool_size_max(size(text)?)),
        },
        OptionInfo {
            name: "redo_capacity",
            help: "Redo log bytes; a large log is made in the background",
            value: "SIZE",
            unit: "bytes",
            range: "128 pages to 1TiB",
            changes: "online",
            depends: Some("256MiB, or the database's, or the pool's need"),
            get: |options| options.redo_capacity.map(size_text),
            set: |options, text| Ok(options.redo_capacity(size(text)?)),
        },
        OptionInfo {
            name: "recovery_time_target",
            help: "Longest time of a recovery: the log is kept short enough, but may have 4 MiB",
            value: "TIME",
            unit: "time",
            range: "1s to 3600s, or none",
            changes: "online",
            depends: None,
            get: |options| Some(options.recovery_time_target.map_or_else(|| "none".to_owned(), millis_text)),
            set: |options, text| {
                if text == "none" {
                    return Ok(options.recovery_time_target(None));
                }
                let ms = time_ms(text).filter(|ms| (1000..=3_600_000).contains(ms));
                let wrong = || "not a time from 1s to 3600s, nor none: write, for example, 10s".to_owned();
                ms.map(|ms| options.recovery_time_target(Some(Duration::from_millis(ms)))).ok_or_else(wrong)
            },
        },
        OptionInfo {
            name: "page_size",
            help: "Bytes of a page",
            value: "SIZE",
            unit: "bytes",
            range: "4KiB, 8KiB, 16KiB, 32KiB, 64KiB",
            changes: "creation",
            depends: Some("16KiB, or the database's"),
            get: |options| options.page_size.map(size_text),
            set: |options, text| {
                let size = size(text)?;
                let wrong = || "use 4KiB, 8KiB, 16KiB, 32KiB or 64KiB".to_owned();
                if is_page_size(size.as_u64()) { Ok(options.page_size(size)) } else { Err(wrong()) }
            },
        },
        OptionInfo {
            name: "page_store",
            help: "How pages are written: to a free place, or over the old image",
            value: "NAME",
            unit: "name",
            range: "copy_on_write, in_place",
            changes: "creation",
            depends: Some("copy_on_write, or the database's"),
            get: |options| options.page_store.map(|kind| name_of(&PAGE_STORES, kind)),
            set: |options, text| Ok(options.page_store(named(&PAGE_STORES, text)?)),
        },
        OptionInfo {
            name: "doublewrite",
            help: "With in_place: protection of pages against torn writes",
            value: "NAME",
            unit: "name",
            range: "on, off, detect_only",
            changes: "open",
            depends: Some("on, or off with copy_on_write"),
            get: |options| options.doublewrite.map(|wanted| name_of(&DOUBLEWRITES, wanted)),
            set: |options, text| Ok(options.doublewrite(named(&DOUBLEWRITES, text)?)),
        },
        OptionInfo {
            name: "cached",
            help: "Use the system's page cache, even where the file system has direct I/O",
            value: "BOOL",
            unit: "name",
            range: "true, false",
            changes: "open",
            depends: None,
            get: |options| Some(name_of(&SWITCHES, options.cached)),
            set: |options, text| Ok(options.cached(named(&SWITCHES, text)?)),
        },
        OptionInfo {
            name: "read_only",
            help: "Only read the database: nothing is written, and recovery happens in memory",
            value: "BOOL",
            unit: "name",
            range: "true, false",
            changes: "open",
            depends: None,
            get: |options| Some(name_of(&SWITCHES, options.read_only)),
            set: |options, text| Ok(options.read_only(named(&SWITCHES, text)?)),
        },
        OptionInfo {
            name: "group_access",
            help: "Access of the group of the database's files; other users have none",
            value: "NAME",
            unit: "name",
            range: "none, read, write",
            changes: "open",
            depends: Some("none, or the database's"),
            get: |options| options.group_access.map(|access| name_of(&GROUP_ACCESSES, access)),
            set: |options, text| Ok(options.group_access(named(&GROUP_ACCESSES, text)?)),
        },
        OptionInfo {
            name: "io_engine",
            help: "How several page reads or writes run at once",
            value: "NAME",
            unit: "name",
            range: "auto, io_uring, threads",
            changes: "open",
            depends: None,
            get: |options| Some(name_of(&IO_ENGINES, options.io_engine)),
            set: |options, text| Ok(options.io_engine(named(&IO_ENGINES, text)?)),
        },
        OptionInfo {
            name: "read_ahead_pages",
            help: "Leaves that a scan reads ahead together when it misses, at most",
            value: "PAGES",
            unit: "pages",
            range: "0 to 64",
            changes: "online",
            depends: None,
            get: |options| Some(options.read_ahead_pages.to_string()),
            set: |options, text| Ok(options.read_ahead_pages(number(text, 0..=READ_AHEAD_MAX)?)),
        },
        OptionInfo {
            name: "empty_free_list_algorithm",
            help: "Action of an operation without a free frame: wait for a handed one, write a page, sleep",
            value: "NAME",
            unit: "name",
            range: "handoff, legacy, backoff",
            changes: "online",
            depends: None,
            get: |options| Some(name_of(&EMPTY_FREE_LIST_ALGORITHMS, options.empty_free_list_algorithm)),
            set: |options, text| Ok(options.empty_free_list_algorithm(named(&EMPTY_FREE_LIST_ALGORITHMS, text)?)),
        },
        OptionInfo {
            name: "page_replacement",
            help: "Which pages are evicted from the buffer pool first",
            value: "NAME",
            unit: "name",
            range: "s3_fifo, midpoint_lru",
            changes: "open",
            depends: Some("s3_fifo, or midpoint_lru without handoff"),
            get: |options| options.page_replacement.map(|wanted| name_of(&REPLACEMENTS, wanted)),
            set: |options, text| Ok(options.page_replacement(named(&REPLACEMENTS, text)?)),
        },
        OptionInfo {
            name: "old_blocks_time",
            help: "With midpoint_lru: time after first use before a use makes a page young",
            value: "TIME",
            unit: "time",
            range: "0ms to 3600s",
            changes: "online",
            depends: Some("1s, or none with s3_fifo"),
            get: |options| options.old_blocks_time.map(millis_text),
            set: |options, text| {
                let time = time_ms(text).map(Duration::from_millis).filter(|time| *time <= OLD_BLOCKS_TIME_MAX);
                let wrong = || "not a time from 0ms to 3600s: write, for example, 1s".to_owned();
                time.map(|time| options.old_blocks_time(time)).ok_or_else(wrong)
            },
        },
        OptionInfo {
            name: "buffer_pool_instances",
            help: "Parts of the buffer pool; 1 with handoff",
            value: "NUMBER",
            unit: "instances",
            range: "1 to 64",
            changes: "open",
            depends: None,
            get: |options| Some(options.instances().to_string()),
            set: |options, text| Ok(options.buffer_pool_instances(number(text, 1..=64)?)),
        },
        OptionInfo {
            name: "lru_scan_depth",
            help: "With backoff or page_cleaners: pages at the LRU tail that one pass looks at",
            value: "PAGES",
            unit: "pages",
            range: "100 to 1048576",
            changes: "online",
            depends: None,
            get: |options| Some(options.lru_scan_depth.to_string()),
            set: |options, text| Ok(options.lru_scan_depth(number(text, 100..=1 << 20)?)),
        },
        OptionInfo {
            name: "free_list_target",
            help: "With backoff or page_cleaners: frames kept free in an instance, at most a fourth",
            value: "PAGES",
            unit: "pages",
            range: "2 to 1048576",
            changes: "online",
            depends: Some("lru_scan_depth"),
            get: |options| options.free_list_target.map(|frames| frames.to_string()),
            set: |options, text| Ok(options.free_list_target(number(text, 2..=1 << 20)?)),
        },
        OptionInfo {
            name: "adaptive_flushing_method",
            help: "How many dirty pages are written, and when: by deadlines, or as in InnoDB",
            value: "NAME",
            unit: "name",
            range: "envelope, adaptive, keep_average, sync_only",
            changes: "online",
            depends: None,
            get: |options| Some(name_of(&FLUSHING_METHODS, options.adaptive_flushing_method)),
            set: |options, text| Ok(options.adaptive_flushing_method(named(&FLUSHING_METHODS, text)?)),
        },
        OptionInfo {
            name: "page_cleaners",
            help: "With adaptive: threads cleaning pages, one instance at a time",
            value: "NUMBER",
            unit: "threads",
            range: "1 to 64",
            changes: "open",
            depends: Some("4, or buffer_pool_instances if fewer"),
            get: |options| options.page_cleaners.map(|threads| threads.to_string()),
            set: |options, text| Ok(options.page_cleaners(number(text, 1..=64)?)),
        },
        OptionInfo {
            name: "io_capacity",
            help: "Not with envelope: stated write rate of the device, pages a second",
            value: "PAGES",
            unit: "pages/s",
            range: "100 to 10000000",
            changes: "online",
            depends: Some("200, or measured with envelope"),
            get: |options| options.io_capacity.map(|pages| pages.to_string()),
            set: |options, text| Ok(options.io_capacity(number(text, 100..=10_000_000)?)),
        },
        OptionInfo {
            name: "io_capacity_max",
            help: "With adaptive: write rate of the device when the log runs full",
            value: "PAGES",
            unit: "pages/s",
            range: "io_capacity to 10000000",
            changes: "online",
            depends: Some("2000, or 2 x io_capacity if more"),
            get: |options| options.io_capacity_max.map(|pages| pages.to_string()),
            set: |options, text| Ok(options.io_capacity_max(number(text, 100..=10_000_000)?)),
        },
        OptionInfo {
            name: "max_dirty_pages_pct",
            help: "Not with envelope: per cent of the pool that may be dirty",
            value: "NUMBER",
            unit: "%",
            range: "0 to 99",
            changes: "online",
            depends: Some("75, or none with envelope"),
            get: |options| options.max_dirty_pages_pct.map(|pct| pct.to_string()),
            set: |options, text| Ok(options.max_dirty_pages_pct(number(text, 0..=99)?)),
        },
        OptionInfo {
            name: "max_dirty_pages_pct_lwm",
            help: "With adaptive: dirty per cent of the pool from which on pages are written",
            value: "NUMBER",
            unit: "%",
            range: "0 to max_dirty_pages_pct",
            changes: "online",
            depends: Some("0, or none with envelope"),
            get: |options| options.max_dirty_pages_pct_lwm.map(|pct| pct.to_string()),
            set: |options, text| Ok(options.max_dirty_pages_pct_lwm(number(text, 0..=99)?)),
        },
        OptionInfo {
            name: "cleaner_lsn_age_factor",
            help: "With adaptive: how steeply flushing rises with the checkpoint age",
            value: "NAME",
            unit: "name",
            range: "legacy, high_checkpoint",
            changes: "online",
            depends: Some("legacy, or none with envelope"),
            get: |options| options.cleaner_lsn_age_factor.map(|factor| name_of(&AGE_FACTORS, factor)),
            set: |options, text| Ok(options.cleaner_lsn_age_factor(named(&AGE_FACTORS, text)?)),
        },
        OptionInfo {
            name: "flush_neighbors",
            help: "With in_place, not with envelope: dirty neighbours that are written with a page that is due",
            value: "NAME",
            unit: "name",
            range: "none, area, seq",
            changes: "online",
            depends: None,
            get: |options| Some(name_of(&NEIGHBORS, options.flush_neighbors)),
            set: |options, text| Ok(options.flush_neighbors(named(&NEIGHBORS, text)?)),
        },
        OptionInfo {
            name: "dirty_tracking",
            help: "How dirty pages are found: by a scan, or in lists behind a mutex",
            value: "NAME",
            unit: "name",
            range: "scan, flush_list",
            changes: "open",
            depends: Some("scan, or flush_list if classic"),
            get: |options| options.dirty_tracking.map(|wanted| name_of(&DIRTY_TRACKINGS, wanted)),
            set: |options, text| Ok(options.dirty_tracking(named(&DIRTY_TRACKINGS, text)?)),
        },
        OptionInfo {
            name: "log_recent_closed",
            help: "With a flush list: a window for marking pages out of order, and how its closer wakes",
            value: "NAME",
            unit: "name",
            range: "none, poll, wake, wake_if_unset",
            changes: "online",
            depends: None,
            get: |options| Some(name_of(&RECENT_CLOSED, options.log_recent_closed)),
            set: |options, text| Ok(options.log_recent_closed(named(&RECENT_CLOSED, text)?)),
        },
        OptionInfo {
            name: "log_recent_closed_size",
            help: "With log_recent_closed: length of its window, in bytes of log",
            value: "SIZE",
            unit: "bytes",
            range: "4KiB to 64MiB",
            changes: "open",
            depends: Some("2MiB, or none"),
            get: |options| options.log_recent_closed_size.map(size_text),
            set: |options, text| Ok(options.log_recent_closed_size(size(text)?)),
        },
        OptionInfo {
            name: "log_writer_threads",
            help: "Threads write and sync the log, and wake its waiters; else committing threads do",
            value: "BOOL",
            unit: "name",
            range: "true, false",
            changes: "open",
            depends: None,
            get: |options| Some(name_of(&SWITCHES, options.log_writer_threads)),
            set: |options, text| Ok(options.log_writer_threads(named(&SWITCHES, text)?)),
        },
        OptionInfo {
            name: "log_spin",
            help: "With log_writer_threads: CPUs assumed when waiters for the log spin",
            value: "NAME",
            unit: "name",
            range: "quota, affinity, never",
            changes: "online",
            depends: Some("quota, or none"),
            get: |options| options.log_spin.map(|wanted| name_of(&LOG_SPINS, wanted)),
            set: |options, text| Ok(options.log_spin(named(&LOG_SPINS, text)?)),
        },
        OptionInfo {
            name: "log_spin_cpu_abs_lwm",
            help: "With log_writer_threads: use of one CPU below which no thread spins",
            value: "NUMBER",
            unit: "%",
            range: "0 to 100000",
            changes: "online",
            depends: Some("80, or none"),
            get: |options| options.log_spin_cpu_abs_lwm.map(|pct| pct.to_string()),
            set: |options, text| Ok(options.log_spin_cpu_abs_lwm(number(text, 0..=SPIN_CPU_ABS_MAX)?)),
        },
        OptionInfo {
            name: "log_spin_cpu_pct_hwm",
            help: "With log_writer_threads: use of all CPUs from which on no thread spins",
            value: "NUMBER",
            unit: "%",
            range: "0 to 100",
            changes: "online",
            depends: Some("50, or none"),
            get: |options| options.log_spin_cpu_pct_hwm.map(|pct| pct.to_string()),
            set: |options, text| Ok(options.log_spin_cpu_pct_hwm(number(text, 0..=SPIN_CPU_PCT_MAX)?)),
        },
        OptionInfo {
            name: "durability",
            help: "When a commit is durable: on return, within a set time, or with the next checkpoint",
            value: "WHEN",
            unit: "name",
            range: "commit, written, background(1ms) to background(60s), none",
            changes: "online",
            depends: None,
            get: |options| Some(durability_text(options.durability)),
            set: |options, text| Ok(options.durability(durability(text)?)),
        },
        OptionInfo {
            name: "flush_log_at_commit",
            help: "Durability in InnoDB's terms: 1 commit, 2 written, 0 background(1s)",
            value: "NUMBER",
            unit: "name",
            range: "0 to 2",
            changes: "online",
            depends: Some("durability"),
            get: |options| options.flush_log_at_commit.map(|when| when.to_string()),
            set: |options, text| {
                Ok(options.flush_log_at_commit(u8::try_from(number(text, 0..=2)?).map_err(|e| e.to_string())?))
            },
        },
        OptionInfo {
            name: "status_socket",
            help: "A socket on which 'millpond status PATH' asks for the engine's state",
            value: "PATH",
            unit: "name",
            range: "a path of at most 107 bytes, in an existing directory",
            changes: "open",
            depends: Some("none"),
            get: |options| options.status_socket.as_ref().map(|path| path.display().to_string()),
            set: |options, text| {
                if text.is_empty() { Err("name a path".to_owned()) } else { Ok(options.status_socket(text)) }
            },
        },
        OptionInfo {
            name: "metrics_port",
            help: "A port of 127.0.0.1 that serves metrics to Prometheus; 0: none",
            value: "PORT",
            unit: "name",
            range: "0 to 65535",
            changes: "open",
            depends: None,
            get: |options| Some(options.metrics_port.to_string()),
            set: |options, text| {
                Ok(options.metrics_port(u16::try_from(number(text, 0..=65_535)?).map_err(|e| e.to_string())?))
            },
        },
        OptionInfo {
            name: "stall_threshold",
            help: "Least duration of an operation that counts as a stall",
            value: "TIME",
            unit: "time",
            range: "1ms to 3600s",
            changes: "online",
            depends: None,
            get: |options| Some(millis_text(options.stall_threshold)),
            set: |options, text| {
                let ms = time_ms(text).filter(|ms| (1..=STALL_THRESHOLD_MS_MAX).contains(ms));
                let wrong = || "not a time from 1ms to 3600s: write, for example, 20ms".to_owned();
                ms.map(|ms| options.stall_threshold(Duration::from_millis(ms))).ok_or_else(wrong)
            },
        },
    ];

    /// The option called `name`.
    pub fn find(name: &str) -> Option<&'static OptionInfo> {
        const { &OptionInfo::ALL }.iter().find(|info| info.name == name)
    }

    /// The default, as text: a value, or words if it depends on the database or another option.
    pub fn default(&self) -> String {
        self.depends.map_or_else(|| self.get(&Options::new()).unwrap_or_default(), str::to_owned)
    }

    /// Whether a database keeps the value, and uses it when the caller leaves the option out.
    pub fn is_kept(&self) -> bool {
        self.depends.is_some_and(|depends| depends.contains(", or the database's"))
    }

    /// The value in `options`, in the form that [`set`](Self::set) reads. `None`: the option is not set, and its
    /// default depends on the database or another option. Values of a profile without effect count as not set.
    pub fn get(&self, options: &Options) -> Option<String> {
        (self.get)(&options.settled())
    }

    /// `options` with this option set to `text`. [`Db::open`](crate::Db::open) checks combinations of options.
    ///
    /// # Errors
    /// `text` is no value of this option; the error describes the values.
    pub fn set(&self, options: Options, text: &str) -> Result<Options, String> {
        (self.set)(options, text)
    }
}

/// Longest stall threshold: an hour.
const STALL_THRESHOLD_MS_MAX: u64 = 3_600_000;

const SWITCHES: [(&str, bool); 4] = [("true", true), ("false", false), ("on", true), ("off", false)];

const PROFILES: [(&str, Profile); 6] = [
    ("millpond", Profile::Millpond),
    ("mysql-5.5", Profile::Mysql55),
    ("mysql-5.6", Profile::Mysql56),
    ("mysql-8.0", Profile::Mysql80),
    ("percona-5.7", Profile::Percona57),
    ("percona-8.0", Profile::Percona80),
];

const PAGE_STORES: [(&str, PageStoreKind); 2] =
    [("copy_on_write", PageStoreKind::CopyOnWrite), ("in_place", PageStoreKind::InPlace)];

const DOUBLEWRITES: [(&str, Doublewrite); 3] =
    [("on", Doublewrite::On), ("off", Doublewrite::Off), ("detect_only", Doublewrite::DetectOnly)];

const GROUP_ACCESSES: [(&str, GroupAccess); 3] =
    [("none", GroupAccess::None), ("read", GroupAccess::Read), ("write", GroupAccess::Write)];

const IO_ENGINES: [(&str, IoEngine); 3] =
    [("auto", IoEngine::Auto), ("io_uring", IoEngine::IoUring), ("threads", IoEngine::Threads)];

const EMPTY_FREE_LIST_ALGORITHMS: [(&str, EmptyFreeListAlgorithm); 3] = [
    ("handoff", EmptyFreeListAlgorithm::Handoff),
    ("legacy", EmptyFreeListAlgorithm::Legacy),
    ("backoff", EmptyFreeListAlgorithm::Backoff),
];

const REPLACEMENTS: [(&str, PageReplacement); 2] =
    [("s3_fifo", PageReplacement::S3Fifo), ("midpoint_lru", PageReplacement::MidpointLru)];

const NEIGHBORS: [(&str, FlushNeighbors); 3] =
    [("none", FlushNeighbors::None), ("area", FlushNeighbors::Area), ("seq", FlushNeighbors::Seq)];

const RECENT_CLOSED: [(&str, LogRecentClosed); 4] = [
    ("none", LogRecentClosed::None),
    ("poll", LogRecentClosed::Poll),
    ("wake", LogRecentClosed::Wake),
    ("wake_if_unset", LogRecentClosed::WakeIfUnset),
];

const LOG_SPINS: [(&str, LogSpin); 3] =
    [("quota", LogSpin::Quota), ("affinity", LogSpin::Affinity), ("never", LogSpin::Never)];

const FLUSHING_METHODS: [(&str, AdaptiveFlushingMethod); 4] = [
    ("envelope", AdaptiveFlushingMethod::Envelope),
    ("adaptive", AdaptiveFlushingMethod::Adaptive),
    ("keep_average", AdaptiveFlushingMethod::KeepAverage),
    ("sync_only", AdaptiveFlushingMethod::SyncOnly),
];

const AGE_FACTORS: [(&str, CleanerLsnAgeFactor); 2] =
    [("legacy", CleanerLsnAgeFactor::Legacy), ("high_checkpoint", CleanerLsnAgeFactor::HighCheckpoint)];

const DIRTY_TRACKINGS: [(&str, DirtyTracking); 2] =
    [("scan", DirtyTracking::Scan), ("flush_list", DirtyTracking::FlushList)];

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::open::create::DEFAULT_PAGE_SIZE;
    use crate::options::DEFAULT_REDO_CAPACITY;

    fn info(name: &str) -> OptionInfo {
        *OptionInfo::find(name).expect("it is in the table")
    }

    fn set(name: &str, text: &str) -> Result<Options, String> {
        info(name).set(Options::new(), text)
    }

    #[test]
    fn every_option_is_in_the_table_under_its_setters_name() {
        // `Debug` of a struct names each field; the excluded ones are no options for users.
        let debug = format!("{:?}", Options::new());
        let fields = debug.split_once('{').expect("a struct").1.split(", ");
        let mut fields: Vec<&str> = fields.filter_map(|field| field.trim().split_once(": ").map(|(f, _)| f)).collect();
        fields.retain(|field| !["create", "filled", "fit_pool", "at_rest"].contains(field));
        fields.sort_unstable();
        let mut names = OptionInfo::ALL.map(|info| info.name);
        names.sort_unstable();
        assert_eq!(fields, names);
    }

    #[test]
    fn defaults_are_those_that_a_database_is_made_with() {
        for info in OptionInfo::ALL {
            assert_eq!(info.get(&Options::new()).is_none(), info.depends.is_some(), "{}", info.name);
            let said = info.default();
            let value = said.split(", or").next().expect("a part");
            // Unless the default is that of another option.
            if OptionInfo::find(value).is_none() {
                let again = info.set(Options::new(), value).expect(info.name);
                assert_eq!(info.get(&again).expect("it was set"), value);
            }
        }
        let said = |name| info(name).default();
        assert!(said("page_size").starts_with(&size_text(ByteSize::b(DEFAULT_PAGE_SIZE))));
        assert!(said("redo_capacity").starts_with(&size_text(ByteSize::b(DEFAULT_REDO_CAPACITY))));
        assert!(said("page_store").starts_with(&name_of(&PAGE_STORES, PageStoreKind::default())));
    }

    #[test]
    fn what_is_set_is_read_again() {
        for (name, text, again) in [
            ("profile", "percona-5.7", "percona-5.7"),
            ("buffer_pool_size", "1.5GiB", "1536MiB"),
            ("buffer_pool_size_max", "2GiB", "2GiB"),
            ("redo_capacity", "5000B", "5000B"),
            ("recovery_time_target", "5000ms", "5s"),
            ("page_size", "4096B", "4KiB"),
            ("page_store", "in_place", "in_place"),
            ("doublewrite", "detect_only", "detect_only"),
            ("cached", "on", "true"),
            ("read_only", "on", "true"),
            ("group_access", "read", "read"),
            ("io_engine", "io_uring", "io_uring"),
            ("read_ahead_pages", "64", "64"),
            ("empty_free_list_algorithm", "backoff", "backoff"),
            ("page_replacement", "midpoint_lru", "midpoint_lru"),
            ("buffer_pool_instances", "8", "8"),
            ("lru_scan_depth", "256", "256"),
            ("free_list_target", "64", "64"),
            ("adaptive_flushing_method", "sync_only", "sync_only"),
            ("page_cleaners", "8", "8"),
            ("io_capacity", "4000", "4000"),
            ("io_capacity_max", "8000", "8000"),
            ("max_dirty_pages_pct", "0", "0"),
            ("max_dirty_pages_pct_lwm", "10", "10"),
            ("cleaner_lsn_age_factor", "high_checkpoint", "high_checkpoint"),
            ("old_blocks_time", "0ms", "0ms"),
            ("flush_neighbors", "seq", "seq"),
            ("dirty_tracking", "flush_list", "flush_list"),
            ("log_recent_closed", "wake_if_unset", "wake_if_unset"),
            ("log_recent_closed_size", "16384B", "16KiB"),
            ("log_writer_threads", "on", "true"),
            ("log_spin", "affinity", "affinity"),
            ("log_spin_cpu_abs_lwm", "0", "0"),
            ("log_spin_cpu_pct_hwm", "8", "8"),
            ("flush_log_at_commit", "2", "2"),
            ("durability", "written", "written"),
            ("durability", "background(2000ms)", "background(2s)"),
            ("durability", "none", "none"),
            ("stall_threshold", "20ms", "20ms"),
        ] {
            let options = set(name, text).expect(name);
            assert_eq!(info(name).get(&options).as_deref(), Some(again), "{name}");
        }
    }

    #[test]
    fn wrong_values_are_told_what_to_write() {
        for (name, text, said) in [
            ("buffer_pool_size", "64", "a size needs a unit"),
            ("redo_capacity", "lots", "64MiB"),
            ("recovery_time_target", "999ms", "1s to 3600s"),
            ("page_size", "5KiB", "16KiB"),
            ("page_store", "nowhere", "copy_on_write, in_place"),
            ("cached", "yes", "true, false, on, off"),
            ("io_engine", "", "auto, io_uring, threads"),
            ("read_ahead_pages", "65", "0 to 64"),
            ("durability", "background", "background(100ms)"),
            ("durability", "background(100)", "background(100ms)"),
            ("durability", "background(61s)", "1 to 60000 ms"),
            ("old_blocks_time", "3601s", "0ms to 3600s"),
            ("stall_threshold", "20", "20ms"),
            ("stall_threshold", "0ms", "1ms to 3600s"),
        ] {
            let wrong = set(name, text).expect_err(name);
            assert!(wrong.contains(said), "{name}={text}: {wrong}");
        }
    }

    #[test]
    fn ranges_that_the_table_tells_are_those_that_are_checked() {
        for (name, ends, beyond) in [
            ("buffer_pool_size", ["512KiB", "256GiB"], ["496KiB", "257GiB"]),
            ("buffer_pool_size_max", ["128MiB", "256GiB"], ["127MiB", "257GiB"]),
            ("redo_capacity", ["2MiB", "1TiB"], ["2047KiB", "1025GiB"]),
        ] {
            let is_valid = |text: &&str| {
                set(name, text).expect(name).validate(DEFAULT_PAGE_SIZE, PageStoreKind::CopyOnWrite).is_ok()
            };
            assert!(ends.iter().all(is_valid) && !beyond.iter().any(is_valid), "{name}");
        }
        for info in OptionInfo::ALL.iter().filter(|info| ["NAME", "BOOL"].contains(&info.value)) {
            let names: Vec<&str> = info.range.split(", ").collect();
            assert!(names.iter().all(|name| info.set(Options::new(), name).is_ok()), "{}", info.name);
            let said = info.set(Options::new(), "?").expect_err(info.name);
            assert!(said.contains(info.range), "{}: {said}", info.name);
        }
    }
}
