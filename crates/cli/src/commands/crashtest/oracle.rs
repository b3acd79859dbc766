//! The required content of the database, known without the database.
//!
//! ORA-1  A key's value is the last acknowledged one.
//! ORA-2  An operation that was in flight at the kill has happened wholly or not at all.
//! ORA-3  The database holds nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::backups::{self, Backups};
use super::protocol::{Change, Frame, TreeId, Value};
use super::values::show_key;

/// A place in the database.
pub(super) type Place = (TreeId, Vec<u8>);

/// All content that was read from a database.
pub(super) type Contents = BTreeMap<Place, Vec<u8>>;

/// The acknowledged state, and the operations in flight.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    acknowledged: BTreeMap<Place, Value>,
    /// By thread: the operation's number and changes.
    in_flight: BTreeMap<u8, (u64, Vec<Change>)>,
    /// The backups of this round.
    pub(super) backups: Backups,
}

/// A place where the database differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    place: Place,
    expected: Expected,
    found: Option<Vec<u8>>,
}

/// The expected value at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    /// The acknowledged value, or nothing.
    Acknowledged(Option<Value>),
    /// The value before an operation in flight, or after it; the same choice for all its places.
    Either { before: Option<Value>, after: Option<Value> },
}

/// The fate of the operations in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InFlight {
    /// Operations that began and were not acknowledged.
    pub(super) begun: usize,
    /// Operations of these that are in the database.
    pub(super) survived: usize,
}

impl Oracle {
    /// Processes a message of the victim.
    ///
    /// # Errors
    /// The message contradicts an earlier one, or reports a fault that the victim saw; the text describes it.
    pub(super) fn take(&mut self, frame: Frame) -> Result<(), String> {
        match frame {
            Frame::Begin { thread: backups::THREAD, number, .. } => {
                self.backups.begin(number, &self.acknowledged, &self.in_flight);
                Ok(())
            }
            Frame::Ack { thread: backups::THREAD, .. } => {
                self.backups.end();
                Ok(())
            }
            Frame::Begin { thread, number, changes } => {
                self.backups.operation(thread, &changes);
                match self.in_flight.insert(thread, (number, changes)) {
                    None => Ok(()),
                    Some((other, _)) => Err(format!("thread {thread} began operation {number} within {other}")),
                }
            }
            Frame::Ack { thread, number } => match self.in_flight.remove(&thread) {
                Some((begun, changes)) if begun == number => {
                    changes.into_iter().for_each(|change| self.acknowledge(change));
                    Ok(())
                }
                _ => Err(format!("thread {thread} acknowledged operation {number}, which had not begun")),
            },
            Frame::Fault { thread, number, text } => Err(format!("thread {thread}, operation {number}: {text}")),
        }
    }

    /// Compares the required content with `found`, and adopts the fate of the operations in flight as the new state.
    pub(super) fn settle(&mut self, found: &Contents) -> (InFlight, Vec<Difference>) {
        let mut fate = InFlight::default();
        let mut differences = Vec::new();
        let mut torn: BTreeSet<Place> = BTreeSet::new();
        for (_, changes) in std::mem::take(&mut self.in_flight).into_values() {
            if changes.is_empty() {
                continue;
            }
            fate.begun += 1;
            let place_of = |change: &Change| (change.tree, change.key.clone());
            let not_happened = changes.iter().all(|c| self.is_acknowledged(&place_of(c), found));
            let happened = changes.iter().all(|c| is_value(c.value, found.get(&place_of(c))));
            match (happened, not_happened) {
                (true, _) => {
                    fate.survived += 1;
                    changes.into_iter().for_each(|change| self.acknowledge(change));
                }
                (false, true) => {}
                (false, false) => {
                    for change in changes {
                        let place = place_of(&change);
                        let before = self.acknowledged.get(&place).copied();
                        let expected = Expected::Either { before, after: change.value };
                        differences.push(Difference {
                            found: found.get(&place).cloned(),
                            expected,
                            place: place.clone(),
                        });
                        torn.insert(place);
                    }
                }
            }
        }
        for place in self.acknowledged.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
            if !torn.contains(place) && !self.is_acknowledged(place, found) {
                let expected = Expected::Acknowledged(self.acknowledged.get(place).copied());
                differences.push(Difference { found: found.get(place).cloned(), expected, place: place.clone() });
            }
        }
        (fate, differences)
    }

    /// The number of entries that the database must hold.
    pub(super) fn entries(&self) -> usize {
        self.acknowledged.len()
    }

    fn acknowledge(&mut self, change: Change) {
        let place = (change.tree, change.key);
        match change.value {
            Some(value) => self.acknowledged.insert(place, value),
            None => self.acknowledged.remove(&place),
        };
    }

    fn is_acknowledged(&self, place: &Place, found: &Contents) -> bool {
        is_value(self.acknowledged.get(place).copied(), found.get(place))
    }
}

/// Whether the found bytes are those of the value, or both are missing.
pub(super) fn is_value(value: Option<Value>, found: Option<&Vec<u8>>) -> bool {
    match (value, found) {
        (None, None) => true,
        (Some(value), Some(found)) => value.bytes() == *found,
        _ => false,
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tree, key) = &self.place;
        write!(f, "'{}', {}: expected ", tree.name(), show_key(key))?;
        match &self.expected {
            Expected::Acknowledged(value) => write!(f, "{}", show(value.map(Value::bytes).as_deref()))?,
            Expected::Either { before, after } => write!(
                f,
                "{} (before the batch in flight) or {} (after it), the same for all of the batch",
                show(before.map(Value::bytes).as_deref()),
                show(after.map(Value::bytes).as_deref()),
            )?,
        }
        write!(f, ", found {}", show(self.found.as_deref()))
    }
}

/// Shows a value by its length and first bytes.
fn show(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "nothing".to_owned(),
        Some([]) => "an empty value".to_owned(),
        Some(bytes) => {
            let head: String = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            let more = if bytes.len() > 8 { ".." } else { "" };
            format!("{} bytes {head}{more}", bytes.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::crashtest::values::key;

    fn value(seed: u64) -> Value {
        Value { seed, len: 20 }
    }

    fn change(tree: TreeId, number: u32, value: Option<Value>) -> Change {
        Change { tree, key: key(0, number), value }
    }

    /// Begins an operation and, if `is_acknowledged`, acknowledges it.
    fn play(oracle: &mut Oracle, thread: u8, number: u64, changes: Vec<Change>, is_acknowledged: bool) {
        oracle.take(Frame::Begin { thread, number, changes }).unwrap();
        if is_acknowledged {
            oracle.take(Frame::Ack { thread, number }).unwrap();
        }
    }

    fn contents(places: &[(TreeId, u32, Value)]) -> Contents {
        places.iter().map(|(tree, number, value)| ((*tree, key(0, *number)), value.bytes())).collect()
    }

    /// An oracle with two acknowledged keys; the second was deleted and written again.
    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        play(&mut oracle, 0, 1, vec![change(TreeId::Single, 1, Some(value(1)))], true);
        play(&mut oracle, 0, 2, vec![change(TreeId::Single, 2, Some(value(2)))], true);
        play(&mut oracle, 0, 3, vec![change(TreeId::Single, 2, None)], true);
        play(&mut oracle, 0, 4, vec![change(TreeId::Single, 2, Some(value(4)))], true);
        oracle
    }

    const WHOLE: [(TreeId, u32, Value); 2] =
        [(TreeId::Single, 1, Value { seed: 1, len: 20 }), (TreeId::Single, 2, Value { seed: 4, len: 20 })];

    #[test]
    fn whole_database_has_no_difference() {
        let (fate, differences) = oracle().settle(&contents(&WHOLE));
        assert_eq!(fate, InFlight::default());
        assert_eq!(differences, []);
    }

    #[test]
    fn lost_write_is_noticed() {
        let (_, differences) = oracle().settle(&contents(&WHOLE[..1]));
        assert_eq!(differences.len(), 1);
        let text = differences[0].to_string();
        assert!(text.starts_with("'single', thread 0 key 2: expected 20 bytes "), "{text}");
        assert!(text.ends_with("found nothing"), "{text}");
    }

    #[test]
    fn older_value_is_noticed() {
        let old = [WHOLE[0], (TreeId::Single, 2, value(2))];
        assert_eq!(oracle().settle(&contents(&old)).1.len(), 1);
    }

    #[test]
    fn changed_byte_is_noticed() {
        let mut found = contents(&WHOLE);
        found.get_mut(&(TreeId::Single, key(0, 1))).unwrap()[19] ^= 1;
        assert_eq!(oracle().settle(&found).1.len(), 1);
    }

    #[test]
    fn deleted_key_that_comes_back_is_noticed() {
        let mut oracle = oracle();
        play(&mut oracle, 0, 5, vec![change(TreeId::Single, 1, None)], true);
        let (_, differences) = oracle.settle(&contents(&WHOLE));
        assert_eq!(differences.len(), 1);
        assert!(differences[0].to_string().contains("expected nothing, found 20 bytes"), "{}", differences[0]);
    }

    #[test]
    fn key_that_was_never_written_is_noticed() {
        let mut found = contents(&WHOLE);
        found.insert((TreeId::Rows, b"?".to_vec()), Vec::new());
        let (_, differences) = oracle().settle(&found);
        assert_eq!(differences.len(), 1);
        assert!(differences[0].to_string().contains("'rows', 0x3f"), "{}", differences[0]);
    }

    #[test]
    fn operation_in_flight_may_have_happened_and_is_then_settled() {
        for has_happened in [false, true] {
            let mut oracle = oracle();
            play(&mut oracle, 7, 9, vec![change(TreeId::Single, 3, Some(value(9)))], false);
            let mut found = contents(&WHOLE);
            if has_happened {
                found.insert((TreeId::Single, key(0, 3)), value(9).bytes());
            }
            let (fate, differences) = oracle.settle(&found);
            assert_eq!(differences, []);
            assert_eq!(fate, InFlight { begun: 1, survived: usize::from(has_happened) });
            // The outcome is now the state: from here on the other outcome is an error.
            let other = if has_happened { contents(&WHOLE) } else { Contents::new() };
            assert_ne!(oracle.settle(&other).1, []);
            assert_eq!(oracle.settle(&found).1, []);
        }
    }

    #[test]
    fn batch_in_flight_that_happened_by_half_is_noticed() {
        let batch = vec![change(TreeId::Rows, 1, Some(value(9))), change(TreeId::Rows, 2, Some(value(8)))];
        let row_of = |number: u32, row: Value| {
            move |found: &mut Contents| found.insert((TreeId::Rows, key(0, number)), row.bytes())
        };
        let (with_row, with_other) = (row_of(1, value(9)), row_of(2, value(8)));
        let settle = |has_row: bool, has_other: bool| {
            let mut oracle = oracle();
            play(&mut oracle, 1, 5, batch.clone(), false);
            let mut found = contents(&WHOLE);
            if has_row {
                with_row(&mut found);
            }
            if has_other {
                with_other(&mut found);
            }
            oracle.settle(&found)
        };
        assert_eq!(settle(false, false), (InFlight { begun: 1, survived: 0 }, vec![]));
        assert_eq!(settle(true, true), (InFlight { begun: 1, survived: 1 }, vec![]));
        for (has_row, has_other) in [(true, false), (false, true)] {
            let (_, differences) = settle(has_row, has_other);
            assert_eq!(differences.len(), 2);
            assert!(differences[0].to_string().contains("before the batch in flight"), "{}", differences[0]);
        }
    }

    #[test]
    fn contradictions_and_faults_of_the_victim_are_errors() {
        let mut oracle = oracle();
        assert!(oracle.take(Frame::Ack { thread: 0, number: 5 }).is_err());
        oracle.take(Frame::Begin { thread: 0, number: 5, changes: Vec::new() }).unwrap();
        assert!(oracle.take(Frame::Begin { thread: 0, number: 6, changes: Vec::new() }).is_err());
        let fault = Frame::Fault { thread: 2, number: 8, text: "read an old value".to_owned() };
        assert_eq!(oracle.take(fault).unwrap_err(), "thread 2, operation 8: read an old value");
    }
}
