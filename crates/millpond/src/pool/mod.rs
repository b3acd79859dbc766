//! The buffer pool: frames, the page table, page replacement, and the line of threads that wait for a frame.
//!
//! POOL-1  A frame is in exactly one place: the ring of free frames, the replacement queues, or one thread's hand.
//! POOL-2  Free frames go to waiters in arrival order (FIFO); newcomers never pass them, but for batches (FREE-1).
//! POOL-3  A page leaves its frame only while it is clean, unpinned and unlatched.
//! POOL-4  While an operation waits for a frame or a read, it holds no latch. It may keep the pins that it was
//!         [admitted](admission) for, and an operation in the lane (see [`lane`]) keeps its pins, 24 at most.
//! POOL-5  A thread that finds a page by a hint only tries the latch, then checks the page's id. So no thread waits for
//!         a read or write of a page that it never wanted.
//!
//! Order: page latches (parent to child), then mutexes in the order of [`Rank`](crate::base::sync::Rank). Under a
//! shard's mutex a latch is only tried, never waited for. No mutex here is held over I/O.

pub(crate) mod admission;
mod backoff;
pub(crate) mod buffer_pool;
pub(crate) mod classic;
pub(crate) mod dirty;
mod evictor;
mod fetch;
mod frame;
mod frame_supply;
pub(crate) mod frame_ticket;
mod free_frames;
#[cfg(test)]
mod free_frames_tests;
pub(crate) mod held_pages;
pub(crate) mod instance;
pub(crate) mod lane;
mod legacy;
pub(crate) mod lru_manager;
pub(crate) mod memory;
mod midpoint_lru;
pub(crate) mod neighbors;
pub(crate) mod options;
mod page_buf;
pub(crate) mod pin;
mod primitives;
mod read_ahead;
pub(crate) mod replacement;
mod residence;
mod resize;
pub(crate) mod route;
mod s3_fifo;
mod table;
