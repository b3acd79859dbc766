//! Unit tests of the scan of a log.

use super::fixture_tests::{NONCE, START, Setup, append_durably, damage};
use super::scan::LogScan;
use crate::base::ids::Lsn;
use crate::simulation::SimulatedDisk;

/// A log of some groups, each appended after the earlier ones were durable; the third begins an epoch. Returns the
/// groups' ends.
fn log_of_groups(setup: &Setup, disk: &SimulatedDisk) -> [Lsn; 4] {
    let log = setup.make(disk);
    let (first, second) = (append_durably(&log, 100), append_durably(&log, 200));
    log.begin_epoch(99).expect("begun");
    let third = log.positions().next;
    [first, second, third, append_durably(&log, 300)]
}

fn at_the_end(scan: &mut LogScan<'_>) -> (Lsn, String, Option<Lsn>) {
    while scan.next().expect("read").is_some() {}
    (scan.position(), scan.why_ended().expect("read"), scan.proof_of_more().expect("read"))
}

#[test]
fn a_scan_knows_the_epoch_of_the_groups_behind_it() {
    let (setup, disk) = (Setup::default(), SimulatedDisk::new());
    let ends = log_of_groups(&setup, &disk);
    let files = setup.files(&disk);
    let mut scan = LogScan::new(&files, NONCE, START);
    let mut seen = vec![(scan.position(), scan.nonce())];
    while scan.next().expect("read").is_some() {
        seen.push((scan.position(), scan.nonce()));
    }
    assert_eq!(seen, [(START, NONCE), (ends[0], NONCE), (ends[1], NONCE), (ends[2], 99), (ends[3], 99)]);
}

#[test]
fn a_group_that_was_durable_before_a_later_one_proves_that_the_log_went_on() {
    let setup = Setup::default();
    for damaged in 0..2 {
        let disk = SimulatedDisk::new();
        let ends = log_of_groups(&setup, &disk);
        let begin = [START, ends[0]][damaged];
        damage(&disk, begin.plus(20), 0);
        let files = setup.files(&disk);
        let (end, why, proof) = at_the_end(&mut LogScan::new(&files, NONCE, START));
        assert!(why.contains("bytes that are not whole"), "{why}");
        // The group behind the damage got its place when the log was durable up to its own begin.
        assert_eq!((end, proof), (begin, Some(ends[damaged])));
    }
}

#[test]
fn the_end_of_a_log_that_lost_nothing_proves_nothing_and_says_why_it_is_the_end() {
    let (setup, disk) = (Setup::default(), SimulatedDisk::new());
    let ends = log_of_groups(&setup, &disk);
    let files = setup.files(&disk);
    let (end, why, proof) = at_the_end(&mut LogScan::new(&files, NONCE, START));
    assert_eq!((end, proof), (ends[3], None));
    assert!(why.starts_with("zeroes"), "{why}");
    // The highest bit of a length: more than any group has.
    damage(&disk, end.plus(3), 7);
    let (_, why, _) = at_the_end(&mut LogScan::new(&files, NONCE, START));
    assert!(why.contains("not a possible one"), "{why}");
}
