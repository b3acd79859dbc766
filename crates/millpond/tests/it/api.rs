//! The promises of the interface, on real files.

use std::sync::Arc;

use millpond::inspect::check;
use millpond::simulation::{SimulatedDisk, run};
use millpond::{ByteSize, Db, Durability, Error, Options, PageStoreKind, WriteBatch};

use crate::support::{SMALL, Shape, small_options};

fn options() -> Options {
    // Temporary directories may be on file systems without O_DIRECT.
    small_options().cached(true)
}

#[test]
fn trees_are_created_listed_opened_and_dropped() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opened");
    let b = db.create_tree("b").expect("created");
    db.create_tree("a").expect("created");
    assert!(matches!(db.create_tree("a"), Err(Error::TreeExists(_))));
    assert!(matches!(db.create_tree(""), Err(Error::InvalidOptions(_))));
    assert_eq!(db.trees().expect("listed"), ["a", "b"]);
    b.put(b"k", b"v").expect("written");
    db.drop_tree("b").expect("dropped");
    assert!(matches!(b.get(b"k"), Err(Error::TreeNotFound(_))));
    assert!(matches!(db.open_tree("b"), Err(Error::TreeNotFound(_))));
    assert!(matches!(db.drop_tree("b"), Err(Error::TreeNotFound(_))));
    let again = db.create_tree("b").expect("created again");
    assert_eq!(again.get(b"k").expect("read"), None);
    drop(db);
    drop((b, again));
    let report = check(dir.path(), cached_check()).expect("checked");
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.trees, report.superblocks), (3, 2));
}

fn cached_check() -> millpond::inspect::CheckOptions {
    let mut options = millpond::inspect::CheckOptions::default();
    options.cached = true;
    options
}

#[test]
fn a_batch_over_two_trees_is_all_or_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opened");
    let (a, b) = (db.create_tree("a").expect("created"), db.create_tree("b").expect("created"));
    let mut batch = WriteBatch::new();
    batch.insert(&a, b"1", b"x").put(&b, b"1", b"y").update(&a, b"1", b"z");
    db.write(batch).expect("written");
    assert_eq!(a.get(b"1").expect("read"), Some(b"z".to_vec()));
    let failing: [(&str, WriteBatch); 4] = [
        ("exists", {
            let mut w = WriteBatch::new();
            w.put(&b, b"2", b"n").insert(&a, b"1", b"n");
            w
        }),
        ("not found", {
            let mut w = WriteBatch::new();
            w.put(&a, b"2", b"n").update(&b, b"9", b"n");
            w
        }),
        ("conflict", {
            let mut w = WriteBatch::new();
            w.put(&a, b"2", b"n").expect(&b, b"1", Some(b"other"));
            w
        }),
        ("conflict", {
            let mut w = WriteBatch::new();
            w.delete(&a, b"1").expect(&a, b"1", Some(b"z"));
            w
        }),
    ];
    for (what, batch) in failing {
        let error = db.write(batch).expect_err(what);
        match what {
            "exists" => assert!(matches!(error, Error::KeyExists(_))),
            "not found" => assert!(matches!(error, Error::KeyNotFound(_))),
            _ => assert!(matches!(error, Error::Conflict(_)), "{error:?}"),
        }
    }
    assert_eq!(a.scan(..).count() + b.scan(..).count(), 2, "a batch that fails changes nothing");
    let other_dir = tempfile::tempdir().expect("a directory");
    let other = Db::open(other_dir.path(), options()).expect("opened");
    let mut foreign = WriteBatch::new();
    foreign.put(&a, b"3", b"n");
    assert!(matches!(other.write(foreign), Err(Error::TreeNotFound(_))));
}

#[test]
fn threads_that_read_modify_write_lose_no_update() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options().durability(Durability::None)).expect("opened");
    let tree = db.create_tree("counters").expect("created");
    for key in 0..4u8 {
        tree.insert([key], 0u64.to_le_bytes()).expect("inserted");
    }
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (db, tree) = (db.clone(), tree.clone());
            scope.spawn(move || {
                for round in 0..500u16 {
                    let key = [thread.wrapping_add(u8::try_from(round % 4).expect("small")) % 4];
                    loop {
                        let old = tree.get(key).expect("read").expect("there");
                        let new = u64::from_le_bytes(old.as_slice().try_into().expect("8 bytes")) + 1;
                        let mut batch = WriteBatch::new();
                        batch.expect(&tree, key, Some(&old)).put(&tree, key, new.to_le_bytes());
                        match db.write(batch) {
                            Ok(_) => break,
                            Err(Error::Conflict(_)) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            });
        }
    });
    let sum: u64 =
        tree.scan(..).map(|row| u64::from_le_bytes(row.expect("read").1.as_slice().try_into().expect("8 bytes"))).sum();
    assert_eq!(sum, 2000);
}

#[test]
fn many_threads_share_syncs_and_a_full_log_drains() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opened");
    let tree = db.create_tree("t").expect("created");
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let tree = tree.clone();
            scope.spawn(move || {
                for i in 0..400u32 {
                    let key = (i * 8 + thread).wrapping_mul(2_654_435_761).to_be_bytes();
                    tree.put(key, [7; 900]).expect("written");
                }
            });
        }
    });
    let stats = db.stats();
    let laps = stats.log_lsn_current / stats.log_capacity;
    // The log never holds more than a lap.
    assert!(laps > 5 && stats.checkpoints + 1 >= laps, "{stats:?}");
    assert_eq!(tree.scan(..).count(), 3200);
    db.close().expect("closed");
    let report = check(dir.path(), cached_check()).expect("checked");
    assert_eq!((report.problems, report.log_groups), (Vec::new(), 0));
}

#[test]
fn weaker_durability_is_kept_by_a_close_and_by_the_clock() {
    let disk = SimulatedDisk::new();
    // In virtual time, in which writes take no time, so the keeper does not run in between.
    run(1, || {
        let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let syncs = db.stats().log_syncs;
        let mut batch = WriteBatch::new();
        batch.put(&tree, b"none", b"1").durability(Durability::None);
        db.write(batch).expect("written");
        assert_eq!(db.stats().log_syncs, syncs, "nothing was synced for it");
        db.close().expect("closed");
    });
    let found = crate::support::recover(&disk).expect("sound");
    assert_eq!(found["t"].len(), 1);
}

#[test]
fn a_log_of_another_size_is_made_at_open_and_nothing_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opened");
    db.create_tree("t").expect("created").put(b"k", b"v").expect("written");
    drop(db);
    let db = Db::open(dir.path(), options().redo_capacity(ByteSize::mib(2))).expect("opened");
    assert!(db.stats().log_capacity > 1 << 20);
    assert_eq!(db.open_tree("t").expect("there").get(b"k").expect("read"), Some(b"v".to_vec()));
    drop(db);
    let files = std::fs::read_dir(dir.path()).expect("listed").count();
    assert_eq!(files, 1 + 1 + 1 + 2 + 4, "lock, data, map, two directories, one ring of logs");
    let db = Db::open(dir.path(), Options::new().cached(true).buffer_pool_size(ByteSize::mib(1))).expect("opened");
    assert!(db.stats().log_capacity > 1 << 20, "the size stays");
}

#[test]
fn the_largest_keys_and_values_fit_at_every_page_size() {
    for kib in [4, 8, 16, 32, 64] {
        let disk = SimulatedDisk::new();
        let page = ByteSize::kib(kib);
        let options = Options::new()
            .page_size(page)
            .buffer_pool_size(ByteSize::kib(40 * kib))
            .redo_capacity(ByteSize::kib(256 * kib));
        let db = Db::open_on(Arc::new(disk.clone()), options).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let page_bytes = usize::try_from(page.as_u64()).expect("small");
        let (key_len, value_len) = ((page_bytes / 16 * 3).min(3072), page_bytes / 4);
        let key = |i: u32| {
            // Long common prefixes make long separators: the hardest for inner pages.
            let mut key = vec![b'p'; key_len - 4];
            key.extend_from_slice(&i.wrapping_mul(2_654_435_761).to_be_bytes());
            key
        };
        for i in 0..150u32 {
            let byte = u8::try_from(i).expect("small");
            tree.insert(key(i), vec![byte; value_len]).expect("the limits fit");
        }
        for i in (0..150u32).step_by(3) {
            assert!(tree.delete(key(i)).expect("deleted"));
            tree.put(key(i), b"short").expect("written");
            tree.put(key(i), vec![1; value_len]).expect("a short value grows again");
        }
        let rows: Vec<_> = tree.scan(..).collect::<Result<_, _>>().expect("scanned");
        assert_eq!(rows.len(), 150, "{kib} KiB");
        let mut back: Vec<_> = tree.scan(..).rev().collect::<Result<_, _>>().expect("scanned");
        back.reverse();
        assert!(rows == back && rows.is_sorted());
        drop(db);
        let reopened = Db::open_on(Arc::new(disk), Options::new().buffer_pool_size(ByteSize::kib(40 * kib)));
        assert_eq!(reopened.expect("opened").open_tree("t").expect("there").scan(..).count(), 150);
    }
}

#[test]
fn scans_during_splits_see_every_row_that_stays() {
    let disk = SimulatedDisk::new();
    let db = Db::open_on(Arc::new(disk), small_options().durability(Durability::None)).expect("opened");
    let tree = db.create_tree("t").expect("created");
    for i in 0..300u32 {
        tree.insert((i * 1000).to_be_bytes(), [1; 200]).expect("inserted");
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 0..6000u32 {
                let key = i.wrapping_mul(2_654_435_761) % 300_000;
                if key % 1000 != 0 {
                    tree.put(key.to_be_bytes(), [2; 300]).expect("written");
                }
            }
        });
        let mut rounds = 0;
        while !writer.is_finished() || rounds == 0 {
            for back in [false, true] {
                let (scan, key) = (tree.scan(..), |row: millpond::Result<millpond::OwnedRow>| row.expect("scanned").0);
                let mut keys: Vec<_> = if back { scan.rev().map(key).collect() } else { scan.map(key).collect() };
                if back {
                    keys.reverse();
                }
                assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
                let stay =
                    keys.iter().filter(|key| u32::from_be_bytes(key[..].try_into().expect("4 bytes")) % 1000 == 0);
                assert_eq!(stay.count(), 300);
            }
            rounds += 1;
        }
    });
}

#[test]
fn every_page_size_and_store_keeps_rows_through_eviction() {
    for page_kib in [4, 8, 16, 32, 64] {
        for store in [PageStoreKind::CopyOnWrite, PageStoreKind::InPlace] {
            let shape = Shape { page_kib, store, ..SMALL };
            let dir = tempfile::tempdir().expect("a directory");
            let db = Db::open(dir.path(), shape.options().cached(true)).expect("opened");
            let tree = db.create_tree("t").expect("created");
            let len = usize::try_from(page_kib * 256).expect("small");
            for round in 0..3u8 {
                for row in 0..300u32 {
                    let mut batch = WriteBatch::new();
                    let key = row.wrapping_mul(2_654_435_761).to_be_bytes();
                    batch.put(&tree, key, vec![round; len]).durability(Durability::None);
                    db.write(batch).expect("written");
                }
            }
            assert!(db.stats().data_page_writes > 60, "{shape:?}: {:?}", db.stats());
            db.close().expect("closed");
            let db = Db::open(dir.path(), shape.reopen_options().cached(true)).expect("opened");
            let rows: Vec<_> = db.open_tree("t").expect("there").scan(..).collect::<Result<_, _>>().expect("read");
            assert!(rows.len() == 300 && rows.iter().all(|(_, value)| *value == vec![2; len]), "{shape:?}");
            db.close().expect("closed");
            let other = match store {
                PageStoreKind::CopyOnWrite => PageStoreKind::InPlace,
                _ => PageStoreKind::CopyOnWrite,
            };
            let refused = Db::open(dir.path(), shape.reopen_options().cached(true).page_store(other));
            assert!(matches!(refused, Err(Error::InvalidOptions(text)) if text.contains("page_store")));
            let mut options = millpond::inspect::CheckOptions::default();
            options.cached = true;
            let report = check(dir.path(), options).expect("checked");
            assert_eq!(report.problems, Vec::<String>::new(), "{shape:?}");
        }
    }
}

/// Pages and log bypass the page cache, unless the options say otherwise: the kernel's flags of each open file.
#[test]
fn files_are_open_past_the_page_cache() {
    const O_DIRECT: u32 = 0o40_000;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("made");
    for cached in [false, true] {
        let dir = dir.path().join(if cached { "cached" } else { "direct" });
        let db = Db::open(&dir, small_options().cached(cached)).expect("opened");
        let status = db.status_text();
        let told = match cached {
            true => "used, as the option `cached` says",
            // The build's file system may lack direct I/O. Then the status says so, and there is nothing else to test.
            false if status.contains("used: this file system has no direct I/O") => continue,
            false => "not used: direct I/O",
        };
        assert!(status.contains(told), "{status}");
        let open = std::fs::read_dir("/proc/self/fd").expect("listed").filter_map(|entry| {
            let entry = entry.ok()?;
            let name = std::fs::read_link(entry.path()).ok()?;
            let name = name.strip_prefix(std::fs::canonicalize(&dir).ok()?).ok()?.to_str()?.to_owned();
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().to_str()?)).ok()?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim();
            Some((name, u32::from_str_radix(flags, 8).ok()? & O_DIRECT != 0))
        });
        let open: Vec<(String, bool)> = open.filter(|(name, _)| name != "lock.mpd").collect();
        for kind in ["redo-", "data", "map"] {
            let of_kind: Vec<_> = open.iter().filter(|(name, _)| name.starts_with(kind)).collect();
            assert!(!of_kind.is_empty() && of_kind.iter().all(|(_, direct)| *direct != cached), "{cached}: {open:?}");
        }
        db.close().expect("closed");
    }
}

/// What callers send between threads, and share.
const _: () = {
    const fn shared<T: Send + Sync + Clone>() {}
    const fn sent<T: Send>() {}
    shared::<Db>();
    shared::<millpond::Tree>();
    shared::<millpond::Table>();
    shared::<millpond::Index>();
    shared::<Options>();
    sent::<WriteBatch>();
    sent::<millpond::Scan>();
    sent::<millpond::IndexScan>();
    sent::<millpond::IndexRows>();
    sent::<millpond::BulkLoad>();
    sent::<millpond::TableBulkLoad>();
    sent::<Error>();
    const fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<Error>();
};

#[test]
fn open_or_create_finds_what_exists_and_makes_the_rest() {
    use millpond::{Field, TableDefinition};
    let db = Db::open_on(Arc::new(SimulatedDisk::new()), small_options()).expect("opened");
    db.open_or_create_tree("t").expect("created").put("a", "1").expect("written");
    assert_eq!(db.open_or_create_tree("t").expect("opened").get("a").expect("read"), Some(b"1".to_vec()));
    let definition = || TableDefinition::new().index("a", [Field::value(0..1)]).unique("b", [Field::value(1..2)]);
    db.open_or_create_table("people", definition()).expect("created").insert("1", "xy").expect("written");
    let again = TableDefinition::new().unique("b", [Field::value(1..2)]).index("a", [Field::value(0..1)]);
    assert!(db.open_or_create_table("people", again).expect("opened").contains_key("1").expect("read"));
    let differs = db.open_or_create_table("people", TableDefinition::new().index("a", [Field::value(0..2)]));
    let Err(Error::DefinitionDiffers(text)) = differs else { panic!("{differs:?}") };
    assert_eq!(
        &*text,
        "table 'people' is not as defined: its index 'a' is (value[0..1]), and is defined as (value[0..2]); it has index \
         'b' unique (value[1..2]), which is not defined: open it with `open_table` and change its indexes, or correct the \
         definition"
    );
    assert!(matches!(db.open_or_create_tree("people"), Err(Error::WrongKind(_))));
    assert!(matches!(db.open_or_create_table("t", TableDefinition::new()), Err(Error::WrongKind(_))));
    assert!(matches!(db.open_or_create_tree(""), Err(Error::InvalidOptions(_))));
}

#[test]
fn ends_prefixes_and_members_are_found() {
    let db = Db::open_on(Arc::new(SimulatedDisk::new()), small_options()).expect("opened");
    let tree = db.create_tree("t").expect("created");
    assert_eq!((tree.first().expect("read"), tree.last().expect("read")), (None, None));
    (0..500u32).for_each(|n| tree.insert(format!("{n:03}"), [7; 100]).expect("inserted"));
    (0..200u32).chain(300..500).for_each(|n| assert!(tree.delete(format!("{n:03}")).expect("deleted")));
    let key = |row: Option<millpond::OwnedRow>| String::from_utf8(row.expect("a row").0).expect("digits");
    assert_eq!(key(tree.first().expect("read")), "200");
    assert_eq!(key(tree.last().expect("read")), "299");
    assert_eq!((tree.prefix("24").count(), tree.prefix("3").count(), tree.prefix("").count()), (10, 0, 100));
    assert_eq!(key(tree.prefix("24").next_back().transpose().expect("read")), "249");
    assert!(tree.contains_key("250").expect("read") && !tree.contains_key("199").expect("read"));
    // From both ends: each row once, and none after the ends have met.
    let mut scan = tree.scan("210".."290");
    let mut met = 0;
    while let Some(row) = if met % 3 == 0 { scan.next_back() } else { scan.next() } {
        row.expect("read");
        met += 1;
    }
    assert_eq!((met, scan.next().is_none(), scan.next_back().is_none()), (80, true, true));
    assert_eq!(tree.scan("290".."210").count(), 0);
}

#[test]
fn errors_carry_the_row_that_they_are_about() {
    use millpond::{Field, TableDefinition};
    let db = Db::open_on(Arc::new(SimulatedDisk::new()), small_options()).expect("opened");
    let tree = db.create_tree("t").expect("created");
    let table = db.create_table("people", TableDefinition::new().unique("b", [Field::value(0..2)])).expect("created");
    tree.insert("a", "1").expect("inserted");
    table.insert("1", "xy").expect("inserted");
    for (error, wanted, text) in [
        (tree.insert("a", "2"), ("t", None, &b"a"[..]), "tree 't' has key 'a' already: update or put it"),
        (tree.update("b", "2"), ("t", None, b"b"), "tree 't' has no key 'b': insert or put it"),
        (table.update("2", "2"), ("people", None, b"2"), "table 'people' has no key '2': insert or put it"),
        (
            table.insert("2", "xy"),
            ("people", Some("b"), b"xy"),
            "index 'b' of table 'people' is unique, and another row has 'xy' there: change that row first, or give \
             this one another value",
        ),
    ] {
        let error = error.expect_err(text);
        let row = error.row().expect("about a row");
        assert_eq!(
            (row.name(), row.index(), row.key(), error.to_string().as_str()),
            (wanted.0, wanted.1, wanted.2, text)
        );
    }
    // An error outlives its tree, and goes to another thread.
    let error = tree.insert("a", "2").expect_err("there");
    db.drop_tree("t").expect("dropped");
    std::thread::spawn(move || assert_eq!(error.row().expect("about a row").key(), b"a")).join().expect("no panic");
}
