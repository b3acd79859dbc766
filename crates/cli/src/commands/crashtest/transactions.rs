//! Transactions of a thread: several changes with savepoints, of which some are taken back, and a commit or a rollback.

use millpond::{Error, Modify, TxnOptions};
use rand::RngExt;

use super::operations::{ROW_KEYS, SINGLE_KEYS, Trees};
use super::protocol::{TreeId, Value};
use super::values::{ROW_LEN_MIN, Random, key};

/// The most steps of a transaction.
const STEPS_MAX: u32 = 12;

/// A step of a transaction.
#[derive(Debug)]
enum Step {
    /// A key of the tree gets this value, or is deleted.
    Key(u32, Option<Value>),
    /// The same for a row of the table.
    Row(u32, Option<Value>),
    Savepoint,
    /// Back to the savepoint of this number; the later ones are forgotten.
    BackTo(usize),
}

/// A transaction as drawn.
#[derive(Debug)]
pub(super) struct Plan {
    steps: Vec<Step>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    CommitInSteps,
    Rollback,
    /// The handle is dropped.
    Drop,
}

/// What a transaction changes: the last change of each key.
type Net = Vec<(TreeId, u32, Option<Value>)>;

impl Plan {
    /// Draws a transaction over the keys of a thread.
    pub(super) fn draw(random: &mut Random) -> Plan {
        let (mut steps, mut savepoints) = (Vec::new(), 0);
        for _ in 0..random.random_range(1..=STEPS_MAX) {
            let is_deletion = random.random_ratio(1, 4);
            steps.push(match random.random_range(0..10) {
                0 => {
                    savepoints += 1;
                    Step::Savepoint
                }
                1 if savepoints > 0 => {
                    let to = random.random_range(0..savepoints);
                    savepoints = to + 1;
                    Step::BackTo(to)
                }
                2..6 => {
                    let value = (!is_deletion).then(|| Value::draw(0, random));
                    Step::Key(random.random_range(0..SINGLE_KEYS), value)
                }
                _ => {
                    let value = (!is_deletion).then(|| Value::draw(ROW_LEN_MIN, random));
                    Step::Row(random.random_range(0..ROW_KEYS), value)
                }
            });
        }
        let end = match random.random_range(0..8) {
            0 => End::Rollback,
            1 => End::Drop,
            2 | 3 => End::CommitInSteps,
            _ => End::Commit,
        };
        Plan { steps, end }
    }

    /// The changes that are there afterwards.
    pub(super) fn net(&self) -> Net {
        let (mut net, mut savepoints): (Net, Vec<Net>) = (Vec::new(), Vec::new());
        for step in &self.steps {
            let change = match *step {
                Step::Key(number, value) => (TreeId::Single, number, value),
                Step::Row(number, value) => (TreeId::Rows, number, value),
                Step::Savepoint => {
                    savepoints.push(net.clone());
                    continue;
                }
                Step::BackTo(to) => {
                    net.clone_from(&savepoints[to]);
                    savepoints.truncate(to + 1);
                    continue;
                }
            };
            net.retain(|(tree, number, _)| (*tree, *number) != (change.0, change.1));
            net.push(change);
        }
        if matches!(self.end, End::Commit | End::CommitInSteps) { net } else { Vec::new() }
    }

    /// Runs the transaction. Keys of other threads are not touched, so nothing is in its way.
    pub(super) fn run(&self, trees: &Trees, thread: u8) -> Result<(), Error> {
        let mut txn = trees.db.begin(TxnOptions::new())?;
        let mut savepoints = Vec::new();
        for step in &self.steps {
            match step {
                Step::Key(number, Some(value)) => txn.put(&trees.single, key(thread, *number), value.bytes())?,
                Step::Key(number, None) => drop(txn.delete(&trees.single, key(thread, *number))?),
                Step::Row(number, Some(value)) if number % 2 == 0 => {
                    txn.modify(&trees.rows, key(thread, *number), |_| Modify::Put(value.bytes()))?;
                }
                Step::Row(number, Some(value)) => txn.put(&trees.rows, key(thread, *number), value.bytes())?,
                Step::Row(number, None) => drop(txn.delete(&trees.rows, key(thread, *number))?),
                Step::Savepoint => savepoints.push(txn.savepoint()),
                Step::BackTo(to) => {
                    txn.rollback_to(savepoints[*to])?;
                    savepoints.truncate(to + 1);
                }
            }
        }
        match self.end {
            End::Commit => txn.commit().map(drop),
            End::CommitInSteps => txn.begin_commit()?.order()?.finish().map(drop),
            End::Rollback => txn.rollback(),
            End::Drop => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_changes_are_those_that_no_rollback_took_back() {
        let value = |seed| Some(Value { seed, len: 20 });
        let steps = vec![
            Step::Key(1, value(1)),
            Step::Savepoint,
            Step::Row(1, value(2)),
            Step::Key(1, None),
            Step::Savepoint,
            Step::Row(2, value(3)),
            Step::BackTo(1),
            Step::Row(3, value(4)),
            Step::BackTo(0),
            Step::Row(4, None),
        ];
        let mut plan = Plan { steps, end: End::Commit };
        assert_eq!(plan.net(), [(TreeId::Single, 1, value(1)), (TreeId::Rows, 4, None)]);
        plan.end = End::Drop;
        assert_eq!(plan.net(), []);
    }
}
