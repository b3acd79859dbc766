//! The primitives of the latch word, in one place, so that a checked model can replace them all.

pub(crate) use parking_lot_core::{
    DEFAULT_PARK_TOKEN, FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken, park, unpark_filter,
};
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
