//! A database's directory on a real file system: how it is found, and which processes may open it.

use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use millpond::inspect::{CheckOptions, Inspector, check};
use millpond::{ByteSize, Db, Error, GroupAccess, Options};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};

fn options() -> Options {
    Options::new().buffer_pool_size(ByteSize::mib(1)).redo_capacity(ByteSize::mib(4)).cached(true)
}

/// Set in a process that a test starts for a part of its work.
pub(crate) const CHILD: &str = "MILLPOND_TEST_CHILD";

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// This test again, in a process of its own with working directory `dir`.
fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", &format!("directory::{test}"), "--nocapture"]).env(CHILD, "1").current_dir(dir);
    command
}

/// Runs a test's part in a process of its own. Returns its output.
fn run_child(test: &str, dir: &Path) -> String {
    let output = child(test, dir).output().expect("started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    said
}

/// Makes and removes files of another log and of a sort. Meanwhile it looks for the sort's files in `place`.
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

/// Regression: the new log was looked for in the new working directory.
#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
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

/// The permissions of a directory, and of the files in it.
fn modes(dir: &Path) -> (u32, Vec<(String, u32)>) {
    let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o7777;
    let entries = std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry"));
    (mode(dir), entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), mode(&entry.path()))).collect())
}

#[test]
fn files_are_the_owners_alone_unless_the_group_is_given_some() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = dir.path().join("above/db");
    let is = |wanted_dir: u32, wanted: u32| {
        let (of_dir, files) = modes(&db);
        assert!(files.len() >= 9, "{files:?}");
        assert!(of_dir == wanted_dir && files.iter().all(|(_, mode)| *mode == wanted), "{of_dir:o} {files:?}");
    };
    let (read, write) = (GroupAccess::Read, GroupAccess::Write);
    for (asked, wanted_dir, wanted) in [
        (None, 0o700, 0o600),
        (Some(read), 0o750, 0o640),
        // Permissions are kept: also for the files of the new log.
        (None, 0o750, 0o640),
        (Some(write), 0o770, 0o660),
        (None, 0o770, 0o660),
        (Some(GroupAccess::None), 0o770, 0o600),
    ] {
        let options = asked.map_or_else(options, |access| options().group_access(access));
        let open = Db::open(&db, options).expect("opened");
        is(wanted_dir, wanted);
        open.set_redo_capacity(ByteSize::mib(6)).expect("a new log is made");
        is(wanted_dir, wanted);
        open.close().expect("closed");
    }
    assert_eq!(modes(&dir.path().join("above")).0, 0o700);
}

/// Older versions made files that all users could read.
#[test]
fn writer_open_removes_permissions_for_others_from_files() {
    let dir = tempfile::tempdir().expect("a directory");
    Db::open(dir.path(), options()).expect("opened").close().expect("closed");
    let give = |mode: u32| {
        for (name, _) in modes(dir.path()).1 {
            let path = dir.path().join(name);
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
        }
    };
    for (had, wanted) in [(0o644, 0o640), (0o666, 0o660), (0o604, 0o600)] {
        give(had);
        Db::open(dir.path(), options().read_only(true)).expect("opened").close().expect("closed");
        assert!(modes(dir.path()).1.iter().all(|(_, mode)| *mode == had), "a reader changes nothing");
        Db::open(dir.path(), options()).expect("opened").close().expect("closed");
        let files = modes(dir.path()).1;
        assert!(files.iter().all(|(_, mode)| *mode == wanted), "{files:?}");
    }
}

/// Does `deed` as another user, of this group. False: this process has no permission for that.
pub(crate) fn as_another_user(group: u32, deed: impl FnOnce() + Send) -> bool {
    let other = 65_534;
    let deed = move || {
        use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let (user, group) = (Uid::from_raw(other), Gid::from_raw(group));
        let is_other = set_thread_groups(&[])
            .and_then(|()| set_thread_res_gid(Some(group), Some(group), Some(group)))
            .and_then(|()| set_thread_res_uid(Some(user), Some(user), Some(user)));
        if is_other.is_ok() {
            deed();
        }
        is_other.is_ok()
    };
    // Only this thread changes its user.
    std::thread::scope(|scope| scope.spawn(deed).join().expect("it went well"))
}

/// Regression: another user's `check` took the lock, and the owner was refused.
#[test]
fn other_user_is_refused_by_permission_before_any_lock() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    let path = dir.path().join("db");
    // As an administrator may create it: all users may enter.
    std::fs::create_dir(&path).expect("made");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    let db = Db::open(&path, options()).expect("opened");
    let look = || {
        let refused = Inspector::open(&path, true).err().expect("refused");
        assert!(matches!(refused, Error::Permission(_)), "{refused}");
        let refused = Db::open(&path, options().create(false)).expect_err("refused");
        assert!(matches!(refused, Error::Permission(_)), "{refused}");
        // The answer is the same whether the database is open or not, and nothing is locked.
    };
    let own = std::fs::metadata(&path).expect("there").gid();
    let is_possible = as_another_user(own, look);
    db.close().expect("closed");
    if !is_possible {
        eprintln!("skipped: only root can act for another user");
        return;
    }
    assert!(as_another_user(own, look));
    Db::open(&path, options().group_access(GroupAccess::Read)).expect("opened").close().expect("closed");
    assert!(as_another_user(own, || {
        let looked = Inspector::open(&path, true).expect("the group may look");
        looked.info().expect("told");
        assert!(matches!(Db::open(&path, options()), Err(Error::Permission(_))));
    }));
    assert!(as_another_user(own + 1, look));
    Db::open(&path, options().group_access(GroupAccess::Write)).expect("opened").close().expect("closed");
    assert!(as_another_user(own, || Db::open(&path, options()).expect("the group may").close().expect("closed")));
}

fn in_use<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::InUse(message)) => message.into(),
        Err(other) => unreachable!("not in use, but {other}"),
        Ok(_) => unreachable!("it was opened"),
    }
}

#[test]
fn readers_share_a_database_and_a_writer_is_told_of_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opened");
    let own = format!("in use by this process ({})", std::process::id());
    assert!(in_use(Db::open(dir.path(), options())).contains(&own));
    assert!(in_use(Inspector::open(dir.path(), true)).contains(&own));
    assert_eq!(
        std::fs::read_to_string(dir.path().join("lock.mpd")).expect("read").trim(),
        std::process::id().to_string()
    );
    db.close().expect("closed");
    assert_eq!(std::fs::read_to_string(dir.path().join("lock.mpd")).expect("read"), "");
    let reader = Inspector::open(dir.path(), true).expect("no process writes");
    let mut cached = CheckOptions::default();
    cached.cached = true;
    check(dir.path(), cached).expect("two may read");
    assert!(in_use(Db::open(dir.path(), options())).contains(&own));
    drop(reader);
    Db::open(dir.path(), options()).expect("no process reads").close().expect("closed");
}

/// Reopens the files of this process that carry the lock of `dir`, as a forked child has them.
fn lock_files(dir: &Path) -> [OwnedFd; 2] {
    let own = Pid::from_raw(std::process::id().cast_signed()).expect("a process id");
    let process = pidfd_open(own, PidfdFlags::empty()).expect("opened");
    let again = |path: &Path| {
        let path = std::fs::canonicalize(path).expect("there");
        let files = std::fs::read_dir("/proc/self/fd").expect("listed").map(|entry| entry.expect("an entry"));
        let file = { files }.find(|file| std::fs::read_link(file.path()).is_ok_and(|link| link == path));
        let number = file.expect("open").file_name().to_str().expect("a number").parse().expect("a number");
        pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).expect("this process's")
    };
    [again(&dir.join("lock.mpd")), again(dir)]
}

/// A sleeping process that has these files.
fn sleeper([lock, dir]: [OwnedFd; 2]) -> Child {
    Command::new("sleep").arg("1000").stdin(lock).stderr(dir).stdout(Stdio::null()).spawn().expect("started")
}

/// Kills a process that may be another one's child, and waits until it has ended.
fn end(pid: u32) {
    let process = Pid::from_raw(pid.cast_signed()).expect("a process id");
    let process = pidfd_open(process, PidfdFlags::empty()).expect("it lives");
    rustix::process::pidfd_send_signal(&process, Signal::KILL).expect("sent");
    let mut ended = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, None).expect("it has ended");
}

#[test]
fn close_releases_the_lock_while_a_forked_process_has_the_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opened");
    let mut child = sleeper(lock_files(dir.path()));
    db.close().expect("closed");
    let db = Db::open(dir.path(), options());
    end(child.id());
    child.wait().expect("ended");
    db.expect("opened again").close().expect("closed");
}

/// A process opens the database, forks, and is killed: the child has the lock.
#[test]
fn in_use_names_the_living_holder_when_the_opener_was_killed() {
    let test = "in_use_names_the_living_holder_when_the_opener_was_killed";
    if is_child() {
        let here = std::env::current_dir().expect("known");
        let _db = Db::open("db", options()).expect("opened");
        let mut child = sleeper(lock_files(&here.join("db")));
        println!("child {}", child.id());
        // The parent test checks, and kills this process first.
        child.wait().expect("ended");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut opener = child(test, dir.path()).stdout(Stdio::piped()).spawn().expect("started");
    let mut said = BufReader::new(opener.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let sleeper = said.find_map(|line| line.split_once("child ")?.1.trim().parse().ok()).expect("it says so");
    let message = in_use(Db::open(dir.path().join("db"), options()));
    let both = [opener.id(), sleeper].map(|pid: u32| format!("process {pid} ("));
    assert!(both.iter().all(|pid| message.contains(pid)) && message.contains(" and "), "{message}");
    opener.kill().expect("killed");
    opener.wait().expect("ended");
    let message = in_use(Db::open(dir.path().join("db"), options()));
    assert!(message.contains(&format!("in use by process {sleeper} (sleep): close")), "{message}");
    end(sleeper);
    Db::open(dir.path().join("db"), options()).expect("it is free").close().expect("closed");
}

#[test]
fn first_open_that_is_refused_leaves_no_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = Db::open(dir.path().join("a/b/db"), options().status_socket(dir.path().join("none/socket")));
    assert!(refused.expect_err("no such directory").to_string().contains("status_socket"));
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
    // An existing directory stays.
    std::fs::create_dir(dir.path().join("a")).expect("made");
    let refused = Db::open(dir.path().join("a"), options().status_socket(dir.path().join("none/socket")));
    refused.expect_err("no such directory");
    assert_eq!(std::fs::read_dir(dir.path().join("a")).expect("listed").count(), 0);
}

/// Regression: a default open filled the disk, failed, and left half a log on it.
#[test]
fn default_open_on_a_small_disk_names_a_log_and_leaves_nothing() {
    let test = "default_open_on_a_small_disk_names_a_log_and_leaves_nothing";
    if !is_child() {
        let dir = tempfile::tempdir().expect("a directory");
        let mount = "mount -t tmpfs -o size=20m millpond \"$1\" && cd \"$1\" && shift && exec \"$@\"";
        let mut with_disk = Command::new("unshare");
        with_disk.args(["--mount", "sh", "-c", mount, "sh"]).arg(dir.path());
        let ran = with_disk.arg(std::env::current_exe().expect("known"));
        let ran = ran.args(["--exact", &format!("directory::{test}"), "--nocapture"]).env(CHILD, "1").output();
        let said = ran
            .map_or_else(|e| e.to_string(), |ran| String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into());
        if said.contains("Operation not permitted") || said.contains("permission denied") {
            eprintln!("not looked at: only root can mount a file system");
            return;
        }
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    let options = || Options::new().cached(true);
    let refused = Db::open("new/db", options()).expect_err("16 MiB do not fit beside the other files");
    assert!(matches!(refused, Error::OutOfSpace(_)), "{refused}");
    let text = refused.to_string();
    assert_eq!(std::fs::read_dir(".").expect("listed").count(), 0, "{text}");
    let fitting = text.split_once("set redo_capacity to ").expect(&text).1.split_once(' ').expect(&text).0.to_owned();
    let info = millpond::OptionInfo::find("redo_capacity").expect("there is one");
    let db = Db::open("new/db", info.set(options(), &fitting).expect("a size")).expect("it fits");
    let tree = db.create_tree("t").expect("created");
    tree.put(b"k", b"v").expect("written");
    db.close().expect("closed");
    println!("{text}");
}

/// Opens a database in a process with a limit set by `ulimit`. Returns the error.
fn refused_under(test: &str, limit: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"]).arg(std::env::current_exe().expect("known"));
    limited.args(["--exact", &format!("directory::{test}"), "--nocapture"]).env(CHILD, "1").current_dir(dir.path());
    let ran = limited.output().expect("started");
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    let refused = said.lines().find_map(|line| line.split_once("refused: "));
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0, "{said}");
    refused.expect(&said).1.to_owned()
}

#[test]
fn limits_of_files_and_memory_are_named_and_leave_nothing() {
    if is_child() {
        let options = Options::new().cached(true).page_size(ByteSize::kib(64)).redo_capacity(ByteSize::mib(64));
        let refused = Db::open("db", options.buffer_pool_size(ByteSize::gib(8))).expect_err("refused");
        assert!(matches!(refused, Error::LimitReached(_)), "{refused}");
        println!("refused: {refused}");
        // A complete database does not count as a leftover here.
        if Path::new("db/data.mpd").exists() {
            std::fs::remove_dir_all("db").expect("removed");
        }
        return;
    }
    let test = "limits_of_files_and_memory_are_named_and_leave_nothing";
    let files = refused_under(test, "-n 10");
    assert!(files.contains("`ulimit -n`"), "{files}");
    let memory = refused_under(test, "-v 4000000");
    assert!(memory.contains("`buffer_pool_size`"), "{memory}");
}
