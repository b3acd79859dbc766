//! Opening and creating databases.

pub(crate) mod create;
#[cfg(feature = "server")]
pub(crate) mod endpoints;
#[cfg(not(feature = "server"))]
#[path = "no_endpoints.rs"]
pub(crate) mod endpoints;
pub(crate) mod entry;
pub(crate) mod existing;
pub(crate) mod running;
pub(crate) mod start;
