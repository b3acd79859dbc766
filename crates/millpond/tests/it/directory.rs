//! A database's directory on a real file system: how it is found, and by whom.

use std::path::Path;
use std::process::Command;

use millpond::{ByteSize, Db, Options};

fn options() -> Options {
    Options::new().buffer_pool_size(ByteSize::mib(1)).redo_capacity(ByteSize::mib(4)).cached(true)
}

/// Set in the process that a test starts to do its part.
const CHILD: &str = "MILLPOND_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// This test again, in a process of its own that begins in `dir`.
fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", &format!("directory::{test}"), "--nocapture"]).env(CHILD, "1").current_dir(dir);
    command
}

/// Runs a test's part in a process of its own; what it printed.
fn run_child(test: &str, dir: &Path) -> String {
    let output = child(test, dir).output().expect("started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    said
}

/// Makes and removes files: of another log, and of a sort, which `place` is searched for meanwhile.
fn use_files(db: &Db, place: &Path) {
    db.set_redo_capacity(ByteSize::mib(6)).expect("a new log is made");
    let mut sorted_in_files = false;
    let rows = (0..10_000u32).rev().map(|row| {
        let names = std::fs::read_dir(place).expect("listed").map(|entry| entry.expect("an entry").file_name());
        sorted_in_files |= row == 0 && { names }.any(|name| name.to_string_lossy().starts_with("sort-"));
        (row.to_be_bytes(), [7; 100])
    });
    db.bulk_load_unsorted("sorted", rows).expect("loaded");
    assert!(sorted_in_files, "more rows than fit the memory");
    let tree = db.create_tree("t").expect("created");
    tree.put(b"k", b"v").expect("written");
    db.checkpoint().expect("done");
}

/// A new log was looked for in the new working directory.
#[test]
fn relative_path_after_chdir_makes_files_where_the_database_is() {
    if !is_child() {
        let dir = tempfile::tempdir().expect("a directory");
        run_child("relative_path_after_chdir_makes_files_where_the_database_is", dir.path());
        let db = Db::open(dir.path().join("db"), options().create(false)).expect("opened");
        assert_eq!(db.open_tree("t").expect("there").get(b"k").expect("read"), Some(b"v".to_vec()));
        return;
    }
    let home = std::env::current_dir().expect("known");
    let db = Db::open("db", options().status_socket("socket")).expect("opened");
    std::fs::create_dir("elsewhere").expect("made");
    std::env::set_current_dir("elsewhere").expect("changed");
    use_files(&db, &home.join("db"));
    assert!(home.join("socket").exists());
    db.close().expect("closed");
    assert!(!home.join("socket").exists(), "the socket goes with the database");
    assert_eq!(std::fs::read_dir(".").expect("listed").count(), 0);
}

#[test]
fn renamed_directory_keeps_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path().join("old"), options()).expect("opened");
    std::fs::rename(dir.path().join("old"), dir.path().join("new")).expect("renamed");
    use_files(&db, &dir.path().join("new"));
    db.close().expect("closed");
    let db = Db::open(dir.path().join("new"), options().create(false)).expect("opened");
    assert_eq!(db.open_tree("t").expect("there").get(b"k").expect("read"), Some(b"v".to_vec()));
    assert!(!dir.path().join("old").exists());
}
