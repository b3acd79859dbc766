//! Tools for a database that no process has open: check, rebuild, inspect.

pub(crate) mod check;
pub(crate) mod inspect;
pub(crate) mod rebuild;
