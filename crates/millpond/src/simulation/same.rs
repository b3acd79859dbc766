//! Helpers of all decoders.

/// The UUID of databases in samples.
pub(super) const UUID: [u64; 2] = [0x11, 0x22];

/// `Err` unless both are equal.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, left: &T, right: &T) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{what} differs: {left:?}, then {right:?}")) }
}
