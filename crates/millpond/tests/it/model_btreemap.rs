//! Trees against `BTreeMap`: 4 KiB pages, a pool of a few dozen frames, reopened in between.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use millpond::simulation::SimulatedDisk;
use millpond::{Db, Error, WriteBatch};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{recover, reopen_options, small_options};

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u16),
    Put(u16, u16),
    Update(u16, u16),
    Delete(u16),
    Batch(Vec<(u16, Option<u16>)>),
    Scan(u16, u16, bool),
    Checkpoint,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0u16..3000;
    let len = 0u16..1024;
    prop_oneof![
        8 => (key.clone(), len.clone()).prop_map(|(k, l)| Op::Insert(k, l)),
        8 => (key.clone(), len.clone()).prop_map(|(k, l)| Op::Put(k, l)),
        4 => (key.clone(), len.clone()).prop_map(|(k, l)| Op::Update(k, l)),
        5 => key.clone().prop_map(Op::Delete),
        3 => vec((key.clone(), proptest::option::of(0u16..200)), 1..12).prop_map(Op::Batch),
        2 => (key.clone(), key, any::<bool>()).prop_map(|(a, b, back)| Op::Scan(a, b, back)),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Reopen),
    ]
}

/// Keys of very different lengths, in an order unlike that of their numbers.
fn key_of(n: u16) -> Vec<u8> {
    let mut key = format!("{:04}", n.reverse_bits() % 9973).into_bytes();
    key.resize(4 + usize::from(n % 7) * 100, b'x');
    key.extend_from_slice(&n.to_be_bytes());
    key
}

fn value_of(key: u16, len: u16) -> Vec<u8> {
    let mut value = vec![u8::try_from(key % 251).expect("small"); usize::from(len)];
    value.extend_from_slice(&[]);
    value
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[expect(clippy::panic, reason = "a test's helper: the panic is the test's failure")]
fn step(db: &mut Db, disk: &SimulatedDisk, model: &mut Model, op: &Op) -> Result<(), Error> {
    let tree = db.open_tree("t")?;
    match op {
        Op::Insert(k, l) => match (tree.insert(key_of(*k), value_of(*k, *l)), model.contains_key(&key_of(*k))) {
            (Ok(()), false) => {
                model.insert(key_of(*k), value_of(*k, *l));
            }
            (Err(Error::KeyExists(_)), true) => {}
            (other, there) => panic!("insert: {other:?}, key there: {there}"),
        },
        Op::Put(k, l) => {
            tree.put(key_of(*k), value_of(*k, *l))?;
            model.insert(key_of(*k), value_of(*k, *l));
        }
        Op::Update(k, l) => match (tree.update(key_of(*k), value_of(*k, *l)), model.contains_key(&key_of(*k))) {
            (Ok(()), true) => {
                model.insert(key_of(*k), value_of(*k, *l));
            }
            (Err(Error::KeyNotFound(_)), false) => {}
            (other, there) => panic!("update: {other:?}, key there: {there}"),
        },
        Op::Delete(k) => assert_eq!(tree.delete(key_of(*k))?, model.remove(&key_of(*k)).is_some()),
        Op::Batch(changes) => {
            let mut batch = WriteBatch::new();
            let mut after = model.clone();
            for (k, len) in changes {
                match len {
                    Some(len) => {
                        batch.put(&tree, key_of(*k), value_of(*k, *len));
                        after.insert(key_of(*k), value_of(*k, *len));
                    }
                    None => {
                        batch.delete(&tree, key_of(*k));
                        after.remove(&key_of(*k));
                    }
                }
            }
            db.write(batch)?;
            *model = after;
        }
        Op::Scan(a, b, back) => {
            let (low, high) = (key_of(*a).min(key_of(*b)), key_of(*a).max(key_of(*b)));
            let bounds = match a % 3 {
                0 => (Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice())),
                1 if low != high => (Bound::Excluded(low.as_slice()), Bound::Included(high.as_slice())),
                1 => (Bound::Included(low.as_slice()), Bound::Included(high.as_slice())),
                _ => (Bound::Unbounded, Bound::Included(high.as_slice())),
            };
            let mut expected: Vec<_> = model.range::<[u8], _>(bounds).map(|(k, v)| (k.clone(), v.clone())).collect();
            let scan = tree.scan(bounds);
            if *back {
                expected.reverse();
            }
            let found: Vec<_> = if *back { scan.rev().collect() } else { scan.collect::<Result<_, _>>() }?;
            assert!(found == expected, "a scan found {} rows, not {}", found.len(), expected.len());
            let (mut scan, mut first, mut last) = (tree.scan(bounds), Vec::new(), Vec::new());
            while let (is_front, Some(row)) = {
                let is_front = (first.len() * 7 + last.len() * 3 + usize::from(*a)) % 5 < 2;
                (is_front, if is_front { scan.next() } else { scan.next_back() })
            } {
                if is_front { first.push(row?) } else { last.push(row?) }
            }
            first.extend(last.into_iter().rev());
            if *back {
                first.reverse();
            }
            assert!(first == expected, "a scan from both ends found {} rows, not {}", first.len(), expected.len());
        }
        Op::Checkpoint => db.checkpoint()?,
        Op::Reopen => {
            drop(tree);
            let again = Arc::new(disk.clone());
            std::mem::replace(db, Db::open_on(Arc::new(SimulatedDisk::new()), small_options())?).close()?;
            *db = Db::open_on(again, reopen_options())?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20), ..ProptestConfig::default() })]

    #[test]
    fn a_tree_agrees_with_a_map_through_any_operations(ops in vec(op(), 100..900)) {
        let disk = SimulatedDisk::new();
        let mut db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
        db.create_tree("t").expect("created");
        let mut model = Model::new();
        for op in &ops {
            step(&mut db, &disk, &mut model, op).expect("done");
        }
        for (key, value) in &model {
            assert_eq!(db.open_tree("t").expect("there").get(key).expect("read").as_ref(), Some(value));
        }
        db.close().expect("closed");
        let found = recover(&disk).expect("sound");
        prop_assert!(found["t"] == model, "after reopening {} rows, not {}", found["t"].len(), model.len());
    }
}
