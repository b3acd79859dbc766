//! Each mistake and each failure gets one clear error: it names the cause and the remedy. Nothing acknowledged is lost.

use std::io::ErrorKind;
use std::sync::Arc;

use millpond::classic::EmptyFreeListAlgorithm;
use millpond::inspect::{CheckOptions, Inspector, RebuildOptions, check, check_on, rebuild_on};
use millpond::simulation::{Image, SimulatedDisk, Unsynced, run};
use millpond::{Action, ByteSize, Db, Error, Options};

use crate::crash_matrix::stride;
use crate::support::{
    IN_PLACE, SMALL, Shape, THREADED, disk_of, recover, recover_shaped, reopen_options, small_options,
};

fn open(disk: &SimulatedDisk, options: Options) -> Result<Db, Error> {
    Db::open_on(Arc::new(disk.clone()), options)
}

/// A closed database with one tree of 500 rows.
fn sample() -> Image {
    sample_shaped(SMALL)
}

fn sample_shaped(shape: Shape) -> Image {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, shape.options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        for i in 0..500u16 {
            tree.put(i.to_be_bytes(), [7; 300]).expect("written");
        }
        db.close().expect("closed");
    });
    disk.image()
}

fn error_of<T: std::fmt::Debug>(result: Result<T, Error>, parts: &[&str]) -> Error {
    let error = result.expect_err("an error");
    for part in parts {
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
    error
}

#[test]
fn what_is_no_database_is_named_and_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("notes.txt");
    std::fs::write(&file, "mine").expect("written");
    let cached = || Options::new().cached(true);
    let error = error_of(Db::open(dir.path(), cached()), &["not a Millpond database", "notes.txt"]);
    assert!(matches!(error, Error::Format(_)));
    error_of(Db::open(&file, cached()), &["notes.txt", "name the directory of a database"]);
    error_of(Db::open(dir.path().join("no"), cached().create(false)), &["does not exist"]);
    error_of(check(dir.path(), CheckOptions::default()), &["not a Millpond database"]);
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "mine");
    // Map files of a database whose other files are lost, and a pool too large for the log.
    let (lost, new) = (dir.path().join("lost"), dir.path().join("new"));
    std::fs::create_dir(&lost).expect("made");
    std::fs::write(lost.join("map.mpd"), "mine").expect("written");
    error_of(Db::open(&lost, cached()), &["map files", "restore"]);
    error_of(Db::open(&lost, cached().create(false)), &["'lock.mpd' is missing"]);
    let too_small = cached().redo_capacity(ByteSize::mib(2)).buffer_pool_size(ByteSize::gib(1));
    error_of(Db::open(&new, too_small), &["redo_capacity is 2"]);
    // No lock file, no new directory: everything is as before.
    let names = |dir: &std::path::Path| {
        let entries = std::fs::read_dir(dir).expect("listed");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(dir.path()), ["lost", "notes.txt"]);
    assert_eq!(names(&lost), ["map.mpd"]);
}

#[test]
fn a_database_that_is_open_is_refused_until_it_is_closed() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = || small_options().cached(true);
    let db = Db::open(dir.path(), options()).expect("opened");
    assert!(matches!(error_of(Db::open(dir.path(), options()), &["in use", "close it"]), Error::InUse(_)));
    let tree = db.create_tree("t").expect("created");
    db.close().expect("closed");
    assert!(matches!(tree.get(b"k"), Err(Error::Closed(_))));
    drop(tree);
    Db::open(dir.path(), options()).expect("opened again").close().expect("closed");
}

#[test]
fn a_newer_format_and_foreign_bytes_are_told_apart() {
    let disk = disk_of(sample());
    for superblock in [0, 64 << 10] {
        assert!(disk.flip_bit("data.mpd", superblock + 8, 3));
    }
    let error = error_of(
        open(&disk, reopen_options()),
        &["format version 9", "of a later build", "this build reads version 1"],
    );
    assert!(matches!(error, Error::Format(_)));
    let mut image = sample();
    image.retain(|name, _| name.starts_with("redo-"));
    image.insert("data.mpd".to_owned(), vec![b'x'; 1 << 20]);
    error_of(open(&disk_of(image), reopen_options()), &["not a Millpond data file"]);
}

#[test]
fn missing_files_are_named() {
    for name in ["redo-0-2.mpd", "map.mpd", "directory-0.mpd", "directory-1.mpd"] {
        let mut image = sample();
        image.remove(name).expect("there");
        assert!(matches!(error_of(open(&disk_of(image), reopen_options()), &[name, "missing"]), Error::Corruption(_)));
    }
}

#[test]
fn database_without_superblocks_or_lock_file_counts_as_damaged() {
    let mut image = sample();
    let data = image.get_mut("data.mpd").expect("there");
    [0, 64 << 10].into_iter().for_each(|at| data[at..at + 4096].fill(0));
    let opened = open(&disk_of(image), reopen_options());
    assert!(matches!(error_of(opened, &["overwritten", "millpond rebuild"]), Error::Corruption(_)));
    let dir = tempfile::tempdir().expect("a directory");
    let options = || Options::new().redo_capacity(ByteSize::mib(4)).buffer_pool_size(ByteSize::mib(1)).cached(true);
    Db::open(dir.path(), options()).expect("made").close().expect("closed");
    let lock = dir.path().join("lock.mpd");
    std::fs::remove_file(&lock).expect("removed");
    let mut cached = CheckOptions::default();
    cached.cached = true;
    let checked = check(dir.path(), cached.clone());
    assert!(matches!(error_of(checked, &["'lock.mpd' is missing", "make an empty file"]), Error::Corruption(_)));
    std::fs::write(&lock, b"").expect("made");
    assert!(check(dir.path(), cached).expect("checked").problems.is_empty());
}

/// The lock file is removed while the database is open: the directory is locked, too.
#[test]
fn a_database_is_not_opened_twice_when_its_lock_file_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = || Options::new().redo_capacity(ByteSize::mib(4)).buffer_pool_size(ByteSize::mib(1)).cached(true);
    let db = Db::open(dir.path(), options()).expect("made");
    std::fs::remove_file(dir.path().join("lock.mpd")).expect("removed");
    assert!(matches!(error_of(Db::open(dir.path(), options()), &["in use"]), Error::InUse(_)));
    db.close().expect("closed");
    Db::open(dir.path(), options()).expect("opened").close().expect("closed");
}

#[test]
fn options_are_checked_against_range_and_database() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    error_of(Db::open(&path, Options::new().page_size(ByteSize::kib(5))), &["page_size", "5KiB", "16KiB"]);
    let tiny = Options::new().buffer_pool_size(ByteSize::kib(64)).redo_capacity(ByteSize::kib(64));
    error_of(Db::open(&path, tiny), &["buffer_pool_size", "redo_capacity"]);
    assert!(!path.exists(), "a mistake in the options leaves no trace");
    let disk = disk_of(sample());
    let other = reopen_options().page_size(ByteSize::kib(16));
    let error = error_of(open(&disk, other), &["page_size is 16KiB", "pages of 4KiB", "leave the option out"]);
    assert!(matches!(error, Error::InvalidOptions(_)) && error.action() == Action::FixCall);
}

#[test]
fn keys_too_long_are_refused_with_their_limit() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options()).expect("opened");
    let tree = db.create_tree("t").expect("created");
    assert!(matches!(error_of(tree.put([1; 769], b""), &["769 bytes", "at most 768"]), Error::KeyTooLong(_)));
    tree.put([1; 768], [1; 1024]).expect("the limits themselves fit");
    assert_eq!(tree.get([2; 5000]).expect("no such key"), None);
    assert_eq!(tree.scan(..).count(), 1);
}

#[test]
fn check_finds_each_flipped_bit_that_harms_only_its_page() {
    let image = sample();
    let pages = u64::try_from(image["data.mpd"].len()).expect("small") / 4096;
    let mut found = 0;
    for page in 256..pages {
        let disk = disk_of(image.clone());
        assert!(disk.flip_bit("data.mpd", page * 4096 + page * 37 % 4096, 5));
        match check_on(Arc::new(disk.clone()), &CheckOptions::default()) {
            Ok(report) if report.problems.is_empty() => {
                // No page uses this slot: then all rows must still be there.
                assert_eq!(recover(&disk).expect("sound")["t"].len(), 500);
            }
            Ok(report) => {
                found += 1;
                assert!(report.problems[0].contains("checksum mismatch"), "{:?}", report.problems);
            }
            // The catalog's only page: nothing can be opened without it.
            Err(error) => {
                found += 1;
                assert!(matches!(&error, Error::Corruption(text) if text.contains("page 0:0")), "{error}");
            }
        }
    }
    assert!(found >= 40, "{found} of {pages} slots hold a page");
}

#[test]
fn a_flipped_bit_in_the_map_is_reported_never_guessed_around() {
    // The keeper decides where the map's pages are.
    let (image, _) = run(2, || {
        let disk = SimulatedDisk::new();
        let db = open(&disk, small_options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        for i in 0..100u16 {
            tree.put(i.to_be_bytes(), [7; 300]).expect("written");
        }
        db.checkpoint().expect("done");
        let image = disk.image();
        db.close().expect("closed");
        image
    });
    let mut reported = 0;
    // The first of the map's pages, and the directories behind their heads.
    for (file, from, len) in [("map.mpd", 4096, 8 * 4096), ("directory-0.mpd", 4096, 64), ("directory-1.mpd", 4096, 64)]
    {
        for at in (from..from + len).step_by(61) {
            let disk = disk_of(image.clone());
            assert!(disk.flip_bit(file, at, 1));
            match recover(&disk) {
                Ok(found) => assert_eq!(found["t"].len(), 100),
                Err(problem) => {
                    reported += 1;
                    assert!(problem.contains("map"), "{problem}");
                }
            }
        }
    }
    assert!(reported >= 10, "only {reported} flips of the map in use");
}

#[test]
fn a_full_file_system_refuses_what_needs_pages_and_nothing_else() {
    let disk = SimulatedDisk::new();
    // Simulated: how far ahead the keeper grows the files must not depend on the machine.
    run(3, || {
        let db = open(&disk, small_options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let used: usize = disk.image().values().map(Vec::len).sum();
        disk.limit_space(Some(u64::try_from(used).expect("small") + (256 << 10)));
        let mut rows = 0u32;
        let error = loop {
            match tree.insert(rows.to_be_bytes(), [5; 900]) {
                Ok(()) => rows += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::OutOfSpace(_)) && error.action() == Action::FreeSpace, "{error}");
        assert!(error.to_string().contains("data.mpd"), "{error}");
        assert!(rows > 300, "{rows}");
        for round in 0..3u8 {
            for i in 0..rows {
                tree.update(i.to_be_bytes(), [round; 900]).expect("an update needs no new page");
            }
        }
        db.checkpoint().expect("a checkpoint needs no new space");
        assert_eq!(tree.scan(..).count(), usize::try_from(rows).expect("small"));
        drop(tree);
        db.close().expect("closed");
        // The pages of the undo records still exist.
        let db = open(&disk, reopen_options()).expect("opened on a full disk");
        let tree = db.open_tree("t").expect("there");
        tree.update([0; 4], [9; 900]).expect("an update needs no new page");
        disk.limit_space(None);
        tree.insert(rows.to_be_bytes(), [5; 900]).expect("there is space again");
        db.close().expect("closed");
        assert_eq!(recover(&disk).expect("sound")["t"].len(), usize::try_from(rows).expect("small") + 1);
    });
}

#[test]
fn failed_log_sync_acknowledges_nothing_and_reads_go_on() {
    let disk = SimulatedDisk::new();
    // Simulated, so that no call of the keeper comes in between.
    run(4, || {
        let db = open(&disk, small_options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        tree.put(b"before", b"1").expect("written");
        // The next call writes the log, the one after it syncs.
        disk.fail_at(disk.calls() + 1, ErrorKind::Other);
        let error = error_of(tree.put(b"during", b"1"), &["sync log file", "reopen"]);
        assert!(matches!(error, Error::DeviceFailed(_)) && error.action() == Action::Reopen);
        assert!(matches!(error_of(tree.put(b"after", b"1"), &["no more writes", "reopen"]), Error::ReadOnly(_)));
        assert_eq!(tree.get(b"before").expect("reads go on"), Some(b"1".to_vec()));
        assert!(matches!(db.checkpoint(), Err(Error::ReadOnly(_))));
        assert!(db.close().is_err());
    });
    let found = recover(&disk).expect("sound");
    assert!(found["t"].contains_key(&b"before"[..]) && !found["t"].contains_key(&b"after"[..]));
}

#[test]
fn device_error_at_any_call_loses_nothing_acknowledged() {
    let classic = Shape { empty: EmptyFreeListAlgorithm::Legacy, ..SMALL };
    // Every fifth call, from one of the first five on; with MILLPOND_FULL each call.
    let step = stride(5) as u64;
    for (first, (shape, kind)) in (0..).zip([
        (SMALL, ErrorKind::Other),
        (SMALL, ErrorKind::StorageFull),
        (SMALL, ErrorKind::PermissionDenied),
        (classic, ErrorKind::Other),
        (classic, ErrorKind::StorageFull),
        (IN_PLACE, ErrorKind::Other),
        (IN_PLACE, ErrorKind::StorageFull),
        (THREADED, ErrorKind::Other),
    ]) {
        let image = sample_shaped(shape);
        let (mut call, mut single_flushes) = (first % step, 0);
        loop {
            let disk = disk_of(image.clone());
            disk.fail_at(call, kind);
            let ((acknowledged, single), _) = run(call, || write_some(&disk, shape));
            single_flushes += single;
            if disk.calls() <= call {
                break;
            }
            disk.fail_at(u64::MAX, kind);
            let found = recover_shaped(&disk, shape)
                .unwrap_or_else(|problem| panic!("call {call} failed with {kind}: {problem}"));
            for key in &acknowledged {
                assert!(found["t"].contains_key(key), "call {call} failed with {kind}: an acknowledged key is gone");
            }
            call += step;
        }
        assert!(call > 60, "only {call} calls");
        assert_eq!(single_flushes > 0, shape.is_legacy(), "{single_flushes} pages were written by the writer");
    }
}

/// Opens, writes to many pages until a call fails, and closes. Returns the acknowledged keys, and the number of pages
/// that the writer wrote itself.
fn write_some(disk: &SimulatedDisk, shape: Shape) -> (Vec<Vec<u8>>, u64) {
    let mut acknowledged = Vec::new();
    let Ok(db) = open(disk, shape.reopen_options().buffer_pool_size(ByteSize::kib(128))) else {
        return (acknowledged, 0);
    };
    let Ok(tree) = db.open_tree("t") else { return (acknowledged, 0) };
    for i in 0..45u16 {
        let key = [&(i * 11).to_be_bytes()[..], &[1]].concat();
        if tree.put(&key, [9; 900]).is_ok() {
            acknowledged.push(key);
        }
        if i == 40 {
            let _ = db.checkpoint();
        }
    }
    let single = db.stats().buffer_pool_single_page_flushes;
    let _ = db.close();
    (acknowledged, single)
}

/// Regression: when the newest superblock was damaged, the older one counted, and the log since was not searched.
#[test]
fn damaged_superblock_never_hides_what_followed_the_other() {
    // Simulated, so that no checkpoint is under way.
    let (image, _) = run(5, || {
        let disk = SimulatedDisk::new();
        let db = open(&disk, small_options()).expect("opened");
        db.create_tree("t").expect("created").put(b"a", b"1").expect("written");
        db.close().expect("closed");
        let db = open(&disk, reopen_options()).expect("opened");
        db.open_tree("t").expect("there").put(b"b", b"2").expect("written");
        let image = disk.crash_now(millpond::simulation::Unsynced::All);
        db.close().expect("closed");
        image
    });
    let mut refused = 0;
    for place in [0, 64 << 10] {
        let damaged = disk_of(image.clone());
        assert!(damaged.flip_bit("data.mpd", place + 40, 1));
        match recover(&damaged) {
            Ok(found) => assert_eq!(found["t"].len(), 2, "the older one is damaged: nothing is missing"),
            Err(problem) => {
                refused += 1;
                assert!(problem.contains("superblock") && problem.contains("damaged"), "{problem}");
            }
        }
    }
    assert_eq!(refused, 1);
}

/// Regression: when the second superblock of a new database was damaged, the first counted: an empty database opened.
#[test]
fn a_damaged_superblock_of_a_new_database_hides_nothing_either() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options()).expect("opened");
    db.create_tree("t").expect("created").put(b"a", b"1").expect("written");
    let image = disk.crash_now(millpond::simulation::Unsynced::All);
    db.close().expect("closed");
    for place in [0, 64 << 10] {
        let damaged = disk_of(image.clone());
        assert!(damaged.flip_bit("data.mpd", place + 40, 1));
        match recover(&damaged) {
            Ok(found) => assert_eq!(found["t"].len(), 1),
            Err(problem) => assert!(problem.contains("superblock"), "{problem}"),
        }
    }
}

/// Regression: with the older superblock damaged and the next checkpoint cut short, both superblocks seemed to be lost.
#[test]
fn a_crash_after_a_tolerated_damage_loses_nothing() {
    let image = sample();
    let mut tolerated = 0;
    for place in [0, 64 << 10] {
        let flipped = disk_of(image.clone());
        assert!(flipped.flip_bit("data.mpd", place + 40, 1));
        // A disk whose history begins with the damage.
        let damaged = disk_of(flipped.image());
        if open(&damaged, reopen_options()).and_then(Db::close).is_err() {
            continue;
        }
        tolerated += 1;
        let history = damaged.history();
        for boundary in 0..=history.boundaries() {
            for unsynced in [millpond::simulation::Unsynced::None, millpond::simulation::Unsynced::All] {
                let crashed = disk_of(history.crash_image(boundary, unsynced));
                assert_eq!(recover(&crashed).expect("sound")["t"].len(), 500, "at {boundary}");
            }
        }
    }
    assert_eq!(tolerated, 1);
}

#[test]
fn check_finds_no_fault_with_a_database_just_created() {
    let disk = SimulatedDisk::new();
    open(&disk, small_options()).expect("opened").close().expect("closed");
    let history = disk.history();
    let mut sound = 0;
    for boundary in 0..=history.boundaries() {
        let crashed = disk_of(history.crash_image(boundary, millpond::simulation::Unsynced::None));
        if crashed.image().contains_key("data.mpd") {
            let report = check_on(Arc::new(crashed), &CheckOptions::default()).expect("checked");
            assert_eq!(report.problems, Vec::<String>::new(), "at {boundary}");
            sound += 1;
        }
    }
    assert!(sound > 5, "{sound}");
}

#[test]
fn database_without_its_data_file_is_not_created_anew() {
    let mut image = sample();
    image.remove("data.mpd").expect("there");
    let disk = disk_of(image.clone());
    assert!(matches!(error_of(open(&disk, small_options()), &["data.mpd", "restore"]), Error::Corruption(_)));
    assert!(matches!(error_of(open(&disk, reopen_options()), &["data.mpd", "restore"]), Error::Corruption(_)));
    assert_eq!(disk.image(), image, "nothing was touched");
    let mut image = sample();
    image.insert("redo-my-notes.mpd".to_owned(), b"mine".to_vec());
    let disk = disk_of(image);
    open(&disk, reopen_options()).expect("opened").close().expect("closed");
    assert!(disk.image().contains_key("redo-my-notes.mpd"));
}

/// A fault at any call of a creation leaves nothing behind, and the next open creates the database.
#[test]
fn creation_that_fails_at_any_call_leaves_nothing() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        for call in 0.. {
            let disk = SimulatedDisk::new();
            disk.fail_at(call, kind);
            let opened = open(&disk, small_options()).and_then(Db::close);
            let left = disk.image();
            if left.contains_key("data.mpd") {
                assert!(call > 30, "{call}");
                break;
            }
            let error = opened.expect_err("it has no data file").to_string();
            assert!(left.is_empty(), "call {call}: {error}: {:?}", left.keys());
            // The first two calls only look for files.
            let is_full = kind == ErrorKind::StorageFull && call > 1;
            assert!(!is_full || error.contains("set a smaller redo_capacity"), "call {call}: {error}");
            open(&disk, small_options()).expect("the disk is mended").close().expect("closed");
        }
    }
}

#[test]
fn default_database_on_a_small_device_names_the_log_that_fits() {
    let disk = SimulatedDisk::new();
    disk.limit_space(Some(20 << 20));
    let error = error_of(open(&disk, Options::new()), &["redo_capacity", "its log takes 16MiB", "to 11MiB or less"]);
    assert!(matches!(error, Error::OutOfSpace(_)));
    assert!(disk.image().is_empty() && disk.boundaries() == 0, "nothing was begun");
    open(&disk, Options::new().redo_capacity(ByteSize::mib(11))).expect("it fits").close().expect("closed");
    let disk = SimulatedDisk::new();
    disk.limit_space(Some(1 << 20));
    error_of(open(&disk, Options::new()), &["redo_capacity", "free some, and set a smaller"]);
}

/// The power fails while a database is created: the remains do not count as a damaged database.
#[test]
fn first_open_that_was_cut_short_is_never_damage() {
    let disk = SimulatedDisk::new();
    open(&disk, small_options()).expect("opened").close().expect("closed");
    let history = disk.history();
    let mut unfinished = 0;
    for boundary in 0..=history.boundaries() {
        let seed = u64::try_from(boundary).expect("small");
        for unsynced in [Unsynced::None, Unsynced::All, Unsynced::Subset(seed), Unsynced::Subset(seed + 1000)] {
            let image = history.crash_image(boundary, unsynced);
            if image.contains_key("data.mpd") {
                continue;
            }
            unfinished += 1;
            let names: Vec<String> = image.keys().cloned().collect();
            let is_no_damage = |error: Error| {
                assert!(matches!(error, Error::Format(_)), "at {boundary}, {unsynced:?}, of {names:?}: {error}");
            };
            let files = || Arc::new(disk_of(image.clone()));
            is_no_damage(open(&files(), reopen_options()).expect_err("no database"));
            is_no_damage(check_on(files(), &CheckOptions::default()).expect_err("no database"));
            is_no_damage(Inspector::on(files()).info().expect_err("no database"));
            is_no_damage(Inspector::on(files()).superblocks(&mut |_| true).expect_err("no database"));
            is_no_damage(rebuild_on(files(), &RebuildOptions::default()).expect_err("no database"));
            let again = files();
            open(&again, small_options()).expect("made").close().expect("closed");
            assert!(again.image().contains_key("data.mpd"));
        }
    }
    assert!(unfinished > 100, "{unfinished}");
}

/// Regression: the pool was checked against pages of 16 KiB before the database's page size was known.
#[test]
fn a_small_pool_suits_small_pages_when_reopened() {
    let dir = tempfile::tempdir().expect("a directory");
    Db::open(dir.path(), small_options().cached(true)).expect("opened").close().expect("closed");
    let db = Db::open(dir.path(), Options::new().cached(true).buffer_pool_size(ByteSize::kib(160))).expect("opened");
    assert_eq!(db.stats().buffer_pool_pages_total, 40);
}

/// Regression: the failed write lost the page's dirtiness, its frame was evicted, and the old image read.
#[test]
fn after_a_failed_page_write_reads_never_go_back_in_time() {
    for at in 0..40 {
        let disk = SimulatedDisk::new();
        let db = open(&disk, small_options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        for i in 0..400u32 {
            tree.put(i.to_be_bytes(), [1; 900]).expect("written");
        }
        db.checkpoint().expect("done");
        disk.fail_at(disk.calls() + at, ErrorKind::Other);
        let mut written = vec![1u8; 400];
        for i in 0..400u32 {
            let key = i * 37 % 400;
            match tree.put(key.to_be_bytes(), [2; 900]) {
                Ok(()) => written[usize::try_from(key).expect("small")] = 2,
                // Under way: either version.
                Err(_) => {
                    written[usize::try_from(key).expect("small")] = 0;
                    break;
                }
            }
        }
        for (key, version) in (0u32..).zip(written) {
            // For want of frames a page that is not in memory may be unreadable by now; rows that can be read are
            // right.
            if let Ok(found) = tree.get(key.to_be_bytes()) {
                let found = found.unwrap_or_else(|| unreachable!("call +{at}: key {key} is gone"))[0];
                assert!(version == 0 || found == version, "call +{at}: key {key} has version {found}, not {version}");
            }
        }
    }
}
