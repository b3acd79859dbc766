//! Unit tests of the commit table, apart from its file because a model includes that file unchanged.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::commit_table::{CHUNK_LEN, Chunk, CommitTable, IN_FLIGHT};
use crate::base::ids::{Lsn, TxnId};

/// A table with these ids given out.
fn table(first: u64, last: u64) -> CommitTable {
    let table = CommitTable::default();
    table.open(TxnId(first), Lsn(100));
    (Chunk::number_of(TxnId(first))..=Chunk::number_of(TxnId(last))).for_each(|number| {
        table.chunk_to_use(TxnId(number * CHUNK_LEN));
    });
    table
}

#[test]
fn neighbours_have_values_of_their_own_on_different_lines() {
    let chunk = Chunk::new(3);
    let at = |place: u64| std::ptr::from_ref(chunk.value(TxnId(3 * CHUNK_LEN + place))).addr();
    let places: BTreeSet<usize> = (0..CHUNK_LEN).map(at).collect();
    assert_eq!(places.len() as u64, CHUNK_LEN);
    assert!((1..CHUNK_LEN).all(|place| at(place).abs_diff(at(place - 1)) >= 64));
}

#[test]
fn transactions_end_once_and_commits_are_shown() {
    let table = table(10, 20);
    assert!(table.has_ended(TxnId(9)) && !table.has_ended(TxnId(10)) && !table.has_ended(TxnId(9_999)));
    let chunk = table.chunk(TxnId(10)).unwrap();
    chunk.commit(TxnId(10), Lsn(500));
    chunk.end(TxnId(10));
    chunk.end(TxnId(11));
    assert_eq!(table.last_visible(), Lsn(100), "no thread has seen the commit");
    let committed = [9, 10, 11, 12].map(|txn| table.committed(TxnId(txn)));
    assert_eq!(committed, [Some((Lsn(0), Lsn(0))), Some((Lsn(500), Lsn(500))), None, None]);
    assert_eq!([10, 11].map(|txn| table.is_visible_at(TxnId(txn), Lsn(499))), [false, false]);
    assert_eq!([9, 10, 11, 12].map(|txn| table.is_visible_at(TxnId(txn), Lsn(500))), [true, true, false, false]);
    assert!(table.has_ended(TxnId(11)) && table.has_ended(TxnId(10)));
    assert_eq!(table.last_visible(), Lsn(500), "COMMIT-2");
    table.show(Lsn(400));
    assert_eq!(table.last_visible(), Lsn(500));
}

#[test]
fn floor_is_the_oldest_in_flight_and_chunks_below_it_leave() {
    let last = 3 * CHUNK_LEN;
    let table = table(CHUNK_LEN - 2, last);
    assert_eq!(table.floor(Lsn(u64::MAX)), TxnId(CHUNK_LEN - 2));
    let first = table.chunk(TxnId(CHUNK_LEN - 2)).unwrap();
    first.commit(TxnId(CHUNK_LEN - 2), Lsn(800));
    assert_eq!(table.floor(Lsn(799)), TxnId(CHUNK_LEN - 2), "a snapshot does not see it");
    assert_eq!(table.floor(Lsn(800)), TxnId(CHUNK_LEN - 1));
    for txn in (CHUNK_LEN - 2..last).filter(|txn| *txn != 2 * CHUNK_LEN + 7) {
        table.chunk(TxnId(txn)).unwrap().end(TxnId(txn));
    }
    assert_eq!(table.floor(Lsn(u64::MAX)), TxnId(2 * CHUNK_LEN + 7));
    assert!(table.chunk(TxnId(2 * CHUNK_LEN - 1)).is_none() && table.chunk(TxnId(2 * CHUNK_LEN)).is_some());
    assert!(table.has_ended(TxnId(CHUNK_LEN)) && !table.has_ended(TxnId(2 * CHUNK_LEN + 7)));
    table.chunk(TxnId(2 * CHUNK_LEN + 7)).unwrap().commit(TxnId(2 * CHUNK_LEN + 7), Lsn(900));
    assert_eq!((table.floor(Lsn(u64::MAX)), table.last_visible()), (TxnId(last), Lsn(100)), "the next to be given out");
    assert_eq!(table.chunk_to_use(TxnId(last + CHUNK_LEN)).number(), 4);
    assert!(table.chunk(TxnId(last + CHUNK_LEN)).is_some());
}

/// Ids of three chunks, each committed at 1,000 and its number, but for some that leave no rows.
fn three_chunks() -> CommitTable {
    let table = table(7, 3 * CHUNK_LEN);
    for txn in 7..3 * CHUNK_LEN {
        let chunk = table.chunk(TxnId(txn)).unwrap();
        match txn % 50 {
            0 => chunk.end(TxnId(txn)),
            _ => chunk.commit(TxnId(txn), Lsn(1_000 + txn)),
        }
    }
    table.show(Lsn(1_000 + 3 * CHUNK_LEN));
    table
}

#[test]
fn ended_chunks_become_one_part_between_live_snapshots() {
    let table = three_chunks();
    assert_eq!(table.len(), (4, 0));
    // One snapshot in the middle of the second chunk, one before all.
    let middle = 1_000 + CHUNK_LEN + 77;
    table.put_together(|(from, to)| !(from.0..to.0).contains(&middle));
    assert_eq!(table.len(), (2, 2), "the first chunk, the second with values, the third, and the last under way");
    let visible = |txn: u64, at: u64| table.is_visible_at(TxnId(txn), Lsn(at));
    assert!(!visible(8, 500) && visible(8, middle) && !visible(2 * CHUNK_LEN + 9, middle));
    assert!(visible(CHUNK_LEN + 77, middle) && !visible(CHUNK_LEN + 78, middle));
    assert!(table.has_ended(TxnId(8)) && !table.has_ended(TxnId(3 * CHUNK_LEN)));
    // That snapshot goes: all three are one part, and stay so.
    for _ in 0..2 {
        table.put_together(|(from, to)| !(from.0..to.0).contains(&500));
        assert_eq!(table.len(), (1, 1));
    }
    assert!(!visible(8, 500) && !visible(2 * CHUNK_LEN + 9, 500));
    assert!(visible(8, 1_000 + 3 * CHUNK_LEN) && visible(2 * CHUNK_LEN + 9, 1_000 + 3 * CHUNK_LEN));
    assert_eq!(table.floor(Lsn(500)), TxnId(7));
    assert_eq!(table.chunk_to_use(TxnId(4 * CHUNK_LEN)).number(), 4);
    assert_eq!(table.floor(Lsn(u64::MAX)), TxnId(3 * CHUNK_LEN), "in one step");
    assert_eq!(table.len(), (2, 0));
}

#[test]
fn chunks_with_undone_or_unfinished_ids_stay_alone() {
    let table = three_chunks();
    let (third, fourth) = (2 * CHUNK_LEN + 1, 3 * CHUNK_LEN);
    table.chunk_to_use(TxnId(fourth));
    let undone = |txn: u64| table.chunk(TxnId(txn)).unwrap().value(TxnId(txn)).store(IN_FLIGHT, Ordering::Relaxed);
    undone(third);
    table.put_together(|_| true);
    assert_eq!(table.len(), (2, 1), "one is in flight there");
    table.end_loser(TxnId(third));
    table.put_together(|_| true);
    assert_eq!(table.len(), (2, 1), "a reader may have a copy of an undone row");
    assert!(table.committed(TxnId(third)).is_none() && !table.is_visible_at(TxnId(third), Lsn(u64::MAX)));
    assert_eq!(table.floor(Lsn(u64::MAX)), TxnId(fourth));
}

#[test]
fn losers_hold_the_floor_until_they_are_undone() {
    let table = table(9_000, 9_000);
    // The last one has a number in the chunk of the first id of this process.
    for loser in [70, 5_000, 8_500] {
        table.add_loser(TxnId(loser));
    }
    let ended = [8_499, 8_500, 8_501, 8_999, 9_000].map(|txn| table.has_ended(TxnId(txn)));
    assert_eq!(ended, [true, false, true, true, false]);
    table.end_loser(TxnId(8_500));
    assert!(table.has_ended(TxnId(8_500)), "at once");
    assert_eq!(table.floor(Lsn(u64::MAX)), TxnId(70));
    assert!(table.has_ended(TxnId(69)) && table.has_ended(TxnId(71)), "older ids than the open's have ended");
    assert!(!table.has_ended(TxnId(70)) && !table.has_ended(TxnId(5_000)));
    table.end_loser(TxnId(70));
    assert_eq!((table.floor(Lsn(u64::MAX)), table.has_ended(TxnId(70))), (TxnId(5_000), true));
    table.end_loser(TxnId(5_000));
    assert_eq!(table.floor(Lsn(u64::MAX)), TxnId(9_000));
    table.end_loser(TxnId(9_000));
    assert_eq!(table.floor(Lsn(u64::MAX)), TxnId(9_001), "one of this process");
}

/// Threads take ids, end them and ask for the floor, while others look at any id.
#[test]
fn floor_never_passes_a_transaction_that_is_in_flight() {
    const EACH: u64 = 3 * CHUNK_LEN;
    let table = table(1, 1);
    let ids = std::sync::Mutex::new(1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for turn in 0..EACH {
                    let (txn, chunk) = {
                        let mut next = ids.lock().unwrap();
                        let txn = TxnId(*next);
                        *next += 1;
                        (txn, table.chunk_to_use(txn))
                    };
                    assert_eq!((chunk.number(), table.has_ended(txn)), (Chunk::number_of(txn), false));
                    assert!(turn % 7 != 0 || table.floor(Lsn(u64::MAX)) <= txn);
                    chunk.commit(txn, Lsn(1_000 + txn.0));
                    assert!(table.has_ended(txn) && table.last_visible() >= Lsn(1_000 + txn.0));
                }
            });
        }
    });
    assert_eq!(table.floor(Lsn(u64::MAX)), TxnId(2 * EACH + 1));
    assert_eq!(table.last_visible(), Lsn(1_000 + 2 * EACH));
}
