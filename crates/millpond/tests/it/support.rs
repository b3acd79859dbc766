//! Shared parts of the tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::classic::{
    AdaptiveFlushingMethod, ClassicOptions, DirtyTracking, Doublewrite, EmptyFreeListAlgorithm, FlushNeighbors,
    LogRecentClosed, PageReplacement, Profile,
};
use millpond::inspect::{CheckOptions, CheckReport, check_on};
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, sleep_ns};
use millpond::{ByteSize, Db, Error, Options, PageStoreKind};

/// The contents of a database, by tree or table and key.
pub(crate) type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The kind of a small database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) page_kib: u64,
    pub(crate) store: PageStoreKind,
    /// Doublewrite, for stores that overwrite pages.
    pub(crate) doublewrite: Doublewrite,
    /// How free frames are supplied. Without the hand-off, dirty pages are in a flush list.
    pub(crate) empty: EmptyFreeListAlgorithm,
    /// The flushing method. Without the envelope, dirty pages are in a flush list.
    pub(crate) flushing: AdaptiveFlushingMethod,
    /// The neighbours that are written with a page that is due.
    pub(crate) neighbors: FlushNeighbors,
    /// Whether threads of their own write the log.
    pub(crate) pipeline: bool,
    /// A window of 4 KiB within which pages are marked dirty. With one, dirty pages are in a flush list.
    pub(crate) recent_closed: LogRecentClosed,
    /// A server's policies. They replace all fields above except page size and frames.
    pub(crate) profile: Profile,
    /// Instances of the pool.
    pub(crate) instances: usize,
    /// Frames of the pool.
    pub(crate) frames: u64,
}

/// Pages of 4 KiB, copy-on-write.
pub(crate) const SMALL: Shape = Shape {
    page_kib: 4,
    store: PageStoreKind::CopyOnWrite,
    doublewrite: Doublewrite::Off,
    empty: EmptyFreeListAlgorithm::Handoff,
    flushing: AdaptiveFlushingMethod::Envelope,
    neighbors: FlushNeighbors::None,
    profile: Profile::Millpond,
    pipeline: false,
    recent_closed: LogRecentClosed::None,
    instances: 1,
    frames: 40,
};

/// As [`SMALL`], but in place: a crash loses torn pages.
pub(crate) const IN_PLACE: Shape = Shape { store: PageStoreKind::InPlace, ..SMALL };

/// As [`IN_PLACE`], with copies of overwritten pages.
pub(crate) const TWICE: Shape = Shape { doublewrite: Doublewrite::On, ..IN_PLACE };

/// The log of MySQL 8.0: threads, and a window.
pub(crate) const THREADED: Shape = Shape { pipeline: true, recent_closed: LogRecentClosed::Poll, ..SMALL };

impl Shape {
    /// A pool of a few dozen frames, a log of a few laps.
    pub(crate) fn options(self) -> Options {
        let redo = ByteSize::kib(128 * self.page_kib);
        self.reopen_options()
            .create(true)
            .page_size(ByteSize::kib(self.page_kib))
            .page_store(self.store)
            .redo_capacity(redo)
    }

    /// Whether foreground threads write pages.
    pub(crate) fn is_legacy(self) -> bool {
        self.empty == EmptyFreeListAlgorithm::Legacy
    }

    /// Options for an existing database.
    pub(crate) fn reopen_options(self) -> Options {
        let tracking = match (self.empty, self.flushing, self.recent_closed) {
            (EmptyFreeListAlgorithm::Handoff, AdaptiveFlushingMethod::Envelope, LogRecentClosed::None) => {
                DirtyTracking::Scan
            }
            _ => DirtyTracking::FlushList,
        };
        let small_window = |classic: ClassicOptions| match self.recent_closed {
            LogRecentClosed::None => classic,
            _ => classic.log_recent_closed_size(ByteSize::kib(4)),
        };
        if self.profile != Profile::Millpond {
            let size = ByteSize::kib(self.page_kib * self.frames);
            let options = Options::new().profile(self.profile).create(false).buffer_pool_size(size);
            return options.classic(|classic| small_window(classic.buffer_pool_instances(self.instances)));
        }
        let size = ByteSize::kib(self.page_kib * self.frames);
        // The log has its capacity from the begin.
        let options = Options::new().create(false).buffer_pool_size(size).redo_capacity_min(ByteSize::tib(1));
        options.classic(|classic| {
            small_window(classic.log_recent_closed(self.recent_closed))
                .empty_free_list_algorithm(self.empty)
                .adaptive_flushing_method(self.flushing)
                .flush_neighbors(self.neighbors)
                .log_writer_threads(self.pipeline)
                .buffer_pool_instances(self.instances)
                .dirty_tracking(tracking)
                .doublewrite(self.doublewrite)
        })
    }
}

/// The default, and each of the classic ways to free frames; for a pool of at least 100 frames.
pub(crate) const WAYS_TO_FREE: [fn(ClassicOptions) -> ClassicOptions; 4] = [
    |classic| classic,
    |classic| classic.page_replacement(PageReplacement::MidpointLru),
    |classic| classic.empty_free_list_algorithm(EmptyFreeListAlgorithm::Legacy).buffer_pool_instances(2),
    |classic| {
        classic.empty_free_list_algorithm(EmptyFreeListAlgorithm::Backoff).buffer_pool_instances(3).free_list_target(4)
    },
];

pub(crate) fn small_options() -> Options {
    SMALL.options()
}

pub(crate) fn reopen_options() -> Options {
    SMALL.reopen_options()
}

/// A disk so slow that purge, the keeper's ticks and checkpoints fall between the clients' operations, and other
/// threads between the groups of a batch.
pub(crate) const SLOW: ServiceTime = ServiceTime { read_ns: 1_000_000, write_ns: 3_000_000, sync_ns: 6_000_000 };

pub(crate) fn open(disk: &SimulatedDisk, options: Options) -> Db {
    Db::open_on(Arc::new(disk.clone()), options).expect("opened")
}

/// The check's report of a database without faults.
pub(crate) fn sound(disk: &SimulatedDisk) -> CheckReport {
    let report = check_on(Arc::new(disk.clone()), &CheckOptions::default()).expect("checked");
    assert_eq!(report.problems, Vec::<String>::new());
    report
}

/// Gives purge and the keeper time until they have nothing to do and no batch is in flight.
pub(crate) fn settle(db: &Db) {
    for _ in 0..400 {
        sleep_ns(200_000_000);
        let stats = db.stats();
        if stats.purge_pages == 0 && stats.batches_in_flight == 0 && stats.tree_merge_wishes == 0 {
            break;
        }
    }
    // Time to finish the current work.
    sleep_ns(1_000_000_000);
    assert_eq!(db.stats().batches_in_flight, 0);
}

pub(crate) fn disk_of(image: Image) -> SimulatedDisk {
    SimulatedDisk::with_image(image, ServiceTime::default())
}

pub(crate) fn contents(db: &Db) -> Result<Contents, Error> {
    let mut all = Contents::new();
    for name in db.trees()? {
        let tree = db.open_tree(&name)?;
        all.insert(name, tree.scan(..).collect::<Result<_, _>>()?);
    }
    for name in db.tables()? {
        let table = db.open_table(&name)?;
        all.insert(name, table.scan(..).collect::<Result<_, _>>()?);
    }
    Ok(all)
}

/// Opens the database on `disk`, reads all of it, closes it, and checks it.
pub(crate) fn recover(disk: &SimulatedDisk) -> Result<Contents, String> {
    recover_shaped(disk, SMALL)
}

/// The same for a database of another shape.
pub(crate) fn recover_shaped(disk: &SimulatedDisk, shape: Shape) -> Result<Contents, String> {
    let db = Db::open_on(Arc::new(disk.clone()), shape.reopen_options()).map_err(|e| format!("open: {e}"))?;
    let found = contents(&db).map_err(|e| format!("read: {e}"))?;
    db.close().map_err(|e| format!("close: {e}"))?;
    let report = check_on(Arc::new(disk.clone()), &CheckOptions::default()).map_err(|e| format!("check: {e}"))?;
    if report.orphan_spaces > 0 {
        return Err(format!("check: {} spaces that no name leads to", report.orphan_spaces));
    }
    match report.problems.first() {
        None => Ok(found),
        Some(problem) => Err(format!("check: {problem}")),
    }
}
