//! A lack of threads gives one clear error, wherever the command needs the next thread.

use std::fs;
use std::os::unix::process::CommandExt;

use super::bad_input::for_a_user;
use super::*;

/// A user id only for these tests: the limit counts all threads of a user.
const USER: u32 = 61_843;

/// Limits of threads: none left for the engine, some of its threads, some of the load's threads, enough.
const LIMITS: [u32; 6] = [1, 4, 7, 8, 9, MOST];

/// More than the engine needs, and fewer than the largest request.
const MOST: u32 = 40;

/// Runs the command with at most `threads` threads, its first one included. The superuser has no such limit, so the
/// command runs as another user. For any other caller all threads of that user count, so that none is left.
fn under(threads: u32, dir: &Path, command: &Path, args: &[&str]) -> Output {
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nproc={threads}:{threads}")).arg(command).args(args);
    if rustix::process::geteuid().is_root() {
        limited.uid(USER).gid(USER);
    }
    limited.current_dir(dir).env("MILLPOND_CACHED", "true").output().expect("prlimit is there")
}

/// A directory that the user may write to, and the command beside it.
fn place() -> (TempDir, std::path::PathBuf) {
    let (dir, command) = for_a_user();
    fs::create_dir(dir.path().join("own")).expect("a directory can be made");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(dir.path().join("own"), Some(USER), Some(USER)).expect("it can be given away");
    }
    (dir, command)
}

#[test]
fn too_few_threads_end_in_an_error_and_never_in_a_panic() {
    let (dir, command) = place();
    let own = dir.path().join("own");
    let (mut refused, mut ran) = (0, 0);
    for threads in LIMITS {
        for (number, args) in [
            &["bench", "--table-size=400", "--tables=2", "--threads=2", "--time=0", "--events=20", "oltp_insert"][..],
            &["bench", "--table-size=100", "--threads=2", "--steps=l.i0,qp10", "--time=1", "insert_benchmark"],
            &["crashtest", "--rounds=1", "--seed=3", "--threads=2"],
        ]
        .into_iter()
        .enumerate()
        {
            let dir_option = format!("--dir=db-{threads}-{number}");
            let args = [&args[..1], &[dir_option.as_str()][..], &args[1..]].concat();
            let output = under(threads, &own, &command, &args);
            let (said, code) = (err(&output), output.status.code());
            assert!(!said.contains("panicked"), "{args:?} with {threads} threads: {said}");
            // A failed start says nothing about the database, so the exit code is never 1.
            assert!(matches!(code, Some(0 | 2)), "{args:?} with {threads} threads: {code:?}, {said}");
            assert!(code == Some(0) || said.contains("error: "), "{args:?}: {said}");
            if code == Some(0) { ran += 1 } else { refused += 1 }
        }
    }
    // With one thread nothing runs. With forty all commands run, unless the user's other threads count, too.
    assert!(refused >= 3 && (ran >= 3 || !rustix::process::geteuid().is_root()), "{refused} refused, {ran} ran");
}

#[test]
fn load_without_threads_names_the_limit_and_leaves_no_table() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, command) = place();
    let own = dir.path().join("own");
    let bench = |limit, threads: &str| {
        under(limit, &own, &command, &["bench", "--dir=db", "--table-size=500", threads, "oltp_insert", "prepare"])
    };
    let output = bench(MOST, "--threads=64");
    assert_code(&output, 2);
    let said = err(&output);
    for text in ["cannot start load thread ", " of 64", "limit of threads", "ulimit -u", "pids.max", "fewer --threads"]
    {
        assert!(said.contains(text), "no {text} in: {said}");
    }
    let loaded = bench(MOST, "--threads=2");
    assert_code(&loaded, 0);
    assert!(err(&loaded).contains("loaded sbtest1 with 500 rows"), "{}", err(&loaded));
    let args = ["bench", "--dir=db", "--table-size=500", "--threads=64", "oltp_insert", "run"];
    let output = under(MOST, &own, &command, &args);
    assert_code(&output, 2);
    assert!(
        err(&output).contains("cannot start load thread ") && err(&output).contains("ulimit -u"),
        "{}",
        err(&output)
    );
}
