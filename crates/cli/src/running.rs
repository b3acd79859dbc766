//! Requests to a running engine, by its status socket.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millpond_server::{Answer, AskError, Facts, Request};

use crate::commands::top::Source;
use crate::exit::Failure;
use crate::progress::bar_of_bytes;

/// Whether the file at `path` is a socket.
pub(crate) fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Asks the engine behind the socket at `path`, and calls `each` with each line of the answer, and ten times a second
/// without one. `None`: `each` broke. An engine that does not answer at all is a failure after some seconds.
pub(crate) fn ask(
    path: &Path,
    request: &Request,
    each: impl FnMut(Option<Answer>) -> ControlFlow<()>,
) -> Result<Option<Facts>, Failure> {
    let (engine, also) = (Source::Socket(path.to_owned()), "the directory of a database, ");
    // An empty line, which resets nothing. A connection to a stopped engine may block without limit.
    let is_there = engine.ask("\n")?.wait(Duration::MAX);
    is_there.unwrap_or_else(|| Err(ErrorKind::TimedOut.into())).map_err(|why| engine.failure(&why, also))?;
    millpond_server::ask(path, request, each).map_err(|why| match why {
        AskError::Unreachable(why) => engine.failure(&why, also),
        AskError::Refused(why) => Failure::message(why),
        AskError::CutShort => Failure::message(format!(
            "the engine behind '{}' ended before its answer was whole: ask again when it is open",
            path.display()
        )),
    })
}

/// Asks with a bar of what is done, until the end or an interrupt, which is `None`.
pub(crate) fn ask_watched(
    what: &'static str,
    path: &Path,
    request: &Request,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Facts>, Failure> {
    let mut bar = bar_of_bytes(what, stop);
    ask(path, request, |answer| match answer {
        Some(Answer::Progress { done, total }) => bar(done, total),
        // Relaxed: an independent flag.
        _ if stop.load(Ordering::Relaxed) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
}
