//! The atomics of the commit table and of the list of live snapshots. A model has others in their place.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64};
