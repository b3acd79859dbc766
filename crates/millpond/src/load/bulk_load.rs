//! Bulk loads: a tree is built from sorted rows, and exists once it is complete.
//!
//! Rows go to a space without a name ([`crate::load::loading`]), long values to a second one
//! ([`crate::load::load_rows`]). One log group names both: a crash leaves the whole tree or nothing.

use crate::base::error::Error;
use crate::engine::Engine;
use crate::load::load_rows::{RowsLoad, check_untaken};

/// Refuses a load if the name is taken, or the database takes no changes.
pub(crate) fn check_may_begin(engine: &Engine, what: &str, name: &str) -> Result<(), Error> {
    let _ddl = engine.ddl();
    engine.check_changeable()?;
    check_untaken(engine, what, name)
}

/// The common part of the handles of loads.
pub(crate) struct Load {
    /// `tree` or `table`, for messages.
    pub(super) what: &'static str,
    pub(super) name: Box<str>,
    pub(crate) rows: u64,
    /// `None` after an error.
    pub(super) into: Option<RowsLoad>,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(self.what).field("name", &self.name).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Load {
    pub(crate) fn new(what: &'static str, name: &str, into: RowsLoad) -> Load {
        Load { what, name: name.into(), rows: 0, into: Some(into) }
    }

    /// Adds rows; an error ends the load.
    pub(crate) fn add<E: From<Error>>(&mut self, push: impl FnOnce(&mut RowsLoad) -> Result<(), E>) -> Result<(), E> {
        let Some(into) = &mut self.into else { return Err(self.ended().into()) };
        into.engine().check_usable()?;
        let pushed = push(into);
        self.rows = into.count;
        if pushed.is_err() {
            self.into = None;
        }
        pushed
    }

    /// Builds everything except the name, and returns the name with the load.
    pub(crate) fn build(mut self) -> Result<(Box<str>, RowsLoad), Error> {
        let Some(mut into) = self.into.take() else { return Err(self.ended()) };
        into.engine().check_usable()?;
        into.build()?;
        Ok((self.name, into))
    }

    fn ended(&self) -> Error {
        let message = format!(
            "the bulk load of {} '{}' has ended with an earlier error: begin another one",
            self.what, self.name
        );
        Error::TreeNotFound(message.into())
    }
}
