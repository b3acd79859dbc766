//! The table of options: each is declared here, once.
//!
//! Sizes and times carry their unit (`64MiB`, `20ms`); switches are `true` or `false`. The options of the classic
//! policies are a value of their own, [`ClassicOptions`]. `value.rs` has the texts of values, `mistakes.rs` the checks
//! of combinations.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::io::batch::IoEngine;
use crate::io::directory::GroupAccess;
use crate::options::durability::Durability;
use crate::options::page_store::PageStoreKind;
use crate::options::profile::Profile;
use crate::options::value::Value;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::options::{DirtyTracking, EmptyFreeListAlgorithm, PageReplacement};
use crate::redo::log_spin::LogSpin;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;

/// The least default of `redo_capacity`, in bytes.
pub(crate) const DEFAULT_REDO_CAPACITY: u64 = 256 << 20;

/// The largest default of `redo_capacity` of a pool that needs no more, in bytes.
pub(crate) const DEFAULT_REDO_CAPACITY_MAX: u64 = 8 << 30;

/// The forms of values: the placeholder in help texts, and the unit.
type Form = (&'static str, &'static str);
const SIZE: Form = ("SIZE", "bytes");
const TIME: Form = ("TIME", "time");
const PAGES: Form = ("PAGES", "pages");
const PAGES_PER_S: Form = ("PAGES", "pages/s");
const PER_CENT: Form = ("NUMBER", "%");
const THREADS: Form = ("NUMBER", "threads");
const INSTANCES: Form = ("NUMBER", "instances");
const NUMBER: Form = ("NUMBER", "name");
const NAME: Form = ("NAME", "name");
const BOOL: Form = ("BOOL", "name");
const WHEN: Form = ("WHEN", "name");
const PATH: Form = ("PATH", "name");
const PORT: Form = ("PORT", "name");

declare_options! {
    /// The options of a database. [`Db::open`](crate::Db::open) checks them all, and reports every mistake at once.
    ///
    /// The defaults: 128 MiB of pool; for a new database pages of 16 KiB and 256 MiB of log; `O_DIRECT`; durable
    /// commits. The docs of each option end with the last moment at which it *changes*: at `creation`, at each `open`,
    /// or `online`, by [`Db::set_option`](crate::Db::set_option); and with the variable of MySQL, or Percona Server,
    /// that it *models*.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use millpond::{ByteSize, Options};
    ///
    /// let options = Options::new().buffer_pool_size(ByteSize::gib(4));
    /// let options = options.recovery_time_target(Some(Duration::from_secs(20)));
    /// ```
    Options with {
        create: bool = true,
        classic: ClassicOptions = ClassicOptions::new(),
        // The open shrinks a pool that is too large for the log, instead of refusing it.
        fit_pool: bool = false,
        // The data is only read: there is no purge.
        at_rest: bool = false,
    } {
        buffer_pool_size: ByteSize = ByteSize::mib(128);
        SIZE, range: "32 to 2^24 pages", changes: online, models: "innodb_buffer_pool_size",
        help: "Memory for pages";

        /// The log begins with [`redo_capacity_min`](Options::redo_capacity_min), and grows to four times its
        /// capacity, and so on, when a fourth of it is in use and as many bytes of pages are dirty. A background thread
        /// makes the new files, in half of the device's time. It makes none unless twice their bytes are free on the
        /// file system. The default is a fourth of the pool's bytes, at most 8 GiB, or the pool's need if that is more.
        /// A database whose log is larger keeps it.
        ///
        /// A log that is larger than asked for becomes smaller at open. To have a log of a certain capacity at once,
        /// call [`Db::set_redo_capacity`](crate::Db::set_redo_capacity).
        redo_capacity: ByteSize, or "256MiB, or a fourth of the pool";
        SIZE, range: "128 pages to 1TiB", changes: online, models: "innodb_redo_log_capacity",
        help: "Most redo log bytes: the log begins small and grows";

        /// A new database's log has this capacity, or `redo_capacity` if that is less, or what the pool needs if that
        /// is more: 192 bytes a page. If the options have a `redo_capacity`, a log that is smaller at open becomes so
        /// large. Up to 256 MiB it is complete when open returns. Otherwise a background thread makes it, the database
        /// uses the log that it has meanwhile, and the status text tells so. With `1TiB` the log does not grow.
        ///
        /// With a server's profile it has no effect: the log then has its capacity from the begin.
        redo_capacity_min: ByteSize = ByteSize::mib(16);
        SIZE, range: "128 pages to 1TiB", changes: open,
        help: "Redo log bytes that a database begins with";

        /// A batch may set another durability for itself.
        durability: Durability = Durability::Commit;
        WHEN, range: "commit, written, background(1ms) to background(60s), none", changes: online,
        help: "When a commit is durable: on return, within a set time, or with the next checkpoint";

        /// The default is direct I/O (`O_DIRECT`). Where the file system has none, files go through the page cache all
        /// the same; the status text says so.
        cached: bool = false;
        BOOL, changes: open,
        help: "Use the system's page cache, even where the file system has direct I/O";

        /// The engine measures how fast recovery applies log, and keeps the log short enough for the target; if
        /// necessary it slows writers down. With `None` only the log's capacity limits a recovery.
        recovery_time_target: Option<Duration> = None;
        TIME, range: "1s to 3600s, or none", changes: online,
        help: "Longest time of a recovery: the log is kept short enough, but may have 4 MiB";

        /// A snapshot keeps deleted rows and undo records that it may read. One that is older than this ends: its reads
        /// fail with [`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld), and what it kept is freed. Exact to a
        /// tenth of a second, unless the keeper waits for a device that stands still.
        max_snapshot_age: Option<Duration> = None;
        TIME, range: "1s to 86400s, or none", changes: online,
        help: "Age at which a snapshot ends, so that it keeps no more old rows";

        /// A transaction that has changed or locked rows keeps others from them until it ends. One whose user makes no
        /// call for this long is rolled back: later calls fail with
        /// [`Error::TransactionOver`](crate::Error::TransactionOver). Exact to a tenth of a second.
        idle_transaction_timeout: Option<Duration> = None;
        TIME, range: "1s to 86400s, or none", changes: online,
        help: "Time after which a transaction with locks is rolled back, if no call on it is made";

        /// The log reserves room for a pool of this size.
        buffer_pool_size_max: ByteSize, or "buffer_pool_size";
        SIZE, range: "buffer_pool_size to 2^24 pages", changes: open,
        help: "Size to which the buffer pool may grow while the database is open";

        page_size: ByteSize, or "16KiB, or the database's";
        SIZE, range: "4KiB, 8KiB, 16KiB, 32KiB, 64KiB", changes: creation, models: "innodb_page_size",
        help: "Bytes of a page";

        page_store: PageStoreKind, or "copy_on_write, or the database's";
        NAME, changes: creation,
        help: "How pages are written: to a free place, or over the old image";

        /// This works on a read-only file system, and for a user without permission to write the files. All calls that
        /// write get [`Error::ReadOnly`](crate::Error::ReadOnly). Any number of processes may open a database in this
        /// way while none has it open for writing.
        ///
        /// Changes that a crash left unfinished are redone and undone in memory, which takes up to as much as the
        /// buffer pool. If they do not fit in the pool, open fails, and the error names the size that suffices. Open
        /// creates no database; `redo_capacity` and `recovery_time_target` have no effect.
        read_only: bool = false;
        BOOL, changes: open, models: "innodb_read_only",
        help: "Only read the database: nothing is written, and recovery happens in memory";

        /// 0 and 1: each leaf by itself. Never more than 1/64 of the pool, or than the frames that are free at once.
        read_ahead_pages: usize = 32;
        PAGES, range: "0 to 64", changes: online,
        help: "Leaves that a scan reads ahead together when it misses, at most";

        /// [`Db::io_engine`](crate::Db::io_engine) tells the one in use.
        io_engine: IoEngine = IoEngine::Auto;
        NAME, changes: open, models: "innodb_use_native_aio",
        help: "How several page reads or writes run at once";

        /// The group is that of the process, or of the directory if its set-group-id bit is set. A value given at open
        /// also changes existing files, which only their owner can do. Unset: the access that all files of the database
        /// have.
        group_access: GroupAccess, or "none, or the database's";
        NAME, changes: open,
        help: "Access of the group of the database's files; other users have none";

        /// A Unix domain socket, while the database is open. A client connects and writes a line `text`, `prometheus`
        /// or `json`; the engine answers in that form. Only the owner has access to the socket's file (mode 0600).
        /// Closing the database removes the file, and open replaces one that a dead process left.
        status_socket: PathBuf as impl Into<PathBuf>, or "none";
        PATH, range: "a path of at most 107 bytes, in an existing directory", changes: open,
        help: "A socket on which 'millpond status PATH' asks for the engine's state";

        /// The engine answers `GET /metrics` with its [metrics](crate::Db::metrics_text) while the database is open.
        /// All users of this machine may read them, and no other machine; they are only numbers. Open refuses a port
        /// that is taken.
        metrics_port: u16 = 0;
        PORT, range: "0 to 65535", changes: open,
        help: "A port of 127.0.0.1 that serves metrics to Prometheus; 0: none";

        /// Exact to a few milliseconds.
        stall_threshold: Duration = Duration::from_millis(100);
        TIME, range: "1ms to 3600s", changes: online,
        help: "Least duration of an operation that counts as a stall";
    }

    /// The options of the classic policies, which InnoDB, MySQL or Percona Server have under these names.
    ///
    /// [`Options::classic`] sets them, and [`Options::profile`] gives them the defaults of a server version.
    ClassicOptions with {
        profile: Profile = Profile::Millpond,
        // The options that the caller has set since the profile.
        set_by_caller: Vec<&'static str> = Vec::new(),
    } {
        /// A crash may tear the write that overwrites an image. Copy-on-write overwrites nothing. Each lot of pages is
        /// written and synced twice. If there is no copy of a torn page, opening or reading reports
        /// [`Error::Corruption`](crate::Error::Corruption).
        doublewrite: Doublewrite, or "on, or off with copy_on_write";
        NAME, changes: open, models: "innodb_doublewrite",
        help: "With in_place: protection of pages against torn writes";

        empty_free_list_algorithm: EmptyFreeListAlgorithm = EmptyFreeListAlgorithm::Handoff;
        NAME, changes: online, models: "innodb_empty_free_list_algorithm",
        help: "Action of an operation without a free frame: wait for a handed one, write a page, sleep";

        /// The algorithms other than the hand-off look for frames at the tail of the midpoint LRU list.
        page_replacement: PageReplacement, or "s3_fifo, or midpoint_lru without handoff";
        NAME, changes: open,
        help: "Which pages are evicted from the buffer pool first";

        /// 0: the first use after the read makes the page young, and scans evict pages in use. InnoDB's default is 1 s
        /// since MySQL 5.6; 0 before.
        old_blocks_time: Duration, or "1s, or none with s3_fifo";
        TIME, range: "0ms to 3600s", changes: online, models: "innodb_old_blocks_time",
        help: "With midpoint_lru: time after first use before a use makes a page young";

        /// Each has its own list of pages and free frames, and at least 32 frames. A [`profile`](Options::profile) may
        /// have more by default.
        buffer_pool_instances: usize, or "1";
        INSTANCES, range: "1 to 64", changes: open, models: "innodb_buffer_pool_instances",
        help: "Parts of the buffer pool; 1 with handoff";

        /// The pass looks for frames, and writes dirty pages. LRU managers use it with
        /// [`EmptyFreeListAlgorithm::Backoff`]; page cleaners of [`AdaptiveFlushingMethod::Adaptive`] with
        /// [`EmptyFreeListAlgorithm::Legacy`].
        lru_scan_depth: usize = 1024;
        PAGES, range: "100 to 1048576", changes: online, models: "innodb_lru_scan_depth",
        help: "With backoff or page_cleaners: pages at the LRU tail that one pass looks at";

        /// Used with the same policies as [`lru_scan_depth`](Self::lru_scan_depth); InnoDB has one option for both. The
        /// hand-off itself finds out how many are needed.
        free_list_target: usize, or "lru_scan_depth";
        PAGES, range: "2 to 1048576", changes: online, models: "innodb_lru_scan_depth",
        help: "With backoff or page_cleaners: frames kept free in an instance, at most a fourth";

        adaptive_flushing_method: AdaptiveFlushingMethod = AdaptiveFlushingMethod::Envelope;
        NAME, changes: online, models: "innodb_adaptive_flushing_method",
        help: "How many dirty pages are written, and when: by deadlines, or as in InnoDB";

        /// No more than there are instances.
        page_cleaners: usize, or "4, or buffer_pool_instances if fewer";
        THREADS, range: "1 to 64", changes: open, models: "innodb_page_cleaners",
        help: "With adaptive: threads cleaning pages, one instance at a time";

        /// The rate for background writes, as stated by the device's operator. The envelope measures the device. The
        /// default is InnoDB's up to MySQL 8.0.
        io_capacity: usize, or "200, or measured with envelope";
        PAGES_PER_S, range: "100 to 10000000", changes: online, models: "innodb_io_capacity",
        help: "Not with envelope: stated write rate of the device, pages a second";

        io_capacity_max: usize, or "2000, or 2 x io_capacity if more";
        PAGES_PER_S, range: "io_capacity to 10000000", changes: online, models: "innodb_io_capacity_max",
        help: "With adaptive: write rate of the device when the log runs full";

        /// With more dirty pages, pages are written for that reason alone.
        max_dirty_pages_pct: usize, or "75, or none with envelope";
        PER_CENT, range: "0 to 99", changes: online, models: "innodb_max_dirty_pages_pct",
        help: "Not with envelope: per cent of the pool that may be dirty";

        /// The nearer the dirty part comes to [`max_dirty_pages_pct`](Self::max_dirty_pages_pct), the more are written.
        /// 0: none before that. InnoDB's default is 0 before MySQL 8.0; 10 since.
        max_dirty_pages_pct_lwm: usize, or "0, or none with envelope";
        PER_CENT, range: "0 to max_dirty_pages_pct", changes: online, models: "innodb_max_dirty_pages_pct_lwm",
        help: "With adaptive: dirty per cent of the pool from which on pages are written";

        /// The default is MySQL's; Percona Server's is [`CleanerLsnAgeFactor::HighCheckpoint`].
        cleaner_lsn_age_factor: CleanerLsnAgeFactor, or "legacy, or none with envelope";
        NAME, changes: online, models: "innodb_cleaner_lsn_age_factor",
        help: "With adaptive: how steeply flushing rises with the checkpoint age";

        /// In place, a page's number tells its place. InnoDB's default is [`FlushNeighbors::None`] since MySQL 8.0;
        /// [`FlushNeighbors::Seq`] before, and [`FlushNeighbors::Area`] in 5.5.
        flush_neighbors: FlushNeighbors = FlushNeighbors::None;
        NAME, changes: online, models: "innodb_flush_neighbors",
        help: "With in_place, not with envelope: dirty neighbours that are written with a page that is due";

        /// The classic methods of flushing need the lists.
        dirty_tracking: DirtyTracking, or "scan, or flush_list if classic";
        NAME, changes: open,
        help: "How dirty pages are found: by a scan, or in lists behind a mutex";

        log_recent_closed: LogRecentClosed = LogRecentClosed::None;
        NAME, changes: online,
        help: "With a flush list: a window for marking pages out of order, and how its closer wakes";

        /// Takes half as many bytes of memory. The default is that of MySQL 8.0.
        log_recent_closed_size: ByteSize, or "2MiB, or none";
        SIZE, range: "4KiB to 64MiB", changes: open, models: "innodb_log_recent_closed_size",
        help: "With log_recent_closed: length of its window, in bytes of log";

        log_writer_threads: bool = false;
        BOOL, changes: open, models: "innodb_log_writer_threads",
        help: "Threads write and sync the log, and wake its waiters; else committing threads do";

        /// The number decides whether a thread spins first. MySQL's is [`LogSpin::Affinity`].
        log_spin: LogSpin, or "quota, or none";
        NAME, changes: online,
        help: "With log_writer_threads: CPUs assumed when waiters for the log spin";

        /// In per cent of one CPU.
        log_spin_cpu_abs_lwm: usize, or "80, or none";
        PER_CENT, range: "0 to 100000", changes: online, models: "innodb_log_spin_cpu_abs_lwm",
        help: "With log_writer_threads: use of one CPU below which no thread spins";

        /// In per cent of all CPUs of the process.
        log_spin_cpu_pct_hwm: usize, or "50, or none";
        PER_CENT, range: "0 to 100", changes: online, models: "innodb_log_spin_cpu_pct_hwm",
        help: "With log_writer_threads: use of all CPUs from which on no thread spins";

        /// Sets the same as [`Options::durability`].
        flush_log_at_commit: u8, or "durability";
        NUMBER, range: "0 to 2", changes: online, models: "innodb_flush_log_at_trx_commit",
        help: "Durability in InnoDB's terms: 1 commit, 2 written, 0 background(1s)";
    }
}

const PROFILE: OptionInfo = OptionInfo {
    name: "profile",
    help: "Default policies of a server version; other options override them",
    value: NAME.0,
    unit: NAME.1,
    range: Profile::NAMES,
    changes: "open",
    models: None,
    depends: None,
    get: |options| Some(options.classic.profile.text()),
    set: |options, text| Ok(options.profile(Profile::parse(text, "")?)),
    is_in_range: |_| true,
};

/// One of the structs of the table.
trait Part: Sized {
    fn of(options: &Options) -> &Self;

    fn change(options: Options, change: impl FnOnce(Self) -> Self) -> Options;
}

impl Part for Options {
    fn of(options: &Options) -> &Self {
        options
    }

    fn change(options: Options, change: impl FnOnce(Self) -> Self) -> Options {
        change(options)
    }
}

impl Part for ClassicOptions {
    fn of(options: &Options) -> &Self {
        &options.classic
    }

    fn change(options: Options, change: impl FnOnce(Self) -> Self) -> Options {
        options.classic(change)
    }
}

impl Options {
    /// Whether open creates a database where there is none. Default: yes.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets the default policies of a server version: page store, doublewrite, free frames, replacement, flushing, the
    /// log, and the durability of commits. Default: [`Profile::Millpond`].
    ///
    /// A profile overwrites options that were set before. Options that are set afterwards count; values of the profile
    /// that have no effect with them are dropped. Sizes of pool and log, and the use of the page cache, depend on the
    /// machine: a profile does not set them.
    pub fn profile(self, profile: Profile) -> Self {
        let page_store = (profile != Profile::Millpond).then_some(PageStoreKind::InPlace);
        Options { page_store, durability: Durability::Commit, classic: ClassicOptions::of_profile(profile), ..self }
    }

    /// Changes the options of the classic policies.
    ///
    /// ```
    /// use millpond::Options;
    /// use millpond::classic::{FlushNeighbors, Profile};
    ///
    /// let options = Options::new().profile(Profile::Mysql56);
    /// let options = options.classic(|classic| classic.flush_neighbors(FlushNeighbors::Area).io_capacity(2_000));
    /// ```
    pub fn classic(mut self, change: impl FnOnce(ClassicOptions) -> ClassicOptions) -> Self {
        self.classic = change(self.classic);
        self
    }

    fn set_by_caller(&mut self, _name: &'static str) {}
}

impl ClassicOptions {
    fn set_by_caller(&mut self, name: &'static str) {
        self.set_by_caller.push(name);
    }
}

/// One option of [`Options`] or [`ClassicOptions`]: its description, and how to read and set it as text.
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
    /// The variable of MySQL or Percona Server that it models.
    pub models: Option<&'static str>,
    /// The default in words, if it depends on the database or other options; `None`: the default is a value.
    depends: Option<&'static str>,
    get: fn(&Options) -> Option<String>,
    set: fn(Options, &str) -> Result<Options, String>,
    is_in_range: fn(&Options) -> bool,
}

impl OptionInfo {
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
        let mut settled = options.settled();
        // Its default depends on other options, but not on the database.
        settled.classic.buffer_pool_instances = Some(options.instances());
        (self.get)(&settled)
    }

    /// `options` with this option set to `text`. [`Db::open`](crate::Db::open) checks combinations of options.
    ///
    /// # Errors
    /// `text` is no value of this option; the error describes the values.
    pub fn set(&self, options: Options, text: &str) -> Result<Options, String> {
        (self.set)(options, text)
    }

    /// The mistake, if the value in `options` is out of range.
    pub(crate) fn mistake(&self, options: &Options) -> Option<String> {
        let value = if (self.is_in_range)(options) { None } else { (self.get)(options) };
        value.map(|value| format!("{} is {value}: use {}", self.name, self.range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::create::DEFAULT_PAGE_SIZE;
    use crate::options::value::size_text;

    fn info(name: &str) -> OptionInfo {
        *OptionInfo::find(name).expect("it is in the table")
    }

    fn set(name: &str, text: &str) -> Result<Options, String> {
        info(name).set(Options::new(), text)
    }

    #[test]
    fn defaults_are_those_that_a_database_is_made_with() {
        for info in OptionInfo::ALL {
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
        assert!(said("page_store").starts_with(&PageStoreKind::default().text()));
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
