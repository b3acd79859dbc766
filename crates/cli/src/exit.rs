//! How the command ends.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done, and the answer is yes; or whoever read the output has gone |
//! | 1 | done, and the answer is no |
//! | 2 | wrong usage, or it could not be done |
//! | 130 | interrupted, after the summary so far |

use std::error::Error;
use std::io;
use std::process::ExitCode;

use crate::output::complain;

/// The answer of a command that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All is well.
    Yes,
    /// Something is not as it should be; the output says what.
    No,
    /// The user interrupted it; what was reached has been printed.
    Interrupted,
}

/// Why a command could not be carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something went wrong; its message goes to standard error.
    Error(Box<dyn Error + Send + Sync>),
    /// Nobody reads the output any more.
    ClosedPipe,
}

impl Failure {
    /// A failure with a message of its own.
    pub(crate) fn message(text: impl Into<String>) -> Failure {
        Failure::Error(text.into().into())
    }

    /// What writing to standard output came to.
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

/// The exit code of a command; a failure's message is printed.
pub(crate) fn code(ended: Result<Answer, Failure>) -> ExitCode {
    match ended {
        Ok(Answer::Yes) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Interrupted) => ExitCode::from(130),
        Err(Failure::Error(error)) => {
            complain(&describe(error.as_ref()));
            ExitCode::from(2)
        }
    }
}

/// Prints what clap has to say about the arguments (or the help that was asked for), and returns its exit code.
pub(crate) fn usage(said: &clap::Error) -> ExitCode {
    // A closed pipe here is a quiet end, like everywhere.
    let _ = said.print();
    if said.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

/// An error's sentence, and below it the causes that it does not say itself.
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
    fn closed_pipe_is_told_from_other_failures() {
        assert!(matches!(Failure::of_output(io::ErrorKind::BrokenPipe.into()), Failure::ClosedPipe));
        assert!(matches!(Failure::of_output(io::ErrorKind::StorageFull.into()), Failure::Error(_)));
    }
}
