//! Pages in memory: frames, the page table, who leaves, and who waits.
//!
//! POOL-1  A frame is in exactly one place: the ring of free frames, the replacement queues, or one thread's hand.
//! POOL-2  Free frames go to waiters in the order in which they came; newcomers never pass them.
//! POOL-3  A page leaves its frame only while it is clean, unpinned and unlatched.
//! POOL-4  No latch of the waiter's operation is held while it waits for a frame or a read, and no pin but those that
//!         it was [admitted](admission) for, and those of who is in the lane (see [`lane`]).
//! POOL-5  Who finds a page by a hint only tries its latch, and looks afterwards whether it is that page: no thread
//!         waits for what another reads or writes in a frame that it never wanted.
//!
//! Order: page latches (parent to child), then mutexes as [`Rank`](crate::base::sync::Rank) has them. A latch is tried
//! under a shard's mutex, never waited for. No mutex here is held over I/O.

pub(crate) mod admission;
mod backoff;
pub(crate) mod buffer_pool;
mod classic;
pub(crate) mod dirty;
mod evictor;
pub(crate) mod frame;
pub(crate) mod frame_ticket;
mod free_frames;
#[cfg(test)]
mod free_frames_tests;
pub(crate) mod instance;
pub(crate) mod lane;
pub(crate) mod legacy;
pub(crate) mod lru_manager;
pub(crate) mod memory;
mod midpoint_lru;
pub(crate) mod neighbors;
mod primitives;
mod read_ahead;
pub(crate) mod replacement;
mod residence;
mod resize;
pub(crate) mod route;
mod s3_fifo;
mod table;
