//! Unit tests of the running log: credits, group commit, epochs, and the move to another ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::dirty_counts::DirtyCounts;
use super::files::{Geometry, Ring};
use super::fixture_tests::{NONCE, OWNER, START, Setup, append, append_durably};
use super::group::{GROUP_FRAME_LEN, GroupKind};
use super::log::{Log, MAP_RECORD_MAX};
use super::scan::LogScan;
use crate::base::aligned::{BLOCK_U64, round_up, to_u64};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::simulation::{SimulatedDisk, Thread, run, sleep_ns, spawn};

const MS: u64 = 1_000_000;

/// Starts a thread that reserves room for a group of `payload` bytes. Returns the time when it had it.
fn waiter(log: &Arc<Log>, payload: usize) -> Thread<u64> {
    let log = Arc::clone(log);
    let work = move || {
        let credit = log.reserve(payload, 0).expect("room");
        let got_ns = clock::now_ns();
        drop(credit);
        got_ns
    };
    spawn("waiter", work).expect("a thread")
}

fn wall(log: &Log) -> Lsn {
    let state = log.state.lock();
    state.files.wall(state.checkpoint)
}

fn syncs(log: &Log) -> u64 {
    log.counters.syncs.load(Ordering::Relaxed)
}

#[test]
fn credit_has_room_for_the_group_and_each_pages_map_record() {
    let log = Setup::default().make(&SimulatedDisk::new());
    for pages in [0, 1, 10] {
        let credit = log.reserve(100, pages).expect("room");
        assert!(credit.bytes >= to_u64(100 + GROUP_FRAME_LEN) + to_u64(pages) * MAP_RECORD_MAX, "{pages} pages");
    }
}

/// REDO-6
#[test]
fn writers_fill_the_log_up_to_its_capacity_and_no_further() {
    let log = Setup::default().make(&SimulatedDisk::new());
    let mut end = START;
    while let Some(credit) = log.try_reserve(1000, 0).expect("no failure") {
        end = log.append(credit, GroupKind::Pages, &[1; 1000], |_| ()).expect("appended");
        log.flush_wait(end).expect("flushed");
        assert!(end.since(START) <= log.capacity(), "LSN {end}: the reserve is cleaning's");
    }
    assert!(end.since(START) + to_u64(1000 + GROUP_FRAME_LEN) > log.capacity(), "LSN {end}: not full");
}

/// REDO-6
#[test]
fn cleaning_fills_the_reserve_except_the_band_of_epochs() {
    let epochs = 300;
    let log = Setup { epochs, ..Setup::default() }.make(&SimulatedDisk::new());
    let mut end = START;
    let error = loop {
        match log.reserve_for_cleaning(1000) {
            Ok(credit) => end = log.append(credit, GroupKind::Map, &[1; 1000], |_| ()).expect("appended"),
            Err(error) => break error,
        }
        assert!(end.plus(epochs) <= wall(&log), "LSN {end}: the band is for epoch groups");
    };
    assert!(matches!(&error, Error::Bug(why) if why.contains("REDO-6")), "{error}");
    assert!(end.since(START) > log.capacity(), "LSN {end}: the reserve is not used");
    // Twelve groups of 25 bytes.
    (0..12).for_each(|nonce| log.begin_epoch(nonce).expect("the band has room"));
    assert!(log.positions().next <= wall(&log), "the end is behind the wall");
}

#[test]
fn epoch_groups_count_from_the_checkpoint_on() {
    let log = Setup::default().make(&SimulatedDisk::new());
    let bytes = || log.state.lock().epoch_bytes();
    assert_eq!(bytes(), 0);
    log.begin_epoch(8).expect("begun");
    let first = log.positions().next;
    assert_eq!((bytes(), log.nonce_at(START), log.nonce_at(first)), (first.since(START), NONCE, 8));
    log.begin_epoch(9).expect("begun");
    let second = log.positions().next;
    assert_eq!(bytes(), second.since(START));
    log.set_checkpoint(first);
    assert_eq!((bytes(), log.nonce_at(first)), (second.since(first), 8));
    log.set_checkpoint(second);
    assert_eq!((bytes(), log.nonce_at(second)), (0, 9));
}

/// Only the credits of other writers make the buffer short: there is no log to write.
#[test]
fn writer_that_waits_for_other_credits_asks_for_no_sync() {
    run(1, || {
        let log = Setup::default().make(&SimulatedDisk::new());
        let held = log.reserve(10_000, 0).expect("room");
        let waiter = waiter(&log, 10_000);
        sleep_ns(5 * MS);
        drop(held);
        assert!(waiter.join().expect("no panic") >= 5 * MS, "it did not wait");
        assert_eq!(syncs(&log), 0);
    });
}

/// A writer reserves for the longest group that it may write. What its group does not need goes to a waiter at once.
#[test]
fn append_gives_what_its_group_does_not_need_to_a_waiter() {
    run(4, || {
        let log = Setup::default().make(&SimulatedDisk::new());
        append_durably(&log, 1000);
        let (held, other) = (log.reserve(8_000, 0).expect("room"), log.reserve(4_000, 0).expect("room"));
        let waiter = waiter(&log, 5_000);
        sleep_ns(5 * MS);
        let appended_ns = clock::now_ns();
        log.append(held, GroupKind::Pages, &[1; 100], |_| ()).expect("appended");
        sleep_ns(5 * MS);
        drop(other);
        let got_ns = waiter.join().expect("no panic");
        assert!((appended_ns..appended_ns + 5 * MS).contains(&got_ns), "from {appended_ns} to {got_ns} ns");
    });
}

#[test]
fn a_writer_that_finds_the_log_full_rings_for_the_keeper() {
    run(2, || {
        let log = Setup::default().make(&SimulatedDisk::new());
        while log.try_reserve(1000, 0).expect("no failure").is_some() {
            assert!(append_durably(&log, 1000) <= wall(&log));
        }
        let waiter = waiter(&log, 1000);
        let before_ns = clock::now_ns();
        log.bell.wait_until(before_ns + 1000 * MS);
        let rung_ns = clock::now_ns();
        log.set_checkpoint(log.positions().next);
        waiter.join().expect("no panic");
        assert!(rung_ns < before_ns + 1000 * MS, "the keeper is not told");
    });
}

/// REDO-13: the bound on log that is not durable is the writers'.
#[test]
fn cleaning_waits_for_no_sync_when_writers_used_up_the_unsynced() {
    let setup = Setup { capacity: 256 << 10, ..Setup::default() };
    let buffer = setup.make(&SimulatedDisk::new()).buffer_bytes;
    let log = Setup { behind: 2 * buffer, ..setup }.make(&SimulatedDisk::new());
    while log.try_reserve(2000, 0).expect("no failure").is_some() {
        log.write_wait(append(&log, 2000)).expect("written");
    }
    let positions = log.positions();
    assert!(positions.next.since(positions.durable) > buffer, "the bound is not reached");
    drop(log.reserve_for_cleaning(1000).expect("room"));
    assert_eq!(syncs(&log), 0);
}

/// The buffer is less than half full, and no other thread leads: only `mp-log` makes room.
#[test]
fn the_thread_that_writes_for_others_makes_room_for_a_waiter() {
    run(3, || {
        let log = Setup::default().make(&SimulatedDisk::new());
        let ended = Arc::new(AtomicBool::new(false));
        let flusher = {
            let (log, ended) = (Arc::clone(&log), Arc::clone(&ended));
            spawn("mp-log", move || log.flush_for_others(|| ended.load(Ordering::Relaxed))).expect("a thread")
        };
        // So that the second group is not in the block in which the log begins: only whole blocks make room.
        append_durably(&log, 1000);
        let (held, appended) = (log.reserve(4000, 0).expect("room"), log.reserve(4000, 0).expect("room"));
        let waiter = waiter(&log, 8000);
        sleep_ns(5 * MS);
        let appended_ns = clock::now_ns();
        log.append(appended, GroupKind::Pages, &[1; 4000], |_| ()).expect("appended");
        sleep_ns(5 * MS);
        drop(held);
        let got_ns = waiter.join().expect("no panic");
        ended.store(true, Ordering::Relaxed);
        log.flusher_bell.ring();
        flusher.join().expect("no panic").expect("nothing fails");
        assert!((appended_ns..appended_ns + 5 * MS).contains(&got_ns), "from {appended_ns} to {got_ns} ns");
    });
}

#[test]
fn a_flush_writes_what_is_new_and_syncs_what_was_written_before() {
    let (setup, disk) = (Setup::default(), SimulatedDisk::new());
    let log = setup.make(&disk);
    let done = || (log.counters.bytes_written.load(Ordering::Relaxed), syncs(&log));
    let written_upto = || {
        let files = setup.files(&disk);
        let mut scan = LogScan::new(&files, NONCE, START);
        while scan.next().expect("read").is_some() {}
        scan.position()
    };
    let end = append_durably(&log, 100);
    assert_eq!((written_upto(), done()), (end, (BLOCK_U64, 1)));
    let end = append(&log, 100);
    log.write_wait(end).expect("written");
    assert_eq!((written_upto(), done()), (end, (2 * BLOCK_U64, 1)));
    log.flush_wait(end).expect("flushed");
    assert_eq!(done(), (2 * BLOCK_U64, 2), "nothing is written again");
}

/// The log is on a later lap, so an LSN is much more than a length.
#[test]
fn a_flush_syncs_only_the_file_that_it_wrote() {
    let disk = SimulatedDisk::new();
    let log = Setup { at: Lsn((1 << 20) + BLOCK_U64), ..Setup::default() }.make(&disk);
    append(&log, 100);
    let before = disk.calls();
    log.flush_all().expect("flushed");
    assert_eq!(disk.calls() - before, 2, "a write and a sync");
}

#[test]
fn smallest_capacity_has_room_for_buffer_and_reserve() {
    for (capacity, reserve) in [(64 << 10, 8 << 10), (1 << 20, 16 << 10), (1 << 20, 256 << 10)] {
        let log = Setup { capacity, reserve, ..Setup::default() }.make(&SimulatedDisk::new());
        let room = log.smallest_capacity().saturating_sub(2 * BLOCK_U64 + reserve);
        assert!(room >= log.buffer_bytes, "{room} bytes of {capacity} with a reserve of {reserve}");
        assert!(log.smallest_capacity() <= capacity, "the log's own capacity is possible");
    }
}

#[test]
fn the_memory_budget_has_the_buffers_and_the_counters() {
    let log = Setup { capacity: 1 << 20, ..Setup::default() }.make(&SimulatedDisk::new());
    assert_eq!(log.memory_budget(), 2 * log.buffer_bytes + DirtyCounts::memory_for(log.capacity()));
}

#[test]
fn second_ring_begins_behind_what_is_granted_with_room_left() {
    let disk = SimulatedDisk::new();
    let log = Setup { capacity: 1 << 20, ..Setup::default() }.make(&disk);
    append_durably(&log, 1000);
    let held = log.reserve(5000, 0).expect("room");
    let granted = log.positions().next.plus(held.bytes);
    let wall = wall(&log);
    let to = Geometry::of(1, 2 << 20);
    assert_eq!(log.geometry().1, None);
    log.add_ring(Ring::create(&disk, OWNER, to).expect("made")).expect("added");
    let switch = log.geometry().1.expect("two rings");
    assert_eq!((switch.to, switch.at.0), (to, round_up(switch.at.0)));
    assert!((granted..wall).contains(&switch.at), "{granted} <= {} < {wall}", switch.at);
    drop(log.try_reserve(5000, 0).expect("no failure").expect("room before a superblock names the ring"));
    drop(held);
}
