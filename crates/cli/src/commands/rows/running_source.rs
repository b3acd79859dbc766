//! Reads of rows of a running engine, by its status socket.

use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millpond_server::{Answer, Bytes, Facts, Request};

use super::source::{Each, Range, Rows, Wanted, check_uninterrupted};
use crate::exit::Failure;
use crate::running::ask;
use crate::signals;

/// A running engine. Each answer is of the moment at which the engine is asked.
pub(super) struct Running {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Running {
    /// The engine behind `socket`. From then on an interrupt ends a request with [`Failure::Interrupted`].
    pub(super) fn at(socket: &Path) -> Result<Running, Failure> {
        Ok(Running { socket: socket.to_owned(), stop: signals::stop_flag()? })
    }

    /// Gives the rows of the answer to `each`, and returns the facts at its end.
    fn ask(&self, request: &Request, each: &mut Each<'_>) -> Result<Facts, Failure> {
        let mut failed = None;
        let done = ask(&self.socket, request, |answer| {
            let row = match answer {
                Some(Answer::Row { key, value }) => each(&key.0, &value.0),
                _ => Ok(()),
            };
            match check_uninterrupted(&self.stop).and(row) {
                Ok(()) => ControlFlow::Continue(()),
                Err(failure) => {
                    failed = Some(failure);
                    ControlFlow::Break(())
                }
            }
        })?;
        done.ok_or_else(|| failed.unwrap_or(Failure::Interrupted))
    }
}

/// The request's form of a range.
fn rows_of(range: &Range, is_reverse: bool, limit: Option<u64>) -> millpond_server::Rows {
    let key = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(Bytes(key.clone())),
        Bound::Unbounded => None,
    };
    millpond_server::Rows {
        of: range.name.clone(),
        index: range.index.clone(),
        from: key(&range.lower),
        before: key(&range.upper),
        is_reverse,
        limit,
    }
}

impl Rows for Running {
    fn get(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let mut found = None;
        self.ask(&Request::Get { of: name.to_owned(), key: Bytes(key.to_vec()) }, &mut |_, value| {
            found = Some(value.to_vec());
            Ok(())
        })?;
        Ok(found)
    }

    fn scan(&self, range: &Range, Wanted { is_reverse, limit }: Wanted, each: &mut Each<'_>) -> Result<(), Failure> {
        self.ask(&Request::Scan(rows_of(range, is_reverse, Some(limit))), each).map(drop)
    }

    fn count(&self, range: &Range) -> Result<u64, Failure> {
        let facts = self.ask(&Request::Count(rows_of(range, false, None)), &mut |_, _| Ok(()))?;
        let count = facts.iter().find(|(name, _)| name == "rows").and_then(|(_, count)| count.parse().ok());
        count.ok_or_else(|| Failure::message("the engine's answer has no number of rows: is it of this version?"))
    }
}
