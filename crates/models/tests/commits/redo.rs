//! The engine's whole log, except for the counts that hold the checkpoint back.

#![expect(dead_code, unreachable_pub, reason = "the engine uses more of it than the model")]

#[path = "../../../millpond/src/redo/append.rs"]
pub(crate) mod append;
#[path = "../../../millpond/src/redo/credits.rs"]
pub(crate) mod credits;
#[path = "../../../millpond/src/redo/ending.rs"]
pub(crate) mod ending;
#[path = "../../../millpond/src/redo/files.rs"]
pub(crate) mod files;
#[path = "../../../millpond/src/redo/flush_by.rs"]
pub(crate) mod flush_by;
#[path = "../../../millpond/src/redo/group.rs"]
pub(crate) mod group;
#[path = "../../../millpond/src/redo/group_commit.rs"]
pub(crate) mod group_commit;
#[path = "../../../millpond/src/redo/link_buffer.rs"]
pub(crate) mod link_buffer;
#[path = "../../../millpond/src/redo/locate.rs"]
pub(crate) mod locate;
#[path = "../../../millpond/src/redo/log.rs"]
pub(crate) mod log;
#[path = "../../../millpond/src/redo/log_buffer.rs"]
pub(crate) mod log_buffer;
#[path = "../../../millpond/src/redo/log_events.rs"]
pub(crate) mod log_events;
#[path = "../../../millpond/src/redo/log_spin.rs"]
pub(crate) mod log_spin;
#[path = "../../../millpond/src/redo/notices.rs"]
pub(crate) mod notices;
#[path = "../../../millpond/src/redo/pipeline.rs"]
pub(crate) mod pipeline;
#[path = "../../../millpond/src/redo/pipeline_threads.rs"]
pub(crate) mod pipeline_threads;
#[path = "../../../millpond/src/redo/recent_closed.rs"]
pub(crate) mod recent_closed;
#[path = "../../../millpond/src/redo/scan.rs"]
pub(crate) mod scan;
#[path = "../../../millpond/src/redo/waiters.rs"]
pub(crate) mod waiters;

/// A stand-in: nothing holds the checkpoint back, which the model never moves.
pub(crate) mod dirty_counts {
    use crate::base::ids::Lsn;

    #[derive(Default)]
    pub(crate) struct DirtyCounts;

    impl DirtyCounts {
        pub(crate) fn bucket(&self, _lsn: Lsn) -> u64 {
            0
        }

        pub(crate) fn note_group(&self, _start: Lsn) {}

        pub(crate) fn add(&self, _start: Lsn) {}

        pub(crate) fn remove(&self, _start: Lsn) {}

        pub(crate) fn memory_for(_capacity: u64) -> u64 {
            0
        }
    }
}
