//! Trees with keys of the greatest length, which differ late or early: pages store the common prefix of keys once, and
//! their fences whole. Every page must find a split point, and every split must fit the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::simulation::{SimulatedDisk, Unsynced};
use millpond::{Db, PageStoreKind};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::support::{SMALL, Shape, disk_of, recover_shaped};

#[derive(Clone, Copy, Debug)]
enum Order {
    Ascending,
    Descending,
    Shuffled,
}

/// A key that shares its first `common` bytes with all others, and is padded to `len` bytes behind its number.
fn key_of(number: u64, common: usize, len: usize) -> Vec<u8> {
    let mut key = vec![b'k'; common];
    key.extend_from_slice(&number.to_be_bytes());
    key.resize(len.max(common + 8), b'z');
    key
}

fn grow_and_recover(page_kib: u64, order: Order, common: usize, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let shape = Shape { page_kib, store: PageStoreKind::CopyOnWrite, ..SMALL };
    let disk = SimulatedDisk::new();
    let db = Db::open_on(Arc::new(disk.clone()), shape.options()).expect("opened");
    let tree = db.create_tree("t").expect("created");
    let page_size = usize::try_from(page_kib).expect("small") * 1024;
    let longest = (page_size / 16 * 3).min(3072);
    let mut numbers: Vec<u64> = (0..if page_kib > 16 { 100 } else { 300 }).map(|n| n * 17).collect();
    match order {
        Order::Ascending => {}
        Order::Descending => numbers.reverse(),
        Order::Shuffled => numbers.shuffle(&mut rng),
    }
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (step, number) in numbers.iter().enumerate() {
        let len = if step % 5 == 0 { rng.random_range(0..=longest) } else { longest };
        let key = key_of(*number, common, len);
        let value = vec![7; rng.random_range(0..=page_size / [4, 4, 40][step % 3])];
        tree.put(&key, &value).expect("written");
        model.insert(key, value);
        if step % 7 == 6 {
            let gone = model.keys().nth(rng.random_range(0..model.len())).expect("there").clone();
            assert!(tree.delete(&gone).expect("deleted"));
            model.remove(&gone);
        }
        if step % 100 == 99 {
            db.checkpoint().expect("done");
        }
    }
    for (key, value) in &model {
        assert_eq!(tree.get(key).expect("read").as_ref(), Some(value));
    }
    let back: Vec<_> = tree.scan(..).rev().collect::<Result<_, _>>().expect("scanned");
    assert!(back.iter().rev().map(|(key, value)| (key, value)).eq(&model));
    let crashed = disk_of(disk.crash_now(Unsynced::None));
    db.close().expect("closed");
    for (what, disk) in [("crashed", crashed), ("closed", disk)] {
        let found = recover_shaped(&disk, shape).expect("sound");
        assert!(found["t"] == model, "{what}: {} rows, not {}", found["t"].len(), model.len());
    }
}

#[test]
fn trees_of_longest_keys_split_and_recover_at_every_page_size() {
    for page_kib in [4, 8, 16, 32, 64] {
        for (seed, order) in (0..).zip([Order::Ascending, Order::Descending, Order::Shuffled]) {
            let longest = (usize::try_from(page_kib).expect("small") * 192).min(3072);
            for common in [0, longest / 2, longest - 8] {
                grow_and_recover(page_kib, order, common, seed);
            }
        }
    }
}
