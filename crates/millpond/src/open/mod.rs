//! Opening and creating databases.

pub(crate) mod create;
pub(crate) mod entry;
pub(crate) mod existing;
pub(crate) mod running;
pub(crate) mod start;
