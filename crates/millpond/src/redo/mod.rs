//! The log as bytes and LSNs: credits, append, flush, files, scan. It knows nothing of pages.
//!
//! REDO-1  An LSN is the position of a byte in the endless log; byte `lsn` lives at one place of the ring of files.
//! REDO-2  `checkpoint <= durable <= next`, and `next + credits` stays within the ring's capacity of `checkpoint`:
//!         nothing that recovery needs is overwritten, and the owner of a credit never waits for room.
//! REDO-3  One write is in flight at a time. The next write repeats the block that holds its end, with the same bytes
//!         up to that end: a sector torn by the repetition has the acknowledged bytes either way.
//! REDO-4  A group's checksum depends on its LSN and on the epoch's nonce: a group of an older lap or an older crash,
//!         found where a newer one is expected, fails the check.
//! REDO-5  A group is shorter than a fourth of the log's buffer, which is at most 4 MiB.
//! REDO-6  `next + credits + reserve` stays within the wall for writers: the keeper always finds room for one map
//!         record for each page that is dirty or being written, so it can always empty the log.
//! REDO-12 A group's bytes are complete before anything shows that the group has its place. If the thread panics in
//!         between, no other group gets a place.
//! REDO-13 `next + credits - durable` is at most [`BEHIND_MAX`](group::BEHIND_MAX) for writers, and fits 32 bits in all
//!         cases: each group records in 32 bits how far behind it the log was durable.

pub(crate) mod append;
pub(crate) mod credits;
pub(crate) mod dirty_counts;
pub(crate) mod ending;
pub(crate) mod files;
#[cfg(test)]
mod files_tests;
#[cfg(test)]
mod fixture_tests;
mod flush_by;
pub(crate) mod group;
pub(crate) mod group_commit;
mod link_buffer;
#[cfg(test)]
mod link_buffer_tests;
pub(crate) mod locate;
#[cfg(test)]
mod locate_tests;
pub(crate) mod log;
mod log_buffer;
#[cfg(test)]
mod log_buffer_tests;
mod log_events;
#[cfg(test)]
mod log_events_tests;
pub(crate) mod log_spin;
#[cfg(test)]
mod log_tests;
pub(crate) mod notices;
pub(crate) mod pipeline;
#[cfg(test)]
mod pipeline_tests;
mod pipeline_threads;
pub(crate) mod recent_closed;
#[cfg(test)]
mod recent_closed_tests;
mod ring_switch;
pub(crate) mod scan;
#[cfg(test)]
mod scan_tests;
pub(crate) mod waiters;
