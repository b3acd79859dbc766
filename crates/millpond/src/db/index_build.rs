//! An index for a table that has rows, made while others read and write them.
//!
//! BUILD-1  From before the first row is read until the index is there, each batch that changes rows notes the keys of
//!          entries that come or go: puts them into a tree of their own.
//! BUILD-2  If rows and index disagree about an entry, it is noted. Who takes a note away makes the index right in the
//!          same batch, which expects the rows that say what is right: the note's, and that of an entry that it
//!          replaces.
//! BUILD-3  No name leads to the index before no note is left and nobody may change rows. So a crash leaves all of it
//!          or nothing.
//! BUILD-4  Who gives up, gives both trees back, or leaves them to the next open when the database is closed.
//!
//! The rows are scanned, their entries sorted, and [loaded](super::loading); then notes are taken away, until so few
//! come meanwhile that the rest is done while no rows change ([`Build::finish`]). A note is an entry's key as it is in
//! an index that is not unique: fields, and primary key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::sync::Arc;

use super::batch::{Change, Op};
use super::catalog;
use super::catalog_entry::{Entry, TableEntry};
use super::ddl::{check_definition, close_trees, create_space, open_index, open_state};
use super::definition::{Field, IndexDefinition, row_of};
use super::engine::Engine;
use super::entry_sorter::EntrySorter;
use super::index::Index;
use super::loading::Loading;
use super::plan::shown;
use super::row_changes::IndexState;
use super::table::Table;
use super::tree::{Gate, Role, Tree};
use super::write::{apply, wait_durable};
use crate::base::error::Error;
use crate::base::ids::{Lsn, SpaceId};
use crate::base::operations::OperationKind;
use crate::base::row::COLD;
use crate::btree::scan::OwnedRow;

/// Notes that are taken away at a time while nobody may change rows.
const REST_MAX: usize = 256;

/// How often a build gives way when it finds many notes after all, though nobody may change rows any more.
const CLOSED_MAX: u32 = 8;

/// Notes that are taken away together, at most.
const NOTES_TOGETHER: usize = 64;

/// Entries after which a load looks whether its table is there still.
const LOOK_EVERY: u64 = 1024;

impl Table {
    /// Makes an index of the rows that are there: any number of rows may have the same bytes in these fields. All
    /// handles of the table have it when this returns; a crash leaves all of it or nothing.
    ///
    /// Rows can be read and written meanwhile. Who changes rows waits at the beginning and at the end for batches that
    /// are under way, at the end for what the last few of them changed, and now and then in between if writers are
    /// faster than the build. Meanwhile a change of a row writes up to
    /// two rows more, in each of which the fields and the primary key must fit in a key together. Entries are sorted as
    /// rows are by [`bulk_load_unsorted`](crate::Db::bulk_load_unsorted), and loaded past log and pool.
    ///
    /// May wait on `metadata` (another index of the table is being made), and as a bulk load does.
    ///
    /// # Errors
    /// * [`Error::TreeExists`]: the table has an index of this name. [`Error::InvalidOptions`] as of
    ///   [`create_table`](crate::Db::create_table).
    /// * [`Error::RowTooShort`], [`Error::KeyTooLong`]: a row lacks bytes that the index is made of, or has too many.
    /// * [`Error::TreeNotFound`]: the table was dropped or truncated. [`Error::Closed`]: the database was closed.
    /// * [`Error::OutOfSpace`], [`Error::DeviceFailed`], [`Error::ReadOnly`].
    ///
    /// After an error there is no such index; after `DeviceFailed` and `ReadOnly` it may be there: reopen, then look.
    ///
    /// # Example
    /// ```
    /// use millpond::{Field, TableDefinition};
    ///
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let db = millpond::Db::open(dir.path(), millpond::Options::new().cached(true))?;
    /// let people = db.create_table("people", TableDefinition::new())?;
    /// people.insert(b"1", b"nyada")?;
    /// people.insert(b"2", b"labob")?;
    /// let by_city = people.create_index("by_city", [Field::value(0..2)])?;
    /// assert_eq!(by_city.rows(&b"la"[..]..).count(), 2);
    /// # Ok::<(), millpond::Error>(())
    /// ```
    pub fn create_index(&self, name: &str, fields: impl IntoIterator<Item = Field>) -> Result<Index, Error> {
        self.build_index(name, fields.into_iter().collect(), false)
    }

    /// Makes a unique index of the rows that are there: no two rows have the same bytes in all of these fields
    /// together. Otherwise as [`create_index`](Self::create_index).
    ///
    /// # Errors
    /// [`Error::KeyExists`]: two rows have the same fields, or had them while the index was made; it names both. Those
    /// of `create_index`.
    pub fn create_unique_index(&self, name: &str, fields: impl IntoIterator<Item = Field>) -> Result<Index, Error> {
        self.build_index(name, fields.into_iter().collect(), true)
    }

    fn build_index(&self, name: &str, fields: Vec<Field>, is_unique: bool) -> Result<Index, Error> {
        self.engine.home.check()?;
        let _turn = self.state.build_turn(&self.engine);
        let mut build = Build::begin(self, IndexDefinition { name: name.to_owned(), is_unique, fields })?;
        let index = build.load()?;
        let end = build.finish(&index)?;
        wait_durable(&self.engine, end, self.engine.in_force.durability())?;
        Ok(Index { table: self.clone(), state: index })
    }

    /// Drops an index. Waits for operations on it, and changes of the table's rows, that have begun; the index's
    /// handles get [`Error::TreeNotFound`] from then on. A crash leaves all of it or nothing.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]: the table has no such index, or was dropped itself. Those of
    /// [`Db::write`](crate::Db::write).
    pub fn drop_index(&self, name: &str) -> Result<(), Error> {
        let engine = &self.engine;
        engine.home.check()?;
        engine.check_changeable()?;
        let _ddl = engine.ddl();
        let mut entry = self.catalog_entry()?;
        let mut indexes = self.state.close(engine);
        let Some(at) = indexes.all.iter().position(|index| index.definition.name == name) else {
            return Err(self.no_index(name, &indexes.all));
        };
        entry.definition.indexes.remove(at);
        entry.indexes.remove(at);
        let entry = Entry::Table(entry);
        let trees = vec![Arc::clone(&indexes.all[at].entries)];
        let replace = |spaces: &[SpaceId]| catalog::replace(engine, self.name(), &entry, spaces);
        let end = close_trees(engine, trees, Gate::Dropped, replace)?;
        indexes.all.remove(at);
        drop(indexes);
        wait_durable(engine, end, engine.in_force.durability())
    }

    /// What the catalog says of the table. Callers have the turn of `ddl`.
    fn catalog_entry(&self) -> Result<TableEntry, Error> {
        self.engine.check_open()?;
        match catalog::find(&self.engine.core, self.name())? {
            Some(Entry::Table(entry)) if entry.rows == self.state.rows.space => Ok(entry),
            _ => Err(self.state.rows.gone(&self.engine.waits)),
        }
    }

    /// The same with one index more, in `space`. An error if that cannot be.
    fn entry_with(&self, definition: &IndexDefinition, space: SpaceId) -> Result<Entry, Error> {
        let mut entry = self.catalog_entry()?;
        if entry.definition.indexes.iter().any(|index| index.name == definition.name) {
            let (index, rows) = (&definition.name, &self.state.rows);
            let message = format!("{rows} has an index '{index}' already: drop it, or name this one otherwise");
            return Err(Error::TreeExists(message.into()));
        }
        entry.definition.indexes.push(definition.clone());
        entry.indexes.push(space);
        check_definition(&self.engine, self.name(), &entry)?;
        Ok(Entry::Table(entry))
    }
}

/// An index that is being made.
struct Build {
    table: Table,
    definition: IndexDefinition,
    /// What a note is, and the tree with all of them.
    noted: Arc<IndexState>,
    loading: Loading,
}

impl Build {
    /// Has changes noted from now on.
    fn begin(table: &Table, definition: IndexDefinition) -> Result<Build, Error> {
        let engine = &table.engine;
        engine.check_changeable()?;
        {
            let _ddl = engine.ddl();
            table.entry_with(&definition, SpaceId::FIRST)?;
        }
        let role = Role::Index { table: table.name().to_owned(), is_unique: definition.is_unique };
        let loading = Loading::begin(engine, &definition.name, role)?;
        let entries = {
            let _ddl = engine.ddl();
            engine.check_open()?;
            let role = Role::Notes { table: table.name().to_owned() };
            open_state(engine, &definition.name, create_space(engine)?, role)
        };
        let as_noted = IndexDefinition { is_unique: false, ..definition.clone() };
        let noted = Arc::new(IndexState { definition: as_noted, entries });
        // BUILD-1: who changed rows before is through.
        table.state.close(engine).noted = Some(Arc::clone(&noted));
        Ok(Build { table: table.clone(), definition, noted, loading })
    }

    fn engine(&self) -> &Engine {
        &self.table.engine
    }

    /// Loads the entries of all rows, each as it was when it was read.
    fn load(&mut self) -> Result<Arc<IndexState>, Error> {
        let mut entries = EntrySorter::new(self.definition.clone(), self.loading.sorter(1)?);
        // Rows that come behind the last one of now are noted: to go after them could take for ever.
        let last = self.table.rows().scan_back(..).next_row()?.map(|(key, _)| key.to_vec()).unwrap_or_default();
        let mut rows = self.table.rows().scan(..=last.as_slice());
        while let Some((key, row)) = rows.next_row()? {
            entries.push(self.engine(), key, row, || row_of(&self.table.state.rows, key))?;
        }
        drop(rows);
        let (_, mut sorted) = entries.finish()?;
        // The last one waits for others with its fields.
        let mut last: Option<OwnedRow> = None;
        let mut number = 0;
        while let Some((entry, key)) = sorted.next()? {
            if number % LOOK_EVERY == 0 {
                drop(self.table.state.rows.enter(&self.engine().waits)?);
            }
            match &mut last {
                None => last = Some((entry.to_vec(), key.to_vec())),
                Some((fields, first)) if fields == entry => {
                    if self.takes_over(fields, first, key)? {
                        key.clone_into(first);
                    }
                }
                Some((fields, first)) => {
                    self.loading.push(fields, [&COLD, first], number)?;
                    number += 1;
                    entry.clone_into(fields);
                    key.clone_into(first);
                }
            }
        }
        if let Some((fields, first)) = last {
            self.loading.push(&fields, [&COLD, &first], number)?;
        }
        self.loading.build()?;
        let engine = self.engine();
        let _ddl = engine.ddl();
        engine.check_open()?;
        Ok(open_index(engine, self.table.name(), self.definition.clone(), self.loading.space()))
    }

    /// Both rows had these fields, if not at the same time. Whether the second one has them now; an error if both have.
    /// Who has changed is noted, whatever becomes of its entry.
    fn takes_over(&self, fields: &[u8], first: &[u8], second: &[u8]) -> Result<bool, Error> {
        let (engine, rows) = (self.engine(), &self.table.state.rows);
        loop {
            let (one, two) = (rows.get(engine, first)?, rows.get(engine, second)?);
            let has_fields = |key: &[u8], row: &Option<Vec<u8>>| {
                row.as_ref().is_some_and(|row| self.definition.has_fields(key, row, fields))
            };
            if !has_fields(first, &one) || !has_fields(second, &two) || planted!("build_takes_any_duplicate") {
                return Ok(has_fields(second, &two));
            }
            match self.expect_both((first, one.as_deref()), (second, two.as_deref())) {
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
                Ok(()) => return Err(self.duplicate(fields, first, second)),
            }
        }
    }

    #[cold]
    fn duplicate(&self, fields: &[u8], first: &[u8], second: &[u8]) -> Error {
        let way_out = "change or delete one of them, or make an index that is not unique";
        self.definition.duplicate(&self.table.state.rows, fields, [first, second], way_out)
    }

    /// Takes notes away until few come meanwhile. When writers are faster than this, they are let in for one batch each
    /// between some notes and the next, more and more of these, until they are not.
    fn catch_up(&self, index: &IndexState) -> Result<(), Error> {
        let (mut before, mut closed_for) = (usize::MAX, 0);
        loop {
            let taken = self.pass(index, closed_for)?;
            if taken <= REST_MAX {
                return Ok(());
            }
            if taken > before / 2 {
                closed_for = (2 * closed_for).max(REST_MAX);
            }
            before = taken;
        }
    }

    /// Takes away the notes that it comes across up to the one that is the last when it begins: others may come behind
    /// it for ever. `closed_for` of them at a time while nobody may change rows, if that is not 0. Returns how many
    /// they were.
    fn pass(&self, index: &IndexState, closed_for: usize) -> Result<usize, Error> {
        let engine = self.engine();
        let notes = Tree { engine: Arc::clone(&self.table.engine), state: Arc::clone(&self.noted.entries) };
        // A batch that changes so many leaves should fit one group, for then it locks nothing.
        let together = (engine.batch_leaves() / 4).clamp(1, NOTES_TOGETHER);
        let Some(last) = notes.scan_back(..).next_row()?.map(|(note, _)| note.to_vec()) else { return Ok(0) };
        let (mut scan, mut taken, mut some) = (notes.scan(..=last.as_slice()), 0, Vec::new());
        loop {
            let _closed = (closed_for > 0).then(|| self.table.state.close(engine));
            some.clear();
            while some.len() < together.max(closed_for)
                && let Some((note, _)) = scan.next_row()?
            {
                some.push(note.to_vec());
            }
            if some.is_empty() {
                return Ok(taken);
            }
            taken += some.len();
            let (mut left, mut at_once) = (some.as_slice(), together);
            while !left.is_empty() {
                let (now, later) = left.split_at(at_once.min(left.len()));
                match self.take_away(now, index) {
                    Ok(()) => left = later,
                    // Another writer was faster; with fewer rows that is less probable.
                    Err(Error::Conflict(_)) => at_once = (now.len() / 2).max(1),
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Makes the index agree with the rows about these notes, and takes them away; `Conflict`: a row has changed
    /// meanwhile (BUILD-2).
    fn take_away(&self, notes: &[Vec<u8>], index: &IndexState) -> Result<(), Error> {
        let (engine, table) = (self.engine(), &self.table.state);
        let mut rows: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let has_fields = |key: &[u8], row: &Option<Vec<u8>>, fields: &[u8]| {
            row.as_ref().is_some_and(|row| self.definition.has_fields(key, row, fields))
        };
        // What becomes of entries.
        let mut entries: BTreeMap<Vec<u8>, Option<&[u8]>> = BTreeMap::new();
        let mut fields = Vec::new();
        for note in notes {
            let Some(key) = self.noted.definition.split_entry(note, b"", &mut fields) else {
                return Err(Error::Bug(
                    format!("{} has {}, which is no entry", self.noted.entries, shown(note)).into(),
                ));
            };
            let is_there = has_fields(key, self.read_once(key, &mut rows)?, &fields);
            if !self.definition.is_unique {
                entries.insert(note.clone(), is_there.then_some(&[]));
                continue;
            }
            let read;
            let other = match entries.get(&fields) {
                Some(other) => *other,
                None => {
                    read = index.entries.get(engine, &fields)?;
                    read.as_deref()
                }
            };
            let becomes = match other {
                // Whatever it is, it is right, but for this row's. The batch expects the other row as well (BUILD-2).
                Some(other) if is_there && other != key => {
                    if has_fields(other, self.read_once(other, &mut rows)?, &fields) {
                        return Err(self.conflict_or_duplicate(&fields, other, key, &rows)?);
                    }
                    Some(key)
                }
                Some(other) if !is_there && other == key => None,
                None if is_there => Some(key),
                _ => continue,
            };
            entries.insert(fields.clone(), becomes);
        }
        let mut ops: Vec<Op<'_>> = Vec::with_capacity(rows.len() + entries.len() + notes.len());
        if !planted!("catch_up_without_expect") {
            ops.extend(rows.iter().map(|(key, row)| Op::new(&table.rows, key, Change::Expect(row.as_deref()))));
        }
        ops.extend(
            entries.iter().map(|(key, value)| Op::new(&index.entries, key, value.map_or(Change::Delete, Change::Put))),
        );
        ops.extend(notes.iter().map(|note| Op::new(&self.noted.entries, note, Change::Delete)));
        // Not paid for (PACE-1): the last ones are written while nobody may change rows.
        let _operation = engine.waits.operation(OperationKind::IndexBuild);
        apply(engine, &mut ops).map(drop)
    }

    /// The row `key`, read if it is not among `rows`.
    fn read_once<'r>(
        &self,
        key: &[u8],
        rows: &'r mut BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Result<&'r Option<Vec<u8>>, Error> {
        match rows.entry(key.to_vec()) {
            Occupied(known) => Ok(known.into_mut()),
            Vacant(unknown) => Ok(unknown.insert(self.table.state.rows.get(self.engine(), key)?)),
        }
    }

    /// Two rows have these fields, as they were read one after the other: the error that says so, if both are still as
    /// they were, else `Conflict`.
    fn conflict_or_duplicate(
        &self,
        fields: &[u8],
        first: &[u8],
        second: &[u8],
        rows: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Result<Error, Error> {
        let expected = |key| rows.get(key).and_then(Option::as_deref);
        self.expect_both((first, expected(first)), (second, expected(second)))?;
        Ok(self.duplicate(fields, first, second))
    }

    /// `Conflict`, unless both rows are as they are said to be, at one moment.
    fn expect_both(&self, one: (&[u8], Option<&[u8]>), two: (&[u8], Option<&[u8]>)) -> Result<(), Error> {
        let mut both = [one, two].map(|(key, row)| Op::new(&self.table.state.rows, key, Change::Expect(row)));
        let _operation = self.engine().waits.operation(OperationKind::IndexBuild);
        apply(self.engine(), &mut both).map(drop)
    }

    /// Catches up, lets nobody change rows, takes away the rest of the notes, and has the table's name lead to the
    /// index. Returns the end of that group.
    fn finish(mut self, index: &Arc<IndexState>) -> Result<Lsn, Error> {
        let engine = Arc::clone(&self.table.engine);
        let mut closed = 0;
        loop {
            self.catch_up(index)?;
            let _ddl = engine.ddl();
            let entry = self.table.entry_with(&self.definition, self.loading.space())?;
            let mut indexes = self.table.state.close(&engine);
            closed += 1;
            // A large batch was under way until now: others need not wait for what it leaves.
            if closed < CLOSED_MAX && self.has_many_notes()? {
                continue;
            }
            while self.pass(index, 0)? > 0 {}
            let replace = |spaces: &[SpaceId]| catalog::replace(&engine, self.table.name(), &entry, spaces);
            let end = close_trees(&engine, vec![Arc::clone(&self.noted.entries)], Gate::Dropped, replace)?;
            indexes.noted = None;
            indexes.all.push(Arc::clone(index));
            drop(indexes);
            self.loading.named = true;
            return Ok(end);
        }
    }

    fn has_many_notes(&self) -> Result<bool, Error> {
        let notes = Tree { engine: Arc::clone(&self.table.engine), state: Arc::clone(&self.noted.entries) };
        let mut scan = notes.scan(..);
        for _ in 0..=REST_MAX {
            if scan.next_row()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if self.loading.named {
            return;
        }
        let engine = &self.table.engine;
        self.table.state.close(engine).noted = None;
        let _ddl = engine.ddl();
        if engine.check_open().is_ok() && !planted!("notes_not_given_back") {
            // What cannot be given back now, the next open gives back (BUILD-4).
            let notes = vec![Arc::clone(&self.noted.entries)];
            let _ = close_trees(engine, notes, Gate::Dropped, |spaces| catalog::drop_unnamed(engine, spaces));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::db::database::Db;
    use crate::db::definition::TableDefinition;
    use crate::db::options::{Durability, Options};
    use crate::io::simulated::SimulatedDisk;
    use crate::simulation::{run, spawn};

    fn open() -> Db {
        let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::mib(1));
        let options = options.redo_capacity(ByteSize::mib(2)).durability(Durability::None);
        Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened")
    }

    /// Two rows exchange what is unique among them, again and again, while the notes of that are taken away one by one.
    #[test]
    fn a_note_goes_only_when_the_index_is_right_about_both_rows() {
        for seed in 0..40 {
            run(seed, || {
                let db = open();
                let table = db.create_table("t", TableDefinition::new()).expect("created");
                table.insert(b"o", b"f").expect("inserted");
                table.insert(b"r", b"g").expect("inserted");
                let swap = |db: &Db, table: &Table, to: [&[u8]; 2]| {
                    let mut batch = crate::db::batch::WriteBatch::new();
                    batch.put(table, b"o", to[0]).put(table, b"r", to[1]);
                    db.write(batch).expect("written");
                };
                let definition =
                    IndexDefinition { name: "i".to_owned(), is_unique: true, fields: vec![Field::value(0..1)] };
                let mut build = Build::begin(&table, definition).expect("begun");
                let index = build.load().expect("loaded");
                swap(&db, &table, [b"g", b"f"]);
                let (other_db, other) = (db.clone(), table.clone());
                let writer = spawn("writer", move || {
                    for _ in 0..3 {
                        swap(&other_db, &other, [b"f", b"g"]);
                        swap(&other_db, &other, [b"g", b"f"]);
                    }
                });
                let writer = writer.expect("a thread");
                for note in [b"fr", b"fo", b"gr", b"go"] {
                    while let Err(error) = build.take_away(&[note.to_vec()], &index) {
                        assert!(matches!(error, Error::Conflict(_)), "seed {seed}: {error}");
                    }
                }
                writer.join().expect("no panic");
                build.finish(&index).expect("there");
                let rows: Vec<_> = table.index("i").expect("there").scan(..).collect::<Result<_, _>>().expect("read");
                let wanted = [(b"f".to_vec(), b"r".to_vec()), (b"g".to_vec(), b"o".to_vec())];
                assert_eq!(rows, wanted, "seed {seed}");
                db.close().expect("closed");
            });
        }
    }

    /// A row goes to other fields and back, the latter just when the note of the former is taken away.
    #[test]
    fn a_note_goes_only_when_the_index_is_right_about_it() {
        for seed in 0..12 {
            run(seed, || {
                let db = open();
                let table = db.create_table("t", TableDefinition::new()).expect("created");
                table.insert(b"k", b"a").expect("inserted");
                let definition =
                    IndexDefinition { name: "i".to_owned(), is_unique: seed < 6, fields: vec![Field::value(0..1)] };
                let mut build = Build::begin(&table, definition).expect("begun");
                let index = build.load().expect("loaded");
                table.update(b"k", b"b").expect("updated");
                let other = table.clone();
                let writer = spawn("writer", move || other.update(b"k", b"a")).expect("a thread");
                let taken = build.pass(&index, 0).expect("taken away");
                writer.join().expect("no panic").expect("updated");
                assert!((1..=2).contains(&taken), "{taken} notes");
                build.finish(&index).expect("there");
                let rows: Vec<_> = table.index("i").expect("there").scan(..).collect::<Result<_, _>>().expect("read");
                assert_eq!(rows, [(b"a".to_vec(), b"k".to_vec())], "seed {seed}");
                db.close().expect("closed");
            });
        }
    }
}
