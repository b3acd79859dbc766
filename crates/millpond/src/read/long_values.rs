//! Reads long values. Their chunks are rows of a tree of their own (ROW-3), at keys made from the row's [`Reference`].
//!
//! A reader holds nothing that keeps the chunks. If some are missing, it looks at the row again: either the row has
//! another value by now, or the database is damaged (CHUNKS-2).

use std::ops::Bound;

use crate::base::aligned::to_usize;
use crate::base::error::Error;
use crate::base::page::layout::HEADER_LEN;
use crate::base::page::view::entry_len;
use crate::base::quoted::quoted;
use crate::base::row::{HEAD_LEN, REFERENCE_LEN, Reference, Row, Stamp};
use crate::btree::descent::{Restarts, Target, leaf_read};
use crate::btree::scan::{Elsewhere, ReadAhead, RowRef, Rows, leaf_forward};
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::txn::before::{Before, Hidden, before};
use crate::txn::view::View;

/// Number of chunks that a leaf holds.
pub(crate) const CHUNKS_A_LEAF: usize = 4;

/// Most bytes of a chunk: a leaf holds four, with their stamps, the fences, and the room that inserts leave free.
pub(crate) fn chunk_len(page_size: usize) -> usize {
    let left = page_size - HEADER_LEN - 2 * REFERENCE_LEN - CHUNKS_A_LEAF * HEAD_LEN;
    left / CHUNKS_A_LEAF - entry_len(REFERENCE_LEN, HEAD_LEN)
}

/// Number of chunks of a long value.
pub(crate) fn chunk_count(reference: Reference, page_size: usize) -> u32 {
    let chunk_len = u32::try_from(chunk_len(page_size)).unwrap_or(u32::MAX);
    reference.len.div_ceil(chunk_len)
}

impl TreeState {
    /// Fetches a payload that is not in the row's leaf; `Some(None)`: there is no row. `None`: the payload is gone by
    /// now, so the row is to be read again. Callers hold the tree's gate.
    pub(crate) fn find_elsewhere(
        &self,
        engine: &Engine,
        (key, here): RowRef<'_>,
        place: Elsewhere,
        view: View,
    ) -> Result<Option<Option<Vec<u8>>>, Error> {
        let reference = match place {
            Elsewhere::Before(stamp) => match self.before(engine, (key, here), stamp, view)? {
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
        Ok(self.long_value(engine, key, reference, view)?.map(Some))
    }

    /// What the reader sees of the row of `key`, which was `value` a moment ago with a stamp that the view hides;
    /// `Some(None)`: no row. `None`: the row is to be read again.
    fn before(
        &self,
        engine: &Engine,
        (key, value): RowRef<'_>,
        stamp: Stamp,
        view: View,
    ) -> Result<Option<Option<Before>>, Error> {
        let mut was_missing = false;
        loop {
            match before(&engine.core, &engine.txns, self.space, key, value, stamp, view)? {
                Hidden::Row(row) => return Ok(Some(Some(row))),
                Hidden::NoRow => return Ok(Some(None)),
                Hidden::Again => return Ok(None),
                Hidden::Missing(error) => {
                    // While the row has this stamp, all records that it leads to stay.
                    if !planted!("cut_out_record_is_damage") && !self.is_still(engine, key, value)? {
                        return Ok(None);
                    }
                    if std::mem::replace(&mut was_missing, true) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Whether the row of `key` is `value`, with its stamp.
    fn is_still(&self, engine: &Engine, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        let mut restarts = Restarts::new(&engine.core.pool);
        loop {
            match leaf_read(&engine.core, &self.root, Target::Key(key)) {
                Ok(page) => {
                    let view = page.view();
                    return Ok(view.search(key).is_ok_and(|index| view.value(index) == value));
                }
                Err(stop) => restarts.resolve(stop)?,
            }
        }
    }

    /// The long value that `reference` names in the row of `key`; `None`: the row has another value by now (CHUNKS-2).
    pub(crate) fn long_value(
        &self,
        engine: &Engine,
        key: &[u8],
        reference: Reference,
        view: View,
    ) -> Result<Option<Vec<u8>>, Error> {
        for _ in 0..2 {
            if let Some(value) = self.read_chunks(engine, reference, view)? {
                return Ok(Some(value));
            }
            if self.find_reference(engine, key, view)? != Some(reference) {
                return Ok(None);
            }
        }
        Err(damaged(self, reference, &format!("the row {} has them", quoted(key))))
    }

    /// The reference in the newest committed row of `key`; `None`: there is no row, or its value is not in chunks.
    pub(crate) fn find_reference(&self, engine: &Engine, key: &[u8], view: View) -> Result<Option<Reference>, Error> {
        let mut restarts = Restarts::new(&engine.core.pool);
        loop {
            match leaf_read(&engine.core, &self.root, Target::Key(key)) {
                Ok(page) => {
                    let Ok(index) = page.view().search(key) else { return Ok(None) };
                    let value = page.view().value(index);
                    let Some(row) = Row::decode(value) else { return Ok(None) };
                    let Some(stamp) = row.stamp.filter(|stamp| engine.txns.hides(view, stamp.txn)) else {
                        return Ok(if row.is_deleted { None } else { row.reference() });
                    };
                    let value = value.to_vec();
                    drop(page);
                    restarts.begin_wait();
                    if let Some(row) = self.before(engine, (key, &value), stamp, view)? {
                        return Ok(row.and_then(|row| row.reference));
                    }
                }
                Err(stop) => restarts.resolve(stop)?,
            }
        }
    }

    /// All chunks of `reference`, concatenated; `None`: some are missing.
    fn read_chunks(&self, engine: &Engine, reference: Reference, view: View) -> Result<Option<Vec<u8>>, Error> {
        let Some(chunks) = self.chunks() else { return Ok(None) };
        let len = to_usize(u64::from(reference.len));
        // Bounded: a damaged reference may name any length.
        let mut value = Vec::with_capacity(len.min(1 << 20));
        let count = chunk_count(reference, engine.core.store.page_size());
        let hides = |txn| engine.txns.hides(view, txn);
        let upper = Bound::Excluded(reference.chunk_key(count).to_vec());
        let (mut lower, mut next) = (Bound::Included(reference.chunk_key(0).to_vec()), 0);
        let (mut ahead, mut rows) = (ReadAhead::new(engine.in_force.read_ahead_pages()), Rows::default());
        loop {
            let high = leaf_forward(&engine.core, &chunks.root, &hides, &lower, &upper, &mut ahead, &mut rows)?;
            if rows.resolve(|row, place| chunks.find_elsewhere(engine, row, place, view))?.is_none() {
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

/// The error for a long value that lacks chunks; `what` says why that is damage.
#[cold]
pub(crate) fn damaged(tree: &TreeState, reference: Reference, what: &str) -> Error {
    let Reference { txn, number, len } = reference;
    let message = format!(
        "{tree}: of {len} bytes in chunks, written by transaction {txn} as its number {number}, some are missing, and {what}: put the row anew, or delete it; if `millpond check` finds more, restore a backup (`millpond restore`)"
    );
    Error::Corruption(message.into())
}

/// Checks the long values of `tree`, whose tree of chunks has `entries` entries. Returns the problems as sentences, of
/// values that lack chunks only the first few.
pub(crate) fn problems(engine: &Engine, tree: &TreeState, entries: u64) -> Result<Vec<String>, Error> {
    let (mut problems, mut missing, mut chunks, mut to_come) = (Vec::new(), 0u64, 0u64, 0u64);
    let (mut ahead, mut rows) = (ReadAhead::new(engine.in_force.read_ahead_pages()), Rows::default());
    let mut lower = Bound::Unbounded;
    loop {
        // The database is at rest: no transaction is in flight.
        let next =
            leaf_forward(&engine.core, &tree.root, &|_| false, &lower, &Bound::Unbounded, &mut ahead, &mut rows)?;
        rows.resolve(|(key, here), _| {
            let Some(reference) = Reference::from_bytes(here) else { return Ok(Some(None)) };
            chunks += u64::from(chunk_count(reference, engine.core.store.page_size()));
            to_come += u64::from(reference.txn >= engine.core.store.txn_to_come());
            if tree.read_chunks(engine, reference, View::NEWEST)?.is_none() {
                missing += 1;
                if problems.len() < PROBLEMS_SHOWN {
                    problems.push(format!("{tree}: the long value of key {} lacks chunks", quoted(key)));
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

/// Most long values that a check names.
const PROBLEMS_SHOWN: usize = 10;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytesize::ByteSize;

    use super::*;
    use crate::base::scheduler::run;
    use crate::io::simulated::SimulatedDisk;
    use crate::read::snapshot::LiveSnapshot;
    use crate::{Db, Durability, Options};

    /// CHAIN-2: a reader has a copy of a row. Before it follows the row's record, writers cut the record out of the
    /// chain, and its page goes to another slot.
    #[test]
    fn row_whose_record_was_cut_out_is_read_again() {
        run(1, || {
            let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::mib(1));
            let options = options.redo_capacity(ByteSize::mib(2)).durability(Durability::None);
            let db = Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened");
            let tree = db.create_tree("t").expect("created");
            tree.put("hot", "seen").expect("written");
            let snapshot = LiveSnapshot::take(&tree.engine);
            tree.put("hot", "later").expect("written");
            let (engine, state) = (&tree.engine, &tree.state);
            let value = {
                let Ok(page) = leaf_read(&engine.core, &state.root, Target::Key(b"hot")) else { unreachable!() };
                page.view().value(page.view().search(b"hot").expect("there")).to_vec()
            };
            let stamp = Row::decode(&value).and_then(|row| row.stamp).expect("changed a moment ago");
            let before = || {
                let found = state.before(engine, (b"hot", &value), stamp, snapshot.view()).expect("no damage");
                found.map(|row| row.map(|row| row.payload))
            };
            assert_eq!(before(), Some(Some(b"seen".to_vec())));
            (0..500u32).for_each(|turn| tree.put("hot", turn.to_be_bytes()).expect("written"));
            assert_eq!(before(), None, "the row is to be read again");
            let read = state.get(engine, b"hot", snapshot.view()).expect("no damage");
            assert_eq!(read.as_deref(), Some(&b"seen"[..]));
            drop((snapshot, tree));
            db.close().expect("closed");
        });
    }
}
