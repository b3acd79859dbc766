//! How the log ends: stopped, which leaves its files usable; failed, after which they are not written; or closed.
//!
//! REDO-11 A log that is stopped takes no group any more, and has those written and synced that have a place. One that
//!         has failed writes nothing: after a sync that failed nothing is known of the bytes before it.

use std::sync::Arc;

use super::flush::FlushSignal;
use super::log::{Log, LogState};
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::waits::WaitClass;

impl Log {
    /// An error once no group gets a place any more.
    pub(super) fn check(state: &LogState) -> Result<(), Error> {
        state.stopped.as_ref().map_or(Ok(()), |why| Err(stopped(why)))
    }

    /// An error once the log's files are not written any more.
    pub(super) fn check_files(state: &LogState) -> Result<(), Error> {
        state.failed.as_ref().map_or(Ok(()), |why| Err(stopped(why)))
    }

    /// The log's files cannot be written, or may not be any more: what they do not have stays as it is.
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

    /// Refuses further groups: after a failure elsewhere that leaves the engine unable to go on. What has its place in
    /// the log is written and synced as before (REDO-11).
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

    /// Fails the log, unless it has failed already: nobody knows any more what its files have.
    pub(super) fn fail_for(&self, error: &Error) {
        let mut state = self.state.lock();
        if state.failed.is_none() {
            self.fail(&mut state, error);
        }
    }

    /// An error once the log's files are not written any more.
    pub(super) fn check_files_now(&self) -> Result<(), Error> {
        Self::check_files(&self.state.lock())
    }

    /// Has all groups written and synced that have a place, if the log's files take them. After an error some of what
    /// was acknowledged before it was durable is lost; the error says how much of the log that is.
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

    /// Refuses all further writes, and waits until none is under way: the files may be another's after this.
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

    /// An error once the log has failed or was stopped: no group gets a place.
    pub(crate) fn health(&self) -> Result<(), Error> {
        Self::check(&self.state.lock())
    }
}

/// A thread that is giving a group its place: if it panics, no other group gets one.
pub(super) struct Publishing<'a> {
    pub(super) log: &'a Log,
    /// The group has its place, and its bytes are not in the buffer: nothing behind it can be written.
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

/// The error for a call that comes after the log was stopped.
pub(crate) fn stopped(why: &str) -> Error {
    let message = format!(
        "the database takes no more writes after an earlier failure ({why}); reopen it: everything acknowledged as durable is safe"
    );
    Error::ReadOnly(message.into())
}
