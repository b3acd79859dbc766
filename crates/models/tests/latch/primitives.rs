//! Primitives of the model's latch: loom's atomics, and a queue of parked threads.
//!
//! `park` and `unpark_filter` keep the promises of `parking_lot_core`. The last check, the filter and the callback run
//! under the queue's lock, the queue is FIFO, and threads are woken after the lock's release.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use loom::sync::Mutex;
use loom::thread::{Thread, ThreadId};

pub(crate) use loom::sync::atomic::Ordering;
pub(crate) use parking_lot_core::{DEFAULT_PARK_TOKEN, FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken};

/// A flaw of these primitives, to see whether the model notices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// A release orders nothing that comes before it.
    Unordered,
    /// The last reader does not see the writes that the others saw.
    ReadersUnordered,
    /// The first wake-up is lost.
    WakeLost,
    /// A parking thread makes no last check.
    NoLastLook,
}

thread_local! {
    // A model's threads all run on the thread of its test.
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
    static FAIR: Cell<u32> = const { Cell::new(0) };
    static WAKES: Cell<u32> = const { Cell::new(0) };
    static PARKS: Cell<u32> = const { Cell::new(0) };
    // A copy of the queue, readable without a step of the model.
    static LINE: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

loom::lazy_static! {
    static ref PARKED: Mutex<VecDeque<Parked>> = Mutex::new(VecDeque::new());
}

/// A thread's place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// No two parks have the same number.
    number: u32,
    pub(crate) thread: ThreadId,
    pub(crate) wants: ParkToken,
}

struct Parked {
    key: usize,
    place: Place,
    thread: Thread,
    /// The token plus one; 0: not woken.
    woken: Arc<AtomicUsize>,
}

/// Begins an execution. Each bit of `fair`, from the lowest on, says whether that wake-up is a fair one.
pub(crate) fn begin(flaw: Flaw, fair: u32) {
    FLAW.set(flaw);
    FAIR.set(fair);
    WAKES.set(0);
    PARKS.set(0);
    LINE.with_borrow_mut(Vec::clear);
}

fn flawed(flaw: Flaw) -> bool {
    FLAW.get() == flaw
}

/// The queue, front first.
pub(crate) fn line() -> Vec<Place> {
    LINE.with_borrow(Vec::clone)
}

/// The same, as a step of the model: other threads may come before it, and it waits for a thread that changes the
/// queue.
pub(crate) fn line_in_a_step() -> Vec<Place> {
    PARKED.lock().expect("no thread panicked with it").iter().map(|parked| parked.place.clone()).collect()
}

fn note_line(queue: &VecDeque<Parked>) {
    LINE.set(queue.iter().map(|parked| parked.place.clone()).collect());
}

pub(crate) unsafe fn park(
    key: usize,
    validate: impl FnOnce() -> bool,
    before_sleep: impl FnOnce(),
    _timed_out: impl FnOnce(usize, bool),
    wants: ParkToken,
    deadline: Option<Instant>,
) -> ParkResult {
    assert!(deadline.is_none(), "the latch has no timer");
    let woken = Arc::new(AtomicUsize::new(0));
    {
        let mut queue = PARKED.lock().expect("no thread panicked with it");
        if !validate() && !flawed(Flaw::NoLastLook) {
            return ParkResult::Invalid;
        }
        let thread = loom::thread::current();
        let place = Place { number: PARKS.replace(PARKS.get() + 1), thread: thread.id(), wants };
        queue.push_back(Parked { key, place, thread, woken: Arc::clone(&woken) });
        note_line(&queue);
    }
    before_sleep();
    loop {
        match woken.load(Ordering::Relaxed) {
            0 => loom::thread::park(),
            token => return ParkResult::Unparked(UnparkToken(token - 1)),
        }
    }
}

pub(crate) unsafe fn unpark_filter(
    key: usize,
    mut filter: impl FnMut(ParkToken) -> FilterOp,
    callback: impl FnOnce(UnparkResult) -> UnparkToken,
) -> UnparkResult {
    let mut queue = PARKED.lock().expect("no thread panicked with it");
    let (mut woken, mut left, mut stopped) = (Vec::new(), VecDeque::new(), false);
    for parked in queue.drain(..) {
        let op = if stopped || parked.key != key { FilterOp::Skip } else { filter(parked.place.wants) };
        stopped |= op == FilterOp::Stop;
        if op == FilterOp::Unpark { woken.push(parked) } else { left.push_back(parked) }
    }
    *queue = left;
    note_line(&queue);
    let mut result = UnparkResult::default();
    result.unparked_threads = woken.len();
    result.have_more_threads = queue.iter().any(|parked| parked.key == key);
    if !woken.is_empty() {
        let nth = WAKES.replace(WAKES.get() + 1);
        result.be_fair = FAIR.get() >> nth.min(31) & 1 == 1;
    }
    let token = callback(result);
    drop(queue);
    if flawed(Flaw::WakeLost) && WAKES.get() == 1 {
        return result;
    }
    for parked in woken {
        parked.woken.store(token.0 + 1, Ordering::Relaxed);
        parked.thread.unpark();
    }
    result
}

/// Loom's atomic, made at its first use: the latch needs a constant.
pub(crate) struct AtomicU64 {
    first: u64,
    cell: OnceLock<loom::sync::atomic::AtomicU64>,
}

impl AtomicU64 {
    pub(crate) const fn new(first: u64) -> AtomicU64 {
        AtomicU64 { first, cell: OnceLock::new() }
    }

    fn cell(&self) -> &loom::sync::atomic::AtomicU64 {
        self.cell.get_or_init(|| loom::sync::atomic::AtomicU64::new(self.first))
    }

    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        self.cell().fetch_update(weaker(set), fetch, change)
    }

    pub(crate) fn compare_exchange(&self, old: u64, new: u64, set: Ordering, fetch: Ordering) -> Result<u64, u64> {
        self.cell().compare_exchange(old, new, weaker(set), fetch)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.cell().store(value, weaker(order));
    }
}

fn weaker(order: Ordering) -> Ordering {
    match (FLAW.get(), order) {
        (Flaw::Unordered, Ordering::Release) => Ordering::Relaxed,
        (Flaw::ReadersUnordered, Ordering::AcqRel) => Ordering::Release,
        _ => order,
    }
}
