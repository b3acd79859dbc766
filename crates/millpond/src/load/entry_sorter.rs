//! The entries of an index that is built from rows: computed from each row, then sorted for the load.

use crate::base::error::Error;
use crate::engine::Engine;
use crate::load::sorter::{Sorted, Sorter};
use crate::schema::definition::IndexDefinition;
use crate::schema::index_key::EntryBytes;

/// Takes rows, and collects their entries for sorting.
pub(crate) struct EntrySorter {
    pub(super) definition: IndexDefinition,
    sorter: Sorter,
    /// Buffer for the key of one entry, reused.
    entry: EntryBytes,
}

impl EntrySorter {
    pub(super) fn new(definition: IndexDefinition, sorter: Sorter) -> EntrySorter {
        EntrySorter { definition, sorter, entry: EntryBytes::new() }
    }

    /// Adds a row's entry: its key, and for a unique index the primary key as payload. `row` names the row in messages.
    pub(crate) fn push(
        &mut self,
        engine: &Engine,
        key: &[u8],
        value: &[u8],
        row: impl Fn() -> String,
    ) -> Result<(), Error> {
        let EntrySorter { definition, sorter, entry } = self;
        entry.clear();
        let appended = definition.append_entry_key(key, value, entry);
        appended.map_err(|short| short.error(&definition.name, &row()))?;
        if entry.len() > engine.limits.key {
            return Err(too_long(engine, definition, entry.len(), &row()));
        }
        sorter.push(entry, [b"", if definition.is_unique { key } else { &[] }])
    }

    /// Ends the input. Entries with the same key, of a unique index, come in any order.
    pub(super) fn finish(self) -> Result<(IndexDefinition, Sorted), Error> {
        Ok((self.definition, self.sorter.finish()?))
    }
}

#[cold]
fn too_long(engine: &Engine, definition: &IndexDefinition, len: usize, row: &str) -> Error {
    let (index, most, page_size) = (&definition.name, engine.limits.key, engine.core.store.page_size());
    let message = format!(
        "the entry of {row} in index '{index}' has {len} bytes: at most {most} fit with pages of {page_size} bytes; use fields with fewer bytes"
    );
    Error::KeyTooLong(message.into())
}
