//! The end of the command: exit codes and error messages.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done, and the answer is yes; or the reader of the output has ended |
//! | 1 | done, and the answer is no |
//! | 2 | wrong usage, or it could not be done |
//! | 3 | done, and there is no answer: the machine stood still (`bench --check`, `lab run`) |
//! | 130 | interrupted by Ctrl-C, after the summary so far |
//! | 143, 129 | the same after a request to terminate (SIGTERM), after a hangup (SIGHUP) |

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitCode;

use crate::output::{complain, printable};
use crate::signals;

/// The answer of a command that could be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All is well.
    Yes,
    /// There is a problem; the output describes it.
    No,
    /// Unknown; the output says why.
    Inconclusive,
    /// The user interrupted the command; the results so far have been printed.
    Interrupted,
}

/// Why a command could not be completed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error; its message goes to standard error.
    Error(Box<dyn Error + Send + Sync>),
    /// The reader of the output has closed it.
    ClosedPipe,
    /// The user interrupted the command.
    Interrupted,
}

impl Failure {
    /// A failure with a message of its own.
    pub(crate) fn message(text: impl Into<String>) -> Failure {
        Failure::Error(text.into().into())
    }

    /// The failure after an error of a write to standard output.
    pub(crate) fn of_output(cause: io::Error) -> Failure {
        if cause.kind() == io::ErrorKind::BrokenPipe {
            return Failure::ClosedPipe;
        }
        Failure::message(format!("cannot write to standard output: {cause}"))
    }
}

impl From<workload::Error> for Failure {
    fn from(error: workload::Error) -> Failure {
        Failure::Error(Box::new(error))
    }
}

impl From<millpond::Error> for Failure {
    fn from(error: millpond::Error) -> Failure {
        Failure::Error(Box::new(error))
    }
}

/// The system's error text, without the name of a library's temporary file.
pub(crate) fn without_temporary_name(cause: &io::Error) -> String {
    let text = cause.to_string();
    // The system's own error names no file; `tempfile` wraps it and adds the path.
    match text.rsplit_once(" at path ") {
        Some((said, _)) if cause.raw_os_error().is_none() => said.to_owned(),
        _ => text,
    }
}

/// The failure to start `what`, a thread.
pub(crate) fn no_thread(what: &str, cause: &io::Error) -> Failure {
    Failure::message(format!(
        "cannot start {what}: {cause}; the limit of threads is reached: raise it (ulimit -u, or pids.max of the \
         control group), or end what else runs under it"
    ))
}

/// The exit code of a command; a failure's message is printed.
pub(crate) fn code(ended: Result<Answer, Failure>) -> ExitCode {
    match ended {
        Ok(Answer::Yes) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Inconclusive) => ExitCode::from(3),
        Ok(Answer::Interrupted) | Err(Failure::Interrupted) => ExitCode::from(signals::exit_code()),
        Err(Failure::Error(error)) => {
            complain(&describe(error.as_ref()));
            ExitCode::from(2)
        }
    }
}

/// A word of the command line as an error may show it.
pub(crate) fn shown_word(word: &OsStr) -> OsString {
    let text = word.to_string_lossy();
    // A line end in a word must not end the message's line.
    let text = printable(&text).replace('\n', "\\n");
    if text == word.to_string_lossy() { word.to_owned() } else { text.into() }
}

/// Prints clap's message about the arguments, or the requested help, and returns the exit code.
pub(crate) fn usage(said: &clap::Error) -> ExitCode {
    // A closed pipe is a quiet end, as everywhere.
    let _ = said.print();
    if said.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// An error's message, and below it the causes that the message does not include.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = format!("error: {error}");
    let mut cause = error.source();
    while let Some(said) = cause {
        text.push_str(&format!("\n  caused by: {said}"));
        cause = said.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_follow_the_sentence() {
        let error = workload::Error::File {
            deed: "sync",
            path: "/x/y".into(),
            source: io::Error::other("the device is on fire"),
        };
        let text = describe(&error);
        assert!(text.starts_with("error: cannot sync '/x/y', "), "{text}");
        assert!(text.ends_with("\n  caused by: the device is on fire"), "{text}");
    }

    #[test]
    fn temporary_names_are_left_out_and_other_causes_kept() {
        let Err(cause) = tempfile::tempfile_in("/proc") else { unreachable!("no file can be made there") };
        let said = without_temporary_name(&cause);
        assert!(!said.contains(".tmp") && !said.contains("path") && said.contains("os error"), "{said}");
        let plain = io::Error::from_raw_os_error(13);
        assert_eq!(without_temporary_name(&plain), plain.to_string());
    }

    #[test]
    fn closed_pipe_is_told_from_other_failures() {
        assert!(matches!(Failure::of_output(io::ErrorKind::BrokenPipe.into()), Failure::ClosedPipe));
        assert!(matches!(Failure::of_output(io::ErrorKind::StorageFull.into()), Failure::Error(_)));
    }
}
