//! Options that change while the database is in use: the effects, the refusals, and that nothing is lost or left
//! waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::classic::{AdaptiveFlushingMethod, DirtyTracking, EmptyFreeListAlgorithm, LogRecentClosed, Profile};
use millpond::metrics::Stats;
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, OptionInfo, Options, Tree, WriteBatch};
use rand::{RngExt, SeedableRng};

use crate::classic_flushing::cleaned_in;
use crate::classic_log::{SLOW_SYNCS, inserts, pipeline};
use crate::classic_pool::{ROWS, disk, options};
use crate::crash_matrix::{LOOSE, Oracle, Recorded, check_matrix, key_of, make_two_trees, record, stride};
use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{IN_PLACE, SMALL, Shape, TWICE, open};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn set(db: &Db, name: &str, value: &str) {
    db.set_option(name, value).unwrap_or_else(|error| unreachable!("{name}={value}: {error}"));
    // In the listed form.
    let listed = OptionInfo::find(name).expect("an option").get(&db.options()).expect("a value");
    assert_eq!(listed, value, "{name}");
}

#[track_caller]
fn refused(db: &Db, name: &str, value: &str, parts: &[&str]) {
    let before = format!("{:?}", db.options());
    let error = db.set_option(name, value).expect_err("it is refused");
    assert!(matches!(error, Error::InvalidOptions(_)), "{error:?}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "'{part}' in: {text}");
    }
    assert_eq!(format!("{:?}", db.options()), before, "{name}={value}");
}

/// Changes a row, with a new value for each turn: a put of the existing value is no change.
fn put_anew(tree: &Tree, key: &[u8], turn: Option<u8>) {
    tree.put(key, [turn.expect("few turns"); 100]).expect("written");
}

#[test]
fn fixed_unknown_or_unfit_options_are_refused_with_the_way_out() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, SMALL.options());
        refused(&db, "innodb_io_capacity", "200", &["no option 'innodb_io_capacity'", "millpond options"]);
        for info in OptionInfo::ALL.iter().filter(|info| info.changes != "online") {
            let way =
                if info.changes == "creation" { "create another database with" } else { "reopen the database with" };
            refused(&db, info.name, "8KiB", &[&format!("{}=8KiB is refused", info.name), info.changes, way]);
        }
        refused(&db, "stall_threshold", "20", &["stall_threshold=20 is refused", "20ms"]);
        refused(&db, "read_ahead_pages", "65", &["read_ahead_pages=65 is refused", "use 0 to 64"]);
        refused(&db, "recovery_time_target", "1ms", &["recovery_time_target=1ms is refused", "1s to 3600s"]);
        refused(&db, "buffer_pool_size", "1GiB", &["buffer_pool_size is 1GiB", "buffer_pool_size_max"]);
        refused(&db, "redo_capacity", "4KiB", &["redo_capacity is 4KiB"]);
        // The controller measures the capacity, and the other options do not fit this database.
        refused(&db, "io_capacity", "500", &["io_capacity=500 is refused", "envelope", "leave it out"]);
        refused(&db, "flush_neighbors", "area", &["flush_neighbors=area is refused", "copy_on_write"]);
        refused(&db, "log_spin", "affinity", &["log_writer_threads is false"]);
        for way in ["legacy", "backoff"] {
            let sentence = format!("empty_free_list_algorithm={way} is refused");
            refused(&db, "empty_free_list_algorithm", way, &[&sentence, "hand-off", "reopen the database with"]);
        }
        refused(&db, "adaptive_flushing_method", "adaptive", &["page cleaners", "reopen the database with"]);
        refused(&db, "log_recent_closed", "poll", &["window", "reopen the database with log_recent_closed=poll"]);
        db.set_option("empty_free_list_algorithm", "handoff").expect("as it is");
        let other = db.clone();
        db.close().expect("closed");
        assert!(matches!(other.set_option("stall_threshold", "1s"), Err(Error::Closed(_))));
    });
}

/// The documented lines for users that want to see a stall come and go.
#[test]
fn what_the_page_of_the_classic_policies_changes_can_be_changed() {
    let page = include_str!("../../../../docs/classic.md");
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, TWICE.options().profile(Profile::Mysql80).buffer_pool_size(ByteSize::mib(1)));
        let calls = page.lines().filter_map(|line| line.strip_prefix("db.set_option("));
        let words: Vec<[&str; 2]> = calls
            .map(|call| {
                let words: Vec<&str> = call.split('"').collect();
                [words[1], words[3]]
            })
            .collect();
        assert!(words.len() >= 4, "{words:?}");
        words.iter().for_each(|[name, value]| set(&db, name, value));
        db.close().expect("closed");
    });
}

#[test]
fn what_a_server_was_opened_with_changes_within_its_structures() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let options = TWICE.options().profile(Profile::Mysql80).buffer_pool_size(ByteSize::mib(1));
        let db = open(&disk, options.redo_capacity(ByteSize::mib(4)).classic(|of| of.page_cleaners(1)));
        refused(&db, "empty_free_list_algorithm", "handoff", &["legacy", "reopen the database with"]);
        refused(&db, "adaptive_flushing_method", "envelope", &["keeper", "adaptive_flushing_method=envelope"]);
        refused(&db, "log_recent_closed", "none", &["reopen the database with log_recent_closed=none"]);
        refused(&db, "log_recent_closed_size", "8KiB", &["fixed at open"]);
        set(&db, "io_capacity_max", "4000");
        refused(&db, "io_capacity", "4001", &["io_capacity=4001 is refused", "io_capacity_max is 4000: use 4001"]);
        set(&db, "io_capacity", "4000");
        refused(&db, "io_capacity_max", "3999", &["use 4000 to 10000000"]);
        refused(&db, "max_dirty_pages_pct_lwm", "91", &["use 0 to 90"]);
        set(&db, "cleaner_lsn_age_factor", "high_checkpoint");
        // The server's own mark gives way to the user's setting, and stays there.
        let lwm = |db: &Db| OptionInfo::find("max_dirty_pages_pct_lwm").expect("an option").get(&db.options());
        assert_eq!(lwm(&db).as_deref(), Some("10"));
        set(&db, "max_dirty_pages_pct", "5");
        assert_eq!(lwm(&db).as_deref(), Some("5"));
        refused(&db, "old_blocks_time", "3601s", &["0ms to 3600s"]);
        set(&db, "free_list_target", "64");
        set(&db, "log_spin_cpu_pct_hwm", "8");
        // The two options mean the same: the one set last counts.
        set(&db, "flush_log_at_commit", "2");
        set(&db, "durability", "background(20ms)");
        let options = db.options();
        assert_eq!(OptionInfo::find("flush_log_at_commit").expect("an option").get(&options), None);
        set(&db, "flush_log_at_commit", "0");
        let options = db.options();
        assert_eq!(OptionInfo::find("durability").expect("an option").get(&options).as_deref(), Some("commit"));
        // A database may be opened with the options in force.
        db.close().expect("closed");
        open(&disk, options.create(false)).close().expect("closed");
    });
}

#[test]
fn those_with_methods_of_their_own_are_reached_by_name_and_told() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, SMALL.options().buffer_pool_size_max(ByteSize::kib(4 * 80)));
        set(&db, "buffer_pool_size", "320KiB");
        assert_eq!(db.stats().buffer_pool_pages_total, 80);
        db.set_option("redo_capacity", "1MiB").expect("changed");
        assert!(db.stats().log_capacity > 800 << 10, "{:?}", db.stats());
        set(&db, "recovery_time_target", "10s");
        db.set_recovery_time_target(None).expect("changed");
        let target = OptionInfo::find("recovery_time_target").expect("an option");
        assert_eq!(target.get(&db.options()).as_deref(), Some("none"), "told, however it was changed");
        db.close().expect("closed");
    });
}

#[test]
fn durability_counts_from_the_next_commit_on() {
    let disk = SimulatedDisk::with_image(Image::new(), SLOW_SYNCS);
    run(2, || {
        let db = open(&disk, SMALL.options());
        let tree = db.create_tree("t").expect("created");
        let mut turns = 0u8..;
        let mut put_ns = || {
            let began = now_ns();
            put_anew(&tree, b"k", turns.next());
            now_ns() - began
        };
        let is_durable = || db.stats().log_lsn_last_flush == db.stats().log_lsn_current;
        assert!(put_ns() >= 10 * MS && is_durable());
        set(&db, "durability", "background(50ms)");
        assert!(put_ns() < 10 * MS && !is_durable());
        set(&db, "durability", "none");
        sleep_ns(100 * MS);
        assert!(is_durable(), "50 ms later, as was promised when it was written");
        assert!(put_ns() < 10 * MS && !is_durable());
        set(&db, "durability", "commit");
        assert!(put_ns() >= 10 * MS && is_durable());
        db.close().expect("closed");
    });
}

#[test]
fn a_log_with_threads_is_synced_as_commits_want_it_by_then() {
    let disk = SimulatedDisk::with_image(Image::new(), SLOW_SYNCS);
    run(3, || {
        let db = open(&disk, pipeline(SMALL.options()));
        let tree = db.create_tree("t").expect("created");
        // Time of ten commits, and syncs, also those that no commit waited for.
        let ten = |turn| {
            let (mut took, before) = (0, db.stats().log_syncs);
            for row in 0..10u8 {
                let began = now_ns();
                put_anew(&tree, &[row], Some(turn));
                took += now_ns() - began;
                sleep_ns(15 * MS);
            }
            (took / MS, db.stats().log_syncs - before)
        };
        for ((when, few), turn) in
            [("1", false), ("2", true), ("1", false), ("0", true), ("1", false)].into_iter().zip(0..)
        {
            set(&db, "flush_log_at_commit", when);
            sleep_ns(2 * SECOND);
            let (took, syncs) = ten(turn);
            assert_eq!((took < 20, syncs < 3), (few, few), "{when}: {took} ms, {syncs} syncs");
        }
        db.close().expect("closed");
    });
}

/// A commit waits for its sync while later commits are told to wait for none.
#[test]
fn waiter_for_a_sync_gets_it_though_no_other_wants_one() {
    for seed in 0..8 {
        let disk = SimulatedDisk::with_image(Image::new(), SLOW_SYNCS);
        run(seed, || {
            let db = open(&disk, pipeline(SMALL.options()));
            let tree = db.create_tree("t").expect("created");
            let clients: Vec<_> = (0..4u8)
                .map(|client| {
                    let (db, tree) = (db.clone(), tree.clone());
                    let work = move || {
                        for row in 0..20 {
                            let mut batch = WriteBatch::new();
                            batch.put(&tree, [client, row], [1; 50]).durability(Durability::Commit);
                            let began = now_ns();
                            db.write(batch).expect("written");
                            // Its own sync, and one that was under way.
                            assert!(now_ns() - began < 60 * MS, "{} ms", (now_ns() - began) / MS);
                        }
                    };
                    spawn("client", work).expect("a thread")
                })
                .collect();
            for turn in 0..40 {
                set(&db, "durability", ["none", "commit", "written"][turn % 3]);
                sleep_ns(3 * MS);
            }
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
            db.close().expect("closed");
        });
    }
}

#[test]
fn scans_that_begin_later_read_ahead_as_is_set_by_then() {
    let disk = disk();
    run(4, || {
        let db = open(&disk, options(EmptyFreeListAlgorithm::Handoff).create(false));
        let tree = db.open_tree("t").expect("there");
        let read_ahead = || {
            let before = db.stats().buffer_pool_read_ahead;
            assert_eq!(tree.scan(..).count(), ROWS as usize);
            db.stats().buffer_pool_read_ahead - before
        };
        assert_eq!(read_ahead(), 0);
        set(&db, "read_ahead_pages", "16");
        let ahead = read_ahead();
        assert!(ahead > 20, "{ahead}");
        set(&db, "read_ahead_pages", "0");
        assert_eq!(read_ahead(), 0);
        db.close().expect("closed");
    });
}

#[test]
fn new_stall_threshold_counts_for_operations_that_end_later() {
    let disk = SimulatedDisk::with_image(Image::new(), SLOW_SYNCS);
    run(5, || {
        let db = open(&disk, SMALL.options());
        let tree = db.create_tree("t").expect("created");
        let stalls = |turn| {
            let before = db.stats().stalls;
            (0..10u8).for_each(|row| put_anew(&tree, &[row], Some(turn)));
            db.stats().stalls - before
        };
        assert_eq!(stalls(0), 0);
        set(&db, "stall_threshold", "5ms");
        assert_eq!(stalls(1), 10, "each waits for a sync of 10 ms");
        set(&db, "stall_threshold", "100ms");
        assert_eq!(stalls(2), 0);
        db.close().expect("closed");
    });
}

#[test]
fn the_closer_of_the_window_is_woken_from_then_on() {
    let (polled, _, _) = inserts(LogRecentClosed::Poll, |_| ());
    for way in ["wake", "wake_if_unset"] {
        let (woken, _, _) = inserts(LogRecentClosed::Poll, |db| set(db, "log_recent_closed", way));
        assert!(woken > 3 * polled / 2, "{woken} rows with {way}, {polled} without");
    }
    let (back, _, _) = inserts(LogRecentClosed::Wake, |db| set(db, "log_recent_closed", "poll"));
    assert!(back < 3 * polled / 2, "{back} rows once nothing wakes it any more, {polled} where nothing ever did");
}

/// On real files, since no thread spins in virtual time.
#[test]
fn waiter_for_the_log_spins_as_is_set_by_then() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = pipeline(Options::new()).cached(true).buffer_pool_size(ByteSize::mib(4));
    let options = options.redo_capacity(ByteSize::mib(4));
    let options = options.classic(|classic| classic.log_spin_cpu_abs_lwm(0).log_spin_cpu_pct_hwm(0));
    let db = Db::open(dir.path(), options).expect("opened");
    let tree = db.create_tree("t").expect("created");
    let mut turns = (0..=u8::MAX).cycle();
    let mut spins_of_100 = || {
        let before = db.stats().log_spins;
        let turn = turns.next();
        (0..100u8).for_each(|row| put_anew(&tree, &[row], turn));
        db.stats().log_spins - before
    };
    // Until the use of CPU has been measured.
    while db.stats().log_spin_cpus == 0 {
        assert_eq!(spins_of_100(), 0);
    }
    let settings = [
        ("log_spin_cpu_pct_hwm", "0", "100"),
        ("log_spin", "never", "affinity"),
        ("log_spin_cpu_abs_lwm", "100000", "0"),
    ];
    for (name, never, spinning) in settings {
        set(&db, name, never);
        assert!((0..10_000).any(|_| spins_of_100() == 0), "{name}={never}");
        set(&db, name, spinning);
        assert!((0..10_000).any(|_| spins_of_100() > 0), "{name}={spinning}");
    }
    db.close().expect("closed");
}

/// A pool with all rows of a tree, on a device without a limit, and a client that changes a row each millisecond until
/// told to end. Runs `look` meanwhile.
fn while_rows_change(shape: Shape, options: impl FnOnce(Options) -> Options, look: impl FnOnce(&Db)) {
    const MANY: u32 = 4_000;
    let image =
        scattered_rows(MANY, shape.options().buffer_pool_size(ByteSize::mib(4)).redo_capacity(ByteSize::mib(32)));
    let disk = SimulatedDisk::with_image(image, ServiceTime { read_ns: 20_000, write_ns: 20_000, sync_ns: 100_000 });
    run(6, || {
        let db = open(&disk, options(shape.reopen_options().redo_capacity(ByteSize::mib(32))));
        let tree = db.open_tree("t").expect("there");
        assert_eq!(tree.scan(..).count(), MANY as usize);
        let has_ended = Arc::new(AtomicBool::new(false));
        let client = {
            let (db, tree, has_ended) = (db.clone(), tree.clone(), Arc::clone(&has_ended));
            let work = move || {
                for turn in 1.. {
                    if has_ended.load(Ordering::SeqCst) {
                        break;
                    }
                    let value = [u8::try_from(turn / MANY % 250 + 1).expect("small"); 900];
                    put_loosely(&db, &tree, &scattered(turn * 61 % MANY), &value);
                    sleep_ns(MS);
                }
            };
            spawn("client", work).expect("a thread")
        };
        sleep_ns(2 * SECOND);
        look(&db);
        has_ended.store(true, Ordering::SeqCst);
        client.join().expect("no panic");
        db.close().expect("closed");
    });
}

/// Growth of a counter in this many seconds, from the next second on.
fn grows(db: &Db, seconds: u64, of: fn(&Stats) -> u64) -> u64 {
    // Skips the pass that is under way, or about to be.
    sleep_ns(SECOND);
    let before = of(&db.stats());
    sleep_ns(seconds * SECOND);
    of(&db.stats()) - before
}

fn by_cleaners(stats: &Stats) -> u64 {
    stats.buffer_flush_adaptive_total_pages
}

const LAZY: Shape = Shape { flushing: AdaptiveFlushingMethod::SyncOnly, frames: 4_000, ..IN_PLACE };

#[test]
fn a_pass_writes_as_many_pages_as_io_capacity_says_by_then() {
    let dirty = |options: Options| options.classic(|of| of.max_dirty_pages_pct(0).io_capacity(100));
    while_rows_change(LAZY, dirty, |db| {
        let written = grows(db, 2, by_cleaners);
        assert!((150..=250).contains(&written), "{written} pages in two passes of 100");
        set(db, "io_capacity", "300");
        let written = grows(db, 2, by_cleaners);
        assert!((500..=700).contains(&written), "{written} pages in two passes of 300");
    });
}

#[test]
fn new_limit_of_dirty_pages_has_the_surplus_written() {
    while_rows_change(
        LAZY,
        |options| options.classic(|of| of.max_dirty_pages_pct(99)),
        |db| {
            assert_eq!(grows(db, 3, by_cleaners), 0);
            set(db, "max_dirty_pages_pct", "0");
            assert!(grows(db, 3, by_cleaners) > 100);
            set(db, "max_dirty_pages_pct", "99");
            assert_eq!(grows(db, 3, by_cleaners), 0);
        },
    );
}

#[test]
fn the_method_of_flushing_is_another_one_from_the_next_pass_on() {
    while_rows_change(
        LAZY,
        |options| options.classic(|of| of.max_dirty_pages_pct(99)),
        |db| {
            assert_eq!(grows(db, 2, by_cleaners), 0, "lazy");
            set(db, "adaptive_flushing_method", "keep_average");
            assert!(grows(db, 2, by_cleaners) > 20, "with the log");
            set(db, "adaptive_flushing_method", "sync_only");
            assert_eq!(grows(db, 2, by_cleaners), 0, "lazy again");
            set(db, "adaptive_flushing_method", "adaptive");
            assert!(grows(db, 8, by_cleaners) > 20, "with the log's age");
        },
    );
}

#[test]
fn page_cleaners_come_to_help_with_the_method_that_has_several() {
    let alone = cleaned_in(AdaptiveFlushingMethod::SyncOnly, None, |_| ());
    let four = cleaned_in(AdaptiveFlushingMethod::Adaptive, None, |_| ());
    let came = cleaned_in(AdaptiveFlushingMethod::SyncOnly, None, |db| set(db, "adaptive_flushing_method", "adaptive"));
    let went =
        cleaned_in(AdaptiveFlushingMethod::Adaptive, None, |db| set(db, "adaptive_flushing_method", "sync_only"));
    assert!(came * 2 < alone && came < four * 2, "{came} ms, {four} with four from the begin on, {alone} with one");
    assert!(went > four * 2 && went * 2 > alone, "{went} ms, {four} with four, {alone} with one from the begin on");
}

#[test]
fn pass_with_a_full_log_writes_by_the_new_io_capacity_max() {
    let shape = Shape { flushing: AdaptiveFlushingMethod::Adaptive, ..LAZY };
    while_rows_change(
        shape,
        |options| options.classic(|of| of.io_capacity(100).io_capacity_max(100)),
        |db| {
            // Lets the log run full.
            sleep_ns(10 * SECOND);
            let few = grows(db, 2, by_cleaners);
            assert!(few <= 200, "{few} pages in two passes of 100 at most");
            set(db, "io_capacity_max", "10000");
            let many = grows(db, 2, by_cleaners);
            assert!(many > 2 * few && many > 250, "{many} pages, and {few} before");
        },
    );
}

#[test]
fn neighbors_leave_with_a_page_as_is_set_by_then() {
    let shape = Shape { flushing: AdaptiveFlushingMethod::KeepAverage, ..LAZY };
    let beside = |stats: &Stats| stats.buffer_flush_neighbor_total_pages;
    while_rows_change(
        shape,
        |options| options,
        |db| {
            assert_eq!(grows(db, 2, beside), 0);
            for neighbors in ["area", "none", "seq", "none"] {
                set(db, "flush_neighbors", neighbors);
                let grown = grows(db, 2, beside);
                assert_eq!(grown > 0, neighbors != "none", "{neighbors}: {grown}");
            }
        },
    );
    run(1, || {
        let db = open(&SimulatedDisk::new(), Shape { flushing: shape.flushing, ..SMALL }.options());
        refused(&db, "flush_neighbors", "area", &["flush_neighbors=area is refused", "copy_on_write"]);
    });
}

/// Reads rows, most of which are not in memory.
fn read_some(tree: &Tree, from: u32, count: u32) {
    for row in from..from + count {
        assert!(tree.get(scattered(row % ROWS)).expect("read").is_some());
    }
}

#[test]
fn page_cleaners_look_at_and_keep_free_as_many_as_set_by_then() {
    let disk = disk();
    run(7, || {
        let options = options(EmptyFreeListAlgorithm::Legacy).create(false).classic(|classic| {
            classic.free_list_target(300).adaptive_flushing_method(AdaptiveFlushingMethod::Adaptive)
        });
        let db = open(&disk, options);
        let tree = db.open_tree("t").expect("there");
        let free_after = |from, seconds| {
            read_some(&tree, from, 2_000);
            sleep_ns(seconds * SECOND);
            db.stats().buffer_pool_pages_free
        };
        let free = free_after(0, 1);
        assert!(free <= 200, "{free} of two passes at most, of 100 pages each");
        set(&db, "lru_scan_depth", "1000");
        assert_eq!(free_after(2_000, 1), 300);
        set(&db, "free_list_target", "200");
        assert_eq!(free_after(4_000, 2), 200);
        db.close().expect("closed");
    });
}

/// Readers sleep until frames are free, longer and longer after quiet times. While they sleep the LRU managers go, and
/// each reader searches for itself. Then the managers come back.
#[test]
fn sleeper_for_a_frame_helps_itself_when_lru_managers_go() {
    let disk = disk();
    for seed in 8..16 {
        run(seed, || {
            let instances = 1 + usize::try_from(seed).expect("small") % 3;
            let options = options(EmptyFreeListAlgorithm::Backoff).create(false);
            let db = open(&disk, options.classic(|classic| classic.buffer_pool_instances(instances)));
            let tree = db.open_tree("t").expect("there");
            read_some(&tree, 0, 3_000);
            for turn in 0..3 {
                // The managers sleep for some 346 ms each when frames run out.
                sleep_ns(60 * SECOND);
                let clients: Vec<_> = (0..8u32)
                    .map(|client| {
                        let tree = tree.clone();
                        spawn("client", move || read_some(&tree, turn * 1_700 + client * 200, 200)).expect("a thread")
                    })
                    .collect();
                let before = db.stats().buffer_pool_wait_free_loops;
                while db.stats().buffer_pool_wait_free_loops < before + 8 {
                    sleep_ns(MS / 4);
                }
                let began = now_ns();
                set(&db, "empty_free_list_algorithm", "legacy");
                clients.into_iter().for_each(|client| client.join().expect("no panic"));
                let took = (now_ns() - began) / MS;
                assert!(took < 200, "{took} ms, and the managers would have slept for longer");
                // No reader sleeps, however long it was quiet.
                sleep_ns(5 * SECOND);
                let loops = db.stats().buffer_pool_wait_free_loops;
                read_some(&tree, turn * 1_700 + 3_000, 1_000);
                assert_eq!(db.stats().buffer_pool_wait_free_loops, loops);
                // All frames are in use: a reader that comes now needs a manager that is awake.
                set(&db, "empty_free_list_algorithm", "backoff");
                let began = now_ns();
                read_some(&tree, turn * 1_700 + 4_000, 10);
                let took = (now_ns() - began) / MS;
                assert!(db.stats().buffer_pool_wait_free_loops > loops && took < 20, "{took} ms");
            }
            db.close().expect("closed");
        });
    }
}

/// Many threads write and read far more than the pool holds, on real files, while the two ways to free frames replace
/// each other as fast as they can.
#[test]
fn real_threads_get_on_while_the_ways_to_free_frames_take_turns() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::new()
        .page_size(ByteSize::kib(4))
        .buffer_pool_size(ByteSize::kib(4 * 256))
        .redo_capacity(ByteSize::mib(8))
        .cached(true)
        .classic(|classic| {
            classic
                .dirty_tracking(DirtyTracking::FlushList)
                .empty_free_list_algorithm(EmptyFreeListAlgorithm::Backoff)
                .buffer_pool_instances(2)
        })
        .durability(Durability::None);
    let db = Db::open(dir.path(), options).expect("opened");
    let tree = db.create_tree("t").expect("created");
    (0..4_000).for_each(|row| put_loosely(&db, &tree, &scattered(row), &[0; 900]));
    let at_work = std::sync::atomic::AtomicUsize::new(16);
    std::thread::scope(|scope| {
        for client in 0..16u32 {
            let (tree, at_work) = (&tree, &at_work);
            scope.spawn(move || {
                for turn in 0..150u32 {
                    let row = (turn * 16 + client).wrapping_mul(747_796_405) % 4_000;
                    match turn % 3 {
                        0 => tree.put(scattered(row), [1; 900]).expect("written"),
                        _ => assert_eq!(tree.get(scattered(row)).expect("read").map(|v| v.len()), Some(900)),
                    }
                }
                at_work.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let mut turns = 0;
        while at_work.load(Ordering::SeqCst) > 0 {
            set(&db, "empty_free_list_algorithm", ["legacy", "backoff"][turns % 2]);
            turns += 1;
            // A read between the two changes.
            assert!(tree.get(scattered(7)).expect("read").is_some());
        }
        assert!(turns > 2, "{turns}");
    });
    db.close().expect("closed");
    let mut options = millpond::inspect::CheckOptions::default();
    options.cached = true;
    assert_eq!(millpond::inspect::check(dir.path(), options).expect("checked").problems, Vec::<String>::new());
}

/// Every option that can change with the policies of MySQL 8.0, each with two values or more.
const CHANGES: [(&str, &[&str]); 19] = [
    ("empty_free_list_algorithm", &["backoff", "legacy"]),
    ("adaptive_flushing_method", &["keep_average", "sync_only", "adaptive"]),
    ("lru_scan_depth", &["100", "1024"]),
    ("free_list_target", &["2", "8"]),
    ("io_capacity_max", &["4000", "2000"]),
    ("io_capacity", &["1000", "100", "2000"]),
    ("max_dirty_pages_pct", &["1", "50", "99"]),
    ("max_dirty_pages_pct_lwm", &["0", "1"]),
    ("cleaner_lsn_age_factor", &["high_checkpoint", "legacy"]),
    ("old_blocks_time", &["0ms", "1s", "5ms"]),
    ("flush_neighbors", &["area", "seq", "none"]),
    ("log_recent_closed", &["wake", "wake_if_unset", "poll"]),
    ("log_spin", &["never", "quota", "affinity"]),
    ("log_spin_cpu_abs_lwm", &["0", "80"]),
    ("log_spin_cpu_pct_hwm", &["100", "50"]),
    ("durability", &["none", "written", "background(5ms)", "commit"]),
    ("flush_log_at_commit", &["0", "2", "1"]),
    ("stall_threshold", &["1ms", "100ms"]),
    ("read_ahead_pages", &["0", "32"]),
];

/// Writes rows of its own, and waits until each is durable, whatever durability is set for others.
fn client(disk: &SimulatedDisk, oracle: &Oracle, db: &Db, id: usize) {
    let tree = db.open_tree("a").expect("there");
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(u64::try_from(id).expect("small"));
    for turn in 0..60u8 {
        let (key, value) = (key_of(id, rng.random_range(0..240)), vec![turn; rng.random_range(1..3_000)]);
        oracle.note(disk, id, vec![(("a", key.clone()), Some(value.clone()))], || {
            let mut batch = WriteBatch::new();
            batch.put(&tree, &key, &value).durability(Durability::Commit);
            db.write(batch).map(drop)
        });
    }
}

#[test]
fn a_crash_while_all_options_change_often_loses_nothing() {
    let with_threads = Shape {
        empty: EmptyFreeListAlgorithm::Legacy,
        flushing: AdaptiveFlushingMethod::Adaptive,
        pipeline: true,
        recent_closed: LogRecentClosed::Poll,
        instances: 2,
        frames: 80,
        ..TWICE
    };
    for (seed, pipeline) in [(61, true), (62, false)] {
        let shape = Shape { pipeline, ..with_threads };
        let changes: Vec<_> =
            CHANGES.into_iter().filter(|(name, _)| pipeline || !name.starts_with("log_spin")).collect();
        let (start, oracle) = run(0, || make_two_trees(shape, 4)).0;
        let recorded = record(seed, start, oracle, |disk, oracle| {
            let db = open(disk, shape.reopen_options());
            let clients: Vec<_> = (0..4)
                .map(|id| {
                    let (disk, oracle, db) = (disk.clone(), oracle.clone(), db.clone());
                    spawn("client", move || client(&disk, &oracle, &db, id)).expect("a thread")
                })
                .collect();
            let loose = db.open_tree(LOOSE).expect("there");
            let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
            for turn in 0..400usize {
                let (name, values) = changes[turn % changes.len()];
                set(&db, name, values[turn / changes.len() % values.len()]);
                // Durable as the option says: only the tree's soundness is promised.
                put_anew(&loose, &[u8::try_from(turn % 50).expect("small")], u8::try_from(turn / 50).ok());
                sleep_ns(rng.random_range(1..6) * MS);
            }
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
            let stats = db.stats();
            let (single, slept) = (stats.buffer_pool_single_page_flushes, stats.buffer_pool_wait_free_loops);
            assert!(single > 0 && slept > 0, "each way was gone: {stats:?}");
            db.close().expect("closed");
        });
        check_matrix(&Recorded { shape, ..recorded }, 0, stride(91));
    }
}
