//! Waits for the log after a commit.
//!
//! Each [`Durability`] level demands another state of the log. Only `Commit` and `Written` wait; `Background` asks for
//! a flush within some time, which [`Log`](crate::redo::log::Log) sees to.

use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::engine::Engine;
use crate::options::durability::Durability;

/// Waits until the log before `end` is as safe as `durability` demands.
pub(crate) fn wait_durable(engine: &Engine, end: Lsn, durability: Durability) -> Result<(), Error> {
    match durability {
        Durability::Commit => engine.core.log.flush_wait(end),
        Durability::Written => engine.core.log.write_wait(end),
        Durability::Background(ms) => {
            engine.core.log.flush_within(u64::from(ms) * 1_000_000);
            Ok(())
        }
        Durability::None => Ok(()),
    }
}
