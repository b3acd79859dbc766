//! Unit tests of the log's files.

use super::files::{Geometry, LogFiles, MissingFile, Ring, file_name, holds_groups};
use super::fixture_tests::{OWNER, len_of, without};
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned};
use crate::base::ids::Lsn;
use crate::io::device::Files;
use crate::simulation::{ServiceTime, SimulatedDisk};

/// Four files of 16 KiB of payload.
const SMALL: Geometry = Geometry { generation: 0, payload_bytes: 16 << 10 };

fn ring(disk: &SimulatedDisk, geometry: Geometry) -> Ring {
    Ring::create(disk, OWNER, geometry).expect("made")
}

#[test]
fn a_missing_file_is_found_by_its_name_and_made_anew() {
    let whole = SimulatedDisk::new();
    ring(&whole, SMALL);
    let disk = without(&whole, &file_name(0, 2));
    assert!(Ring::open(&disk, OWNER, SMALL).is_err(), "a file is missing");
    let missing = MissingFile::find(&disk, OWNER, SMALL).expect("listed");
    assert_eq!(missing.iter().map(MissingFile::name).collect::<Vec<_>>(), ["redo-0-2.mpd"]);
    missing.iter().for_each(|file| file.create(&disk).expect("made"));
    assert_eq!(disk.image(), whole.image());
    assert!(Ring::open(&disk, OWNER, SMALL).is_ok());
}

#[test]
fn a_ring_with_a_file_that_is_too_short_is_not_opened() {
    let whole = SimulatedDisk::new();
    ring(&whole, SMALL);
    let mut image = whole.image();
    let bytes = image.get_mut(&file_name(0, 3)).expect("the last file");
    bytes.resize(bytes.len() - BLOCK, 0);
    let disk = SimulatedDisk::with_image(image, ServiceTime::default());
    let error = Ring::open(&disk, OWNER, SMALL).err().expect("too short").to_string();
    assert!(error.contains("redo-0-3.mpd") && error.contains("16384 bytes instead of 20480"), "{error}");
}

#[test]
fn a_file_longer_than_its_header_says_is_opened() {
    let disk = SimulatedDisk::new();
    ring(&disk, SMALL);
    let longer = len_of(&disk, &file_name(0, 1)) + BLOCK_U64;
    disk.open(&file_name(0, 1)).and_then(|file| file.grow(longer)).expect("grown");
    assert!(Ring::open(&disk, OWNER, SMALL).is_ok());
}

#[test]
fn a_file_holds_groups_if_a_byte_behind_its_header_is_not_zero() {
    let disk = SimulatedDisk::new();
    ring(&disk, SMALL);
    let holds = |name: &str| holds_groups(&*disk.open(name).expect("opened")).expect("read");
    assert!(!holds("redo-0-0.mpd"), "a header is no group");
    for (name, offset) in [("redo-0-1.mpd", BLOCK_U64), ("redo-0-2.mpd", BLOCK_U64 + SMALL.payload_bytes - 1)] {
        assert!(!holds(name));
        assert!(disk.flip_bit(name, offset, 0), "there is such a byte");
        assert!(holds(name), "{name} at {offset}");
    }
}

#[test]
fn the_next_boundary_is_behind_the_place_and_at_the_switch_counts_the_second_ring() {
    let disk = SimulatedDisk::new();
    let large = Geometry { generation: 1, payload_bytes: 64 << 10 };
    let files = LogFiles::new(ring(&disk, SMALL), Some((Lsn(40 << 10), ring(&disk, large))));
    for (from, next) in [(0, 16), (15, 16), (16, 32), (32, 40), (39, 40), (40, 64), (64, 128)] {
        assert_eq!(files.boundary(Lsn(from << 10), Lsn(u64::MAX)), Some(Lsn(next << 10)), "from {from} KiB");
    }
    assert_eq!(files.boundary(Lsn(39 << 10), Lsn((40 << 10) - 1)), None);
    // So bytes on both sides of the switch go to both rings.
    let (mut bytes, mut read) = (aligned(2 * BLOCK), aligned(2 * BLOCK));
    bytes.fill(9);
    files.write(&bytes, Lsn(36 << 10)).expect("written");
    files.read(&mut read, Lsn(36 << 10)).expect("read");
    assert_eq!(&read[..], &bytes[..]);
    let holds = |name: &str| holds_groups(&*disk.open(name).expect("opened")).expect("read");
    assert_eq!([holds("redo-0-2.mpd"), holds("redo-1-0.mpd"), holds("redo-1-1.mpd")], [true, true, false]);
}

/// The log from LSN 4096 to LSN 5000 is in file 0, and its last flush may have come to file 1.
#[test]
fn unknown_groups_are_those_of_files_that_the_log_does_not_run_into() {
    for (written, unknown) in [(1, None), (2, Some("redo-0-2.mpd")), (3, Some("redo-0-3.mpd"))] {
        let disk = SimulatedDisk::new();
        let files = LogFiles::new(ring(&disk, SMALL), None);
        assert!(disk.flip_bit(&file_name(0, written), 2 * BLOCK_U64, 3), "there is such a byte");
        let found = files.unknown_file(Lsn(BLOCK_U64), Lsn(5000)).expect("read");
        assert_eq!(found.as_deref(), unknown, "bytes in file {written}");
    }
}
