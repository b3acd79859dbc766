//! Rows to standard output, through a buffer.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

use super::form::{Form, append_json};
use crate::exit::Failure;

/// Standard output, for lines. What is in the buffer goes out with [`finish`](Output::finish); if the command fails
/// before that, when it is dropped.
pub(super) struct Output {
    to: BufWriter<StdoutLock<'static>>,
    /// The line that is being made.
    line: Vec<u8>,
}

impl Output {
    pub(super) fn new() -> Output {
        Output { to: BufWriter::with_capacity(1 << 16, io::stdout().lock()), line: Vec::new() }
    }

    /// Begins rows of a form.
    pub(super) fn heading(&mut self, form: Form) -> Result<(), Failure> {
        form.heading()
            .map_or(Ok(()), |heading| self.line(|line| line.extend_from_slice(format!("{heading}\n").as_bytes())))
    }

    /// Writes a line, which `append` makes with its end.
    pub(super) fn line(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failure> {
        self.line.clear();
        append(&mut self.line);
        self.to.write_all(&self.line).map_err(Failure::of_output)
    }

    /// Writes a line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(|line| {
            append_json(value, line);
            line.push(b'\n');
        })
    }

    /// Writes what is in the buffer.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.to.flush().map_err(Failure::of_output)
    }
}
