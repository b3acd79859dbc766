//! The values of the catalog: for each name its kind, tree or table, and all that is needed to open it.
//!
//! An [`Entry`] holds the spaces of the tree or table and, for a table, its [`TableDefinition`]. The encoding refuses
//! kinds and flags that this build does not know.

use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::base::page::reader::Reader;
use crate::schema::definition::{Field, IndexDefinition, Source, TableDefinition};

/// The kind of a tree's value.
const TREE: u8 = 1;

/// The kind of a table's value.
const TABLE: u8 = 2;

/// Flag of a value: there is a space with the chunks of long values.
const CHUNKED: u8 = 1;

/// Flag of an index: it is unique.
const UNIQUE: u8 = 1;

/// Flag of a field: it is a piece of the row's value, not of its primary key.
const OF_VALUE: u8 = 1;

/// Flag of a field: it has no fixed end.
const OPEN: u8 = 2;

/// Most bytes of a value: a page of 4 KiB has room for some such values with the longest names.
pub(crate) const ENTRY_MAX: usize = 1024;

/// The tree or table that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A tree: its space, and the space with the chunks of its long values, if it ever had any.
    Tree {
        rows: SpaceId,
        chunks: Option<SpaceId>,
    },
    Table(TableEntry),
}

/// A table: the space of its rows, its definition, and the spaces of its indexes in the definition's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) rows: SpaceId,
    /// The space with the chunks of long values, if there ever was one.
    pub(crate) chunks: Option<SpaceId>,
    pub(crate) definition: TableDefinition,
    pub(crate) indexes: Vec<SpaceId>,
}

impl TableEntry {
    /// The indexes, and the space of each.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = (&IndexDefinition, SpaceId)> {
        self.definition.indexes.iter().zip(self.indexes.iter().copied())
    }
}

impl Entry {
    /// All spaces of the tree or table.
    pub(crate) fn spaces(&self) -> Vec<SpaceId> {
        match self {
            Entry::Tree { rows, chunks } => std::iter::once(*rows).chain(*chunks).collect(),
            Entry::Table(table) => {
                let indexes = table.indexes.iter().copied();
                std::iter::once(table.rows).chain(indexes).chain(table.chunks).collect()
            }
        }
    }

    /// The space of the rows.
    pub(crate) fn rows(&self) -> SpaceId {
        match self {
            Entry::Tree { rows, .. } => *rows,
            Entry::Table(table) => table.rows,
        }
    }

    /// The space with the chunks of long values.
    pub(crate) fn chunks(&mut self) -> &mut Option<SpaceId> {
        match self {
            Entry::Tree { chunks, .. } => chunks,
            Entry::Table(table) => &mut table.chunks,
        }
    }

    /// The entry's value in the catalog.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = |kind: u8, rows: SpaceId, chunks: Option<SpaceId>| {
            let mut out = vec![kind, if chunks.is_some() { CHUNKED } else { 0 }];
            std::iter::once(rows).chain(chunks).for_each(|space| out.extend_from_slice(&space.0.to_le_bytes()));
            out
        };
        match self {
            Entry::Tree { rows, chunks } => head(TREE, *rows, *chunks),
            Entry::Table(table) => {
                let mut out = head(TABLE, table.rows, table.chunks);
                out.push(byte(table.indexes.len()));
                for (index, space) in table.indexes() {
                    out.push(if index.is_unique { UNIQUE } else { 0 });
                    out.extend_from_slice(&space.0.to_le_bytes());
                    out.push(byte(index.name.len()));
                    out.extend_from_slice(index.name.as_bytes());
                    out.push(byte(index.fields.len()));
                    index.fields.iter().for_each(|field| encode_field(field, &mut out));
                }
                out
            }
        }
    }

    /// The entry with this value; the error says what is wrong with the value.
    pub(crate) fn decode(value: &[u8]) -> Result<Entry, String> {
        let mut reader = Reader::new(value);
        let kind = reader.u8().ok_or(CUT)?;
        let flags = reader.u8().ok_or(CUT)?;
        known("a name", flags, CHUNKED)?;
        let mut spaces = || {
            let rows = decode_space(&mut reader)?;
            let chunks = if flags & CHUNKED != 0 { Some(decode_space(&mut reader)?) } else { None };
            Ok::<_, String>((rows, chunks))
        };
        let entry = match kind {
            TREE => {
                let (rows, chunks) = spaces()?;
                Entry::Tree { rows, chunks }
            }
            TABLE => {
                let (rows, chunks) = spaces()?;
                Entry::Table(decode_table(rows, chunks, &mut reader)?)
            }
            other => return Err(format!("it is of kind {other}, which this build does not know")),
        };
        if reader.is_empty() { Ok(entry) } else { Err("it goes on behind its end".to_owned()) }
    }

    /// The entry of `name`, with the name in the error.
    pub(crate) fn decode_named(name: &[u8], value: &[u8]) -> Result<Entry, Error> {
        Entry::decode(value).map_err(|what| {
            let name = String::from_utf8_lossy(name);
            let message =
                format!("the catalog's entry '{name}' cannot be read: {what}; `millpond check` tells what else is damaged: restore a backup (`millpond restore`)");
            Error::Corruption(message.into())
        })
    }
}

/// The error for a value that is too short.
const CUT: &str = "it ends too early";

/// A number of indexes or fields, or the length of a name, as a byte: [`ENTRY_MAX`] keeps these numbers small enough.
fn byte(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// Refuses flags outside of `all`: a later build wrote them.
fn known(of: &str, flags: u8, all: u8) -> Result<(), String> {
    match flags & !all {
        0 => Ok(()),
        unknown => Err(format!("{of} has the flags {unknown:#04x}, which this build does not know")),
    }
}

fn decode_space(reader: &mut Reader<'_>) -> Result<SpaceId, String> {
    let space = SpaceId(reader.u32().ok_or(CUT)?);
    if space < SpaceId::FIRST { Err(format!("it names space {space}, which is no tree's")) } else { Ok(space) }
}

fn encode_field(field: &Field, out: &mut Vec<u8>) {
    let source = if field.source == Source::Value { OF_VALUE } else { 0 };
    out.push(source | if field.end.is_none() { OPEN } else { 0 });
    out.extend_from_slice(&u32::try_from(field.offset).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&u16::try_from(field.len().unwrap_or(0)).unwrap_or(u16::MAX).to_le_bytes());
}

fn decode_table(rows: SpaceId, chunks: Option<SpaceId>, reader: &mut Reader<'_>) -> Result<TableEntry, String> {
    let count = reader.u8().ok_or(CUT)?;
    let (mut definition, mut indexes) = (TableDefinition::new(), Vec::new());
    for _ in 0..count {
        let flags = reader.u8().ok_or(CUT)?;
        known("an index", flags, UNIQUE)?;
        indexes.push(decode_space(reader)?);
        let name_len = reader.u8().ok_or(CUT)?;
        let name = reader.take(usize::from(name_len)).ok_or(CUT)?.to_vec();
        let name = String::from_utf8(name).map_err(|_| "the name of an index is no text".to_owned())?;
        let fields = reader.u8().ok_or(CUT)?;
        let fields = (0..fields).map(|_| decode_field(reader)).collect::<Result<_, _>>()?;
        definition.indexes.push(IndexDefinition { name, is_unique: flags & UNIQUE != 0, fields });
    }
    // A definition that passed creation has no mistakes. The limit for keys is not known here.
    match definition.mistakes(usize::MAX).first() {
        None => Ok(TableEntry { rows, chunks, definition, indexes }),
        Some(mistake) => Err(mistake.clone()),
    }
}

fn decode_field(reader: &mut Reader<'_>) -> Result<Field, String> {
    let flags = reader.u8().ok_or(CUT)?;
    known("a field", flags, OF_VALUE | OPEN)?;
    let offset = usize::try_from(reader.u32().ok_or(CUT)?).map_err(|_| "a field is beyond any row".to_owned())?;
    let len = usize::from(reader.u16().ok_or(CUT)?);
    let end = match (flags & OPEN != 0, len) {
        (true, 0) => None,
        (true, _) => return Err("a field without an end has a length".to_owned()),
        (false, len) => Some(offset.saturating_add(len)),
    };
    let source = if flags & OF_VALUE != 0 { Source::Value } else { Source::Key };
    Ok(Field { source, offset, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Entry {
        let definition = TableDefinition::new()
            .index("k", [Field::value(0..4)])
            .unique("all", [Field::key(1..3), Field::value(7..)]);
        Entry::Table(TableEntry { rows: SpaceId(9), chunks: None, definition, indexes: vec![SpaceId(10), SpaceId(11)] })
    }

    #[test]
    fn entries_survive_encoding_and_are_refused_when_cut_or_padded() {
        let mut with_chunks = table();
        *with_chunks.chunks() = Some(SpaceId(12));
        assert_eq!(with_chunks.spaces(), [SpaceId(9), SpaceId(10), SpaceId(11), SpaceId(12)]);
        let chunks = Some(SpaceId(8));
        let trees = [None, chunks].map(|chunks| Entry::Tree { rows: SpaceId(7), chunks });
        for entry in trees.into_iter().chain([table(), with_chunks]) {
            let bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes), Ok(entry));
            for len in 0..bytes.len() {
                assert_eq!(Entry::decode(&bytes[..len]), Err(CUT.to_owned()), "cut at {len}");
            }
            assert!(Entry::decode(&[&bytes[..], &[0]].concat()).is_err_and(|what| what.contains("behind its end")));
        }
        assert_eq!(table().spaces(), [SpaceId(9), SpaceId(10), SpaceId(11)]);
    }

    #[test]
    fn what_a_later_build_wrote_is_refused_by_name() {
        let bytes = table().encode();
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            Entry::decode(&bytes).expect_err("refused")
        };
        for (at, value, part) in [
            (0, 3, "kind 3, which this build does not know"),
            (1, 4, "a name has the flags 0x04"),
            (2, 1, "it names space 1, which is no tree's"),
            (7, 2, "an index has the flags 0x02"),
            (13, 0xFF, "the name of an index is no text"),
            (15, 8, "a field has the flags 0x08"),
            (20, 0, "the field value[0..0] is empty"),
            (15, 3, "a field without an end has a length"),
        ] {
            assert!(changed(at, value).contains(part), "{part} in: {}", changed(at, value));
        }
        let error = Entry::decode_named(b"t", &[9, 0]).expect_err("refused").to_string();
        assert!(error.starts_with("the catalog's entry 't' cannot be read: it is of kind 9"), "{error}");
    }
}
