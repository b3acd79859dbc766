//! A database opened read-only: complete, also after a crash, and never written.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use millpond::simulation::{Image, SimulatedDisk, Unsynced, run};
use millpond::{ByteSize, Db, Error, Field, GroupAccess, Modify, Options, TableDefinition, WriteBatch};

use crate::directory::{CHILD, as_another_user, is_child};
use crate::support::{SMALL, disk_of};

const ROWS: u32 = 400;

fn row(number: u32) -> Vec<u8> {
    [&number.to_le_bytes()[..], &[5; 300]].concat()
}

/// A tree and a table. A checkpoint has half of each, the log everything.
fn crashed() -> Image {
    run(1, || {
        let disk = SimulatedDisk::new();
        let db = Db::open_on(Arc::new(disk.clone()), SMALL.options()).expect("opened");
        let tree = db.create_tree("tree").expect("created");
        let table =
            db.create_table("table", TableDefinition::new().index("kind", [Field::value(0..1)])).expect("created");
        for number in 0..ROWS {
            tree.put(number.to_be_bytes(), row(number)).expect("written");
            if number % 8 == 0 {
                table.put(number.to_be_bytes(), row(number)).expect("written");
            }
            if number == ROWS / 2 {
                db.checkpoint().expect("done");
            }
        }
        let image = disk.crash_now(Unsynced::All);
        db.close().expect("closed");
        image
    })
    .0
}

fn options() -> Options {
    Options::new().read_only(true).buffer_pool_size(ByteSize::mib(4))
}

fn look(db: &Db) {
    let tree = db.open_tree("tree").expect("there");
    let rows: Vec<_> = tree.scan(..).collect::<Result<_, _>>().expect("read");
    let all: Vec<_> = (0..ROWS).map(|number| (number.to_be_bytes().to_vec(), row(number))).collect();
    assert!(rows == all, "{} rows", rows.len());
    let table = db.open_table("table").expect("there");
    assert_eq!(table.index("kind").expect("there").scan(..).count(), 50);
}

fn refused<T>(result: Result<T, Error>) {
    match result {
        Err(Error::ReadOnly(message)) => assert!(message.contains("without, to write"), "{message}"),
        Err(other) => unreachable!("{other}"),
        Ok(_) => unreachable!("it was done"),
    }
}

#[test]
fn crashed_database_is_read_whole_and_every_write_is_refused() {
    let disk = disk_of(crashed());
    run(2, || {
        let db = Db::open_on(Arc::new(disk.clone()), options()).expect("opened");
        look(&db);
        let (tree, table) = (db.open_tree("tree").expect("there"), db.open_table("table").expect("there"));
        for key in [&0u32.to_be_bytes()[..], b"none"] {
            refused(tree.put(key, b"x"));
            refused(tree.insert(key, b"x"));
            refused(tree.update(key, b"x"));
            refused(tree.delete(key));
            refused(table.put(key, row(1)));
            refused(table.insert(key, row(1)));
            refused(table.update(key, row(1)));
            refused(table.delete(key));
            refused(table.modify(key, |_| Modify::Delete));
        }
        let mut batch = WriteBatch::new();
        batch.put(&tree, b"k", b"v").put(&table, b"k", b"value");
        refused(db.write(batch));
        refused(db.create_tree("new"));
        refused(db.create_table("new", TableDefinition::new()));
        refused(db.drop_tree("tree"));
        refused(db.drop_table("table"));
        refused(db.truncate_tree("tree"));
        refused(db.truncate_table("table"));
        refused(table.create_index("text", [Field::value(1..)]));
        refused(table.drop_index("kind"));
        refused(db.begin_bulk_load("new"));
        refused(db.bulk_load_unsorted("new", [(b"k", b"v")]));
        refused(db.set_redo_capacity(ByteSize::mib(64)));
        refused(db.checkpoint());
        look(&db);
        db.close().expect("closed");
    });
    assert_eq!(disk.boundaries(), 0, "nothing was written");
    // An open for writing finds the same rows.
    let db = Db::open_on(Arc::new(disk.clone()), SMALL.reopen_options()).expect("opened");
    look(&db);
    db.close().expect("closed");
    let db = Db::open_on(Arc::new(disk), options()).expect("opened");
    look(&db);
}

#[test]
fn more_redo_than_the_pool_holds_is_refused_with_a_size() {
    let disk = disk_of(crashed());
    let open = |size| Db::open_on(Arc::new(disk.clone()), options().buffer_pool_size(size));
    let error = open(ByteSize::kib(160)).expect_err("40 frames are too few");
    let text = error.to_string();
    assert!(matches!(error, Error::InvalidOptions(_)) && text.contains("read_only"), "{text}");
    let size = text.split_once("buffer_pool_size of ").expect(&text).1.split_once(' ').expect(&text).0;
    look(&open(size.parse().expect("a size")).expect("that does"));
    assert_eq!(disk.boundaries(), 0, "nothing was written");
}

/// The files of a directory.
fn bytes(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry"));
    let read = |entry: std::fs::DirEntry| std::fs::read(entry.path()).expect("read");
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), read(entry))).collect()
}

#[test]
fn read_only_file_system_and_another_users_database_are_read() {
    let test = "read_only_file_system_and_another_users_database_are_read";
    let options = || options().cached(true);
    if is_child() {
        let refused = Db::open("db", options().read_only(false)).expect_err("it cannot be written");
        assert!(matches!(refused, Error::Permission(_)), "{refused}");
        let db = Db::open("db", options()).expect("opened");
        // Other processes may read it, too.
        look(&Db::open("db", options()).expect("opened"));
        look(&db);
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let db = dir.path().join("db");
    std::fs::create_dir(&db).expect("made");
    crashed().iter().for_each(|(name, bytes)| std::fs::write(db.join(name), bytes).expect("written"));
    std::fs::write(db.join("lock.mpd"), b"").expect("written");
    let before = bytes(&db);
    let mount = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && cd \"$1\" && shift && exec \"$@\"";
    let mut with_mount = Command::new("unshare");
    with_mount.args(["--mount", "sh", "-c", mount, "sh"]).arg(dir.path());
    with_mount.arg(std::env::current_exe().expect("known"));
    let ran = with_mount.args(["--exact", &format!("read_only::{test}"), "--nocapture"]).env(CHILD, "1").output();
    let said =
        ran.map_or_else(|e| e.to_string(), |ran| String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into());
    if said.contains("Operation not permitted") || said.contains("permission denied") {
        eprintln!("not looked at: only root can mount a file system");
    } else {
        assert!(said.contains("1 passed"), "{said}");
    }
    assert!(bytes(&db) == before, "nothing was written");
    // Another user's database, whose group may read.
    let own = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(&db).expect("there"));
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("set");
    };
    set(dir.path(), 0o755);
    set(&db, 0o750);
    before.keys().for_each(|name| set(&db.join(name), 0o640));
    as_another_user(own, || {
        assert!(matches!(Db::open(&db, options().read_only(false)), Err(Error::Permission(_))));
        look(&Db::open(&db, options()).expect("opened"));
    });
    assert!(bytes(&db) == before, "nothing was written");
    let db = Db::open(&db, options().read_only(false).group_access(GroupAccess::None)).expect("no reader is left");
    look(&db);
    db.close().expect("closed");
}
