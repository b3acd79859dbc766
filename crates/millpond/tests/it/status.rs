//! The status socket: its contents, its permissions, and that no client delays another, or the engine's end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use millpond::classic::{AdaptiveFlushingMethod, EmptyFreeListAlgorithm};
use millpond::inspect::Inspector;
use millpond::metrics::MetricValue;
use millpond::simulation::{SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Options};

use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{IN_PLACE, SLOW, SMALL, Shape, disk_of, open, small_options};

fn options() -> Options {
    Options::new().buffer_pool_size(ByteSize::mib(1)).redo_capacity(ByteSize::mib(4)).cached(true)
}

fn ask(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("a server listens");
    stream.write_all(request.as_bytes()).expect("sent");
    stream.shutdown(Shutdown::Write).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    text
}

#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn running_engine_tells_its_state_and_removes_its_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("status");
    let db = Db::open(dir.path().join("db"), options().status_socket(&socket)).expect("opened");
    assert_eq!(std::fs::metadata(&socket).expect("there").permissions().mode() & 0o777, 0o600);
    let tree = db.create_tree("accounts").expect("created");
    tree.put(b"ada", b"100").expect("written");
    for request in ["text\n", "\n", "", "text"] {
        let text = ask(&socket, request);
        for part in [
            "\nLOG\n",
            "  checkpoint age ",
            "\nBUFFER POOL AND MEMORY\n  memory at most       ",
            "\n  frames               64, 16.0 KiB each\n",
            "\n  pending              0 writes, 0 syncs\n",
            "\n  waits for room       0, 0.0 ms, 0 of them for a sync flush, 0 because it was full\n",
            "\n  pending reads        0\n",
            "\n  pending writes       LRU 0, flush list 0, single page 0\n",
            "  sync flushing from   never: writers are slowed down instead\n",
            "\nCLEANING AND CHECKPOINTS\n",
            "\nWAITS\n",
            "  log_flush ",
            "\nKEEPER\n  state                at work\n",
            "\nSTORE\n",
            "\nTREES\n  opened               1\n                       tree 'accounts'\n",
        ] {
            assert!(text.contains(part), "no {part:?} in the answer to {request:?}:\n{text}");
        }
    }
    assert!(db.status_text().contains("\nKEEPER\n"));
    let prometheus = ask(&socket, "prometheus\n");
    assert!(
        prometheus.contains("\n# TYPE millpond_log_syncs_total counter\nmillpond_log_syncs_total "),
        "{prometheus}"
    );
    let json: serde_json::Value = serde_json::from_str(&ask(&socket, "json\n")).expect("an object");
    assert!(json["log_syncs"].as_u64() > Some(0) && json["wait_log_flush_us"]["buckets"]["10000000"].is_u64());
    assert_eq!(json.as_object().expect("an object").len(), millpond::metrics::METRICS.len());
    assert_eq!(ask(&socket, "yaml\n"), "error: no format 'yaml': use text, prometheus or json\n");
    assert!(ask(&socket, &"x".repeat(40)).starts_with("error: no format 'xxx"));
    for request in ["GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /metrics HTTP/1.0\n"] {
        let answer = ask(&socket, request);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body.contains("\nmillpond_log_syncs_total "), "{answer}");
    }
    assert!(ask(&socket, "HEAD / HTTP/1.1\r\n\r\n").ends_with("Connection: close\r\n\r\n"));
    db.close().expect("closed");
    assert!(!socket.exists());
    assert!(UnixStream::connect(&socket).is_err());
}

/// The words of the row `name` in a text.
fn words_of<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let row = text.lines().find(|line| line.trim_start().starts_with(name));
    row.unwrap_or_else(|| unreachable!("no row {name}:\n{text}")).split_whitespace().collect()
}

#[test]
fn changes_since_the_last_look_stand_beside_the_totals() {
    run(7, || {
        let db = Db::open_on(Arc::new(SimulatedDisk::new()), small_options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        // Other values each time: an unchanged row is not logged.
        let writes = |count: u8| (0..count).for_each(|row| tree.put([row], [count]).expect("put"));
        // Class; since open: count, total, p99, longest; a bar; since the last look: count, total, mean.
        let flushes = |text: &str| {
            let words: Vec<String> = words_of(text, "log_flush ").into_iter().map(str::to_owned).collect();
            [1, 6].map(|at| words[at].parse::<u64>().expect("a count"))
        };
        writes(5);
        let first = db.status_text();
        assert!(first.contains("since open, "), "{first}");
        let [open, last] = flushes(&first);
        assert!(open == last && open >= 5, "{first}");
        writes(3);
        // Reading the numbers does not count as a look.
        assert!(!db.metrics_text().is_empty());
        assert_eq!(flushes(&db.status_text()), [open + 3, 3]);
        let text = db.status_text();
        assert!(text.contains("since the last look, "), "{text}");
        assert_eq!(flushes(&text), [open + 3, 0]);
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
        assert!(!text.contains("INDIVIDUAL") && !text.contains("LOG THREADS"), "{text}");
        db.close().expect("closed");
    });
}

/// As many instances as InnoDB has: the text has each, and together they are the pool.
#[test]
fn instances_limits_and_log_threads_are_told_where_they_are() {
    run(8, || {
        let shape = Shape {
            empty: EmptyFreeListAlgorithm::Legacy,
            flushing: AdaptiveFlushingMethod::SyncOnly,
            instances: 3,
            frames: 121,
            pipeline: true,
            ..IN_PLACE
        };
        let db = Db::open_on(Arc::new(SimulatedDisk::new()), shape.options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        (0..60).for_each(|row| tree.put([row], [1; 1_000]).expect("put"));
        let text = db.status_text();
        let pools = text.split_once("\nINDIVIDUAL BUFFER POOL INFO\n").expect("told").1;
        let of_pools: Vec<Vec<u64>> = pools
            .lines()
            .skip(1)
            .take_while(|line| !line.is_empty())
            .map(|line| line.split_whitespace().map(|word| word.parse().expect("a number")).collect())
            .collect();
        assert_eq!(of_pools.iter().map(|of| (of[0], of[1])).collect::<Vec<_>>(), [(0, 41), (1, 40), (2, 40)], "{text}");
        assert!(of_pools.iter().all(|of| of[1] == of[2] + of[3]), "{text}");
        let stats = db.stats();
        let sum = |column: usize| of_pools.iter().map(|of| of[column]).sum::<u64>();
        assert_eq!([sum(1), sum(2)], [stats.buffer_pool_pages_total, stats.buffer_pool_pages_free], "{text}");
        assert!(sum(4) > 0 && sum(4) == stats.buffer_pool_pages_dirty, "{text}");
        let metrics = db.metrics();
        for (name, column) in [("total", 1), ("free", 2), ("data", 3), ("dirty", 4)] {
            let name = format!("buffer_pool_instance_pages_{name}");
            let told = metrics.iter().find(|(of, _)| of.name == name).map(|(_, value)| value);
            let by_instance: Vec<u64> = of_pools.iter().map(|of| of[column]).collect();
            assert_eq!(told, Some(&MetricValue::Numbers(by_instance)), "{name}");
        }
        assert_eq!(words_of(&text, "free  ")[1], format!("{},", sum(2)), "{text}");
        let three_quarters = ByteSize::b(stats.log_capacity / 4 * 3).to_string();
        assert!(text.contains(&format!("  sync flushing from   {three_quarters}, ")), "{text}");
        assert!(!text.contains("taken for full at") && stats.log_max_modified_age_async == 0, "{text}");
        db.set_option("adaptive_flushing_method", "adaptive").expect("changed");
        let (text, stats) = (db.status_text(), db.stats());
        let early = ByteSize::b(stats.log_max_modified_age_async).to_string();
        assert!(text.contains(&format!("  taken for full at    {early}, ")), "{text}");
        let (early, sync) = (stats.log_max_modified_age_async, stats.log_max_modified_age_sync);
        assert!(early < sync && early > sync / 15 * 13, "{early} and {sync}");
        assert!(
            text.contains("\nLOG THREADS\n") && text.contains("  CPU use believed     not looked at yet\n"),
            "{text}"
        );
        db.close().expect("closed");
    });
}

/// Pages with a pending write in the text: for frames, for the log, by clients.
fn pending(db: &Db) -> [u64; 3] {
    let text = db.status_text();
    let words = words_of(&text, "pending writes ");
    let number = |at: usize| words[at].trim_end_matches(',').parse::<u64>().expect("a number");
    let [lru, flush_list, single] = [number(3), number(6), number(9)];
    let row = format!("  pending writes       LRU {lru}, flush list {flush_list}, single page {single}\n");
    assert!(text.contains(&row), "{text}");
    [lru, flush_list, single]
}

/// The same for written pages.
fn written(db: &Db) -> [u64; 3] {
    let stats = db.stats();
    let for_the_log = stats.buffer_flush_adaptive_total_pages + stats.buffer_flush_background_total_pages;
    let for_the_log = for_the_log + stats.buffer_flush_sync_total_pages;
    [stats.buffer_pool_pages_lru_flushed, for_the_log, stats.buffer_pool_single_page_flushes]
}

/// Kinds of writes, in the text's order.
const LRU: usize = 0;
const FLUSH_LIST: usize = 1;
const SINGLE_PAGE: usize = 2;

/// Most pages are dirty, and the device holds each write for a tenth of a second. Returns the pending writes once
/// `work` has caused one of kind `kind`, and the pages of this kind written when that has ended.
fn held(empty: EmptyFreeListAlgorithm, kind: usize, work: fn(&Db)) -> ([u64; 3], u64) {
    let shape = Shape { empty, frames: 200, ..SMALL };
    let disk = SimulatedDisk::new();
    run(9, || {
        // So large a log has nothing written for its sake.
        let options = shape.options().redo_capacity(ByteSize::mib(64)).durability(Durability::None);
        let db = open(&disk, options);
        let tree = db.create_tree("t").expect("created");
        (0..1_200).for_each(|row| put_loosely(&db, &tree, &scattered(row), &[1; 900]));
        let until = |has_come: &dyn Fn() -> bool| {
            let looks = (0..10_000).take_while(|_| !has_come()).inspect(|_| sleep_ns(10_000_000)).count();
            assert!(looks < 10_000, "it never comes: {}", db.status_text());
        };
        until(&|| pending(&db) == [0; 3]);
        disk.slow_down("data.mpd", 100_000_000);
        let of_worker = db.clone();
        let worker = spawn("worker", move || work(&of_worker)).expect("a thread");
        until(&|| pending(&db)[kind] > 0);
        let (told, before) = (pending(&db), written(&db)[kind]);
        until(&|| written(&db)[kind] > before);
        let ended = written(&db)[kind] - before;
        disk.slow_down("data.mpd", 0);
        worker.join().expect("no panic");
        until(&|| pending(&db) == [0; 3]);
        db.close().expect("closed");
        (told, ended)
    })
    .0
}

#[test]
fn writes_that_the_device_holds_are_told_by_their_kind() {
    use EmptyFreeListAlgorithm::{Backoff, Legacy};
    let update = |db: &Db| {
        let tree = db.open_tree("t").expect("there");
        (0..100).for_each(|row| put_loosely(db, &tree, &scattered(row), &[2; 900]));
    };
    let ([lru, _, single], ended) = held(Backoff, LRU, update);
    assert!(lru > 1 && lru == ended && single == 0, "{lru} of {ended}, {single}");
    let ([lru, flush_list, single], ended) = held(Legacy, FLUSH_LIST, |db| db.checkpoint().expect("done"));
    assert!(flush_list > 1 && flush_list == ended, "{flush_list} of {ended}");
    assert_eq!([lru, single], [0, 0]);
    assert_eq!(held(Legacy, SINGLE_PAGE, update), ([0, 0, 1], 1));
}

#[test]
fn transfers_in_the_device_are_told_while_it_has_them() {
    let disk = SimulatedDisk::with_image(scattered_rows(2_000, SMALL.options()), SLOW);
    run(10, || {
        let db = open(&disk, SMALL.reopen_options());
        let until = |row: &str| {
            let is_told = || db.status_text().contains(&format!("\n  {row}\n"));
            let looks = (0..20_000).take_while(|_| !is_told()).inspect(|_| sleep_ns(50_000)).count();
            assert!(looks < 20_000, "{row} never comes: {}", db.status_text());
        };
        let during = |work: fn(&Db), rows: &[&str]| {
            let of_worker = db.clone();
            let worker = spawn("worker", move || work(&of_worker)).expect("a thread");
            rows.iter().for_each(|row| until(row));
            worker.join().expect("no panic");
        };
        until("hit rate             no operations");
        let read = |db: &Db| assert!(db.open_tree("t").expect("there").get(scattered(7)).expect("read").is_some());
        during(read, &["pending reads        1"]);
        assert_eq!(db.stats().data_pending_reads, 0);
        until("hit rate             0 of 1,000 operations found all their pages in the pool");
        read(&db);
        until("hit rate             1000 of 1,000 operations found all their pages in the pool");
        let write = |db: &Db| db.open_tree("t").expect("there").put(scattered(7), b"new").expect("written");
        during(write, &["pending              1 writes, 0 syncs", "pending              0 writes, 1 syncs"]);
        until("pending              0 writes, 0 syncs");
        let syncs = db.stats().data_syncs;
        during(|db| db.checkpoint().expect("done"), &[&format!("data syncs           {}, 1 pending", syncs + 1)]);
        assert_eq!(db.stats().data_pending_syncs, 0);
        db.close().expect("closed");
    });
}

/// Some clients send nothing, some read nothing, some have gone: the others get answers, and the close waits for none
/// of them.
#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn clients_that_are_silent_hold_up_neither_others_nor_the_close() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("status");
    let db = Db::open(dir.path().join("db"), options().status_socket(&socket)).expect("opened");
    let connect = || UnixStream::connect(&socket).expect("a server listens");
    let silent = connect();
    let mut never_reads = connect();
    never_reads.write_all(b"json\n").expect("sent");
    drop(connect());
    let mut half_a_line = connect();
    half_a_line.write_all(b"prom").expect("sent");
    assert!(ask(&socket, "text\n").contains("\nLOG\n"));
    let waiting: Vec<_> = (0..5).map(|_| connect()).collect();
    db.close().expect("closed");
    drop((silent, never_reads, half_a_line, waiting));
}

/// The answer to `request` on a port of this machine.
fn ask_port(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server listens");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    text
}

#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn prometheus_is_answered_on_a_local_port_until_the_close() {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is one");
    let port = taken.local_addr().expect("it has one").port();
    let path = dir.path().join("db");
    let refused = Db::open(&path, options().metrics_port(port)).expect_err("it is taken");
    let text = refused.to_string();
    assert!(matches!(refused, Error::InvalidOptions(_)) && text.contains(&format!("metrics_port {port}")), "{text}");
    assert!(!path.join("data.mpd").exists());
    drop(taken);

    let db = Db::open(&path, options().metrics_port(port)).expect("opened");
    db.create_tree("t").expect("created").put(b"k", b"v").expect("written");
    // The server does not wait for a silent client.
    let silent = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server listens");
    let answer = ask_port(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    assert!(body.contains("\nmillpond_operation_writes_total 1\n"), "{body}");
    let begins = |request: &str, with: &str| {
        let answer = ask_port(port, request);
        assert!(answer.starts_with(with), "{request:?}: {answer}");
    };
    begins("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    begins("GET /secrets HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ");
    begins("GET http://localhost/metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    begins("GET http://localhost HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    begins("GET http://localhost/secrets HTTP/1.1\r\n\r\n", "HTTP/1.1 404 ");
    begins("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n");
    begins("nonsense\n\n", "HTTP/1.1 400 ");
    begins("GET /metrics HTTP/1.0\nHost: localhost\n\n", "HTTP/1.1 200 OK\r\n");
    // Too long a request is read and discarded: else the answer would be lost with the connection.
    begins(&format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)), "HTTP/1.1 431 ");
    assert!(ask_port(port, "HEAD / HTTP/1.1\r\n\r\n").ends_with("Connection: close\r\n\r\n"));
    db.close().expect("closed");
    drop(silent);
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}

#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn probe_of_the_socket_takes_no_look_from_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("status");
    let db = Db::open(dir.path().join("db"), options().status_socket(&socket)).expect("opened");
    let is_first = |request: &str| {
        let text = ask(&socket, request);
        assert!(text.contains("\nLOG\n"), "{text}");
        text.contains(" s since open\n")
    };
    assert_eq!(["", "\n", "", "text\n", "", "text\n"].map(is_first), [true, true, true, true, false, false]);
    db.close().expect("closed");
}

#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn impossible_socket_is_refused_before_anything_is_created() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let taken = dir.path().join("notes.txt");
    std::fs::write(&taken, "mine").expect("written");
    let served = dir.path().join("served");
    let _listener = UnixListener::bind(&served).expect("made");
    let too_long = dir.path().join("x".repeat(200));
    let other_kind = dir.path().join("datagrams");
    let _datagrams = UnixDatagram::bind(&other_kind).expect("made");
    // The server of this socket accepts no connection, like a stopped process: the open does not wait for it.
    let full = dir.path().join("full");
    let listener = UnixListener::bind(&full).expect("made");
    rustix::net::listen(&listener, 0).expect("a shorter backlog");
    let _first = UnixStream::connect(&full).expect("it has room for one");
    for (socket, why) in [
        (taken.as_path(), "not a socket"),
        (served.as_path(), "somebody serves it"),
        (full.as_path(), "somebody serves it"),
        (other_kind.as_path(), "a socket is there already"),
        (too_long.as_path(), "too long"),
        (&dir.path().join("none/status"), "No such file"),
    ] {
        let error = Db::open(&path, options().status_socket(socket)).expect_err("refused");
        let text = error.to_string();
        assert!(matches!(error, Error::InvalidOptions(_)) && text.contains(why), "{text}");
        assert!(text.contains("status_socket") && text.contains(socket.to_str().expect("a name")), "{text}");
        assert!(!path.join("data.mpd").exists());
    }
    assert_eq!(std::fs::read_to_string(&taken).expect("read"), "mine");
    assert!([served, full, other_kind].iter().all(|socket| socket.exists()), "they are others'");
}

#[test]
#[cfg_attr(not(feature = "server"), ignore = "needs the feature 'server'")]
fn socket_of_a_dead_process_is_replaced_and_a_living_one_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("status");
    drop(UnixListener::bind(&socket).expect("made"));
    assert!(socket.exists(), "no process serves it");
    let db = Db::open(dir.path().join("db"), options().status_socket(&socket)).expect("opened");
    assert!(ask(&socket, "text\n").contains("\nLOG\n"));
    // Another process puts its own socket in its place.
    std::fs::remove_file(&socket).expect("removed");
    let _listener = UnixListener::bind(&socket).expect("made");
    db.close().expect("closed");
    assert!(socket.exists());
}

#[test]
fn an_open_that_fails_leaves_no_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("status");
    let error = Db::open(dir.path(), options().create(false).status_socket(&socket)).expect_err("no database");
    assert!(!socket.exists(), "{error}");
}

#[test]
fn a_closed_database_says_how_it_was_left_and_is_not_touched() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), options()).expect("opened");
    assert!(matches!(Inspector::open(dir.path(), true), Err(Error::InUse(_))));
    db.close().expect("closed");
    assert!(Inspector::open(dir.path(), true).expect("it is free").status().is_ok());

    let disk = SimulatedDisk::new();
    let (crashed, _) = run(1, || {
        let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
        db.create_tree("t").expect("created").put(b"k", b"v").expect("written");
        let crashed = disk.crash_now(Unsynced::None);
        db.close().expect("closed");
        crashed
    });
    for (image, closed) in [(disk.image(), "yes: "), (crashed, "no: the next open redoes ")] {
        let disk = disk_of(image);
        let rows = Inspector::on(Arc::new(disk.clone())).status().expect("told");
        assert_eq!(disk.boundaries(), 0, "nothing was written");
        let value = |name: &str| rows.iter().find(|(row, _)| row == name).map(|(_, value)| value.as_str());
        assert!(value("closed").is_some_and(|value| value.starts_with(closed)), "{rows:?}");
        assert!(value("checkpoint LSN").is_some() && value("file data.mpd").is_some(), "{rows:?}");
    }
}
