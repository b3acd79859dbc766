//! The buffer pool under threads: few frames and many clients, one page that all want, pages that move while other
//! threads look for them.

use std::collections::BTreeMap;

use millpond::classic::{DirtyTracking, EmptyFreeListAlgorithm};
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, IoEngine, Options, PageStoreKind, Tree, WriteBatch};

use crate::support::{SMALL, Shape, WAYS_TO_FREE, open, recover, reopen_options, small_options};

/// A directory on the build's file system, which has O_DIRECT; the file system of temporary files may lack it.
fn real_directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

pub(crate) fn scattered(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

pub(crate) fn put_loosely(db: &Db, tree: &Tree, key: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.put(tree, key, value).durability(Durability::None);
    db.write(batch).expect("written");
}

/// A closed database with `rows` rows of 900 bytes in tree `t`.
pub(crate) fn scattered_rows(rows: u32, options: Options) -> Image {
    let disk = SimulatedDisk::new();
    run(4, || {
        let db = open(&disk, options);
        let tree = db.create_tree("t").expect("created");
        for row in 0..rows {
            put_loosely(&db, &tree, &scattered(row), &[0; 900]);
        }
        db.close().expect("closed");
    });
    disk.image()
}

/// 256 real threads on real files, with 1,024 frames. The data are eight times the pool, or twice with the classic ways
/// to free frames, which are slower. Reads, writes, splits and scans all make progress.
#[test]
fn a_thousand_frames_serve_256_threads() {
    for (tracking, empty, rows, turns) in [
        (DirtyTracking::Scan, EmptyFreeListAlgorithm::Handoff, 16_384u32, 8u32),
        (DirtyTracking::FlushList, EmptyFreeListAlgorithm::Legacy, 8_192, 8),
        (DirtyTracking::FlushList, EmptyFreeListAlgorithm::Backoff, 8_192, 8),
    ] {
        let dir = real_directory();
        let options = Options::new()
            .page_size(ByteSize::kib(4))
            .buffer_pool_size(ByteSize::mib(4))
            .redo_capacity(ByteSize::mib(16))
            .classic(|classic| classic.dirty_tracking(tracking).empty_free_list_algorithm(empty))
            .durability(Durability::Background(50));
        let db = Db::open(dir.path(), options).expect("opened");
        assert_eq!(db.stats().buffer_pool_pages_total, 1024);
        let tree = db.create_tree("t").expect("created");
        for first in (0..rows).step_by(64) {
            let mut batch = WriteBatch::new();
            for row in first..first + 64 {
                batch.put(&tree, scattered(row), [0; 900]);
            }
            db.write(batch).expect("written");
        }
        std::thread::scope(|scope| {
            for client in 0..256u32 {
                let tree = &tree;
                scope.spawn(move || {
                    let mut x = client.wrapping_mul(747_796_405) | 1;
                    for turn in 0..turns {
                        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let row = (x >> 8) % rows;
                        match turn % 8 {
                            0 => {
                                let from = scattered(row);
                                let found = tree.scan(&from[..]..).take(50).collect::<Result<Vec<_>, _>>();
                                assert!(found.expect("scanned").is_sorted());
                            }
                            1 => tree.put([&scattered(row)[..], &[7; 2]].concat(), [1; 900]).expect("written"),
                            2..5 => tree.put(scattered(row), [1; 900]).expect("written"),
                            _ => assert_eq!(tree.get(scattered(row)).expect("read").map(|v| v.len()), Some(900)),
                        }
                    }
                });
            }
        });
        db.close().expect("closed");
        let report = millpond::inspect::check(dir.path(), millpond::inspect::CheckOptions::default()).expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

/// All rows in one leaf: each increment happens exactly once under any interleaving, and readers see the values ascend.
#[test]
fn writers_and_readers_of_one_leaf_lose_no_change() {
    let number =
        |value: Option<Vec<u8>>| value.map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    for seed in 0..8 {
        let disk = SimulatedDisk::new();
        run(seed, || {
            let db = open(&disk, small_options());
            let tree = db.create_tree("t").expect("created");
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    let (db, tree) = (db.clone(), tree.clone());
                    spawn("writer", move || {
                        for _ in 0..20 {
                            loop {
                                let before = tree.get(b"n").expect("read");
                                let after = number(before.clone()) + 1;
                                let mut batch = WriteBatch::new();
                                batch.expect(&tree, b"n", before.as_deref()).put(&tree, b"n", after.to_le_bytes());
                                batch.durability(Durability::None);
                                match db.write(batch) {
                                    Ok(_) => break,
                                    Err(error) => assert!(matches!(error, millpond::Error::Conflict(_)), "{error}"),
                                }
                            }
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            let mut last = 0;
            for _ in 0..200 {
                let seen = number(tree.get(b"n").expect("read"));
                assert!(seen >= last, "{seen} after {last}");
                last = seen;
            }
            writers.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert_eq!(number(tree.get(b"n").expect("read")), 80, "seed {seed}");
            db.close().expect("closed");
        });
    }
}

/// Every scan sees the permanent rows once and in order, while pages split around it.
#[test]
fn scans_in_both_directions_see_every_row_while_pages_split() {
    for seed in 0..12 {
        let disk = SimulatedDisk::new();
        run(seed, || {
            let db = open(&disk, small_options().durability(Durability::None));
            let tree = db.create_tree("t").expect("created");
            let old: Vec<[u8; 4]> = (0..60u32).map(|row| (row * 1000).to_be_bytes()).collect();
            old.iter().for_each(|key| put_loosely(&db, &tree, key, &[1; 200]));
            let (other, splitting) = (db.clone(), tree.clone());
            let thread = spawn("splitter", move || {
                for row in 0..150u32 {
                    put_loosely(&other, &splitting, &(((row * 7919) % 60_000) | 1).to_be_bytes(), &[2; 300]);
                }
            })
            .expect("a thread");
            for turn in 0..12 {
                let forward = turn % 2 == 0;
                let key = |row: millpond::Result<millpond::OwnedRow>| row.expect("scanned").0;
                let rows = tree.scan(..);
                let mut keys: Vec<_> = if forward { rows.map(key).collect() } else { rows.rev().map(key).collect() };
                if !forward {
                    keys.reverse();
                }
                assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: in order, each once");
                let seen = old.iter().filter(|old| keys.iter().any(|key| old[..] == key[..])).count();
                assert_eq!(seen, old.len(), "seed {seed}, scan {turn}");
            }
            thread.join().expect("no panic");
            db.close().expect("closed");
        });
        recover(&disk).expect("sound");
    }
}

/// Many threads want one page that is not in memory: one reads, the others wait for that read.
#[test]
fn a_herd_reads_a_page_once_and_learns_of_a_failure_together() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    let tree = db.create_tree("t").expect("created");
    put_loosely(&db, &tree, b"k", b"v");
    db.close().expect("closed");
    let slow = || ServiceTime { read_ns: 5_000_000, ..ServiceTime::default() };
    for fails in [false, true] {
        let disk = SimulatedDisk::with_image(disk.image(), slow());
        let ((reads, answers), _) = run(3, || {
            // Enough frames that all threads are admitted.
            let db = open(&disk, reopen_options().buffer_pool_size(ByteSize::kib(512)));
            let tree = db.open_tree("t").expect("there");
            let before = (db.stats().data_page_reads, disk.calls());
            if fails {
                disk.fail_at(before.1, std::io::ErrorKind::Other);
            }
            let herd: Vec<_> = (0..6)
                .map(|_| {
                    let tree = tree.clone();
                    spawn("reader", move || tree.get(b"k").map_err(|error| error.to_string())).expect("a thread")
                })
                .collect();
            let answers: Vec<_> = herd.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            let reads = db.stats().data_page_reads - before.0;
            db.close().expect("closed");
            (reads, answers)
        });
        assert_eq!(reads, 1, "{answers:?}");
        assert!(answers.iter().all(|answer| answer.is_err() == fails), "{answers:?}");
        assert!(!fails || answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
}

/// Pages come and go while threads look for them by old hints: every row is found, wherever the pages are.
#[test]
fn hints_that_lead_to_other_pages_do_no_harm() {
    let stores = [PageStoreKind::CopyOnWrite, PageStoreKind::InPlace];
    for ((seed, way), store) in (1..).zip(WAYS_TO_FREE).zip(stores.into_iter().cycle()) {
        let disk = SimulatedDisk::new();
        run(seed, || {
            let shape = Shape { store, frames: if seed == 1 { SMALL.frames } else { 100 }, ..SMALL };
            let db = open(&disk, shape.options().durability(Durability::None).classic(way));
            let trees: Vec<Tree> = (0..3).map(|i| db.create_tree(&format!("t{i}")).expect("created")).collect();
            let clients: Vec<_> = (0..4u32)
                .map(|client| {
                    let (db, trees) = (db.clone(), trees.clone());
                    spawn("client", move || {
                        let mut mine = BTreeMap::new();
                        for turn in 0..150u32 {
                            let tree = &trees[(turn as usize + client as usize) % 3];
                            let key = scattered(client * 1000 + turn % 40);
                            match mine.get(&(tree.name().to_owned(), key)) {
                                Some(value) => assert_eq!(tree.get(key).expect("read").as_ref(), Some(value)),
                                None => assert_eq!(tree.get(key).expect("read"), None),
                            }
                            let value = vec![turn.to_le_bytes()[0]; 300 + turn as usize];
                            put_loosely(&db, tree, &key, &value);
                            mine.insert((tree.name().to_owned(), key), value);
                            if turn % 50 == 49 {
                                sleep_ns(30_000_000);
                            }
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            clients.into_iter().for_each(|thread| thread.join().expect("no panic"));
            db.close().expect("closed");
        });
    }
}

/// The pool shrinks and grows while clients work. Pages beyond its end are written, and nothing is lost.
#[test]
fn the_pool_changes_its_size_under_load() {
    for seed in 0..8 {
        let disk = SimulatedDisk::new();
        // The least that is allowed: 32 frames for each instance.
        let way = seed % 4;
        let least = [32, 32, 64, 96][way];
        run(seed as u64, || {
            let options = Shape { frames: least + 8, ..SMALL }.options().buffer_pool_size_max(ByteSize::kib(4 * 200));
            let db = open(&disk, options.durability(Durability::None).classic(WAYS_TO_FREE[way]));
            let tree = db.create_tree("t").expect("created");
            let clients: Vec<_> = (0..3u32)
                .map(|client| {
                    let (db, tree) = (db.clone(), tree.clone());
                    spawn("client", move || {
                        for turn in 0..250u32 {
                            let key = scattered(client * 1000 + turn % 100);
                            put_loosely(&db, &tree, &key, &[turn.to_le_bytes()[0]; 400]);
                            assert_eq!(tree.get(key).expect("read").map(|value| value.len()), Some(400));
                            sleep_ns(1_000_000);
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            for pages in [200u64, least, 150, least + 8, least + 1, 100] {
                db.set_buffer_pool_size(ByteSize::kib(4 * pages)).expect("changed");
                assert_eq!(db.stats().buffer_pool_pages_total, pages);
                sleep_ns(70_000_000);
            }
            for wrong in [least - 1, 201] {
                let error = db.set_buffer_pool_size(ByteSize::kib(4 * wrong)).expect_err("refused");
                assert!(error.to_string().contains("buffer_pool_size_max"), "{error}");
            }
            clients.into_iter().for_each(|thread| thread.join().expect("no panic"));
            db.set_buffer_pool_size(ByteSize::kib(4 * least)).expect("changed");
            sleep_ns(500_000_000);
            let stats = db.stats();
            assert_eq!(stats.buffer_pool_pages_leaving, 0, "{stats:?}");
            assert!(stats.buffer_pool_pages_free <= least, "{stats:?}");
            db.close().expect("closed");
        });
        assert_eq!(recover(&disk).expect("sound")["t"].len(), 300);
    }
}

/// A scan of much more than the pool passes through the small queue: pages that are used again and again stay.
#[test]
fn a_scan_does_not_drive_out_what_is_used() {
    let disk = SimulatedDisk::new();
    run(5, || {
        let options = small_options().buffer_pool_size(ByteSize::mib(1)).redo_capacity(ByteSize::mib(4));
        let db = open(&disk, options);
        let (hot, cold) = (db.create_tree("hot").expect("created"), db.create_tree("cold").expect("created"));
        for row in 0..60u32 {
            put_loosely(&db, &hot, &row.to_be_bytes(), &[1; 900]);
        }
        for row in 0..3000u32 {
            put_loosely(&db, &cold, &row.to_be_bytes(), &[1; 900]);
        }
        db.checkpoint().expect("done");
        for _ in 0..6 {
            for row in 0..60u32 {
                assert!(hot.get(row.to_be_bytes()).expect("read").is_some());
            }
        }
        assert_eq!(cold.scan(..).filter(Result::is_ok).count(), 3000);
        let before = db.stats().data_page_reads;
        for row in 0..60u32 {
            assert!(hot.get(row.to_be_bytes()).expect("read").is_some());
        }
        let again = db.stats().data_page_reads - before;
        assert!(again <= 2, "{again} pages in use had to be read again");
        db.close().expect("closed");
    });
}

/// A disk with slow syncs: frames dirtied during a sync are cleaned during it, and no thread waits for a frame behind a
/// data sync or a checkpoint.
#[test]
fn frames_come_free_while_a_sync_is_under_way() {
    for store in [PageStoreKind::CopyOnWrite, PageStoreKind::InPlace] {
        let options =
            SMALL.options().page_store(store).buffer_pool_size(ByteSize::mib(16)).redo_capacity(ByteSize::mib(64));
        let slow_syncs = ServiceTime { read_ns: 200_000, write_ns: 200_000, sync_ns: 100_000_000 };
        let image = scattered_rows(65_536, options);
        for schedule in 1..4 {
            let disk = SimulatedDisk::with_image(image.clone(), slow_syncs);
            let (waits, _) = run(schedule, || {
                let db = open(&disk, reopen_options().buffer_pool_size(ByteSize::mib(16)));
                let tree = db.open_tree("t").expect("there");
                for turn in 0..8000u32 {
                    put_loosely(&db, &tree, &scattered(turn * 17 % 65_536), &[1; 900]);
                    sleep_ns(2_000_000);
                }
                let waits = db.stats().buffer_pool_wait_free;
                db.close().expect("closed");
                waits
            });
            assert_eq!(waits, 0, "{store:?}, schedule {schedule}: frames were waited for");
        }
    }
}

/// A thread that wants a frame finds every page in use or in flight, and the sync is slow: the keeper sleeps until the
/// sync has ended. (A keeper that loops meanwhile is a livelock to the scheduler.)
#[test]
fn the_keeper_sleeps_while_all_that_could_leave_is_in_flight() {
    for trees in [110u32, 115, 119, 120] {
        run(1, || {
            let time = ServiceTime { read_ns: 60_000, write_ns: 40_000, sync_ns: 10_000_000 };
            let disk = SimulatedDisk::with_image(Image::new(), time);
            let options = small_options().buffer_pool_size(ByteSize::kib(256)).redo_capacity(ByteSize::mib(2));
            let db = open(&disk, options);
            let trees: Vec<_> = (0..trees).map(|tree| db.create_tree(&tree.to_string()).expect("created")).collect();
            for turn in 0..2000u32 {
                put_loosely(&db, &trees[turn as usize % trees.len()], b"k", &turn.to_le_bytes());
            }
            assert!(db.stats().buffer_pool_wait_free > 0, "frames were waited for");
            db.close().expect("closed");
        });
    }
}

/// The pool becomes much smaller, and all its pages are hot: a miss does not wait for the keeper's ticks, in which the
/// other pages leave.
#[test]
fn a_miss_in_a_pool_made_smaller_waits_for_no_tick() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let options = small_options().buffer_pool_size(ByteSize::mib(64)).redo_capacity(ByteSize::mib(64));
        let db = open(&disk, options.durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        let rows = 98_304u32;
        for first in (0..rows).step_by(32) {
            let mut batch = WriteBatch::new();
            for row in first..first + 32 {
                batch.put(&tree, row.to_be_bytes(), [1; 900]);
            }
            db.write(batch).expect("written");
        }
        db.checkpoint().expect("done");
        for row in (0..8).flat_map(|_| (rows / 2..rows).step_by(2)) {
            assert!(tree.get(row.to_be_bytes()).expect("read").is_some());
        }
        sleep_ns(2_000_000_000);
        db.set_buffer_pool_size(ByteSize::kib(4 * 32)).expect("changed");
        let mut worst = 0;
        for row in (0..rows / 4).step_by(64).take(40) {
            let began = now_ns();
            assert!(tree.get(row.to_be_bytes()).expect("read").is_some());
            worst = worst.max(now_ns() - began);
        }
        assert!(worst < 20_000_000, "a read took {worst} ns");
        db.close().expect("closed");
    });
}

/// Page writes are slow, and a burst wants twice as many frames as are kept free. The next victims were cleaned ahead
/// of need, and no thread waits.
#[test]
fn victims_are_clean_ahead_of_need() {
    let options = SMALL.options().buffer_pool_size(ByteSize::mib(8)).redo_capacity(ByteSize::mib(64));
    let rows = 32_768u32;
    let slow_writes = ServiceTime { read_ns: 10_000, write_ns: 20_000_000, sync_ns: 1_000_000 };
    let disk = SimulatedDisk::with_image(scattered_rows(rows, options), slow_writes);
    run(5, || {
        let db = open(&disk, reopen_options().buffer_pool_size(ByteSize::mib(8)));
        let tree = db.open_tree("t").expect("there");
        for row in 0..6000u32 {
            put_loosely(&db, &tree, &scattered(row * 17 % rows), &[1; 900]);
            sleep_ns(10_000_000);
        }
        sleep_ns(1_000_000_000);
        let before = db.stats();
        for row in 6000..6000 + 90u32 {
            assert!(tree.get(scattered(row * 17 % rows)).expect("read").is_some());
        }
        let after = db.stats();
        assert!(after.data_page_reads - before.data_page_reads > 80, "these were misses");
        let waits = after.buffer_pool_wait_free - before.buffer_pool_wait_free;
        assert_eq!(waits, 0, "with {} frames free", before.buffer_pool_pages_free);
        db.close().expect("closed");
    });
}

/// Rows of the scanned tree: four times the pool.
const SCANNED: u32 = 16_384;

fn scan_options(ahead: usize) -> Options {
    let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::mib(4));
    options.redo_capacity(ByteSize::mib(16)).read_ahead_pages(ahead)
}

fn fill_to_scan(db: &Db) {
    let tree = db.create_tree("t").expect("created");
    for first in (0..SCANNED).step_by(64) {
        let mut batch = WriteBatch::new();
        for row in first..first + 64 {
            batch.put(&tree, row.to_be_bytes(), [row.to_le_bytes()[0]; 900]);
        }
        db.write(batch).expect("written");
    }
}

/// Scans the tree forwards and backwards. Returns the pages read, and those of them read ahead.
fn scan_to_and_fro(db: &Db) -> (u64, u64) {
    let tree = db.open_tree("t").expect("there");
    let mut row = 0u32;
    for found in tree.scan(..) {
        let (k, v) = found.expect("scanned");
        assert_eq!((&k[..], &v[..]), (&row.to_be_bytes()[..], &[row.to_le_bytes()[0]; 900][..]));
        row += 1;
    }
    assert_eq!(row, SCANNED);
    for found in tree.scan(..).rev() {
        row -= 1;
        assert_eq!(found.expect("scanned").0, row.to_be_bytes());
    }
    assert_eq!(row, 0);
    let stats = db.stats();
    (stats.data_page_reads, stats.buffer_pool_read_ahead)
}

/// With or without read-ahead, by io_uring or threads, the rows are the same.
#[test]
fn scans_find_the_same_rows_read_ahead_or_not() {
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        let dir = real_directory();
        let open = |ahead| Db::open(dir.path(), scan_options(ahead).io_engine(engine)).expect("opened");
        let db = open(32);
        fill_to_scan(&db);
        db.close().expect("closed");
        for ahead in [0, 32] {
            let db = open(ahead);
            let (reads, together) = scan_to_and_fro(&db);
            assert!(reads > 6000, "{engine:?}, {ahead}: both scans came from the device: {reads}");
            assert!(ahead > 0 || together == 0, "{engine:?}: {together}");
            db.close().expect("closed");
        }
    }
}

/// Scans are read ahead, and no leaf is read twice in vain. (Read-ahead uses free frames: on a real machine their
/// number depends on when the keeper gets a CPU.)
#[test]
fn scans_read_ahead() {
    let disk = SimulatedDisk::new();
    run(6, || {
        let db = open(&disk, scan_options(32));
        fill_to_scan(&db);
        db.close().expect("closed");
    });
    let [alone, ahead] = [0, 32].map(|ahead| {
        let disk = SimulatedDisk::with_image(disk.image(), ServiceTime::default());
        let (counts, _) = run(7, || {
            let db = open(&disk, scan_options(ahead));
            let counts = scan_to_and_fro(&db);
            db.close().expect("closed");
            counts
        });
        counts
    });
    assert!(alone.1 == 0 && ahead.1 > 3000, "{alone:?} {ahead:?}");
    assert!(ahead.0 < alone.0 + alone.0 / 8, "leaves are read in vain: {alone:?} {ahead:?}");
}

/// An unreadable leaf ends the scan when the scan reaches it, not before.
#[test]
fn a_scan_gets_to_a_damaged_leaf_before_it_fails() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, SMALL.options().buffer_pool_size(ByteSize::mib(4)));
    let tree = db.create_tree("t").expect("created");
    for row in 0..2000u32 {
        put_loosely(&db, &tree, &row.to_be_bytes(), &[if row == 1500 { 8 } else { 7 }; 900]);
    }
    db.close().expect("closed");
    let mut image = disk.image();
    // Damages every image of the leaf with this value: which of them is the newest depends on when the keeper wrote it.
    let data = image.get_mut("data.mpd").expect("there");
    let leaf = data.chunks_mut(4096).filter(|page| page.windows(900).any(|bytes| bytes == [8; 900]));
    leaf.for_each(|page| page[2000] ^= 1);
    let disk = SimulatedDisk::with_image(image, ServiceTime::default());
    let db = open(&disk, reopen_options().buffer_pool_size(ByteSize::mib(4)));
    let tree = db.open_tree("t").expect("there");
    let mut scan = tree.scan(..);
    let seen = scan.by_ref().take_while(Result::is_ok).count();
    assert!((1490..=1500).contains(&seen), "{seen} rows before the damaged leaf");
    assert!(scan.next().is_none());
}
