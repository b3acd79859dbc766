//! How long calls of the simulated disk take.

/// The virtual time that a call takes.
#[derive(Clone, Copy, Debug)]
pub struct ServiceTime {
    /// A read, in nanoseconds.
    pub read_ns: u64,
    /// A write, in nanoseconds.
    pub write_ns: u64,
    /// A sync, in nanoseconds.
    pub sync_ns: u64,
}

impl Default for ServiceTime {
    fn default() -> Self {
        ServiceTime { read_ns: 60_000, write_ns: 40_000, sync_ns: 100_000 }
    }
}
