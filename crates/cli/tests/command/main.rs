//! The command as people and scripts use it: small runs, wrong usage, interrupts.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use millpond::{Db, Options};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

mod bad_input;
mod bench_output;
mod bench_tables;
mod examples;
mod insert_benchmark;
mod lab;
mod options;
mod orders;
mod rows;
mod running;
mod sysbench;
mod thread_limit;
mod top;
mod verify;

/// A directory on the file system of the build, which is on a real device.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build's own directory can be written to")
}

fn millpond(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("millpond"));
    command.current_dir(dir).args(args);
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    millpond(dir, args).output().expect("the command starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stdout:\n{}\nstderr:\n{}", out(output), err(output));
}

/// The number after `name` in a line.
#[track_caller]
fn field(line: &str, name: &str) -> f64 {
    let number = line.split_once(name).map(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].parse()
    });
    assert!(matches!(number, Some(Ok(_))), "no number after '{name}' in: {line}");
    number.and_then(Result::ok).unwrap_or(f64::NAN)
}

const TINY: [&str; 4] = ["bench", "--table-size=500", "--tables=2", "--time=2"];

fn bench<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&TINY[..], more].concat()
}

#[test]
fn bench_loads_runs_and_prints_lines_that_scripts_can_parse() {
    let dir = directory();
    let output = run(dir.path(), &bench(&["--threads=4", "oltp_update_index"]));
    assert_code(&output, 0);
    let text = out(&output);
    let intervals: Vec<&str> = text.lines().filter(|line| line.starts_with("[ ")).collect();
    assert_eq!(intervals.len(), 4, "{text}");
    for pair in intervals.chunks(2) {
        // On a busy machine a line may name a later second than planned.
        assert!(pair[0].contains("s ] thds: 4 tps: ") && pair[1].contains("s ] p99.9: "), "{text}");
        assert_eq!(field(pair[0], " tps: "), field(pair[0], " qps: "));
        assert_eq!(field(pair[0], "(r/w/o: 0.00/"), field(pair[0], " tps: "));
        assert!(field(pair[1], " max: ") >= field(pair[0], "lat (ms,95%): "));
        assert!(field(pair[1], " age: ") <= 100.0);
        assert!(field(pair[1], " dirty: ") <= 100.0);
        field(pair[1], " free: ");
        assert!(field(pair[1], " throttle: ") <= 100.0);
    }
    let transactions = field(&text, "    transactions:                        ");
    assert!(transactions > 0.0, "{text}");
    assert_eq!(transactions, field(&text, "        write:                           "));
    assert_eq!(transactions, field(&text, "    total number of events:              "));
    field(&text, "    median rate:                         ");
    assert!(text.contains("brownout (under half the median):"), "{text}");
    assert!(field(&text, "blackout (longest gap): ") > 0.0);
    assert!(field(&text, "device: ") > 0.0);
    assert!(text.contains("\ncommits per log sync: ") && text.contains("\nverdict: "), "{text}");
    assert!(text.contains("\nthe longest gap was "), "{text}");
    assert!(err(&output).contains("loaded sbtest1 to sbtest2 with 1000 rows"), "{}", err(&output));
}

#[test]
fn bench_under_a_rate_keeps_it_and_shows_the_queue() {
    let dir = directory();
    let args = ["bench", "--table-size=500", "--time=600", "--events=300", "--threads=2", "--rate=200"];
    let output = run(dir.path(), &[&args[..], &["oltp_point_select"]].concat());
    assert_code(&output, 0);
    let text = out(&output);
    assert!(text.contains("Target transaction rate: 200/sec"), "{text}");
    assert!(text.contains("s ] queue length: "), "{text}");
    assert!(text.contains(", concurrency: "), "{text}");
    let events = field(&text, "total number of events:              ");
    assert_eq!(events, 300.0, "{text}");
    // Poisson: 1.5 s +- 5 standard deviations of 0.09; a busy machine may be later, none is earlier.
    assert!(field(&text, "    total time:                          ") > 1.05, "{text}");
    assert_eq!(field(&text, "        read:                            "), events);
    assert!(!text.contains("commits per log sync"), "reads are no commits: {text}");
    assert!(text.contains("    per transaction, from arrival: "), "{text}");
}

#[test]
fn bench_goes_through_prepare_run_and_cleanup() {
    let dir = directory();
    let act = |action: &str| run(dir.path(), &["bench", "--table-size=300", "--time=1", "oltp_insert", action]);
    let missing = act("run");
    assert_code(&missing, 2);
    assert!(err(&missing).contains("prepare"), "{}", err(&missing));
    assert!(!dir.path().join("millpond-bench-data").exists(), "a refused run makes nothing");
    for _ in 0..2 {
        assert_code(&act("prepare"), 0);
    }
    for _ in 0..2 {
        // The second run inserts above the ids of the first.
        assert_code(&act("run"), 0);
    }
    let other_size = run(dir.path(), &["bench", "--table-size=301", "oltp_insert"]);
    assert_code(&other_size, 2);
    assert!(err(&other_size).contains("--table-size=300"), "{}", err(&other_size));
    assert_code(&act("cleanup"), 0);
    assert_code(&act("run"), 2);
    assert_code(&act("prepare"), 0);
    let check = run(dir.path(), &["check", "millpond-bench-data"]);
    assert_code(&check, 0);
    assert!(out(&check).contains("problems:     0"), "{}", out(&check));
}

#[test]
fn tables_without_an_index_run_and_refuse_selects_by_k() {
    let dir = directory();
    let act = |more: &[&str]| run(dir.path(), &[&["bench", "--table-size=300", "--time=1"], more].concat());
    assert_code(&act(&["--create-secondary=off", "oltp_update_index", "prepare"]), 0);
    // A run uses the tables as they are.
    assert_code(&act(&["oltp_read_write", "run"]), 0);
    let refused = act(&["select_random_points", "run"]);
    assert_code(&refused, 2);
    assert!(err(&refused).contains("--create-secondary=on"), "{}", err(&refused));
    let tables = out(&run(dir.path(), &["info", "millpond-bench-data"]));
    assert!(tables.contains("table 'sbtest1'") && !tables.contains("index 'k'"), "{tables}");
    assert_code(&act(&["oltp_update_index", "cleanup"]), 0);
    assert_code(&act(&["select_random_points"]), 0);
    assert_code(&run(dir.path(), &["check", "millpond-bench-data"]), 0);
}

#[test]
fn every_workload_runs_by_its_name_and_leaves_a_sound_database() {
    let dir = directory();
    for (workload, read, write) in [
        ("oltp_point_select", 1.0, 0.0),
        ("oltp_read_only", 14.0, 0.0),
        ("oltp_read_write", 14.0, 4.0),
        ("oltp_write_only", 0.0, 4.0),
        ("oltp_update_index", 0.0, 1.0),
        ("oltp_update_non_index", 0.0, 1.0),
        ("oltp_insert", 0.0, 1.0),
        ("select_random_points", 1.0, 0.0),
        ("select_random_ranges", 1.0, 0.0),
        ("oltp_delete", 0.0, 1.0),
        ("bulk_insert", 0.0, 0.0),
        ("random_batches", 0.0, 20.0),
    ] {
        let args = ["--table-size=500", "--time=0", "--events=200", "--threads=2", "--batch-size=20", "--dir=db"];
        let args = [&["bench"], &args[..], &[workload]].concat();
        let output = run(dir.path(), &args);
        assert_code(&output, 0);
        let text = out(&output);
        assert_eq!(field(&text, "total number of events:              "), 200.0, "{text}");
        assert_eq!(field(&text, "        read:                            "), 200.0 * read, "{text}");
        let written = field(&text, "        write:                           ");
        let other = field(&text, "        other:                           ");
        let is_transactional = ["oltp_read_only", "oltp_read_write", "oltp_write_only"].contains(&workload);
        let begins_and_commits = if is_transactional { 2.0 } else { 0.0 };
        if workload == "bulk_insert" {
            assert!((1.0..=2.0).contains(&written), "a rest for each thread that had a row: {text}");
        } else {
            assert_eq!(written + other, 200.0 * (write + begins_and_commits), "{text}");
        }
        assert!(!text.contains("statement by statement"), "{text}");
    }
    let check = run(dir.path(), &["check", "db"]);
    assert_code(&check, 0);
    assert!(out(&check).contains("problems:     0"), "{}", out(&check));
    for workload in ["bulk_insert", "oltp_insert"] {
        let args = ["bench", "--table-size=500", "--threads=2", "--dir=db", workload, "cleanup"];
        let output = run(dir.path(), &args);
        assert_code(&output, 0);
        assert!(err(&output).contains("dropped sbtest1"), "{}", err(&output));
    }
    let gone = run(dir.path(), &["bench", "--threads=2", "--dir=db", "bulk_insert", "run"]);
    assert_code(&gone, 2);
    assert!(err(&gone).contains("'sbtest1.bulk'") && err(&gone).contains("prepare"), "{}", err(&gone));
    assert_eq!(out(&gone), "");
}

#[test]
fn warm_up_histogram_and_skipped_transactions_are_as_asked_for() {
    let dir = directory();
    let args = ["--warmup-time=1", "--histogram", "--skip-trx=on", "--range-selects=off", "oltp_read_only"];
    let began = Instant::now();
    let output = run(dir.path(), &bench(&args));
    let since_the_start_s = began.elapsed().as_secs_f64();
    assert_code(&output, 0);
    let text = out(&output);
    assert!(text.contains("Warmup time: 1s\n"), "{text}");
    let lines = text.lines().filter(|line| line.starts_with("transactions: statement by statement")).count();
    assert_eq!(lines, 2, "in the heading and in the summary: {text}");
    assert_eq!(field(&text, "        other:                           "), 0.0);
    let events = field(&text, "total number of events:              ");
    assert_eq!(field(&text, "        read:                            "), 10.0 * events);
    // The second of the warm-up is left out, however long a busy machine took for the run.
    let counted_s = field(&text, "    total time:                          ");
    assert!((2.0..=since_the_start_s - 1.0).contains(&counted_s), "{counted_s} of {since_the_start_s}: {text}");
    assert!(text.contains("\nLatency histogram (values are in milliseconds)\n       value  -"), "{text}");
    let counted: f64 =
        text.lines().filter_map(|line| line.split_once(" |")?.1.split_whitespace().last()?.parse::<f64>().ok()).sum();
    assert_eq!(counted, events, "{text}");
    let intervals = text.lines().filter(|line| line.contains("thds: ")).count();
    assert_eq!(intervals, 2, "{text}");
}

#[test]
fn remove_takes_away_what_bench_made_and_nothing_else() {
    let dir = directory();
    let once = ["bench", "--table-size=100", "--time=1", "--remove", "--dir=db", "oltp_point_select"];
    assert_code(&run(dir.path(), &once), 0);
    assert!(!dir.path().join("db").exists());

    let theirs = dir.path().join("theirs");
    let db = Db::open(&theirs, Options::new()).expect("a database can be made");
    db.create_tree("accounts").expect("a tree can be made");
    db.close().expect("it closes");
    let refused = run(dir.path(), &["bench", "--remove", "--dir=theirs", "oltp_point_select"]);
    assert_code(&refused, 2);
    assert!(err(&refused).contains("'theirs'"), "{}", err(&refused));
    let db = Db::open(&theirs, Options::new()).expect("it is still there");
    assert_eq!(db.trees().expect("it can be read"), ["accounts"]);
}

#[test]
fn wrong_usage_is_one_message_with_option_value_and_way_out() {
    let dir = directory();
    let cases: [(&[&str], &[&str]); 18] = [
        (&["bench", "--buffer-pool-size=64", "oltp_insert"], &["--buffer-pool-size", "'64'", "64MiB"]),
        (&["bench", "--redo-capacity", "lots", "oltp_insert"], &["--redo-capacity", "'lots'", "64MiB"]),
        (&["bench", "--rate=fast", "oltp_insert"], &["--rate", "'fast'", "80%"]),
        (&["bench", "--threads=0", "oltp_insert"], &["--threads", "'0'", "1 to 4096"]),
        (&["bench", "--threads=1e9", "oltp_insert"], &["--threads", "'1e9'", "1 to 4096"]),
        (&["bench", "--thread=2", "oltp_insert"], &["'--thread'", "'--threads'"]),
        (&["bench", "--tables=0", "oltp_insert"], &["--tables", "0"]),
        (&["bench", "--durability=background", "oltp_insert"], &["--durability", "background(100ms)"]),
        (&["bench", "oltp_instert"], &["'oltp_instert'", "'oltp_insert'"]),
        (&["bench", "--range-size=0", "oltp_read_only"], &["--range-size", "not 0", "1 to 10000000"]),
        (&["bench", "--point-selects=10001", "oltp_read_only"], &["--point-selects", "not 10001", "0 to 10000"]),
        (&["bench", "--index-updates=0", "oltp_update_index"], &["--index-updates is 0", "--index-updates=1"]),
        (&["bench", "--range-selects=maybe", "oltp_read_only"], &["--range-selects", "'maybe'", "true, false"]),
        (&["bench", "--tables=2", "select_random_points"], &["select_random_points", "not 2", "--tables=1"]),
        (&["bench", "--events=many", "oltp_insert"], &["--events", "'many'", "for example, 10"]),
        (&["bench", "--warmup-time=-1", "oltp_insert"], &["--warmup-time", "'-1'", "for example, 60"]),
        (&["bench"], &["WORKLOAD"]),
        (&["crashtest", "--rounds=0"], &["--rounds", "'0'"]),
    ];
    for (args, texts) in cases {
        let output = run(dir.path(), args);
        assert_code(&output, 2);
        assert_eq!(out(&output), "", "{args:?}");
        for text in texts {
            assert!(err(&output).contains(text), "{args:?} does not say {text}:\n{}", err(&output));
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 0, "nothing was made");
}

#[test]
fn check_of_a_damaged_database_answers_no() {
    let dir = directory();
    assert_code(&run(dir.path(), &["bench", "--dir=db", "--table-size=2000", "oltp_insert", "prepare"]), 0);
    let data = dir.path().join("db").join("data.mpd");
    let mut bytes = std::fs::read(&data).expect("the data file can be read");
    // Changes one byte in each slot, wherever the pages are: superblocks stay whole, no page does.
    bytes.iter_mut().skip((1 << 20) + 300).step_by(16_384).for_each(|byte| *byte ^= 0x55);
    std::fs::write(&data, &bytes).expect("the data file can be written");
    let output = run(dir.path(), &["check", "db"]);
    assert_code(&output, 1);
    assert_eq!(std::fs::read(&data).expect("the data file can be read"), bytes, "check writes nothing");
}

#[test]
fn info_and_dump_tell_what_is_in_the_files() {
    let dir = directory();
    assert_code(&run(dir.path(), &["bench", "--dir=db", "--table-size=2000", "oltp_insert", "prepare"]), 0);
    for (args, part) in [
        (&["info", "db"][..], "page store:           copy-on-write\n"),
        (&["info", "db"], "table 'sbtest1':      space 3, "),
        (&["info", "db"], "  index 'k':          space 4, "),
        (&["info", "db"], " KiB): (value[0..4])\n"),
        (&["dump", "superblock", "db"], "superblock 1 at offset 65536: valid\n"),
        (&["dump", "map", "db", "--space=2"], "space 2 map page 0: "),
        (&["dump", "page", "db", "0:0"], "'sbtest1' = '\\x02\\x00\\x03\\x00\\x00\\x00\\x01"),
        (&["dump", "page", "db", "--slot=0"], "slot 0: a whole image of page "),
        (&["dump", "log", "db", "--from=0", "--limit=1"], "log from LSN 4096, "),
    ] {
        let output = run(dir.path(), args);
        assert_code(&output, 0);
        assert!(out(&output).contains(part), "no {part:?} in {args:?}:\n{}", out(&output));
    }
    for args in [&["dump", "page", "db"][..], &["dump", "page", "db", "1"], &["dump", "log", "missing"]] {
        assert_code(&run(dir.path(), args), 2);
    }
}

#[test]
fn status_tells_the_state_of_an_engine_and_of_a_closed_database() {
    let dir = directory();
    let status = |args: &[&str]| run(dir.path(), &[&["status"], args].concat());
    let args = ["bench", "--table-size=500", "--time=600", "--status-socket=sock", "--dir=db", "oltp_update_index"];
    let (mut child, mut lines) = start_until_its_first_line(dir.path(), &args);
    let text = status(&["sock"]);
    assert_code(&text, 0);
    assert!(
        out(&text).contains("\nBUFFER POOL AND MEMORY\n") && out(&text).contains("index 'k' of table 'sbtest1'\n"),
        "{}",
        out(&text)
    );
    let prometheus = status(&["--format=prometheus", "sock"]);
    assert!(out(&prometheus).contains("\n# TYPE millpond_log_syncs_total counter\n"), "{}", out(&prometheus));
    let json: serde_json::Value = serde_json::from_slice(&status(&["--format=json", "sock"]).stdout).expect("JSON");
    assert!(json["log_syncs"].as_u64() > Some(0), "{json}");
    let in_use = status(&["db"]);
    assert_code(&in_use, 2);
    assert!(err(&in_use).contains("'db' is open") && err(&in_use).contains("--status-socket=PATH"), "{}", err(&in_use));
    kill_process(Pid::from_child(&child), Signal::INT).expect("it can be interrupted");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("it can be read");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{rest}");

    assert!(rest.contains("\nWhere the time went:\n    per transaction: "), "{rest}");
    assert!(rest.contains("    slowest 1: ") && rest.contains(" ms (write) = "), "{rest}");
    assert!(!dir.path().join("sock").exists());
    let gone = status(&["sock"]);
    assert_code(&gone, 2);
    assert!(err(&gone).contains("'sock' does not exist"), "{}", err(&gone));
    let left = status(&["db"]);
    assert_code(&left, 0);
    assert!(out(&left).contains("\nclosed:                 yes: "), "{}", out(&left));
    let json: serde_json::Value = serde_json::from_slice(&status(&["--format=json", "db"]).stdout).expect("JSON");
    for (name, value) in [("page_size_bytes", 16_384), ("format", 1), ("superblocks_valid", 2), ("redo_groups", 0)] {
        assert_eq!(json[name], value, "{name} in {json}");
    }
    assert_eq!((&json["page_store"], &json["is_closed"]), (&"copy_on_write".into(), &true.into()), "{json}");
    assert_eq!(json["log_is_damaged"], false, "{json}");
    assert!(json["log_lsn_end"].as_u64() >= json["log_lsn_last_checkpoint"].as_u64(), "{json}");
    assert!(json["file_bytes"]["data.mpd"].as_u64() > Some(16_384), "{json}");
    let texts = json.as_object().expect("an object").iter().filter(|(_, value)| value.is_string());
    assert_eq!(texts.map(|(name, _)| name).collect::<Vec<_>>(), ["database", "page_store", "uuid"], "{json}");
    let prometheus = status(&["--format=prometheus", "db"]);
    assert_code(&prometheus, 2);
    assert!(err(&prometheus).contains("use --format=text or json"), "{}", err(&prometheus));
    let refused = run(dir.path(), &["bench", "--dir=other", "--status-socket=none/sock", "oltp_insert"]);
    assert_code(&refused, 2);
    assert!(err(&refused).contains("status_socket") && err(&refused).contains("'none/sock'"), "{}", err(&refused));
    assert!(!dir.path().join("other").join("data.mpd").exists());
}

#[test]
fn rebuild_brings_back_a_database_without_superblocks() {
    let dir = directory();
    assert_code(&run(dir.path(), &["bench", "--dir=db", "--table-size=2000", "oltp_insert", "prepare"]), 0);
    let sound = run(dir.path(), &["rebuild", "db"]);
    assert_code(&sound, 2);
    assert!(err(&sound).contains("nothing to rebuild"), "{}", err(&sound));
    let entries = |output: &Output| out(output).lines().find(|line| line.starts_with("entries:")).map(str::to_owned);
    let before = entries(&run(dir.path(), &["check", "db"]));
    let data = dir.path().join("db").join("data.mpd");
    let mut bytes = std::fs::read(&data).expect("the data file can be read");
    bytes[..1 << 20].fill(0);
    std::fs::write(&data, &bytes).expect("the data file can be written");
    // Damaged: the answer is no.
    assert_code(&run(dir.path(), &["check", "db"]), 1);
    let rebuilt = run(dir.path(), &["rebuild", "db"]);
    assert_code(&rebuilt, 0);
    assert!(out(&rebuilt).contains("lost:         0\n"), "{}", out(&rebuilt));
    let after = run(dir.path(), &["check", "db"]);
    assert_code(&after, 0);
    assert_eq!(entries(&after), before);
}

#[test]
fn crashtest_of_three_rounds_passes_and_cleans_up() {
    let dir = directory();
    for (profile, more) in [("millpond", "--backups"), ("mysql-8.0", "--transactions")] {
        let profile = format!("--profile={profile}");
        let args = ["crashtest", "--rounds=3", "--seed=3", "--threads=4", "--dir=db", &profile, more];
        let output = run(dir.path(), &args);
        assert_code(&output, 0);
        let text = out(&output);
        let passed = text.lines().filter(|line| line.starts_with("round ") && line.ends_with(": ok"));
        assert_eq!(passed.count(), 3, "{text}");
        assert!(text.ends_with("\n3 passed, 0 failed\n"), "{text}");
        assert_eq!(text.contains(" backups restored"), more == "--backups", "{text}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "{text}");
    }
}

#[test]
fn crashtest_refuses_a_directory_with_something_in_it() {
    let dir = directory();
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("a file can be written");
    let output = run(dir.path(), &["crashtest", "--rounds=1", "--dir=."]);
    assert_code(&output, 2);
    assert!(err(&output).contains("not empty"), "{}", err(&output));
}

#[test]
fn help_fits_the_terminal_and_is_a_success() {
    let dir = directory();
    for args in [
        &["-h"][..],
        &["bench", "-h"],
        &["bench", "--help"],
        &["options", "-h"],
        &["options", "--help"],
        &["crashtest", "-h"],
        &["check", "-h"],
        &["info", "-h"],
        &["status", "--help"],
        &["top", "--help"],
        &["dump", "-h"],
        &["dump", "page", "-h"],
    ] {
        let output = run(dir.path(), args);
        assert_code(&output, 0);
        let text = out(&output);
        assert!(!text.contains("victim"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 120, "{args:?}: longer than 120 columns:\n{line}");
        }
    }
}

#[test]
fn help_of_dump_page_shows_both_ways_to_name_a_page() {
    let dir = directory();
    let said = out(&run(dir.path(), &["dump", "page", "-h"]));
    for part in ["<DIR> <SPACE:NUMBER>", "<DIR> --slot <SLOT>", "millpond info DIR", "page millpond-bench-data 1:0"] {
        assert!(said.contains(part), "no {part} in: {said}");
    }
    assert!(out(&run(dir.path(), &["dump", "-h"])).contains("by SPACE:NUMBER or --slot"));
}

/// Starts a long run and reads its output up to the first interval line.
fn start_long_run(dir: &Path) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    start_until_its_first_line(dir, &["bench", "--table-size=500", "--time=600", "--threads=2", "oltp_update_index"])
}

fn start_until_its_first_line(
    dir: &Path,
    args: &[&str],
) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut child =
        millpond(dir, args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it has a standard output"));
    let mut line = String::new();
    while !line.contains("s ] thds: ") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("it can be read"), 0, "it ended early");
    }
    (child, lines)
}

#[test]
fn interrupt_ends_the_run_with_its_summary() {
    let dir = directory();
    let (mut child, mut lines) = start_long_run(dir.path());
    kill_process(Pid::from_child(&child), Signal::INT).expect("it can be interrupted");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("it can be read");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{rest}");
    assert!(rest.contains("SQL statistics:"), "{rest}");
    assert!(rest.contains("Calm:"), "{rest}");
}

#[test]
fn terminate_request_ends_the_run_with_summary_and_own_code() {
    // A child of `nohup` ignores hangups, so then the test of a hangup is skipped.
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("there").trim();
    let is_ignored = u64::from_str_radix(ignored, 16).expect("a mask") & 1 == 1;
    let hangup = (!is_ignored).then_some((Signal::HUP, 129));
    for (signal, code) in [(Signal::TERM, 143)].into_iter().chain(hangup) {
        let dir = directory();
        let (mut child, mut lines) = start_long_run(dir.path());
        kill_process(Pid::from_child(&child), signal).expect("it can be told");
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("it can be read");
        assert_eq!(child.wait().expect("it ends").code(), Some(code), "{rest}");
        assert!(rest.contains("SQL statistics:"), "{rest}");
    }
}

#[test]
fn closed_pipe_is_a_quiet_end() {
    let dir = directory();
    let (mut child, lines) = start_long_run(dir.path());
    drop(lines);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let check = run(dir.path(), &["check", "millpond-bench-data"]);
    assert_code(&check, 0);
}
