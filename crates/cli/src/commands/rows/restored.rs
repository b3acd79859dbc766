//! The load of an export: all of its trees and tables, one after the other.

use std::path::Path;

use millpond::Db;

use super::export_line::{Item, VERSION};
use super::input::Input;
use super::new_load::NewLoad;
use super::place::Place;
use super::text::shown;
use crate::exit::Failure;

/// Reads the first line of an export: the names in it.
pub(super) fn names(input: &mut Input) -> Result<Vec<String>, Failure> {
    let way_out = "write the NAME of a tree to load rows into, or give the output of `millpond export`";
    match input.item() {
        Ok(Some(Item::Head { version: VERSION, names })) => Ok(names),
        Ok(Some(Item::Head { version, .. })) => Err(input.wrong(&format!(
            "begins an export in form {version}, and this build reads form {VERSION}: use a newer build"
        ))),
        Ok(None) => Err(Failure::message(format!("{} is empty: {way_out}", input.name()))),
        Ok(Some(_)) => Err(input.wrong(&format!("begins no export: {way_out}"))),
        Err(Failure::Error(_)) if input.number() == 1 => Err(input.wrong(&format!("begins no export: {way_out}"))),
        Err(failure) => Err(failure),
    }
}

/// Loads what follows the first line of an export. `names` are those of that line.
pub(super) fn load(db: &Db, dir: &Path, names: &[String], input: &mut Input) -> Result<(), Failure> {
    check_free(db, dir, names)?;
    // The tree or table whose rows come, and its name; and the rows of all.
    let (mut current, mut rows): (Option<(String, NewLoad)>, u64) = (None, 0);
    loop {
        let item = input.item().map_err(|failure| with_outcome(failure, &current))?;
        match item {
            Some(Item::Row(key, value)) => {
                let Some((_, load)) = &mut current else { return Err(input.wrong("is a row before any tree")) };
                let pushed = load.push(&key, &value).map_err(|error| input.with_line(error.into()));
                pushed.map_err(|failure| with_outcome(failure, &current))?;
                rows += 1;
            }
            Some(Item::Tree(name)) => current = Some(next(db, current, name, None)?),
            Some(Item::Table(name, definition)) => current = Some(next(db, current, name, Some(definition))?),
            Some(Item::End(said)) if said == rows => break,
            Some(Item::End(said)) => {
                let lost = format!("ends an export of {said} rows, of which {rows} came: make the export again");
                return Err(with_outcome(input.wrong(&lost), &current));
            }
            Some(Item::Head { .. }) => {
                return Err(with_outcome(input.wrong("begins a second export: load one at a time"), &current));
            }
            None => {
                let lost = format!("{} has no end line: the export was cut short; make it again", input.name());
                return Err(with_outcome(Failure::message(lost), &current));
            }
        }
    }
    match input.item() {
        Ok(None) => {}
        Err(Failure::Interrupted) => return Err(Failure::Interrupted),
        _ => return Err(with_outcome(input.wrong("comes after the end of the export: remove it"), &current)),
    }
    current.map_or(Ok(()), |(_, load)| Ok(load.finish()?))
}

/// Ends the load of the tree before, and begins that of the next one.
fn next(
    db: &Db,
    current: Option<(String, NewLoad)>,
    name: String,
    definition: Option<millpond::TableDefinition>,
) -> Result<(String, NewLoad), Failure> {
    if let Some((_, load)) = current {
        load.finish()?;
    }
    let load = NewLoad::begin(db, &name, definition)?;
    Ok((name, load))
}

/// Refuses an export if the database has one of its names.
fn check_free(db: &Db, dir: &Path, names: &[String]) -> Result<(), Failure> {
    let mut taken = Vec::new();
    for name in names {
        if let Some(place) = Place::find(db, name)? {
            taken.push(place.to_string());
        }
    }
    if taken.is_empty() {
        return Ok(());
    }
    Err(Failure::message(format!(
        "'{}' has {} already, as the export does: load it into another directory, or export only other names; nothing \
         was loaded",
        dir.display(),
        taken.join(", ")
    )))
}

/// A failure, and what it leaves of the tree that was being loaded.
fn with_outcome(failure: Failure, current: &Option<(String, NewLoad)>) -> Failure {
    match (failure, current) {
        (Failure::Error(error), Some((name, _))) if error.source().is_none() => {
            Failure::message(format!("{error}; {} was not loaded, and what came before it was", shown(name.as_bytes())))
        }
        (failure, _) => failure,
    }
}
