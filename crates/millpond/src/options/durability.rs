//! When a commit is durable.

/// When a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// On return: the write survives a crash of the process and a loss of power.
    #[default]
    Commit,
    /// On return the write has been handed to the device, and survives a crash of the process. A second later it also
    /// survives a loss of power.
    Written,
    /// At most so many milliseconds after the return.
    Background(u32),
    /// With the next write that waits for durability, or the next checkpoint. A write is still all or nothing, and in
    /// order: a crash leaves a prefix of the writes.
    None,
}

impl Durability {
    /// Refuses `Background` with a time out of range.
    pub(crate) fn validate(self) -> Result<(), String> {
        match self {
            Durability::Background(ms) if !(1..=60_000).contains(&ms) => {
                Err(format!("durability is background({ms} ms): use 1 to 60000 ms"))
            }
            _ => Ok(()),
        }
    }
}
