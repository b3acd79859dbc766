//! Tests of the latch word, in a file of their own because a checked model compiles the word with other primitives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lock_api::RwLock;

use super::latch::Latch;

#[test]
fn writers_exclude_all_and_readers_only_writers() {
    let latch = RwLock::<Latch, u64>::new(0);
    let one = latch.try_read().expect("free");
    let two = latch.try_read().expect("shared");
    assert!(latch.try_write().is_none());
    drop((one, two));
    let writer = latch.try_write().expect("free");
    assert!(latch.try_read().is_none() && latch.try_write().is_none());
    drop(writer);
    assert!(latch.try_read().is_some());
}

/// A reader that comes after a parked writer waits for it, however many readers hold the latch.
#[test]
fn new_readers_do_not_overtake_a_parked_writer() {
    let latch = RwLock::<Latch, Vec<&'static str>>::new(Vec::new());
    std::thread::scope(|scope| {
        let held = latch.read();
        scope.spawn(|| latch.write().push("writer"));
        while latch.try_read().is_some() {
            std::thread::yield_now();
        }
        let late = scope.spawn(|| latch.read().clone());
        // Gives a reader that overtakes the writer time to do so.
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        drop(held);
        assert_eq!(late.join().expect("no panic"), ["writer"]);
    });
}

/// Two counters that differ only while a writer is at work.
#[test]
fn no_reader_sees_half_of_a_change_and_no_wait_is_endless() {
    let latch = Arc::new(RwLock::<Latch, [u64; 2]>::new([0; 2]));
    let seen = Arc::new(AtomicU64::new(0));
    let turns = if cfg!(miri) { 50 } else { 20_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..turns {
                    let mut pair = latch.write();
                    pair[0] += 1;
                    std::hint::black_box(&mut pair);
                    pair[1] += 1;
                }
            });
            scope.spawn(|| {
                for _ in 0..turns {
                    let pair = latch.read();
                    assert_eq!(pair[0], pair[1]);
                    seen.fetch_max(pair[0], Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(*latch.read(), [3 * turns; 2]);
}
