//! Hours of load in virtual time: the engine's own controller (`pace`), payment and model of a device (`io/speed.rs`).
//! Everything around them is modelled: threads, CPUs, pool, log, keeper, syncs, checkpoints.
//!
//! Each update is its own event, and dirties a page of its own. Writers wait where the engine's writers do: for a free
//! frame, for room in the log, for their payment. So the results show the effect of the rules, not the average of a
//! fluid. A [`Scenario`] is the input, [`Off`] the rule that is switched off, an [`Outcome`] the result.
//!
//! Left out: the contents of pages, indexes and undo (an update dirties one page), latches and rows, the log's own
//! writes (durability is in the background), and that a lot's pages are adjacent (the device's speed is in pages).

mod outcome;
mod scenario;
mod world;

pub use outcome::{Evenness, Outcome, Phase};
pub use scenario::{Off, Scenario, scenarios};
pub use world::run;
