//! People by number, with an index by city and a unique one by e-mail address.
//!
//! `cargo run --package millpond --example secondary_index [DIR]`: in DIR, or in a directory that it removes.

use std::io::Write;
use std::path::{Path, PathBuf};

use millpond::{Db, Error, Field, Options, Prefix, Table, TableDefinition, key};

/// A person's row: a city's code of three letters, then the e-mail address.
fn row(city: &str, email: &str) -> Vec<u8> {
    assert_eq!(city.len(), 3, "a code of three letters");
    [city, email].concat().into_bytes()
}

fn open_people(db: &Db) -> millpond::Result<Table> {
    let definition =
        TableDefinition::new().index("by_city", [Field::value(0..3)]).unique("by_email", [Field::value(3..)]);
    // An error if the table exists with other indexes.
    db.open_or_create_table("people", definition)
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args_os().nth(1).map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    show(&dir, &mut std::io::stdout())
}

/// Opens the database in `dir`, writes three people, and finds them by their indexes.
pub(crate) fn show(dir: &Path, out: &mut impl Write) -> Outcome {
    let db = Db::open(dir, Options::new())?;
    let people = open_people(&db)?;
    let three = [(7, "OSL", "ada@example.org"), (9, "PAR", "bob@example.org"), (12, "OSL", "eve@example.org")];
    for (number, city, email) in three {
        // Durable when `put` returns, the entries of both indexes with the row.
        people.put(key::encode(&number), row(city, email))?;
    }
    writeln!(out, "in Oslo:")?;
    for found in people.index("by_city")?.rows(Prefix("OSL")) {
        let (number, row) = found?;
        writeln!(out, "  {}: {}", key::decode::<u32>(&number)?, String::from_utf8_lossy(&row[3..]))?;
    }
    if let Some((number, _)) = people.index("by_email")?.get("bob@example.org")? {
        writeln!(out, "bob@example.org is number {}", key::decode::<u32>(&number)?)?;
    }
    match people.insert(key::encode(&13), row("PAR", "ada@example.org")) {
        Err(Error::KeyExists(other)) => writeln!(out, "refused: {other}")?,
        other => other?,
    }
    db.close()?;
    Ok(())
}
