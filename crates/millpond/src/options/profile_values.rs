//! The values that each profile gives to options. `docs/classic.md` has the source of each value.

use std::time::Duration;

use crate::options::page_store::PageStoreKind;
use crate::options::profile::Profile;
use crate::options::{ClassicOptions, Options};
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::options::{DirtyTracking, EmptyFreeListAlgorithm, PageReplacement};
use crate::redo::log_spin::LogSpin;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;

/// Sets an option back to its default.
type Reset = fn(&mut ClassicOptions);

impl Options {
    /// These options without those values of the profile that have no effect with the other options. An option without
    /// effect that the caller has set stays: it is reported as a mistake.
    pub(crate) fn settled(&self) -> Options {
        let mut settled = self.clone();
        let has = &self.classic;
        if has.profile == Profile::Millpond {
            return settled;
        }
        let is_envelope = has.adaptive_flushing_method == AdaptiveFlushingMethod::Envelope;
        let is_in_place = self.page_store == Some(PageStoreKind::InPlace);
        // The servers lower the low-water mark to `max_dirty_pages_pct`.
        let is_below = has.max_dirty_pages_pct_lwm <= has.max_dirty_pages_pct;
        let effects: [(&str, bool, Reset); 11] = [
            ("doublewrite", is_in_place, |of| of.doublewrite = None),
            ("flush_neighbors", is_in_place && !is_envelope, |of| of.flush_neighbors = FlushNeighbors::None),
            ("io_capacity", !is_envelope, |of| of.io_capacity = None),
            ("max_dirty_pages_pct_lwm", is_below, |of| of.max_dirty_pages_pct_lwm = of.max_dirty_pages_pct),
            ("max_dirty_pages_pct_lwm", !is_envelope, |of| of.max_dirty_pages_pct_lwm = None),
            ("max_dirty_pages_pct", !is_envelope, |of| of.max_dirty_pages_pct = None),
            ("cleaner_lsn_age_factor", !is_envelope, |of| of.cleaner_lsn_age_factor = None),
            ("page_cleaners", !is_envelope, |of| of.page_cleaners = None),
            ("old_blocks_time", self.replacement() != PageReplacement::S3Fifo, |of| of.old_blocks_time = None),
            ("log_recent_closed", self.tracking() != DirtyTracking::Scan, |of| {
                of.log_recent_closed = LogRecentClosed::None;
            }),
            ("log_spin", has.log_writer_threads, |of| of.log_spin = None),
        ];
        for (name, has_effect, reset) in effects {
            if !has_effect && !has.set_by_caller.contains(&name) {
                reset(&mut settled.classic);
            }
        }
        settled
    }
}

impl ClassicOptions {
    /// The defaults of a server version.
    pub(crate) fn of_profile(profile: Profile) -> Self {
        // Common to all versions of InnoDB; `page_replacement` follows from the other options.
        let innodb = ClassicOptions::new()
            .doublewrite(Doublewrite::On)
            .dirty_tracking(DirtyTracking::FlushList)
            .empty_free_list_algorithm(EmptyFreeListAlgorithm::Legacy)
            .adaptive_flushing_method(AdaptiveFlushingMethod::Adaptive)
            .io_capacity(200);
        let of_8_0 = |options: ClassicOptions| {
            options
                .max_dirty_pages_pct(90)
                .max_dirty_pages_pct_lwm(10)
                .flush_neighbors(FlushNeighbors::None)
                .log_writer_threads(true)
                .log_spin(LogSpin::Affinity)
                .log_recent_closed(LogRecentClosed::Poll)
        };
        let before_8_0 = |options: ClassicOptions| options.max_dirty_pages_pct(75).flush_neighbors(FlushNeighbors::Seq);
        let of_percona = |options: ClassicOptions| options.cleaner_lsn_age_factor(CleanerLsnAgeFactor::HighCheckpoint);
        let classic = match profile {
            Profile::Millpond => ClassicOptions::new(),
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
        ClassicOptions { profile, set_by_caller: Vec::new(), ..classic }
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::options::durability::Durability;
    use crate::options::table::OptionInfo;
    use crate::options::value::Value;

    /// Threads that share the pool's instances.
    fn cleaners_of(options: &Options) -> Option<usize> {
        (options.classic.adaptive_flushing_method == AdaptiveFlushingMethod::Adaptive).then(|| options.cleaners())
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
        let options = Options::new().classic(|of| of.io_capacity(4_000)).profile(Profile::Mysql56);
        let options = options.classic(|of| of.max_dirty_pages_pct(10));
        assert_eq!((options.classic.io_capacity, options.classic.max_dirty_pages_pct), (Some(200), Some(10)));
        let back = format!("{:?}", options.profile(Profile::Millpond));
        assert_eq!(back, format!("{:?}", Options::new()));
    }

    #[test]
    fn pool_of_a_gibibyte_has_eight_instances_as_in_the_server() {
        let instances = |profile, size| Options::new().profile(profile).buffer_pool_size(size).instances();
        assert_eq!(instances(Profile::Mysql56, ByteSize::gib(1)), 8);
        assert_eq!(instances(Profile::Mysql56, ByteSize::mib(1_023)), 1);
        assert_eq!(instances(Profile::Mysql55, ByteSize::gib(1)), 1);
        let given = Options::new().profile(Profile::Mysql80).buffer_pool_size(ByteSize::gib(1));
        let given = given.classic(|classic| classic.buffer_pool_instances(2));
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
            "redo_capacity" | "redo_capacity_min" | "log_recent_closed_size" => "64MiB",
            "recovery_time_target"
            | "max_snapshot_age"
            | "idle_transaction_timeout"
            | "stall_threshold"
            | "old_blocks_time" => "3s",
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
        let of = |profile: Profile, change: fn(ClassicOptions) -> ClassicOptions| {
            Options::new().profile(profile).classic(change)
        };
        fn envelope(classic: ClassicOptions) -> ClassicOptions {
            classic.adaptive_flushing_method(AdaptiveFlushingMethod::Envelope)
        }
        let settled = of(Profile::Mysql80, envelope).settled();
        let classic = &settled.classic;
        assert_eq!((classic.io_capacity, classic.max_dirty_pages_pct), (None, None));
        assert_eq!((classic.max_dirty_pages_pct_lwm, classic.cleaner_lsn_age_factor), (None, None));
        assert_eq!(classic.log_recent_closed, LogRecentClosed::Poll, "the profile's flush lists stay");
        let one_mistake = of(Profile::Mysql80, |classic| envelope(classic.max_dirty_pages_pct(5)));
        assert_eq!(one_mistake.settled().classic.max_dirty_pages_pct_lwm, None, "the caller did not set it");
        let cleaner = of(Profile::Mysql80, |classic| classic.max_dirty_pages_pct(5));
        assert_eq!(cleaner.settled().classic.max_dirty_pages_pct_lwm, Some(5));
        let is_valid = |options: Options| options.validate(16384, PageStoreKind::InPlace).is_ok();
        assert!(!is_valid(cleaner.classic(|classic| classic.max_dirty_pages_pct_lwm(10))));
        assert!(!is_valid(of(Profile::Mysql80, |classic| envelope(classic.io_capacity(200)))));
        let scanned = settled.classic(|classic| classic.dirty_tracking(DirtyTracking::Scan)).settled();
        assert_eq!(scanned.classic.log_recent_closed, LogRecentClosed::None);
        let copied = Options::new().profile(Profile::Mysql56).page_store(PageStoreKind::CopyOnWrite).settled();
        assert_eq!((copied.classic.doublewrite, copied.classic.flush_neighbors), (None, FlushNeighbors::None));
        let handed = of(Profile::Percona57, |of| of.empty_free_list_algorithm(EmptyFreeListAlgorithm::Handoff));
        let handed = handed.buffer_pool_size(ByteSize::gib(1));
        assert_eq!(handed.instances(), 1);
        assert!(is_valid(handed.clone()), "one line for free frames");
        assert!(!is_valid(handed.classic(|classic| classic.buffer_pool_instances(2))));
    }

    /// The values in force with a profile, worded like a row of `docs/classic.md`; `–`: not applicable.
    fn told(row: &str, profile: Profile) -> String {
        let options = Options::new().profile(profile);
        let of_pool = |bytes| options.clone().buffer_pool_size(ByteSize::b(bytes)).instances();
        let text = |options: &Options, name: &str| OptionInfo::find(name).expect(name).get(options).expect(name);
        let (settings, freeing, log) = (options.settings(), options.freeing(), options.log_policies());
        let none = || "–".to_owned();
        match row {
            "page_replacement" => options.replacement().text(),
            "dirty_tracking" => options.tracking().text(),
            "max_dirty_pages_pct, max_dirty_pages_pct_lwm" => match cleaners_of(&options) {
                None => settings.max_dirty_pages_pct.to_string(),
                Some(_) => format!("{}, {}", settings.max_dirty_pages_pct, settings.max_dirty_pages_pct_lwm),
            },
            "cleaner_lsn_age_factor" => {
                cleaners_of(&options).map_or_else(none, |_| settings.cleaner_lsn_age_factor.text())
            }
            "old_blocks_time" => Duration::from_nanos(freeing.old_blocks_ns).text(),
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
                let cleaners = |instances| {
                    cleaners_of(&options.clone().classic(|classic| classic.buffer_pool_instances(instances)))
                };
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
                format!("{}, {}, {}", spin.how.text(), spin.cpu_abs_lwm, spin.cpu_pct_hwm)
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
        let set = Options::new().durability(Durability::None).classic(|of| of.flush_log_at_commit(0));
        let set = set.profile(Profile::Mysql56);
        assert_eq!(set.commit_durability(), Durability::Commit);
    }
}
