//! Writing to the two standard streams: neither may end the command by a panic.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::Failure;

/// Whether only data and errors are wanted. One per process, like the streams.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// From this call on only data and errors are printed.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed); // Relaxed: an independent flag
}

/// Whether only data and errors are wanted.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed) // Relaxed: as in `be_quiet`
}

/// A text without control characters other than tab and line end: control characters in a name could control the
/// terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_shown(c) { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    Cow::Owned(shown)
}

/// Writes data to standard output, at once.
///
/// # Errors
/// [`Failure::ClosedPipe`] if the reader has closed it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(printable(text).as_bytes()).and_then(|()| out.flush()).map_err(Failure::of_output)
}

/// Writes a line of talk to standard error, unless `--quiet` is given.
pub(crate) fn talk(line: &str) {
    if !is_quiet() {
        complain(line);
    }
}

/// Writes an error to standard error. A failure of this write is ignored.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_do_nothing() {
        assert_eq!(printable("a\tb\nc \u{e4}"), "a\tb\nc \u{e4}");
        assert_eq!(printable("\x1b[31mred\x07\r\u{9b}"), "\\u{1b}[31mred\\u{7}\\r\\u{9b}");
    }
}
