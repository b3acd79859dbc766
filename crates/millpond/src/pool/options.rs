//! The options of a pool: its size, the choices that it is made with, and how frames come free.

/// Options for making a pool.
pub(crate) struct PoolOptions {
    pub(crate) frames: u32,
    /// Number of frames that the pool may grow to.
    pub(crate) frames_max: usize,
    pub(crate) tracking: DirtyTracking,
    pub(crate) replacement: PageReplacement,
    pub(crate) instances: usize,
    pub(crate) freeing: Freeing,
}

/// How frames come free. May change while the pool is in use, but not from or to the hand-off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freeing {
    pub(crate) empty: EmptyFreeListAlgorithm,
    /// For each instance: pages from the list's tail on that a search for frames looks at.
    pub(crate) lru_scan_depth: usize,
    /// For each instance: frames that a background thread keeps free ahead of need; `None`: as many as need shows.
    pub(crate) free_list_target: Option<usize>,
    /// `old_blocks_time` of [LRU with a midpoint](super::midpoint_lru), in nanoseconds.
    pub(crate) old_blocks_ns: u64,
}

/// The action of an operation that finds no free frame in the buffer pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EmptyFreeListAlgorithm {
    /// The operation takes a place in a FIFO line, and is handed the next frame that comes free. It writes nothing.
    #[default]
    Handoff,
    /// The operation looks for a clean page among the next hundred to leave, then among all. Failing that it writes one
    /// page and syncs it. All other operations that find no free frame wait behind it: InnoDB's `legacy`. Only page
    /// cleaners free frames ahead of need, with `adaptive_flushing_method` adaptive.
    Legacy,
    /// The operation sleeps for one millisecond, then two, up to ten, until an LRU manager has freed frames. The
    /// manager is a thread that itself sleeps for up to a second: the `backoff` of Percona Server.
    Backoff,
}

/// Which pages leave the buffer pool first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PageReplacement {
    /// S3-FIFO: pages that were not used again leave first. A hit takes no mutex. A scan does not displace pages that
    /// are in use.
    #[default]
    S3Fifo,
    /// LRU: the least recently used pages leave first, and new pages enter at a midpoint. InnoDB's list, behind a
    /// mutex.
    MidpointLru,
}

/// How pages dirtied before an LSN are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DirtyTracking {
    /// By a pass over one number for each frame. Threads that dirty pages share nothing.
    #[default]
    Scan,
    /// By a flush list in LSN order, behind a mutex, as in InnoDB: one for each instance of the buffer pool.
    FlushList,
}
