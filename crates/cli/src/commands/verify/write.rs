//! A writer: random batches over the table and the tree.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use millpond::{Durability, Error, WriteBatch};
use rand::RngExt;

use super::history::Batch;
use super::read::Moments;
use super::rows::{Place, Random, Rows, any_key, key, value};

/// Rows of a large batch. It does not fit one group.
const LARGE: u32 = 300;

pub(super) struct Writer {
    random: Random,
    /// The writer's next version. No other writer has the same.
    next: u64,
}

impl Writer {
    pub(super) fn new(random: Random, number: u8) -> Writer {
        Writer { random, next: u64::from(number) << 48 }
    }

    /// Writes so many batches, and returns those that were committed. An error says what was wrong.
    pub(super) fn write(&mut self, rows: &Rows, moments: &Moments, batches: u64) -> Result<Vec<Batch>, String> {
        (0..batches).filter_map(|_| self.write_once(rows, moments).transpose()).collect()
    }

    /// Writes a batch. `None`: it was refused, as it had to be.
    fn write_once(&mut self, rows: &Rows, moments: &Moments) -> Result<Option<Batch>, String> {
        let is_large = self.random.random_ratio(1, 100);
        // A large one has changed most of its rows by then: readers meet them while they are undone.
        let is_refused = self.random.random_ratio(if is_large { 8 } else { 1 }, 20);
        let count = if is_large { LARGE } else { self.random.random_range(1..=6) };
        let mut changes = BTreeMap::new();
        for turn in 0..count {
            let place = usize::from(self.random.random::<bool>());
            // The first change is no deletion: a batch that changes nothing has no CommitTs of its own.
            let is_deletion = turn > 0 && self.random.random_ratio(1, 3);
            let version = (!is_deletion).then(|| self.version());
            changes.entry((place, any_key(&mut self.random))).or_insert(version);
        }
        let changes: Vec<_> =
            changes.into_iter().map(|((at, number), version)| (Place::ALL[at], number, version)).collect();
        let mut batch = WriteBatch::new();
        for &(place, number, version) in &changes {
            let key = key(number);
            match (place, version) {
                (Place::Table, Some(version)) => batch.put(&rows.table, key, value(number, version)),
                (Place::Table, None) => batch.delete(&rows.table, key),
                (Place::Tree, Some(version)) => batch.put(&rows.tree, key, value(number, version)),
                (Place::Tree, None) => batch.delete(&rows.tree, key),
            };
        }
        let durability = if self.random.random_ratio(1, 50) { Durability::Commit } else { Durability::None };
        batch.durability(durability);
        if is_refused {
            rows.insert_again(&mut batch);
        }
        let taken = moments.taken.load(Ordering::SeqCst);
        let commit = match rows.db.write(batch) {
            Err(Error::KeyExists(_)) if is_refused => return Ok(None),
            Ok(_) if is_refused => return Err("a batch inserted a row that was there".to_owned()),
            written => written.map_err(|error| format!("a batch of {count} changes failed: {error}"))?,
        };
        if u64::from(commit) <= taken {
            return Err(format!(
                "a batch has CommitTs {commit}, though a snapshot of {taken} was taken before it began"
            ));
        }
        moments.committed.fetch_max(commit.into(), Ordering::SeqCst);
        Ok(Some(Batch { commit, changes }))
    }

    fn version(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
