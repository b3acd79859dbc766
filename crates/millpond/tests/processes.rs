//! A database and the processes that are forked from its opener. A binary of its own: the tests fork.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use millpond::inspect::{CheckOptions, check};
use millpond::{
    ByteSize, CommitTs, Db, Durability, Error, Field, IoEngine, Modify, Options, Table, TableDefinition, Tree,
    TxnOptions, WriteBatch,
};

/// One test forks at a time: a child has the other tests' databases open, too.
static TURN: Mutex<()> = Mutex::new(());

/// Seconds after which a forked process that hangs is killed.
const HANGS_AFTER_S: u32 = 60;

/// A forked process, and its output.
struct Child {
    pid: libc::pid_t,
    says: std::io::PipeReader,
}

impl Child {
    /// Forks a process that does `work`, and ends without destructors, as a killed process does.
    fn fork(work: impl FnOnce(&mut dyn Write)) -> Child {
        let (says, mut out) = std::io::pipe().expect("a pipe");
        // SAFETY: the child runs on the C library's own fork handlers, which leave its allocator usable. It touches no
        // mutex that another thread of the parent may hold, except those under test, and ends with `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: no memory is involved.
            unsafe { libc::alarm(HANGS_AFTER_S) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut out)));
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(done.is_err())) };
        }
        Child { pid, says }
    }

    /// Waits for the child's end. Returns its output.
    fn end(mut self) -> String {
        let mut said = String::new();
        self.says.read_to_string(&mut said).expect("read");
        let mut status = 0;
        // SAFETY: `status` is there to be written to.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!((waited, status), (self.pid, 0), "the forked process hung, or failed: {said}");
        said
    }
}

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options() -> Options {
    Options::new().cached(true).buffer_pool_size(ByteSize::mib(4)).redo_capacity(ByteSize::mib(16))
}

fn open(dir: &Path) -> Db {
    Db::open(dir, options()).expect("opened")
}

/// A call that must be refused.
type Call<'a> = (&'a str, Box<dyn FnMut() -> Result<(), Error> + 'a>);

fn call<'a, T>(name: &'a str, mut call: impl FnMut() -> Result<T, Error> + 'a) -> Call<'a> {
    (name, Box::new(move || call().map(drop)))
}

fn calls_of_db<'a>(db: &'a Db, tree: &'a Tree) -> Vec<Call<'a>> {
    let of_table = || TableDefinition::new().index("i", [Field::value(0..1)]);
    vec![
        call("write", move || {
            let mut batch = WriteBatch::new();
            batch.put(tree, b"k", b"v");
            db.write(batch)
        }),
        call("write nothing", || db.write(WriteBatch::new())),
        call("checkpoint", || db.checkpoint()),
        call("create_tree", || db.create_tree("another")),
        call("open_tree", || db.open_tree("t")),
        call("trees", || db.trees()),
        call("drop_tree", || db.drop_tree("t")),
        call("truncate_tree", || db.truncate_tree("t")),
        call("create_table", move || db.create_table("another", of_table())),
        call("open_table", || db.open_table("rows")),
        call("tables", || db.tables()),
        call("drop_table", || db.drop_table("rows")),
        call("truncate_table", || db.truncate_table("rows")),
        call("bulk_load", || db.bulk_load("loaded", [(b"k", b"v")])),
        call("bulk_load_unsorted", || db.bulk_load_unsorted("loaded", [(b"k", b"v")])),
        call("bulk_load_table", move || db.bulk_load_table("loaded", of_table(), [(b"k", b"v")])),
        call("set_option", || db.set_option("durability", "none")),
        call("set_buffer_pool_size", || db.set_buffer_pool_size(ByteSize::mib(2))),
        call("set_redo_capacity", || db.set_redo_capacity(ByteSize::mib(32))),
        call("set_recovery_time_target", || db.set_recovery_time_target(None)),
        call("set_max_snapshot_age", || db.set_max_snapshot_age(None)),
        call("snapshot", || db.snapshot()),
        call("close", || db.clone().close()),
    ]
}

fn calls_of_handles<'a>(tree: &'a Tree, table: &'a Table, index: &'a millpond::Index) -> Vec<Call<'a>> {
    vec![
        call("get", || tree.get(b"k")),
        call("insert", || tree.insert(b"new", b"v")),
        call("put", || tree.put(b"k", b"v")),
        call("update", || tree.update(b"k", b"v")),
        call("delete", || tree.delete(b"k")),
        call("scan", || tree.scan(..).next_row().map(drop)),
        call("scan back", || tree.scan(..).next_row_back().map(drop)),
        call("table get", || table.get(b"1")),
        call("table insert", || table.insert(b"2", b"row")),
        call("table put", || table.put(b"1", b"row")),
        call("table update", || table.update(b"1", b"row")),
        call("table delete", || table.delete(b"1")),
        call("table modify", || table.modify(b"1", |_| Modify::Delete)),
        call("table scan", || table.scan(..).next_row().map(drop)),
        call("table index", || table.index("by_all")),
        call("create_index", || table.create_index("more", [Field::value(0..1)])),
        call("create_unique_index", || table.create_unique_index("more", [Field::value(0..1)])),
        call("drop_index", || table.drop_index("by_all")),
        call("index get", || index.get(b"row")),
        call("index scan", || index.scan(..).next_entry().map(drop)),
        call("index rows", || index.rows(..).next_row().map(drop)),
    ]
}

/// Every call in a child is refused, reads find nothing, drops do nothing, and the opener's database is whole.
#[test]
fn forked_child_is_refused_each_call_and_changes_nothing() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("a directory");
    let opener = Child::fork(|out| {
        let db = open(dir.path());
        let tree = db.create_tree("t").expect("created");
        tree.put(b"k", b"v").expect("written");
        let definition = TableDefinition::new().unique("by_all", [Field::value(..)]);
        let table = db.create_table("rows", definition.clone()).expect("created");
        table.insert(b"1", b"row").expect("written");
        let index = table.index("by_all").expect("there");
        let mut load = db.begin_bulk_load("loading").expect("begun");
        load.push(b"a", b"1").expect("pushed");
        let mut table_load = db.begin_bulk_load_table("loading rows", definition).expect("begun");
        table_load.push(b"a", b"1").expect("pushed");
        let scan = tree.scan(..);
        // The child takes its copies, and drops them; the opener's stay where they are.
        let mut handles = Some((db, tree, table, index, load, table_load, scan));
        let child = Child::fork(|out| {
            let (db, tree, table, index, mut load, mut table_load, mut scan) = handles.take().expect("copies");
            let mut calls = calls_of_db(&db, &tree);
            calls.extend(calls_of_handles(&tree, &table, &index));
            calls.push(call("scan that was begun", || scan.next_row().map(drop)));
            calls.push(call("bulk load", || load.push(b"b", b"2")));
            calls.push(call("bulk load of a table", || table_load.push(b"b", b"2")));
            let refused = calls.len();
            for (name, call) in &mut calls {
                match call() {
                    Err(Error::OtherProcess(_)) => {}
                    other => writeln!(out, "{name}: {other:?}").expect("said"),
                }
            }
            drop(calls);
            let (stats, none) = (format!("{:?}", db.stats()), format!("{:?}", millpond::metrics::Stats::default()));
            if stats != none || !db.waits().is_empty() || !db.metrics().is_empty() {
                writeln!(out, "a read finds something").expect("said");
            }
            if !db.stalls().is_empty() || !db.take_slowest().is_empty() || table.indexes().next().is_some() {
                writeln!(out, "a read finds something").expect("said");
            }
            let finished = load.finish();
            if !matches!(finished, Err(Error::OtherProcess(_))) {
                writeln!(out, "finish: {finished:?}").expect("said");
            }
            drop((table_load, scan, index, table, tree, db.clone()));
            drop(db);
            writeln!(out, "{refused} refused").expect("said");
        });
        let said = child.end();
        assert_eq!(said.lines().last().and_then(|line| line.split(' ').nth(1)), Some("refused"), "{said}");
        out.write_all(said.as_bytes()).expect("said");
        let (_db, tree, _table, _index, mut load, ..) = handles.take().expect("the child took copies");
        // More than the buffers hold, durable; then the opener is killed.
        (0..500u32).for_each(|row| tree.put(row.to_be_bytes(), [7; 900]).expect("written"));
        load.push(b"b", b"2").expect("pushed");
        drop(load.finish().expect("loaded"));
    });
    let said = opener.end();
    assert_eq!(said.lines().count(), 1, "{said}");
    let db = open(dir.path());
    let tree = db.open_tree("t").expect("there");
    assert_eq!(tree.get(b"k").expect("read").as_deref(), Some(&b"v"[..]));
    assert!((0..500u32).all(|row| tree.get(row.to_be_bytes()).expect("read").is_some()));
    assert_eq!(db.open_tree("loading").expect("loaded").scan(..).count(), 2);
    assert_eq!(db.tables().expect("read"), ["rows"]);
    db.close().expect("closed");
    let mut cached = CheckOptions::default();
    cached.cached = true;
    let report = check(dir.path(), cached).expect("checked");
    assert_eq!(report.problems, [""; 0]);
}

/// A child can neither go on with a transaction nor commit it, whatever step that is at, and its drops do nothing.
#[test]
fn forked_child_goes_on_with_no_transaction_of_the_opener() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("a directory");
    let opener = Child::fork(|out| {
        let db = open(dir.path());
        let tree = db.create_tree("t").expect("created");
        let begin = |key: &str| {
            let mut txn = db.begin(TxnOptions::new().durability(Durability::None)).expect("begun");
            txn.put(&tree, key, "v").expect("written");
            txn
        };
        let ready = |key: &str| begin(key).begin_commit().expect("ready");
        let ordered = |key: &str| ready(key).order().expect("ordered");
        let mut handles = Some((begin("a"), begin("b"), ready("c"), ready("d"), ordered("e"), ordered("f")));
        let child = Child::fork(|out| {
            let (mut txn, other, of_order, dropped, of_finish, forgotten) = handles.take().expect("copies");
            let place = txn.savepoint();
            let outcomes = [
                txn.put(&tree, "x", "v").map(drop),
                txn.get(&tree, "a").map(drop),
                txn.rollback_to(place),
                txn.rollback(),
                other.commit().map(drop),
                of_order.order().map(drop),
                of_finish.finish().map(drop),
                db.begin(TxnOptions::new()).map(drop),
                db.notify_durable(CommitTs::from(1), |_| {}),
            ];
            for (number, outcome) in outcomes.into_iter().enumerate() {
                if !matches!(outcome, Err(Error::OtherProcess(_))) {
                    writeln!(out, "call {number}: {outcome:?}").expect("said");
                }
            }
            drop((dropped, forgotten));
            writeln!(out, "all refused").expect("said");
        });
        let said = child.end();
        out.write_all(said.as_bytes()).expect("said");
        let (txn, other, of_order, dropped, of_finish, _forgotten) = handles.take().expect("the child took copies");
        txn.commit().expect("committed");
        other.rollback().expect("undone");
        of_order.order().expect("ordered").finish().expect("finished");
        drop(dropped);
        of_finish.finish().expect("finished");
        db.checkpoint().expect("durable");
    });
    assert_eq!(opener.end(), "all refused\n");
    let db = open(dir.path());
    let keys = db.open_tree("t").expect("there").scan(..).map(|row| row.expect("read").0).collect::<Vec<_>>();
    assert_eq!(keys, ["a", "c", "e", "f"].map(|key| key.as_bytes().to_vec()));
    db.close().expect("closed");
}

/// A daemon that opened before its last fork: the child waits for no threads that it does not have.
#[test]
fn daemon_that_opened_before_its_fork_is_told_so_at_once() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("a directory");
    let opener = Child::fork(|out| {
        let db = Db::open(dir.path(), options().durability(Durability::Background(50))).expect("opened");
        let tree = db.create_tree("t").expect("created");
        tree.put(b"k", b"v").expect("written");
        let daemon = Child::fork(|out| {
            let refused = (0..10_000u32).filter(|row| tree.put(row.to_be_bytes(), [1; 300]).is_err()).count();
            let why = tree.put(b"k", b"w").expect_err("refused").to_string();
            write!(out, "{refused} {}", why.contains("forked") && why.contains("open the database behind the fork"))
                .expect("said");
        });
        out.write_all(daemon.end().as_bytes()).expect("said");
    });
    assert_eq!(opener.end(), "10000 true");
}

/// The close releases the lock, though a sleeping child has the files open.
#[test]
fn closed_database_is_free_while_a_child_sleeps() {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let (mut asleep, mut wake) = std::io::pipe().expect("a pipe");
    let child = Child::fork(|out| {
        asleep.read_exact(&mut [0; 1]).expect("woken");
        write!(out, "woken").expect("said");
    });
    db.close().expect("closed");
    let db = open(dir.path());
    db.create_tree("t").expect("created");
    db.close().expect("closed");
    wake.write_all(b"!").expect("told");
    assert_eq!(child.end(), "woken");
}

/// The user of the test below, with no other threads to count against its limit.
const LONELY_USER: u32 = 54_321;

/// Changes the process to a user with a limit of `threads` threads. No privilege is left to exceed the limit.
fn become_lonely_user(threads: u64) {
    let limit = libc::rlimit { rlim_cur: threads, rlim_max: threads };
    // SAFETY: `limit` is there to be read; the other two take numbers.
    let done = unsafe {
        [libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit), libc::setgid(LONELY_USER), libc::setuid(LONELY_USER)]
    };
    assert_eq!(done, [0; 3], "{}", std::io::Error::last_os_error());
}

/// Whether the database opens, with its rows, for a user that may have `threads` threads.
fn opens_with(path: &Path, threads: u64, engine: IoEngine) -> bool {
    let opener = Child::fork(|out| {
        become_lonely_user(threads);
        let opened = Db::open(path, options().io_engine(engine));
        let rows = opened.map(|db| db.open_tree("t").map(|tree| tree.scan(..).filter(|row| row.is_ok()).count()));
        match rows {
            Ok(rows) => write!(out, "{}", rows.expect("there")).expect("said"),
            Err(error) => assert!(error.to_string().contains("thread"), "{error}"),
        }
    });
    let said = opener.end();
    assert!(said.is_empty() || said == "900", "{said}");
    !said.is_empty()
}

/// A killed database opens with as few threads as a closed one: the caller does the redo.
#[test]
fn killed_database_opens_with_as_few_threads_as_a_closed_one() {
    let _turn = turn();
    // SAFETY: returns a number.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can become a user without other threads");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(dir.path(), Some(LONELY_USER), Some(LONELY_USER)).expect("given away");
    let few = |is_killed: bool| {
        let path = dir.path().join(if is_killed { "killed" } else { "closed" });
        let writer = Child::fork(|_| {
            become_lonely_user(100);
            let db = open(&path);
            let tree = db.create_tree("t").expect("created");
            (0..900u32).for_each(|row| tree.put(row.to_be_bytes(), [7; 900]).expect("written"));
            if !is_killed {
                drop(tree);
                db.close().expect("closed");
            }
        });
        writer.end();
        let opens = |threads, engine| opens_with(&path, threads, engine);
        let least = (1..20).find(|threads| opens(*threads, IoEngine::Auto)).expect("it opens with 20 threads");
        // Without io_uring, the threads for transfers take no place that the engine needs.
        let refused: Vec<u64> = (least..least + 16).filter(|threads| !opens(*threads, IoEngine::Threads)).collect();
        assert!(refused.is_empty(), "it opens with {least} threads, and does not with {refused:?}");
        least
    };
    let (closed, killed) = (few(false), few(true));
    assert_eq!(killed, closed, "threads that a killed and a closed database need");
}
