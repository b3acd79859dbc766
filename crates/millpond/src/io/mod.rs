//! Devices: where bytes are stored, and when they are durable.

pub(crate) mod batch;
pub(crate) mod device;
pub(crate) mod directory;
pub(crate) mod directory_lock;
pub(crate) mod lease;
mod lock_holders;
pub(crate) mod overlay;
mod page_cache;
#[cfg(feature = "simulation")]
mod service_time;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;
pub(crate) mod slow;
pub(crate) mod speed;
