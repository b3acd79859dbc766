//! The latch word, `base/latch.rs` itself, under loom.
//!
//! Loom, because the word depends on memory order, and is small. Loom tries every order of steps, with a bounded number
//! of switches away from a thread that could go on, and every value that a relaxed load may see.
//!
//! | shown | by |
//! |---|---|
//! | readers or one writer; each sees the writes of the one before | loom's cell behind the latch |
//! | no wake-up is lost | loom reports threads none of which can go on |
//! | a fair wake-up hands the latch to the queue's front, past all others | [`Turns`] |
//! | readers do not pass a parked writer | [`pass`] |

#[path = "../../../millpond/src/planted.rs"]
#[macro_use]
mod planted;

#[path = "../../../millpond/src/base/latch.rs"]
mod latch;
mod primitives;

use std::cell::RefCell;
use std::sync::Arc;

use latch::Latch;
use lock_api::RwLock;
use loom::cell::UnsafeCell;
use loom::thread::ThreadId;
use primitives::{Flaw, Place, line, line_in_a_step};

/// The data behind the latch. Loom checks that no two threads reach it at once, and that each sees the writes before.
struct Guarded(UnsafeCell<u64>);

// SAFETY: it is reached only through the latch, as the model checks.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

/// The kinds of threads that pass through the latch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Reader,
    Writer,
    /// Leaves if it would have to wait.
    Trier,
}
use Client::{Reader, Trier, Writer};

/// Bounds of the exploration.
#[derive(Clone, Copy)]
struct Bounds {
    /// Switches away from a thread that could go on.
    preemptions: usize,
    /// This many first wake-ups are tried both fair and unfair.
    wakes: u32,
}

fn bounds() -> Bounds {
    if std::env::var_os("MILLPOND_FULL").is_some() {
        Bounds { preemptions: 3, wakes: 3 }
    } else {
        Bounds { preemptions: 2, wakes: 2 }
    }
}

fn explore(flaw: Flaw, fair: u32, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        primitives::begin(flaw, fair);
        model();
    });
}

type Shared = RwLock<Latch, Guarded>;

fn shared() -> Arc<Shared> {
    let latch: Arc<Shared> = Arc::new(RwLock::new(Guarded(UnsafeCell::new(0))));
    // Creates the word before other threads can see it.
    drop(latch.try_write());
    latch
}

/// Checks turns if every wake-up is fair.
///
/// The threads that waited when the latch was released have it next: no other thread may take it in between.
struct Turns {
    fair: bool,
}

/// The threads that may have the latch next.
#[derive(Default)]
struct Next {
    /// Empty: any thread may.
    threads: Vec<ThreadId>,
    /// Once readers have the latch, and no thread waits behind them, other readers may join.
    readers: bool,
}

thread_local! {
    static NEXT: RefCell<Next> = RefCell::default();
}

impl Turns {
    fn taken(&self, client: Client) {
        let next = NEXT.take();
        let free = next.threads.is_empty() || next.readers && client == Reader;
        assert!(free || next.threads.contains(&loom::thread::current().id()), "a thread took another's turn");
    }

    fn about_to_release(&self) {
        if !self.fair {
            return;
        }
        let line = line_in_a_step();
        if let Some(first) = line.first() {
            let readers = first.wants == primitives::DEFAULT_PARK_TOKEN;
            let group = line.iter().take(if readers { line.len() } else { 1 });
            let threads: Vec<_> =
                group.take_while(|place| place.wants == first.wants).map(|place| place.thread).collect();
            NEXT.set(Next { readers: readers && threads.len() == line.len(), threads });
        }
    }
}

/// Passes through the latch. Returns whether it wrote.
fn pass(latch: &Shared, client: Client, turns: &Turns) -> bool {
    if client == Reader {
        let before: Vec<Place> = line_in_a_step();
        let guard = latch.read();
        turns.taken(client);
        let now = line();
        assert!(before.iter().all(|place| !now.contains(place)), "a reader passed a thread that was parked before");
        // SAFETY: loom's cell checks that.
        guard.0.with(|value| assert!(unsafe { *value } <= 3));
        turns.about_to_release();
        return false;
    }
    let guard = if client == Writer { Some(latch.write()) } else { latch.try_write() };
    let Some(guard) = guard else { return false };
    turns.taken(client);
    // SAFETY: loom's cell checks that.
    guard.0.with_mut(|value| unsafe { *value += 1 });
    turns.about_to_release();
    true
}

/// Each of `threads` passes through the latch once, the first in the model's first thread. Each writer counts up.
fn crowd(flaw: Flaw, fair: u32, threads: &'static [Client]) {
    explore(flaw, fair, bounds().preemptions, move || {
        NEXT.take();
        let turns = || Turns { fair: fair == u32::MAX };
        let latch = shared();
        let start = |&client: &Client| {
            let (latch, turns) = (Arc::clone(&latch), turns());
            loom::thread::spawn(move || pass(&latch, client, &turns))
        };
        let others: Vec<_> = threads[1..].iter().map(start).collect();
        let mut written = u64::from(pass(&latch, threads[0], &turns()));
        for other in others {
            written += u64::from(other.join().expect("no panic"));
        }
        // SAFETY: loom's cell checks that.
        latch.write().0.with(|value| assert_eq!(unsafe { *value }, written));
    });
}

/// The same, with every choice of fair wake-ups among the first ones, and with all wake-ups fair.
fn crowds(flaw: Flaw, threads: &'static [Client]) {
    (0..1 << bounds().wakes).for_each(|fair| crowd(flaw, fair, threads));
    crowd(flaw, u32::MAX, threads);
}

#[test]
fn writers_exclude_each_other_and_all_get_through() {
    crowds(Flaw::None, &[Writer, Writer, Writer]);
}

#[test]
fn readers_and_a_writer_exclude_each_other_and_all_get_through() {
    crowds(Flaw::None, &[Reader, Writer, Reader]);
}

#[test]
fn writers_and_a_reader_exclude_each_other_and_all_get_through() {
    crowds(Flaw::None, &[Writer, Reader, Writer]);
}

#[test]
fn failed_try_leaves_no_waiter_asleep() {
    crowds(Flaw::None, &[Trier, Writer, Reader]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_release_that_orders_nothing_is_noticed() {
    crowds(Flaw::Unordered, &[Writer, Writer]);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_last_reader_that_does_not_vouch_for_the_others_is_noticed() {
    crowds(Flaw::ReadersUnordered, &[Reader, Writer, Reader]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_wake_up_is_noticed() {
    crowds(Flaw::WakeLost, &[Writer, Writer]);
}

#[test]
#[should_panic(expected = "deadlock")]
fn parking_without_a_last_look_is_noticed() {
    crowds(Flaw::NoLastLook, &[Writer, Writer]);
}
