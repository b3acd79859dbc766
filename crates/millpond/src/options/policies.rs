//! The policies that follow from the options: each default that depends on other options is settled here.

use std::time::Duration;

use bytesize::ByteSize;

use crate::base::clock;
use crate::options::Options;
use crate::options::durability::Durability;
use crate::options::page_store::PageStoreKind;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, Settings};
use crate::pool::options::{DirtyTracking, EmptyFreeListAlgorithm, Freeing, PageReplacement, PoolOptions};
use crate::redo::log::LogPolicies;
use crate::redo::log_spin::SpinSettings;
use crate::redo::pipeline::PipelineSettings;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;

/// Default number of threads that clean pages, if there are as many instances.
const PAGE_CLEANERS: usize = 4;

/// Default of `io_capacity`, and its maximum.
const IO_CAPACITY: usize = 200;
pub(crate) const IO_CAPACITY_MAX: usize = 10_000_000;

/// Default `io_capacity_max`: twice `io_capacity`, but at least this.
const IO_CAPACITY_MAX_LEAST: usize = 2_000;

/// Default `old_blocks_time`, that of `innodb_old_blocks_time`.
const OLD_BLOCKS_TIME: Duration = Duration::from_secs(1);

/// Default of `max_dirty_pages_pct`.
const MAX_DIRTY_PAGES_PCT: usize = 75;

/// Default length of the window for marking pages out of order, in bytes of log.
const RECENT_CLOSED: ByteSize = ByteSize::mib(2);

/// Defaults of the marks of CPU use between which a thread that waits for the log spins.
const SPIN_CPU_ABS_LWM: usize = 80;
const SPIN_CPU_PCT_HWM: usize = 50;

impl Options {
    /// These options, adapted to a database that is only read.
    pub(crate) fn for_reading(self) -> Self {
        if !self.read_only {
            return self;
        }
        let fits = Options { create: false, at_rest: true, fit_pool: true, ..self };
        Options { redo_capacity: None, recovery_time_target: None, ..fits }
    }

    /// Largest number of frames that the pool may have, with pages of `page_size`.
    pub(crate) fn frames_max(&self, page_size: u64) -> u64 {
        self.buffer_pool_size_max.unwrap_or(self.buffer_pool_size).max(self.buffer_pool_size).as_u64() / page_size
    }

    /// The doublewrite mode in force with this page store.
    pub(crate) fn doublewrite_of(&self, kind: PageStoreKind) -> Doublewrite {
        match kind {
            PageStoreKind::CopyOnWrite => Doublewrite::Off,
            PageStoreKind::InPlace => self.classic.doublewrite.unwrap_or_default(),
        }
    }

    /// Number of instances of the buffer pool.
    pub(crate) fn instances(&self) -> usize {
        let of_profile = match self.classic.empty_free_list_algorithm {
            EmptyFreeListAlgorithm::Handoff => 1,
            _ => self.classic.profile.instances(self.buffer_pool_size.as_u64()),
        };
        self.classic.buffer_pool_instances.unwrap_or(of_profile)
    }

    /// The page replacement policy in force.
    pub(crate) fn replacement(&self) -> PageReplacement {
        let follows = match self.classic.empty_free_list_algorithm {
            EmptyFreeListAlgorithm::Handoff => PageReplacement::S3Fifo,
            EmptyFreeListAlgorithm::Legacy | EmptyFreeListAlgorithm::Backoff => PageReplacement::MidpointLru,
        };
        self.classic.page_replacement.unwrap_or(follows)
    }

    /// The dirty page tracking in force.
    pub(crate) fn tracking(&self) -> DirtyTracking {
        let follows = match self.classic.adaptive_flushing_method {
            AdaptiveFlushingMethod::Envelope => DirtyTracking::Scan,
            _ => DirtyTracking::FlushList,
        };
        self.classic.dirty_tracking.unwrap_or(follows)
    }

    /// The options of a buffer pool of `frames`.
    pub(crate) fn pool(&self, frames: u32, frames_max: usize) -> PoolOptions {
        PoolOptions {
            frames,
            frames_max,
            tracking: self.tracking(),
            replacement: self.replacement(),
            instances: self.instances(),
            freeing: self.freeing(),
        }
    }

    /// The settings by which frames come free.
    pub(crate) fn freeing(&self) -> Freeing {
        let classic = &self.classic;
        let is_refilled =
            classic.empty_free_list_algorithm == EmptyFreeListAlgorithm::Backoff || self.cleaners_refill();
        Freeing {
            empty: classic.empty_free_list_algorithm,
            lru_scan_depth: classic.lru_scan_depth,
            free_list_target: is_refilled.then(|| classic.free_list_target.unwrap_or(classic.lru_scan_depth)),
            old_blocks_ns: clock::nanos(classic.old_blocks_time.unwrap_or(OLD_BLOCKS_TIME)),
        }
    }

    /// Whether page cleaners refill the free lists.
    fn cleaners_refill(&self) -> bool {
        self.classic.empty_free_list_algorithm == EmptyFreeListAlgorithm::Legacy
            && self.classic.adaptive_flushing_method == AdaptiveFlushingMethod::Adaptive
    }

    /// Number of page cleaners, which share the instances.
    pub(crate) fn cleaners(&self) -> usize {
        self.classic.page_cleaners.unwrap_or(PAGE_CLEANERS).min(self.instances())
    }

    /// The settings of a classic flushing method.
    pub(crate) fn settings(&self) -> Settings {
        let classic = &self.classic;
        let io_capacity = classic.io_capacity.unwrap_or(IO_CAPACITY);
        let io_capacity_max = (2 * io_capacity).clamp(IO_CAPACITY_MAX_LEAST, IO_CAPACITY_MAX);
        Settings {
            io_capacity,
            io_capacity_max: classic.io_capacity_max.unwrap_or(io_capacity_max),
            max_dirty_pages_pct: classic.max_dirty_pages_pct.unwrap_or(MAX_DIRTY_PAGES_PCT),
            max_dirty_pages_pct_lwm: classic.max_dirty_pages_pct_lwm.unwrap_or(0),
            cleaner_lsn_age_factor: classic.cleaner_lsn_age_factor.unwrap_or_default(),
        }
    }

    /// The durability of writes, from either option.
    pub(crate) fn commit_durability(&self) -> Durability {
        match self.classic.flush_log_at_commit {
            None => self.durability,
            Some(1) => Durability::Commit,
            Some(2) => Durability::Written,
            Some(_) => Durability::Background(1_000),
        }
    }

    /// The policies of the log.
    pub(crate) fn log_policies(&self) -> LogPolicies {
        let classic = &self.classic;
        let size = classic.log_recent_closed_size.unwrap_or(RECENT_CLOSED).as_u64();
        let how = classic.log_recent_closed;
        LogPolicies {
            recent_closed: (how != LogRecentClosed::None).then_some((how, size)),
            pipeline: classic.log_writer_threads.then(|| PipelineSettings {
                sync_each_write: self.commit_durability() == Durability::Commit,
                spin: SpinSettings {
                    how: classic.log_spin.unwrap_or_default(),
                    cpu_abs_lwm: classic.log_spin_cpu_abs_lwm.unwrap_or(SPIN_CPU_ABS_LWM),
                    cpu_pct_hwm: classic.log_spin_cpu_pct_hwm.unwrap_or(SPIN_CPU_PCT_HWM),
                },
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_wait_as_innodb_has_it() {
        let of = |when| Options::new().classic(|classic| classic.flush_log_at_commit(when)).commit_durability();
        assert_eq!([1, 2, 0].map(of), [Durability::Commit, Durability::Written, Durability::Background(1_000)]);
        assert_eq!(Options::new().durability(Durability::None).commit_durability(), Durability::None);
    }
}
