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
//! COMMIT-4  Chunks whose ids have all ended may share one part of the table, which has their lowest and their highest
//!           CommitTs: only if no live snapshot, and none to be taken, lies in [lowest, highest). Then each snapshot
//!           sees all of these transactions, or none.
//!
//! Ids share chunks of 4,096 values. Neighbouring ids lie on different cache lines, since neighbours commit at the same
//! time. A chunk begins with all of its ids in flight, so that an id is in flight from the moment at which it is given
//! out. Readers take no mutex: they find a chunk through a list that is replaced as a whole (`ArcSwap`).
//!
//! The table begins at the open of the database. Older ids have ended, except for [losers](super::work::Loser), which
//! are listed until they are undone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64 as Value, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use super::primitives::AtomicU64;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::{Lsn, TxnId};
use crate::base::sync::{Mutex, Rank};

/// Values below the first CommitTs. The log begins behind them.
pub(super) const IN_FLIGHT: u64 = 0;
/// The transaction never had rows.
const NO_ROWS: u64 = 1;
/// The rows of the transaction are undone. A reader may still have a copy of one.
const UNDONE: u64 = 2;

/// Ids in a chunk.
pub(super) const CHUNK_LEN: u64 = 4096;

/// Ids whose values share a cache line: those whose distance is [`CHUNK_LEN`] divided by this.
const LINE_LEN: u64 = 8;

/// Values of 4,096 ids.
pub(super) struct Chunk {
    number: u64,
    values: Box<[Value]>,
    /// The lowest and the highest CommitTs, once all ids have ended.
    range: OnceLock<(Lsn, Lsn)>,
}

impl Chunk {
    pub(super) fn new(number: u64) -> Chunk {
        Chunk { number, values: (0..CHUNK_LEN).map(|_| Value::new(IN_FLIGHT)).collect(), range: OnceLock::new() }
    }

    /// The number of the chunk of this id.
    pub(super) fn number_of(txn: TxnId) -> u64 {
        txn.0 / CHUNK_LEN
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn value(&self, txn: TxnId) -> &Value {
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

    /// The transaction changed nothing. One that is committed stays so.
    pub(super) fn end(&self, txn: TxnId) {
        self.end_as(txn, NO_ROWS);
    }

    fn end_as(&self, txn: TxnId, how: u64) {
        let _ = self.value(txn).compare_exchange(IN_FLIGHT, how, Ordering::Release, Ordering::Relaxed);
    }

    /// The lowest and the highest CommitTs, if all ids from `begin` on have ended, and none of them is undone.
    fn range(&self, begin: TxnId) -> Option<(Lsn, Lsn)> {
        if let Some(range) = self.range.get() {
            return Some(*range);
        }
        let first = self.number * CHUNK_LEN;
        let mut range = (Lsn(u64::MAX), Lsn::ZERO);
        // From the last on: it is the last one given out.
        for txn in (first.max(begin.0)..first + CHUNK_LEN).rev() {
            match self.value(TxnId(txn)).load(Ordering::Acquire) {
                IN_FLIGHT | UNDONE => return None,
                NO_ROWS => {}
                commit => range = (range.0.min(Lsn(commit)), range.1.max(Lsn(commit))),
            }
        }
        Some(*self.range.get_or_init(|| range))
    }
}

/// A part of the table.
#[derive(Clone)]
enum Part {
    Chunk(Arc<Chunk>),
    Ended(Ended),
}

/// Neighbouring chunks whose ids have all ended (COMMIT-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    /// Numbers of the first chunk, and of the one behind the last.
    chunks: (u64, u64),
    /// The lowest and the highest CommitTs.
    range: (Lsn, Lsn),
}

impl Ended {
    /// This one and the next as one.
    fn with(self, next: Ended) -> Ended {
        let range = (self.range.0.min(next.range.0), self.range.1.max(next.range.1));
        Ended { chunks: (self.chunks.0, next.chunks.1), range }
    }
}

impl Part {
    /// Numbers of the part's first chunk, and of the one behind its last.
    fn chunks(&self) -> (u64, u64) {
        match self {
            Part::Chunk(chunk) => (chunk.number, chunk.number + 1),
            Part::Ended(ended) => ended.chunks,
        }
    }
}

/// The parts of the table, whose chunks ascend without a gap.
#[derive(Clone)]
struct Parts {
    /// The first id of this process. It may be in the middle of a chunk: the ids before it there have no values.
    begin: TxnId,
    parts: Vec<Part>,
}

impl Parts {
    fn get(&self, txn: TxnId) -> Option<&Part> {
        if txn < self.begin { None } else { self.of_chunk(Chunk::number_of(txn)) }
    }

    fn of_chunk(&self, number: u64) -> Option<&Part> {
        let at = self.parts.partition_point(|part| part.chunks().1 <= number);
        self.parts.get(at).filter(|part| part.chunks().0 <= number)
    }
}

/// What the table says of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// It has no rows, or no more.
    NoRows,
    /// Its CommitTs is between these two, or is one that each snapshot sees. Each live snapshot is before both or sees
    /// both.
    Committed(Lsn, Lsn),
}

/// What changes the table's bounds has this.
#[derive(Default)]
struct Bounds {
    /// The oldest id of this process that is not known to have ended and to be visible to all.
    next: u64,
    /// Transactions from before the open that have not ended.
    losers: BTreeSet<TxnId>,
}

/// The commit table of a database.
pub(crate) struct CommitTable {
    /// Replaced with `bounds` locked.
    parts: ArcSwap<Parts>,
    bounds: Mutex<Bounds>,
    /// All ids below this one have ended, and are visible to all. Written with `bounds` locked.
    floor: AtomicU64,
    last_visible: AtomicU64,
}

impl Default for CommitTable {
    fn default() -> Self {
        CommitTable {
            parts: ArcSwap::from_pointee(Parts { begin: TxnId(0), parts: Vec::new() }),
            bounds: Mutex::new(Rank::Commits, Bounds::default()),
            floor: AtomicU64::new(0),
            last_visible: AtomicU64::new(0),
        }
    }
}

impl CommitTable {
    /// Begins the table at the first id that this process gives out; all before it have ended. The log ends at
    /// `log_end`. Called at open, before any transaction begins.
    pub(crate) fn open(&self, first: TxnId, log_end: Lsn) {
        let mut bounds = self.bounds.lock();
        bounds.next = first.0;
        self.floor.store(first.0, Ordering::Release);
        self.parts.store(Arc::new(Parts { begin: first, parts: Vec::new() }));
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
            chunk.end_as(txn, UNDONE);
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
        let now = self.parts.load();
        if let Some(Part::Chunk(chunk)) = now.of_chunk(number) {
            return Arc::clone(chunk);
        }
        debug_assert!(now.parts.last().is_none_or(|last| last.chunks().1 == number));
        let chunk = Arc::new(Chunk::new(number));
        let mut parts = Parts::clone(&now);
        parts.parts.push(Part::Chunk(Arc::clone(&chunk)));
        self.parts.store(Arc::new(parts));
        chunk
    }

    /// The chunk of an id, if the table has its values.
    pub(super) fn chunk(&self, txn: TxnId) -> Option<Arc<Chunk>> {
        match self.parts.load().get(txn) {
            Some(Part::Chunk(chunk)) => Some(Arc::clone(chunk)),
            Some(Part::Ended(_)) | None => None,
        }
    }

    /// The state of a transaction whose id is not below the floor.
    fn state(&self, txn: TxnId) -> State {
        match self.parts.load().get(txn) {
            Some(Part::Chunk(chunk)) => match chunk.value(txn).load(Ordering::Acquire) {
                IN_FLIGHT => State::InFlight,
                NO_ROWS | UNDONE => State::NoRows,
                commit => State::Committed(Lsn(commit), Lsn(commit)),
            },
            Some(Part::Ended(ended)) => State::Committed(ended.range.0, ended.range.1),
            None => {
                // Below the table, or of a chunk that has left it: visible to all. Or not given out yet.
                let bounds = self.bounds.lock();
                match txn.0 < bounds.next && !bounds.losers.contains(&txn) {
                    true => State::Committed(Lsn::ZERO, Lsn::ZERO),
                    false => State::InFlight,
                }
            }
        }
    }

    fn is_below_floor(&self, txn: TxnId) -> bool {
        txn.0 < self.floor.load(Ordering::Acquire)
    }

    /// Whether a transaction has ended: committed, or without rows. One load for ids below the floor; else some 10 ns,
    /// without a mutex, but for ids that have left the table while there is an older loser.
    pub(crate) fn has_ended(&self, txn: TxnId) -> bool {
        if self.is_below_floor(txn) {
            return true;
        }
        match self.state(txn) {
            State::InFlight => false,
            State::NoRows => true,
            State::Committed(_, last) => {
                self.show(last);
                true
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
        if self.is_below_floor(txn) {
            return true;
        }
        match self.state(txn) {
            // NoRows: a row that was undone since the reader copied it.
            State::InFlight | State::NoRows => false,
            State::Committed(_, last) => last <= at,
        }
    }

    /// The earliest and the latest moment at which a transaction may have been committed; `None`: it was not. Each live
    /// snapshot, and each to come, is before both or sees both.
    pub(crate) fn committed(&self, txn: TxnId) -> Option<(Lsn, Lsn)> {
        if self.is_below_floor(txn) {
            return Some((Lsn::ZERO, Lsn::ZERO));
        }
        match self.state(txn) {
            State::InFlight | State::NoRows => None,
            State::Committed(first, last) => {
                self.show(last);
                Some((first, last))
            }
        }
    }

    /// The oldest id that has not ended, or whose commit is after `visible`; if there is none, the next to be given
    /// out. Goes on where the last call ended, so it costs one load for each id that has ended since. Chunks of ids
    /// below it leave the table. `visible` never falls from call to call.
    pub(crate) fn floor(&self, visible: Lsn) -> TxnId {
        let mut bounds = self.bounds.lock();
        let now = self.parts.load();
        while let Some(part) = now.get(TxnId(bounds.next)) {
            let (value, behind) = match part {
                Part::Chunk(chunk) => (chunk.value(TxnId(bounds.next)).load(Ordering::Acquire), bounds.next + 1),
                Part::Ended(ended) => (ended.range.1.0.max(NO_ROWS), ended.chunks.1 * CHUNK_LEN),
            };
            if value == IN_FLIGHT || value > visible.0.max(UNDONE) {
                break;
            }
            bounds.next = behind;
        }
        let floor = bounds.losers.first().map_or(bounds.next, |loser| loser.0.min(bounds.next));
        // Before chunks leave: a reader that misses one looks at `bounds`.
        self.floor.store(floor, Ordering::Release);
        let number = Chunk::number_of(TxnId(bounds.next));
        let gone = now.parts.partition_point(|part| part.chunks().1 <= number);
        if gone > 0 {
            self.parts.store(Arc::new(Parts { begin: now.begin, parts: now.parts[gone..].to_vec() }));
        }
        TxnId(floor)
    }

    /// Puts neighbouring chunks together whose ids have all ended (COMMIT-4): beside an old snapshot the table would
    /// have eight bytes for each later transaction. `has_none_within` says whether no live snapshot, and none to be
    /// taken, lies in a range, its end not included. Costs some microseconds for each chunk that stays alone.
    pub(crate) fn put_together(&self, has_none_within: impl Fn((Lsn, Lsn)) -> bool) {
        let _bounds = self.bounds.lock();
        let now = self.parts.load();
        let mut parts: Vec<Part> = Vec::new();
        let mut shrinks = false;
        for part in &now.parts {
            let ended = match part {
                Part::Ended(ended) => Some(*ended),
                Part::Chunk(chunk) => {
                    let range = chunk.range(now.begin).filter(|range| has_none_within(*range));
                    range.map(|range| Ended { chunks: part.chunks(), range })
                }
            };
            shrinks |= ended.is_some() && matches!(part, Part::Chunk(_));
            match (parts.last_mut(), ended) {
                (Some(Part::Ended(last)), Some(next)) if has_none_within(last.with(next).range) => {
                    *last = last.with(next);
                    shrinks = true;
                }
                (_, Some(ended)) => parts.push(Part::Ended(ended)),
                (_, None) => parts.push(part.clone()),
            }
        }
        if shrinks {
            self.parts.store(Arc::new(Parts { begin: now.begin, parts }));
        }
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> u64 {
        self.len().0 * CHUNK_LEN * size_of::<u64>() as u64
    }

    /// Number of chunks with values, and of other parts.
    pub(super) fn len(&self) -> (u64, u64) {
        let now = self.parts.load();
        let chunks = now.parts.iter().filter(|part| matches!(part, Part::Chunk(_))).count();
        (to_u64(chunks), to_u64(now.parts.len() - chunks))
    }
}
