//! What the tests of all decoders share.

/// The UUID of databases in samples.
pub(super) const UUID: [u64; 2] = [0x11, 0x22];

/// `Err` unless the two are the same.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, left: &T, right: &T) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{what} is not the same again: {left:?}, then {right:?}")) }
}
