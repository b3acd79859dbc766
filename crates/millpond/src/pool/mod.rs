//! Pages in memory: fixed frames, a page table, second-chance replacement.
//!
//! POOL-1  A frame is in exactly one place: the free list, the page table, or one thread's hand.
//! POOL-2  Free frames go to waiters in the order in which they came; newcomers never pass them.
//! POOL-3  A frame is evicted only while it is clean, unpinned, and not being written.
//! POOL-4  No latch and no pin of the waiter's operation is held while it waits for a frame or a read, but for the
//!         one page that it loaded last, and the few of who is in the lane (see [`buffer_pool::Pool::lane`]).
//!
//! Latch order: page latches (parent to child), then the table's mutex, alone. The table's mutex is never held over
//! I/O.

pub(crate) mod buffer_pool;
pub(crate) mod frame;
