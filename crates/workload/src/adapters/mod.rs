//! The engines that can be put under load, one file each.

pub mod millpond;
