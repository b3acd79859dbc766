//! `info` and dumps show the contents of sound and damaged files, and write nothing.

use std::sync::Arc;

use millpond::inspect::{CheckOptions, Inspector, check_on};
use millpond::simulation::{Image, SimulatedDisk, Unsynced, run};
use millpond::{Db, Error, Field, TableDefinition};
use rand::{RngExt, SeedableRng};

use crate::support::{disk_of, reopen_options, small_options};

/// A database with a tree of 300 rows, at a checkpoint, and 20 more in the log only.
fn crashed() -> Image {
    let (image, _) = run(1, || {
        let disk = SimulatedDisk::new();
        let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        for i in 0..300u16 {
            tree.put(i.to_be_bytes(), [7; 300]).expect("written");
        }
        for round in 0..3u8 {
            tree.put([0, 0], [round; 300]).expect("written");
            db.checkpoint().expect("done");
        }
        for i in 300..320u16 {
            tree.put(i.to_be_bytes(), [8; 300]).expect("written");
        }
        let image = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        image
    });
    image
}

fn text(dump: impl FnOnce(&Inspector, millpond::inspect::Lines<'_>) -> Result<(), Error>, image: &Image) -> String {
    let mut text = String::new();
    let ended = dump(&Inspector::on(Arc::new(disk_of(image.clone()))), &mut |line| {
        text.push_str(line);
        text.push('\n');
        true
    });
    if let Err(error) = ended {
        text.push_str(&format!("error: {error}\n"));
    }
    text
}

/// Every dump, one after the other.
fn everything(image: &Image) -> String {
    [
        text(|i, out| i.superblocks(out), image),
        text(|i, out| i.map(None, out), image),
        text(|i, out| i.page(0, 0, out), image),
        text(|i, out| i.page(2, 0, out), image),
        text(|i, out| i.page(2, 3, out), image),
        text(|i, out| i.slot(1, out), image),
        text(|i, out| i.log(None, None, out), image),
        text(|i, out| i.log(Some(0), Some(345), out), image),
    ]
    .concat()
}

#[test]
fn info_and_dumps_tell_what_is_there_after_a_crash() {
    let image = crashed();
    let disk = disk_of(image.clone());
    let rows = Inspector::on(Arc::new(disk.clone())).info().expect("told");
    assert_eq!(disk.boundaries(), 0, "nothing was written");
    let value = |name: &str| rows.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()).unwrap_or_default();
    assert_eq!((value("page size"), value("page store"), value("trees")), ("4096", "copy-on-write", "1"));
    assert!(value("to replay").contains("groups") && !value("to replay").starts_with("0 "), "{rows:?}");
    assert!(value("tree 't'").starts_with("space 2, "), "{rows:?}");
    let all = everything(&image);
    for part in [
        "superblock 0 at offset 0: valid",
        "  checkpoint_lsn ",
        " of checkpoint ",
        "  2:0 slot ",
        "whole: checksum and tag hold",
        "'t' = '\\x01\\x00\\x02\\x00\\x00\\x00' (6 bytes)",
        "  structure     sound",
        "    insert '\\x01,' = '\\x01",
        "(313 bytes)",
        " epoch, durable ",
        " map, durable ",
        ": zeroes: nothing was written behind",
        "there is more: this is as much as was asked for",
    ] {
        assert!(all.contains(part), "no {part:?} in:\n{all}");
    }
    assert!(text(|i, out| i.slot(100_000, out), &image).contains("there is no slot 100000"));
    assert!(text(|i, out| i.page(9, 9, out), &image).contains("page 9:9 has no image"));
}

#[test]
fn check_counts_what_is_in_free_slots() {
    let mut image = crashed();
    let report = |image: &Image| check_on(Arc::new(disk_of(image.clone())), &CheckOptions::default()).expect("checked");
    let sound = report(&image);
    assert_eq!(sound.problems, Vec::<String>::new());
    assert!(sound.older_images > 0 && sound.free_slots == sound.older_images + sound.never_written, "{sound:?}");
    let data = image.get_mut("data.mpd").expect("there");
    let last = data.len() - 4096;
    data[last..].fill(1);
    let torn = report(&image);
    assert_eq!(torn.problems, Vec::<String>::new());
    assert_eq!(torn.free_slots, torn.older_images + torn.never_written + 1);
}

/// A closed database of 60 trees with 3 rows each, whose names are several pages of the catalog, and a table with an
/// index.
fn many_names() -> Image {
    let disk = SimulatedDisk::new();
    let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
    for number in 0..60 {
        let tree = db.create_tree(&format!("{number:0200}")).expect("created");
        (0..3u8).for_each(|key| tree.put([key], b"value").expect("written"));
    }
    let definition = TableDefinition::new().index("first", [Field::value(0..1)]);
    let table = db.create_table("table", definition).expect("created");
    table.insert(b"key", b"row").expect("inserted");
    drop(table);
    db.close().expect("closed");
    disk.image()
}

/// Offsets in the data file of the images of a space's pages, by page number.
fn places(image: &Image, space: u32) -> Vec<(u32, usize)> {
    let map = text(|inspector, out| inspector.map(Some(space), out), image);
    let place = |line: &str| {
        let (number, rest) = line.trim_start().strip_prefix(&format!("{space}:"))?.split_once(" slot ")?;
        let offset = rest.split_once("(offset ")?.1.split_once(',')?.0;
        Some((number.parse().ok()?, offset.parse().ok()?))
    };
    map.lines().filter_map(place).collect()
}

/// Regression: the whole check was refused, and the rest was not checked.
#[test]
fn check_goes_on_behind_a_damaged_page_of_the_catalog() {
    let image = many_names();
    let report = |image: &Image| check_on(Arc::new(disk_of(image.clone())), &CheckOptions::default()).expect("checked");
    let sound = report(&image);
    assert_eq!(sound.problems, Vec::<String>::new());
    let catalog = places(&image, 0);
    assert!(catalog.len() > 3, "{catalog:?}");
    let mut unnamed = Vec::new();
    for (number, offset) in catalog {
        let mut damaged = image.clone();
        // A row of the first tree is damaged, too.
        for offset in [offset, places(&image, 2)[0].1] {
            damaged.get_mut("data.mpd").expect("there")[offset + 2_000] ^= 1;
        }
        let found = report(&damaged);
        let has = |parts: &[&str]| found.problems.iter().any(|text| parts.iter().all(|part| text.contains(part)));
        assert!(has(&["tree 'catalog'", &format!("page 0:{number} "), "only what it leads to"]), "{found:?}");
        assert!(has(&["page 2:0 "]), "{found:?}");
        assert!(has(&["the names of ", " spaces from ", "not whether indexes"]), "{found:?}");
        let count = found.problems.iter().find_map(|text| text.split_once("the names of ")?.1.split(' ').next());
        unnamed.push((number, count.and_then(|count| count.parse::<u32>().ok()).expect("a number")));
        assert_eq!((found.trees, found.pages), (sound.trees, sound.pages), "all were looked at");
        assert!(found.entries + 3 + 61 >= sound.entries, "but for the names and the rows of one tree: {found:?}");
        assert!(!has(&["no tree leads to it"]) || number == 0, "{found:?}");
        // Operations that need the whole catalog are refused.
        let opened = Db::open_on(Arc::new(disk_of(damaged)), reopen_options());
        assert!(matches!(opened, Err(Error::Corruption(_))), "{opened:?}");
    }
    // With a damaged root no name is read; with a damaged leaf the names of the other leaves are.
    let all = unnamed.iter().find(|(number, _)| *number == 0).expect("the root was damaged, too").1;
    assert!(unnamed.iter().all(|(number, count)| *number == 0 || (1..all).contains(count)), "{unnamed:?}");
}

#[test]
fn dumps_of_damaged_files_say_so_and_never_panic() {
    let image = crashed();
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(9);
    let names: Vec<&String> = image.keys().collect();
    for round in 0..300 {
        let mut damaged = image.clone();
        let name = names[rng.random_range(0..names.len())];
        let bytes = damaged.get_mut(name).expect("there");
        for _ in 0..round % 40 {
            let at = rng.random_range(0..bytes.len().max(1));
            let run = rng.random_range(1..2000).min(bytes.len() - at.min(bytes.len()));
            rng.fill(&mut bytes[at..at + run]);
        }
        if round % 10 == 9 {
            bytes.truncate(bytes.len() / 3);
        }
        assert!(everything(&damaged).len() > 500);
        let _ = Inspector::on(Arc::new(disk_of(damaged))).info();
    }
    let mut headless = image.clone();
    headless.get_mut("data.mpd").expect("there")[..128 << 10].fill(0xa5);
    let all = everything(&headless);
    assert!(all.contains("not a superblock") && all.contains("the log files' headers must do"), "{all}");
    assert!(all.contains("log from LSN 4096"), "{all}");
}
