//! Notices: calls that tell when the log is durable up to some place, for callers that do not wait for that.
//!
//! `mp-log` flushes the log for all notices that have come together, and then makes the calls. Those that are left when
//! the database is closed are made by the thread that closes it; those that are left when the log fails, by `mp-log` as
//! it ends. So each notice is given once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::log::Log;
use super::waiters::{Notice, Stage};
use crate::base::error::{Error, closed};
use crate::base::ids::Lsn;

impl Log {
    /// Has `notice` called once the log is durable up to `lsn`; at once if it is already.
    pub(crate) fn notify(&self, lsn: Lsn, notice: Notice) -> Result<(), Error> {
        let next = self.positions().next;
        if lsn > next {
            let message = format!("CommitTs {lsn} is ahead of the log, which ends at {next}: use one of this database");
            return Err(Error::InvalidOptions(message.into()));
        }
        if self.is_durable(lsn) {
            give(notice, Ok(()));
            return Ok(());
        }
        self.check_files_now()?;
        {
            let mut notices = self.notices.lock();
            if notices.is_over {
                drop(notices);
                return Err(self.reason());
            }
            notices.waiting.push((lsn, notice));
        }
        self.flusher_bell.ring();
        Ok(())
    }

    /// Flushes the log for the notices that have come, and gives them. They stay where they are meanwhile: if this
    /// thread panics, others find them.
    pub(super) fn give_notices(&self) {
        let last = self.notices.lock().waiting.iter().map(|(lsn, _)| *lsn).max();
        let Some(last) = last else { return };
        let flushed = self.flush_wait(last);
        let is_due = |(lsn, _): &(Lsn, Notice)| flushed.is_err() || *lsn <= last;
        let due = {
            let mut notices = self.notices.lock();
            let (due, later) = std::mem::take(&mut notices.waiting).into_iter().partition(is_due);
            notices.waiting = later;
            due
        };
        // If the flush failed, each notice gets its own error.
        self.give_all(due);
    }

    /// Gives the notices that are left. The log has come to its end.
    pub(crate) fn end_notices(&self) {
        let waiting = {
            let mut notices = self.notices.lock();
            notices.is_over = true;
            std::mem::take(&mut notices.waiting)
        };
        self.give_all(waiting);
    }

    /// Gives notices, in the order of their places.
    fn give_all(&self, mut waiting: Vec<(Lsn, Notice)>) {
        waiting.sort_by_key(|(lsn, _)| *lsn);
        for (lsn, notice) in waiting {
            let outcome = match self.is_durable(lsn) {
                true => Ok(()),
                false => Err(self.reason()),
            };
            give(notice, outcome);
        }
    }

    /// Why the log becomes no longer.
    fn reason(&self) -> Error {
        self.check_files_now().and_then(|()| self.health()).err().unwrap_or_else(closed)
    }

    fn is_durable(&self, lsn: Lsn) -> bool {
        match &self.pipeline {
            Some(pipeline) => pipeline.reached(Stage::Flushed) >= lsn,
            None => self.positions().durable >= lsn,
        }
    }
}

/// A panic of the caller's code has been reported by its hook, and ends nothing here.
fn give(notice: Notice, outcome: Result<(), Error>) {
    let _ = catch_unwind(AssertUnwindSafe(|| notice(outcome)));
}
