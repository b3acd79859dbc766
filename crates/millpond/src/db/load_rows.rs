//! The rows of a bulk load, on their way to a space of their own: what is long goes to another one, in chunks (ROW-3),
//! and what a table's indexes have of a row to one for each of them.
//!
//! LOAD-5  References to chunks have the id of a transaction that is the load's alone. The log has it before the
//!         first of these references is made, and so before the name: no later process gives it out again, and no two
//!         payloads have the same reference.
//!
//! References are numbered as rows come, so the keys of chunks ascend whatever those of the rows do: rows that are
//! sorted first need not be sorted with their long values. There is no space for chunks before there is a long value.
//!
//! Entries of indexes are put in order while rows come, and loaded behind them, one index after the other: so at any
//! time two spaces are filled at most.

use std::sync::Arc;

use super::catalog;
use super::catalog_entry::Entry;
use super::chunks::chunks_of;
use super::definition::IndexDefinition;
use super::engine::Engine;
use super::entry_sorter::EntrySorter;
use super::loading::Loading;
use super::plan::shown;
use super::sorter::Sorter;
use super::tree::Role;
use super::write::check_lengths;
use crate::base::error::Error;
use crate::base::ids::{Lsn, SpaceId, TxnId};
use crate::base::row::{COLD, COLD_CHUNKED, REFERENCE_LEN, Reference};
use crate::mtr::{Mtr, TXN_LEN};

/// The spaces that rows are loaded into.
pub(super) struct RowsLoad {
    rows: Loading,
    chunks: Option<ChunksLoad>,
    /// Of indexes that are not loaded yet, in the order of the definition.
    entries: Vec<EntrySorter>,
    /// Those that are.
    indexes: Vec<Loading>,
    /// Sorters that share the memory for that: one for each index, and one for rows in any order.
    sharing: usize,
    /// Rows that have come.
    pub(super) count: u64,
}

/// What a leaf has of a row.
enum Kept<'v> {
    Value(&'v [u8]),
    Reference([u8; REFERENCE_LEN]),
}

impl Kept<'_> {
    /// The row, in two parts.
    fn parts(&self) -> [&[u8]; 2] {
        match self {
            Kept::Value(value) => [&COLD, value],
            Kept::Reference(reference) => [&COLD_CHUNKED, reference],
        }
    }
}

impl RowsLoad {
    /// Begins a load of a tree.
    pub(super) fn of_tree(engine: &Arc<Engine>, name: &str) -> Result<RowsLoad, Error> {
        let rows = Loading::begin(engine, name, Role::Tree)?;
        Ok(RowsLoad { rows, chunks: None, entries: Vec::new(), indexes: Vec::new(), sharing: 1, count: 0 })
    }

    /// Begins a load of a table with these indexes. The space of its rows is the lowest of them, as batches want it.
    pub(super) fn of_table(engine: &Arc<Engine>, name: &str, indexes: &[IndexDefinition]) -> Result<RowsLoad, Error> {
        let rows = Loading::begin(engine, name, Role::Rows)?;
        let sharing = indexes.len() + 1;
        let entries = indexes.iter().map(|index| Ok(EntrySorter::new(index.clone(), rows.sorter(sharing)?)));
        let entries = entries.collect::<Result<_, Error>>()?;
        Ok(RowsLoad { rows, chunks: None, entries, indexes: Vec::new(), sharing, count: 0 })
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.rows.engine()
    }

    /// The space of the rows.
    pub(super) fn rows(&self) -> SpaceId {
        self.rows.space()
    }

    /// That of the chunks, if there are any.
    pub(super) fn chunks(&self) -> Option<SpaceId> {
        self.chunks.as_ref().map(|chunks| chunks.loading.space())
    }

    /// Those of the indexes, which are [built](Self::build).
    pub(super) fn indexes(&self) -> Vec<SpaceId> {
        self.indexes.iter().map(Loading::space).collect()
    }

    /// Adds a row, whose key is above that of the one before.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        // Before its chunks are written.
        self.rows.check_ascends(key, self.count)?;
        let kept = self.keep(key, value)?;
        self.rows.append(key, kept.parts())?;
        self.count += 1;
        Ok(())
    }

    /// Adds rows in any order: to `sorter`, and from there to their space.
    pub(super) fn push_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<(), Error> {
        let mut sorter = self.rows.sorter(self.sharing)?;
        for (key, value) in rows {
            // Closed, it must not keep the directory from others until all rows have come.
            drop(self.rows.enter()?);
            let (key, value) = (key.as_ref(), value.as_ref());
            sorter.push(key, self.keep(key, value)?.parts())?;
            self.count += 1;
        }
        self.push_sorted(sorter)
    }

    fn push_sorted(&mut self, sorter: Sorter) -> Result<(), Error> {
        let mut sorted = sorter.finish()?;
        for number in 0.. {
            let Some((key, row)) = sorted.next()? else { break };
            self.rows.push(key, [row, b""], number)?;
        }
        Ok(())
    }

    /// What a leaf is to have of a row: a value that is long is put into chunks. What indexes have of the row goes to
    /// the sorters.
    fn keep<'v>(&mut self, key: &[u8], value: &'v [u8]) -> Result<Kept<'v>, Error> {
        let (engine, row) = (self.rows.engine(), self.rows.row(self.count));
        check_lengths(engine, key, value.len(), &row)?;
        for index in &mut self.entries {
            index.push(engine, key, value, || format!("{row}, {},", shown(key)))?;
        }
        if value.len() <= engine.limits.value {
            return Ok(Kept::Value(value));
        }
        let chunks = match &mut self.chunks {
            Some(chunks) => chunks,
            None => self.chunks.insert(ChunksLoad::begin(&self.rows)?),
        };
        Ok(Kept::Reference(chunks.push(value)?.to_bytes()))
    }

    /// Makes what is left of the trees, has all of them durable and named by map groups, and then the roots lead to
    /// them.
    pub(super) fn build(&mut self) -> Result<(), Error> {
        if let Some(chunks) = &mut self.chunks {
            chunks.loading.build()?;
        }
        self.rows.build()?;
        for entries in std::mem::take(&mut self.entries) {
            self.indexes.push(load_index(&self.rows, entries)?);
        }
        Ok(())
    }

    /// Enters the name of the `what`, which leads to all spaces from then on. Callers have the turn of `ddl`. Returns
    /// the group's end.
    pub(super) fn name(&mut self, what: &str, name: &str, entry: &Entry) -> Result<Lsn, Error> {
        let engine = self.rows.engine();
        engine.check_open()?;
        check_untaken(engine, what, name)?;
        let end = catalog::insert(engine, name, entry)?;
        let chunks = self.chunks.iter_mut().map(|chunks| &mut chunks.loading);
        chunks.chain(&mut self.indexes).chain([&mut self.rows]).for_each(|loading| loading.named = true);
        Ok(end)
    }
}

/// Refuses a load into something that exists.
pub(super) fn check_untaken(engine: &Engine, what: &str, name: &str) -> Result<(), Error> {
    let Some(entry) = catalog::find(&engine.core, name)? else { return Ok(()) };
    let is = if matches!(entry, Entry::Tree { .. }) { "tree" } else { "table" };
    let message = format!("{is} '{name}' exists already: load into a {what} of another name, or drop it first");
    Err(Error::TreeExists(message.into()))
}

/// Loads the entries of an index of the table with these rows.
fn load_index(rows: &Loading, entries: EntrySorter) -> Result<Loading, Error> {
    let (definition, mut sorted) = entries.finish()?;
    let role = Role::Index { table: rows.name().to_owned(), is_unique: definition.is_unique };
    let mut loading = Loading::begin(rows.engine(), &definition.name, role)?;
    // The row of the last entry.
    let mut first = Vec::new();
    for number in 0.. {
        let Some((entry, key)) = sorted.next()? else { break };
        if loading.last_key() == Some(entry) {
            if planted!("load_takes_any_duplicate") {
                continue;
            }
            let way_out = "leave one of them out, or load them with an index that is not unique";
            let both = if *first < *key { [&first[..], key] } else { [key, &first] };
            return Err(definition.duplicate(rows.tree(), entry, both, way_out));
        }
        loading.push(entry, [&COLD, key], number)?;
        key.clone_into(&mut first);
    }
    loading.build()?;
    Ok(loading)
}

/// The chunks of long values on their way to their space.
struct ChunksLoad {
    loading: Loading,
    /// The transaction of their references.
    txn: TxnId,
    /// The next one's number; `None`: the transaction has no more of them.
    number: Option<u32>,
    /// Chunks that have come.
    count: u64,
}

impl ChunksLoad {
    fn begin(rows: &Loading) -> Result<ChunksLoad, Error> {
        let loading = Loading::begin(rows.engine(), rows.name(), Role::Chunks)?;
        Ok(ChunksLoad { txn: new_txn(&loading)?, loading, number: Some(0), count: 0 })
    }

    /// Adds the chunks of a value. Returns the reference to them.
    fn push(&mut self, value: &[u8]) -> Result<Reference, Error> {
        let number = match self.number {
            Some(number) => number,
            None => {
                // Of a later transaction: the keys ascend still.
                self.txn = new_txn(&self.loading)?;
                0
            }
        };
        self.number = number.checked_add(1);
        let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let reference = Reference { txn: self.txn, number, len };
        for (key, chunk) in chunks_of(reference, value, self.loading.engine().core.store.page_size()) {
            self.loading.push(&key, [&COLD, chunk], self.count)?;
            self.count += 1;
        }
        Ok(reference)
    }
}

/// The id of a transaction that nobody else gets, in no process (LOAD-5).
fn new_txn(loading: &Loading) -> Result<TxnId, Error> {
    // Who closes the database waits for the group, and lets no other be written.
    let _gate = loading.enter()?;
    let core = &loading.engine().core;
    let credit = core.log.reserve(TXN_LEN, 0)?;
    let txn = core.store.next_txn()?;
    let mut mtr = Mtr::new(&core.log, []);
    if !planted!("load_txn_not_logged") {
        mtr.note_txn(txn);
    }
    mtr.commit(credit)?;
    Ok(txn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::database::Db;
    use crate::db::options::Options;
    use crate::io::simulated::SimulatedDisk;

    /// A transaction has 2^32 references; the next one's follow behind them.
    #[test]
    fn a_load_with_more_long_values_than_a_transaction_has_references_takes_another() {
        let options = Options::new().buffer_pool_size(bytesize::ByteSize::mib(1));
        let options = options.redo_capacity(bytesize::ByteSize::mib(2));
        let db = Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened");
        let mut load = RowsLoad::of_tree(db.engine(), "t").expect("begun");
        let mut references = Vec::new();
        for turn in 0..4 {
            let Ok(Kept::Reference(bytes)) = load.keep(b"k", &[1; 9000]) else { unreachable!("it is long") };
            references.push(Reference::from_bytes(&bytes).expect("a reference"));
            if let Some(chunks) = load.chunks.as_mut().filter(|_| turn == 0) {
                chunks.number = Some(u32::MAX);
            }
        }
        let txn = references[0].txn;
        assert!(references[2].txn > txn && references.is_sorted(), "{references:?}");
        let seen = references.iter().map(|reference| (reference.txn == txn, reference.number));
        assert_eq!(seen.collect::<Vec<_>>(), [(true, 0), (true, u32::MAX), (false, 0), (false, 1)]);
        load.build().expect("the keys of chunks ascend");
        drop(load);
        db.close().expect("closed");
    }
}
