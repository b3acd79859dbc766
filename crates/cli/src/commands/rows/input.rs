//! Lines of standard input or of a file, and what an error says about them.

use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millpond::OwnedRow;

use super::export_line::{HEAD, Item, Line};
use super::form::{Form, parsed};
use super::place::is_about_a_row;
use super::source::check_uninterrupted;
use super::text::shown_line;
use crate::exit::Failure;

/// Bytes that are read together.
const BUFFER: usize = 1 << 18;

/// The lines of an input. A line is in memory as a whole, and the last one may lack its end.
pub(super) struct Input {
    from: Box<dyn BufRead>,
    /// As an error names it.
    name: String,
    /// The current line, without its end.
    line: Vec<u8>,
    /// Its number, from 1; 0 before the first.
    number: u64,
    has_ended: bool,
    stop: Arc<AtomicBool>,
}

impl Input {
    /// Opens a file, or standard input.
    pub(super) fn open(path: Option<&Path>) -> Result<Input, Failure> {
        let (from, name): (Box<dyn BufRead>, _) = match path {
            None => (Box::new(BufReader::with_capacity(BUFFER, stdin().lock())), "standard input".to_owned()),
            Some(path) => {
                let name = format!("'{}'", path.display());
                let file = File::open(path).map_err(|cause| {
                    Failure::message(format!("cannot open {name}: {cause}; name another file with --input"))
                })?;
                (Box::new(BufReader::with_capacity(BUFFER, file)), name)
            }
        };
        Ok(Input { from, name, line: Vec::new(), number: 0, has_ended: false, stop: Arc::default() })
    }

    /// From now on the flag ends the input with [`Failure::Interrupted`].
    pub(super) fn watch(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// The number of the current line.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Goes to the next line. False: there is none.
    pub(super) fn advance(&mut self) -> Result<bool, Failure> {
        self.line.clear();
        let read = self.from.read_until(b'\n', &mut self.line);
        // After the read: an interrupt also ends the program at the other end of the pipe, and with it the input.
        check_uninterrupted(&self.stop)?;
        let read = read.map_err(|cause| Failure::message(format!("cannot read {}: {cause}", self.name)))?;
        if read == 0 {
            self.has_ended = true;
            return Ok(false);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        self.number += 1;
        Ok(true)
    }

    /// The next row. `None`: there is none.
    pub(super) fn row(&mut self, form: Form) -> Result<Option<OwnedRow>, Failure> {
        if self.number == 0
            && let Some(heading) = form.heading()
        {
            let way_out = "a tsv begins with the line key, tab, value: write it, or use --format=text";
            if !self.advance()? {
                return Err(Failure::message(format!("{} is empty: {way_out}", self.name)));
            }
            if self.line != heading.as_bytes() {
                return Err(self.wrong(&format!("is no heading: {way_out}")));
            }
        }
        if !self.advance()? {
            return Ok(None);
        }
        if self.number == 1 && self.line.starts_with(HEAD.as_bytes()) {
            return Err(self.wrong("begins an export, which names its trees and tables: leave the name out"));
        }
        form.row(&self.line).map(Some).map_err(|why| self.wrong(&why))
    }

    /// The next line of an export. `None`: there is none.
    pub(super) fn item(&mut self) -> Result<Option<Item>, Failure> {
        if !self.advance()? {
            return Ok(None);
        }
        let item = parsed::<Line>(&self.line).and_then(Line::into_item);
        item.map(Some).map_err(|why| self.wrong(&format!("{why}: the export is damaged; make it again")))
    }

    /// The failure for the current line, which `why` says something about.
    pub(super) fn wrong(&self, why: &str) -> Failure {
        Failure::message(format!("{}, {}, {why}", self.place(self.number), shown_line(&self.line)))
    }

    /// A line in messages.
    pub(super) fn place(&self, number: u64) -> String {
        format!("line {number} of {}", self.name)
    }

    /// The name of the input in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A failure of a load. If the engine refused the row of the current line, the line's number comes first.
    pub(super) fn with_line(&self, failure: Failure) -> Failure {
        match &failure {
            Failure::Error(error)
                if !self.has_ended && error.downcast_ref::<millpond::Error>().is_some_and(is_about_a_row) =>
            {
                Failure::message(format!("{}: {error}", self.place(self.number)))
            }
            _ => failure,
        }
    }
}
