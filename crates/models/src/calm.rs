//! Hours of load in virtual time: the engine's own controller (`pace`), payment and model of a device (`io/speed.rs`),
//! with all that is around them modelled: threads, CPUs, pool, log, keeper, syncs, checkpoints.
//!
//! Each update is an event of its own, which dirties a page of its own; writers wait where the engine's do: for a free
//! frame, for room in the log, for their payment. So what is seen is what the rules make of it, not a fluid's average.
//! A [`Scenario`] says what happens, [`Off`] which rule is switched off, an [`Outcome`] what became of it.
//!
//! Left out: what is in the pages, indexes and undo (an update dirties one page), latches and rows, the log's own
//! writes (durability is in the background), and that a lot's pages lie together (the device's speed is in pages).

mod outcome;
mod scenario;
mod world;

pub use outcome::{Evenness, Outcome, Phase};
pub use scenario::{Off, Scenario, scenarios};
pub use world::run;
