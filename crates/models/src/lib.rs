//! Small models of Millpond's protocols, in which every reachable state is checked.
//!
//! A model lists its steps, the condition of each, and what must hold in every state; the checker tries all orders.
//! Each model can be told to break a rule ([`page_store::Bug`], for one), and the tests demand that the checker
//! notices. So each rule is known to be needed, and the check able to fail.
//!
//! | model | result |
//! |---|---|
//! | [`page_store`] | no crash loses a durable change or needs a slot that has been given away |
//! | [`map_pages`] | no crash loses a map page, and the places that are charged are enough to write them at any time |
//! | [`full_log`] | a full log always drains |
//! | [`recovery`] | recovery from a full log ends, however often it is cut short |
//! | [`calm`] | a simulation, which runs: hours of load under the controller; the worth of each of its rules |
//!
//! The models in `tests/` compile the engine's own files over substitute primitives, and try the possible interleavings
//! of their threads: `latch` and `free_frames` under loom, `page_reads` and `commits` under shuttle. The head of each
//! says what it shows, and which bugs it was seen to find.

pub mod calm;
pub mod full_log;
pub mod map_pages;
pub mod page_store;
pub mod recovery;

/// The engine's own files: the controller...
#[allow(dead_code)]
#[path = "../../millpond/src/pace"]
mod pace {
    pub(crate) mod envelope;
    pub(crate) mod free_frames;
    pub(crate) mod log_length;
    pub(crate) mod payment;
    pub(crate) mod redo_limit;
    pub(crate) mod rules;
    pub(crate) mod shares;
    pub(crate) mod tick;
    pub(crate) mod write_capacity;
}

/// ... and the model of a device.
#[allow(dead_code, unreachable_pub)]
#[path = "../../millpond/src/io/speed.rs"]
mod speed;

#[cfg(test)]
mod check {
    use std::fmt::Debug;
    use std::hash::Hash;

    use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

    /// Visits every state; each property must hold.
    pub(crate) fn assert_holds<M>(model: M)
    where
        M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>
            + Send
            + Sync
            + 'static,
    {
        let checker = model.checker().spawn_bfs().join();
        println!("{} states, {} steps deep", checker.unique_state_count(), checker.max_depth());
        checker.assert_properties();
    }

    /// Visits every state; returns the properties that do not always hold.
    pub(crate) fn violated<M>(model: M) -> Vec<&'static str>
    where
        M: Model<State: Clone + Hash + PartialEq + Send + Sync, Action: Clone + PartialEq> + Send + Sync + 'static,
    {
        let checker = model.checker().spawn_bfs().join();
        let found = checker.discoveries().into_keys();
        found.filter(|&name| checker.model().property(name).expectation == Expectation::Always).collect()
    }

    /// Visits states until the property does not hold; returns the way there.
    pub(crate) fn counterexample<M>(model: M, property: &'static str) -> Path<M::State, M::Action>
    where
        M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>
            + Send
            + Sync
            + 'static,
    {
        let found = HasDiscoveries::AnyOf([property].into());
        model.checker().finish_when(found).spawn_bfs().join().assert_any_discovery(property)
    }
}
