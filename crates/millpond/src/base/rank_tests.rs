//! Tests of the order of mutexes, in a file of their own because checked models compile the ranks with other mutexes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::handoff::Handoff;
use super::rank::Rank;
use super::sync::{Condvar, Mutex, RwLock, Turn};
use super::waits::{WaitClass, Waits};

/// The message with which `work` panics; `None`: it did not panic.
fn refused(work: impl FnOnce()) -> Option<String> {
    catch_unwind(AssertUnwindSafe(work)).err().map(|panic| *panic.downcast::<String>().expect("a message"))
}

#[test]
fn a_mutex_is_waited_for_with_earlier_ones_held_only() {
    let turn: Turn<()> = Turn::new(Rank::Ddl, ());
    let [outer, inner]: [Mutex<()>; 2] = [Rank::Log, Rank::DirtyCounts].map(|rank| Mutex::new(rank, ()));
    assert_eq!(refused(|| drop((turn.lock(), outer.lock(), inner.lock()))), None);
    assert_eq!(refused(|| drop((inner.lock(), outer.try_lock(), turn.try_lock()))), None, "a try does not wait");
    for later in [&inner, &Mutex::new(Rank::Log, ())] {
        let why = refused(|| drop((later.lock(), outer.lock()))).expect("refused");
        assert!(why.contains("RANK-1: Log"), "{why}");
    }
    assert!(refused(|| drop((outer.lock(), turn.lock()))).is_some(), "a thread that waits for a turn holds no mutex");
    assert_eq!(refused(|| drop((outer.lock(), inner.lock()))), None, "a refused mutex is not held");
}

#[test]
fn thread_that_waits_for_anything_else_holds_no_mutex() {
    let turn: Turn<()> = Turn::new(Rank::Ddl, ());
    let [mutex, own]: [Mutex<()>; 2] = [Rank::Store, Rank::Bell].map(|rank| Mutex::new(rank, ()));
    let (latch, condition, waits) = (RwLock::new(()), Condvar::new(), Waits::new(std::time::Duration::from_secs(1)));
    let hand = || {
        let handoff = Handoff::new();
        handoff.give(());
        handoff
    };
    let park = |guard| drop(condition.wait(guard, "a test"));
    assert_eq!(refused(|| drop((turn.lock(), latch.read()))), None);
    assert_eq!(refused(|| drop((turn.lock(), hand().take_wait(WaitClass::Lane, &waits)))), None);
    assert_eq!(refused(|| drop((mutex.lock(), latch.try_write()))), None, "a try does not wait");
    let waits: [&dyn Fn(); 4] = [&|| drop(latch.read()), &|| drop(latch.write()), &|| park(own.lock()), &|| {
        hand().take_wait(WaitClass::Lane, &waits)
    }];
    for wait in waits {
        let why = refused(|| drop((mutex.lock(), wait()))).expect("refused");
        assert!(why.contains("RANK-2"), "{why}");
    }
}
