//! Long values: in chunks, which are rows of a tree of their own beside their tree (ROW-3).
//!
//! CHUNKS-1  A batch that gives a row a long value has its chunks among its changes, and one that takes a row's long
//!           value away has their deletion: so rows and chunks agree whenever a batch is there or is not, for readers,
//!           after a failure and after a crash.
//! CHUNKS-2  Who reads chunks holds nothing that keeps them. If some are missing, the row has another value by now, or
//!           none; or else that is damage.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use foldhash::fast::FixedState;
use typed_arena::Arena;

use super::batch::{Change, Op};
use super::ddl::have_chunks;
use super::engine::Engine;
use super::plan::{conflict, shown};
use super::tree::{Role, TreeState};
use crate::base::aligned::to_usize;
use crate::base::error::Error;
use crate::base::ids::{SpaceId, TxnId};
use crate::base::page::layout::HEADER_LEN;
use crate::base::page::view::entry_len;
use crate::base::row::{COLD, HEAD_LEN, REFERENCE_LEN, Reference, Row};
use crate::btree::descent::{Restarts, Target, leaf_read};
use crate::btree::scan::{Elsewhere, ReadAhead, RowRef, Rows, leaf_forward};
use crate::txn::before::before;

/// Chunks that a leaf holds.
const CHUNKS_A_LEAF: usize = 4;

/// Bytes of a chunk: so many that a leaf holds four, with their stamps, the fences, and what inserts leave free.
fn chunk_len(page_size: usize) -> usize {
    let left = page_size - HEADER_LEN - 2 * REFERENCE_LEN - CHUNKS_A_LEAF * HEAD_LEN;
    left / CHUNKS_A_LEAF - entry_len(REFERENCE_LEN, HEAD_LEN)
}

/// Bytes of a leaf that a load fills with chunks, at most: four of them, and room for the stamps of their deletion.
pub(super) fn full_leaf(page_size: usize) -> usize {
    page_size - CHUNKS_A_LEAF * (HEAD_LEN - COLD.len())
}

/// Key and piece of each chunk of a long value.
pub(super) fn chunks_of(
    reference: Reference,
    value: &[u8],
    page_size: usize,
) -> impl Iterator<Item = ([u8; REFERENCE_LEN], &[u8])> {
    (0..).zip(value.chunks(chunk_len(page_size))).map(move |(index, chunk)| (reference.chunk_key(index), chunk))
}

fn chunk_count(reference: Reference, page_size: usize) -> u32 {
    let chunk_len = u32::try_from(chunk_len(page_size)).unwrap_or(u32::MAX);
    reference.len.div_ceil(chunk_len)
}

/// Memory for keys of chunks, and references; none as long as there are none.
pub(super) type Bytes = OnceCell<Arena<[u8; REFERENCE_LEN]>>;

/// What a batch with long values, or on rows with long values, has to do beside what it was asked for.
pub(super) struct LongValues<'a> {
    bytes: &'a Bytes,
    page_size: usize,
    /// Long values that the batch takes away, whose chunks it deletes.
    replaced: HashSet<(SpaceId, Reference), FixedState>,
}

impl<'a> LongValues<'a> {
    pub(super) fn new(bytes: &'a Bytes, page_size: usize) -> LongValues<'a> {
        LongValues { bytes, page_size, replaced: HashSet::default() }
    }

    fn keep(&self, bytes: [u8; REFERENCE_LEN]) -> &'a [u8] {
        self.bytes.get_or_init(Arena::new).alloc(bytes)
    }

    /// Whether the batch deletes the chunks of `reference`, of a row in `space`.
    pub(super) fn replaces(&self, space: SpaceId, reference: Reference) -> bool {
        self.replaced.contains(&(space, reference))
    }

    /// Takes long values out of `ops`, which are in the order of their keys and of the transaction `txn`: rows get
    /// references, chunks are inserted; what is expected to be a long value is compared with it here.
    pub(super) fn expand(&mut self, engine: &Engine, ops: &mut Cow<'_, [Op<'a>]>, txn: TxnId) -> Result<(), Error> {
        let mut expanded: Vec<Op<'a>> = Vec::with_capacity(ops.len());
        let mut number = 0;
        for of_key in ops.chunk_by(|one, next| one.tree.space == next.tree.space && one.key == next.key) {
            if of_key.iter().all(|op| op.value_len() <= engine.limits.value) {
                expanded.extend_from_slice(of_key);
                continue;
            }
            let last = of_key.iter().rposition(|op| !matches!(op.change, Change::Expect(_)));
            // What the key's value is, once the batch has said so.
            let mut known: Option<Option<&[u8]>> = None;
            for (at, op) in of_key.iter().enumerate() {
                match op.change {
                    Change::Expect(expected) => match known {
                        Some(value) if value == expected => {}
                        Some(_) => return Err(conflict(op)),
                        None => expanded.push(self.expectation(engine, op, expected)?),
                    },
                    Change::Delete => {
                        known = Some(None);
                        expanded.push(*op);
                    }
                    Change::Insert(value) | Change::Put(value) | Change::Update(value) => {
                        known = Some(Some(value));
                        // Any other is superseded.
                        if last == Some(at) && value.len() > engine.limits.value {
                            let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
                            let reference = Reference { txn, number, len };
                            number += 1;
                            self.insert_chunks(op, value, reference, &mut expanded);
                        } else {
                            expanded.push(*op);
                        }
                    }
                }
            }
        }
        sort(&mut expanded);
        *ops = Cow::Owned(expanded);
        Ok(())
    }

    /// `op` with a reference for its value, and the chunks.
    fn insert_chunks(&self, op: &Op<'a>, value: &'a [u8], reference: Reference, out: &mut Vec<Op<'a>>) {
        let bytes: &'a [u8] = self.keep(reference.to_bytes());
        let change = op.change.map(|_| bytes);
        out.push(Op { change, is_reference: true, ..*op });
        let Some(tree) = op.tree.chunks() else { return };
        for (key, chunk) in chunks_of(reference, value, self.page_size) {
            let key: &'a [u8] = self.keep(key);
            out.push(Op::new(tree, key, Change::Insert(chunk)));
        }
    }

    /// What `op` expects, which may be a long value: the reference to one that is the same.
    fn expectation(&self, engine: &Engine, op: &Op<'a>, expected: Option<&'a [u8]>) -> Result<Op<'a>, Error> {
        let Some(expected) = expected.filter(|value| value.len() > engine.limits.value) else { return Ok(*op) };
        loop {
            let Some(reference) = op.tree.find_reference(engine, op.key)? else { return Err(conflict(op)) };
            if to_usize(u64::from(reference.len)) != expected.len() {
                return Err(conflict(op));
            }
            match op.tree.long_value(engine, op.key, reference)? {
                Some(value) if value == expected => {
                    let bytes: &'a [u8] = self.keep(reference.to_bytes());
                    return Ok(Op { change: Change::Expect(Some(bytes)), is_reference: true, ..*op });
                }
                Some(_) => return Err(conflict(op)),
                None => {}
            }
        }
    }

    /// Adds to `ops` the deletion of the chunks of `reference`, which a row of `tree` has now.
    pub(super) fn delete_chunks(
        &mut self,
        tree: &'a Arc<TreeState>,
        reference: Reference,
        ops: &mut Vec<Op<'a>>,
    ) -> Result<(), Error> {
        let chunks = tree.chunks().ok_or_else(|| damaged(tree, reference, "there is no tree with chunks"))?;
        let count = if planted!("chunks_kept") { 0 } else { chunk_count(reference, self.page_size) };
        for index in 0..count {
            let key: &'a [u8] = self.keep(reference.chunk_key(index));
            ops.push(Op::new(chunks, key, Change::Delete));
        }
        self.replaced.insert((tree.space, reference));
        Ok(())
    }
}

/// Sorts by tree and key, rows of tables first; what happens to one key keeps its order.
pub(super) fn sort(ops: &mut [Op<'_>]) {
    let is_later = |tree: &TreeState| tree.role != Role::Rows && !planted!("rows_not_first");
    let place = |op: &Op<'_>| (is_later(op.tree), op.tree.space);
    ops.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.key.cmp(b.key)));
}

/// Sees to it that the trees of all long values in `ops` have a place for their chunks. Callers hold nothing. Returns
/// whether there are any, or are expected.
pub(super) fn have_places(engine: &Engine, ops: &[Op<'_>]) -> Result<bool, Error> {
    let mut any = false;
    for op in ops.iter().filter(|op| op.value_len() > engine.limits.value) {
        any = true;
        if !matches!(op.change, Change::Expect(_)) {
            have_chunks(engine, op.tree)?;
        }
    }
    Ok(any)
}

impl TreeState {
    /// The payload that is not in its leaf; `Some(None)`: there is no row. `None`: it is not there any more, so the row
    /// is to be read again. Callers hold the tree's gate.
    pub(super) fn find_elsewhere(
        &self,
        engine: &Engine,
        (key, here): RowRef<'_>,
        place: Elsewhere,
    ) -> Result<Option<Option<Vec<u8>>>, Error> {
        let reference = match place {
            Elsewhere::Before(stamp) => match before(&engine.core, &engine.txns, self.space, key, here, stamp)? {
                None => return Ok(None),
                Some(None) => return Ok(Some(None)),
                Some(Some(row)) => match row.reference {
                    None => return Ok(Some(Some(row.payload))),
                    Some(reference) => reference,
                },
            },
            Elsewhere::Chunks => Reference::from_bytes(here)
                .ok_or_else(|| Error::Bug("ROW-3: a row's reference has another length".into()))?,
        };
        Ok(self.long_value(engine, key, reference)?.map(Some))
    }

    /// The long value that the row of `key` has; `None`: it has another one by now (CHUNKS-2).
    fn long_value(&self, engine: &Engine, key: &[u8], reference: Reference) -> Result<Option<Vec<u8>>, Error> {
        for _ in 0..2 {
            if let Some(value) = self.read_chunks(engine, reference)? {
                return Ok(Some(value));
            }
            if self.find_reference(engine, key)? != Some(reference) {
                return Ok(None);
            }
        }
        Err(damaged(self, reference, &format!("the row {} has them", shown(key))))
    }

    /// The reference that the row of `key` has, the newest committed one.
    fn find_reference(&self, engine: &Engine, key: &[u8]) -> Result<Option<Reference>, Error> {
        let mut restarts = Restarts::new(&engine.core.pool);
        loop {
            match leaf_read(&engine.core, &self.root, Target::Key(key)) {
                Ok(page) => {
                    let Ok(index) = page.view().search(key) else { return Ok(None) };
                    let value = page.view().value(index);
                    let Some(row) = Row::decode(value) else { return Ok(None) };
                    let Some(stamp) = row.stamp.filter(|stamp| engine.txns.locks.is_in_flight(stamp.txn)) else {
                        return Ok(if row.is_deleted { None } else { row.reference() });
                    };
                    let value = value.to_vec();
                    drop(page);
                    restarts.begin_wait();
                    if let Some(row) = before(&engine.core, &engine.txns, self.space, key, &value, stamp)? {
                        return Ok(row.and_then(|row| row.reference));
                    }
                }
                Err(stop) => restarts.resolve(stop)?,
            }
        }
    }

    /// All chunks of `reference`, one behind the other; `None`: some are missing.
    fn read_chunks(&self, engine: &Engine, reference: Reference) -> Result<Option<Vec<u8>>, Error> {
        let Some(chunks) = self.chunks() else { return Ok(None) };
        let len = to_usize(u64::from(reference.len));
        // A damaged reference has no memory taken for it.
        let mut value = Vec::with_capacity(len.min(1 << 20));
        let count = chunk_count(reference, engine.core.store.page_size());
        let is_in_flight = |txn| engine.txns.locks.is_in_flight(txn);
        let upper = Bound::Excluded(reference.chunk_key(count).to_vec());
        let (mut lower, mut next) = (Bound::Included(reference.chunk_key(0).to_vec()), 0);
        let (mut ahead, mut rows) = (ReadAhead::new(engine.in_force.read_ahead_pages()), Rows::default());
        loop {
            let high = leaf_forward(&engine.core, &chunks.root, &is_in_flight, &lower, &upper, &mut ahead, &mut rows)?;
            if rows.resolve(|row, place| chunks.find_elsewhere(engine, row, place))?.is_none() {
                continue;
            }
            while let Some((key, chunk)) = rows.take_first() {
                if key != reference.chunk_key(next) {
                    return Ok(None);
                }
                value.extend_from_slice(chunk);
                next += 1;
            }
            match high {
                Some(high) => lower = Bound::Included(high),
                None => return Ok((value.len() == len).then_some(value)),
            }
        }
    }
}

#[cold]
fn damaged(tree: &TreeState, reference: Reference, what: &str) -> Error {
    let Reference { txn, number, len } = reference;
    let message = format!(
        "{tree}: of {len} bytes in chunks, written by transaction {txn} as its number {number}, some are missing, and {what}: put the row anew, or delete it; if `millpond check` finds more, restore the database from a backup"
    );
    Error::Corruption(message.into())
}

/// What is wrong with the long values of `tree`, whose chunks' tree has so many entries; the first few, in words.
pub(super) fn problems(engine: &Engine, tree: &TreeState, entries: u64) -> Result<Vec<String>, Error> {
    let (mut problems, mut missing, mut chunks, mut to_come) = (Vec::new(), 0u64, 0u64, 0u64);
    let (mut ahead, mut rows) = (ReadAhead::new(engine.in_force.read_ahead_pages()), Rows::default());
    let mut lower = Bound::Unbounded;
    loop {
        // At rest nothing is in flight.
        let next =
            leaf_forward(&engine.core, &tree.root, &|_| false, &lower, &Bound::Unbounded, &mut ahead, &mut rows)?;
        rows.resolve(|(key, here), _| {
            let Some(reference) = Reference::from_bytes(here) else { return Ok(Some(None)) };
            chunks += u64::from(chunk_count(reference, engine.core.store.page_size()));
            to_come += u64::from(reference.txn >= engine.core.store.txn_to_come());
            if tree.read_chunks(engine, reference)?.is_none() {
                missing += 1;
                if problems.len() < PROBLEMS_SHOWN {
                    problems.push(format!("{tree}: the long value of key {} lacks chunks", shown(key)));
                }
            }
            Ok(Some(None))
        })?;
        match next {
            Some(high) => lower = Bound::Included(high),
            None => break,
        }
    }
    if missing > PROBLEMS_SHOWN as u64 {
        problems.push(format!("{tree}: {missing} long values lack chunks, of which {PROBLEMS_SHOWN} are named"));
    }
    if to_come > 0 {
        problems.push(format!("{tree}: {to_come} long values are of transactions that are to come (ROW-3)"));
    }
    if missing == 0 && chunks != entries {
        problems.push(format!("{tree}: its long values have {chunks} chunks, and there are {entries}"));
    }
    Ok(problems)
}

/// Long values that a check names.
const PROBLEMS_SHOWN: usize = 10;
