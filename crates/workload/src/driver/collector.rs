//! The collector: once a second it takes the workers' records and the canaries' worst beats.

use std::thread;
use std::time::Duration;

use super::arrivals::Schedule;
use super::worker::Shared;
use super::{Interval, NAP, Observer, Plan, Queue, SECOND_NS};
use crate::canary::{Seen, Watch};
use crate::engine::{Counters, Instruments};
use crate::recorder::{Record, RunClock, Totals};
use crate::spans::{Slow, Span};
use crate::timeline::{Point, Timeline};

/// The collector's results.
pub(super) struct Collected {
    /// The clock of the run.
    pub(super) clock: RunClock,
    /// The engine's counters at the end of the warm-up.
    pub(super) counters_before: Counters,
    pub(super) record: Record,
    pub(super) timeline: Timeline,
    pub(super) elapsed_s: f64,
    pub(super) unserved: u64,
    pub(super) longest_unserved: Option<Slow>,
    pub(super) last_gap: Option<Span>,
    pub(super) was_stopped: bool,
    /// When the collector noticed that the time was up or the run was stopped, in ns; late if the process stood still.
    up_ns: u64,
}

/// The report interval that is not over yet.
struct OpenInterval {
    began_ns: u64,
    record: Record,
    seen: Seen,
    /// Throttled time at the begin of the interval, and at the end of the last second, in us.
    throttled_before: u64,
    throttled_last: u64,
}

impl OpenInterval {
    fn new(began_ns: u64, throttled_us: u64) -> OpenInterval {
        OpenInterval {
            began_ns,
            record: Record::new(),
            seen: Seen::default(),
            throttled_before: throttled_us,
            throttled_last: throttled_us,
        }
    }
}

/// Takes the workers' records, second by second.
pub(super) struct Collector<'a, 's, E> {
    pub(super) engine: &'a E,
    pub(super) plan: &'a Plan,
    pub(super) shared: &'a Shared<'s>,
    pub(super) clock: RunClock,
    pub(super) schedule: Option<&'a Schedule>,
    pub(super) watch: Option<&'a Watch<'a>>,
}

impl<E: Instruments> Collector<'_, '_, E> {
    /// Collects until the time is up or the run is stopped; then the workers end by themselves. `counters_before` was
    /// read before the run began.
    pub(super) fn run(&self, counters_before: Counters, observer: &mut dyn Observer) -> Collected {
        let warm = self.shared.counts_from_ns;
        let mut is_broken_off = warm > 0 && self.sleep_until(warm) == Slept::UntilStopped;
        if warm > 0 {
            drop(self.engine.take_slow_operations());
        }
        let mut collected = Collected {
            clock: self.clock,
            counters_before: if warm > 0 { self.engine.counters() } else { counters_before },
            record: Record::new(),
            timeline: Timeline::default(),
            elapsed_s: 0.0,
            unserved: 0,
            longest_unserved: None,
            last_gap: None,
            was_stopped: false,
            up_ns: 0,
        };
        // Drops the beats of the warm-up: they do not belong to the first second.
        self.seen();
        let mut open = OpenInterval::new(warm, self.engine.gauges().throttled_us);
        for second in 1..=self.plan.time_s {
            if is_broken_off {
                break;
            }
            match self.sleep_until(warm + second * SECOND_NS) {
                Slept::ToTheEnd => {}
                Slept::UntilStopped => {
                    is_broken_off = true;
                    break;
                }
                Slept::UntilTheLastEvent => break,
            }
            let woke_ns = self.clock.now_ns();
            if woke_ns >= self.shared.end_ns && collected.up_ns == 0 {
                // Noted first: after a stop of the process, reporting the missed seconds takes time too.
                collected.up_ns = woke_ns;
            }
            collected.timeline.add_second(self.take_second(&mut open));
            let interval_s = self.plan.report_interval_s;
            if interval_s > 0 && second % interval_s == 0 {
                let report = self.report(&mut open);
                collected.record.add(&report.record);
                is_broken_off = observer.interval(&report).is_break();
            }
        }
        collected.record.add(&open.record);
        if collected.up_ns == 0 {
            collected.up_ns = self.clock.now_ns();
        }
        if !self.shared.has_all_events() {
            let stopped_ns = collected.up_ns.min(self.shared.end_ns);
            collected.unserved = self.schedule.map_or(0, |schedule| schedule.waiting(stopped_ns));
        }
        collected.was_stopped = is_broken_off;
        if is_broken_off {
            self.shared.halt();
        }
        collected
    }

    /// Adds the workers' records since the last second, and the arrivals that no worker served.
    pub(super) fn finish(&self, mut collected: Collected, totals: &[Totals]) -> Collected {
        let last_ns = self.shared.recorder.last_completion_ns();
        let ended_ns = match self.schedule {
            // A worker may sleep until an arrival that is no longer needed; that time does not belong to the run.
            Some(_) if self.shared.has_all_events() => last_ns,
            _ => self.clock.now_ns(),
        };
        collected.elapsed_s = self.counted_s(ended_ns);
        let late_ns = self.take_all(&mut collected.record);
        collected.timeline.add_late(late_ns);
        if self.shared.has_all_events() {
            return collected;
        }
        let left = totals.iter().filter_map(|of| of.left_ns);
        collected.unserved += left.clone().count() as u64;
        let queued = self.schedule.filter(|_| collected.unserved > 0).map(Schedule::next_ns);
        let oldest_ns = left.chain(queued).filter(|arrival_ns| *arrival_ns < self.shared.end_ns).min();
        let up_ns = collected.up_ns.max(self.shared.counts_from_ns);
        collected.longest_unserved = oldest_ns.filter(|arrival_ns| *arrival_ns < up_ns).map(|arrived_ns| Slow {
            arrived_ns,
            began_ns: up_ns,
            ended_ns: up_ns,
        });
        let waited_from_ns = if self.schedule.is_some() { oldest_ns } else { Some(0) };
        let last_gap = waited_from_ns.map(|from_ns| Span::new(from_ns.max(last_ns), up_ns));
        collected.last_gap = last_gap.filter(|gap| gap.len_ns() > 0);
        collected
    }

    /// Takes the records and the beats of the last second.
    fn take_second(&self, open: &mut OpenInterval) -> Point {
        let max_ns = self.take_all(&mut open.record);
        let gauges = self.engine.gauges();
        let throttled_us = gauges.throttled_us.saturating_sub(open.throttled_last);
        open.throttled_last = gauges.throttled_us;
        let (now_ns, machine) = (self.clock.now_ns(), self.seen());
        open.seen = open.seen.worse(machine);
        Point {
            max_ns,
            gauges,
            throttle_percent: throttled_us as f64 / self.plan.threads as f64 / 1e4,
            waiting_ns: self.longest_wait_ns(now_ns),
            queued: self.schedule.map_or(0, |schedule| schedule.waiting(now_ns)),
            machine,
        }
    }

    /// The canaries' worst beats since the last call.
    fn seen(&self) -> Seen {
        self.watch.map_or_else(Seen::default, |watch| watch.take_seen(self.clock.now_ns()))
    }

    /// Age of the oldest waiting transaction, running or queued, in ns.
    fn longest_wait_ns(&self, now_ns: u64) -> u64 {
        let queued_ns = self.schedule.map_or(0, |schedule| now_ns.saturating_sub(schedule.next_ns()));
        self.shared.recorder.longest_wait_ns(now_ns).max(queued_ns)
    }

    /// Seconds since the counting began.
    fn counted_s(&self, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.shared.counts_from_ns) as f64 / 1e9
    }

    /// Ends the interval, and begins the next.
    fn report(&self, open: &mut OpenInterval) -> Interval {
        let now_ns = self.clock.now_ns();
        let next = OpenInterval::new(now_ns, open.throttled_last);
        let ended = std::mem::replace(open, next);
        let queue = self.schedule.map(|schedule| Queue {
            length: schedule.waiting(now_ns),
            concurrency: self.shared.recorder.concurrency(),
        });
        Interval {
            at_s: self.counted_s(now_ns),
            length_s: (now_ns - ended.began_ns) as f64 / 1e9,
            threads: self.plan.threads,
            record: ended.record,
            queue,
            gauges: self.engine.gauges(),
            throttled_us: ended.throttled_last.saturating_sub(ended.throttled_before),
            machine: self.watch.map(|_| ended.seen),
        }
    }

    /// Adds the workers' records since the last call; returns their longest latency, in ns.
    fn take_all(&self, into: &mut Record) -> u64 {
        let mut spare = Record::new();
        let mut max_ns = 0;
        for worker in 0..self.plan.threads {
            self.shared.recorder.take(worker, &mut spare);
            max_ns = max_ns.max(spare.max_ns);
            into.add(&spare);
            spare.clear();
        }
        max_ns
    }

    /// Sleeps until `at_ns`, or until the run ends.
    fn sleep_until(&self, at_ns: u64) -> Slept {
        loop {
            if self.shared.is_stopped() {
                return Slept::UntilStopped;
            }
            if self.shared.has_all_events() {
                return Slept::UntilTheLastEvent;
            }
            let now_ns = self.clock.now_ns();
            if now_ns >= at_ns {
                return Slept::ToTheEnd;
            }
            thread::park_timeout(NAP.min(Duration::from_nanos(at_ns - now_ns)));
        }
    }
}

/// Why a sleep of the collector ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// The time has come.
    ToTheEnd,
    /// The run is to stop.
    UntilStopped,
    /// Workers have begun all events; the last ones may still be running.
    UntilTheLastEvent,
}
