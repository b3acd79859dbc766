//! A database, and the tree or table that a name stands for.

use std::path::Path;

use millpond::{Db, Error, Options, RowsOf, Table, Tree};

use super::text::shown;
use crate::exit::Failure;

/// Most names in an error.
const NAMES_MAX: usize = 8;

/// A tree or a table.
#[derive(Debug)]
pub(super) enum Place {
    Tree(Tree),
    Table(Table),
}

impl Place {
    /// The tree or table called `name`; `None`: there is none.
    pub(super) fn find(db: &Db, name: &str) -> Result<Option<Place>, Error> {
        match db.open_tree(name) {
            Ok(tree) => Ok(Some(Place::Tree(tree))),
            Err(Error::WrongKind(_)) => db.open_table(name).map(|table| Some(Place::Table(table))),
            Err(Error::TreeNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The tree or table called `name`, which must exist.
    ///
    /// # Errors
    /// There is none. The error names others.
    pub(super) fn existing(db: &Db, dir: &Path, name: &str) -> Result<Place, Failure> {
        match Place::find(db, name)? {
            Some(place) => Ok(place),
            None => Err(Failure::message(Place::missing(db, dir, name)?)),
        }
    }

    /// The sentence about a name that neither a tree nor a table has.
    pub(super) fn missing(db: &Db, dir: &Path, name: &str) -> Result<String, Error> {
        Ok(missing(&db.trees()?, &db.tables()?, dir, name))
    }

    /// Sets a row, whether its key exists or not.
    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match self {
            Place::Tree(tree) => tree.put(key, value),
            Place::Table(table) => table.put(key, value),
        }
    }

    /// Removes a row. True: it existed.
    pub(super) fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        match self {
            Place::Tree(tree) => tree.delete(key),
            Place::Table(table) => table.delete(key),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Tree(tree) => write!(f, "tree '{}'", tree.name()),
            Place::Table(table) => write!(f, "table '{}'", table.name()),
        }
    }
}

impl<'p> From<&'p Place> for RowsOf<'p> {
    fn from(place: &'p Place) -> RowsOf<'p> {
        match place {
            Place::Tree(tree) => tree.into(),
            Place::Table(table) => table.into(),
        }
    }
}

/// Opens a database.
///
/// # Errors
/// Those of [`Db::open`]; of a database in use the error tells what can be asked.
pub(super) fn open(dir: &Path, options: Options) -> Result<Db, Failure> {
    Db::open(dir, options).map_err(|error| match error {
        Error::InUse(said) => Failure::message(format!(
            "{said}, or ask the running engine by its status socket (--status-socket=PATH, Options::status_socket): \
             `millpond get`, `scan`, `count` and `backup` take the socket in the place of the directory"
        )),
        error => error.into(),
    })
}

/// Whether the error is about a row, and so about a line of the input.
pub(super) fn is_about_a_row(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyExists(_)
            | Error::NotUnique(_)
            | Error::NotAscending(_)
            | Error::RowTooShort(_)
            | Error::KeyTooLong(_)
            | Error::ValueTooLong(_)
    )
}

/// The error for a name that neither a tree nor a table has.
fn missing(trees: &[String], tables: &[String], dir: &Path, name: &str) -> String {
    let names: Vec<String> = trees.iter().chain(tables).take(NAMES_MAX).map(|name| shown(name.as_bytes())).collect();
    let has = match (names.len(), trees.len() + tables.len()) {
        (0, _) => "it has none: `millpond put --create` and `millpond load` make one".to_owned(),
        (shown, all) if shown < all => format!("it has {} and {} more", names.join(", "), all - shown),
        _ => format!("it has {}", names.join(", ")),
    };
    let dir = dir.display();
    format!("no tree or table {} in '{dir}': {has} (`millpond info {dir}` lists all)", shown(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_name_is_told_with_those_that_are_there() {
        let names = |count: usize| (0..count).map(|n| format!("t{n}")).collect::<Vec<_>>();
        let dir = Path::new("db");
        assert!(missing(&[], &[], dir, "x").contains("no tree or table 'x' in 'db': it has none: `millpond put"));
        assert!(missing(&names(2), &["a\tb".to_owned()], dir, "x").contains(r"it has 't0', 't1', 'a\tb' (`millpond i"));
        assert!(missing(&names(20), &names(5), dir, "x").contains("'t7' and 17 more (`millpond info db`"));
    }
}
