//! The classic log policies: the window `recent_closed` and its closer, threads that write and sync.

use std::collections::VecDeque;
use std::time::Duration;

use millpond::classic::{ClassicOptions, DirtyTracking, LogRecentClosed, LogSpin};
use millpond::metrics::{LatchWait, MetricValue, Stall, Stats, WaitClass};
use millpond::simulation::{ServiceTime, SimulatedDisk, Unsynced, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Options, WriteBatch};

use crate::pool::put_loosely;
use crate::support::{SMALL, Shape, open, recover, sound};

/// Eight clients, two to a tree, insert for 200 ms, with threads that write the log and a window of 4 KiB. Returns the
/// rows, the statistics, and the time that the clients waited for the window.
pub(crate) fn inserts(how: LogRecentClosed, look: impl Fn(&Db)) -> (usize, Stats, u64) {
    let disk = SimulatedDisk::new();
    let (found, _) = run(3, || {
        let options = SMALL.options().buffer_pool_size(ByteSize::mib(8)).redo_capacity(ByteSize::mib(32));
        let options = pipeline(options).classic(|classic| {
            let classic = classic.dirty_tracking(DirtyTracking::FlushList).log_recent_closed(how);
            match how {
                LogRecentClosed::None => classic,
                _ => classic.log_recent_closed_size(ByteSize::kib(4)),
            }
        });
        let db = open(&disk, options);
        let trees: Vec<_> = (0..4).map(|client| db.create_tree(&format!("t{client}")).expect("created")).collect();
        let end = now_ns() + 200_000_000;
        let clients: Vec<_> = [&trees[..], &trees[..]]
            .concat()
            .into_iter()
            .zip(0u8..)
            .map(|(tree, client)| {
                let db = db.clone();
                let work = move || {
                    let mut rows = 0;
                    while now_ns() < end {
                        let key = [&usize::to_be_bytes(rows)[..], &[client]].concat();
                        match rows % 100 {
                            99 => tree.put(&key, [7; 300]).expect("written"),
                            _ => put_loosely(&db, &tree, &key, &[7; 300]),
                        }
                        rows += 1;
                        sleep_ns(100_000);
                    }
                    rows
                };
                spawn("client", work).expect("a thread")
            })
            .collect();
        look(&db);
        let rows: usize = clients.into_iter().map(|client| client.join().expect("no panic")).sum();
        let waited = db.waits().into_iter().find(|of| of.class == WaitClass::RecentClosed).expect("a class").total;
        look(&db);
        let stats = db.stats();
        db.close().expect("closed");
        (rows, stats, u64::try_from(waited.as_micros()).expect("short"))
    });
    sound(&disk);
    found
}

#[test]
fn closer_that_no_thread_wakes_holds_up_inserts() {
    let [(free, none, _), (polled, poll, waited), (_, wake, _), (woken, unset, rest)] =
        [LogRecentClosed::None, LogRecentClosed::Poll, LogRecentClosed::Wake, LogRecentClosed::WakeIfUnset]
            .map(|how| inserts(how, |_| ()));
    assert_eq!(none.log_on_recent_closed_wait_loops, 0);
    assert!(polled * 2 < free, "{polled} rows where the closer goes by the clock, {free} without");
    assert!(woken * 10 > free * 8, "{woken} rows where it is woken, {free} without");
    let loops =
        |stats: &Stats, rows: usize| stats.log_on_recent_closed_wait_loops * 1_000 / u64::try_from(rows).expect("few");
    assert!(loops(&poll, polled) > 3 * loops(&unset, woken), "{} and {}", loops(&poll, polled), loops(&unset, woken));
    assert!(wake.log_on_recent_closed_wait_loops > 0 && waited > 10 * rest, "{waited} us, and {rest}");
}

/// Latches are held while their owner waits in the window. A thread that waits for such a latch, directly or behind
/// another, waits for the window, and its slow operation says so.
#[test]
fn waiter_for_a_latch_behind_the_window_is_told_of_the_window() {
    let disk = SimulatedDisk::new();
    run(3, || {
        let options = pipeline(SMALL.options()).buffer_pool_size(ByteSize::mib(8)).redo_capacity(ByteSize::mib(32));
        let window = options.stall_threshold(Duration::from_millis(1)).classic(|classic| {
            let classic = classic.dirty_tracking(DirtyTracking::FlushList).log_recent_closed(LogRecentClosed::Poll);
            classic.log_recent_closed_size(ByteSize::kib(4))
        });
        let db = open(&disk, window);
        let trees: Vec<_> = (0..4).map(|number| db.create_tree(&format!("t{number}")).expect("created")).collect();
        // Two clients to a leaf of their own, and all clients to one leaf of the last tree.
        let client = |client: u8| {
            let (db, own, last) = (db.clone(), trees[usize::from(client / 2)].clone(), trees[3].clone());
            let work = move || {
                for row in 0..200u8 {
                    let (mut batch, value) = (WriteBatch::new(), [row; 300]);
                    batch.put(&own, [client, row % 8], value).put(&last, [client], value);
                    batch.durability(Durability::None);
                    db.write(batch).expect("written");
                }
            };
            spawn("client", work).expect("a thread")
        };
        let clients: Vec<_> = (0..6).map(client).collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        let total = |class| db.waits().into_iter().find(|of| of.class == class).map(|of| of.total).expect("a class");
        let (window, latch) = (total(WaitClass::RecentClosed), total(WaitClass::PageLatch));
        // In virtual time nothing else takes time.
        assert!(latch.is_zero() && window.as_millis() > 1_000, "{latch:?} for latches, {window:?} for the window");
        let of_window = |(class, time): &(WaitClass, Duration)| (*class == WaitClass::RecentClosed).then_some(*time);
        let is_explained =
            |stall: &&Stall| stall.waits.iter().filter_map(of_window).sum::<Duration>() * 2 >= stall.elapsed;
        let stalls = db.stalls();
        let explained = stalls.iter().filter(is_explained).count();
        assert!(stalls.len() > 20 && explained * 10 >= stalls.len() * 9, "{explained} of {} stalls", stalls.len());
        // Operations behind a window waiter name the latch that they wanted: of their own tree, or of the shared tree.
        let latched: Vec<_> = stalls.iter().filter_map(|stall| Some((stall.elapsed, stall.latch.as_ref()?))).collect();
        let is_told = |(elapsed, latch): &(Duration, &LatchWait)| {
            latch.tree.as_deref().is_some_and(|tree| tree.starts_with("tree 't")) && latch.time <= *elapsed
        };
        let of_all = latched.iter().filter(|(_, latch)| latch.tree.as_deref() == Some("tree 't3'")).count();
        assert!(of_all > 0 && latched.iter().all(is_told), "{latched:?}");
        db.close().expect("closed");
    });
    sound(&disk);
}

/// A disk with slow syncs.
pub(crate) const SLOW_SYNCS: ServiceTime = ServiceTime { read_ns: 50_000, write_ns: 100_000, sync_ns: 10_000_000 };

pub(crate) fn pipeline(options: Options) -> Options {
    options.classic(|classic| classic.log_writer_threads(true))
}

/// Milliseconds of ten commits, one after the other.
fn ten_commits(db: &Db) -> u64 {
    let tree = db.create_tree("t").expect("created");
    let began = now_ns();
    (0..10u8).for_each(|row| tree.put([row], [1; 100]).expect("written"));
    (now_ns() - began) / 1_000_000
}

#[test]
fn waiter_for_written_log_does_not_wait_for_its_sync() {
    let of = |threads: bool, when: u8| {
        let disk = SimulatedDisk::with_image(millpond::simulation::Image::new(), SLOW_SYNCS);
        run(4, || {
            let ways = |classic: ClassicOptions| classic.log_writer_threads(threads).flush_log_at_commit(when);
            let db = open(&disk, SMALL.options().classic(ways));
            let (took, before) = (ten_commits(&db), db.stats());
            // A second later the log is durable, with or without a request.
            sleep_ns(1_200_000_000);
            let after = db.stats();
            assert_eq!(after.log_lsn_last_flush, after.log_lsn_current, "flush_log_at_commit {when}");
            assert!(before.log_lsn_last_flush < before.log_lsn_current || when == 1);
            db.close().expect("closed");
            took
        })
        .0
    };
    for threads in [true, false] {
        let [one, two, zero] = [1, 2, 0].map(|when| of(threads, when));
        assert!(one >= 100 && two < 20 && zero <= two, "{one} ms with 1, {two} with 2, {zero} with 0: {threads}");
    }
}

/// Losses of commits that waited only for the write: by a power failure, and by the end of the process.
#[test]
fn what_is_written_survives_the_process() {
    let cases = [(true, Unsynced::All), (true, Unsynced::None), (false, Unsynced::All), (false, Unsynced::None)];
    for (threads, unsynced) in cases {
        let all_survive = matches!(unsynced, Unsynced::All);
        let disk = SimulatedDisk::with_image(millpond::simulation::Image::new(), SLOW_SYNCS);
        let (at, _) = run(5, || {
            let db = open(
                &disk,
                SMALL.options().classic(|of| of.log_writer_threads(threads)).durability(Durability::Written),
            );
            let tree = db.create_tree("t").expect("created");
            sleep_ns(2_000_000_000);
            let waits = |class: WaitClass| db.waits()[class as usize].count;
            let before = [WaitClass::LogWrite, WaitClass::LogFlush].map(waits);
            (0..100u8).for_each(|row| tree.put([row], [1; 100]).expect("written"));
            // A wait for the device's write has its own class, apart from waits for its sync.
            let after = [WaitClass::LogWrite, WaitClass::LogFlush].map(waits);
            assert_eq!(after, [before[0] + 100, before[1]]);
            let at = disk.boundaries();
            db.close().expect("closed");
            at
        });
        let image = disk.history().crash_image(at, unsynced);
        let found = run(6, || recover(&crate::support::disk_of(image))).0.expect("sound");
        assert_eq!(found["t"].len() == 100, all_survive, "{} rows, threads: {threads}", found["t"].len());
    }
}

#[test]
fn many_commit_together_behind_one_writer_and_one_flusher() {
    let disk = SimulatedDisk::with_image(millpond::simulation::Image::new(), SLOW_SYNCS);
    run(7, || {
        let db = open(&disk, pipeline(SMALL.options()).buffer_pool_size(ByteSize::mib(4)));
        let tree = db.create_tree("t").expect("created");
        let before = db.stats();
        let clients: Vec<_> = (0..16u8)
            .map(|client| {
                let tree = tree.clone();
                let work = move || (0..20u8).for_each(|row| tree.put([client, row], [1; 50]).expect("written"));
                spawn("client", work).expect("a thread")
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        let stats = db.stats();
        let (commits, syncs) = (320, stats.log_syncs - before.log_syncs);
        assert!(syncs < commits / 4, "{syncs} syncs for {commits} commits");
        assert!(stats.log_on_flush_waits > 0 && stats.log_on_flush_wait_loops > 0, "{stats:?}");
        db.close().expect("closed");
    });
    assert_eq!(run(8, || recover(&disk)).0.expect("sound")["t"].len(), 320);
}

/// A log of a few laps, filled by batches of all sizes, with the smallest window: no thread is stuck, and all rows are
/// there again.
#[test]
fn laps_of_the_log_go_through_a_small_window() {
    let shape = Shape { pipeline: true, recent_closed: LogRecentClosed::Poll, ..SMALL };
    let disk = SimulatedDisk::new();
    run(9, || {
        let db = open(&disk, shape.options());
        let trees: Vec<_> = (0..3).map(|client| db.create_tree(&format!("t{client}")).expect("created")).collect();
        let clients: Vec<_> = trees
            .into_iter()
            .map(|tree| {
                let db = db.clone();
                let work = move || {
                    for turn in 0..900usize {
                        let mut batch = WriteBatch::new();
                        for row in 0..1 + turn % 7 {
                            batch.put(
                                &tree,
                                [u8::try_from(turn % 60).expect("small"), u8::try_from(row).expect("small")],
                                vec![7; 40 + turn % 300],
                            );
                        }
                        db.write(batch).expect("written");
                    }
                };
                spawn("client", work).expect("a thread")
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        let stats = db.stats();
        assert!(stats.log_lsn_current > 3 * stats.log_capacity, "{stats:?}");
        db.close().expect("closed");
    });
    let found = run(10, || recover(&disk)).0.expect("sound");
    assert!(
        found.values().all(|rows| rows.len() >= 60 * 5),
        "{:?}",
        found.values().map(|rows| rows.len()).collect::<Vec<_>>()
    );
}

/// Clients insert for 3 s of virtual time without waiting for durability, behind slow syncs. Returns the number of log
/// syncs, and the greatest age of a change that was not durable. Checks that all is durable a second after the last
/// insert.
fn in_the_background(threads: bool, clients: u8, every_ns: u64) -> (u64, u64) {
    let disk = SimulatedDisk::with_image(millpond::simulation::Image::new(), SLOW_SYNCS);
    run(11, || {
        let options = SMALL.options().buffer_pool_size(ByteSize::mib(16)).redo_capacity(ByteSize::mib(64));
        let db = open(&disk, options.classic(|of| of.log_writer_threads(threads).flush_log_at_commit(0)));
        let (before, end) = (db.stats(), now_ns() + 3_000_000_000);
        let clients: Vec<_> = (0..clients)
            .map(|client| {
                let (db, tree) = (db.clone(), db.create_tree(&format!("t{client}")).expect("created"));
                let work = move || {
                    let (mut row, mut waiting, mut oldest_ns) = (0u32, VecDeque::new(), 0);
                    while now_ns() < end {
                        tree.put((row % 20).to_be_bytes(), row.to_le_bytes()).expect("written");
                        row += 1;
                        let stats = db.stats();
                        waiting.push_back((now_ns(), stats.log_lsn_current));
                        while waiting.front().is_some_and(|(_, end)| *end <= stats.log_lsn_last_flush) {
                            waiting.pop_front();
                        }
                        oldest_ns = waiting.front().map_or(oldest_ns, |(at, _)| oldest_ns.max(now_ns() - at));
                        sleep_ns(every_ns + u64::from(client) * 1_000);
                    }
                    oldest_ns
                };
                spawn("client", work).expect("a thread")
            })
            .collect();
        let oldest_ns = clients.into_iter().map(|client| client.join().expect("no panic")).max().expect("some");
        let last = db.stats();
        sleep_ns(1_200_000_000);
        assert!(db.stats().log_lsn_last_flush >= last.log_lsn_current, "a second later");
        db.close().expect("closed");
        (last.log_syncs - before.log_syncs, oldest_ns / 1_000_000)
    })
    .0
}

#[test]
fn background_commit_is_durable_in_time_with_few_syncs() {
    for (clients, every_ns) in [(1, 50_000_000), (8, 1_000_000)] {
        for threads in [false, true] {
            let (syncs, oldest_ms) = in_the_background(threads, clients, every_ns);
            let what = format!("{clients} clients, threads {threads}: {syncs} syncs, oldest {oldest_ms} ms");
            assert!(syncs <= 60, "{what}");
            assert!(oldest_ms <= 1_060, "{what}");
        }
    }
}

/// Outside of a simulation, since no thread spins in virtual time, on a disk without delays: a waiter for the log
/// spins, or does not, as the assumed CPUs say.
#[test]
fn waiter_spins_as_the_use_of_cpu_allows() {
    for (spin, spins) in [(LogSpin::Affinity, true), (LogSpin::Never, false)] {
        let marks = |of: ClassicOptions| of.log_spin(spin).log_spin_cpu_abs_lwm(0).log_spin_cpu_pct_hwm(100);
        let options = pipeline(SMALL.options()).classic(marks);
        let db = open(&SimulatedDisk::new(), options.buffer_pool_size(ByteSize::mib(4)));
        let tree = db.create_tree("t").expect("created");
        let has_seen = |stats: &Stats| stats.log_spin_cpus > 0 && (stats.log_spins > 0 || !spins);
        // The use of CPU is measured ten times a second: that takes some ten thousand commits.
        let seen = (0..200_000u32).any(|row| {
            tree.put((row % 100).to_be_bytes(), row.to_be_bytes()).expect("written");
            row % 16 == 0 && has_seen(&db.stats())
        });
        let stats = db.stats();
        assert!(seen && (stats.log_spins > 0) == spins && stats.log_spin_cpu_abs > 0, "{stats:?}");
        db.close().expect("closed");
    }
}

/// The measured use of CPU appears in numbers and in the text, together with the right CPUs: those of the mask, or
/// those granted by the quota.
#[test]
fn the_use_of_cpu_that_is_believed_is_told_with_its_cpus() {
    for (spin, name, hundredths) in [(LogSpin::Affinity, "cpu_n", 100), (LogSpin::Quota, "cpu_granted_pct", 1)] {
        let options = pipeline(SMALL.options()).classic(|of| of.log_spin(spin)).buffer_pool_size(ByteSize::mib(4));
        let db = open(&SimulatedDisk::new(), options);
        let tree = db.create_tree("t").expect("created");
        let believed = || {
            let stats = db.stats();
            [stats.log_spin_cpu_abs, stats.log_spin_cpus, stats.log_spin_cpu_pct]
        };
        // The use is measured ten times a second: between two measurements all reported numbers belong together.
        let told = (0..200_000u32).find_map(|row| {
            tree.put((row % 100).to_be_bytes(), row.to_be_bytes()).expect("written");
            let before = if row % 16 == 0 { believed() } else { [0; 3] };
            let told = (before[1] > 0).then(|| (db.metrics(), db.status_text()));
            told.filter(|_| believed() == before).map(|(metrics, text)| (before, metrics, text))
        });
        let ([abs, cpus, pct], metrics, text) = told.expect("it was looked at");
        let number = |name: &str| match metrics.iter().find(|(metric, _)| metric.name == name) {
            Some((_, MetricValue::Number(number))) => *number,
            other => unreachable!("{name}: {other:?}"),
        };
        assert_eq!(["log_spin_cpu_abs", "log_spin_cpus", "log_spin_cpu_pct"].map(number), [abs, cpus, pct]);
        // One of the two is rounded, the other truncated.
        assert!(cpus.abs_diff(number(name) * hundredths) <= 1, "{spin:?}: {cpus}");
        assert!(abs > 0 && pct == abs * 100 / cpus, "{abs} of {cpus}: {pct}");
        let [abs, cpus, pct] = [abs, cpus, pct].map(|of| f64::from(u32::try_from(of).expect("small")) / 100.0);
        let row = format!("  CPU use believed     n_cpu {cpus:.2}, absolute {abs:.1} % of one, {pct:.1} % of all\n");
        assert!(text.contains(&row), "no {row:?}:\n{text}");
        db.close().expect("closed");
    }
}
