//! What the latch word is made of: replaced as a whole in the checked models, which include the word's code.

pub(crate) use parking_lot_core::{
    DEFAULT_PARK_TOKEN, FilterOp, ParkResult, ParkToken, UnparkResult, UnparkToken, park, unpark_filter,
};
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
