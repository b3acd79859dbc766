//! Pages that become too empty are merged and freed, while other threads read, write and scan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::simulation::{SimulatedDisk, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Options, PageStoreKind, Tree};
use rand::{RngExt, SeedableRng};

use crate::support::{Contents, contents, open, recover, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

/// Pages of 4 KiB and a pool that holds everything.
fn options(store: PageStoreKind) -> Options {
    Options::new()
        .page_size(ByteSize::kib(4))
        .page_store(store)
        .buffer_pool_size(ByteSize::mib(8))
        .redo_capacity(ByteSize::mib(4))
        .durability(Durability::None)
}

fn shuffled(count: u32, rng: &mut Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count).collect();
    for index in (1..all.len()).rev() {
        all.swap(index, rng.random_range(0..=index));
    }
    all
}

fn key_of(number: u32) -> Vec<u8> {
    // Keys of several lengths, with prefixes that are shorter in merged pages.
    let mut key = format!("{:02}/{number:06}", number % 7).into_bytes();
    key.resize(key.len() + usize::try_from(number % 5).expect("small") * 9, b'k');
    key
}

fn value_of(number: u32, len: usize) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(4 + len, b'v');
    value
}

/// Waits until the keeper has nothing left to merge.
fn let_merge(db: &Db) {
    let mut freed = db.stats().tree_pages_freed;
    loop {
        sleep_ns(2_500_000_000);
        let now = db.stats().tree_pages_freed;
        if now == freed {
            return;
        }
        freed = now;
    }
}

fn rows_of(tree: &Tree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    tree.scan(..).collect::<Result<_, _>>().expect("read")
}

#[test]
fn tree_without_rows_shrinks_to_its_root_and_frees_its_slots() {
    for store in [PageStoreKind::CopyOnWrite, PageStoreKind::InPlace] {
        let ((), _) = run(1, || {
            let disk = SimulatedDisk::new();
            let db = open(&disk, options(store));
            let tree = db.create_tree("t").expect("created");
            db.checkpoint().expect("done");
            let mut rng = Rng::seed_from_u64(5);
            for round in 0..3 {
                let mut model = BTreeMap::new();
                for number in shuffled(6000, &mut rng) {
                    let value = value_of(number, rng.random_range(0..200));
                    tree.put(key_of(number), &value).expect("written");
                    model.insert(key_of(number), value);
                }
                db.checkpoint().expect("done");
                let full = db.stats();
                for (turn, number) in shuffled(6000, &mut rng).into_iter().enumerate() {
                    assert!(tree.delete(key_of(number)).expect("deleted"));
                    model.remove(&key_of(number));
                    if turn % 64 == 0 {
                        // Lets the keeper run.
                        sleep_ns(1_000_000);
                    }
                    if turn % 1500 == 0 {
                        assert_eq!(rows_of(&tree), model, "round {round}");
                    }
                }
                let_merge(&db);
                db.checkpoint().expect("done");
                let empty = db.stats();
                assert!(empty.tree_pages_freed > full.tree_pages_freed + 100, "{empty:?}");
                let used = |stats: &millpond::metrics::Stats| stats.data_slots_total - stats.data_slots_free;
                // The root of the catalog, and that of the tree.
                assert_eq!(used(&empty) - empty.undo_pages, 2, "round {round}: {} were used", used(&full));
            }
            db.close().expect("closed");
            let report = sound(&disk);
            assert_eq!(report.entries, 1);
            assert!(report.pages < 8, "{report:?}");
        });
    }
}

/// Threads insert and delete keys of their own, and one thread scans in both directions. It sees each unchanged row
/// once, in order, whatever is split and merged meanwhile.
fn scan_while_trees_breathe(seed: u64, options: Options) -> (u64, SimulatedDisk, Contents) {
    const STEADY: u32 = 60;
    let ((freed, disk, found), _) = run(seed, || {
        let disk = SimulatedDisk::new();
        let db = open(&disk, options);
        let tree = db.create_tree("t").expect("created");
        let steady = |number: u32| [&(number * 1000).to_be_bytes()[..], b"s"].concat();
        (0..STEADY).for_each(|number| tree.put(steady(number), [7; 60]).expect("written"));
        let ended = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2u32)
            .map(|id| {
                let tree = tree.clone();
                spawn("writer", move || {
                    let mut rng = Rng::seed_from_u64(seed * 10 + u64::from(id));
                    for round in 0..3 {
                        let mut keys: Vec<u32> = (0..150).map(|_| rng.random_range(0..STEADY * 1000)).collect();
                        let own =
                            |key: &u32| [&key.to_be_bytes()[..], &[b'0' + u8::try_from(id).expect("small")]].concat();
                        keys.iter().for_each(|key| tree.put(own(key), [1; 400]).expect("written"));
                        keys.sort_unstable_by_key(|key| key.wrapping_mul(2_654_435_761 + round));
                        keys.dedup();
                        for (turn, key) in keys.iter().enumerate() {
                            tree.delete(own(key)).expect("deleted");
                            if turn % 20 == 0 {
                                sleep_ns(3_000_000);
                            }
                        }
                        sleep_ns(100_000_000);
                    }
                })
                .expect("a thread")
            })
            .collect();
        let reader = {
            let (tree, ended) = (tree.clone(), Arc::clone(&ended));
            spawn("reader", move || {
                let expected: Vec<Vec<u8>> = (0..STEADY).map(steady).collect();
                let mut turn = 0u32;
                while !ended.load(Ordering::Relaxed) {
                    let (scan, is_back) = (tree.scan(..), turn % 2 == 1);
                    let key = |row: millpond::Result<millpond::OwnedRow>| row.expect("read").0;
                    let mut keys: Vec<_> =
                        if is_back { scan.rev().map(key).collect() } else { scan.map(key).collect() };
                    if is_back {
                        keys.reverse();
                    }
                    assert!(keys.is_sorted(), "seed {seed}: a scan went back");
                    keys.retain(|key| key.ends_with(b"s"));
                    assert_eq!(keys, expected, "seed {seed}, turn {turn}");
                    let number = turn * 7 % STEADY;
                    let value = tree.get(steady(number)).expect("read");
                    assert_eq!(value.as_deref(), Some(&[7; 60][..]), "seed {seed}, row {number}");
                    turn += 1;
                    sleep_ns(2_000_000);
                }
            })
            .expect("a thread")
        };
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        ended.store(true, Ordering::Relaxed);
        reader.join().expect("no panic");
        let_merge(&db);
        let freed = db.stats().tree_pages_freed;
        let found = contents(&db).expect("read");
        db.close().expect("closed");
        (freed, disk, found)
    });
    (freed, disk, found)
}

#[test]
fn scans_and_reads_find_every_row_beside_splits_and_merges() {
    let mut freed = 0;
    for seed in 0..crate::crash_matrix::seeds(30, 600) {
        let (now, disk, found) = scan_while_trees_breathe(seed, options(PageStoreKind::CopyOnWrite));
        freed += now;
        assert_eq!(recover(&disk).expect("sound"), found, "seed {seed}");
    }
    assert!(freed > 500, "only {freed} pages were given back");
}

/// The same in a pool of a few frames: threads miss freed pages, and read them in vain.
#[test]
fn readers_that_miss_pages_given_back_find_their_rows() {
    let mut freed = 0;
    for seed in 0..crate::crash_matrix::seeds(20, 400) {
        let small = options(PageStoreKind::CopyOnWrite).buffer_pool_size(ByteSize::kib(128));
        let (now, disk, found) = scan_while_trees_breathe(seed, small);
        freed += now;
        assert_eq!(recover(&disk).expect("sound"), found, "seed {seed}");
    }
    assert!(freed > 200, "only {freed} pages were given back");
}
