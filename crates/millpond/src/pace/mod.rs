//! How fast a debt is paid, as arithmetic: no I/O, no threads, no clock.

pub(crate) mod envelope;
pub(crate) mod free_frames;
