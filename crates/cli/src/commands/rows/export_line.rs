//! The lines of an export, each a JSON object.
//!
//! ```text
//! {"millpond_export":1,"names":["log","users"]}
//! {"tree":"log"}
//! {"key":"0001","value":"begun"}
//! {"table":"users","indexes":[{"name":"by_city","unique":false,"fields":["value[0..2]"]}]}
//! {"key":"1","value":{"hex":"6e79ff"}}
//! {"end":true,"rows":2}
//! ```
//!
//! The names at the begin are all that follow, so that a load can refuse those that it has before it makes any. Rows
//! are in the order of their keys. The end tells a whole export from one that was cut short.

use millpond::{Field, TableDefinition};
use millpond_server::Bytes;
use serde::{Deserialize, Serialize};

/// How the first line begins.
pub(super) const HEAD: &str = r#"{"millpond_export""#;

/// The form of the lines; a later one may differ.
pub(super) const VERSION: u32 = 1;

/// A line as it is written. [`Item`] is what it says.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) millpond_export: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tree: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) indexes: Option<Vec<IndexLine>>,
    #[serde(skip_serializing)]
    key: Option<Bytes>,
    #[serde(skip_serializing)]
    value: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<u64>,
}

/// An index of a table.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IndexLine {
    name: String,
    unique: bool,
    fields: Vec<String>,
}

/// What a line says.
#[derive(Debug, PartialEq)]
pub(super) enum Item {
    /// An export begins, with these names in it if it tells them.
    Head { version: u32, names: Vec<String> },
    /// The rows of a tree follow.
    Tree(String),
    /// The rows of a table follow.
    Table(String, TableDefinition),
    /// A row of the last tree or table.
    Row(Vec<u8>, Vec<u8>),
    /// The export is whole, and has so many rows.
    End(u64),
}

impl Line {
    /// The begin of an export.
    pub(super) fn head(names: Vec<String>) -> Line {
        Line { millpond_export: Some(VERSION), names: Some(names), ..Line::default() }
    }

    /// The begin of a tree.
    pub(super) fn tree(name: String) -> Line {
        Line { tree: Some(name), ..Line::default() }
    }

    /// The begin of a table.
    pub(super) fn table(name: String, definition: &TableDefinition) -> Line {
        let indexes = definition.indexes().iter().map(|index| IndexLine {
            name: index.name().to_owned(),
            unique: index.is_unique(),
            fields: index.fields().iter().map(Field::to_string).collect(),
        });
        Line { table: Some(name), indexes: Some(indexes.collect()), ..Line::default() }
    }

    /// The end of an export.
    pub(super) fn end(rows: u64) -> Line {
        Line { end: Some(true), rows: Some(rows), ..Line::default() }
    }

    /// What the line says.
    ///
    /// # Errors
    /// Nothing: the reason.
    pub(super) fn into_item(self) -> Result<Item, String> {
        let says = [
            self.key.is_some() || self.value.is_some(),
            self.millpond_export.is_some() || self.names.is_some(),
            self.tree.is_some(),
            self.table.is_some() || self.indexes.is_some(),
            self.end.is_some() || self.rows.is_some(),
        ];
        if says.into_iter().filter(|says| *says).count() != 1 {
            return Err("is no line of an export".to_owned());
        }
        match self {
            Line { key: Some(key), value: Some(value), .. } => Ok(Item::Row(key.0, value.0)),
            Line { millpond_export: Some(version), names, .. } => {
                Ok(Item::Head { version, names: names.unwrap_or_default() })
            }
            Line { tree: Some(name), .. } => Ok(Item::Tree(name)),
            Line { table: Some(name), indexes, .. } => Ok(Item::Table(name, definition(indexes.unwrap_or_default())?)),
            Line { end: Some(true), rows: Some(rows), .. } => Ok(Item::End(rows)),
            _ => Err("is no line of an export".to_owned()),
        }
    }
}

fn definition(indexes: Vec<IndexLine>) -> Result<TableDefinition, String> {
    indexes.into_iter().try_fold(TableDefinition::new(), |definition, IndexLine { name, unique, fields }| {
        let fields = fields.iter().map(|field| field.parse()).collect::<millpond::Result<Vec<Field>>>();
        let fields = fields.map_err(|why| format!("has a wrong index: {why}"))?;
        Ok(if unique { definition.unique(&name, fields) } else { definition.index(&name, fields) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_documented_and_come_back() {
        let two = TableDefinition::new().index("by_city", [Field::value(0..2)]);
        let two = two.unique("by_all", [Field::key(1..4), Field::value(2..)]);
        let names = || vec!["a".to_owned(), "b\n".to_owned()];
        for (line, json, item) in [
            (
                Line::head(names()),
                r#"{"millpond_export":1,"names":["a","b\n"]}"#,
                Item::Head { version: 1, names: names() },
            ),
            (Line::tree("a".to_owned()), r#"{"tree":"a"}"#, Item::Tree("a".to_owned())),
            (
                Line::table("b\n".to_owned(), &two),
                concat!(
                    r#"{"table":"b\n","indexes":[{"name":"by_city","unique":false,"fields":["value[0..2]"]},"#,
                    r#"{"name":"by_all","unique":true,"fields":["key[1..4]","value[2..]"]}]}"#
                ),
                Item::Table("b\n".to_owned(), two.clone()),
            ),
            (Line::end(7), r#"{"end":true,"rows":7}"#, Item::End(7)),
        ] {
            assert_eq!(serde_json::to_string(&line).unwrap(), json);
            assert_eq!(serde_json::from_str::<Line>(json).unwrap().into_item(), Ok(item));
        }
        let row = serde_json::from_str::<Line>(r#"{"key":"a","value":{"hex":"ff"}}"#).unwrap();
        assert_eq!(row.into_item(), Ok(Item::Row(b"a".to_vec(), b"\xff".to_vec())));
        assert!(serde_json::to_string(&Line::head(Vec::new())).unwrap().starts_with(HEAD));
    }

    #[test]
    fn lines_of_no_export_are_refused() {
        for json in ["{}", r#"{"key":"a"}"#, r#"{"end":false,"rows":1}"#, r#"{"end":true}"#, r#"{"indexes":[]}"#] {
            let line: Line = serde_json::from_str(json).unwrap();
            assert_eq!(line.into_item(), Err("is no line of an export".to_owned()), "{json}");
        }
        let json = r#"{"table":"t","indexes":[{"name":"i","unique":true,"fields":["row[1]"]}]}"#;
        let said = serde_json::from_str::<Line>(json).unwrap().into_item().unwrap_err();
        assert!(said.contains("has a wrong index: 'row[1]' is no field"), "{said}");
    }
}
