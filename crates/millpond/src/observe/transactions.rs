//! Reports of open transactions, and of the last deadlocks.

use std::fmt;
use std::time::Duration;

use crate::base::clock;
use crate::base::ids::SpaceId;
use crate::base::quoted::quoted;
use crate::engine::Engine;
use crate::txn::lock_table::{Circle, Member, Mode, Place};

/// A transaction that has changed or locked something and has not ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenTransaction {
    /// Its number.
    pub id: u64,
    /// How long ago it changed or locked something for the first time.
    pub age: Duration,
    /// For how long no call on it has been made; `None`: a call is under way.
    pub idle: Option<Duration>,
    /// Whether it waits for a lock.
    pub is_waiting: bool,
}

/// Transactions that waited for one another, until one gave way. Displayed, it is a story of one line for each.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deadlock {
    /// How long ago it was found.
    pub ago: Duration,
    /// Each waited for the next, and the last for the first.
    pub parties: Vec<DeadlockParty>,
}

/// One of the transactions of a [`Deadlock`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadlockParty {
    /// Its number.
    pub id: u64,
    /// What it waited for, such as `key 'a' of tree 't'`, and how it wanted that: `shared` or `exclusive`.
    pub waited_for: String,
    /// Number of its changes; `None`: it was a batch, or a drop.
    pub changes: Option<u64>,
    /// It gave way, and was rolled back.
    pub gave_way: bool,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, party) in self.parties.iter().enumerate() {
            let DeadlockParty { id, waited_for, changes, gave_way } = party;
            let next = &self.parties[(place + 1) % self.parties.len()];
            let changes = match changes {
                Some(1) => ", with 1 change".to_owned(),
                Some(changes) => format!(", with {changes} changes"),
                None => String::new(),
            };
            let gave_way = if *gave_way { "; it gave way" } else { "" };
            let line_end = if place + 1 == self.parties.len() { "" } else { "\n" };
            write!(f, "transaction {id}{changes}, waited for {waited_for}, which {} had{gave_way}{line_end}", next.id)?;
        }
        Ok(())
    }
}

/// The open transactions, oldest first.
pub(crate) fn open_transactions(engine: &Engine) -> Vec<OpenTransaction> {
    let now_ns = clock::coarse_ns();
    let mut found = Vec::new();
    for (txn, open) in engine.open_txns.all() {
        let (age, idle) = open.ages(now_ns);
        found.push(OpenTransaction { id: txn.0, age, idle, is_waiting: engine.txns.locks.is_waiting(txn) });
    }
    found
}

/// The last deadlocks, the newest first.
pub(crate) fn deadlocks(engine: &Engine) -> Vec<Deadlock> {
    let now_ns = clock::coarse_ns();
    let party = |Member { txn, place, mode, written, gave_way }: Member| {
        let mode = match mode {
            Mode::Shared => "shared",
            Mode::Exclusive => "exclusive",
        };
        let waited_for = format!("{}, {mode}", what(engine, &place));
        DeadlockParty { id: txn.0, waited_for, changes: written, gave_way }
    };
    let of = |Circle { found_ns, members }| Deadlock {
        ago: Duration::from_nanos(now_ns.saturating_sub(found_ns)),
        parties: members.into_iter().map(party).collect(),
    };
    engine.txns.locks.circles().into_iter().map(of).collect()
}

/// What a lock is of.
fn what(engine: &Engine, place: &Place) -> String {
    let tree = engine.open_trees.lock().get(&place.space).cloned();
    let SpaceId(space) = place.space;
    let tree = tree.map_or_else(|| format!("the tree in space {space}"), |tree| tree.to_string());
    match &place.key {
        Some(key) => format!("key {} of {tree}", quoted(key)),
        None => format!("all of {tree}"),
    }
}
