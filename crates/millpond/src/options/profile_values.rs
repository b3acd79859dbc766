//! The values that each profile gives to options. `docs/classic.md` has the source of each value.

use std::time::Duration;

use crate::options::profile::Profile;
use crate::options::{Options, PageStoreKind};
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
use crate::pool::dirty::DirtyTracking;
use crate::pool::legacy::EmptyFreeListAlgorithm;
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::replacement::PageReplacement;
use crate::redo::log_spin::LogSpin;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;

/// Options of a profile that have no effect with some values of other options.
pub(crate) const MAY_BE_WITHOUT_USE: [&str; 10] = [
    "cleaner_lsn_age_factor",
    "doublewrite",
    "flush_neighbors",
    "io_capacity",
    "max_dirty_pages_pct",
    "max_dirty_pages_pct_lwm",
    "old_blocks_time",
    "page_cleaners",
    "log_recent_closed",
    "log_spin",
];

impl Options {
    /// Sets the default policies of a server version: page store, doublewrite, free frames, replacement, flushing, the
    /// log, and the durability of commits. Default: [`Profile::Millpond`].
    ///
    /// A profile overwrites options that were set before. Options that are set afterwards count; values of the profile
    /// that have no effect with them are dropped. Sizes of pool and log, and the use of the page cache, depend on the
    /// machine: a profile does not set them.
    pub fn profile(self, profile: Profile) -> Self {
        let new = Options::new();
        let plain = Options {
            profile,
            page_store: new.page_store,
            doublewrite: new.doublewrite,
            dirty_tracking: new.dirty_tracking,
            empty_free_list_algorithm: new.empty_free_list_algorithm,
            page_replacement: new.page_replacement,
            old_blocks_time: new.old_blocks_time,
            buffer_pool_instances: new.buffer_pool_instances,
            lru_scan_depth: new.lru_scan_depth,
            free_list_target: new.free_list_target,
            adaptive_flushing_method: new.adaptive_flushing_method,
            page_cleaners: new.page_cleaners,
            io_capacity: new.io_capacity,
            io_capacity_max: new.io_capacity_max,
            max_dirty_pages_pct: new.max_dirty_pages_pct,
            max_dirty_pages_pct_lwm: new.max_dirty_pages_pct_lwm,
            cleaner_lsn_age_factor: new.cleaner_lsn_age_factor,
            flush_neighbors: new.flush_neighbors,
            log_recent_closed: new.log_recent_closed,
            log_recent_closed_size: new.log_recent_closed_size,
            log_writer_threads: new.log_writer_threads,
            log_spin: new.log_spin,
            log_spin_cpu_abs_lwm: new.log_spin_cpu_abs_lwm,
            log_spin_cpu_pct_hwm: new.log_spin_cpu_pct_hwm,
            durability: new.durability,
            flush_log_at_commit: new.flush_log_at_commit,
            filled: Vec::new(),
            ..self
        };
        if profile == Profile::Millpond {
            return plain;
        }
        // Common to all versions of InnoDB; `page_replacement` follows from the other options.
        let innodb = plain
            .page_store(PageStoreKind::InPlace)
            .doublewrite(Doublewrite::On)
            .dirty_tracking(DirtyTracking::FlushList)
            .empty_free_list_algorithm(EmptyFreeListAlgorithm::Legacy)
            .adaptive_flushing_method(AdaptiveFlushingMethod::Adaptive)
            .io_capacity(200);
        let of_8_0 = |options: Options| {
            options
                .max_dirty_pages_pct(90)
                .max_dirty_pages_pct_lwm(10)
                .flush_neighbors(FlushNeighbors::None)
                .log_writer_threads(true)
                .log_spin(LogSpin::Affinity)
                .log_recent_closed(LogRecentClosed::Poll)
        };
        let before_8_0 = |options: Options| options.max_dirty_pages_pct(75).flush_neighbors(FlushNeighbors::Seq);
        let of_percona = |options: Options| options.cleaner_lsn_age_factor(CleanerLsnAgeFactor::HighCheckpoint);
        let mut filled = match profile {
            Profile::Millpond => innodb,
            Profile::Mysql55 => before_8_0(innodb)
                .adaptive_flushing_method(AdaptiveFlushingMethod::SyncOnly)
                .flush_neighbors(FlushNeighbors::Area)
                .old_blocks_time(Duration::ZERO),
            Profile::Mysql56 => before_8_0(innodb).page_cleaners(1),
            // Percona Server had `backoff` by default up to 5.7, and has it as an option in 8.0.
            Profile::Mysql80 => of_8_0(innodb),
            Profile::Percona80 => of_percona(of_8_0(innodb)),
            Profile::Percona57 => {
                of_percona(before_8_0(innodb)).empty_free_list_algorithm(EmptyFreeListAlgorithm::Backoff)
            }
        };
        filled.filled = MAY_BE_WITHOUT_USE.to_vec();
        filled
    }

    /// Records that the caller sets the option `name`.
    pub(crate) fn given(&mut self, name: &str) {
        self.filled.retain(|filled| *filled != name);
    }

    /// These options without those values of the profile that have no effect with the other options. An option without
    /// effect that the caller has set stays: it is reported as a mistake.
    pub(crate) fn settled(&self) -> Options {
        let mut options = self.clone();
        let method = options.adaptive_flushing_method;
        let is_in_place = options.page_store == Some(PageStoreKind::InPlace);
        let is_envelope = method == AdaptiveFlushingMethod::Envelope;
        let is_without_use = |name: &str| match name {
            "doublewrite" => !is_in_place,
            "flush_neighbors" => is_envelope || !is_in_place,
            "cleaner_lsn_age_factor" | "io_capacity" | "max_dirty_pages_pct" | "page_cleaners" => is_envelope,
            // The servers then lower it to `max_dirty_pages_pct`.
            "max_dirty_pages_pct_lwm" => is_envelope || options.max_dirty_pages_pct_lwm > options.max_dirty_pages_pct,
            "old_blocks_time" => options.replacement() == PageReplacement::S3Fifo,
            "log_recent_closed" => options.tracking() == DirtyTracking::Scan,
            "log_spin" => !options.log_writer_threads,
            _ => false,
        };
        let without_use: Vec<_> = self.filled.iter().copied().filter(|name| is_without_use(name)).collect();
        for name in without_use {
            match name {
                "doublewrite" => options.doublewrite = None,
                "flush_neighbors" => options.flush_neighbors = FlushNeighbors::None,
                "io_capacity" => options.io_capacity = None,
                "max_dirty_pages_pct" => options.max_dirty_pages_pct = None,
                "max_dirty_pages_pct_lwm" => {
                    options.max_dirty_pages_pct_lwm = options.max_dirty_pages_pct.filter(|_| !is_envelope);
                }
                "cleaner_lsn_age_factor" => options.cleaner_lsn_age_factor = None,
                "old_blocks_time" => options.old_blocks_time = None,
                "page_cleaners" => options.page_cleaners = None,
                "log_recent_closed" => options.log_recent_closed = LogRecentClosed::None,
                _ => options.log_spin = None,
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::options::durability::Durability;
    use crate::options::table::OptionInfo;

    /// Threads that share the pool's instances.
    fn cleaners_of(options: &Options) -> Option<usize> {
        (options.adaptive_flushing_method == AdaptiveFlushingMethod::Adaptive).then(|| options.cleaners())
    }

    #[test]
    fn each_goes_together_also_with_a_large_pool() {
        for profile in Profile::ALL {
            for size in [ByteSize::mib(128), ByteSize::gib(2)] {
                let options = Options::new().profile(profile).buffer_pool_size(size);
                options
                    .validate(16384, PageStoreKind::InPlace)
                    .unwrap_or_else(|error| unreachable!("{profile:?}: {error}"));
            }
        }
    }

    #[test]
    fn options_set_after_a_profile_count_and_those_before_do_not() {
        let options = Options::new().io_capacity(4_000).profile(Profile::Mysql56).max_dirty_pages_pct(10);
        assert_eq!((options.io_capacity, options.max_dirty_pages_pct), (Some(200), Some(10)));
        let back = format!("{:?}", options.profile(Profile::Millpond));
        assert_eq!(back, format!("{:?}", Options::new()));
    }

    #[test]
    fn pool_of_a_gibibyte_has_eight_instances_as_in_the_server() {
        let instances = |profile, size| Options::new().profile(profile).buffer_pool_size(size).instances();
        assert_eq!(instances(Profile::Mysql56, ByteSize::gib(1)), 8);
        assert_eq!(instances(Profile::Mysql56, ByteSize::mib(1_023)), 1);
        assert_eq!(instances(Profile::Mysql55, ByteSize::gib(1)), 1);
        let given =
            Options::new().profile(Profile::Mysql80).buffer_pool_size(ByteSize::gib(1)).buffer_pool_instances(2);
        assert_eq!(given.instances(), 2);
    }

    fn with(options: Options, name: &str, value: &str) -> Options {
        OptionInfo::find(name).expect(name).set(options, value).expect(value)
    }

    /// With a profile, a caller sets one more option. The profile's values give way, except its three central policies:
    /// how free frames are found, how pages are chosen for flushing, and which threads write the log.
    #[test]
    fn each_pair_of_values_fits_or_is_refused_with_a_reason() {
        let is_mistake = |profile: Profile, name: &str, value: &str| match (name, value) {
            ("page_replacement", "s3_fifo") | ("dirty_tracking", "scan") => true,
            ("page_cleaners", "4") => true,
            ("log_spin" | "log_spin_cpu_abs_lwm" | "log_spin_cpu_pct_hwm" | "log_recent_closed_size", _) => {
                ![Profile::Mysql80, Profile::Percona80].contains(&profile)
            }
            _ => false,
        };
        let mut seen = 0;
        for profile in Profile::ALL.into_iter().filter(|profile| *profile != Profile::Millpond) {
            let plain = format!("{:?}", Options::new().profile(profile));
            for info in OptionInfo::ALL.into_iter().filter(|info| info.name != "profile") {
                let of_group = format!("{:?}", with(Options::new(), info.name, some_of(info.name)).profile(profile));
                // Options that a profile resets are its policies.
                if of_group != plain {
                    continue;
                }
                for value in values_of(info.name, info.range) {
                    let options = with(Options::new().profile(profile), info.name, value);
                    let kind = options.page_store.unwrap_or_default();
                    let found = options.validate(16384, kind);
                    let what = format!("{profile:?} with {}={value}", info.name);
                    assert_eq!(found.is_err(), is_mistake(profile, info.name, value), "{what}: {found:?}");
                    assert!(found.err().is_none_or(|e| e.to_string().contains(info.name)), "{what}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 200, "{seen} tried");
    }

    /// A value that is not the default.
    fn some_of(name: &str) -> &str {
        match name {
            "group_access" => "read",
            "buffer_pool_size" | "buffer_pool_size_max" => "300MiB",
            "redo_capacity" | "log_recent_closed_size" => "64MiB",
            "recovery_time_target" | "stall_threshold" | "old_blocks_time" => "3s",
            "page_size" => "8KiB",
            "page_store" => "in_place",
            "doublewrite" => "detect_only",
            "cached" | "read_only" | "log_writer_threads" => "true",
            "io_engine" => "threads",
            "empty_free_list_algorithm" => "backoff",
            "page_replacement" => "midpoint_lru",
            "adaptive_flushing_method" => "keep_average",
            "flush_neighbors" => "seq",
            "dirty_tracking" => "flush_list",
            "log_recent_closed" => "wake",
            "log_spin" => "never",
            "cleaner_lsn_age_factor" => "high_checkpoint",
            "durability" => "none",
            "flush_log_at_commit" => "1",
            "io_capacity" | "io_capacity_max" | "lru_scan_depth" => "3000",
            "page_cleaners" => "4",
            _ => "2",
        }
    }

    fn values_of<'v>(name: &'v str, range: &'v str) -> Vec<&'v str> {
        match name {
            "durability" => vec!["commit", "written", "background(1s)", "none"],
            "flush_log_at_commit" => vec!["0", "1", "2"],
            "page_cleaners" => vec!["1", "4"],
            _ if range.contains(" to ") => vec![some_of(name)],
            _ => range.split(", ").collect(),
        }
    }

    #[test]
    fn values_of_a_profile_give_way_and_given_ones_do_not() {
        let envelope = |options: Options| options.adaptive_flushing_method(AdaptiveFlushingMethod::Envelope);
        let of = envelope(Options::new().profile(Profile::Mysql80)).settled();
        assert_eq!((of.io_capacity, of.max_dirty_pages_pct), (None, None));
        assert_eq!((of.max_dirty_pages_pct_lwm, of.cleaner_lsn_age_factor), (None, None));
        let one_mistake = envelope(Options::new().profile(Profile::Mysql80).max_dirty_pages_pct(5));
        assert_eq!(one_mistake.settled().max_dirty_pages_pct_lwm, None, "the caller did not set it");
        let cleaner = Options::new().profile(Profile::Mysql80).max_dirty_pages_pct(5);
        assert_eq!(cleaner.settled().max_dirty_pages_pct_lwm, Some(5));
        assert!(cleaner.max_dirty_pages_pct_lwm(10).validate(16384, PageStoreKind::InPlace).is_err());
        assert_eq!(of.log_recent_closed, LogRecentClosed::Poll, "the profile's flush lists stay");
        assert!(
            envelope(Options::new().profile(Profile::Mysql80).io_capacity(200))
                .validate(16384, PageStoreKind::InPlace)
                .is_err()
        );
        let scanned = of.clone().dirty_tracking(DirtyTracking::Scan).settled();
        assert_eq!(scanned.log_recent_closed, LogRecentClosed::None);
        let copied = Options::new().profile(Profile::Mysql56).page_store(PageStoreKind::CopyOnWrite).settled();
        assert_eq!((copied.doublewrite, copied.flush_neighbors), (None, FlushNeighbors::None));
        let handed = Options::new().profile(Profile::Percona57).buffer_pool_size(ByteSize::gib(1));
        let handed = handed.empty_free_list_algorithm(EmptyFreeListAlgorithm::Handoff);
        assert_eq!(handed.instances(), 1);
        handed.validate(16384, PageStoreKind::InPlace).expect("one line for free frames");
        assert!(handed.buffer_pool_instances(2).validate(16384, PageStoreKind::InPlace).is_err());
    }

    /// The values in force with a profile, worded like a row of `docs/classic.md`; `–`: not applicable.
    fn told(row: &str, profile: Profile) -> String {
        let options = Options::new().profile(profile);
        let of_pool = |bytes| options.clone().buffer_pool_size(ByteSize::b(bytes)).instances();
        let text = |options: &Options, name: &str| OptionInfo::find(name).expect(name).get(options).expect(name);
        let (settings, freeing, log) = (options.settings(), options.freeing(), options.log_policies());
        let none = || "–".to_owned();
        match row {
            "page_replacement" => text(&options.clone().page_replacement(options.replacement()), row),
            "dirty_tracking" => text(&options.clone().dirty_tracking(options.tracking()), row),
            "max_dirty_pages_pct, max_dirty_pages_pct_lwm" => match cleaners_of(&options) {
                None => settings.max_dirty_pages_pct.to_string(),
                Some(_) => format!("{}, {}", settings.max_dirty_pages_pct, settings.max_dirty_pages_pct_lwm),
            },
            "cleaner_lsn_age_factor" => cleaners_of(&options).map_or_else(none, |_| {
                text(&options.clone().cleaner_lsn_age_factor(settings.cleaner_lsn_age_factor), row)
            }),
            "old_blocks_time" => {
                text(&options.clone().old_blocks_time(Duration::from_nanos(freeing.old_blocks_ns)), row)
            }
            "lru_scan_depth" => freeing.free_list_target.map_or_else(none, |target| {
                assert_eq!(target, freeing.lru_scan_depth, "{profile:?}: the servers have one option for both");
                target.to_string()
            }),
            "buffer_pool_instances" => match [1 << 20, (1 << 30) - 1, 1 << 30, 1 << 34].map(of_pool) {
                [small, below, from, large] if small == large => {
                    assert_eq!([below, from], [small; 2], "{profile:?}");
                    small.to_string()
                }
                [small, below, from, large] => {
                    assert_eq!([below, from], [small, large], "{profile:?}");
                    format!("{small}, {large} from 1 GiB on")
                }
            },
            "page_cleaners" => {
                let cleaners = |instances| cleaners_of(&options.clone().buffer_pool_instances(instances));
                match [1, 2, 64].map(cleaners) {
                    [None, None, None] => none(),
                    [Some(1), Some(1), Some(1)] => "1".to_owned(),
                    [Some(1), Some(2), Some(most)] => format!("{most}, at most an instance each"),
                    other => unreachable!("{profile:?}: {other:?}"),
                }
            }
            "io_capacity, io_capacity_max" => match cleaners_of(&options) {
                None => settings.io_capacity.to_string(),
                Some(_) => format!("{}, {}", settings.io_capacity, settings.io_capacity_max),
            },
            "log_spin and its marks" => log.pipeline.map_or_else(none, |pipeline| {
                let spin = pipeline.spin;
                let how = text(&options.clone().log_spin(spin.how), "log_spin");
                format!("{how}, {}, {}", spin.cpu_abs_lwm, spin.cpu_pct_hwm)
            }),
            "log_recent_closed, its size" => {
                let how = text(&options, "log_recent_closed");
                log.recent_closed.map_or(how.clone(), |(_, bytes)| {
                    assert!(bytes.is_multiple_of(1 << 20), "{profile:?}: {bytes}");
                    format!("{how}, {} MiB", bytes >> 20)
                })
            }
            "flush_log_at_commit" => match options.commit_durability() {
                Durability::Commit => "1".to_owned(),
                other => format!("{other:?}"),
            },
            _ => text(&options, row),
        }
    }

    /// Compares each cell but the last one, which names the source.
    #[test]
    fn the_page_tells_what_each_server_had_by_default() {
        let page = include_str!("../../../../docs/classic.md");
        let section = page.split_once("\n## What servers had by default\n").expect("there").1;
        let section = section.split("\n## ").next().expect("a part");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let mut rows = rows.map(|row| row.split(" | ").map(|cell| cell.replace('`', "")).collect::<Vec<_>>());
        let head = rows.next().expect("a head");
        let (option, from) = (head.first().expect("a cell"), head.last().expect("a cell"));
        assert_eq!((option.as_str(), from.as_str()), ("option", "from"));
        let profile = OptionInfo::find("profile").expect("an option");
        let profiles = Profile::ALL.into_iter().filter(|profile| *profile != Profile::Millpond);
        let names = profiles.clone().map(|of| profile.get(&Options::new().profile(of)).expect("a name"));
        assert_eq!(head[1..head.len() - 1], names.collect::<Vec<_>>());
        let mut options = Vec::new();
        for row in rows {
            let (option, cells) = (&row[0], &row[1..row.len() - 1]);
            let in_force: Vec<String> = profiles.clone().map(|profile| told(option, profile)).collect();
            assert_eq!(cells, in_force, "{option}");
            options.push(option.clone());
        }
        // Each option that a profile sets has a row.
        let has_row = |name: &str| options.iter().any(|row| row.split([',', ' ']).any(|word| word == name));
        let large = || Options::new().buffer_pool_size(ByteSize::gib(1));
        for info in OptionInfo::ALL.into_iter().filter(|info| info.name != "profile") {
            let is_set = profiles.clone().any(|profile| info.get(&large()) != info.get(&large().profile(profile)));
            assert!(!is_set || has_row(info.name), "no row of {}: {options:?}", info.name);
        }
        assert_eq!(options.len(), 18, "{options:?}");
    }

    #[test]
    fn how_safe_commits_are_is_set_back_too() {
        let set = Options::new().durability(Durability::None).flush_log_at_commit(0).profile(Profile::Mysql56);
        assert_eq!(set.commit_durability(), Durability::Commit);
    }
}
