//! Runs against an engine made of counters.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::*;
use crate::engine::{IdRange, Index, KRange, Layout, Outcome, RangeSelect, Session, TableNo, TableState};
use crate::generators::oltp::{Mix, Queries, TableSet, Workload};
use crate::generators::row::{C_LEN, Row};
use crate::keys::RandType;
use crate::probe::Access;

/// An engine that answers after `work`, and fails or stalls where the test says so.
#[derive(Default)]
struct Counting {
    work: Duration,
    fail_at: Option<u64>,
    stall: Option<(u64, Duration)>,
    conflict_every: Option<u64>,
    /// Every n-th insert finds its row in place.
    exists_every: Option<u64>,
    /// Whether deletes find no row.
    is_empty: bool,
    inserts: AtomicU64,
    calls: AtomicU64,
    /// Transactions of several statements that have begun and not ended, and those that were committed.
    open: AtomicU64,
    commits: AtomicU64,
    /// Bytes outstanding to the device.
    outstanding: u64,
    /// How often the slowest operations were taken.
    takes: AtomicU64,
}

struct CountingSession<'e>(&'e Counting);

impl Engine for Counting {
    type Session<'e> = CountingSession<'e>;

    fn table(&self, _: TableNo) -> Result<TableState, Error> {
        Ok(TableState::Loaded(100))
    }
    fn create_table(&self, _: TableNo, _: Layout) -> Result<(), Error> {
        Ok(())
    }
    fn index(&self, _: TableNo) -> Result<Index, Error> {
        Ok(Index::OnK)
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
    fn begin_run(&self, _: TableNo) -> Result<u32, Error> {
        Ok(0)
    }
    fn note_deletes(&self, _: TableNo) -> Result<(), Error> {
        Ok(())
    }
    fn may_miss_rows(&self, _: TableNo) -> Result<bool, Error> {
        Ok(false)
    }
    fn create_bulk_table(&self, _: TableNo) -> Result<(), Error> {
        Ok(())
    }
    fn drop_bulk_table(&self, _: TableNo) -> Result<bool, Error> {
        Ok(true)
    }
    fn bulk_last_id(&self, _: TableNo) -> Result<Option<u64>, Error> {
        Ok(Some(0))
    }
    fn bulk_session(&self, _: TableNo) -> Result<CountingSession<'_>, Error> {
        Ok(CountingSession(self))
    }
    fn session(&self, _: u32) -> Result<CountingSession<'_>, Error> {
        Ok(CountingSession(self))
    }
}

impl Instruments for Counting {
    fn gauges(&self) -> Gauges {
        Gauges { free_frames: 7, ..Gauges::default() }
    }
    fn counters(&self) -> Counters {
        let calls = self.calls.load(Ordering::Relaxed);
        // Five stalls before the run, two in it.
        Counters { log_syncs: calls, stalls: if calls == 0 { 5 } else { 7 }, ..Counters::default() }
    }
    fn take_slow_operations(&self) -> Vec<SlowOperation> {
        self.takes.fetch_add(1, Ordering::Relaxed);
        let remembered = |elapsed_us| SlowOperation {
            operation: "put",
            elapsed_us,
            waits: Vec::new(),
            cpu_us: None,
            runnable_us: None,
            latch: None,
        };
        // The run's operations, if the caller asks after the run.
        if self.calls.load(Ordering::Relaxed) == 0 { vec![remembered(9)] } else { [7, 6].map(remembered).to_vec() }
    }
    fn outstanding_bytes(&self) -> u64 {
        self.outstanding
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
    fn begin(&mut self) -> Result<(), Error> {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn commit(&mut self) -> Result<Outcome, Error> {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.commits.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Done)
    }
    fn rollback(&mut self) -> Result<(), Error> {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
    fn select_row(&mut self, _: TableNo, _: u64) -> Result<Outcome, Error> {
        self.call()
    }
    fn select_range(&mut self, _: TableNo, ids: IdRange, _: RangeSelect) -> Result<u64, Error> {
        self.call().map(|_| ids.last - ids.first + 1)
    }
    fn select_points(&mut self, _: TableNo, ks: &[u32]) -> Result<u64, Error> {
        self.call().map(|_| ks.len() as u64)
    }
    fn count_ranges(&mut self, _: TableNo, ranges: &[KRange]) -> Result<u64, Error> {
        self.call().map(|_| ranges.len() as u64)
    }
    fn increment_k(&mut self, _: TableNo, _: u64) -> Result<Outcome, Error> {
        self.call()
    }
    fn replace_c(&mut self, _: TableNo, _: u64, _: &[u8; C_LEN]) -> Result<Outcome, Error> {
        self.call()
    }
    fn delete_row(&mut self, _: TableNo, _: u64) -> Result<Outcome, Error> {
        let outcome = self.call()?;
        Ok(if self.0.is_empty && outcome == Outcome::Done { Outcome::NoRow } else { outcome })
    }
    fn insert_bulk(&mut self, _: IdRange) -> Result<(), Error> {
        self.call().map(drop)
    }
    fn insert_row(&mut self, _: TableNo, _: &Row) -> Result<Outcome, Error> {
        let number = self.0.inserts.fetch_add(1, Ordering::Relaxed) + 1;
        if self.0.exists_every.is_some_and(|every| number.is_multiple_of(every)) {
            return Ok(Outcome::Exists);
        }
        self.call()
    }
    fn insert_rows(&mut self, _: TableNo, _: &[Row]) -> Result<Outcome, Error> {
        self.call()
    }
    fn load_rows(&mut self, _: TableNo, _: &[Row]) -> Result<(), Error> {
        Ok(())
    }
}

fn plan(threads: usize, pace: Pace) -> Plan {
    Plan { threads, time_s: 1, warmup_s: 0, events: 0, report_interval_s: 1, pace, seed: 5 }
}

fn load_for(engine: &Counting, workload: Workload) -> Load {
    Load::new(engine, workload, TableSet::new(1, 100).unwrap(), RandType::Uniform, &Mix::default()).unwrap()
}

fn load_of(engine: &Counting) -> Load {
    load_for(engine, Workload::UpdateIndex)
}

/// Runs `events` events of `workload`, however long it takes.
fn run_events(engine: &Counting, workload: Workload, events: u64, threads: usize) -> Finished {
    let plan = Plan { events, time_s: 3_600, ..plan(threads, Pace::ClosedLoop) };
    run(engine, &load_for(engine, workload), &plan, &AtomicBool::new(false), &mut Unobserved).unwrap()
}

/// Keeps the intervals; breaks off after `limit` of them.
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
    let slow: Vec<u64> = finished.slow_operations.iter().map(|slow| slow.elapsed_us).collect();
    assert_eq!((finished.counters.stalls, slow), (2, vec![7, 6]), "those before the run are left out");
}

#[test]
fn timeline_has_every_second_and_its_slowest_transaction() {
    let engine = Counting { stall: Some((100, Duration::from_millis(300))), ..Counting::default() };
    let plan = Plan { time_s: 2, report_interval_s: 0, ..plan(1, Pace::OpenLoop { per_s: 500.0 }) };
    let finished = run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut Unobserved).unwrap();
    let points = finished.timeline.points();
    assert_eq!(points.len(), 2);
    assert!(points.iter().all(|point| point.gauges.free_frames == 7));
    assert_eq!(points.iter().map(|point| point.max_ns).max(), Some(finished.record.max_ns));
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
    // Poisson: 2000 +- 5 standard deviations of 45. A busy machine may leave some of them unserved.
    let arrived = finished.transactions() + finished.unserved;
    assert!((1_775..2_225).contains(&arrived), "{arrived}");
}

#[test]
fn open_loop_latency_counts_from_the_arrival() {
    // One thread stalls once for 300 ms: every arrival in that time waits, and its wait is recorded.
    let engine = Counting { stall: Some((100, Duration::from_millis(300))), ..Counting::default() };
    let plan = Plan { events: 1_000, time_s: 3_600, ..plan(1, Pace::OpenLoop { per_s: 1_000.0 }) };
    let finished = run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut Keep::all()).unwrap();
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
    let slowest_ms = finished.slowest_ns() as f64 / 1e6;
    assert!(slowest_ms > 800.0, "those that were queued at the end have waited for {slowest_ms} ms");
    assert!(finished.slow().iter().any(|slow| slow.began_ns == slow.ended_ns), "one of them is among the slow ones");
    let point = finished.timeline.points()[0];
    assert!(point.queued > 4_000 && point.waiting_ns > 500_000_000, "{point:?}");
    // Each takes 5 ms at least, and there are two threads.
    assert!(finished.transactions() <= 402, "no transaction begins after the time: {}", finished.transactions());
}

#[test]
fn transaction_under_way_at_the_end_counts_with_its_gap() {
    // The run's only second ends while its only thread is in the stall; arrivals in that time are queued.
    for pace in [Pace::ClosedLoop, Pace::OpenLoop { per_s: 500.0 }] {
        let engine = Counting { stall: Some((50, Duration::from_millis(1_500))), ..Counting::default() };
        let finished =
            run(&engine, &load_of(&engine), &plan(1, pace), &AtomicBool::new(false), &mut Unobserved).unwrap();
        assert!(finished.blackout_ms() >= 1_400.0, "{pace:?}: {}", finished.blackout_ms());
        assert!(finished.slowest_ns() >= 1_500_000_000, "{pace:?}");
        assert!(finished.gaps().contains(&finished.blackout()));
        let waited_ns = finished.timeline.points()[0].waiting_ns;
        assert!(waited_ns > 0, "the second in which it hangs shows that: {waited_ns}");
    }
}

/// An observer with a canary that keeps the intervals.
struct Watched {
    canary: Arc<Canary>,
    keep: Keep,
}

impl Observer for Watched {
    fn canary(&self) -> Option<Arc<Canary>> {
        Some(Arc::clone(&self.canary))
    }

    fn interval(&mut self, interval: &Interval) -> ControlFlow<()> {
        self.keep.interval(interval)
    }
}

#[test]
fn canaries_run_beside_the_load_and_ask_what_is_outstanding() {
    let dir = tempfile::tempdir().unwrap();
    for (outstanding, is_shared) in [(0, false), (1 << 20, true)] {
        let engine = Counting { work: Duration::from_millis(1), outstanding, ..Counting::default() };
        let canary = Arc::new(Canary::new(dir.path(), Access::Cached).unwrap());
        let mut watched = Watched { canary, keep: Keep::all() };
        let stop = AtomicBool::new(false);
        let finished = run(&engine, &load_of(&engine), &plan(1, Pace::ClosedLoop), &stop, &mut watched).unwrap();
        let machine = finished.machine.unwrap();
        assert!(machine.failure.is_none() && machine.cpu.count() > 0);
        assert!((1..=11).contains(&machine.device.count()), "one each 100 ms: {}", machine.device.count());
        assert_eq!(machine.device.shared_worst_ns() > 0, is_shared);
        assert_eq!(machine.device.own_worst_ns() == 0, is_shared);
        let seen = watched.keep.seen[0].machine.unwrap();
        assert!(seen.device_ns > 0, "{seen:?}");
        assert!(finished.timeline.points()[0].machine.device_ns > 0);
    }
}

#[test]
fn stop_flag_ends_the_run_with_what_there_is() {
    let engine = Counting { work: Duration::from_millis(1), ..Counting::default() };
    let stop = AtomicBool::new(false);
    let plan = Plan { time_s: 3_600, ..plan(2, Pace::ClosedLoop) };
    let load = load_of(&engine);
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
    let clients = || oltp::Client::all(&load, &engine, plan.threads).unwrap();
    let maximum = maximum::measure_for(&engine, clients(), &plan, &stop, 1, 1).unwrap();
    // An idle machine reaches some 1,800.
    assert!(maximum.per_s > 10.0, "{maximum:?}");
    assert_eq!((maximum.phase_s, maximum.has_settled), (1, false));
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(maximum::measure_for(&engine, clients(), &plan, &stop, 1, 1), Err(Error::Interrupted)));
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

#[test]
fn events_are_run_exactly_and_the_run_ends_with_the_last_one() {
    for pace in [Pace::ClosedLoop, Pace::OpenLoop { per_s: 50_000.0 }] {
        let engine = Counting::default();
        let plan = Plan { time_s: 3_600, events: 1_234, ..plan(4, pace) };
        let finished = run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut Unobserved).unwrap();
        assert_eq!(finished.transactions(), 1_234);
        assert_eq!(finished.record.transactions(), 1_234);
        assert_eq!(engine.calls.load(Ordering::Relaxed), 1_234);
        assert_eq!(finished.unserved, 0);
        assert!(!finished.was_stopped, "it came to its end");
    }
}

#[test]
fn time_ends_a_run_whose_events_do_not() {
    let engine = Counting { work: Duration::from_millis(1), ..Counting::default() };
    let plan = Plan { events: 1_000_000, ..plan(2, Pace::ClosedLoop) };
    let finished = run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut Unobserved).unwrap();
    assert!(finished.transactions() < 1_000_000);
    assert!(!finished.was_stopped);
}

#[test]
fn warm_up_is_run_and_not_counted() {
    for pace in [Pace::ClosedLoop, Pace::OpenLoop { per_s: 500.0 }] {
        let engine = Counting { work: Duration::from_millis(1), ..Counting::default() };
        let plan = Plan { warmup_s: 1, ..plan(2, pace) };
        let mut keep = Keep::all();
        let began = Instant::now();
        let finished = run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut keep).unwrap();
        let since_the_start_s = began.elapsed().as_secs_f64();
        let calls = engine.calls.load(Ordering::Relaxed);
        assert!(calls > finished.transactions(), "{calls} calls");
        assert_eq!(finished.record.transactions(), finished.transactions());
        assert_eq!(finished.record.queries.write, finished.transactions());
        assert!(finished.counters.log_syncs < calls, "what the engine counted in the warm-up is left out");
        assert_eq!(engine.takes.load(Ordering::Relaxed), 3, "those of before and of the warm-up are put away");
        assert_eq!(keep.seen.len(), 1);
        // The second of the warm-up is left out, however long a busy machine took for the run.
        for counted_s in [keep.seen[0].at_s, finished.elapsed_s] {
            assert!((1.0..=since_the_start_s - 1.0).contains(&counted_s), "{counted_s} of {since_the_start_s}");
        }
        assert_eq!(finished.seconds.len(), 1);
    }
}

#[test]
fn events_are_those_after_the_warm_up() {
    let engine = Counting { work: Duration::from_millis(1), ..Counting::default() };
    let plan = Plan { warmup_s: 1, events: 100, time_s: 3_600, ..plan(2, Pace::ClosedLoop) };
    let finished = run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut Unobserved).unwrap();
    assert_eq!(finished.transactions(), 100);
    assert!(engine.calls.load(Ordering::Relaxed) > 100);
}

#[test]
fn run_that_is_stopped_in_its_warm_up_has_counted_nothing() {
    let engine = Counting { work: Duration::from_millis(1), ..Counting::default() };
    let plan = Plan { warmup_s: 3_600, ..plan(2, Pace::ClosedLoop) };
    let stop = AtomicBool::new(true);
    let finished = run(&engine, &load_of(&engine), &plan, &stop, &mut Unobserved).unwrap();
    assert!(finished.was_stopped);
    assert_eq!((finished.transactions(), finished.elapsed_s), (0, 0.0));
    assert_eq!(finished.mean_per_s(), 0.0);
}

#[test]
fn statements_are_counted_once_whatever_conflicts_they_meet() {
    let engine = Counting { conflict_every: Some(7), ..Counting::default() };
    let finished = run_events(&engine, Workload::WriteOnly, 200, 3);
    assert_eq!(finished.record.queries, Queries { read: 0, write: 800, other: 400 });
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((of(&engine.commits), of(&engine.open)), (200, 0), "each transaction ends");
    let calls = engine.calls.load(Ordering::Relaxed);
    assert!(finished.record.conflicts >= calls / 7 - 1, "{} of {calls}", finished.record.conflicts);
}

#[test]
fn rest_of_a_packet_is_inserted_when_the_thread_ends() {
    let engine = Counting::default();
    let finished = run_events(&engine, Workload::BulkInsert, 100_000, 2);
    assert_eq!(finished.transactions(), 100_000);
    let packets = engine.calls.load(Ordering::Relaxed);
    assert_eq!(finished.record.queries, Queries { read: 0, write: packets, other: 0 });
    assert!((3..=5).contains(&packets), "packets of some 37,000 rows, and two rests at most: {packets}");
}

#[test]
fn pair_whose_row_came_back_is_run_again_and_counted_once() {
    let engine = Counting { exists_every: Some(5), ..Counting::default() };
    let finished = run_events(&engine, Workload::WriteOnly, 200, 3);
    assert_eq!(finished.record.queries, Queries { read: 0, write: 800, other: 400 });
    assert!((49..=51).contains(&finished.record.conflicts), "every fifth of 250: {}", finished.record.conflicts);
}

#[test]
fn insert_of_a_new_row_that_is_there_is_an_error() {
    let engine = Counting { exists_every: Some(20), ..Counting::default() };
    let plan = Plan { time_s: 3_600, ..plan(1, Pace::ClosedLoop) };
    let load = load_for(&engine, Workload::Insert);
    let failed = run(&engine, &load, &plan, &AtomicBool::new(false), &mut Unobserved);
    assert!(matches!(failed, Err(Error::RowExists { id: 120, .. })), "{failed:?}");
}

#[test]
fn delete_that_finds_no_row_counts_as_other() {
    let engine = Counting { is_empty: true, ..Counting::default() };
    let finished = run_events(&engine, Workload::Delete, 50, 2);
    assert_eq!(finished.record.queries, Queries { read: 0, write: 0, other: 50 });
}

/// An observer that fails before the load begins.
struct FailsAtTheStart;

impl Observer for FailsAtTheStart {
    fn started(&mut self) {
        std::panic::resume_unwind(Box::new("told to fail"));
    }

    fn interval(&mut self, _: &Interval) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[test]
fn panic_before_the_start_lets_the_waiting_workers_go() {
    let engine = Counting::default();
    let plan = plan(4, Pace::ClosedLoop);
    let running = std::panic::AssertUnwindSafe(|| {
        run(&engine, &load_of(&engine), &plan, &AtomicBool::new(false), &mut FailsAtTheStart).map(|_| ())
    });
    assert!(std::panic::catch_unwind(running).is_err());
    assert_eq!(engine.calls.load(Ordering::Relaxed), 0);
}
