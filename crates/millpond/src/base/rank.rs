//! The order in which mutexes are taken.
//!
//! RANK-1  Who waits for a mutex or a turn holds none of its rank, and none of a later one.
//! RANK-2  Who waits for a latch, a hand-off or a condition variable holds no mutex (but the condition's own). Turns he
//!         may hold.
//!
//! So no circle of threads that wait for each other goes through a mutex. Whoever only tries (`try_lock`) waits for
//! nobody and is free to, but holds no two of one rank. Asserted in debug builds, wherever the tests go.

/// What a mutex guards, the outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    // Turns: pieces of work one at a time, I/O and waits included.
    IndexBuild,
    RedoChange,
    Ddl,
    Lane,
    SyncFlush,
    Lru,
    LoadWriter,
    PageWriter,
    /// Copies of a lot of images, until these have overwritten others.
    Doublewrite,
    Growth,
    Syncing,
    /// Writes and syncs of the log by its own threads.
    LogWriter,
    LogFlusher,
    OverlayFiles,
    OverlayFile,
    // Mutexes: held for microseconds, over nothing that waits.
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
    PageCleaners,
    Pacing,
    Payments,
    Transactions,
    RowLocks,
    Admission,
    Leaving,
    PageTable,
    Replacement,
    FreeFrames,
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
    /// Whether it is that of a [`Turn`](super::sync::Turn).
    pub(crate) const fn is_turn(self) -> bool {
        (self as u8) < Rank::Options as u8
    }

    /// Its place in a set of ranks: bit 0 is the outermost.
    pub(super) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// All ranks of mutexes that are no turns.
pub(super) const MUTEXES: u64 = !(Rank::Options.bit() - 1);
