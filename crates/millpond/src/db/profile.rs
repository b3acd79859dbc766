//! Groups of options: what a server had by default. `docs/classic.md` says where each value comes from.

use super::options::{Options, PageStoreKind};
use crate::pace::classic_flushing::AdaptiveFlushingMethod;
use crate::pool::legacy::EmptyFreeListAlgorithm;
use crate::pool::neighbors::FlushNeighbors;
use crate::redo::log_spin::LogSpin;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;

/// Whose policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Profile {
    /// The engine's own.
    #[default]
    Millpond,
    /// MySQL 5.5.
    Mysql55,
    /// MySQL 5.6, and 5.7 with one page cleaner.
    Mysql56,
    /// MySQL 8.0.
    Mysql80,
    /// Percona Server 5.7.
    Percona57,
    /// Percona Server 8.0: as MySQL 8.0, for what it has of its own is no default there any more.
    Percona80,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 6] = [
        Profile::Millpond,
        Profile::Mysql55,
        Profile::Mysql56,
        Profile::Mysql80,
        Profile::Percona57,
        Profile::Percona80,
    ];

    /// Instances of a buffer pool of so many bytes, where nobody says it: eight of a gibibyte or more, since 5.6.
    pub(super) fn instances(self, pool_bytes: u64) -> usize {
        match self {
            Profile::Millpond | Profile::Mysql55 => 1,
            _ if pool_bytes < 1 << 30 => 1,
            _ => 8,
        }
    }
}

impl Options {
    /// Policies as a server had them by default: page store, doublewrite, free frames, replacement, flushing, and the
    /// log. What is set before is overwritten, what is set afterwards counts. How large pool and log are, and whether
    /// files go through the page cache, is left to the caller, for it depends on the machine. Default:
    /// [`Profile::Millpond`].
    pub fn profile(self, profile: Profile) -> Self {
        let new = Options::new();
        let plain = Options {
            profile,
            page_store: new.page_store,
            doublewrite: new.doublewrite,
            dirty_tracking: new.dirty_tracking,
            empty_free_list_algorithm: new.empty_free_list_algorithm,
            page_replacement: new.page_replacement,
            buffer_pool_instances: new.buffer_pool_instances,
            lru_scan_depth: new.lru_scan_depth,
            free_list_target: new.free_list_target,
            adaptive_flushing_method: new.adaptive_flushing_method,
            page_cleaners: new.page_cleaners,
            io_capacity: new.io_capacity,
            io_capacity_max: new.io_capacity_max,
            max_dirty_pages_pct: new.max_dirty_pages_pct,
            flush_neighbors: new.flush_neighbors,
            log_recent_closed: new.log_recent_closed,
            log_recent_closed_size: new.log_recent_closed_size,
            log_writer_threads: new.log_writer_threads,
            log_spin: new.log_spin,
            log_spin_cpu_abs_lwm: new.log_spin_cpu_abs_lwm,
            log_spin_cpu_pct_hwm: new.log_spin_cpu_pct_hwm,
            ..self
        };
        if profile == Profile::Millpond {
            return plain;
        }
        // InnoDB's in all versions: `page_replacement` and `dirty_tracking` follow from the others.
        let innodb = plain
            .page_store(PageStoreKind::InPlace)
            .doublewrite(Doublewrite::On)
            .empty_free_list_algorithm(EmptyFreeListAlgorithm::Legacy)
            .adaptive_flushing_method(AdaptiveFlushingMethod::Adaptive)
            .io_capacity(200);
        let of_8_0 = |options: Options| {
            options
                .max_dirty_pages_pct(90)
                .flush_neighbors(FlushNeighbors::None)
                .log_writer_threads(true)
                .log_spin(LogSpin::Affinity)
                .log_recent_closed(LogRecentClosed::Poll)
        };
        let before_8_0 = |options: Options| options.max_dirty_pages_pct(75).flush_neighbors(FlushNeighbors::Seq);
        match profile {
            Profile::Millpond => innodb,
            Profile::Mysql55 => before_8_0(innodb)
                .adaptive_flushing_method(AdaptiveFlushingMethod::SyncOnly)
                .flush_neighbors(FlushNeighbors::Area),
            Profile::Mysql56 => before_8_0(innodb).page_cleaners(1),
            // `backoff` was the default up to 5.7, and is an option in 8.0.
            Profile::Mysql80 | Profile::Percona80 => of_8_0(innodb),
            Profile::Percona57 => before_8_0(innodb).empty_free_list_algorithm(EmptyFreeListAlgorithm::Backoff),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;

    #[test]
    fn each_goes_together_also_with_a_large_pool() {
        for profile in Profile::ALL {
            for size in [ByteSize::mib(128), ByteSize::gib(2)] {
                let options = Options::new().profile(profile).buffer_pool_size(size);
                options.validate(16384).unwrap_or_else(|error| unreachable!("{profile:?}: {error}"));
            }
        }
    }

    #[test]
    fn what_is_set_afterwards_counts_and_what_was_set_before_does_not() {
        let options = Options::new().io_capacity(4_000).profile(Profile::Mysql56).max_dirty_pages_pct(10);
        assert_eq!((options.io_capacity, options.max_dirty_pages_pct), (Some(200), Some(10)));
        let back = format!("{:?}", options.profile(Profile::Millpond));
        assert_eq!(back, format!("{:?}", Options::new()));
    }

    #[test]
    fn a_pool_of_a_gibibyte_has_eight_instances_where_the_server_did_that() {
        let instances = |profile, size| Options::new().profile(profile).buffer_pool_size(size).instances();
        assert_eq!(instances(Profile::Mysql56, ByteSize::gib(1)), 8);
        assert_eq!(instances(Profile::Mysql56, ByteSize::mib(1_023)), 1);
        assert_eq!(instances(Profile::Mysql55, ByteSize::gib(1)), 1);
        let given =
            Options::new().profile(Profile::Mysql80).buffer_pool_size(ByteSize::gib(1)).buffer_pool_instances(2);
        assert_eq!(given.instances(), 2);
    }
}
