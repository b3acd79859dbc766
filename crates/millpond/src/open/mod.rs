//! Opening and creating databases. [`cases`] has the states that an open can find, and what each leads to.

mod assemble;
mod cases;
pub(crate) mod compact;
pub(crate) mod create;
#[cfg(feature = "server")]
pub(crate) mod endpoints;
#[cfg(not(feature = "server"))]
#[path = "no_endpoints.rs"]
pub(crate) mod endpoints;
pub(crate) mod entry;
pub(crate) mod fixed_options;
mod on_disk;
#[cfg(feature = "server")]
mod requests;
pub(crate) mod running;
mod start;
