//! The client's side of a request that takes its time.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::requests::{Answer, Facts, Request};

/// Time between two looks whether the caller wants the answer still.
const LOOKS_EACH: Duration = Duration::from_millis(100);

/// Why a request has no whole answer.
#[derive(Debug)]
pub enum AskError {
    /// The socket cannot be connected to.
    Unreachable(std::io::Error),
    /// The engine refused, or could not do it: its own words.
    Refused(String),
    /// The answer ended before its last line, or is none.
    CutShort,
}

/// Asks the engine that serves the socket at `path`, and calls `each` with each line of the answer, the last one left
/// out, and with `None` while there is none, ten times a second. If `each` breaks, the engine gives the work up.
/// `Ok(None)`: `each` broke.
///
/// # Errors
/// The engine cannot be reached, refuses, or ends.
pub fn ask(
    path: &Path,
    request: &Request,
    mut each: impl FnMut(Option<Answer>) -> ControlFlow<()>,
) -> Result<Option<Facts>, AskError> {
    let mut stream = UnixStream::connect(path).map_err(AskError::Unreachable)?;
    stream.set_read_timeout(Some(LOOKS_EACH)).map_err(AskError::Unreachable)?;
    let request = serde_json::to_string(request).map_err(|why| AskError::Refused(why.to_string()))?;
    stream.write_all((request + "\n").as_bytes()).map_err(AskError::Unreachable)?;
    let (mut reader, mut line) = (BufReader::new(stream), Vec::new());
    loop {
        let answer = match reader.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => Some(parse(&line)?),
            // What was read of the line stays in it.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            _ => return Err(AskError::CutShort),
        };
        match answer {
            Some(Answer::Done(facts)) => return Ok(Some(facts)),
            Some(Answer::Error(why)) => return Err(AskError::Refused(why)),
            _ => {}
        }
        let is_whole = answer.is_some();
        if each(answer).is_break() {
            return Ok(None);
        }
        if is_whole {
            line.clear();
        }
    }
}

fn parse(line: &[u8]) -> Result<Answer, AskError> {
    serde_json::from_slice(line).map_err(|_| match line.strip_prefix(b"error: ") {
        // Other texts of the socket.
        Some(why) => AskError::Refused(String::from_utf8_lossy(why.trim_ascii()).into_owned()),
        None => AskError::CutShort,
    })
}
