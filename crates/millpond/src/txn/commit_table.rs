//! The commit table: which transactions have ended, and where in the log each commit is.
//!
//! COMMIT-1  A transaction's value changes once, from "in flight" to its CommitTs or to "no rows". The CommitTs is the
//!           end LSN of the group that commits the transaction. It is set inside the log's mutex, where the group gets
//!           its place, in every log mode. So whatever sees a transaction committed also sees all with an earlier
//!           CommitTs.
//! COMMIT-2  A thread that releases latches or row locks of a committed transaction has raised
//!           [`last_visible`](CommitTable::last_visible) to its CommitTs before. So has a thread that finds the
//!           CommitTs in the table.
//! COMMIT-3  Every id that was given out ends. The floor is the oldest id that has not ended, or that is not visible to
//!           each live snapshot. A chunk of ids below the floor leaves the table: an id without a chunk, and below the
//!           floor, has ended and is visible to all.
//!
//! Ids share chunks of 4,096 values. Neighbouring ids lie on different cache lines, since neighbours commit at the same
//! time. A chunk begins with all of its ids in flight, so that an id is in flight from the moment at which it is given
//! out. Readers take no mutex: they find a chunk through a list that is replaced as a whole (`ArcSwap`).
//!
//! The table begins at the open of the database. Older ids have ended, except for [losers](super::slots::Loser), which
//! are listed until they are undone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::base::aligned::to_usize;
use crate::base::ids::{Lsn, TxnId};
use crate::base::sync::{Mutex, Rank};

/// Values below the first CommitTs. The log begins behind them.
const IN_FLIGHT: u64 = 0;
const NO_ROWS: u64 = 1;

/// Ids in a chunk.
const CHUNK_LEN: u64 = 4096;

/// Ids whose values share a cache line: those whose distance is [`CHUNK_LEN`] divided by this.
const LINE_LEN: u64 = 8;

/// Values of 4,096 ids.
pub(super) struct Chunk {
    number: u64,
    values: Box<[AtomicU64]>,
}

impl Chunk {
    fn new(number: u64) -> Chunk {
        Chunk { number, values: (0..CHUNK_LEN).map(|_| AtomicU64::new(IN_FLIGHT)).collect() }
    }

    /// The number of the chunk of this id.
    pub(super) fn number_of(txn: TxnId) -> u64 {
        txn.0 / CHUNK_LEN
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn value(&self, txn: TxnId) -> &AtomicU64 {
        debug_assert_eq!(Chunk::number_of(txn), self.number);
        let lines = CHUNK_LEN / LINE_LEN;
        let place = txn.0 % CHUNK_LEN;
        &self.values[to_usize(place % lines * LINE_LEN + place / lines)]
    }

    /// COMMIT-1: the transaction is committed by the group that ends at `end`. Called inside the log's mutex.
    pub(super) fn commit(&self, txn: TxnId, end: Lsn) {
        // Release: a thread that sees the CommitTs sees what the transaction did before.
        self.value(txn).store(end.0, Ordering::Release);
    }

    /// The transaction leaves no rows: it changed nothing, or all its changes are undone. One that is committed stays
    /// so.
    pub(super) fn end(&self, txn: TxnId) {
        let _ = self.value(txn).compare_exchange(IN_FLIGHT, NO_ROWS, Ordering::Release, Ordering::Relaxed);
    }
}

/// The chunks of the table, whose numbers ascend without a gap.
struct Chunks {
    /// The first id of this process. It may be in the middle of a chunk: the ids before it there have no values.
    begin: TxnId,
    /// The number of the first chunk.
    first: u64,
    chunks: Vec<Arc<Chunk>>,
}

impl Chunks {
    fn get(&self, txn: TxnId) -> Option<&Arc<Chunk>> {
        let at = Chunk::number_of(txn).checked_sub(self.first).filter(|_| txn >= self.begin)?;
        self.chunks.get(to_usize(at))
    }
}

/// What changes the table's bounds has this.
#[derive(Default)]
struct Bounds {
    /// The oldest id of this process that is not known to have ended.
    next: u64,
    /// Transactions from before the open that have not ended.
    losers: BTreeSet<TxnId>,
}

/// The commit table of a database.
pub(crate) struct CommitTable {
    /// Replaced with `bounds` locked.
    chunks: ArcSwap<Chunks>,
    bounds: Mutex<Bounds>,
    /// All ids below this one have ended. Written with `bounds` locked.
    floor: AtomicU64,
    last_visible: AtomicU64,
}

impl Default for CommitTable {
    fn default() -> Self {
        CommitTable {
            chunks: ArcSwap::from_pointee(Chunks { begin: TxnId(0), first: 0, chunks: Vec::new() }),
            bounds: Mutex::new(Rank::Commits, Bounds::default()),
            floor: AtomicU64::default(),
            last_visible: AtomicU64::default(),
        }
    }
}

impl CommitTable {
    /// Begins the table at the first id that this process gives out; all before it have ended. The log ends at
    /// `log_end`. Called at open, before any transaction begins.
    pub(super) fn open(&self, first: TxnId, log_end: Lsn) {
        let mut bounds = self.bounds.lock();
        bounds.next = first.0;
        self.floor.store(first.0, Ordering::Release);
        self.chunks.store(Arc::new(Chunks { begin: first, first: Chunk::number_of(first), chunks: Vec::new() }));
        self.last_visible.fetch_max(log_end.0, Ordering::Release);
    }

    /// Notes a transaction from before the open that has not ended.
    pub(super) fn add_loser(&self, txn: TxnId) {
        let mut bounds = self.bounds.lock();
        bounds.losers.insert(txn);
        self.floor.fetch_min(txn.0, Ordering::AcqRel);
    }

    /// A loser is undone. It may be of this process, or from before the open.
    pub(super) fn end_loser(&self, txn: TxnId) {
        if !self.bounds.lock().losers.remove(&txn)
            && let Some(chunk) = self.chunk(txn)
        {
            chunk.end(txn);
        }
    }

    /// The chunk of an id, which is the highest given out so far. Callers hold the mutex under which ids are given out.
    pub(super) fn chunk_to_use(&self, txn: TxnId) -> Arc<Chunk> {
        self.chunk_numbered(Chunk::number_of(txn))
    }

    /// The chunk of this number, which the table has, or which comes behind its last one; made if the table does not
    /// have it. Callers hold the same mutex.
    pub(super) fn chunk_numbered(&self, number: u64) -> Arc<Chunk> {
        let _bounds = self.bounds.lock();
        let now = self.chunks.load();
        if let Some(chunk) = number.checked_sub(now.first).and_then(|at| now.chunks.get(to_usize(at))) {
            return Arc::clone(chunk);
        }
        let chunk = Arc::new(Chunk::new(number));
        let mut chunks = now.chunks.clone();
        chunks.push(Arc::clone(&chunk));
        debug_assert_eq!(now.first + chunks.len() as u64 - 1, number);
        self.chunks.store(Arc::new(Chunks { chunks, ..**now }));
        chunk
    }

    /// The chunk of an id, if the table has it.
    pub(super) fn chunk(&self, txn: TxnId) -> Option<Arc<Chunk>> {
        self.with_chunk(txn, |chunk| chunk.cloned())
    }

    fn with_chunk<R>(&self, txn: TxnId, look: impl FnOnce(Option<&Arc<Chunk>>) -> R) -> R {
        look(self.chunks.load().get(txn))
    }

    /// Whether a transaction has ended: committed, or without rows. One load for ids below the floor; else some 10 ns,
    /// without a mutex, but for ids from before the open while there are losers.
    pub(crate) fn has_ended(&self, txn: TxnId) -> bool {
        if txn.0 < self.floor.load(Ordering::Acquire) {
            return true;
        }
        match self.with_chunk(txn, |chunk| chunk.map(|chunk| chunk.value(txn).load(Ordering::Acquire))) {
            Some(IN_FLIGHT) => false,
            Some(NO_ROWS) => true,
            Some(commit) => {
                self.show(Lsn(commit));
                true
            }
            // Below the table, or of a chunk that has left it; or not given out yet.
            None => {
                let bounds = self.bounds.lock();
                txn.0 < bounds.next && !bounds.losers.contains(&txn)
            }
        }
    }

    /// COMMIT-2: raises [`last_visible`](Self::last_visible).
    pub(crate) fn show(&self, commit: Lsn) {
        // A look first: most find it raised already, and the line stays shared.
        if self.last_visible.load(Ordering::Acquire) < commit.0 {
            self.last_visible.fetch_max(commit.0, Ordering::AcqRel);
        }
    }

    /// A CommitTs at or after that of every transaction that any operation has seen as committed; at open the log's
    /// end.
    pub(crate) fn last_visible(&self) -> Lsn {
        Lsn(self.last_visible.load(Ordering::Acquire))
    }

    /// Whether the snapshot with the CommitTs `at`, which is live, sees what a transaction wrote.
    pub(crate) fn is_visible_at(&self, txn: TxnId, at: Lsn) -> bool {
        if txn.0 < self.floor.load(Ordering::Acquire) {
            return true;
        }
        match self.with_chunk(txn, |chunk| chunk.map(|chunk| chunk.value(txn).load(Ordering::Acquire))) {
            // NO_ROWS: a row that was undone since the reader copied it.
            Some(IN_FLIGHT | NO_ROWS) => false,
            Some(commit) => commit <= at.0,
            None => {
                let bounds = self.bounds.lock();
                txn.0 < bounds.next && !bounds.losers.contains(&txn)
            }
        }
    }

    /// Whether rows may have this transaction in their stamps, and so need its undo records: it is in flight or
    /// committed. If it is not, its rows have been undone.
    pub(crate) fn may_have_rows(&self, txn: TxnId) -> bool {
        match self.with_chunk(txn, |chunk| chunk.map(|chunk| chunk.value(txn).load(Ordering::Acquire))) {
            Some(value) => value != NO_ROWS,
            None => !self.has_ended(txn),
        }
    }

    /// The oldest id that has not ended, or whose commit is after `visible`; if there is none, the next to be given
    /// out. Goes on where the last call ended, so it costs one load for each id that has ended since. Chunks of ids
    /// below it leave the table. `visible` never falls from call to call.
    pub(crate) fn floor(&self, visible: Lsn) -> TxnId {
        let mut bounds = self.bounds.lock();
        let now = self.chunks.load();
        while let Some(chunk) = now.get(TxnId(bounds.next))
            && let value = chunk.value(TxnId(bounds.next)).load(Ordering::Acquire)
            && value != IN_FLIGHT
            && value <= visible.0.max(NO_ROWS)
        {
            bounds.next += 1;
        }
        let floor = bounds.losers.first().map_or(bounds.next, |loser| loser.0.min(bounds.next));
        // Before chunks leave: a reader that misses one looks at `bounds`.
        self.floor.store(floor, Ordering::Release);
        let gone = Chunk::number_of(TxnId(bounds.next)).saturating_sub(now.first);
        let gone = to_usize(gone).min(now.chunks.len());
        if gone > 0 {
            let chunks = now.chunks[gone..].to_vec();
            self.chunks.store(Arc::new(Chunks { first: now.first + gone as u64, chunks, ..**now }));
        }
        TxnId(floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!([9, 10, 11, 12].map(|txn| table.may_have_rows(TxnId(txn))), [false, true, false, true]);
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
        assert_eq!(
            (table.floor(Lsn(u64::MAX)), table.last_visible()),
            (TxnId(last), Lsn(100)),
            "the next to be given out"
        );
        assert_eq!(table.chunk_to_use(TxnId(last + CHUNK_LEN)).number(), 4);
        assert!(table.chunk(TxnId(last + CHUNK_LEN)).is_some());
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
}
