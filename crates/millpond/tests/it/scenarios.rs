//! Rare situations, each provoked on purpose.

use std::sync::Arc;

use millpond::classic::EmptyFreeListAlgorithm;
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Options, PageStoreKind, Tree, WriteBatch};

use crate::crash_matrix::{modes, stride};
use crate::support::{
    IN_PLACE, SLOW, SMALL, Shape, disk_of, open, recover, recover_shaped, reopen_options, small_options,
};

/// Writes without waiting for durability.
fn put_loosely(db: &Db, tree: &Tree, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let mut batch = WriteBatch::new();
    batch.put(tree, key, value).durability(Durability::None);
    db.write(batch).map(drop)
}

/// A closed database with tree `t` of `rows` rows.
fn with_rows(shape: Shape, rows: u32, len: usize) -> Image {
    let disk = SimulatedDisk::new();
    // Under the scheduler, as everything that follows: the keeper's placement of pages decides what is redone later.
    let ((), _) = run(1, || {
        let db = open(&disk, shape.options());
        let tree = db.create_tree("t").expect("created");
        for row in 0..rows {
            put_loosely(&db, &tree, &row.to_be_bytes(), &vec![0; len]).expect("written");
        }
        db.close().expect("closed");
    });
    disk.image()
}

/// A page that is dirty at every moment must not hold the checkpoint at its first change. The write under way holds the
/// changes before its copy, the frame those after it.
#[test]
fn page_dirtied_for_ten_laps_does_not_hold_the_checkpoint() {
    for store in [PageStoreKind::CopyOnWrite, PageStoreKind::InPlace] {
        let image = with_rows(Shape { store, ..SMALL }, 4, 100);
        let disk = SimulatedDisk::with_image(image, SLOW);
        let (laps, _) = run(5, || {
            let db = open(&disk, reopen_options());
            let threads: Vec<_> = (0..3u8)
                .map(|client| {
                    let (db, tree) = (db.clone(), db.open_tree("t").expect("there"));
                    spawn("client", move || {
                        for turn in 0..2200u16 {
                            put_loosely(&db, &tree, &[0, 0, 0, client], &[turn.to_le_bytes()[0]; 300])
                                .expect("written");
                            // A lap in some 600 ms. At 400 ms the wall is sometimes met even without such a page: an
                            // image, its sync and the checkpoint's sync run in sequence on such a disk.
                            sleep_ns(3_000_000);
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            let began = db.stats();
            // The checkpoint moves while the page is dirtied, not only when the log's wall stops the writers.
            let mut oldest = 0;
            while db.stats().log_lsn_current < began.log_lsn_current + 8 * began.log_capacity {
                oldest = oldest.max(db.stats().log_checkpoint_age);
                sleep_ns(20_000_000);
            }
            assert!(oldest < began.log_capacity * 9 / 10, "{store:?}: the log reached {oldest} bytes");
            for thread in threads {
                thread.join().expect("no panic");
            }
            let ended = db.stats();
            db.close().expect("closed");
            (ended.log_lsn_last_checkpoint - began.log_lsn_last_checkpoint) / ended.log_capacity
        });
        assert!(laps >= 9, "{store:?}: the checkpoint moved by {laps} laps only");
        assert_eq!(recover(&disk).expect("sound")["t"][&[0, 0, 0, 2][..]][0], 2199u16.to_le_bytes()[0]);
    }
}

/// Fills the log of a database of `rows` rows to the wall, on a disk that takes no page, and crashes it there.
fn crash_at_the_wall(image: Image, rows: u32, options: Options, seed: u64) -> Image {
    let disk = SimulatedDisk::with_image(image, SLOW);
    let (boundary, _) = run(seed, || {
        let db = open(&disk, options);
        // From here on the cleaner stands still: its first write to the data file takes hours.
        disk.slow_down("data.mpd", 3_600_000_000_000);
        let tree = db.open_tree("t").expect("there");
        let (writer, other) = (db.clone(), tree.clone());
        let thread = spawn("writer", move || {
            for turn in 0..100_000u32 {
                let key = (turn % rows).to_be_bytes();
                // Small and durable writes at the end, so that the log has only the reserve left.
                let stats = writer.stats();
                let small = stats.log_checkpoint_age + 8192 > stats.log_capacity;
                let value = turn.to_le_bytes().repeat(if small { 1 } else { 150 });
                let done = if small { other.put(key, &value) } else { put_loosely(&writer, &other, &key, &value) };
                if done.is_err() {
                    return;
                }
            }
        })
        .expect("a thread");
        // Until the log is full, and a writer waits for it.
        while db.stats().log_checkpoint_age + 512 < db.stats().log_capacity {
            sleep_ns(50_000_000);
        }
        sleep_ns(1_000_000_000);
        let boundary = disk.boundaries();
        // The crash: nothing after this boundary counts. The run itself must end, too.
        disk.slow_down("data.mpd", 0);
        disk.halt();
        thread.join().expect("no panic");
        drop(db);
        boundary
    });
    disk.history().crash_image(boundary, Unsynced::All)
}

#[test]
fn log_at_the_wall_without_a_cleaner_is_drained_twice() {
    let mut image = with_rows(SMALL, 25, 600);
    for round in 0..2 {
        let disk = disk_of(crash_at_the_wall(image, 25, reopen_options(), 20 + round));
        let (age, _) = run(30 + round, || {
            let db = open(&disk, reopen_options());
            let full = db.stats().open_redo_bytes;
            assert!(full > db.stats().log_capacity / 2, "the log was full: {full}");
            // Every waiter makes progress: rows are written, and the checkpoint comes.
            let tree = db.open_tree("t").expect("there");
            for key in 0..25u32 {
                tree.put(key.to_be_bytes(), [9; 600]).expect("written");
            }
            db.checkpoint().expect("done");
            let age = db.stats().log_checkpoint_age;
            db.close().expect("closed");
            age
        });
        assert!(age < 4096, "drained to {age} bytes");
        image = disk.image();
        assert_eq!(recover(&disk).expect("sound")["t"].len(), 25);
    }
}

/// The log is at its wall, the pages to redo do not fit the pool, and the device is slow. The machine goes down again
/// and again during recovery. Each epoch, and each page cleaned for its frame, takes room in the log, and there must be
/// enough.
#[test]
fn recovery_from_a_log_at_its_wall_may_be_cut_short_often() {
    let large = || reopen_options().buffer_pool_size(ByteSize::mib(1));
    let rows = 500;
    let crashed = crash_at_the_wall(with_rows(SMALL, rows, 600), rows, large(), 70);
    let wanted = recover(&disk_of(crashed.clone())).expect("sound");
    assert_eq!(wanted["t"].len(), 500);
    let redone = run(1, || {
        let db = open(&disk_of(crashed.clone()), reopen_options());
        let pages = db.stats().open_redo_pages;
        db.close().expect("closed");
        pages
    });
    assert!(redone.0 > 40, "{} pages are to be redone", redone.0);
    let mut unfinished = 0;
    for first in 0..4u64 {
        let mut image = crashed.clone();
        for crash in 0..40u64 {
            let disk = SimulatedDisk::with_image(image, SLOW);
            disk.slow_down("data.mpd", 40_000_000);
            let (other, after_ns) = (disk.clone(), 20_000_000 + (first * 16 + crash) * 6_000_000);
            let (crash_image, _) = run(crash, || {
                let opening = spawn("opening", move || Db::open_on(Arc::new(other), reopen_options()).map(drop))
                    .expect("a thread");
                sleep_ns(after_ns);
                let image = disk.crash_now(Unsynced::Subset(crash));
                disk.halt();
                unfinished += u32::from(opening.join().expect("no panic").is_err());
                image
            });
            image = crash_image;
        }
        assert_eq!(recover(&disk_of(image)).expect("sound"), wanted, "sequence {first}");
    }
    assert!(unfinished > 40, "{unfinished} were cut short");
}

/// Two thousand rows in some 600 pages, changed since the last checkpoint.
fn much_to_redo(shape: Shape) -> Image {
    let options = || shape.options().redo_capacity(ByteSize::mib(8));
    // In virtual time, in which writes take no time: the keeper has not cleaned the pages.
    run(90, || {
        let disk = SimulatedDisk::new();
        let db = open(&disk, options().buffer_pool_size(ByteSize::mib(8)));
        let tree = db.create_tree("t").expect("created");
        for round in 0..2 {
            for row in 0..2000u32 {
                let key = row.wrapping_mul(2_654_435_761).to_be_bytes();
                put_loosely(&db, &tree, &key, &[round; 900]).expect("written");
            }
            if round == 0 {
                db.checkpoint().expect("done");
            }
        }
        tree.put(b"last", b"1").expect("written");
        let image = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        image
    })
    .0
}

/// The pages to redo do not fit the pool, and the changes of each batch are spread over the log. A page is cleaned for
/// its frame only after its redo. Else it would be dirty again, and take the room of another map record.
#[test]
fn recovery_in_a_small_pool_cleans_each_page_once() {
    let image = much_to_redo(SMALL);
    let disk = SimulatedDisk::with_image(image, SLOW);
    let (stats, _) = run(91, || {
        let db = open(&disk, reopen_options());
        let stats = db.stats();
        db.close().expect("closed");
        stats
    });
    let (redone, written) = (stats.open_redo_pages, stats.data_page_writes);
    assert!(redone > 400 && written > redone / 2 && written <= redone, "{redone} redone, {written} written");
}

/// More pages of one pool instance than it has frames are redone together.
#[test]
fn recovery_in_a_small_pool_of_several_parts_ends() {
    let image = much_to_redo(IN_PLACE);
    for empty in [EmptyFreeListAlgorithm::Legacy, EmptyFreeListAlgorithm::Backoff] {
        let disk = SimulatedDisk::with_image(image.clone(), ServiceTime::default());
        let shape = Shape { empty, instances: 2, frames: 64, ..IN_PLACE };
        let (redone, _) = run(91, || {
            let db = open(&disk, shape.reopen_options());
            let redone = db.stats().open_redo_pages;
            db.close().expect("closed");
            redone
        });
        assert!(redone > 400, "{redone} pages redone");
        assert_eq!(recover_shaped(&disk, shape).expect("sound")["t"].len(), 2001);
    }
}

/// Recovery is cut short right after its epoch group, so often that these groups take more bytes than cleaning has in
/// the reserve. They have a band of their own, and take nothing from the map records.
#[test]
fn epochs_of_many_crashes_leave_cleaning_its_room() {
    let mut image = crash_at_the_wall(with_rows(SMALL, 25, 600), 25, reopen_options(), 90);
    let log = |image: &Image| -> Vec<Vec<u8>> {
        image.iter().filter(|(name, _)| name.starts_with("redo")).map(|(_, bytes)| bytes.clone()).collect()
    };
    let mut calls = 0;
    for _ in 0..600 {
        let before = log(&image);
        // A log of a few more blocks takes a few more calls up to the epoch.
        calls = (calls..)
            .find(|&calls| {
                let disk = disk_of(image.clone());
                disk.halt_at(calls);
                let opened = Db::open_on(Arc::new(disk.clone()), reopen_options());
                assert!(opened.is_err(), "it does not come to its end");
                let crashed = disk.crash_now(Unsynced::All);
                let has_epoch = log(&crashed) != before;
                if has_epoch {
                    image = crashed;
                }
                has_epoch
            })
            .expect("an epoch is written");
    }
    assert_eq!(recover(&disk_of(image)).expect("sound")["t"].len(), 25);
}

/// Every page is dirty, and the file system is full: the room charged for each page must be enough to write it.
#[test]
fn all_pages_dirty_on_a_full_disk_are_written() {
    for store in [PageStoreKind::CopyOnWrite, PageStoreKind::InPlace] {
        let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::mib(8)).page_store(store);
        let disk = SimulatedDisk::new();
        // In virtual time, in which writes take no time: the keeper comes when the test asks for it.
        run(80, || {
            let db = open(&disk, options.redo_capacity(ByteSize::mib(16)));
            let tree = db.create_tree("t").expect("created");
            for row in 0..3000u32 {
                put_loosely(&db, &tree, &row.to_be_bytes(), &[1; 900]).expect("written");
            }
            db.checkpoint().expect("done");
            let used: usize = disk.image().values().map(Vec::len).sum();
            disk.limit_space(Some(u64::try_from(used).expect("small")));
            for round in 2..5u8 {
                for row in 0..3000u32 {
                    let done = put_loosely(&db, &tree, &row.to_be_bytes(), &[round; 900]);
                    done.expect("a rewrite needs no new page");
                }
                assert!(db.stats().buffer_pool_pages_dirty > 500, "{:?}", db.stats());
                db.checkpoint().expect("every page has a charged slot");
            }
            db.close().expect("closed");
        });
        let found = recover(&disk).expect("sound");
        assert!(found["t"].values().all(|value| value[0] == 4), "{store:?}");
    }
}

/// Trees of ten pages, each with a map page that is changed and written again and again, on a disk with slow syncs.
/// While a directory is on its way to the disk, a map page has a place in it and one in the durable directory, and gets
/// a third. The file system is full, so there are only the places that are charged, and those for
/// undo and rollback.
#[test]
fn map_pages_find_places_while_a_directory_is_on_its_way() {
    const TREES: u64 = 160;
    const CLIENTS: u64 = 4;
    let options = || small_options().buffer_pool_size(ByteSize::kib(256)).redo_capacity(ByteSize::mib(1));
    for seed in 0..3 {
        let (result, _) = run(seed, || {
            let disk = SimulatedDisk::new();
            let db = open(&disk, options());
            // Slots for all trees.
            db.bulk_load("slots", (0..11_000u32).map(|row| (row.to_be_bytes(), [0; 900]))).expect("loaded");
            db.drop_tree("slots").expect("dropped");
            (0..2).for_each(|_| db.checkpoint().expect("done"));
            for tree in 0..TREES {
                // Enough for the tree's needs, but not for growth of all files by half.
                let len: usize = disk.image().values().map(Vec::len).sum();
                disk.limit_space(Some(u64::try_from(len).expect("small") + (96 << 10)));
                let tree = db.create_tree(&tree.to_string()).expect("created");
                for row in 0..40u8 {
                    put_loosely(&db, &tree, &[b'k', row], &[0; 900]).expect("written");
                }
            }
            db.close().expect("closed");
            let slow = ServiceTime { sync_ns: 20_000_000, ..ServiceTime::default() };
            let disk = SimulatedDisk::with_image(disk.image(), slow);
            disk.limit_space(Some(0));
            let db = open(&disk, options().create(false));
            let trees: Vec<_> = (0..TREES).map(|tree| db.open_tree(&tree.to_string()).expect("there")).collect();
            let threads: Vec<_> = (0..CLIENTS)
                .map(|id| {
                    let (db, trees) = (db.clone(), trees.clone());
                    spawn("writer", move || {
                        for turn in 0..800u64 {
                            let tree = &trees[usize::try_from((turn * CLIENTS + id) % TREES).expect("small")];
                            put_loosely(&db, tree, &[b'k', 7], &turn.to_le_bytes().repeat(100))?;
                        }
                        Ok(())
                    })
                    .expect("a thread")
                })
                .collect();
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            assert!(db.stats().map_page_writes > TREES, "{}", db.stats().map_page_writes);
            // The close's error names the cause.
            db.close().and(results.into_iter().collect::<Result<(), _>>())
        });
        result.unwrap_or_else(|error| unreachable!("seed {seed}: {error}"));
    }
}

/// A tree is dropped while images of its pages are in flight, and wait for their sync. Its slots are freed, and a crash
/// at any moment finds the tree whole or gone.
#[test]
fn tree_dropped_with_images_in_flight_frees_its_slots() {
    let disk = SimulatedDisk::with_image(with_rows(SMALL, 40, 300), SLOW);
    let (free_before, _) = run(40, || {
        let db = open(&disk, reopen_options());
        let free_before = db.stats().data_slots_free;
        for round in 0..6u64 {
            let fresh = db.create_tree("fresh").expect("created");
            for row in 0..240u32 {
                put_loosely(&db, &fresh, &row.to_be_bytes(), &[1; 800]).expect("written");
            }
            // Somewhere between the first write of the tree's pages and the map group that names them.
            sleep_ns(4_000_000 * round);
            db.drop_tree("fresh").expect("dropped");
            let t = db.open_tree("t").expect("there");
            for row in 0..40u32 {
                put_loosely(&db, &t, &row.to_be_bytes(), &[2; 310]).expect("written");
            }
        }
        db.checkpoint().expect("done");
        db.checkpoint().expect("done");
        let stats = db.stats();
        db.close().expect("closed");
        assert!(stats.data_page_writes > stats.map_records + 20, "images were in flight: {stats:?}");
        assert!(stats.data_slots_free + 40 >= free_before, "{} of {free_before} are free", stats.data_slots_free);
        free_before
    });
    assert!(free_before > 100);
    let history = disk.history();
    for boundary in (0..=history.boundaries()).step_by(stride(8)) {
        for mode in modes(boundary) {
            let found = recover(&disk_of(history.crash_image(boundary, mode)));
            let found = found.unwrap_or_else(|problem| unreachable!("crash at {boundary} with {mode:?}: {problem}"));
            assert_eq!(found["t"].len(), 40);
        }
    }
}

/// The log's capacity changes while clients write; a crash at any moment of it loses nothing.
#[test]
fn a_crash_while_the_log_changes_its_capacity_loses_nothing() {
    let disk = SimulatedDisk::with_image(with_rows(SMALL, 40, 300), SLOW);
    let (acknowledged, _) = run(50, || {
        let db = open(&disk, reopen_options());
        let (client, other) = (db.clone(), disk.clone());
        let thread = spawn("client", move || {
            let tree = client.open_tree("t").expect("there");
            let mut acknowledged = Vec::new();
            // The earlier rows are turn 0.
            for turn in 1..250u32 {
                let key = (turn % 40).to_be_bytes();
                tree.put(key, turn.to_le_bytes().repeat(200)).expect("written");
                acknowledged.push((other.boundaries(), key, turn));
            }
            acknowledged
        })
        .expect("a thread");
        for kib in [1024, 512, 768] {
            db.set_redo_capacity(ByteSize::kib(kib)).expect("changed");
            assert!(db.stats().log_capacity <= kib * 1024);
        }
        assert!(matches!(db.set_redo_capacity(ByteSize::kib(100)), Err(Error::InvalidOptions(_))));
        let acknowledged = thread.join().expect("no panic");
        db.close().expect("closed");
        acknowledged
    });
    let history = disk.history();
    assert_eq!(recover(&disk_of(disk.image())).expect("sound")["t"].len(), 40);
    for boundary in (0..=history.boundaries()).step_by(stride(5)) {
        for mode in modes(boundary) {
            let found = recover(&disk_of(history.crash_image(boundary, mode)));
            let found = found.unwrap_or_else(|problem| unreachable!("crash at {boundary} with {mode:?}: {problem}"));
            for (_, key, turn) in acknowledged.iter().filter(|(at, _, _)| *at <= boundary) {
                let value = &found["t"][&key[..]];
                let there = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
                assert!(there >= *turn, "crash at {boundary}: turn {turn}, found {there}");
            }
        }
    }
}

/// Regression: a smaller pool and another log capacity are requested while the keeper is busy, so that it handles both
/// at once. The pages that leave the pool have a sync under way when the log's new ring is added. Images covered by
/// that sync were named behind the ring's begin, before a superblock named the ring.
#[test]
fn a_smaller_pool_and_another_log_may_be_asked_for_at_once() {
    // Whether a sync is under way then depends on how many pages leave.
    for rows in (1000..4000u32).step_by(400) {
        let disk = SimulatedDisk::new();
        let options = small_options().buffer_pool_size(ByteSize::mib(8)).redo_capacity(ByteSize::mib(8));
        run(u64::from(rows), || {
            let db = open(&disk, options);
            let tree = db.create_tree("t").expect("created");
            let put_all = |value| {
                for row in 0..rows {
                    put_loosely(&db, &tree, &row.to_be_bytes(), &[value; 900]).expect("written");
                }
            };
            put_all(1);
            // The keeper waits for this checkpoint's directory until both requests are made.
            for name in ["directory-0.mpd", "directory-1.mpd"] {
                disk.slow_down(name, 10_000_000_000);
            }
            let other = db.clone();
            let checkpoint = spawn("checkpoint", move || other.checkpoint().expect("done")).expect("a thread");
            sleep_ns(1_000_000_000);
            put_all(2);
            let other = db.clone();
            let pool =
                spawn("pool", move || other.set_buffer_pool_size(ByteSize::mib(1)).expect("set")).expect("a thread");
            sleep_ns(1_000_000);
            db.set_redo_capacity(ByteSize::mib(4)).expect("changed");
            pool.join().expect("no panic");
            checkpoint.join().expect("no panic");
            db.close().expect("closed");
        });
        let found = recover(&disk).expect("sound");
        let there = found["t"].values().filter(|value| value[0] == 2).count();
        assert_eq!((there, found["t"].len()), (usize::try_from(rows).expect("small"), there));
    }
}

/// A database that crashed with a large pool and a large log recovers in a small pool, and gets a small log.
#[test]
fn a_small_pool_and_a_small_log_after_a_large_one_recover() {
    let (image, _) = run(92, || {
        let disk = SimulatedDisk::new();
        let large = small_options().buffer_pool_size(ByteSize::mib(4)).redo_capacity(ByteSize::mib(4));
        let db = open(&disk, large);
        let tree = db.create_tree("t").expect("created");
        for row in 0..2000u32 {
            put_loosely(&db, &tree, &row.wrapping_mul(2_654_435_761).to_be_bytes(), &[3; 500]).expect("written");
        }
        tree.put(b"last", b"1").expect("written");
        let image = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        image
    });
    let disk = disk_of(image);
    let db = open(&disk, reopen_options().redo_capacity(ByteSize::kib(512)));
    assert!(db.stats().log_capacity < 512 << 10);
    db.close().expect("closed");
    assert_eq!(recover(&disk).expect("sound")["t"].len(), 2001);
}

/// A slot that cannot be written costs only the slot.
#[test]
fn a_page_write_that_fails_goes_to_another_slot() {
    let image = with_rows(SMALL, 200, 500);
    let (mut survived, mut stopped) = (0, 0);
    for call in 0..200 {
        let disk = disk_of(image.clone());
        let (outcome, _) = run(call, || {
            let db = open(&disk, reopen_options());
            let tree = db.open_tree("t").expect("there");
            for row in 0..60u32 {
                put_loosely(&db, &tree, &row.to_be_bytes(), &[7; 510]).expect("written");
            }
            disk.fail_at(disk.calls() + call, std::io::ErrorKind::Other);
            let checkpoint = db.checkpoint();
            let failures = db.stats().data_write_failures;
            let written = checkpoint.and_then(|()| tree.put(b"after", b"1"));
            drop(db);
            (failures, written)
        });
        disk.fail_at(u64::MAX, std::io::ErrorKind::Other);
        let rows = &recover(&disk).expect("sound")["t"];
        match outcome {
            (1.., written) => {
                survived += 1;
                written.expect("the page went elsewhere");
                assert!(rows.len() == 201 && (0..60u32).all(|row| rows[&row.to_be_bytes()[..]][0] == 7));
            }
            (0, Err(_)) => stopped += 1,
            (0, Ok(())) => {}
        }
    }
    assert!(survived >= 1 && stopped >= 4, "{survived} writes of pages failed, {stopped} other calls");
}

/// While pages wait for their redo, a checkpoint must not pass the log that they need.
#[test]
fn a_checkpoint_during_redo_does_not_pass_what_is_not_redone() {
    let disk = SimulatedDisk::with_image(with_rows(SMALL, 150, 500), ServiceTime::default());
    let (image, _) = run(60, || {
        let db = open(&disk, reopen_options());
        let tree = db.open_tree("t").expect("there");
        for row in 0..150u32 {
            put_loosely(&db, &tree, &row.to_be_bytes(), &[2; 500]).expect("written");
        }
        tree.put(b"last", b"1").expect("written");
        assert_eq!(db.stats().map_groups, 0, "nothing but the log has the changes");
        disk.crash_now(Unsynced::All)
    });
    // Reads so slow that the keeper's checkpoint tick comes while pages are read.
    let disk = SimulatedDisk::with_image(image, ServiceTime { read_ns: 400_000_000, ..SLOW });
    let ((), _) = run(61, || open(&disk, reopen_options()).close().expect("closed"));
    let history = disk.history();
    for boundary in 0..=history.boundaries() {
        for mode in [Unsynced::None, Unsynced::All] {
            let found = recover(&disk_of(history.crash_image(boundary, mode)));
            let rows =
                &found.unwrap_or_else(|problem| unreachable!("crash at {boundary} with {mode:?}: {problem}"))["t"];
            let old = rows.values().filter(|value| value.len() == 500 && value[0] != 2).count();
            assert_eq!((rows.len(), old), (151, 0), "crash at {boundary} with {mode:?}");
        }
    }
}
