//! Unit tests of the search for a log without a superblock.

use super::files::{Geometry, LogFiles, Ring, Switch, file_name};
use super::fixture_tests::{OWNER, START, Setup, append, append_durably, without};
use super::group::GROUP_FRAME_LEN;
use super::locate::{find_log, find_rings};
use super::log::Log;
use crate::base::aligned::{BLOCK_U64, round_up, to_u64, to_usize};
use crate::base::ids::Lsn;
use crate::simulation::SimulatedDisk;

/// Bytes of a whole group of 700 bytes are no divisor of a block: groups cross blocks and files everywhere.
#[test]
fn the_log_is_found_from_the_oldest_group_that_a_checkpoint_may_be_at() {
    let (setup, disk) = (Setup::default(), SimulatedDisk::new());
    let log = setup.make(&disk);
    let files = setup.files(&disk);
    let mut begins = vec![START];
    while begins.len() < 300 {
        let end = append_durably(&log, 700);
        log.set_checkpoint(end);
        // A checkpoint is at most one ring before the block behind the end, less the two blocks that stay free.
        let oldest = Lsn((round_up(end.0) + 2 * BLOCK_U64).saturating_sub(setup.capacity));
        let wanted = begins.iter().copied().find(|begin| *begin >= oldest).expect("a group");
        let found = find_log(&files).expect("found");
        assert_eq!((found.start.at, found.doubt), (wanted, None), "with the end at {end}");
        begins.push(end);
    }
}

/// Moves a log to a second ring. `ends_there`: a group ends where the second ring begins; else a group crosses over.
fn move_to_second(disk: &SimulatedDisk, log: &Log, ends_there: bool) -> Switch {
    append_durably(log, 1000);
    log.add_ring(Ring::create(disk, OWNER, Geometry::of(1, 128 << 10)).expect("made")).expect("added");
    let switch = log.geometry().1.expect("two rings");
    let left = || switch.at.since(log.positions().next);
    while left() > 2000 {
        append_durably(log, 1000);
    }
    if ends_there {
        append_durably(log, to_usize(left()) - GROUP_FRAME_LEN);
        assert_eq!(left(), 0);
    }
    log.open_ring();
    while log.positions().next <= switch.at.plus(10 * to_u64(GROUP_FRAME_LEN)) {
        append_durably(log, 1000);
    }
    switch
}

#[test]
fn the_switch_to_a_second_ring_is_found_where_a_group_crosses_it_or_ends_at_it() {
    for ends_there in [false, true] {
        let disk = SimulatedDisk::new();
        let log = Setup::default().make(&disk);
        let switch = move_to_second(&disk, &log, ends_there);
        let (owner, files, doubt) = find_rings(&disk).expect("found");
        assert_eq!((owner, files.switch(), doubt), (OWNER, Some(switch), None), "ends there: {ends_there}");
        assert_eq!(find_log(&files).map(|found| found.start.at).ok(), Some(START));
    }
}

#[test]
fn a_newer_ring_that_has_lost_a_file_casts_doubt_and_an_older_one_in_removal_does_not() {
    for (used, other, doubtful) in [(0, 1, true), (1, 0, false)] {
        let disk = SimulatedDisk::new();
        let setup = Setup { generation: used, ..Setup::default() };
        append(&setup.make(&disk), 1000);
        Ring::create(&disk, OWNER, Geometry::of(other, 128 << 10)).expect("made");
        let disk = without(&disk, &file_name(other, 3));
        let (_, files, doubt): (_, LogFiles, _) = find_rings(&disk).expect("found");
        assert_eq!((files.geometry(), files.switch()), (setup.geometry(), None));
        assert_eq!(doubt.is_some_and(|why| why.contains("generation 1")), doubtful, "beside generation {other}");
    }
}
