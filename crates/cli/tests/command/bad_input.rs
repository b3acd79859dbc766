//! Mistakes of users, each with one clear error: directories, files, permissions, numbers, names, conflicts, streams.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use super::*;

/// Asserts that a command fails with exit code 2, prints nothing on standard output, and says all of `texts`.
#[track_caller]
fn assert_refused(command: &mut Command, texts: &[&str]) {
    let output = command.output().expect("the command starts");
    assert_code(&output, 2);
    let said = err(&output);
    assert_eq!(out(&output), "", "{command:?}");
    assert!(said.starts_with("error: "), "{command:?}: {said}");
    for text in texts {
        assert!(said.contains(text), "{command:?} does not say {text}:\n{said}");
    }
}

/// The commands that read a closed database, each with the directory `dir`.
fn lookers(dir: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["check", dir],
        vec!["info", dir],
        vec!["status", dir],
        vec!["rebuild", dir],
        vec!["dump", "superblock", dir],
        vec!["dump", "map", dir],
        vec!["dump", "page", dir, "1:0"],
        vec!["dump", "log", dir],
    ]
}

fn prepare(dir: &Path) {
    let args = ["bench", "--dir=db", "--table-size=500", "--redo-capacity=4MiB", "oltp_insert", "prepare"];
    assert_code(&run(dir, &args), 0);
}

#[test]
fn what_is_no_database_is_named_with_a_way_out() {
    let dir = directory();
    fs::write(dir.path().join("file"), "mine").expect("a file can be written");
    fs::create_dir(dir.path().join("other")).expect("a directory can be made");
    fs::write(dir.path().join("other/notes.txt"), "mine").expect("a file can be written");
    for (target, texts) in [
        ("missing", ["'missing' does not exist", "name the directory of a database"]),
        ("file", ["'file' is not a directory", "name the directory of a database"]),
        ("other", ["'other' is not a Millpond database", "'lock.mpd'"]),
    ] {
        for args in lookers(target) {
            assert_refused(&mut millpond(dir.path(), &args), &texts);
        }
    }
    for (args, texts) in [
        (&["bench", "--dir=file", "oltp_insert"][..], &["'file' is no directory", "--dir"][..]),
        (&["bench", "--dir=file/x", "oltp_insert"], &["'file/x' is no directory", "--dir"]),
        (&["bench", "--dir=other", "oltp_insert"], &["'other'", "'notes.txt'", "an empty or a new directory"]),
        (&["bench", "--dir=missing", "oltp_insert", "run"], &["'missing'", "'prepare'"]),
        (&["bench", "--dir=missing", "oltp_insert", "cleanup"], &["'missing'", "'prepare'"]),
        (&["crashtest", "--dir=file"], &["'file' is no directory", "--dir"]),
        (&["crashtest", "--dir=other"], &["'other' is not empty", "--dir"]),
        (&["crashtest", "--dir=/sys/none"], &["cannot make files in '/sys/none'", "another directory"]),
        (&["probe", "missing"], &["'missing' does not exist", "name a directory"]),
        (&["probe", "file"], &["'file' is no directory", "name a directory"]),
        (&["probe", "/sys"], &["cannot create '/sys/", "access"]),
    ] {
        assert_refused(&mut millpond(dir.path(), args), texts);
    }
    assert_eq!(fs::read_dir(dir.path()).expect("it can be read").count(), 2, "nothing was made");
    assert_eq!(fs::read_dir(dir.path().join("other")).expect("it can be read").count(), 1, "nor beside the notes");
}

/// A directory with the command in which an unprivileged user may run it, if this user is the superuser.
pub(super) fn for_a_user() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it can be opened to others");
    let command = dir.path().join("millpond");
    fs::copy(assert_cmd::cargo::cargo_bin!("millpond"), &command).expect("the command can be copied");
    (dir, command)
}

#[test]
fn missing_permissions_are_named_with_a_way_out() {
    let (dir, command) = for_a_user();
    let as_user = |args: &[&str]| {
        let mut command = Command::new(&command);
        command.current_dir(dir.path()).args(args).env("MILLPOND_CACHED", "true");
        if rustix::process::geteuid().is_root() {
            command.uid(65_534).gid(65_534);
        }
        command
    };
    fs::create_dir(dir.path().join("ro")).expect("a directory can be made");
    let db = dir.path().join("ro/db");
    let options = Options::new().cached(true);
    Db::open(&db, options).expect("a database can be made").close().expect("it closes");
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    for file in fs::read_dir(&db).expect("it can be read") {
        set(&file.expect("a file").path(), 0o444);
    }
    set(&db, 0o555);
    set(&dir.path().join("ro"), 0o555);
    for args in [&["check", "ro/db"][..], &["info", "ro/db"], &["status", "ro/db"], &["dump", "log", "ro/db"]] {
        assert_code(&as_user(args).output().expect("the command starts"), 0);
    }
    let access = "give this user read and write access";
    for (args, texts) in [
        (&["rebuild", "ro/db"][..], &["'ro/db", "no permission", access][..]),
        (&["bench", "--dir=ro/db", "oltp_insert", "run"], &["'ro/db", "no permission", access]),
        (&["bench", "--dir=ro/new", "oltp_insert"], &["'ro/new'", "no permission", access]),
        (&["crashtest", "--dir=ro/new"], &["'ro/new'", "Permission denied", "another directory"]),
        (&["probe", "ro"], &["'ro/", "Permission denied", "access"]),
        (&["bench", "--report=ro/run.html", "oltp_insert"], &["'ro/run.html'", "Permission denied", "another file"]),
    ] {
        assert_refused(&mut as_user(args), texts);
    }
    set(&db, 0o000);
    for args in lookers("ro/db") {
        assert_refused(&mut as_user(&args), &["'ro/db", "no permission", access]);
    }
    assert_refused(&mut as_user(&["bench", "--dir=ro/db", "oltp_insert"]), &["'ro/db", "Permission denied", "--dir"]);
    set(&db, 0o755);
    set(&dir.path().join("ro"), 0o755);
}

#[test]
fn database_in_use_is_refused_to_all_that_need_it_alone() {
    let dir = directory();
    let db = Db::open(dir.path().join("db"), Options::new()).expect("a database can be made");
    let mut all = lookers("db");
    all.push(vec!["bench", "--dir=db", "oltp_insert"]);
    all.push(vec!["bench", "--dir=db", "insert_benchmark"]);
    for args in all {
        let says = if args[0] == "status" { "'db' is open" } else { "in use" };
        assert_refused(&mut millpond(dir.path(), &args), &["'db'", says]);
    }
    assert_refused(&mut millpond(dir.path(), &["crashtest", "--dir=db"]), &["'db' is not empty"]);
    db.close().expect("it closes");
    assert_code(&run(dir.path(), &["check", "db"]), 0);
}

#[test]
fn damaged_superblocks_are_told_with_the_way_out_and_shown() {
    let dir = directory();
    prepare(dir.path());
    let data = dir.path().join("db/data.mpd");
    let mut bytes = fs::read(&data).expect("it can be read");
    bytes[..1 << 17].fill(0);
    fs::write(&data, &bytes).expect("it can be written");
    let texts = ["both superblocks", "'data.mpd'", "millpond rebuild", "backup"];
    for args in [&["info", "db"][..], &["status", "db"], &["dump", "map", "db"], &["bench", "--dir=db", "oltp_insert"]]
    {
        assert_refused(&mut millpond(dir.path(), args), &texts);
    }
    let check = run(dir.path(), &["check", "db"]);
    assert_code(&check, 1);
    assert!(texts.iter().all(|text| err(&check).contains(text)), "{}", err(&check));
    let shown = run(dir.path(), &["dump", "superblock", "db"]);
    assert_code(&shown, 0);
    assert_eq!(out(&shown).matches("not a superblock").count(), 2, "{}", out(&shown));
}

#[test]
fn wrong_values_and_conflicts_name_option_value_and_way_out() {
    let dir = directory();
    prepare(dir.path());
    let bench = |option| vec!["bench", "--dir=db", "--table-size=500", option, "oltp_insert", "run"];
    for (args, texts) in [
        (bench("--tables=x"), &["--tables", "'x'", "for example, 10"][..]),
        (bench("--tables=4294967296"), &["--tables", "'4294967296'", "for example, 10"]),
        (bench("--tables=10001"), &["--tables", "10001", "1 to 10000"]),
        (bench("--table-size=0"), &["--table-size", "not 0", "1 to 4294967295"]),
        (bench("--table-size=5G"), &["--table-size", "'5G'", "2M"]),
        (bench("--rand-seed=-1"), &["--rand-seed", "'-1'", "for example, 10"]),
        (bench("--report-interval=-1"), &["--report-interval", "'-1'", "for example, 60"]),
        (bench("--time=1e3"), &["--time", "'1e3'", "0 to 31536000"]),
        (bench("--threads=4097"), &["--threads", "'4097'", "1 to 4096"]),
        (bench("--percentile=101"), &["--percentile", "'101'", "0 to 100"]),
        (bench("--rand-type=zipf"), &["--rand-type", "'zipf'", "'zipfian'"]),
        (bench("--rate=0%"), &["--rate", "'0%'", "above 0%"]),
        (bench("--auto-inc=maybe"), &["--auto-inc", "'maybe'", "on, off"]),
        (bench("--buffer-pool-size=-1"), &["--buffer-pool-size", "'-1'", "64MiB"]),
        (bench("--buffer-pool-size=1000TiB"), &["buffer_pool_size", "1000TiB", "256GiB"]),
        (bench("--buffer-pool-size-max=32MiB"), &["buffer_pool_size_max", "32MiB", "128MiB"]),
        (bench("--redo-capacity=1MiB"), &["redo_capacity", "1MiB", "2MiB to"]),
        (bench("--page-size=4KiB"), &["page_size", "4KiB", "'db'", "leave the option out"]),
        (bench("--page-store=in_place"), &["page_store", "in_place", "copy_on_write", "leave the option out"]),
        (bench("--status-socket=db/lock.mpd"), &["status_socket", "'db/lock.mpd'", "another path"]),
        (vec!["bench", "oltp_insert", "prepar"], &["'prepar'", "'prepare'"]),
        (vec!["dump", "page", "db", "1"], &["'1'", "for example, 1:0"]),
        (vec!["dump", "page", "db"], &["SPACE:NUMBER", "--slot <SLOT>"]),
        (vec!["dump", "page"], &["<DIR> <SPACE:NUMBER>", "<DIR> --slot <SLOT>"]),
        (vec!["dump", "page", "db", "1:0", "--slot=3"], &["SPACE:NUMBER", "--slot"]),
        (vec!["dump", "page", "db", "--slot=99999999999"], &["slot 99999999999", "slots 0 to "]),
        (vec!["dump", "log", "db", "--from=-4"], &["--from", "'-4'", "for example, 10"]),
        (vec!["dump", "log", "db", "--limit=x"], &["--limit", "'x'", "for example, 10"]),
        (vec!["dump", "map", "db", "--space=x"], &["--space", "'x'", "for example, 10"]),
        (vec!["dump", "pages", "db"], &["'pages'", "'page'"]),
        (vec!["status", "--format=yaml", "db"], &["--format", "'yaml'", "prometheus"]),
        (vec!["options", "--format=xml"], &["--format", "'xml'", "json"]),
        (vec!["options", "--formt=json"], &["'--formt'", "'--format'"]),
        (vec!["options", "--config=db"], &["'db'", "directory", "--config"]),
        (vec!["probe", ".", "--time=601"], &["--time", "'601'", "1 to 600"]),
        (vec!["crashtest", "--threads=65"], &["--threads", "'65'", "1 to 64"]),
        (vec!["crashtest", "--profile=oracle"], &["--profile", "'oracle'", "mysql-8.0"]),
        (vec!["crashtest", "--seed=x"], &["--seed", "'x'", "for example, 10"]),
        (vec!["chek", "db"], &["'chek'", "'check'"]),
        (vec!["check"], &["<DIR|SOCKET>"]),
        (vec!["check", "db", "extra"], &["'extra'"]),
    ] {
        assert_refused(&mut millpond(dir.path(), &args), texts);
    }
    let odd = std::ffi::OsStr::from_bytes(b"often\xFF");
    let mut options = millpond(dir.path(), &["options"]);
    assert_refused(options.env("MILLPOND_DURABILITY", odd), &["MILLPOND_DURABILITY", "often", "UTF-8"]);
    fs::write(dir.path().join("odd.toml"), b"\xFF").expect("a file can be written");
    assert_refused(&mut millpond(dir.path(), &["options", "--config=odd.toml"]), &["'odd.toml'", "UTF-8", "--config"]);
}

#[test]
fn misspelt_variable_is_refused_with_the_nearest_name() {
    let dir = directory();
    for args in [&["options"][..], &["bench", "oltp_insert"], &["check", "db"], &["probe", "."], &["lab", "list"]] {
        let mut command = millpond(dir.path(), args);
        command.env("MILLPOND_BUFER_POOL_SIZE", "64MiB");
        assert_refused(
            &mut command,
            &["'MILLPOND_BUFER_POOL_SIZE'", "'MILLPOND_BUFFER_POOL_SIZE'", "millpond options"],
        );
    }
    let mut known = millpond(dir.path(), &["options"]);
    assert_code(&known.env("MILLPOND_FULL", "1").output().expect("the command starts"), 0);
    assert_eq!(fs::read_dir(dir.path()).expect("it can be read").count(), 0, "nothing was made");
}

#[test]
fn control_characters_of_names_do_not_reach_the_terminal() {
    let dir = directory();
    let odd = "a\x1b[31mb\x07\nc";
    let in_option = format!("--rand-type={odd}");
    for args in [
        &["check", odd][..],
        &["probe", odd],
        &["bench", odd],
        &["bench", &in_option, "oltp_insert"],
        &["bench", "--dir", odd, "oltp_insert", "run"],
        &["options", "--config", odd],
        &["options", "--durability", odd],
        &[odd],
    ] {
        let output = run(dir.path(), args);
        assert_code(&output, 2);
        let said = err(&output);
        assert!(!said.contains(['\x1b', '\x07']), "{args:?}: {said:?}");
        assert!(said.contains("a\\u{1b}[31mb\\u{7}"), "{args:?}: {said:?}");
    }
    let mut in_variable = millpond(dir.path(), &["check", "db"]);
    let output = in_variable.env("MILLPOND_CACHED", odd).output().expect("the command starts");
    assert!(err(&output).contains("a\\u{1b}[31mb\\u{7}"), "{:?}", err(&output));
}

#[test]
fn names_of_temporary_files_are_no_part_of_an_error() {
    let dir = directory();
    for args in [&["crashtest", "--dir=/proc/none"][..], &["bench", "--report=/proc/run.html", "oltp_insert"]] {
        let output = run(dir.path(), args);
        assert_code(&output, 2);
        let said = err(&output);
        assert!(!said.contains(".tmp") && !said.contains("at path"), "{said}");
        assert!(said.contains("'/proc") && said.contains("os error"), "{said}");
    }
}

#[test]
fn tables_too_large_for_the_disk_are_refused_at_first() {
    let dir = directory();
    let texts = ["cannot fit", "4294967295 rows", "PiB", "--table-size", "--dir"];
    let many = ["bench", "--tables=10000", "--table-size=4294967295", "oltp_insert"];
    assert_refused(&mut millpond(dir.path(), &many), &texts);
    assert_refused(&mut millpond(dir.path(), &[&many[..], &["prepare"]].concat()), &texts);
    let inserts = ["bench", "--threads=4096", "--table-size=4294967295", "--data-length=4000", "insert_benchmark"];
    assert_refused(&mut millpond(dir.path(), &inserts), &[&texts[..], &["--threads"]].concat());
    assert_eq!(fs::read_dir(dir.path()).expect("it can be read").count(), 0, "nothing was made");
    // The same beside other tables, which all stay.
    prepare(dir.path());
    let more =
        ["bench", "--dir=db", "--threads=4096", "--table-size=4294967295", "--data-length=4000", "insert_benchmark"];
    assert_refused(&mut millpond(dir.path(), &more), &texts);
    let info = out(&run(dir.path(), &["info", "db"]));
    assert!(info.contains("table 'sbtest1'") && !info.contains("purchases"), "{info}");
}

#[test]
fn full_or_closed_standard_output_is_an_error_or_a_quiet_end() {
    let dir = directory();
    prepare(dir.path());
    let run_ = ["bench", "--dir=db", "--table-size=500", "--time=1", "oltp_point_select", "run"];
    for args in [&["check", "db"][..], &["info", "db"], &["status", "db"], &["dump", "log", "db"], &["options"], &run_]
    {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = millpond(dir.path(), args).stdout(full).output().expect("the command starts");
        assert_code(&output, 2);
        assert!(err(&output).contains("cannot write to standard output: No space left"), "{}", err(&output));
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let output = millpond(dir.path(), args).stdout(writer).output().expect("the command starts");
        assert_code(&output, 0);
        assert!(!err(&output).contains("error"), "{}", err(&output));
    }
}

#[test]
fn no_room_for_the_files_is_one_error_with_a_way_out() {
    let dir = directory();
    // A file may have 1 or 2 MiB, depending on the shell's unit. A larger write fails with an error instead of a
    // signal.
    let limited = |args: &str| {
        let script = format!("trap '' XFSZ; ulimit -f 2048; exec \"$0\" {args}");
        let mut command = Command::new("sh");
        command.current_dir(dir.path()).args(["-c", &script]).arg(assert_cmd::cargo::cargo_bin!("millpond"));
        command
    };
    let texts = ["no space", "'redo-0-0.mpd'", "'db'", "free some"];
    assert_refused(&mut limited("bench --dir=db oltp_insert prepare"), &texts);
    assert_refused(&mut limited("probe ."), &["cannot write './millpond-probe.tmp'", "free space there"]);
    assert_eq!(
        fs::read_dir(dir.path()).expect("it can be read").count(),
        0,
        "neither a database nor the probe's file is left"
    );
}
