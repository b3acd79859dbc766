//! Index builds: an index for a table with rows, built while other threads read and write the rows.
//!
//! BUILD-1  From before the build reads the first row until the index exists, each batch that changes rows also writes
//!          notes: the keys of entries that come or go, into a tree of their own.
//! BUILD-2  For each entry about which rows and index disagree there is a note. The batch that deletes a note also
//!          makes the index right about it. This batch expects the rows that decide what is right: the note's row, and
//!          the row of an entry that it replaces.
//! BUILD-3  No name leads to the index before all notes are applied and the table's gate keeps writers out. So a crash
//!          leaves the whole index or nothing.
//! BUILD-4  A build that fails gives both trees back, or leaves them to the next open when the database is closed.
//!
//! The build scans the rows, sorts their entries and [loads](crate::load::loading) them. Then it applies notes, pass by
//! pass, until a pass finds few; the rest it applies with the table's gate closed ([`Build::finish`]). A note is an
//! entry's key as in an index that is not unique: the fields, then the primary key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::{Lsn, SpaceId};
use crate::base::operations::OperationKind;
use crate::base::quoted::quoted;
use crate::base::row::{COLD, Stamp};
use crate::base::sync::WriteGuard;
use crate::btree::scan::OwnedRow;
use crate::ddl::{catalog, check_definition, claim, close_trees, create_space, open_index};
use crate::engine::Engine;
use crate::engine::open_trees::{begin_now, open_state};
use crate::engine::table_state::{IndexState, Indexes, TableState};
use crate::engine::tree_state::{Gate, Role, TreeState};
use crate::load::entry_sorter::EntrySorter;
use crate::load::loading::Loading;
use crate::read::reader::Reader;
use crate::read::scan::Scan;
use crate::schema::catalog_entry::{Entry, TableEntry};
use crate::schema::definition::{IndexDefinition, row_of};
use crate::txn::lock_table::Mode;
use crate::txn::locks::Claim;
use crate::txn::view::View;
use crate::undo::purge::end_and_purge;
use crate::write::op::{Change, Op};
use crate::write::outcome::{Applied, Extent, Size};
use crate::write::{apply, try_apply};

/// Notes that are few enough to be applied while the table's gate is closed.
const REST_MAX: usize = 256;

/// Times that a build closes the table's gate, at most. The last time it applies all notes, however many there are.
const CLOSED_MAX: u32 = 8;

/// Notes that one batch applies, at most.
const NOTES_TOGETHER: usize = 64;

/// Entries between two checks that the table still exists.
const LOOK_EVERY: u64 = 1024;

/// The build of an index.
pub(crate) struct Build {
    engine: Arc<Engine>,
    table: Arc<TableState>,
    definition: IndexDefinition,
    /// The definition of notes, and the tree that holds them.
    noted: Arc<IndexState>,
    loading: Loading,
}

impl Build {
    /// Begins a build: from now on writers note their changes.
    fn begin(engine: &Arc<Engine>, table: &Arc<TableState>, definition: IndexDefinition) -> Result<Build, Error> {
        let name = &table.rows.name;
        engine.check_changeable()?;
        // BUILD-1: waits for transactions that have not written notes so far. Before anything that a failure would have
        // to give back.
        let _claim = claim(engine, table.rows.space)?;
        {
            let _ddl = engine.ddl();
            entry_with(engine, table, &definition, SpaceId::FIRST)?;
        }
        let role = Role::Index { table: name.clone(), is_unique: definition.is_unique };
        let loading = Loading::begin(engine, &definition.name, role)?;
        let entries = {
            let _ddl = engine.ddl();
            engine.check_open()?;
            let role = Role::Notes { table: name.clone() };
            open_state(engine, &definition.name, create_space(engine)?, role)
        };
        let as_noted = IndexDefinition { is_unique: false, ..definition.clone() };
        let noted = Arc::new(IndexState { definition: as_noted, entries });
        // BUILD-1: closing the gate waits for batches that do not write notes.
        table.close(&engine.waits).noted = Some(Arc::clone(&noted));
        Ok(Build { engine: Arc::clone(engine), table: Arc::clone(table), definition, noted, loading })
    }

    /// Builds the index, and returns it with the LSN at the end of the group that names it.
    pub(crate) fn run(
        engine: &Arc<Engine>,
        table: &Arc<TableState>,
        definition: IndexDefinition,
    ) -> Result<(Arc<IndexState>, Lsn), Error> {
        let mut build = Build::begin(engine, table, definition)?;
        let index = build.load()?;
        let end = build.finish(&index)?;
        Ok((index, end))
    }

    /// The last key of a tree.
    fn last(&self, tree: &Arc<TreeState>) -> Result<Option<Vec<u8>>, Error> {
        let all = Some((Bound::Unbounded, Bound::Unbounded));
        let mut scan = Scan::new(&self.engine, tree, Reader::newest(), all);
        Ok(scan.next_row_back()?.map(|(key, _)| key.to_vec()))
    }

    /// A scan of the keys up to `last`.
    fn scan_to(&self, tree: &Arc<TreeState>, last: Vec<u8>) -> Scan {
        let range = Some((Bound::Unbounded, Bound::Included(last)));
        Scan::new(&self.engine, tree, Reader::newest(), range)
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Loads the entries of all rows, each row as the scan read it.
    fn load(&mut self) -> Result<Arc<IndexState>, Error> {
        let mut entries = EntrySorter::new(self.definition.clone(), self.loading.sorter(1)?);
        // Rows that writers add behind the present last row are noted; to follow them could take for ever.
        let last = self.last(&self.table.rows)?.unwrap_or_default();
        let mut rows = self.scan_to(&self.table.rows, last);
        while let Some((key, row)) = rows.next_row()? {
            entries.push(self.engine(), key, row, || row_of(&self.table.rows, key))?;
        }
        drop(rows);
        let (_, mut sorted) = entries.finish()?;
        // The last entry is kept back until an entry with other fields comes: rows with equal fields are compared.
        let mut last: Option<OwnedRow> = None;
        let mut number = 0;
        while let Some((entry, key)) = sorted.next()? {
            if number % LOOK_EVERY == 0 {
                drop(self.table.rows.enter(&self.engine().waits)?);
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
        Ok(open_index(engine, &self.table.rows.name, self.definition.clone(), self.loading.space()))
    }

    /// Both rows had these fields, though maybe at different times. True: the second row has them now. An error if both
    /// have. A row that has changed is noted, whatever becomes of its entry.
    fn takes_over(&self, fields: &[u8], first: &[u8], second: &[u8]) -> Result<bool, Error> {
        let (engine, rows) = (self.engine(), &self.table.rows);
        loop {
            let (one, two) = (rows.get(engine, first, View::NEWEST)?, rows.get(engine, second, View::NEWEST)?);
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
        self.definition.duplicate(&self.table.rows, fields, [first, second], way_out)
    }

    /// Applies notes until a pass finds few. If a pass finds more than half as many as the one before, writers are too
    /// fast: the next pass closes the table's gate for each group of notes, and lets each writer in for one batch
    /// between two groups. The groups double in size until writers are slower.
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

    /// Applies all notes up to the one that is the last at the beginning: writers may add others behind it for ever. If
    /// `closed_for` is not 0, closes the table's gate for each group of so many notes. Returns the number of notes.
    fn pass(&self, index: &IndexState, closed_for: usize) -> Result<usize, Error> {
        let engine = self.engine();
        let Some(last) = self.last(&self.noted.entries)? else { return Ok(0) };
        let (mut scan, mut taken, mut some) = (self.scan_to(&self.noted.entries, last), 0, Vec::new());
        loop {
            let mut closed = self.closed(closed_for > 0)?;
            some.clear();
            while some.len() < self.together().max(closed_for)
                && let Some((note, _)) = scan.next_row()?
            {
                some.push(note.to_vec());
            }
            if some.is_empty() {
                return Ok(taken);
            }
            taken += some.len();
            let mut left = some.as_slice();
            while let Some(locked) = self.take_all_away(&mut left, index)? {
                // Its holder may wait at the gate.
                drop(closed.take());
                locked.wait(engine)?;
                closed = self.closed(closed_for > 0)?;
            }
        }
    }

    /// Claims the table and closes its gate, if that is wanted.
    fn closed(&self, is_wanted: bool) -> Result<Option<Closed<'_>>, Error> {
        if !is_wanted {
            return Ok(None);
        }
        let claim = claim(self.engine(), self.table.rows.space)?;
        Ok(Some(Closed { _gate: self.table.close(&self.engine.waits), _claim: claim }))
    }

    /// Number of notes that are applied together: a batch that changes so many leaves should fit in one group of the
    /// log, for then it locks no rows.
    fn together(&self) -> usize {
        (self.engine().group_leaves() / 4).clamp(1, NOTES_TOGETHER)
    }

    /// Applies these notes one after the other, and takes them out of the list. `Some`: a transaction has locked a row,
    /// for which the caller must wait with the gate open; the rest is left.
    fn take_all_away(&self, left: &mut &[Vec<u8>], index: &IndexState) -> Result<Option<Locked>, Error> {
        let mut at_once = self.together();
        while !left.is_empty() {
            let (now, later) = left.split_at(at_once.min(left.len()));
            match self.take_away(now, index) {
                Ok(()) => *left = later,
                Err(Stop::Locked(locked)) => return Ok(Some(locked)),
                // Another writer changed a row first; with fewer rows that is less probable.
                Err(Stop::TooLarge | Stop::Error(Error::Conflict(_))) => at_once = (now.len() / 2).max(1),
                Err(Stop::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Applies these notes: makes the index agree with the rows about them, and deletes them. `Conflict`: a row has
    /// changed meanwhile (BUILD-2).
    fn take_away(&self, notes: &[Vec<u8>], index: &IndexState) -> Result<(), Stop> {
        let (engine, table) = (self.engine(), &self.table);
        let mut rows: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let has_fields = |key: &[u8], row: &Option<Vec<u8>>, fields: &[u8]| {
            row.as_ref().is_some_and(|row| self.definition.has_fields(key, row, fields))
        };
        // The new value of each entry that changes; `None`: the entry is deleted.
        let mut entries: BTreeMap<Vec<u8>, Option<&[u8]>> = BTreeMap::new();
        let mut fields = Vec::new();
        for note in notes {
            let Some(key) = self.noted.definition.split_entry(note, b"", &mut fields) else {
                let message = format!("{} has {}, which is no entry", self.noted.entries, quoted(note));
                return Err(Error::Bug(message.into()).into());
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
                    read = index.entries.get(engine, &fields, View::NEWEST)?;
                    read.as_deref()
                }
            };
            let becomes = match other {
                // If the other row has the fields, too, the two are duplicates; else its entry becomes this row's. The
                // batch expects the other row as well (BUILD-2).
                Some(other) if is_there && other != key => {
                    if has_fields(other, self.read_once(other, &mut rows)?, &fields) {
                        return Err(self.conflict_or_duplicate(&fields, other, key, &rows)?.into());
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
        // Not paid for (PACE-1): the last notes are applied while the table's gate is closed.
        let _operation = engine.waits.operation(OperationKind::IndexBuild);
        write_once(engine, &mut ops)
    }

    /// The row `key`, from `rows`, or else read and kept there.
    fn read_once<'r>(
        &self,
        key: &[u8],
        rows: &'r mut BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Result<&'r Option<Vec<u8>>, Error> {
        match rows.entry(key.to_vec()) {
            Occupied(known) => Ok(known.into_mut()),
            Vacant(unknown) => Ok(unknown.insert(self.table.rows.get(self.engine(), key, View::NEWEST)?)),
        }
    }

    /// Two rows, read one after the other, have these fields. Returns the error for duplicates if both rows are still
    /// as they were read; else fails with `Conflict`.
    fn conflict_or_duplicate(
        &self,
        fields: &[u8],
        first: &[u8],
        second: &[u8],
        rows: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Result<Error, Stop> {
        let expected = |key| rows.get(key).and_then(Option::as_deref);
        let mut both = self.both((first, expected(first)), (second, expected(second)));
        write_once(self.engine(), &mut both)?;
        Ok(self.duplicate(fields, first, second))
    }

    /// Checks that both rows have the given values at one moment; else fails with `Conflict`.
    fn expect_both(&self, one: (&[u8], Option<&[u8]>), two: (&[u8], Option<&[u8]>)) -> Result<(), Error> {
        let mut both = self.both(one, two);
        let _operation = self.engine().waits.operation(OperationKind::IndexBuild);
        apply(self.engine(), &mut both).map(drop)
    }

    /// The expectations that two rows have these values.
    fn both<'k>(&'k self, one: (&'k [u8], Option<&'k [u8]>), two: (&'k [u8], Option<&'k [u8]>)) -> [Op<'k>; 2] {
        [one, two].map(|(key, row)| Op::new(&self.table.rows, key, Change::Expect(row)))
    }

    /// Applies the rest of the notes, with the table's gate closed. `Some`: as of
    /// [`take_all_away`](Self::take_all_away).
    fn rest(&self, index: &IndexState) -> Result<Option<Locked>, Error> {
        loop {
            let all = Some((Bound::Unbounded, Bound::Unbounded));
            let mut scan = Scan::new(&self.engine, &self.noted.entries, Reader::newest(), all);
            let mut some = Vec::new();
            while some.len() < self.together()
                && let Some((note, _)) = scan.next_row()?
            {
                some.push(note.to_vec());
            }
            if some.is_empty() {
                return Ok(None);
            }
            if let Some(locked) = self.take_all_away(&mut some.as_slice(), index)? {
                return Ok(Some(locked));
            }
        }
    }

    /// Catches up, closes the table's gate, applies the rest of the notes, and adds the index to the table's entry in
    /// the catalog. Returns the LSN at the end of that group.
    fn finish(mut self, index: &Arc<IndexState>) -> Result<Lsn, Error> {
        let engine = Arc::clone(&self.engine);
        let mut closed = 0;
        loop {
            self.catch_up(index)?;
            let claimed = claim(&engine, self.table.rows.space)?;
            let ddl = engine.ddl();
            let entry = entry_with(&engine, &self.table, &self.definition, self.loading.space())?;
            let mut indexes = self.table.close(&engine.waits);
            closed += 1;
            // A large batch was under way until now: writers need not wait until its notes are applied.
            if closed < CLOSED_MAX && self.has_many_notes()? {
                continue;
            }
            if let Some(locked) = self.rest(index)? {
                // Its holder may wait at the gate, or for the turn.
                drop((indexes, ddl, claimed));
                locked.wait(&engine)?;
                continue;
            }
            let replace = |spaces: &[SpaceId]| catalog::replace(&engine, &self.table.rows.name, &entry, spaces);
            let end = close_trees(&engine, vec![Arc::clone(&self.noted.entries)], Gate::Dropped, replace)?;
            // An entry may have come later than its row: older snapshots would see the one without the other.
            begin_now(&engine, &index.entries);
            indexes.noted = None;
            indexes.all.push(Arc::clone(index));
            drop(indexes);
            self.loading.named = true;
            return Ok(end);
        }
    }

    fn has_many_notes(&self) -> Result<bool, Error> {
        let all = Some((Bound::Unbounded, Bound::Unbounded));
        let mut scan = Scan::new(&self.engine, &self.noted.entries, Reader::newest(), all);
        for _ in 0..=REST_MAX {
            if scan.next_row()?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The table's entry in the catalog. Callers hold the turn of `ddl`.
pub(crate) fn catalog_entry(engine: &Engine, table: &TableState) -> Result<TableEntry, Error> {
    engine.check_open()?;
    match catalog::find(&engine.core, &table.rows.name)? {
        Some(Entry::Table(entry)) if entry.rows == table.rows.space => Ok(entry),
        _ => Err(table.rows.gone(&engine.waits)),
    }
}

/// The table's entry with one more index, in `space`. An error if the name is taken or the definition not possible.
fn entry_with(
    engine: &Engine,
    table: &TableState,
    definition: &IndexDefinition,
    space: SpaceId,
) -> Result<Entry, Error> {
    let mut entry = catalog_entry(engine, table)?;
    if entry.definition.indexes.iter().any(|index| index.name == definition.name) {
        let (index, rows) = (&definition.name, &table.rows);
        let message = format!("{rows} has an index '{index}' already: drop it, or name this one otherwise");
        return Err(Error::TreeExists(message.into()));
    }
    entry.definition.indexes.push(definition.clone());
    entry.indexes.push(space);
    check_definition(engine, &table.rows.name, &entry)?;
    Ok(Entry::Table(entry))
}

/// A table whose gate is closed, and that no transaction uses.
struct Closed<'b> {
    _gate: WriteGuard<'b, Indexes>,
    _claim: Claim<'b>,
}

/// A row that another transaction has locked.
struct Locked(SpaceId, Vec<u8>, Option<Stamp>);

impl Locked {
    /// Waits until the row is free, and leaves it so. Callers have entered no gate.
    fn wait(self, engine: &Engine) -> Result<(), Error> {
        let mut slot = engine.txns.begin(&engine.core.store)?;
        match slot.wait_for_row(self.0, &self.1, self.2, Mode::Exclusive, &engine.waits) {
            // The build has more time than a batch.
            Err(Error::LockTimeout(_)) => engine.check_open(),
            done => done,
        }
    }
}

/// Why notes are not applied.
enum Stop {
    Error(Error),
    Locked(Locked),
    /// They do not fit one group of the log.
    TooLarge,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Error(error)
    }
}

/// Writes `ops` in one group, and waits for no row: the table's gate may be closed, and the row's holder wait there.
fn write_once(engine: &Engine, ops: &mut [Op<'_>]) -> Result<(), Stop> {
    let mut slot = engine.txns.begin(&engine.core.store)?;
    match try_apply(engine, ops, Extent::Batch, Size::OneGroup, &mut slot)? {
        Applied::Done(_) => {
            end_and_purge(engine, slot);
            Ok(())
        }
        Applied::Locked(space, key, stamp) => Err(Stop::Locked(Locked(space, key, stamp))),
        Applied::TooLarge | Applied::InParts(_) => Err(Stop::TooLarge),
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if self.loading.named {
            return;
        }
        let engine = &self.engine;
        // Threads that hold the gate may wait for rows of transactions that wait for the gate, but for transactions
        // that have not ended in time.
        let _claim = claim(engine, self.table.rows.space);
        self.table.close(&engine.waits).noted = None;
        let _ddl = engine.ddl();
        if engine.check_open().is_ok() && !planted!("notes_not_given_back") {
            // If this fails, the next open gives the space back (BUILD-4).
            let notes = vec![Arc::clone(&self.noted.entries)];
            let _ = close_trees(engine, notes, Gate::Dropped, |spaces| catalog::drop_unnamed(engine, spaces));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::api::database::Db;
    use crate::api::table::Table;
    use crate::io::simulated::SimulatedDisk;
    use crate::options::Options;
    use crate::options::durability::Durability;
    use crate::schema::definition::Field;
    use crate::schema::definition::TableDefinition;
    use crate::simulation::{run, spawn};

    fn open() -> Db {
        let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::mib(1));
        let options = options.redo_capacity(ByteSize::mib(2)).durability(Durability::None);
        Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened")
    }

    /// Two rows exchange their unique values again and again, while the build applies the notes one by one.
    #[test]
    fn a_note_goes_only_when_the_index_is_right_about_both_rows() {
        for seed in 0..40 {
            run(seed, || {
                let db = open();
                let table = db.create_table("t", TableDefinition::new()).expect("created");
                table.insert(b"o", b"f").expect("inserted");
                table.insert(b"r", b"g").expect("inserted");
                let swap = |db: &Db, table: &Table, to: [&[u8]; 2]| {
                    let mut batch = crate::write::batch::WriteBatch::new();
                    batch.put(table, b"o", to[0]).put(table, b"r", to[1]);
                    db.write(batch).expect("written");
                };
                let definition =
                    IndexDefinition { name: "i".to_owned(), is_unique: true, fields: vec![Field::value(0..1)] };
                let mut build = Build::begin(&table.engine, &table.state, definition).expect("begun");
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
                        assert!(matches!(error, Stop::Error(Error::Conflict(_))), "seed {seed}");
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

    /// A row changes to other fields and back, the latter just when the build applies the note of the former.
    #[test]
    fn a_note_goes_only_when_the_index_is_right_about_it() {
        for seed in 0..12 {
            run(seed, || {
                let db = open();
                let table = db.create_table("t", TableDefinition::new()).expect("created");
                table.insert(b"k", b"a").expect("inserted");
                let definition =
                    IndexDefinition { name: "i".to_owned(), is_unique: seed < 6, fields: vec![Field::value(0..1)] };
                let mut build = Build::begin(&table.engine, &table.state, definition).expect("begun");
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
