//! Writing to the two standard streams: neither may end the command by a panic.

use std::io::{self, Write};

use crate::exit::Failure;

/// Writes data to standard output, at once.
///
/// # Errors
/// [`Failure::ClosedPipe`] if nobody reads it any more.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::of_output)
}

/// Writes a line of talk to standard error. If nobody listens, there is nobody to tell.
pub(crate) fn talk(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
