//! What the latch word is made of, in one place: so that a checked model can replace it as a whole.

pub(crate) use parking_lot_core::{
    DEFAULT_PARK_TOKEN, FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken, park, unpark_filter,
};
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
