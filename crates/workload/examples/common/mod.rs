//! Code that the figures of loads, inserts and index builds share.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

/// Bytes of a value.
#[allow(dead_code, reason = "not every example makes rows of its own")]
pub(crate) const VALUE: usize = 184;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The exit code of `program`; prints its error.
pub(crate) fn exit(program: &str, outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Refuses a directory that exists, because the program removes it at the end.
pub(crate) fn must_be_new(dir: &Path) -> Outcome<()> {
    if dir.exists() {
        return Err(format!("'{}' exists: name a directory that does not", dir.display()).into());
    }
    Ok(())
}
