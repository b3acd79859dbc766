//! The backups that the victim makes beside its load, and their required content.
//!
//! ORA-4  A backup has the first operations of each thread, in that thread's order: all that were acknowledged before
//!        the backup began, and none that began after it was whole. Keys belong to one thread each.

use std::collections::{BTreeMap, BTreeSet};

use super::oracle::{Contents, Place, is_value};
use super::protocol::{Change, Value};
use super::values::show_key;

/// The number of the thread that makes backups.
pub(super) const THREAD: u8 = u8::MAX;

/// Backups of a round.
#[derive(Debug, Default)]
pub(super) struct Backups {
    /// The one that is being made.
    pub(super) under_way: Option<Backup>,
    /// The last one that was acknowledged.
    pub(super) whole: Option<Backup>,
}

/// What a backup may have.
#[derive(Debug)]
pub(super) struct Backup {
    /// Its number, which is the name of its directory.
    pub(super) number: u64,
    /// What was acknowledged before it began.
    before: BTreeMap<Place, Value>,
    /// By thread: the operations in flight then, and those that began since.
    since: BTreeMap<u8, Vec<Vec<Change>>>,
}

impl Backups {
    /// A backup begins.
    pub(super) fn begin(
        &mut self,
        number: u64,
        acknowledged: &BTreeMap<Place, Value>,
        in_flight: &BTreeMap<u8, (u64, Vec<Change>)>,
    ) {
        let since = in_flight.iter().map(|(thread, (_, changes))| (*thread, vec![changes.clone()])).collect();
        self.under_way = Some(Backup { number, before: acknowledged.clone(), since });
    }

    /// An operation begins.
    pub(super) fn operation(&mut self, thread: u8, changes: &[Change]) {
        if let Some(backup) = &mut self.under_way {
            backup.since.entry(thread).or_default().push(changes.to_vec());
        }
    }

    /// The backup under way is whole.
    pub(super) fn end(&mut self) {
        self.whole = self.under_way.take();
    }
}

impl Backup {
    /// The threads whose part of `found` is none that the backup may have, each with an example.
    pub(super) fn differences(&self, found: &Contents) -> Vec<String> {
        let places: BTreeSet<&Place> = self.before.keys().chain(found.keys()).collect();
        let threads: BTreeSet<Option<u8>> =
            places.iter().map(|place| thread_of(place)).chain(self.since.keys().map(|thread| Some(*thread))).collect();
        threads.into_iter().filter_map(|thread| self.difference(thread, &places, found)).collect()
    }

    fn difference(&self, thread: Option<u8>, places: &BTreeSet<&Place>, found: &Contents) -> Option<String> {
        let differs = |place: &Place, value: Option<Value>| !is_value(value, found.get(place));
        let own = places.iter().filter(|place| thread_of(place) == thread);
        let mut wrong: BTreeSet<Place> = own
            .filter(|place| differs(place, self.before.get(**place).copied()))
            .map(|place| (*place).clone())
            .collect();
        let nothing = Vec::new();
        let operations = thread.and_then(|thread| self.since.get(&thread)).unwrap_or(&nothing);
        let mut least = wrong.clone();
        for changes in operations {
            if wrong.is_empty() {
                return None;
            }
            for change in changes {
                let place = (change.tree, change.key.clone());
                if differs(&place, change.value) {
                    wrong.insert(place);
                } else {
                    wrong.remove(&place);
                }
            }
            if wrong.len() < least.len() {
                least.clone_from(&wrong);
            }
        }
        let (tree, key) = wrong.first().and(least.first())?;
        let (number, count, after) = (self.number, least.len(), operations.len());
        Some(format!(
            "backup {number} has no state of a thread after 0 to {after} more operations: {count} places differ at \
             least, such as '{}', {}",
            tree.name(),
            show_key(key)
        ))
    }
}

/// The thread that a key belongs to; `None`: the key is of none.
fn thread_of((_, key): &Place) -> Option<u8> {
    key.first().copied()
}

#[cfg(test)]
mod tests {
    use super::super::protocol::TreeId;
    use super::super::values::key;
    use super::*;

    fn value(seed: u64) -> Value {
        Value { seed, len: 20 }
    }

    fn change(thread: u8, number: u32, seed: u64) -> Change {
        Change { tree: TreeId::Single, key: key(thread, number), value: (seed > 0).then(|| value(seed)) }
    }

    /// Thread 1 has key 1 with value 1 before, then changes key 1 and makes key 2 in one operation, then drops key 1.
    fn backup() -> Backup {
        let mut backups = Backups::default();
        let acknowledged = BTreeMap::from([((TreeId::Single, key(1, 1)), value(1))]);
        backups.begin(7, &acknowledged, &BTreeMap::from([(1, (5, vec![change(1, 1, 2), change(1, 2, 3)]))]));
        backups.operation(1, &[change(1, 1, 0)]);
        backups.operation(2, &[change(2, 1, 9)]);
        backups.end();
        backups.operation(1, &[change(1, 1, 8)]);
        backups.whole.expect("it ended")
    }

    fn found(places: &[(u8, u32, u64)]) -> Contents {
        let place = |(thread, number, _): &(u8, u32, u64)| (TreeId::Single, key(*thread, *number));
        places.iter().map(|of| (place(of), value(of.2).bytes())).collect()
    }

    #[test]
    fn first_operations_of_each_thread_are_a_backup() {
        for places in
            [&[(1, 1, 1)][..], &[(1, 1, 2), (1, 2, 3)], &[(1, 2, 3)], &[(1, 2, 3), (2, 1, 9)], &[(1, 1, 1), (2, 1, 9)]]
        {
            assert_eq!(backup().differences(&found(places)), Vec::<String>::new(), "{places:?}");
        }
    }

    #[test]
    fn parts_lost_and_later_operations_are_no_backup() {
        for (places, threads) in [
            (&[][..], 1),
            (&[(1, 1, 2)], 1),
            (&[(1, 1, 1), (1, 2, 3)], 1),
            (&[(1, 1, 8), (1, 2, 3)], 1),
            (&[(1, 1, 1), (3, 1, 1)], 1),
            (&[(1, 1, 5), (2, 1, 8)], 2),
        ] {
            let differences = backup().differences(&found(places));
            assert_eq!(differences.len(), threads, "{places:?}: {differences:?}");
            assert!(differences[0].starts_with("backup 7 has no state"), "{differences:?}");
        }
    }
}
