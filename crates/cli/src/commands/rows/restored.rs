//! The load of an export: all of its trees and tables, one after the other.

use std::collections::BTreeSet;
use std::path::Path;

use millpond::Db;

use super::export_line::{Item, VERSION};
use super::input::Input;
use super::new_load::NewLoad;
use super::place::Place;
use super::text::shown;
use crate::exit::Failure;
use crate::progress::Progress;

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
pub(super) fn load(
    db: &Db,
    dir: &Path,
    names: &[String],
    input: &mut Input,
    progress: &Progress,
) -> Result<(), Failure> {
    check_free(db, dir, names)?;
    let mut current = None;
    load_items(db, names, input, &mut current, progress).map_err(|failure| with_outcome(failure, current.as_ref()))?;
    finish(current, progress)
}

/// A tree or table whose rows come, and its name.
type Current = (String, NewLoad);

/// Loads all items, and leaves the last tree or table to be finished.
fn load_items(
    db: &Db,
    names: &[String],
    input: &mut Input,
    current: &mut Option<Current>,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut rows: u64 = 0;
    let mut to_come: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    loop {
        let (name, definition) = match input.item()? {
            Some(Item::Row(key, value)) => {
                let Some((_, load)) = current else { return Err(input.wrong("is a row before any tree")) };
                load.push(&key, &value).map_err(|error| input.with_line(error.into()))?;
                rows += 1;
                continue;
            }
            Some(Item::Tree(name)) => (name, None),
            Some(Item::Table(name, definition)) => (name, Some(definition)),
            Some(Item::Head { .. }) => return Err(input.wrong("begins a second export: load one at a time")),
            Some(Item::End(said)) if said == rows && to_come.is_empty() => break,
            Some(Item::End(said)) if said == rows => {
                let lost = to_come.iter().map(|name| shown(name.as_bytes())).collect::<Vec<_>>().join(", ");
                return Err(input.wrong(&format!("ends an export without {lost}, which its first line names")));
            }
            Some(Item::End(said)) => {
                let lost = format!("ends an export of {said} rows, of which {rows} came: make the export again");
                return Err(input.wrong(&lost));
            }
            None => {
                let lost = "has no end line: the export was cut short; make it again";
                return Err(Failure::message(format!("{} {lost}", input.name())));
            }
        };
        if !names.is_empty() && !to_come.remove(name.as_str()) {
            let name = shown(name.as_bytes());
            return Err(
                input.wrong(&format!("begins {name}, which the first line does not name, or which came before"))
            );
        }
        finish(current.take(), progress)?;
        let load = NewLoad::begin(db, &name, definition)?;
        *current = Some((name, load));
    }
    if input.advance()? { Err(input.wrong("comes after the end of the export: remove it")) } else { Ok(()) }
}

fn finish(current: Option<Current>, progress: &Progress) -> Result<(), Failure> {
    current.map_or(Ok(()), |(_, load)| Ok(load.finish(progress)?))
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
fn with_outcome(failure: Failure, current: Option<&Current>) -> Failure {
    match (failure, current) {
        (Failure::Error(error), Some((name, _))) if error.source().is_none() => {
            Failure::message(format!("{error}; {} was not loaded, and what came before it was", shown(name.as_bytes())))
        }
        (failure, _) => failure,
    }
}
