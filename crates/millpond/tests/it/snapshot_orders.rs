//! Every order of a few steps: two writers, two readers of snapshots, and purge, over three rows and a unique index.
//!
//! Each actor takes its two steps one after the other; the steps of different actors come in every order. Each order
//! has rows of its own in one table. After each step that reads, all that a snapshot sees is compared with the rows
//! that a map had when the snapshot was taken. `make test` takes a part of the orders, `make crash` all 113,400.

use std::collections::BTreeMap;

use millpond::simulation::{SimulatedDisk, run, sleep_ns};
use millpond::{Db, Durability, Error, Field, Snapshot, Table, TableDefinition, WriteBatch};

use crate::crash_matrix::stride;
use crate::support::{open, settle, small_options};

/// The actors, each with two steps: the first writer, the second one, two readers, purge.
const ACTORS: usize = 5;
const STEPS: usize = 2;

/// Orders in one database.
const TOGETHER: usize = 1_000;

/// More than the keeper's tick, so that purge gets what it may remove.
const PURGE_NS: u64 = 120_000_000;

type Order = [usize; ACTORS * STEPS];

/// All orders of the actors' steps.
fn orders() -> Vec<Order> {
    fn extend(order: &mut Order, len: usize, taken: &mut [usize; ACTORS], all: &mut Vec<Order>) {
        if len == order.len() {
            all.push(*order);
            return;
        }
        for actor in 0..ACTORS {
            if taken[actor] < STEPS {
                (order[len], taken[actor]) = (actor, taken[actor] + 1);
                extend(order, len + 1, taken, all);
                taken[actor] -= 1;
            }
        }
    }
    let mut all = Vec::new();
    extend(&mut [0; ACTORS * STEPS], 0, &mut [0; ACTORS], &mut all);
    all
}

/// Rows by name, with the tag in their value. The index demands that no two rows of an order have the same tag.
type Rows = BTreeMap<u8, u8>;

/// The rows of one order.
struct Scene<'d> {
    db: &'d Db,
    table: &'d Table,
    number: u32,
    now: Rows,
    held: [Option<(Snapshot, Rows)>; 2],
}

impl Scene<'_> {
    fn key(&self, name: u8) -> Vec<u8> {
        [&self.number.to_be_bytes()[..], &[name]].concat()
    }

    fn value(&self, tag: u8) -> Vec<u8> {
        [&self.number.to_be_bytes()[..], &[tag; 40]].concat()
    }

    /// Writes a batch: for each row a tag, or its deletion. A tag that another row has is refused, and so is the batch.
    fn write(&mut self, changes: &[(u8, Option<u8>)]) {
        let (mut batch, mut after) = (WriteBatch::new(), self.now.clone());
        for &(name, tag) in changes {
            if let Some(tag) = tag {
                batch.put(self.table, self.key(name), self.value(tag));
                after.insert(name, tag);
            } else {
                batch.delete(self.table, self.key(name));
                after.remove(&name);
            }
        }
        let mut tags: Vec<u8> = after.values().copied().collect();
        tags.sort_unstable();
        let is_unique = tags.windows(2).all(|pair| pair[0] != pair[1]);
        match self.db.write(batch) {
            Ok(_) if is_unique => self.now = after,
            Err(Error::KeyExists(_)) if !is_unique => {}
            other => unreachable!("{changes:?} over {:?}: {other:?}", self.now),
        }
    }

    fn take(&mut self, reader: usize) {
        self.held[reader] = Some((self.db.snapshot().expect("open"), self.now.clone()));
    }

    /// Reads all that the snapshot sees, in every way, and gives it up.
    fn read(&mut self, reader: usize) {
        let (snapshot, rows) = self.held[reader].take().expect("taken");
        let (from, to) = (self.number.to_be_bytes(), (self.number + 1).to_be_bytes());
        let wanted: Vec<_> = rows.iter().map(|(name, tag)| (self.key(*name), self.value(*tag))).collect();
        let found: Vec<_> = snapshot.scan(self.table, from..to).expect("here").collect::<Result<_, _>>().expect("read");
        assert_eq!(found, wanted);
        for name in *b"xyz" {
            let value = rows.get(&name).map(|tag| self.value(*tag));
            assert_eq!(snapshot.get(self.table, self.key(name)).expect("read"), value);
        }
        let index = self.table.index("tag").expect("there");
        let mut by_tag: Vec<_> =
            rows.iter().map(|(name, tag)| (self.value(*tag)[..5].to_vec(), self.key(*name))).collect();
        by_tag.sort();
        let found: Vec<_> = snapshot.entries(&index, from..to).expect("here").collect::<Result<_, _>>().expect("read");
        assert_eq!(found, by_tag);
        let found: Vec<_> =
            snapshot.rows(&index, from..to).expect("here").rev().map(|row| row.expect("read").0).collect();
        assert_eq!(found, by_tag.into_iter().rev().map(|(_, key)| key).collect::<Vec<_>>());
    }

    fn step(&mut self, actor: usize, turn: usize) {
        match (actor, turn) {
            (0, 0) => self.write(&[(b'x', Some(1)), (b'y', Some(2))]),
            (0, _) => self.write(&[(b'x', None)]),
            (1, 0) => self.write(&[(b'x', Some(3))]),
            // The tag of one row goes over to another.
            (1, _) => self.write(&[(b'y', None), (b'z', Some(2))]),
            (2 | 3, 0) => self.take(actor - 2),
            (2 | 3, _) => self.read(actor - 2),
            _ => sleep_ns(PURGE_NS),
        }
    }
}

#[test]
fn snapshots_are_right_in_every_order_of_steps() {
    let all = orders();
    assert_eq!(all.len(), 113_400);
    let some: Vec<_> = all.into_iter().step_by(stride(13)).collect();
    for orders in some.chunks(TOGETHER) {
        run(1, || {
            let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
            let table =
                db.create_table("t", TableDefinition::new().unique("tag", [Field::value(0..5)])).expect("created");
            for (number, order) in (0..).zip(orders) {
                let mut scene = Scene { db: &db, table: &table, number, now: Rows::new(), held: [None, None] };
                let mut taken = [0; ACTORS];
                for &actor in order {
                    scene.step(actor, taken[actor]);
                    taken[actor] += 1;
                }
                let newest: Vec<_> = table.scan(number.to_be_bytes()..).map(|row| row.expect("read").0).collect();
                assert_eq!(newest, scene.now.keys().map(|name| scene.key(*name)).collect::<Vec<_>>(), "{order:?}");
            }
            settle(&db);
            let left = db.stats();
            assert!(left.purged_rows > 0 && left.undo_bytes_retained == 0, "purge was at work");
            drop(table);
            db.close().expect("closed");
        });
    }
}
