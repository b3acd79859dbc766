//! Requests to a running engine on its status socket: reads at one snapshot, a check, a backup, and their ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::{ByteSize, Db, Field, Options, OwnedRow, TableDefinition, TxnOptions, WorkOptions, restore};
use millpond_server::{Answer, AskError, Bytes, Facts, Request, Rows, ask};

/// Accounts, which have this sum at every moment.
const ACCOUNTS: u32 = 500;

const SUM: u64 = 1000 * ACCOUNTS as u64;

fn options(dir: &Path) -> Options {
    let small = Options::new().buffer_pool_size(ByteSize::mib(2)).redo_capacity(ByteSize::mib(8)).cached(true);
    small.status_socket(dir.join("sock"))
}

/// A value: the balance, then the account's number as an index has it.
fn account(number: u32, balance: u64) -> Vec<u8> {
    [&balance.to_be_bytes()[..], &(u32::MAX - number).to_be_bytes()].concat()
}

fn balance(value: &[u8]) -> u64 {
    u64::from_be_bytes(*value.first_chunk().expect("8 bytes"))
}

fn open(dir: &Path) -> Db {
    let db = Db::open(dir.join("db"), options(dir)).expect("opened");
    let indexes = TableDefinition::new().unique("back", [Field::value(8..12)]).index("balance", [Field::value(0..8)]);
    let table = db.create_table("accounts", indexes).expect("created");
    (0..ACCOUNTS).for_each(|number| table.insert(number.to_be_bytes(), account(number, 1000)).expect("inserted"));
    db
}

/// Moves money between accounts until it is to stop.
fn transfer(db: &Db, is_over: &AtomicBool) {
    let table = db.open_table("accounts").expect("there");
    let mut turn = 0u32;
    while !is_over.load(Ordering::Relaxed) {
        turn += 1;
        let accounts = [turn * 7 % ACCOUNTS, turn * 13 % ACCOUNTS];
        if accounts[0] == accounts[1] {
            continue;
        }
        let mut txn = db.begin(TxnOptions::new()).expect("begun");
        let [from, to] = accounts.map(|number| number.to_be_bytes());
        let [has, gets] = [from, to].map(|key| balance(&txn.get(&table, key).expect("read").expect("there")));
        let moved = u64::from(turn % 5).min(has);
        txn.put(&table, from, account(accounts[0], has - moved)).expect("written");
        txn.put(&table, to, account(accounts[1], gets + moved)).expect("written");
        txn.commit().expect("committed");
    }
}

fn rows(of: &str) -> Rows {
    Rows { of: of.to_owned(), ..Rows::default() }
}

/// The rows of an answer, and its facts.
fn answer(dir: &Path, request: &Request) -> Result<(Vec<OwnedRow>, Facts), String> {
    let mut rows = Vec::new();
    let facts = ask(&dir.join("sock"), request, |answer| {
        if let Some(Answer::Row { key, value }) = answer {
            rows.push((key.0, value.0));
        }
        ControlFlow::Continue(())
    });
    match facts {
        Ok(facts) => Ok((rows, facts.expect("to its end"))),
        Err(AskError::Refused(why)) => Err(why),
        Err(other) => Err(format!("{other:?}")),
    }
}

fn path_of(path: &Path) -> Bytes {
    Bytes(path.as_os_str().as_bytes().to_vec())
}

/// Does `work` while a thread moves money.
fn beside_transfers<T>(db: &Db, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| transfer(db, &is_over));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn reads_of_other_processes_are_of_one_snapshot() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    beside_transfers(&db, || {
        for turn in 0..20 {
            let index = [None, Some("back"), Some("balance")][turn % 3];
            let request = Rows { index: index.map(str::to_owned), is_reverse: turn % 2 == 1, ..rows("accounts") };
            let (mut found, facts) = answer(dir.path(), &Request::Scan(request.clone())).expect("answered");
            assert_eq!(facts, [("rows".to_owned(), ACCOUNTS.to_string())]);
            assert_eq!(found.iter().map(|(_, value)| balance(value)).sum::<u64>(), SUM, "{request:?}");
            if request.is_reverse {
                found.reverse();
            }
            let is_sorted = match index {
                None => found.is_sorted_by_key(|(key, _)| key.clone()),
                Some("back") => found.is_sorted_by_key(|(_, value)| value[8..].to_vec()),
                Some(_) => found.is_sorted_by_key(|(key, value)| (value[..8].to_vec(), key.clone())),
            };
            assert!(is_sorted, "{request:?}");
            let (_, facts) = answer(dir.path(), &Request::Count(request)).expect("answered");
            assert_eq!(facts, [("rows".to_owned(), ACCOUNTS.to_string())]);
        }
    });
    let key = |number: u32| Some(Bytes(number.to_be_bytes().to_vec()));
    let part = Rows { from: key(10), before: key(20), limit: Some(3), is_reverse: true, ..rows("accounts") };
    let (found, _) = answer(dir.path(), &Request::Scan(part)).expect("answered");
    assert_eq!(found.iter().map(|(key, _)| key[3]).collect::<Vec<_>>(), [19, 18, 17]);
    let get = |number: u32| Request::Get { of: "accounts".to_owned(), key: Bytes(number.to_be_bytes().to_vec()) };
    assert_eq!(answer(dir.path(), &get(7)).expect("answered").0.len(), 1);
    assert_eq!(answer(dir.path(), &get(ACCOUNTS)).expect("answered").0, []);
    for (request, part) in [
        (Request::Count(rows("films")), "no tree or table 'films'"),
        (Request::Scan(Rows { index: Some("x".to_owned()), ..rows("accounts") }), "has no index 'x'"),
        (Request::Backup { to: Bytes(b"relative".to_vec()), rate: None }, "'relative' is not absolute"),
    ] {
        let why = answer(dir.path(), &request).expect_err("refused");
        assert!(why.contains(part), "{why}");
    }
    let facts = answer(dir.path(), &Request::Info {}).expect("answered").1;
    assert!(facts.iter().any(|(name, value)| name == "  index 'back'" && value.contains("unique")), "{facts:?}");
    db.close().expect("closed");
}

#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn check_and_backup_of_another_process_go_on_beside_writers() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let to = dir.path().join("backup");
    beside_transfers(&db, || {
        for _ in 0..3 {
            let (_, facts) = answer(dir.path(), &Request::Check { rate: None }).expect("answered");
            assert!(facts.iter().all(|(name, _)| name != "problem"), "{facts:?}");
            let entries = (2 * ACCOUNTS).to_string();
            assert!(facts.contains(&("in indexes".to_owned(), entries)), "{facts:?}");
        }
        let (_, facts) = answer(dir.path(), &Request::Backup { to: path_of(&to), rate: None }).expect("answered");
        assert!(facts.iter().any(|(name, _)| name == "LSN"), "{facts:?}");
    });
    let why = answer(dir.path(), &Request::Backup { to: path_of(&to), rate: None }).expect_err("refused");
    assert!(why.contains("is not empty"), "{why}");
    db.close().expect("closed");
    restore(&to, dir.path().join("db2"), WorkOptions::new()).expect("restored");
    let db = Db::open(dir.path().join("db2"), Options::new().cached(true)).expect("opened");
    let table = db.open_table("accounts").expect("there");
    let sum: u64 = table.scan(..).map(|row| balance(&row.expect("read").1)).sum();
    assert_eq!(sum, SUM);
}

/// A bit of each image in the data file is flipped, once the images are clean.
#[test]
fn check_of_an_open_database_names_damaged_images() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    db.checkpoint().expect("written");
    let sound = db.check(WorkOptions::new()).expect("checked");
    assert_eq!(sound.problems, Vec::<String>::new());
    let data = std::fs::File::options().read(true).write(true).open(dir.path().join("db/data.mpd")).expect("there");
    let len = data.metadata().expect("there").len();
    let mut byte = [0];
    for at in (1 << 20..len).step_by(4096) {
        data.read_exact_at(&mut byte, at + 2000).expect("read");
        data.write_all_at(&[byte[0] ^ 1], at + 2000).expect("written");
    }
    let report = db.check(WorkOptions::new()).expect("checked");
    assert_eq!(report.pages, sound.pages);
    assert!(report.problems.len() as u64 >= sound.pages / 2, "{} of {}", report.problems.len(), sound.pages);
    assert!(report.problems[0].starts_with("page ") && report.problems[0].contains("run `millpond check`"));
    // A backup is refused, in the words of the first problem.
    let refused = db.backup(dir.path().join("backup"), WorkOptions::new()).expect_err("damaged").to_string();
    assert!(report.problems.iter().any(|problem| refused.contains(problem.as_str())), "{refused}");
}

#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn close_ends_a_scan_whose_client_takes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let large = db.create_tree("large").expect("created");
    (0..3000u32).for_each(|key| large.put(key.to_be_bytes(), [0xFF; 1000]).expect("written"));
    let mut client = UnixStream::connect(dir.path().join("sock")).expect("a server listens");
    client.write_all(b"{\"scan\": {\"of\": \"large\"}}\n").expect("sent");
    let mut reader = BufReader::new(client);
    let mut line = String::new();
    reader.read_line(&mut line).expect("the scan is under way");
    assert!(line.starts_with("{\"row\":{\"key\":\"\\u0000"), "{line}");
    db.close().expect("closed");
    let mut rest = String::new();
    // The connection ends, with an error or without.
    let _ = reader.read_to_string(&mut rest);
    assert!(!rest.contains("{\"done\""), "the answer is not whole");
}

/// A bit is flipped in the map pages, then in the log.
#[test]
fn check_of_an_open_database_reads_log_and_map_in_their_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let told = |part: &str| {
        let problems = db.check(WorkOptions::new()).expect("checked").problems;
        let found = problems.iter().any(|problem| problem.contains(part));
        assert_eq!(found, !part.is_empty(), "{part}: {problems:?}");
        assert!(!part.is_empty() || problems.is_empty(), "{problems:?}");
    };
    let flip = |name: &str, at: u64| {
        let file = std::fs::File::options().read(true).write(true).open(dir.path().join("db").join(name));
        let (file, mut byte) = (file.expect("there"), [0]);
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 1], at).expect("written");
    };
    // More pages than the map directory holds entries.
    let large = db.create_tree("large").expect("created");
    (0..300u32).for_each(|key| large.put(key.to_be_bytes(), [1; 1000]).expect("written"));
    // Dirty map pages would be written again.
    db.checkpoint().expect("taken");
    told("");
    let map = std::fs::read(dir.path().join("db/map.mpd")).expect("read");
    let pages: Vec<u64> =
        (1..).zip(map.chunks(4096).skip(1)).filter(|page| page.1[0] != 0).map(|page| page.0).collect();
    // Of each map page that was ever written: some are in use.
    pages.iter().for_each(|page| flip("map.mpd", page * 4096 + 100));
    told("map page ");
    pages.iter().for_each(|page| flip("map.mpd", page * 4096 + 100));
    told("");
    let rows = db.create_tree("rows").expect("created");
    (0..2000u32).for_each(|key| rows.put(key.to_be_bytes(), [1; 100]).expect("written"));
    let stats = db.stats();
    let middle = stats.log_lsn_last_checkpoint.midpoint(stats.log_lsn_current);
    let (file, offset) = (middle / (4 << 20), middle % (4 << 20));
    flip(&format!("redo-0-{file}.mpd"), 4096 + offset);
    let problems = db.check(WorkOptions::new()).expect("checked").problems;
    // Or the pages were written meanwhile, and the log is not needed any more.
    let is_told = problems.iter().any(|problem| problem.contains("the log ends at LSN"));
    assert!(is_told || db.stats().log_lsn_last_checkpoint > middle, "{problems:?}");
    db.checkpoint().expect("taken");
    told("");
}
