//! Millpond under load.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `sbtestN` | id, 8 bytes big-endian | k, 4 bytes big-endian; c, 120 bytes; pad, 60 bytes |
//! | `sbtestN.k` | k, 4 bytes big-endian; id, 8 bytes big-endian | empty |
//! | `sbtest.meta` | a table's name | rows it was loaded with, 8 bytes big-endian; written last |
//! | `sbtest.meta` | `made by` | [`MADE_BY`] |
//!
//! A row and its index entry always change in one batch.

use std::collections::BTreeSet;
use std::path::Path;

use ::millpond::{Db, Durability, Error as MillpondError, Options, Tree, WriteBatch};

use crate::Error;
use crate::engine::{Counters, Engine, Gauges, Outcome, Session, TableNo, TableState, Wait};
use crate::generators::row::{C_LEN, PAD_LEN, Row};

/// The tree with the notes on the tables.
const META: &str = "sbtest.meta";

/// The key in [`META`] of a database that was made for load.
const MADE_BY_KEY: &[u8] = b"made by";

/// Its value.
pub const MADE_BY: &[u8] = b"millpond bench";

/// Bytes of `k` in a row and in an index entry's key.
const K_LEN: usize = 4;

/// Bytes of an id.
const ID_LEN: usize = 8;

/// Bytes of a row's value.
const ROW_LEN: usize = K_LEN + C_LEN + PAD_LEN;

/// How long a load's batches may stay undurable. The load ends with a checkpoint.
const LOAD_DURABILITY: Durability = Durability::Background(100);

/// An open millpond database.
#[derive(Clone)]
pub struct Millpond {
    db: Db,
}

impl Millpond {
    /// Opens the database in `dir`; if `options` allow it, a missing one is created.
    ///
    /// Nothing is written into a database that is there: another's may be looked at.
    ///
    /// # Errors
    /// [`Error::Engine`]: what [`Db::open`] returns.
    pub fn open(dir: &Path, options: Options) -> Result<Millpond, Error> {
        Ok(Millpond { db: Db::open(dir, options).map_err(Error::engine)? })
    }

    /// Whether the database was made for load and holds nothing but this module's trees.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    pub fn is_only_load(&self) -> Result<bool, Error> {
        let Some(meta) = self.meta()? else { return Ok(false) };
        let made_here = meta.get(MADE_BY_KEY).map_err(Error::engine)?.is_some_and(|by| by == MADE_BY);
        let only_ours = self.db.trees().map_err(Error::engine)?.iter().all(|name| is_load_tree(name));
        Ok(made_here && only_ours)
    }

    /// The numbers of all tables in the database.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    pub fn tables(&self) -> Result<BTreeSet<u32>, Error> {
        let names = self.db.trees().map_err(Error::engine)?;
        Ok(names.iter().filter_map(|name| table_number(name)).collect())
    }

    /// Closes the database with a final checkpoint.
    ///
    /// # Errors
    /// [`Error::Engine`]: what [`Db::close`] returns.
    pub fn close(self) -> Result<(), Error> {
        self.db.close().map_err(Error::engine)
    }

    /// The notes' tree, if there is one.
    fn meta(&self) -> Result<Option<Tree>, Error> {
        match self.db.open_tree(META) {
            Ok(meta) => Ok(Some(meta)),
            Err(MillpondError::TreeNotFound(..)) => Ok(None),
            Err(other) => Err(Error::engine(other)),
        }
    }

    /// The notes' tree, made if need be. The mark of a database made for load goes only into one that holds nothing.
    fn make_meta(&self) -> Result<Tree, Error> {
        if let Some(meta) = self.meta()? {
            return Ok(meta);
        }
        let was_empty = self.db.trees().map_err(Error::engine)?.is_empty();
        let meta = self.db.create_tree(META).map_err(Error::engine)?;
        if was_empty {
            meta.put(MADE_BY_KEY, MADE_BY).map_err(Error::engine)?;
        }
        Ok(meta)
    }

    fn open_tree(&self, table: TableNo, name: &str) -> Result<Tree, Error> {
        self.db.open_tree(name).map_err(|error| match error {
            MillpondError::TreeNotFound(..) => Error::NotLoaded(table),
            other => Error::engine(other),
        })
    }
}

impl Engine for Millpond {
    type Session<'e> = MillpondSession;

    fn table(&self, table: TableNo) -> Result<TableState, Error> {
        let note = match self.meta()? {
            Some(meta) => meta.get(table.to_string().as_bytes()).map_err(Error::engine)?,
            None => None,
        };
        if let Some(rows) = note.and_then(|note| note.try_into().ok()) {
            return Ok(TableState::Loaded(u64::from_be_bytes(rows)));
        }
        let is_there = self.tables()?.contains(&table.get());
        Ok(if is_there { TableState::HalfLoaded } else { TableState::Missing })
    }

    fn create_table(&self, table: TableNo) -> Result<(), Error> {
        self.make_meta()?;
        self.db.create_tree(&table.to_string()).map_err(Error::engine)?;
        self.db.create_tree(&index_name(table)).map_err(Error::engine)?;
        Ok(())
    }

    fn finish_table(&self, table: TableNo, rows: u64) -> Result<(), Error> {
        self.make_meta()?.put(table.to_string().as_bytes(), &rows.to_be_bytes()).map_err(Error::engine)
    }

    fn finish_load(&self) -> Result<(), Error> {
        self.db.checkpoint().map_err(Error::engine)
    }

    fn drop_table(&self, table: TableNo) -> Result<bool, Error> {
        // The note first: a crash in between leaves a table that counts as half loaded.
        if let Some(meta) = self.meta()? {
            meta.delete(table.to_string().as_bytes()).map_err(Error::engine)?;
        }
        let mut was_there = false;
        for name in [index_name(table), table.to_string()] {
            match self.db.drop_tree(&name) {
                Ok(()) => was_there = true,
                Err(MillpondError::TreeNotFound(..)) => {}
                Err(other) => return Err(Error::engine(other)),
            }
        }
        Ok(was_there)
    }

    fn last_id(&self, table: TableNo) -> Result<u64, Error> {
        let rows = self.open_tree(table, &table.to_string())?;
        let last = rows.scan_back(..).next().transpose().map_err(Error::engine)?;
        Ok(last.and_then(|(key, _)| key.try_into().ok()).map_or(0, u64::from_be_bytes))
    }

    fn session(&self, tables: u32) -> Result<MillpondSession, Error> {
        let tables = TableNo::first(tables)
            .map(|table| {
                let rows = self.open_tree(table, &table.to_string())?;
                let index = self.open_tree(table, &index_name(table))?;
                Ok(TablePair { rows, index })
            })
            .collect::<Result<Vec<TablePair>, Error>>()?;
        Ok(MillpondSession { db: self.db.clone(), tables })
    }

    fn gauges(&self) -> Gauges {
        let stats = self.db.stats();
        Gauges {
            age_percent: percent(stats.log_checkpoint_age, stats.log_capacity),
            dirty_percent: percent(stats.buffer_pool_pages_dirty, stats.buffer_pool_pages_total),
            free_frames: stats.buffer_pool_pages_free,
        }
    }

    fn counters(&self) -> Counters {
        let stats = self.db.stats();
        Counters {
            waits: self.db.waits().iter().map(wait).collect(),
            stalls: stats.stalls,
            log_syncs: stats.log_syncs,
            data_syncs: stats.data_syncs,
            checkpoints: stats.checkpoints,
        }
    }
}

fn wait(wait: &millpond::WaitSummary) -> Wait {
    let total_us = u64::try_from(wait.total.as_micros()).unwrap_or(u64::MAX);
    Wait { class: wait.class.name(), count: wait.count, total_us }
}

/// One thread's handles.
pub struct MillpondSession {
    db: Db,
    tables: Vec<TablePair>,
}

/// A table and its index.
struct TablePair {
    rows: Tree,
    index: Tree,
}

impl Session for MillpondSession {
    fn select_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        let row = self.tables[table.index()].rows.get(&id.to_be_bytes()).map_err(Error::engine)?;
        match row {
            None => Err(Error::RowMissing { table, id }),
            Some(row) if row.len() != ROW_LEN => Err(Error::RowMalformed { table, id, length: row.len() }),
            Some(_) => Ok(Outcome::Done),
        }
    }

    fn increment_k(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        let TablePair { rows, index } = &self.tables[table.index()];
        let row_key = id.to_be_bytes();
        let Some(old_row) = rows.get(&row_key).map_err(Error::engine)? else {
            return Err(Error::RowMissing { table, id });
        };
        let Ok(mut new_row) = <[u8; ROW_LEN]>::try_from(old_row.as_slice()) else {
            return Err(Error::RowMalformed { table, id, length: old_row.len() });
        };
        let old_k = k_of(&new_row);
        let new_k = old_k.wrapping_add(1);
        new_row[..K_LEN].copy_from_slice(&new_k.to_be_bytes());
        let mut batch = WriteBatch::new();
        batch
            .expect(rows, &row_key, Some(&old_row))
            .put(rows, &row_key, &new_row)
            .delete(index, &index_key(old_k, id))
            .insert(index, &index_key(new_k, id), &[]);
        outcome(self.db.write(batch))
    }

    fn insert_row(&mut self, table: TableNo, row: &Row) -> Result<Outcome, Error> {
        let TablePair { rows, index } = &self.tables[table.index()];
        let mut batch = WriteBatch::new();
        batch.insert(rows, &row.id.to_be_bytes(), &row_value(row)).insert(index, &index_key(row.k, row.id), &[]);
        outcome(self.db.write(batch))
    }

    fn load_rows(&mut self, table: TableNo, rows: &[Row]) -> Result<(), Error> {
        let pair = &self.tables[table.index()];
        let mut entries: Vec<[u8; K_LEN + ID_LEN]> = rows.iter().map(|row| index_key(row.k, row.id)).collect();
        entries.sort_unstable();
        let mut batch = WriteBatch::new();
        batch.durability(LOAD_DURABILITY);
        for row in rows {
            batch.insert(&pair.rows, &row.id.to_be_bytes(), &row_value(row));
        }
        for entry in &entries {
            batch.insert(&pair.index, entry, &[]);
        }
        match self.db.write(batch) {
            // A small pool or log bounds what one batch may change at once.
            Err(MillpondError::BatchTooLarge(..)) if rows.len() > 1 => {
                let (first, second) = rows.split_at(rows.len() / 2);
                self.load_rows(table, first)?;
                self.load_rows(table, second)
            }
            written => written.map_err(Error::engine),
        }
    }
}

/// Tells a conflict, to be run again, from an error.
fn outcome(written: Result<(), MillpondError>) -> Result<Outcome, Error> {
    match written {
        Ok(()) => Ok(Outcome::Done),
        Err(MillpondError::Conflict(..)) => Ok(Outcome::Conflict),
        Err(other) => Err(Error::engine(other)),
    }
}

fn index_name(table: TableNo) -> String {
    format!("{table}.k")
}

/// The number in a table's or an index's name.
fn table_number(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("sbtest")?;
    rest.strip_suffix(".k").unwrap_or(rest).parse().ok()
}

fn is_load_tree(name: &str) -> bool {
    name == META || table_number(name).is_some()
}

fn index_key(k: u32, id: u64) -> [u8; K_LEN + ID_LEN] {
    let mut key = [0; K_LEN + ID_LEN];
    key[..K_LEN].copy_from_slice(&k.to_be_bytes());
    key[K_LEN..].copy_from_slice(&id.to_be_bytes());
    key
}

fn row_value(row: &Row) -> [u8; ROW_LEN] {
    let mut value = [0; ROW_LEN];
    value[..K_LEN].copy_from_slice(&row.k.to_be_bytes());
    value[K_LEN..K_LEN + C_LEN].copy_from_slice(&row.c);
    value[K_LEN + C_LEN..].copy_from_slice(&row.pad);
    value
}

fn k_of(row: &[u8; ROW_LEN]) -> u32 {
    u32::from_be_bytes([row[0], row[1], row[2], row[3]])
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Keys, RandType, random};

    const TABLE: u32 = 0;

    /// Through the page cache: these tests are about tables, and run on any file system.
    fn options() -> Options {
        Options::new().cached(true)
    }

    fn engine_with_rows(dir: &Path, rows: u64) -> Millpond {
        let engine = Millpond::open(dir, options()).unwrap();
        let table = TableNo::from_index(TABLE);
        engine.create_table(table).unwrap();
        let keys = Keys::new(RandType::Uniform, rows).unwrap();
        let mut random = random(3, 0);
        let rows: Vec<Row> = (1..=rows).map(|id| Row::random(id, &keys, &mut random)).collect();
        engine.session(1).unwrap().load_rows(table, &rows).unwrap();
        engine.finish_table(table, rows.len() as u64).unwrap();
        engine
    }

    /// The (k, id) of every row.
    type Pairs = BTreeSet<(u32, u64)>;

    /// What the table says, and what the index says.
    fn both_views(engine: &Millpond) -> (Pairs, Pairs) {
        let session = engine.session(1).unwrap();
        let pair = &session.tables[0];
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |n, &b| n << 8 | u64::from(b));
        let by_row = pair.rows.scan(..).map(|entry| {
            let (key, value) = entry.unwrap();
            (number(&value[..K_LEN]) as u32, number(&key))
        });
        let by_index = pair.index.scan(..).map(|entry| {
            let (key, value) = entry.unwrap();
            assert!(value.is_empty());
            (number(&key[..K_LEN]) as u32, number(&key[K_LEN..]))
        });
        (by_row.collect(), by_index.collect())
    }

    #[test]
    fn update_moves_the_row_and_its_index_entry_together() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with_rows(dir.path(), 50);
        let (before, index_before) = both_views(&engine);
        assert_eq!(before, index_before);
        let mut session = engine.session(1).unwrap();
        for _ in 0..3 {
            assert_eq!(session.increment_k(TableNo::from_index(TABLE), 7).unwrap(), Outcome::Done);
        }
        let (after, index_after) = both_views(&engine);
        assert_eq!(after, index_after);
        let k_of_7 = |rows: &Pairs| rows.iter().find(|(_, id)| *id == 7).unwrap().0;
        assert_eq!(k_of_7(&after), k_of_7(&before) + 3);
        assert_eq!(after.len(), 50);
        engine.close().unwrap();
    }

    #[test]
    fn update_racing_threads_lose_no_increment() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with_rows(dir.path(), 4);
        let (before, _) = both_views(&engine);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut session = engine.session(1).unwrap();
                    for _ in 0..50 {
                        while session.increment_k(TableNo::from_index(TABLE), 2).unwrap() == Outcome::Conflict {}
                    }
                });
            }
        });
        let (after, index) = both_views(&engine);
        assert_eq!(after, index);
        let sum = |rows: &Pairs| rows.iter().map(|(k, _)| u64::from(*k)).sum::<u64>();
        assert_eq!(sum(&after), sum(&before) + 200);
    }

    #[test]
    fn select_and_update_of_a_missing_row_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with_rows(dir.path(), 5);
        let mut session = engine.session(1).unwrap();
        let table = TableNo::from_index(TABLE);
        assert_eq!(session.select_row(table, 5).unwrap(), Outcome::Done);
        assert!(matches!(session.select_row(table, 6), Err(Error::RowMissing { id: 6, .. })));
        assert!(matches!(session.increment_k(table, 6), Err(Error::RowMissing { id: 6, .. })));
    }

    #[test]
    fn table_states_follow_the_load() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with_rows(dir.path(), 5);
        let second = TableNo::from_index(1);
        assert_eq!(engine.table(TableNo::from_index(0)).unwrap(), TableState::Loaded(5));
        assert_eq!(engine.table(second).unwrap(), TableState::Missing);
        engine.create_table(second).unwrap();
        assert_eq!(engine.table(second).unwrap(), TableState::HalfLoaded);
        assert_eq!(engine.last_id(second).unwrap(), 0);
        assert_eq!(engine.last_id(TableNo::from_index(0)).unwrap(), 5);
        assert!(engine.drop_table(second).unwrap());
        assert!(!engine.drop_table(second).unwrap());
        assert_eq!(engine.table(second).unwrap(), TableState::Missing);
        assert!(matches!(engine.session(2), Err(Error::NotLoaded(table)) if table == second));
    }

    #[test]
    fn database_with_other_trees_is_not_only_load() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine_with_rows(dir.path(), 5);
        assert!(engine.is_only_load().unwrap());
        engine.db.create_tree("accounts").unwrap();
        assert!(!engine.is_only_load().unwrap());
        engine.close().unwrap();

        let foreign = tempfile::tempdir().unwrap();
        let db = Db::open(foreign.path(), options()).unwrap();
        db.create_tree("accounts").unwrap();
        db.close().unwrap();
        let engine = Millpond::open(foreign.path(), options()).unwrap();
        assert!(!engine.is_only_load().unwrap());
        assert_eq!(engine.db.trees().unwrap(), ["accounts"], "a look leaves nothing behind");
        engine.create_table(TableNo::from_index(0)).unwrap();
        engine.db.drop_tree("accounts").unwrap();
        assert!(!engine.is_only_load().unwrap(), "the mark must not be given to a database that held other trees");
    }

    #[test]
    fn names_of_tables_are_recognised() {
        assert_eq!(table_number("sbtest12"), Some(12));
        assert_eq!(table_number("sbtest12.k"), Some(12));
        assert_eq!(table_number("sbtest.meta"), None);
        assert_eq!(table_number("sbtest1x"), None);
        assert!(is_load_tree(META));
        assert!(!is_load_tree("other"));
    }
}
