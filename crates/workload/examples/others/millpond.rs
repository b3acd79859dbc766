//! Millpond.

use std::path::Path;

use millpond::{ByteSize, Db, Field, Options, Table, TableDefinition, WriteBatch};

use super::{AMPLE_BYTES, Engine, Key, Memory, Outcome, Reader, Row, Value, is_row};

const TABLE: &str = "rows";
const INDEX: &str = "k";

struct Millpond {
    db: Db,
    /// `None`: nothing is loaded yet.
    table: Option<Table>,
}

pub(super) fn open(dir: &Path, memory: Memory) -> Outcome<Box<dyn Engine>> {
    let pool = match memory {
        Memory::Ample => AMPLE_BYTES,
        Memory::Bounded(bytes) => bytes,
    };
    let redo_capacity = ByteSize::gib(1);
    let db = Db::open(dir, Options::new().buffer_pool_size(ByteSize::b(pool)).redo_capacity(redo_capacity))?;
    // Waits until the log is made, so that it is not made beside the figures.
    db.set_redo_capacity(redo_capacity)?;
    let table = db.tables()?.iter().any(|name| name == TABLE).then(|| db.open_table(TABLE)).transpose()?;
    Ok(Box::new(Millpond { db, table }))
}

impl Millpond {
    fn table(&self) -> Outcome<&Table> {
        Ok(self.table.as_ref().ok_or("nothing is loaded")?)
    }
}

impl Engine for Millpond {
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Outcome<()> {
        let definition = TableDefinition::new().index(INDEX, [Field::value(0..4)]);
        let mut load = self.db.begin_bulk_load_table(TABLE, definition)?;
        for (key, value) in rows {
            load.push(key, value)?;
        }
        self.table = Some(load.finish()?);
        Ok(())
    }

    fn update(&self, key: &Key, value: &Value) -> Outcome<()> {
        Ok(self.table()?.update(key, value)?)
    }

    fn insert_batch(&self, rows: &[Row]) -> Outcome<()> {
        let (table, mut batch) = (self.table()?, WriteBatch::new());
        for (key, value) in rows {
            batch.insert(table, key, value);
        }
        self.db.write(batch)?;
        Ok(())
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(self.table()?))
    }

    fn counts(&self) -> Outcome<(u64, u64)> {
        let table = self.table()?;
        let (mut rows, mut scan) = (0, table.scan(..));
        while scan.next_row()?.is_some() {
            rows += 1;
        }
        let (mut entries, mut scan) = (0, table.index(INDEX)?.scan(..));
        while scan.next_entry()?.is_some() {
            entries += 1;
        }
        Ok((rows, entries))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(self.db.close()?)
    }
}

impl Reader for &Table {
    fn get(&mut self, key: &Key) -> Outcome<bool> {
        Ok(Table::get(self, key)?.is_some_and(|value| is_row(key, &value)))
    }

    fn scan(&mut self, from: &Key, limit: usize) -> Outcome<usize> {
        let (mut found, mut rows) = (0, Table::scan(self, &from[..]..));
        while found < limit
            && let Some((key, value)) = rows.next_row()?
        {
            found += usize::from(is_row(key, value));
        }
        Ok(found)
    }
}
