//! Batches that read their missing leaves together, beside other threads that want the same frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millpond::metrics::WaitClass;
use millpond::simulation::{ServiceTime, SimulatedDisk, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Tree, WriteBatch};

use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{SMALL, open, reopen_options};

/// Writes these rows in one batch.
fn put_all(db: &Db, tree: &Tree, rows: impl IntoIterator<Item = u32>) {
    let mut batch = WriteBatch::new();
    for row in rows {
        batch.put(tree, scattered(row), [1; 900]).durability(Durability::None);
    }
    db.write(batch).expect("written");
}

/// Three clients write batches over many leaves, few of which are in memory. Each batch reads its leaves together, and
/// no batch enters the lane to go on alone.
#[test]
fn batches_read_the_leaves_that_they_miss_together() {
    let options = SMALL.options().buffer_pool_size(ByteSize::mib(4)).redo_capacity(ByteSize::mib(64));
    let rows = 6_000u32;
    let disk = SimulatedDisk::with_image(scattered_rows(rows, options), ServiceTime::default());
    run(8, || {
        let db = open(&disk, reopen_options().buffer_pool_size(ByteSize::mib(4)));
        let tree = db.open_tree("t").expect("there");
        let clients: Vec<_> = (0..3u32)
            .map(|client| {
                let (db, tree) = (db.clone(), tree.clone());
                let write = move || {
                    for round in 0..10 {
                        put_all(&db, &tree, (0..32).map(|row| (client + 3 * round + 30 * row) * 61 % rows));
                    }
                };
                spawn("client", write).expect("a thread")
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        let waits = |class| db.waits().iter().filter(|wait| wait.class == class).map(|wait| wait.count).sum::<u64>();
        let (reads, waits, lane) = (db.stats().data_page_reads, waits(WaitClass::PageRead), waits(WaitClass::Lane));
        assert!(reads > 600, "{reads} pages were missed");
        assert!(waits < reads / 4, "{waits} waits for {reads} pages");
        assert_eq!(lane, 0, "an operation went on alone");
        db.close().expect("closed");
    });
}

/// The pool loses most of its frames while a batch reads its leaves: the batch goes on with fewer.
#[test]
fn a_pool_that_is_made_small_while_a_batch_gathers_serves_it() {
    let options = SMALL.options().buffer_pool_size(ByteSize::mib(8)).redo_capacity(ByteSize::mib(64));
    let rows = 6_000u32;
    let slow_reads = ServiceTime { read_ns: 60_000_000, write_ns: 100_000, sync_ns: 1_000_000 };
    let disk = SimulatedDisk::with_image(scattered_rows(rows, options), slow_reads);
    run(8, || {
        let db = open(&disk, reopen_options().buffer_pool_size(ByteSize::mib(8)));
        let tree = db.open_tree("t").expect("there");
        assert!(tree.get(scattered(1)).expect("read").is_some());
        let before = db.stats().data_page_reads;
        let written = Arc::new(AtomicBool::new(false));
        let client = {
            let (db, tree, written) = (db.clone(), tree.clone(), Arc::clone(&written));
            let write = move || {
                put_all(&db, &tree, (0..110).map(|row| row * 53 % rows));
                written.store(true, Ordering::SeqCst);
            };
            spawn("client", write).expect("a thread")
        };
        // The batch is reading its second lot of leaves.
        while db.stats().data_page_reads < before + 34 {
            sleep_ns(1_000_000);
        }
        db.set_buffer_pool_size(ByteSize::kib(4 * 32)).expect("changed");
        sleep_ns(60_000_000_000);
        assert!(written.load(Ordering::SeqCst), "the batch hangs: {:?}", db.waits());
        client.join().expect("no panic");
        db.close().expect("closed");
    });
}

/// Purge needs pages and the turn of threads that drop trees. Those threads need pages, too, and batches want all
/// places there are. There is no circular wait.
#[test]
fn trees_are_dropped_beside_purge_and_batches_in_a_tiny_pool() {
    let rows = 4_000u32;
    let trees = 30;
    let disk = SimulatedDisk::new();
    run(4, || {
        let db = open(&disk, SMALL.options().redo_capacity(ByteSize::mib(8)));
        for tree in 0..trees {
            db.create_tree(&format!("x{tree}")).expect("created");
        }
        let tree = db.create_tree("t").expect("created");
        for row in 0..rows {
            put_loosely(&db, &tree, &scattered(row), &[0; 900]);
        }
        db.close().expect("closed");
    });
    let time = ServiceTime { read_ns: 500_000, write_ns: 500_000, sync_ns: 1_000_000 };
    for seed in 0..3 {
        let disk = SimulatedDisk::with_image(disk.image(), time);
        run(seed, || {
            let db = open(&disk, reopen_options());
            let tree = db.open_tree("t").expect("there");
            let (stop, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
            let mut clients = Vec::new();
            for client in 0..4u32 {
                let (db, tree, stop) = (db.clone(), tree.clone(), Arc::clone(&stop));
                let write = move || {
                    let mut turn = 0u32;
                    while !stop.load(Ordering::Relaxed) {
                        turn += 1;
                        let row = |row: u32| (client * 977 + turn * 13 + row * 1009) * 61 % (rows / 2);
                        put_all(&db, &tree, (0..4).map(row));
                    }
                };
                clients.push(spawn("client", write).expect("a thread"));
            }
            let (deleter, all, ended) = (db.clone(), tree.clone(), Arc::clone(&stop));
            let delete = move || {
                for row in (rows / 2..rows).take_while(|_| !ended.load(Ordering::Relaxed)) {
                    let mut batch = WriteBatch::new();
                    batch.delete(&all, scattered(row)).durability(Durability::None);
                    deleter.write(batch).expect("deleted");
                }
            };
            clients.push(spawn("deleter", delete).expect("a thread"));
            let (dropper, count) = (db.clone(), Arc::clone(&dropped));
            let drop_all = move || {
                for tree in 0..trees {
                    sleep_ns(40_000_000);
                    dropper.drop_tree(&format!("x{tree}")).expect("dropped");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            clients.push(spawn("dropper", drop_all).expect("a thread"));
            for _ in 0..300 {
                if dropped.load(Ordering::Relaxed) == trees {
                    break;
                }
                sleep_ns(1_000_000_000);
            }
            assert_eq!(dropped.load(Ordering::Relaxed), trees, "seed {seed}: a thread waits for ever");
            stop.store(true, Ordering::Relaxed);
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
            db.close().expect("closed");
        });
    }
}
