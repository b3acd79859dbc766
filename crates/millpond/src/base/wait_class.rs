//! The causes of waits.

/// The cause of an operation's wait. Every park names its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitClass {
    /// A free frame of the buffer pool. The thread that frees one ends the wait (mostly the keeper). A wait for
    /// [`Admission`](Self::Admission) or the [`Lane`](Self::Lane) is counted here, too, where the operations ahead
    /// waited for a frame for at least half of it.
    FreeFrame,
    /// Permission to miss pages and pin them, where many operations do. An operation that has finished ends the wait.
    Admission,
    /// Room in the log's buffer or files. The flush leader or the checkpoint ends the wait.
    LogSpace,
    /// The log being written to the device up to a commit that needs no sync (`flush_log_at_commit=2`), or, with
    /// `log_writer_threads`, room in the log's buffer. The flush leader or the notifying thread ends the wait. Includes
    /// the leader's own write.
    LogWrite,
    /// The log being durable up to a commit. The flush leader ends the wait. Includes the leader's own write and sync.
    LogFlush,
    /// A page's read from the device, by this thread or another one. The reading thread ends the wait.
    PageRead,
    /// A page's latch. Its holder ends the wait, and itself waits only for other latches below. (With a classic policy
    /// the holder may wait for [`RecentClosed`](Self::RecentClosed); the wait is then counted there.)
    PageLatch,
    /// A requested checkpoint, or another duty of the keeper: making a bulk load's pages durable and named in the map,
    /// or resizing pool or log. The keeper ends the wait.
    Checkpoint,
    /// The lane: its single place for an operation that was restarted often. The operation in the lane ends the wait.
    Lane,
    /// A conflict over trees, tables and indexes: another thread creates, drops or closes one, operations on a dropped
    /// one are still running, an operation (purge, for a leaf's rows) needs all spaces to stay, or another bulk load
    /// writes. The end of that work ends the wait.
    Metadata,
    /// A row that a batch of several groups has changed or read. That batch's commit or rollback ends the wait.
    RowLock,
    /// Room in the data files. The thread that makes the files grow, this one or another, ends the wait.
    FileGrowth,
    /// A payment for the log bytes that this thread wrote, while pages become dirty faster than the device can clean
    /// them. The wait ends at a time that follows from the amount logged.
    Throttle,
    /// Room in the window within which pages are marked dirty out of order, with latches held; or a latch whose holder
    /// waits so. Only with the classic `log_recent_closed`. The closer, which goes by the clock, ends the wait.
    RecentClosed,
}

impl WaitClass {
    /// All classes, in the order of their declaration.
    pub const ALL: [WaitClass; 14] = [
        WaitClass::FreeFrame,
        WaitClass::Admission,
        WaitClass::LogSpace,
        WaitClass::LogWrite,
        WaitClass::LogFlush,
        WaitClass::PageRead,
        WaitClass::PageLatch,
        WaitClass::Checkpoint,
        WaitClass::Lane,
        WaitClass::Metadata,
        WaitClass::RowLock,
        WaitClass::FileGrowth,
        WaitClass::Throttle,
        WaitClass::RecentClosed,
    ];

    /// The name that reports use, such as `free_frame`.
    pub fn name(self) -> &'static str {
        match self {
            WaitClass::FreeFrame => "free_frame",
            WaitClass::Admission => "admission",
            WaitClass::LogSpace => "log_space",
            WaitClass::LogWrite => "log_write",
            WaitClass::LogFlush => "log_flush",
            WaitClass::PageRead => "page_read",
            WaitClass::PageLatch => "page_latch",
            WaitClass::Checkpoint => "checkpoint",
            WaitClass::Lane => "lane",
            WaitClass::Metadata => "metadata",
            WaitClass::RowLock => "row_lock",
            WaitClass::FileGrowth => "file_growth",
            WaitClass::Throttle => "throttle",
            WaitClass::RecentClosed => "recent_closed",
        }
    }
}
