//! The advice in errors, before a backup is restored: the test checks that it helps.

use std::sync::Arc;

use millpond::inspect::{CheckOptions, check_on};
use millpond::simulation::SimulatedDisk;
use millpond::{Error, Field, TableDefinition};

use crate::support::{disk_of, open};
use crate::tables::options;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// A page of an index is damaged: the error advises to drop the index and to create it again.
#[test]
fn damaged_index_is_whole_after_drop_and_create() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, options(4));
    let definition = TableDefinition::new().index("kind", [Field::value(0..2)]);
    let table = db.create_table("t", definition).expect("created");
    for row in 0..400u32 {
        table.put(row.to_be_bytes(), [&row.rotate_left(8).to_le_bytes()[..], &[7; 20]].concat()).expect("written");
    }
    drop(table);
    db.close().expect("closed");
    let image = disk.image();
    let slots = image["data.mpd"].len() as u64 / PAGE - (1 << 20) / PAGE;
    let mut mended = 0;
    for slot in 0..slots {
        let at = usize::try_from((1 << 20) + slot * PAGE).expect("small");
        if image["data.mpd"][at..][..64].iter().all(|byte| *byte == 0) {
            continue;
        }
        let disk = disk_of(image.clone());
        assert!(disk.flip_bit("data.mpd", (1 << 20) + slot * PAGE + 2000, 3));
        let check = || check_on(Arc::new(disk.clone()), &CheckOptions::default());
        let Ok(report) = check() else { continue };
        if !report.problems.first().is_some_and(|problem| problem.starts_with("index 'kind'")) {
            continue;
        }
        let db = open(&disk, options(4));
        let table = db.open_table("t").expect("there");
        let read = table.index("kind").expect("there").scan(..).try_for_each(|entry| entry.map(drop));
        let said = read.expect_err("a page of it is damaged");
        assert!(
            matches!(said, Error::Corruption(_)) && said.to_string().contains("drop that and create it again"),
            "{said}"
        );
        table.drop_index("kind").expect("dropped");
        table.create_index("kind", [Field::value(0..2)]).expect("created");
        drop(table);
        db.close().expect("closed");
        assert_eq!(check().expect("checked").problems, Vec::<String>::new(), "slot {slot}");
        mended += 1;
        if mended == 2 {
            return;
        }
    }
    unreachable!("only {mended} slots of {slots} had a page of the index");
}
