//! The order in which threads take mutexes.
//!
//! RANK-1  A thread that waits for a mutex or a turn holds none of the same rank, and none of a later rank.
//! RANK-2  A thread that waits for a latch, a hand-off or a condition variable holds no mutex but the condition's own.
//!         It may hold turns.
//!
//! So no cycle of waiting threads includes a mutex. A thread that only tries (`try_lock`) never waits, so it may try
//! any rank, but holds no two of one rank. Asserted in debug builds, on the paths that tests run.

/// The structure that a mutex guards, the outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    // Turns: serialise a piece of work, I/O and waits included.
    IndexBuild,
    RedoChange,
    Ddl,
    Lane,
    SyncFlush,
    Lru,
    LoadWriter,
    PageWriter,
    /// Copies of a batch of images, held until the images are written in place.
    Doublewrite,
    Growth,
    Syncing,
    /// Writes and syncs by the log's own threads.
    LogWriter,
    LogFlusher,
    OverlayFiles,
    OverlayFile,
    // Mutexes: held for microseconds, never across a wait.
    Options,
    Threads,
    Files,
    Loads,
    OpenTrees,
    OpenTables,
    Drops,
    MergeWishes,
    MergesParked,
    Requests,
    Status,
    Syncer,
    Background,
    LogHold,
    Compaction,
    PageCleaners,
    Pacing,
    Payments,
    OpenTransactions,
    OpenTransaction,
    Transactions,
    RowLocks,
    Snapshots,
    Commits,
    Admission,
    Leaving,
    PageTable,
    Replacement,
    FreeFrames,
    LogNotices,
    Log,
    LogBlock,
    Links,
    LogEvents,
    Store,
    DirtyCounts,
    DirtyList,
    Handoff,
    Bell,
    Waits,
    Device,
}

impl Rank {
    /// Whether this is the rank of a [`Turn`](super::sync::Turn).
    pub(super) const fn is_turn(self) -> bool {
        (self as u8) < Rank::Options as u8
    }

    /// The rank's bit in a set of ranks: bit 0 is the outermost.
    pub(super) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// The set of all ranks that are no turns.
pub(super) const MUTEXES: u64 = !(Rank::Options.bit() - 1);
