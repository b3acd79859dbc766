//! The log's end states: stopped, with its files still usable; failed, with no more writes to its files; or closed.
//!
//! REDO-11 A stopped log takes no more groups, but has the groups that have a place written and synced. A failed log
//!         writes nothing: after a failed sync, nothing is known of the bytes before it.

use std::sync::Arc;

use super::log::{Log, LogState};
use super::waiters::FlushSignal;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::waits::WaitClass;

impl Log {
    /// Returns an error once no group gets a place any more.
    pub(super) fn check(state: &LogState) -> Result<(), Error> {
        state.stopped.as_ref().map_or(Ok(()), |why| Err(stopped(why)))
    }

    /// Returns an error once the log's files are not written any more.
    pub(super) fn check_files(state: &LogState) -> Result<(), Error> {
        state.failed.as_ref().map_or(Ok(()), |why| Err(stopped(why)))
    }

    /// Marks the log failed: its files cannot be written, or must not be any more. Groups that are not in them stay
    /// lost.
    pub(super) fn fail(&self, state: &mut LogState, error: &Error) {
        let why: Arc<str> = error.to_string().into();
        self.refuse_groups(state, &why);
        state.failed = Some(why);
        if let Some(pipeline) = &self.pipeline {
            pipeline.fail();
        }
        if planted!("waiters_forgotten_on_failure") {
            return;
        }
        for waiter in state.flush_waiters.drain(..) {
            waiter.handoff.give(FlushSignal::LookAgain);
        }
    }

    fn refuse_groups(&self, state: &mut LogState, why: &Arc<str>) {
        if state.stopped.is_some() {
            return;
        }
        state.stopped = Some(Arc::clone(why));
        if planted!("waiters_forgotten_on_failure") {
            return;
        }
        for waiter in state.space_waiters.drain(..) {
            waiter.handoff.give(false);
        }
    }

    /// Refuses further groups, after a failure elsewhere that leaves the engine unable to go on. Groups that have a
    /// place in the log are written and synced as before (REDO-11).
    pub(crate) fn stop(&self, error: &Error) {
        let mut state = self.state.lock();
        if planted!("stop_drops_the_tail") {
            if state.failed.is_none() {
                self.fail(&mut state, error);
            }
            return;
        }
        self.refuse_groups(&mut state, &error.to_string().into());
    }

    /// Fails the log, unless it has failed already: the contents of its files are no longer known.
    pub(super) fn fail_for(&self, error: &Error) {
        let mut state = self.state.lock();
        if state.failed.is_none() {
            self.fail(&mut state, error);
        }
    }

    /// Returns an error once the log's files are not written any more.
    pub(super) fn check_files_now(&self) -> Result<(), Error> {
        Self::check_files(&self.state.lock())
    }

    /// Has all groups that have a place written and synced, if the log's files take them. An error means that commits
    /// acknowledged before they were durable may be lost; the error names the part of the log.
    pub(crate) fn flush_tail(&self) -> Result<(), Error> {
        if self.flush_all().is_ok() {
            return Ok(());
        }
        let state = self.state.lock();
        let why = state.failed.as_deref().unwrap_or("for an unknown reason");
        let (from, upto) = (state.durable, state.next);
        let message = format!(
            "the last {} bytes of the log (LSN {from} to {upto}) are not durable ({why}): of what was acknowledged \
             before it was durable, with durability 'background', 'written' or 'none', that part may be lost; all else is safe: reopen the database",
            upto.since(from)
        );
        Err(Error::ReadOnly(message.into()))
    }

    /// Refuses all further writes, and waits until none is under way: another process may use the files after this.
    pub(crate) fn close_wait(&self) {
        let handoff = Handoff::new();
        {
            let mut state = self.state.lock();
            if state.failed.is_none() {
                self.fail(&mut state, &Error::Closed("it was closed".into()));
            }
            if let Some(pipeline) = &self.pipeline {
                drop(state);
                pipeline.wait_until_idle();
                return;
            }
            if !state.leader_at_work {
                return;
            }
            state.idle_waiters.push(Arc::clone(&handoff));
        }
        handoff.take_wait(WaitClass::LogFlush, &self.waits);
    }

    pub(super) fn tell_idle(state: &mut LogState) {
        for waiter in state.idle_waiters.drain(..) {
            waiter.give(());
        }
    }

    /// Returns an error once the log has failed or was stopped: no group gets a place.
    pub(crate) fn health(&self) -> Result<(), Error> {
        Self::check(&self.state.lock())
    }
}

/// A guard for a thread that is giving a group its place: if the thread panics, no other group gets one.
pub(super) struct Publishing<'a> {
    pub(super) log: &'a Log,
    /// The group has its place, but its bytes are not in the buffer: nothing behind it can be written.
    pub(super) has_gap: bool,
    pub(super) is_over: bool,
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let error = Error::Bug("a thread panicked while it appended to the log".into());
        if self.has_gap {
            self.log.fail_for(&error);
        } else {
            self.log.stop(&error);
        }
    }
}

/// The error for a call after the log was stopped.
pub(crate) fn stopped(why: &str) -> Error {
    let message = format!(
        "the database takes no more writes after an earlier failure ({why}); reopen it: everything acknowledged as durable is safe"
    );
    Error::ReadOnly(message.into())
}
