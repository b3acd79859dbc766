//! Definitions of tables and indexes: the fields of a row, the indexes made of them, and the check for mistakes.
//!
//! [`Field`] and [`TableDefinition`] are public. The encoding in the catalog is in
//! [`catalog_entry`](crate::schema::catalog_entry), the keys of entries are in [`index_key`](crate::schema::index_key).

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

use crate::base::error::Error;
use crate::base::quoted::quoted;

/// Most bytes of an index's name.
const INDEX_NAME_MAX: usize = 64;

/// A piece of a row that an index is ordered by: a range of bytes of the row's primary key or of its value.
///
/// Fields are compared as byte strings: store numbers with their highest byte first. A field without an end reaches to
/// the end of the key or value; only the last field of an index may be so.
///
/// ```
/// use millpond::Field;
///
/// let city = Field::value(4..8); // bytes 4 to 7 of the value
/// let name = Field::value(8..); // all of it from byte 8 on
/// let year = Field::key(..2); // the first two bytes of the primary key
/// # let _ = (city, name, year);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub(crate) source: Source,
    pub(crate) offset: usize,
    /// The offset after the last byte, as given; `None`: to the end.
    pub(crate) end: Option<usize>,
}

/// The part of a row that a field is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Key,
    Value,
}

impl Field {
    /// These bytes of the row's primary key.
    pub fn key(bytes: impl RangeBounds<usize>) -> Field {
        Field::new(Source::Key, bytes)
    }

    /// These bytes of the row's value.
    pub fn value(bytes: impl RangeBounds<usize>) -> Field {
        Field::new(Source::Value, bytes)
    }

    fn new(source: Source, bytes: impl RangeBounds<usize>) -> Field {
        let offset = match bytes.start_bound() {
            Bound::Unbounded => 0,
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
        };
        let end = match bytes.end_bound() {
            Bound::Unbounded => None,
            Bound::Included(end) => Some(end.saturating_add(1)),
            Bound::Excluded(end) => Some(*end),
        };
        Field { source, offset, end }
    }

    /// The field's length in bytes; `None`: it reaches to the end.
    pub(crate) fn len(self) -> Option<usize> {
        self.end.map(|end| end.saturating_sub(self.offset))
    }

    /// Least length in bytes of the key or value that the field is a piece of.
    fn wanted(self) -> usize {
        self.offset.saturating_add(self.len().unwrap_or(0))
    }

    /// The field's bytes in a row; `None`: the row is too short.
    fn of<'r>(self, key: &'r [u8], value: &'r [u8]) -> Option<&'r [u8]> {
        let from = match self.source {
            Source::Key => key,
            Source::Value => value,
        };
        from.get(self.offset..self.end.unwrap_or(from.len()))
    }
}

/// In the notation of a program: `value[4..8]`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Key => "key",
            Source::Value => "value",
        };
        match self.end {
            None => write!(f, "{source}[{}..]", self.offset),
            Some(end) => write!(f, "{source}[{}..{end}]", self.offset),
        }
    }
}

/// The inverse of [`Display`](fmt::Display): reads `value[4..8]` or `key[2..]`.
///
/// ```
/// use millpond::Field;
///
/// let city: Field = "value[4..8]".parse()?;
/// assert_eq!(city, Field::value(4..8));
/// # Ok::<(), millpond::Error>(())
/// ```
impl FromStr for Field {
    type Err = Error;

    /// # Errors
    /// [`Error::InvalidOptions`]: the text is no field.
    fn from_str(text: &str) -> Result<Field, Error> {
        let parse = || {
            let (source, bytes) = text.strip_suffix(']')?.split_once('[')?;
            let source = match source {
                "key" => Source::Key,
                "value" => Source::Value,
                _ => return None,
            };
            let (offset, end) = bytes.split_once("..")?;
            let end = if end.is_empty() { None } else { Some(end.parse().ok()?) };
            Some(Field { source, offset: offset.parse().ok()?, end })
        };
        parse().ok_or_else(|| {
            let shown = quoted(text.as_bytes());
            Error::InvalidOptions(format!("{shown} is no field: write, for example, value[4..8] or key[2..]").into())
        })
    }
}

/// The indexes that a table is created with.
///
/// ```
/// use millpond::{Field, TableDefinition};
///
/// let people = TableDefinition::new().index("by_city", [Field::value(0..2)]).unique("by_email", [Field::value(2..)]);
/// # let _ = people;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct TableDefinition {
    pub(crate) indexes: Vec<IndexDefinition>,
}

impl TableDefinition {
    /// A table without indexes.
    pub fn new() -> TableDefinition {
        TableDefinition::default()
    }

    /// Adds an index: any number of rows may have the same bytes in these fields.
    pub fn index(self, name: &str, fields: impl IntoIterator<Item = Field>) -> TableDefinition {
        self.with(name, fields, false)
    }

    /// Adds a unique index: no two rows have the same bytes in all of these fields together.
    pub fn unique(self, name: &str, fields: impl IntoIterator<Item = Field>) -> TableDefinition {
        self.with(name, fields, true)
    }

    /// The indexes, in the order in which they were added.
    pub fn indexes(&self) -> &[IndexDefinition] {
        &self.indexes
    }

    fn with(mut self, name: &str, fields: impl IntoIterator<Item = Field>, is_unique: bool) -> TableDefinition {
        self.indexes.push(IndexDefinition { name: name.to_owned(), is_unique, fields: fields.into_iter().collect() });
        self
    }

    /// What a table with this definition has that `wanted` has not, and the other way round. The order of indexes does
    /// not matter.
    pub(crate) fn differences(&self, wanted: &TableDefinition) -> Vec<String> {
        let named = |of: &'_ TableDefinition, name: &str| of.indexes.iter().find(|index| index.name == name).cloned();
        let mut differences = Vec::new();
        for has in &self.indexes {
            let name = &has.name;
            match named(wanted, name) {
                None => differences.push(format!("it has index '{name}' {has}, which is not defined")),
                Some(index) if index != *has => {
                    differences.push(format!("its index '{name}' is {has}, and is defined as {index}"));
                }
                Some(_) => {}
            }
        }
        for index in wanted.indexes.iter().filter(|index| named(self, &index.name).is_none()) {
            differences.push(format!("it has no index '{}', which is defined as {index}", index.name));
        }
        differences
    }

    /// Every mistake in the definition; `key_max`: most bytes of a key.
    pub(crate) fn mistakes(&self, key_max: usize) -> Vec<String> {
        let mut mistakes: Vec<String> = self.indexes.iter().flat_map(|index| index.mistakes(key_max)).collect();
        for (at, index) in self.indexes.iter().enumerate() {
            if self.indexes[..at].iter().any(|other| other.name == index.name) {
                mistakes.push(format!("index '{}' is defined twice: give the second another name", index.name));
            }
        }
        mistakes
    }
}

/// An index: how its entries follow from rows.
///
/// Part of a [`TableDefinition`], which [`index`](TableDefinition::index) and [`unique`](TableDefinition::unique) add
/// it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDefinition {
    pub(crate) name: String,
    pub(crate) is_unique: bool,
    pub(crate) fields: Vec<Field>,
}

/// A row is too short for a field of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooShort {
    field: Field,
    has: usize,
}

impl TooShort {
    /// The error for a row, which `row` describes.
    #[cold]
    pub(crate) fn error(self, index: &str, row: &str) -> Error {
        let TooShort { field, has } = self;
        let what = match field.source {
            Source::Key => "primary key",
            Source::Value => "value",
        };
        let wanted = field.wanted();
        let message =
            format!("the {what} of {row} has {has} bytes: index '{index}' wants at least {wanted} (its field {field})");
        Error::RowTooShort(message.into())
    }
}

/// The description of row `key` of `table` in messages.
pub(crate) fn row_of(table: &dyn fmt::Display, key: &[u8]) -> String {
    format!("row {} of {table}", quoted(key))
}

impl IndexDefinition {
    /// The index's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether no two rows may have the same bytes in all of the fields together.
    pub fn is_unique(&self) -> bool {
        self.is_unique
    }

    /// The fields that the index is ordered by, the first one first.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Total bytes of the fields that have a fixed length.
    pub(crate) fn fixed_len(&self) -> usize {
        self.fields.iter().filter_map(|field| field.len()).fold(0, usize::saturating_add)
    }

    /// Whether the last field reaches to the end of the row's key or value.
    pub(crate) fn has_open_end(&self) -> bool {
        self.fields.last().is_some_and(|field| field.end.is_none())
    }

    /// The fields of a row, in order.
    pub(crate) fn fields_of<'r>(
        &self,
        key: &'r [u8],
        value: &'r [u8],
    ) -> impl Iterator<Item = Result<&'r [u8], TooShort>> {
        self.fields.iter().map(move |field| {
            let has = || if field.source == Source::Key { key.len() } else { value.len() };
            field.of(key, value).ok_or_else(|| TooShort { field: *field, has: has() })
        })
    }

    /// Whether a row has these fields.
    pub(crate) fn has_fields(&self, key: &[u8], value: &[u8], fields: &[u8]) -> bool {
        let mut rest = Some(fields);
        for field in self.fields_of(key, value) {
            rest = rest.zip(field.ok()).and_then(|(rest, field)| rest.strip_prefix(field));
        }
        rest.is_some_and(<[u8]>::is_empty)
    }

    /// The error for two rows of `table`, given by their keys, that both have `fields` although the index is to be
    /// unique.
    #[cold]
    pub(crate) fn duplicate(&self, table: &dyn fmt::Display, fields: &[u8], rows: [&[u8]; 2], way_out: &str) -> Error {
        let (index, fields, [first, second]) = (&self.name, quoted(fields), rows.map(quoted));
        let message = format!(
            "index '{index}' of {table} cannot be unique: the rows {first} and {second} both have {fields} there: {way_out}"
        );
        Error::NotUnique(message.into())
    }

    fn mistakes(&self, key_max: usize) -> Vec<String> {
        let name = &self.name;
        let mut mistakes = Vec::new();
        if name.is_empty() || name.len() > INDEX_NAME_MAX {
            mistakes.push(format!("the index name '{name}' has {} bytes: use 1 to {INDEX_NAME_MAX}", name.len()));
        }
        if self.fields.is_empty() {
            mistakes.push(format!("index '{name}' has no fields: name at least one"));
        }
        for (at, field) in self.fields.iter().enumerate() {
            if field.end.is_some_and(|end| end < field.offset) {
                mistakes.push(format!("index '{name}': the field {field} ends before it begins: swap its ends"));
            } else if field.len() == Some(0) {
                mistakes.push(format!("index '{name}': the field {field} is empty: give it at least one byte"));
            }
            if field.end.is_none() && at + 1 < self.fields.len() {
                mistakes.push(format!("index '{name}': the field {field} has no end: only the last one may have none"));
            }
            if u32::try_from(field.wanted()).is_err() {
                mistakes.push(format!("index '{name}': the field {field} is beyond the end of any row"));
            }
        }
        if self.fixed_len() > key_max {
            let len = self.fixed_len();
            mistakes.push(format!("the fields of index '{name}' have {len} bytes: at most {key_max} fit in a key"));
        }
        mistakes
    }
}

/// In the notation of a program: `unique (value[4..8], key[0..])`.
impl fmt::Display for IndexDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self.fields.iter().map(Field::to_string).collect();
        write!(f, "{}({})", if self.is_unique { "unique " } else { "" }, fields.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field whose ends are swapped; a lint refuses such a range of literals.
    fn turned() -> Field {
        let (begin, end) = (5, 2);
        Field::value(begin..end)
    }

    #[test]
    fn fields_are_the_ranges_that_they_were_given_as() {
        let (key, value) = (b"0123".as_slice(), b"abcdef".as_slice());
        for (field, wanted, shown) in [
            (Field::value(1..3), Some(&b"bc"[..]), "value[1..3]"),
            (Field::value(1..=3), Some(b"bcd"), "value[1..4]"),
            (Field::value(4..), Some(b"ef"), "value[4..]"),
            (Field::value(6..), Some(b""), "value[6..]"),
            (Field::value(7..), None, "value[7..]"),
            (Field::value(..7), None, "value[0..7]"),
            (turned(), None, "value[5..2]"),
            (Field::key(..2), Some(b"01"), "key[0..2]"),
            (Field::key(..), Some(b"0123"), "key[0..]"),
            (Field::key((Bound::Excluded(1), Bound::Unbounded)), Some(b"23"), "key[2..]"),
        ] {
            assert_eq!((field.of(key, value), field.to_string().as_str()), (wanted, shown));
        }
    }

    #[test]
    fn field_is_read_as_it_is_shown_and_other_texts_are_refused() {
        for field in [Field::value(1..3), Field::value(6..), Field::key(..), turned(), Field::key(0..usize::MAX)] {
            assert_eq!(field.to_string().parse::<Field>().expect("as shown"), field);
        }
        for wrong in
            ["", "value", "value[]", "value[1]", "row[0..1]", "value[..]", "value[0..1", "key[-1..2]", "key[0..=1]"]
        {
            let said = wrong.parse::<Field>().expect_err("no field").to_string();
            assert_eq!(said, format!("'{wrong}' is no field: write, for example, value[4..8] or key[2..]"));
        }
    }

    #[test]
    fn every_mistake_of_a_definition_is_named() {
        let bad = TableDefinition::new()
            .index("", [Field::value(0..4)])
            .index("none", [])
            .index("empty", [Field::value(3..3)])
            .index("turned", [turned()])
            .unique("open", [Field::value(3..), Field::key(0..1)])
            .unique("far", [Field::value(usize::MAX..)])
            .index("long", [Field::value(0..700), Field::key(0..69)])
            .index("none", [Field::key(..)]);
        let mistakes = bad.mistakes(768);
        for (mistake, part) in mistakes.iter().zip([
            "the index name '' has 0 bytes: use 1 to 64",
            "index 'none' has no fields",
            "index 'empty': the field value[3..3] is empty",
            "index 'turned': the field value[5..2] ends before it begins",
            "index 'open': the field value[3..] has no end",
            "index 'far': the field value[18446744073709551615..] is beyond",
            "the fields of index 'long' have 769 bytes: at most 768",
            "index 'none' is defined twice",
        ]) {
            assert!(mistake.contains(part), "{part} in: {mistake}");
        }
        assert_eq!(mistakes.len(), 8, "{mistakes:?}");
        assert!(TableDefinition::new().index("all", [Field::key(0..767), Field::value(..)]).mistakes(768).is_empty());
    }

    #[test]
    fn differences_of_definitions_are_listed_in_any_order() {
        let has = TableDefinition::new().index("a", [Field::value(0..2)]).unique("b", [Field::key(..)]);
        let same = TableDefinition::new().unique("b", [Field::key(..)]).index("a", [Field::value(0..2)]);
        assert!(has.differences(&same).is_empty());
        let other = TableDefinition::new().unique("a", [Field::value(0..2)]).index("c", [Field::value(4..)]);
        assert_eq!(
            has.differences(&other),
            [
                "its index 'a' is (value[0..2]), and is defined as unique (value[0..2])",
                "it has index 'b' unique (key[0..]), which is not defined",
                "it has no index 'c', which is defined as (value[4..])",
            ]
        );
    }

    #[test]
    fn a_row_that_is_too_short_is_told_with_what_is_wanted() {
        let index = IndexDefinition { name: "i".to_owned(), is_unique: false, fields: vec![Field::value(2..6)] };
        let short = index.fields_of(b"k", b"12345").next().expect("a field").expect_err("too short");
        assert_eq!(
            short.error("i", &row_of(&"table 't'", b"k")).to_string(),
            "the value of row 'k' of table 't' has 5 bytes: index 'i' wants at least 6 (its field value[2..6])"
        );
    }
}
