//! Databases of every format that was ever frozen open, with their contents unchanged.
//!
//! An archive in `tests/golden` has the files of a database, and its rows in `contents`: a line for each row, with the
//! name of its tree or table, the key and the value. Archives are never regenerated. An addition to a format gets an
//! archive of its own: name it in [`GOLDEN`], then `MILLPOND_WRITE_GOLDEN=1 cargo test -p millpond --test it archives`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use millpond::inspect::{RebuildOptions, rebuild_on};
use millpond::simulation::{Image, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{Db, Field, PageStoreKind, TableDefinition, WriteBatch};

use crate::support::{Contents, SLOW, SMALL, Shape, contents, disk_of, open, settle, sound};

/// The archives, and the shape and end of each.
const GOLDEN: [(&str, Shape, End); 8] = [
    ("v1-copy-on-write-4k-crashed", Shape { frames: 120, ..SMALL }, End::Crash),
    ("v1-in-place-4k-crashed", Shape { frames: 120, store: PageStoreKind::InPlace, ..SMALL }, End::Crash),
    ("v1-copy-on-write-16k-closed", Shape { frames: 120, page_kib: 16, ..SMALL }, End::Close),
    ("v1-copy-on-write-8k-tables-crashed", Shape { frames: 120, page_kib: 8, ..SMALL }, End::Crash),
    (
        "v1-in-place-32k-tables-closed",
        Shape { frames: 120, page_kib: 32, store: PageStoreKind::InPlace, ..SMALL },
        End::Close,
    ),
    ("v1-copy-on-write-64k-tables-closed", Shape { frames: 120, page_kib: 64, ..SMALL }, End::Close),
    ("v1-copy-on-write-4k-small-trees-crashed", Shape { frames: 120, ..SMALL }, End::Crash),
    (
        "v1-in-place-16k-small-trees-closed",
        Shape { frames: 120, page_kib: 16, store: PageStoreKind::InPlace, ..SMALL },
        End::Close,
    ),
];

/// Whether the database has more kinds of tables: the first archives have not.
fn has_tables(name: &str) -> bool {
    name.contains("-tables-")
}

/// Whether the map directory has entries: archives of earlier builds have none.
fn has_small_trees(name: &str) -> bool {
    name.contains("-small-trees-")
}

/// Trees of up to some ten pages: the map directory has the entries of some.
const SMALL_TREES: u32 = 20;

fn small_tree(number: u32) -> String {
    format!("small {number}")
}

/// State in which a database is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// With a batch in flight, delete marks, a log to redo, and a load under way.
    Crash,
    Close,
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.tar.gz"))
}

fn read(name: &str) -> (Image, String) {
    let file = File::open(path(name)).expect("an archive: see the top of this file");
    let (mut image, mut contents) = (Image::new(), String::new());
    for entry in tar::Archive::new(GzDecoder::new(file)).entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("read");
        match name.as_str() {
            "contents" => contents = String::from_utf8(bytes).expect("text"),
            _ => drop(image.insert(name, bytes)),
        }
    }
    (image, contents)
}

fn write(name: &str, image: &Image, contents: &str) {
    let file = File::create_new(path(name)).expect("made");
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::best()));
    let files = image.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    for (name, bytes) in files.chain([("contents", contents.as_bytes())]) {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(u64::try_from(bytes.len()).expect("small"));
        archive.append_data(&mut header, name, bytes).expect("added");
    }
    archive.into_inner().and_then(GzEncoder::finish).expect("written");
}

fn as_text(contents: &Contents) -> String {
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let mut text = String::new();
    for (name, rows) in contents {
        for (key, value) in rows {
            writeln!(text, "{name} {} {}", hex(key), hex(value)).expect("a string");
        }
    }
    text
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Some bytes that differ from row to row.
fn value(number: u32, len: usize) -> Vec<u8> {
    number.wrapping_mul(0x9E37_79B9).to_le_bytes().iter().copied().cycle().take(len).collect()
}

/// A row of the table: a number that other rows share, a unique number, and the rest.
fn row(number: u32, generation: u32) -> Vec<u8> {
    [&key(number % 7 + generation)[..], &key(number ^ 0x0F0F), &value(number, 60)].concat()
}

/// A loaded table, one with long rows, and one whose indexes have come and gone.
fn make_tables(db: &Db, shape: Shape) {
    let own = || TableDefinition::new().unique("own", [Field::value(4..8)]);
    drop(db.bulk_load_table("loaded table", own(), (0..500).map(|n| (key(n), row(n, 1)))).expect("loaded"));
    let long = db.create_table("long rows", own()).expect("created");
    for number in 0..5 {
        let rest = value(number, usize::try_from(shape.page_kib << 10).expect("small") * 2);
        long.insert(key(number), [row(number, 2), rest].concat()).expect("inserted");
    }
    let changed = db.create_table("changed", own()).expect("created");
    (0..150).for_each(|number| changed.insert(key(number), row(number, 3)).expect("inserted"));
    drop(changed.create_index("later", [Field::value(0..4), Field::key(2..4)]).expect("created"));
    drop(changed.create_unique_index("gone", [Field::value(4..)]).expect("created"));
    changed.drop_index("gone").expect("dropped");
    drop(db.create_table("emptied", own()).expect("created"));
    db.truncate_table("emptied").expect("emptied");
}

/// Checks the tables of [`make_tables`], and uses them.
fn hold_tables(db: &Db) {
    let indexes = |name: &str| db.open_table(name).expect("there").indexes().collect::<Vec<_>>();
    assert_eq!([indexes("loaded table"), indexes("changed")], [vec!["own"], vec!["own", "later"]]);
    for (name, count) in [("loaded table", 500), ("long rows", 5), ("changed", 150)] {
        let table = db.open_table(name).expect("there");
        for number in 0..count {
            assert!(table.get(key(number)).expect("read").is_some(), "{name} has no row {number}");
            if number % 3 == 0 {
                table.put(key(number), row(number, 7)).expect("put");
            }
        }
        assert!(table.delete(key(1)).expect("deleted"));
    }
    let later = db.open_table("changed").expect("there").index("later").expect("there");
    assert_eq!(later.scan(..).count(), 149);
}

/// A database with some of everything.
fn make(name: &str, (shape, end): (Shape, End)) -> (Image, Contents) {
    let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
    let (mut image, mut expected) = (Image::new(), Contents::new());
    run(1, || {
        let db = open(&disk, shape.options());
        let tree = db.create_tree("a tree").expect("created");
        for number in 0..600 {
            tree.put(key(number * 2), value(number, 40 + usize::try_from(number % 90).expect("small"))).expect("put");
        }
        let definition = TableDefinition::new()
            .index("shared", [Field::value(0..4)])
            .unique("own", [Field::value(4..8)])
            .index("text", [Field::key(2..4), Field::value(8..)]);
        let table = db.create_table("a table", definition).expect("created");
        for number in 0..200 {
            table.insert(key(number), row(number, 0)).expect("inserted");
        }
        let long = db.create_tree("long values").expect("created");
        for number in 0..4 {
            long.put(key(number), value(number, 9000 + 100 * usize::try_from(number).expect("small"))).expect("put");
        }
        db.bulk_load("loaded", (0..900).map(|number| (key(number), value(number, 30)))).expect("loaded");
        db.create_tree("empty").expect("created");
        drop(db.create_tree("dropped").expect("created"));
        db.drop_tree("dropped").expect("dropped");
        if has_tables(name) {
            make_tables(&db, shape);
        }
        if has_small_trees(name) {
            for number in 0..SMALL_TREES {
                let tree = db.create_tree(&small_tree(number)).expect("created");
                let len = usize::try_from(shape.page_kib).expect("small") * 220;
                (0..number * 2).for_each(|row| tree.put(key(row), value(row, len)).expect("put"));
            }
        }
        drop((tree, table, long));
        db.close().expect("closed");
        // Gives the log a second epoch, and changes of pages that have images.
        let db = open(&disk, shape.reopen_options());
        let (tree, table) = (db.open_tree("a tree").expect("there"), db.open_table("a table").expect("there"));
        let long = db.open_tree("long values").expect("there");
        sleep_ns(1_000_000_000);
        for number in 0..60 {
            tree.put(key(number * 2 + 1), value(number, 20)).expect("put");
            tree.delete(key(number * 8)).expect("deleted");
            table.put(key(number), row(number, 3)).expect("put");
        }
        (0..10).for_each(|number| assert!(table.delete(key(number * 3)).expect("deleted")));
        long.put(key(1), value(9, 12_000)).expect("put");
        if has_small_trees(name) {
            // Some outgrow the directory.
            for number in 0..SMALL_TREES {
                let tree = db.open_tree(&small_tree(number)).expect("there");
                (1000..1006).for_each(|row| tree.put(key(row), value(row, 700)).expect("put"));
            }
        }
        expected = contents(&db).expect("read");
        if end == End::Close {
            drop((tree, table, long));
            return db.close().expect("closed");
        }
        let mut load = db.begin_bulk_load("under way").expect("begun");
        (0..4000u32).try_for_each(|number| load.push(key(number), value(number, 100))).expect("pushed");
        let mut batch = WriteBatch::new();
        for number in 0..600 {
            batch.put(&tree, key(number * 2), value(number + 1, 700));
        }
        let writer = db.clone();
        let writer = spawn("writer", move || writer.write(batch)).expect("a thread");
        while db.stats().batches_in_flight == 0 {
            sleep_ns(1_000_000);
        }
        // Until some of the batch's parts are in the log.
        sleep_ns(40_000_000);
        tree.put(key(7001), b"beside it").expect("put");
        expected.get_mut("a tree").expect("there").insert(key(7001).to_vec(), b"beside it".to_vec());
        assert_eq!(db.stats().batches_in_flight, 1);
        image = disk.crash_now(Unsynced::All);
        writer.join().expect("no panic").expect("written");
        drop((load, tree, table, long));
        db.close().expect("closed");
    });
    (if end == End::Close { disk.image() } else { image }, expected)
}

#[test]
fn missing_archives_are_made_when_that_is_wanted() {
    let missing = GOLDEN.into_iter().filter(|(name, ..)| !path(name).exists());
    let wanted = std::env::var_os("MILLPOND_WRITE_GOLDEN").is_some();
    for (name, shape, end) in missing {
        assert!(wanted, "{name} is missing: see the top of this file");
        let (image, contents) = make(name, (shape, end));
        write(name, &image, &as_text(&contents));
    }
}

/// Opens a database of an archive: it has the expected rows, takes changes, and closes without a fault.
fn hold(disk: &SimulatedDisk, name: &str, (shape, end): (Shape, End), expected: &str) {
    let mut after = Contents::new();
    run(1, || {
        let db = open(disk, shape.reopen_options());
        let found = contents(&db).expect("read");
        assert!(as_text(&found) == expected, "other rows than the written ones");
        let (tree, table) = (db.open_tree("a tree").expect("there"), db.open_table("a table").expect("there"));
        settle(&db);
        assert_eq!(db.stats().rollbacks, u64::from(end == End::Crash), "the batch that was in flight");
        for number in 0..600 {
            tree.put(key(number * 2), value(number, 300)).expect("put");
        }
        (0..200).for_each(|number| table.put(key(number), row(number, 5)).expect("put"));
        db.open_tree("long values").expect("there").delete(key(1)).expect("deleted");
        db.drop_tree("loaded").expect("dropped");
        if has_tables(name) {
            hold_tables(&db);
        }
        for number in 0..if has_small_trees(name) { SMALL_TREES } else { 0 } {
            let tree = db.open_tree(&small_tree(number)).expect("there");
            (500..540).for_each(|row| tree.put(key(row), value(row, 600)).expect("put"));
        }
        db.create_tree("small").expect("created").put(b"key", b"value").expect("put");
        settle(&db);
        after = contents(&db).expect("read");
        assert_eq!(after["a tree"].get(&key(1198)[..]), Some(&value(599, 300)));
        drop((tree, table));
        db.close().expect("closed");
    });
    sound(disk);
    run(1, || {
        let db = open(disk, shape.reopen_options());
        assert!(contents(&db).expect("read") == after, "the changed rows");
        db.close().expect("closed");
    });
}

#[test]
fn databases_of_every_frozen_format_are_what_they_were() {
    for (name, shape, end) in GOLDEN {
        let (image, expected) = read(name);
        assert!(expected.lines().count() > 1500, "{name}: rows of a tree, a table, a load");
        sound(&disk_of(image.clone()));
        hold(&disk_of(image), name, (shape, end), &expected);
    }
}

/// The same after superblocks and map are rebuilt from page images and log.
#[test]
fn databases_of_every_frozen_format_can_be_rebuilt() {
    for (name, shape, end) in GOLDEN.into_iter().filter(|(_, shape, _)| shape.store == PageStoreKind::CopyOnWrite) {
        let (mut image, expected) = read(name);
        let data = image.get_mut("data.mpd").expect("there");
        [0, 64 << 10].into_iter().for_each(|at| data[at..at + 4096].fill(0));
        let disk = disk_of(image);
        rebuild_on(Arc::new(disk.clone()), &RebuildOptions::default()).expect("rebuilt");
        hold(&disk, name, (shape, end), &expected);
    }
}

/// On a real file system, with or without direct I/O.
#[test]
fn databases_of_every_frozen_format_open_from_files() {
    for (name, shape, _) in GOLDEN {
        let (image, expected) = read(name);
        let dir = tempfile::tempdir().expect("a directory");
        image.iter().for_each(|(name, bytes)| std::fs::write(dir.path().join(name), bytes).expect("written"));
        std::fs::write(dir.path().join("lock.mpd"), b"").expect("written");
        let db = Db::open(dir.path(), shape.reopen_options()).expect("opened");
        assert!(as_text(&contents(&db).expect("read")) == expected, "{name}");
        db.close().expect("closed");
    }
}
