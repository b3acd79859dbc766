//! Runs against an engine made of counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::*;
use crate::engine::{Outcome, Session, TableNo, TableState};
use crate::generators::oltp::{TableSet, Workload};
use crate::generators::row::Row;
use crate::keys::RandType;

/// Answers after `work`; fails or stops where told to.
#[derive(Default)]
struct Counting {
    work: Duration,
    fail_at: Option<u64>,
    stall: Option<(u64, Duration)>,
    conflict_every: Option<u64>,
    calls: AtomicU64,
}

struct CountingSession<'e>(&'e Counting);

impl Engine for Counting {
    type Session<'e> = CountingSession<'e>;

    fn table(&self, _: TableNo) -> Result<TableState, Error> {
        Ok(TableState::Loaded(100))
    }
    fn create_table(&self, _: TableNo) -> Result<(), Error> {
        Ok(())
    }
    fn finish_table(&self, _: TableNo, _: u64) -> Result<(), Error> {
        Ok(())
    }
    fn finish_load(&self) -> Result<(), Error> {
        Ok(())
    }
    fn drop_table(&self, _: TableNo) -> Result<bool, Error> {
        Ok(true)
    }
    fn last_id(&self, _: TableNo) -> Result<u64, Error> {
        Ok(100)
    }
    fn session(&self, _: u32) -> Result<CountingSession<'_>, Error> {
        Ok(CountingSession(self))
    }
    fn gauges(&self) -> Gauges {
        Gauges { free_frames: 7, ..Gauges::default() }
    }
    fn counters(&self) -> Counters {
        Counters { log_syncs: self.calls.load(Ordering::Relaxed), ..Counters::default() }
    }
}

impl CountingSession<'_> {
    fn call(&self) -> Result<Outcome, Error> {
        let number = self.0.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if self.0.fail_at == Some(number) {
            return Err(Error::Invalid("told to fail".to_owned()));
        }
        if let Some((_, pause)) = self.0.stall.filter(|(at, _)| *at == number) {
            thread::sleep(pause);
        }
        if self.0.conflict_every.is_some_and(|every| number.is_multiple_of(every)) {
            return Ok(Outcome::Conflict);
        }
        thread::sleep(self.0.work);
        Ok(Outcome::Done)
    }
}

impl Session for CountingSession<'_> {
    fn select_row(&mut self, _: TableNo, _: u64) -> Result<Outcome, Error> {
        self.call()
    }
    fn increment_k(&mut self, _: TableNo, _: u64) -> Result<Outcome, Error> {
        self.call()
    }
    fn insert_row(&mut self, _: TableNo, _: &Row) -> Result<Outcome, Error> {
        self.call()
    }
    fn load_rows(&mut self, _: TableNo, _: &[Row]) -> Result<(), Error> {
        Ok(())
    }
}

fn plan(threads: usize, pace: Pace) -> Plan {
    Plan { threads, time_s: 1, report_interval_s: 1, pace, seed: 5 }
}

fn load_of(engine: &Counting) -> Load {
    Load::new(engine, Workload::PointSelect, TableSet::new(1, 100).unwrap(), RandType::Uniform).unwrap()
}

/// Keeps what it sees; breaks off after `limit` intervals.
struct Keep {
    seen: Vec<Interval>,
    limit: usize,
}

impl Keep {
    fn all() -> Keep {
        Keep { seen: Vec::new(), limit: usize::MAX }
    }
}

impl Observer for Keep {
    fn interval(&mut self, interval: &Interval) -> ControlFlow<()> {
        self.seen.push(interval.clone());
        if self.seen.len() >= self.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn closed_loop_counts_each_transaction_once_everywhere() {
    let engine = Counting { work: Duration::from_micros(200), conflict_every: Some(10), ..Counting::default() };
    let mut keep = Keep::all();
    let finished =
        run(&engine, &load_of(&engine), &plan(4, Pace::ClosedLoop), &AtomicBool::new(false), &mut keep).unwrap();
    let calls = engine.calls.load(Ordering::Relaxed);
    assert_eq!(finished.transactions() + finished.record.conflicts, calls);
    assert_eq!(finished.record.transactions(), finished.transactions());
    assert_eq!(finished.counters.log_syncs, calls);
    assert!(finished.record.conflicts >= calls / 10 - 1);
    assert_eq!(finished.seconds.len(), 1);
    assert!(finished.transactions() - finished.seconds[0] <= 4, "each thread ends at most one after the time");
    assert_eq!(keep.seen.len(), 1);
    assert_eq!(keep.seen[0].gauges.free_frames, 7);
    assert!(keep.seen[0].queue.is_none());
    assert!(!finished.was_stopped);
    assert_eq!(finished.unserved, 0);
}

#[test]
fn open_loop_keeps_its_rate_below_the_maximum() {
    let engine = Counting { work: Duration::from_micros(100), ..Counting::default() };
    let finished = run(
        &engine,
        &load_of(&engine),
        &plan(4, Pace::OpenLoop { per_s: 2_000.0 }),
        &AtomicBool::new(false),
        &mut Keep::all(),
    )
    .unwrap();
    // Poisson: 2000 +- 5 standard deviations of 45.
    assert!((1_775..2_225).contains(&finished.transactions()), "{}", finished.transactions());
}

#[test]
fn open_loop_latency_counts_from_the_arrival() {
    // One thread stalls once for 300 ms: everything that arrives meanwhile waits, and its wait is seen.
    let engine = Counting { stall: Some((100, Duration::from_millis(300))), ..Counting::default() };
    let finished = run(
        &engine,
        &load_of(&engine),
        &plan(1, Pace::OpenLoop { per_s: 1_000.0 }),
        &AtomicBool::new(false),
        &mut Keep::all(),
    )
    .unwrap();
    let median_of_waiting_ms = finished.record.quantile_ns(0.9) as f64 / 1e6;
    assert!(median_of_waiting_ms > 100.0, "300 of 1000 waited 0 to 300 ms; p90 is {median_of_waiting_ms}");
    assert!(finished.blackout_ms() >= 300.0);
}

#[test]
fn open_loop_above_the_maximum_shows_its_queue() {
    let engine = Counting { work: Duration::from_millis(5), ..Counting::default() };
    let mut keep = Keep::all();
    let finished = run(
        &engine,
        &load_of(&engine),
        &plan(2, Pace::OpenLoop { per_s: 5_000.0 }),
        &AtomicBool::new(false),
        &mut keep,
    )
    .unwrap();
    let queue = keep.seen[0].queue.unwrap();
    assert!(queue.length > 4_000, "{queue:?}");
    assert!(queue.concurrency <= 2);
    assert!(finished.unserved > 4_000);
    assert!(finished.elapsed_s < 5.0, "no transaction begins after the time");
}

#[test]
fn stop_flag_ends_the_run_with_what_there_is() {
    let engine = Counting { work: Duration::from_millis(1), ..Counting::default() };
    let stop = AtomicBool::new(false);
    let plan = Plan { time_s: 3_600, ..plan(2, Pace::ClosedLoop) };
    let load = load_of(&engine);
    let began = Instant::now();
    let finished = thread::scope(|scope| {
        let running = scope.spawn(|| run(&engine, &load, &plan, &stop, &mut Unobserved));
        while engine.calls.load(Ordering::Relaxed) < 20 {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap()
    });
    assert!(finished.was_stopped);
    assert!(finished.transactions() >= 18);
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn observer_that_breaks_off_ends_the_run() {
    let engine = Counting { work: Duration::from_millis(1), ..Counting::default() };
    let plan = Plan { time_s: 3_600, ..plan(2, Pace::ClosedLoop) };
    let mut keep = Keep { seen: Vec::new(), limit: 1 };
    let finished = run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut keep).unwrap();
    assert!(finished.was_stopped);
    assert_eq!(keep.seen.len(), 1);
}

#[test]
fn first_error_of_a_worker_ends_the_run_for_all() {
    let engine = Counting { work: Duration::from_micros(100), fail_at: Some(50), ..Counting::default() };
    let plan = Plan { time_s: 3_600, ..plan(3, Pace::ClosedLoop) };
    let failed = run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut Unobserved);
    assert!(matches!(failed, Err(Error::Invalid(text)) if text == "told to fail"));
}

#[test]
fn maximum_is_that_of_a_closed_loop_whatever_the_plan_says() {
    let engine = Counting { work: Duration::from_millis(1), ..Counting::default() };
    let load = load_of(&engine);
    let plan = plan(2, Pace::OpenLoop { per_s: 1.0 });
    let stop = AtomicBool::new(false);
    let maximum = maximum::measure_for(&engine, &load, &plan, &stop, 1, 1).unwrap();
    assert!(maximum.per_s > 100.0, "{maximum:?}");
    assert_eq!((maximum.phase_s, maximum.has_settled), (1, false));
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(maximum::measure_for(&engine, &load, &plan, &stop, 1, 1), Err(Error::Interrupted)));
}

#[test]
fn whole_seconds_leave_out_the_one_in_which_the_run_stopped() {
    let totals = |per_second: &[u64]| Totals { per_second: per_second.to_vec(), ..Totals::default() };
    let threads = [totals(&[5, 6, 7, 1]), totals(&[1, 2])];
    assert_eq!(whole_seconds(&threads, 3.02, 3), [6, 8, 7]);
    assert_eq!(whole_seconds(&threads, 2.7, 60), [6, 8]);
    assert_eq!(whole_seconds(&threads, 4.5, 5), [6, 8, 7, 1]);
    assert!(whole_seconds(&threads, 0.9, 5).is_empty());
}
