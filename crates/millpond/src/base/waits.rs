//! Every wait has a name and is timed; a slow operation tells where its time went.
//!
//! LAW-1  Who parks holds no page latch, but for another latch in the order of latches.
//! LAW-4  Every park of the foreground is counted under its class, once, however often its thread woke.
//!
//! Fast operations pay for two looks at a coarse clock. A thread's share of CPU, and of waiting for one, is read from
//! its `schedstat` at most every few milliseconds, and at the end of a slow operation: so `cpu` and `runnable` of a
//! stall may begin as much earlier than the stall.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::aligned::to_u64;
use super::clock;
use super::sync::Mutex;

/// What a thread waits for. Every park names its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitClass {
    /// A free frame of the buffer pool, or leave to miss pages; ended by whoever frees one (the keeper, mostly).
    FreeFrame,
    /// Room in the log's buffer or files; ended by the flush leader or the checkpoint.
    LogSpace,
    /// The log being durable up to a commit; ended by the flush leader. The leader's own write and sync.
    LogFlush,
    /// A page's read from the device, one's own or another thread's; ended by that thread.
    PageRead,
    /// A page's latch; ended by whoever holds it, who waits for nothing but another latch below.
    PageLatch,
    /// A checkpoint that was asked for; ended by the keeper.
    Checkpoint,
    /// The lane of one; ended by the operation that is in it.
    Lane,
    /// Another thread's creation or dropping of a tree, or operations on a tree that is dropped; ended when they are
    /// through.
    Metadata,
    /// Room in the data files; ended by the thread that makes them grow, one's own or another.
    FileGrowth,
    /// The keeper's own wait for work, or for a sync; ended by the bell or its deadline, or the thread that syncs.
    Keeper,
}

impl WaitClass {
    /// All of them, in the order of their declaration.
    pub const ALL: [WaitClass; 10] = [
        WaitClass::FreeFrame,
        WaitClass::LogSpace,
        WaitClass::LogFlush,
        WaitClass::PageRead,
        WaitClass::PageLatch,
        WaitClass::Checkpoint,
        WaitClass::Lane,
        WaitClass::Metadata,
        WaitClass::FileGrowth,
        WaitClass::Keeper,
    ];

    /// The name that reports use, such as `free_frame`.
    pub fn name(self) -> &'static str {
        match self {
            WaitClass::FreeFrame => "free_frame",
            WaitClass::LogSpace => "log_space",
            WaitClass::LogFlush => "log_flush",
            WaitClass::PageRead => "page_read",
            WaitClass::PageLatch => "page_latch",
            WaitClass::Checkpoint => "checkpoint",
            WaitClass::Lane => "lane",
            WaitClass::Metadata => "metadata",
            WaitClass::FileGrowth => "file_growth",
            WaitClass::Keeper => "keeper",
        }
    }
}

const CLASSES: usize = WaitClass::ALL.len();

/// Slow operations that are remembered.
const STALLS_KEPT: usize = 256;

/// How many waits of a class there were, and how long they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitSummary {
    /// What was waited for.
    pub class: WaitClass,
    /// Waits that have ended.
    pub count: u64,
    /// Their time together.
    pub total: Duration,
    /// The time that 99 of 100 did not exceed, to three digits.
    pub p99: Duration,
    /// The longest.
    pub longest: Duration,
}

/// A slow operation, and where its time went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// Which operation.
    pub operation: &'static str,
    /// How long it took, to a few milliseconds.
    pub elapsed: Duration,
    /// What it waited for, and how long; classes without a wait are left out.
    pub waits: Vec<(WaitClass, Duration)>,
    /// CPU that its thread used, and the time for which it was runnable and had none; `None` where the system does not
    /// tell.
    pub cpu: Option<(Duration, Duration)>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "{} took {:.0} ms:", self.operation, ms(self.elapsed))?;
        for (class, time) in &self.waits {
            write!(f, " {} {:.1} ms", class.name(), ms(*time))?;
        }
        match self.cpu {
            Some((cpu, runnable)) => write!(f, " cpu {:.1} ms runnable {:.1} ms", ms(cpu), ms(runnable)),
            None => Ok(()),
        }
    }
}

struct Class {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
    times_us: Mutex<Histogram<u64>>,
}

/// The waits of one database.
pub(crate) struct Waits {
    classes: [Class; CLASSES],
    stall_threshold_ns: u64,
    stall_count: AtomicU64,
    stalls: Mutex<VecDeque<Stall>>,
}

/// What a thread knows about the operation that it is in.
struct Thread {
    /// How many operations it is in, one inside of the other.
    depth: Cell<u32>,
    began_ns: Cell<u64>,
    waited_ns: [Cell<u64>; CLASSES],
    /// Work of the engine's own, which nobody waits for as such.
    background: Cell<bool>,
    /// When `schedstat` was read last, and what it said.
    looked_ns: Cell<u64>,
    looked: Cell<Option<(u64, u64)>>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            depth: Cell::new(0),
            began_ns: Cell::new(0),
            waited_ns: [const { Cell::new(0) }; CLASSES],
            background: Cell::new(false),
            looked_ns: Cell::new(0),
            looked: Cell::new(None),
        }
    };
}

/// Nanoseconds for which this thread ran, and for which it was runnable and did not.
fn schedstat() -> Option<(u64, u64)> {
    // Opened each time: a file kept open in each thread would be too many for a process of many threads.
    let mut text = [0; 64];
    let len = File::open("/proc/thread-self/schedstat").ok()?.read_at(&mut text, 0).ok()?;
    let mut numbers = str::from_utf8(&text[..len]).ok()?.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// From here on what this thread waits for is the engine's own affair.
pub(crate) fn enter_background() {
    THREAD.with(|thread| thread.background.set(true));
}

/// An operation under way on this thread.
#[must_use]
pub(crate) struct Operation<'w> {
    waits: &'w Waits,
    name: &'static str,
}

impl Waits {
    /// None yet; operations of `stall_threshold` and longer are remembered.
    pub(crate) fn new(stall_threshold: Duration) -> Waits {
        let class = |_| Class {
            count: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
            times_us: Mutex::new(Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are in order")),
        };
        Waits {
            classes: WaitClass::ALL.map(class),
            stall_threshold_ns: u64::try_from(stall_threshold.as_nanos()).unwrap_or(u64::MAX),
            stall_count: AtomicU64::new(0),
            stalls: Mutex::new(VecDeque::new()),
        }
    }

    /// Runs `wait`, and notes how long it took.
    pub(crate) fn timed<T>(&self, class: WaitClass, wait: impl FnOnce() -> T) -> T {
        let began = clock::now_ns();
        let result = wait();
        self.note(class, clock::now_ns().saturating_sub(began));
        result
    }

    fn note(&self, class: WaitClass, ns: u64) {
        let index = class as usize;
        let background = THREAD.with(|thread| {
            let waited = &thread.waited_ns[index];
            waited.set(waited.get() + ns);
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

    /// Begins an operation; it ends when what is returned is dropped.
    pub(crate) fn operation(&self, name: &'static str) -> Operation<'_> {
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
            thread.waited_ns.iter().for_each(|waited| waited.set(0));
        });
        Operation { waits: self, name }
    }

    /// The waits so far, by class.
    pub(crate) fn summary(&self) -> Vec<WaitSummary> {
        let summary = |(class, of): (WaitClass, &Class)| {
            let times = of.times_us.lock();
            WaitSummary {
                class,
                count: of.count.load(Ordering::Relaxed),
                total: Duration::from_nanos(of.total_ns.load(Ordering::Relaxed)),
                p99: Duration::from_micros(times.value_at_quantile(0.99)),
                longest: Duration::from_nanos(of.longest_ns.load(Ordering::Relaxed)),
            }
        };
        WaitClass::ALL.into_iter().zip(&self.classes).map(summary).collect()
    }

    /// Bytes that this takes: mostly the histograms.
    pub(crate) fn memory_budget(&self) -> u64 {
        let times = |class: &Class| to_u64(class.times_us.lock().distinct_values() * size_of::<u64>());
        self.classes.iter().map(times).sum()
    }

    /// How many operations were slow, and the last of them.
    pub(crate) fn stalls(&self) -> (u64, Vec<Stall>) {
        (self.stall_count.load(Ordering::Relaxed), self.stalls.lock().iter().cloned().collect())
    }

    fn remember(&self, stall: Stall) {
        self.stall_count.fetch_add(1, Ordering::Relaxed);
        let mut stalls = self.stalls.lock();
        if stalls.len() == STALLS_KEPT {
            stalls.pop_front();
        }
        stalls.push_back(stall);
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let stall = THREAD.with(|thread| {
            let depth = thread.depth.get() - 1;
            thread.depth.set(depth);
            let elapsed = clock::coarse_ns().saturating_sub(thread.began_ns.get());
            if depth > 0 || elapsed < self.waits.stall_threshold_ns || thread.background.get() {
                return None;
            }
            let waited = thread.waited_ns.each_ref().map(Cell::get);
            let waits = WaitClass::ALL.into_iter().zip(waited).filter(|(_, ns)| *ns > 0);
            let since = |(cpu, runnable): (u64, u64)| {
                let (cpu_before, runnable_before) = thread.looked.get()?;
                let (cpu, runnable) = (cpu.saturating_sub(cpu_before), runnable.saturating_sub(runnable_before));
                Some((Duration::from_nanos(cpu), Duration::from_nanos(runnable)))
            };
            Some(Stall {
                operation: self.name,
                elapsed: Duration::from_nanos(elapsed),
                waits: waits.map(|(class, ns)| (class, Duration::from_nanos(ns))).collect(),
                cpu: schedstat().and_then(since),
            })
        });
        if let Some(stall) = stall {
            self.waits.remember(stall);
        }
    }
}

const _: () = assert!(WaitClass::Keeper as usize + 1 == CLASSES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_operation_tells_what_it_waited_for() {
        let waits = Waits::new(Duration::from_millis(20));
        let slow = waits.operation("get");
        let inner = waits.operation("inner");
        waits.timed(WaitClass::PageRead, || std::thread::sleep(Duration::from_millis(30)));
        waits.timed(WaitClass::PageRead, || ());
        drop(inner);
        drop(slow);
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
    fn names_and_order_agree() {
        for (index, class) in WaitClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
            assert!(class.name().chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        }
    }
}
