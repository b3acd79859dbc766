//! Every wait has a class and is timed; a slow operation reports how its time was spent.
//!
//! LAW-1  A thread that parks holds no page latch. Waiting for another latch, in the order of latches, is no parking.
//! LAW-4  Every foreground wait is counted under its class, once, however often its thread woke.
//!
//! A fast operation costs two reads of a coarse clock, a counter, and a look at the slowest of the second
//! ([`operations`](super::operations)). CPU time and runnable time come from the thread's `schedstat`, read at most
//! once in a tick of that clock, and at the end of a slow operation. So both may begin up to a tick before the
//! operation, and include CPU used during waits (to spin, to wake, to write for others). A slow operation therefore
//! caps both at the time outside of its waits. A nested wait is counted once, as the inner one. So the parts of an
//! operation never exceed the whole.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::aligned::to_u64;
use super::clock::{self, nanos};
use super::cpus::schedstat;
use super::ids::PageId;
use super::operations::{OperationKind, Operations, Slowest, next_stripe};
use super::stall::{LatchWait, Stall};
use super::sync::{Mutex, Rank};
use super::under_way::UnderWay;
pub use super::wait_class::WaitClass;

const CLASSES: usize = WaitClass::ALL.len();

/// Number of stalls kept.
const STALLS_KEPT: usize = 256;

/// Number of slowest operations kept, whether stalls or not.
const SLOWEST_KEPT: usize = 8;

/// The number of a class's waits, and how long they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitSummary {
    /// The class of the waits.
    pub class: WaitClass,
    /// Waits that have ended.
    pub count: u64,
    /// The sum of their durations.
    pub total: Duration,
    /// The 99th percentile of their durations, to three digits.
    pub p99: Duration,
    /// The longest duration.
    pub longest: Duration,
    /// Threads that wait now, and are not yet in `count`. A thread that waits inside of another wait is in both
    /// classes.
    pub waiting: u64,
    /// The sum of the durations so far of the waits in progress.
    pub waiting_for: Duration,
    /// Stalls that spent at least half of their time in this class.
    pub stalls: u64,
}

/// Upper bounds of the buckets of [`WaitTimes`], in microseconds.
const BOUNDS_US: [u64; 8] = [10, 100, 1_000, 3_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The distribution of the durations of a class's waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitTimes {
    /// Waits that have ended.
    pub count: u64,
    /// The sum of their durations, in microseconds.
    pub total_us: u64,
    /// Cumulative buckets: (bound in microseconds, waits that took at most that long), to a thousandth.
    pub buckets: Vec<(u64, u64)>,
}

struct Class {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    stalls: AtomicU64,
    times_us: Mutex<Histogram<u64>>,
    under_way: UnderWay,
}

/// The waits of one database.
pub(crate) struct Waits {
    classes: [Class; CLASSES],
    operations: Operations,
    /// Operations that waited for a page's read.
    missed: AtomicU64,
    /// Written only with `slowest` locked.
    stall_threshold_ns: AtomicU64,
    stall_count: AtomicU64,
    stalls: Mutex<VecDeque<Stall>>,
    /// Sorted, the slowest first.
    slowest: Mutex<Vec<Stall>>,
    /// Operations shorter than this, in ns, are neither stalls nor among the slowest. Written with `slowest` locked.
    remembered_from_ns: AtomicU64,
    /// Time of opening, in ns of the coarse clock. Read by [`Db::since_open`](crate::Db::since_open).
    pub(crate) opened_ns: u64,
}

/// The state of a thread's current operation.
struct Thread {
    /// Nesting depth of operations.
    depth: Cell<u32>,
    /// The thread's stripe of the operation counters; [`NO_STRIPE`]: not assigned yet.
    stripe: Cell<usize>,
    began_ns: Cell<u64>,
    waited_ns: [Cell<u64>; CLASSES],
    /// The sum of all waits that this thread has recorded, and that sum when the operation began, in ns.
    noted_ns: Cell<u64>,
    noted_before_ns: Cell<u64>,
    /// The operation's longest wait for a latch, in ns (0: none), with the page and its level.
    latch_ns: Cell<u64>,
    latch_of: Cell<(PageId, u8)>,
    /// The classes of the nested waits in progress, one bit each.
    waits_for: Cell<u32>,
    /// Set in the engine's own threads: their waits are not counted.
    background: Cell<bool>,
    /// The time of the last read of `schedstat`, and its result.
    looked_ns: Cell<u64>,
    looked: Cell<Option<(u64, u64)>>,
}

/// No stripe is assigned.
const NO_STRIPE: usize = usize::MAX;

thread_local! {
    static THREAD: Thread = const {
        Thread {
            depth: Cell::new(0),
            stripe: Cell::new(NO_STRIPE),
            began_ns: Cell::new(0),
            waited_ns: [const { Cell::new(0) }; CLASSES],
            noted_ns: Cell::new(0),
            noted_before_ns: Cell::new(0),
            latch_ns: Cell::new(0),
            latch_of: Cell::new((PageId(0), 0)),
            waits_for: Cell::new(0),
            background: Cell::new(false),
            looked_ns: Cell::new(0),
            looked: Cell::new(None),
        }
    };
}

/// A wait in progress on this thread. Its drop ends it, also in a panic.
struct Within<'w> {
    /// The classes of the waits around this one, as bits.
    outer: u32,
    /// The class's waits in progress and this wait's amount in them, for a foreground thread.
    under_way: Option<(&'w UnderWay, u64)>,
}

impl<'w> Within<'w> {
    fn enter(class: WaitClass, outer: u32, of: &'w UnderWay, now_ns: u64) -> Within<'w> {
        let is_background = THREAD.with(|thread| {
            thread.waits_for.set(outer | 1 << class as u32);
            thread.background.get()
        });
        Within { outer, under_way: (!is_background).then(|| (of, of.begin(now_ns))) }
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.waits_for.set(self.outer));
        if let Some((of, one)) = self.under_way {
            of.end(one);
        }
    }
}

/// Marks this thread as one of the engine's own: its waits are not counted from here on.
pub(crate) fn enter_background() {
    THREAD.with(|thread| thread.background.set(true));
}

/// Whether the operations ahead waited for a resource for at least half of a wait, which then counts for it, too.
pub(crate) fn is_half(ahead_us: u64, wait_ns: u64) -> bool {
    ahead_us * 2_000 >= wait_ns.max(1)
}

/// Records this thread's wait for the latch of `page`, which is `level` levels above the leaves.
pub(crate) fn note_latch(page: PageId, level: u8, ns: u64) {
    THREAD.with(|thread| {
        if ns > thread.latch_ns.get() {
            thread.latch_ns.set(ns);
            thread.latch_of.set((page, level));
        }
    });
}

/// The time for which this thread's operation has waited in a class, directly or behind others.
#[derive(Clone, Copy)]
pub(crate) struct Waited {
    class: WaitClass,
    ns: u64,
}

impl Waited {
    pub(crate) fn on(class: WaitClass) -> Waited {
        Waited { class, ns: THREAD.with(|thread| thread.waited_ns[class as usize].get()) }
    }

    /// Microseconds of waiting in this class since `self` was taken.
    pub(crate) fn elapsed_us(self) -> u32 {
        u32::try_from((Waited::on(self.class).ns.saturating_sub(self.ns)) / 1_000).unwrap_or(u32::MAX)
    }
}

/// An operation in progress on this thread.
#[must_use]
pub(crate) struct Operation<'w> {
    waits: &'w Waits,
    kind: OperationKind,
}

impl Waits {
    /// No waits yet; operations of at least `stall_threshold` are stalls.
    pub(crate) fn new(stall_threshold: Duration) -> Waits {
        let class = |_| Class {
            count: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            times_us: Mutex::new(
                Rank::Waits,
                Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are in order"),
            ),
            under_way: UnderWay::default(),
        };
        let stall_threshold_ns = nanos(stall_threshold);
        Waits {
            classes: WaitClass::ALL.map(class),
            operations: Operations::new(),
            missed: AtomicU64::new(0),
            stall_threshold_ns: AtomicU64::new(stall_threshold_ns),
            stall_count: AtomicU64::new(0),
            stalls: Mutex::new(Rank::Waits, VecDeque::new()),
            slowest: Mutex::new(Rank::Waits, Vec::new()),
            remembered_from_ns: AtomicU64::new(stall_threshold_ns.min(1)),
            opened_ns: clock::coarse_ns(),
        }
    }

    /// Runs `wait` and records its duration. Nested waits of other classes are recorded under their own class and
    /// subtracted. A wait nested in one of the same class is part of that one, and is not recorded.
    pub(crate) fn timed<T>(&self, class: WaitClass, wait: impl FnOnce() -> T) -> T {
        self.timed_if(class, || (true, wait()))
    }

    /// As [`timed`](Self::timed), for a `wait` that returns whether it did wait.
    pub(crate) fn timed_if<T>(&self, class: WaitClass, wait: impl FnOnce() -> (bool, T)) -> T {
        self.timed_as(class, wait, |_| class)
    }

    /// As [`timed_if`](Self::timed_if), but `class_of` chooses the class afterwards, from the wait's nanoseconds.
    pub(crate) fn timed_as<T>(
        &self,
        class: WaitClass,
        wait: impl FnOnce() -> (bool, T),
        class_of: impl FnOnce(u64) -> WaitClass,
    ) -> T {
        let bit = 1_u32 << class as u32;
        let outer = THREAD.with(|thread| thread.waits_for.get());
        if outer & bit != 0 {
            return wait().1;
        }
        let noted_ns = || THREAD.with(|thread| thread.noted_ns.get());
        let (noted_before_ns, began_ns) = (noted_ns(), clock::now_ns());
        let within = Within::enter(class, outer, &self.classes[class as usize].under_way, began_ns);
        let (waited, result) = wait();
        drop(within);
        if waited {
            let inside_ns = noted_ns() - noted_before_ns;
            let ns = clock::now_ns().saturating_sub(began_ns).saturating_sub(inside_ns);
            self.note(class_of(ns), ns);
        }
        result
    }

    fn note(&self, class: WaitClass, ns: u64) {
        let index = class as usize;
        let background = THREAD.with(|thread| {
            let waited = &thread.waited_ns[index];
            waited.set(waited.get() + ns);
            thread.noted_ns.set(thread.noted_ns.get() + ns);
            thread.background.get()
        });
        if background {
            return;
        }
        let class = &self.classes[index];
        class.count.fetch_add(1, Ordering::Relaxed);
        class.total_ns.fetch_add(ns, Ordering::Relaxed);
        class.longest_ns.fetch_max(ns, Ordering::Relaxed);
        class.times_us.lock().saturating_record(ns / 1000);
    }

    /// Begins an operation, which ends when the returned guard is dropped.
    pub(crate) fn operation(&self, kind: OperationKind) -> Operation<'_> {
        THREAD.with(|thread| {
            let depth = thread.depth.get();
            thread.depth.set(depth + 1);
            if depth > 0 {
                return;
            }
            let now = clock::coarse_ns();
            thread.began_ns.set(now);
            if now != thread.looked_ns.get() {
                thread.looked_ns.set(now);
                thread.looked.set(schedstat());
            }
            // Few operations wait: without a wait since the last operation began, the times are still zero.
            if thread.noted_before_ns.get() != thread.noted_ns.get() {
                thread.waited_ns.iter().for_each(|waited| waited.set(0));
                thread.noted_before_ns.set(thread.noted_ns.get());
            }
            thread.latch_ns.set(0);
        });
        Operation { waits: self, kind }
    }

    /// The number of operations of this kind that have ended.
    pub(crate) fn operations(&self, kind: OperationKind) -> u64 {
        self.operations.count(kind)
    }

    /// The number of operations that waited for a page's read.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// The slowest operation of each of the last seconds, to a few milliseconds. Reading takes nothing out.
    pub(crate) fn slowest_by_second(&self) -> Slowest {
        self.operations.slowest(clock::coarse_ns())
    }

    /// The waits so far, for each class.
    pub(crate) fn summary(&self) -> Vec<WaitSummary> {
        let now_ns = clock::now_ns();
        let summary = |(class, of): (WaitClass, &Class)| {
            let times = of.times_us.lock();
            let (waiting, waiting_us) = of.under_way.now(now_ns);
            WaitSummary {
                class,
                count: of.count.load(Ordering::Relaxed),
                total: Duration::from_nanos(of.total_ns.load(Ordering::Relaxed)),
                p99: Duration::from_micros(times.value_at_quantile(0.99)),
                longest: Duration::from_nanos(of.longest_ns.load(Ordering::Relaxed)),
                waiting,
                waiting_for: Duration::from_micros(waiting_us),
                stalls: of.stalls.load(Ordering::Relaxed),
            }
        };
        WaitClass::ALL.into_iter().zip(&self.classes).map(summary).collect()
    }

    /// Per class: waits in progress, the sum of their microseconds, and stalls at least half of whose time it took.
    pub(crate) fn by_class(&self) -> [(u64, u64, u64); CLASSES] {
        let now_ns = clock::now_ns();
        self.classes.each_ref().map(|of| {
            let (waiting, waiting_us) = of.under_way.now(now_ns);
            (waiting, waiting_us, of.stalls.load(Ordering::Relaxed))
        })
    }

    /// For each class the pairs (microseconds, number of waits that took as long), to three digits, the shortest first.
    pub(crate) fn recorded(&self) -> [Vec<(u64, u64)>; CLASSES] {
        self.classes.each_ref().map(|of| {
            let times = of.times_us.lock();
            times.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
        })
    }

    /// The distribution of the waits of one class.
    pub(crate) fn times(&self, class: WaitClass) -> WaitTimes {
        let of = &self.classes[class as usize];
        let times = of.times_us.lock();
        let mut counts = [0; BOUNDS_US.len()];
        for recorded in times.iter_recorded() {
            let first = BOUNDS_US.partition_point(|bound| *bound < recorded.value_iterated_to());
            counts[first..].iter_mut().for_each(|count| *count += recorded.count_at_value());
        }
        let total_us = of.total_ns.load(Ordering::Relaxed) / 1000;
        WaitTimes { count: times.len(), total_us, buckets: BOUNDS_US.into_iter().zip(counts).collect() }
    }

    /// Memory in bytes, mostly of the histograms.
    pub(crate) fn memory_budget(&self) -> u64 {
        let times = |class: &Class| to_u64(class.times_us.lock().distinct_values() * size_of::<u64>());
        self.classes.iter().map(times).sum()
    }

    /// The number of stalls, and the last of them.
    pub(crate) fn stalls(&self) -> (u64, Vec<Stall>) {
        (self.stall_count.load(Ordering::Relaxed), self.stalls.lock().iter().cloned().collect())
    }

    /// Takes the slowest operations since the last call, slowest first. Operations that began and ended within one tick
    /// of the coarse clock are not among them.
    pub(crate) fn take_slowest(&self) -> Vec<Stall> {
        let mut slowest = self.slowest.lock();
        self.remembered_from_ns.store(self.stall_threshold_ns().min(1), Ordering::Relaxed);
        std::mem::take(&mut slowest)
    }

    /// The duration from which an operation is a stall.
    pub(crate) fn stall_threshold(&self) -> Duration {
        Duration::from_nanos(self.stall_threshold_ns())
    }

    fn stall_threshold_ns(&self) -> u64 {
        // Relaxed: an operation that ends during a change may be measured by the old or the new value.
        self.stall_threshold_ns.load(Ordering::Relaxed)
    }

    /// Makes operations of at least `threshold` stalls from now on; the recorded ones stay.
    pub(crate) fn set_stall_threshold(&self, threshold: Duration) {
        let slowest = self.slowest.lock();
        self.stall_threshold_ns.store(nanos(threshold), Ordering::Relaxed);
        self.remember_from(&slowest);
    }

    /// Sets the duration below which an operation is neither a stall nor slower than the last of `slowest`.
    fn remember_from(&self, slowest: &[Stall]) {
        let from_ns = slowest.get(SLOWEST_KEPT - 1).map_or(1, |least| nanos(least.elapsed).saturating_add(1));
        self.remembered_from_ns.store(from_ns.min(self.stall_threshold_ns()), Ordering::Relaxed);
    }

    fn remember(&self, stall: Stall, elapsed_ns: u64) {
        if elapsed_ns >= self.stall_threshold_ns() {
            self.stall_count.fetch_add(1, Ordering::Relaxed);
            // Counts all stalls, not only the kept ones.
            for (class, _) in stall.waits.iter().filter(|(_, time)| 2 * nanos(*time) >= elapsed_ns) {
                self.classes[*class as usize].stalls.fetch_add(1, Ordering::Relaxed);
            }
            let mut stalls = self.stalls.lock();
            if stalls.len() == STALLS_KEPT {
                stalls.pop_front();
            }
            stalls.push_back(stall.clone());
        }
        self.remember_slowest(stall);
    }

    fn remember_slowest(&self, stall: Stall) {
        let mut slowest = self.slowest.lock();
        let place = slowest.partition_point(|other| other.elapsed >= stall.elapsed);
        slowest.insert(place, stall);
        slowest.truncate(SLOWEST_KEPT);
        self.remember_from(&slowest);
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let slow = THREAD.with(|thread| {
            let depth = thread.depth.get() - 1;
            thread.depth.set(depth);
            // The waits have a finer clock: a missed tick must not make the operation shorter than its waits.
            let waited_ns = thread.noted_ns.get() - thread.noted_before_ns.get();
            let now = clock::coarse_ns();
            let elapsed = now.saturating_sub(thread.began_ns.get()).max(waited_ns);
            if depth > 0 || thread.background.get() {
                return None;
            }
            if thread.stripe.get() == NO_STRIPE {
                thread.stripe.set(next_stripe());
            }
            self.waits.operations.ended(self.kind, thread.stripe.get(), now, elapsed);
            if waited_ns > 0 && thread.waited_ns[WaitClass::PageRead as usize].get() > 0 {
                self.waits.missed.fetch_add(1, Ordering::Relaxed);
            }
            let is_slow = elapsed >= self.waits.remembered_from_ns.load(Ordering::Relaxed);
            is_slow.then_some((now, elapsed, waited_ns))
        });
        if let Some((now, elapsed, waited_ns)) = slow {
            self.was_slow(now, elapsed, waited_ns);
        }
    }
}

impl Operation<'_> {
    /// Records a slowest operation or a stall. A function of its own, so that the path of all operations stays short.
    #[cold]
    fn was_slow(&self, now: u64, elapsed: u64, waited_ns: u64) {
        let stall = THREAD.with(|thread| {
            let waited = thread.waited_ns.each_ref().map(Cell::get);
            let waits = WaitClass::ALL.into_iter().zip(waited).filter(|(_, ns)| *ns > 0);
            let since = |(cpu, runnable): (u64, u64)| {
                let (cpu_before, runnable_before) = thread.looked.get()?;
                let cpu = cpu.saturating_sub(cpu_before).min(elapsed - waited_ns);
                let runnable = runnable.saturating_sub(runnable_before).min(elapsed - waited_ns - cpu);
                Some((Duration::from_nanos(cpu), Duration::from_nanos(runnable)))
            };
            let (latch_ns, (page, level)) = (thread.latch_ns.get(), thread.latch_of.get());
            Stall {
                operation: self.kind.name(),
                elapsed: Duration::from_nanos(elapsed),
                ended: Duration::from_nanos(now.saturating_sub(self.waits.opened_ns)),
                waits: waits.map(|(class, ns)| (class, Duration::from_nanos(ns))).collect(),
                cpu: schedstat().and_then(since),
                latch: (latch_ns > 0).then(|| LatchWait::new(page, level, latch_ns)),
            }
        });
        self.waits.remember(stall, elapsed);
    }
}

const _: () = assert!(WaitClass::RecentClosed as usize + 1 == CLASSES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiter_is_seen_during_its_wait_and_not_afterwards() {
        let waits = Waits::new(Duration::from_secs(1));
        let waiting = |class: WaitClass| waits.summary()[class as usize].waiting;
        let seen = waits.timed(WaitClass::Lane, || {
            waits
                .timed(WaitClass::LogSpace, || [WaitClass::Lane, WaitClass::LogSpace, WaitClass::PageRead].map(waiting))
        });
        assert_eq!(seen, [1, 1, 0]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            waits.timed(WaitClass::Lane, || std::panic::resume_unwind(Box::new(())))
        }));
        assert!(panicked.is_err());
        assert_eq!([WaitClass::Lane, WaitClass::LogSpace].map(waiting), [0, 0]);
    }

    #[test]
    fn a_slow_operation_tells_what_it_waited_for() {
        let waits = Waits::new(Duration::from_millis(20));
        let slow = waits.operation(OperationKind::Get);
        let inner = waits.operation(OperationKind::Scan);
        waits.timed(WaitClass::PageRead, || std::thread::sleep(Duration::from_millis(30)));
        waits.timed(WaitClass::PageRead, || ());
        drop(inner);
        drop(slow);
        let counts = [OperationKind::Get, OperationKind::Scan].map(|kind| waits.operations(kind));
        assert_eq!(counts, [1, 0], "an operation inside of another is not counted");
        let slowest = waits.slowest_by_second();
        assert!(slowest.us.iter().max() >= Some(&30_000) && slowest == waits.slowest_by_second(), "{slowest:?}");
        let (count, stalls) = waits.stalls();
        assert_eq!((count, stalls.len()), (1, 1));
        let stall = &stalls[0];
        assert_eq!((stall.operation, stall.waits.len()), ("get", 1));
        assert!(stall.waits[0].0 == WaitClass::PageRead && stall.waits[0].1 >= Duration::from_millis(30));
        assert!(stall.to_string().contains("get took") && stall.to_string().contains("page_read"), "{stall}");
        let read = waits.summary()[WaitClass::PageRead as usize];
        assert_eq!((read.class, read.count), (WaitClass::PageRead, 2));
        assert!(read.longest >= Duration::from_millis(29) && read.total >= read.longest);
    }

    #[test]
    fn longest_latch_is_of_the_operation_itself() {
        let waits = Waits::new(Duration::from_nanos(1));
        let wait = |page: u64, ms: u64| {
            waits.timed(WaitClass::PageLatch, || std::thread::sleep(Duration::from_millis(ms)));
            note_latch(PageId(page), 2, ms * 1_000_000);
        };
        wait(1, 30);
        let outer = waits.operation(OperationKind::Write);
        [(2, 3), (3, 9), (4, 5)].into_iter().for_each(|(page, ms)| wait(page, ms));
        drop(outer);
        let next = waits.operation(OperationKind::Get);
        waits.timed(WaitClass::Lane, || std::thread::sleep(Duration::from_millis(2)));
        drop(next);
        let latches: Vec<_> = waits.stalls().1.into_iter().map(|stall| stall.latch).collect();
        assert_eq!(latches, [Some(LatchWait::new(PageId(3), 2, 9_000_000)), None]);
    }

    #[test]
    fn parts_of_an_operation_are_never_more_than_the_whole() {
        let spin = |ms: u64| {
            let until_ns = clock::now_ns() + ms * 1_000_000;
            while clock::now_ns() < until_ns {
                std::hint::spin_loop();
            }
        };
        // From the first operation on, the thread has a `schedstat` reading, which the CPU used before the second one
        // adds to.
        let waits = Waits::new(Duration::from_millis(10));
        drop(waits.operation(OperationKind::Get));
        spin(3);
        let slow = waits.operation(OperationKind::Write);
        waits.timed(WaitClass::FreeFrame, || {
            spin(30);
            waits.timed(WaitClass::LogFlush, || spin(40));
        });
        drop(slow);
        let stalls = waits.stalls().1;
        assert_eq!(stalls.len(), 1);
        let stall = &stalls[0];
        let waited: Duration = stall.waits.iter().map(|(_, time)| *time).sum();
        let (cpu, runnable) = stall.cpu.unwrap_or_default();
        assert!(waited + cpu + runnable <= stall.elapsed, "{stall:?}");
        assert!(waited >= Duration::from_millis(70), "{stall:?}");
        let [frame, log] = [WaitClass::FreeFrame, WaitClass::LogFlush].map(|class| waits.summary()[class as usize]);
        assert!(frame.total >= Duration::from_millis(30) && log.total >= Duration::from_millis(40));
        assert_eq!(frame.total + log.total, waited, "neither is counted twice");
    }

    #[test]
    fn nested_wait_of_a_class_counts_once_and_no_wait_not_at_all() {
        let waits = Waits::new(Duration::from_secs(1));
        let nap = || std::thread::sleep(Duration::from_millis(2));
        waits.timed(WaitClass::LogSpace, || {
            waits.timed(WaitClass::LogSpace, nap);
            waits.timed(WaitClass::PageRead, || waits.timed(WaitClass::LogSpace, nap));
        });
        waits.timed_if(WaitClass::Lane, || (false, ()));
        let of = |class: WaitClass| waits.summary()[class as usize];
        let counts = [WaitClass::LogSpace, WaitClass::PageRead, WaitClass::Lane].map(|class| of(class).count);
        assert_eq!(counts, [1, 1, 0]);
        assert!(of(WaitClass::LogSpace).total >= Duration::from_millis(2));
        assert!(of(WaitClass::PageRead).total >= Duration::from_millis(2));
        waits.timed(WaitClass::LogSpace, || ());
        assert_eq!(of(WaitClass::LogSpace).count, 2, "afterwards it is recorded again");
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            waits.timed(WaitClass::Lane, || panic!("inside"));
        }));
        waits.timed(WaitClass::Lane, || ());
        assert!(caught.is_err() && of(WaitClass::Lane).count == 1, "also after a panic");
    }

    #[test]
    fn times_are_counted_up_to_each_bound() {
        let waits = Waits::new(Duration::from_secs(1));
        for us in [0, 9, 10, 11, 100_000, 20_000_000] {
            waits.note(WaitClass::Lane, us * 1000);
        }
        let times = waits.times(WaitClass::Lane);
        assert_eq!((times.count, times.total_us), (6, 20_100_030));
        let at = |bound| times.buckets.iter().find(|(of, _)| *of == bound).expect("a bound").1;
        assert_eq!([10, 100, 1_000_000, 10_000_000].map(at), [3, 4, 5, 5]);
        assert_eq!(waits.times(WaitClass::FileGrowth).count, 0);
    }

    /// An operation that took `ms` milliseconds.
    fn stall(ms: u64) -> Stall {
        Stall {
            operation: "get",
            elapsed: Duration::from_millis(ms),
            ended: Duration::ZERO,
            waits: Vec::new(),
            cpu: None,
            latch: None,
        }
    }

    #[test]
    fn the_slowest_are_kept_in_order_and_forgotten_when_taken() {
        let waits = Waits::new(Duration::from_millis(50));
        for ms in [3, 40, 1, 60, 7, 5, 2, 9, 8, 30] {
            waits.remember(stall(ms), ms * 1_000_000);
        }
        assert_eq!(waits.remembered_from_ns.load(Ordering::Relaxed), 3_000_001);
        assert_eq!(waits.take_slowest(), [60, 40, 30, 9, 8, 7, 5, 3].map(stall));
        assert_eq!((waits.take_slowest(), waits.remembered_from_ns.load(Ordering::Relaxed)), (Vec::new(), 1));
        assert_eq!(waits.stalls(), (1, vec![stall(60)]), "the other operations are no stalls");
    }

    #[test]
    fn another_threshold_counts_from_then_on() {
        let waits = Waits::new(Duration::from_millis(50));
        let (remember, from) =
            (|ms| waits.remember(stall(ms), ms * 1_000_000), || waits.remembered_from_ns.load(Ordering::Relaxed));
        (0..8).for_each(|_| remember(49));
        waits.set_stall_threshold(Duration::from_millis(10));
        assert_eq!((waits.stalls().0, from()), (0, 10_000_000), "no operation is a stall");
        remember(10);
        assert_eq!(waits.stalls(), (1, vec![stall(10)]));
        waits.set_stall_threshold(Duration::from_secs(3600));
        assert_eq!(from(), 49_000_001, "the least of the slowest");
        remember(70);
        assert_eq!(waits.stalls(), (1, vec![stall(10)]), "recorded stalls stay");
    }

    #[test]
    fn names_and_order_agree() {
        for (index, class) in WaitClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
            assert!(class.name().chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        }
    }
}
