//! The rows of a bulk load. They go to one space; long values go to a second one in chunks (ROW-3), and the entries of
//! each index of a table to one more.
//!
//! LOAD-5  References to chunks contain the id of a transaction of this load alone. The log has the id before the load
//!         makes the first of these references, and so before the name. So no later process gives the id out again,
//!         and no two payloads have the same reference.
//!
//! References are numbered as rows come, so the keys of chunks ascend in any order of the rows: an unsorted load need
//! not sort long values. The space for chunks is made for the first long value.
//!
//! Entries of indexes are sorted while rows come, and loaded after the rows, one index after the other. So at most two
//! spaces are filled at a time.

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::{Lsn, SpaceId, TxnId};
use crate::base::quoted::quoted;
use crate::base::row::{COLD, COLD_CHUNKED, REFERENCE_LEN, Reference};
use crate::ddl::catalog;
use crate::engine::Engine;
use crate::engine::tree_state::Role;
use crate::load::entry_sorter::EntrySorter;
use crate::load::loading::Loading;
use crate::load::sorter::Sorter;
use crate::mtr::{Mtr, TXN_LEN};
use crate::schema::catalog_entry::Entry;
use crate::schema::definition::IndexDefinition;
use crate::write::chunks::chunks_of;
use crate::write::sizes::check_lengths;

/// The spaces that rows are loaded into.
pub(crate) struct RowsLoad {
    rows: Loading,
    chunks: Option<ChunksLoad>,
    /// Entries of the indexes that are not loaded yet, in the order of the definition.
    entries: Vec<EntrySorter>,
    /// The indexes that are loaded, in the order of the definition.
    indexes: Vec<Loading>,
    /// Sorters that share memory: one for each index, and one for rows in any order.
    sharing: usize,
    /// Rows added so far.
    pub(super) count: u64,
}

/// The part of a row that its leaf stores.
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
    pub(crate) fn of_tree(engine: &Arc<Engine>, name: &str) -> Result<RowsLoad, Error> {
        let rows = Loading::begin(engine, name, Role::Tree)?;
        Ok(RowsLoad { rows, chunks: None, entries: Vec::new(), indexes: Vec::new(), sharing: 1, count: 0 })
    }

    /// Begins a load of a table with these indexes. Its rows get the lowest space number, as batches want it.
    pub(crate) fn of_table(engine: &Arc<Engine>, name: &str, indexes: &[IndexDefinition]) -> Result<RowsLoad, Error> {
        let rows = Loading::begin(engine, name, Role::Rows)?;
        let sharing = indexes.len() + 1;
        let entries = indexes.iter().map(|index| Ok(EntrySorter::new(index.clone(), rows.sorter(sharing)?)));
        let entries = entries.collect::<Result<_, Error>>()?;
        Ok(RowsLoad { rows, chunks: None, entries, indexes: Vec::new(), sharing, count: 0 })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.rows.engine()
    }

    /// The space of the rows.
    pub(crate) fn rows(&self) -> SpaceId {
        self.rows.space()
    }

    /// The space of the chunks, if there are any.
    pub(crate) fn chunks(&self) -> Option<SpaceId> {
        self.chunks.as_ref().map(|chunks| chunks.loading.space())
    }

    /// The spaces of the indexes that are [built](Self::build).
    pub(crate) fn indexes(&self) -> Vec<SpaceId> {
        self.indexes.iter().map(Loading::space).collect()
    }

    /// Adds a row, whose key is above that of the one before.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        // Checks the key before the row's chunks are written.
        self.rows.check_ascends(key, self.count)?;
        let kept = self.keep(key, value)?;
        self.rows.append(key, kept.parts())?;
        self.count += 1;
        Ok(())
    }

    /// Adds rows in any order: to a sorter, and from there to their space.
    pub(crate) fn push_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &mut self,
        rows: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<(), E> {
        let mut sorter = self.rows.sorter(self.sharing)?;
        for row in rows {
            let (key, value) = row?;
            // If the database is closed, the load ends now, not only after all rows have come.
            drop(self.rows.enter()?);
            let (key, value) = (key.as_ref(), value.as_ref());
            sorter.push(key, self.keep(key, value)?.parts())?;
            self.count += 1;
        }
        Ok(self.push_sorted(sorter)?)
    }

    fn push_sorted(&mut self, sorter: Sorter) -> Result<(), Error> {
        let mut sorted = sorter.finish()?;
        for number in 0.. {
            let Some((key, row)) = sorted.next()? else { break };
            self.rows.push(key, [row, b""], number)?;
        }
        Ok(())
    }

    /// Returns the part of a row that its leaf stores. Writes a long value to chunks, and gives the row's index entries
    /// to their sorters.
    fn keep<'v>(&mut self, key: &[u8], value: &'v [u8]) -> Result<Kept<'v>, Error> {
        let (engine, row) = (self.rows.engine(), self.rows.row(self.count));
        check_lengths(engine, key, value.len(), &row)?;
        for index in &mut self.entries {
            index.push(engine, key, value, || format!("{row}, {},", quoted(key)))?;
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

    /// Builds the rest of the trees. For each tree: waits until its pages are durable and named by map groups, then
    /// makes the root lead to them.
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

    /// Enters the name of the tree or table, which leads to all spaces from then on. Callers hold the turn of `ddl`.
    /// Returns the LSN at the end of the group.
    pub(crate) fn name(&mut self, what: &str, name: &str, entry: &Entry) -> Result<Lsn, Error> {
        let engine = self.rows.engine();
        engine.check_open()?;
        check_untaken(engine, what, name)?;
        let end = catalog::insert(engine, name, entry)?;
        let chunks = self.chunks.iter_mut().map(|chunks| &mut chunks.loading);
        chunks.chain(&mut self.indexes).chain([&mut self.rows]).for_each(|loading| loading.named = true);
        Ok(end)
    }
}

/// Refuses a load if a tree or a table has the name.
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
    // The primary key of the last entry's row.
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

/// The load of the chunks of long values.
struct ChunksLoad {
    loading: Loading,
    /// The transaction id in the references.
    txn: TxnId,
    /// Number of the next reference. `None`: the transaction has no more numbers.
    number: Option<u32>,
    /// Chunks added so far.
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
                // The id of a later transaction is higher, so the keys still ascend.
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

/// A transaction id for this load alone, logged so that no later process gives it out again (LOAD-5).
fn new_txn(loading: &Loading) -> Result<TxnId, Error> {
    // A thread that closes the database waits for this group; afterwards no group is written.
    let _gate = loading.enter()?;
    let core = &loading.engine().core;
    let credit = core.log.reserve(TXN_LEN, 0)?;
    let txn = loading.engine().txns.id_without_rows(&core.store)?;
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
    use crate::api::database::Db;
    use crate::io::simulated::SimulatedDisk;
    use crate::options::Options;

    /// A transaction has 2^32 references; those of the next transaction follow.
    #[test]
    fn load_with_too_many_long_values_takes_another_transaction() {
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
