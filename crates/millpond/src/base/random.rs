//! The only source of randomness: database ids and log epochs.

/// 64 random bits: from the operating system, or from the seed when the caller runs under the deterministic scheduler.
pub(crate) fn random_u64() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(task) = super::scheduler::current() {
        return task.random_u64();
    }
    let mut bytes = [0u8; 8];
    if getrandom::fill(&mut bytes).is_err() {
        // No entropy source: the id need only differ from earlier ones of this database, so the clock suffices.
        return super::clock::now_ns();
    }
    u64::from_le_bytes(bytes)
}
