//! Unit tests of the pipeline, under virtual time.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fixture_tests::{Setup, append};
use super::group::GroupKind;
use super::log::{Log, LogPolicies};
use super::log_spin::{LogSpin, SpinSettings};
use super::pipeline::{Pipeline, PipelineSettings};
use super::waiters::Stage;
use crate::base::clock;
use crate::base::error::Error;
use crate::simulation::{SimulatedDisk, Thread, run, sleep_ns, spawn};

const MS: u64 = 1_000_000;

/// A log whose writes need no sync each, and whose writers may append `behind` bytes ahead of the durable log.
fn log_of(behind: u64) -> Arc<Log> {
    let spin = SpinSettings { how: LogSpin::Never, cpu_abs_lwm: 80, cpu_pct_hwm: 50 };
    let pipeline = Some(PipelineSettings { sync_each_write: false, spin });
    let policies = LogPolicies { pipeline, ..LogPolicies::default() };
    Setup { behind, policies, ..Setup::default() }.make(&SimulatedDisk::new())
}

fn pipeline(log: &Log) -> &Pipeline {
    log.pipeline.as_ref().expect("the log has one")
}

/// Runs `work` beside the pipeline's threads.
fn beside_the_threads(log: &Arc<Log>, work: impl FnOnce()) {
    type Work = fn(&Log, &dyn Fn() -> bool) -> Result<(), Error>;
    let works: [Work; 4] = [
        |log, is_ending| pipeline(log).write_all(log, is_ending),
        |log, is_ending| pipeline(log).flush_all(log, is_ending),
        |log, is_ending| pipeline(log).notify_all(log, Stage::Written, is_ending),
        |log, is_ending| pipeline(log).notify_all(log, Stage::Flushed, is_ending),
    ];
    let ended = Arc::new(AtomicBool::new(false));
    pipeline(log).begin();
    let start = |work: Work| {
        let (log, ended) = (Arc::clone(log), Arc::clone(&ended));
        spawn("pipeline", move || work(&log, &|| ended.load(Ordering::Relaxed))).expect("a thread")
    };
    let threads: Vec<Thread<Result<(), Error>>> = works.into_iter().map(start).collect();
    work();
    ended.store(true, Ordering::Relaxed);
    pipeline(log).ring_all();
    for thread in threads {
        thread.join().expect("no panic").expect("nothing fails");
    }
}

#[test]
fn log_that_only_has_to_be_written_is_synced_once_a_second() {
    run(1, || {
        let log = log_of(1 << 20);
        beside_the_threads(&log, || {
            let syncs = || log.counters.syncs.load(Ordering::Relaxed);
            for _ in 0..9 {
                log.write_wait(append(&log, 100)).expect("written");
                sleep_ns(100 * MS);
            }
            assert_eq!(syncs(), 0);
            sleep_ns(300 * MS);
            assert_eq!(syncs(), 1);
            assert_eq!(log.positions().durable, log.positions().next);
        });
        assert_eq!(pipeline(&log).counters.spins.load(Ordering::Relaxed), 0, "no thread was to spin");
    });
}

/// REDO-13: when the waiter came there was nothing to sync. The group of an older credit changes that.
#[test]
fn writer_that_waits_for_a_sync_gets_one_at_an_append() {
    run(2, || {
        let log = log_of(3000);
        beside_the_threads(&log, || {
            let held = log.reserve(2000, 0).expect("room");
            let waiter = {
                let log = Arc::clone(&log);
                let work = move || log.reserve(2000, 0).map(|_| clock::now_ns()).expect("room");
                spawn("waiter", work).expect("a thread")
            };
            sleep_ns(5 * MS);
            log.append(held, GroupKind::Pages, &[1; 2000], |_| ()).expect("appended");
            let got_ns = waiter.join().expect("no panic");
            assert!((5 * MS..10 * MS).contains(&got_ns), "after {got_ns} ns");
        });
    });
}

#[test]
fn a_thread_without_work_naps_longer_and_longer() {
    run(3, || {
        let (log, looks) = (log_of(1 << 20), Cell::new(0));
        let is_ending = || {
            looks.set(looks.get() + 1);
            clock::now_ns() >= 1000 * MS || looks.get() > 100
        };
        pipeline(&log).write_all(&log, &is_ending).expect("nothing fails");
        // Naps of 1 to 64 ms, then of 100 ms.
        assert!(looks.get() <= 20, "{} looks in a second", looks.get());
    });
}
