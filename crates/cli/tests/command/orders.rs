//! `bench orders`: its actions, its figures and its check as text and as JSON; wrong usage.

use super::bench_output::{assert_documented, json_lines};
use super::*;

fn orders<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let tiny = ["bench", "--table-size=300", "--tables=2", "--threads=4", "--time=0", "--dir=db", "orders"];
    [&tiny[..], more].concat()
}

#[test]
fn orders_run_through_all_actions_and_keep_their_rows() {
    let dir = directory();
    let missing = run(dir.path(), &orders(&["--events=1", "run"]));
    assert_code(&missing, 2);
    assert!(err(&missing).contains("prepare"), "{}", err(&missing));
    let prepared = run(dir.path(), &orders(&["prepare"]));
    assert_code(&prepared, 0);
    assert!(err(&prepared).contains("loaded orders1 to orders2 with 600 rows"), "{}", err(&prepared));
    // The second run goes on with the numbers of the first.
    for held in [&[][..], &["--snapshot-held"]] {
        let output = run(dir.path(), &[&orders(&["--events=200", "run"])[..], held].concat());
        assert_code(&output, 0);
        let text = out(&output);
        assert!(text.contains(": orders on 'db', 2 x 300 rows, rand-type zipfian, "), "{text}");
        assert_eq!(field(&text, "total number of events:              "), 200.0, "{text}");
        assert_eq!(field(&text, "        read:                            "), 200.0, "{text}");
        assert_eq!(field(&text, "        write:                           "), 800.0, "{text}");
        assert!(text.contains("\nverified: 600 rows, 1800 index entries\n"), "{text}");
        assert_eq!(text.contains("\nSnapshot held for "), !held.is_empty(), "{text}");
    }
    let other_size = run(dir.path(), &orders(&["--table-size=301"]));
    assert_code(&other_size, 2);
    assert!(err(&other_size).contains("'orders1'"), "{}", err(&other_size));
    assert!(err(&other_size).contains("--table-size=300"), "{}", err(&other_size));
    assert_code(&run(dir.path(), &["check", "db"]), 0);
    let dropped = run(dir.path(), &orders(&["cleanup"]));
    assert_code(&dropped, 0);
    assert_eq!(err(&dropped), "dropped orders1 to orders2\n");
    let json = run(dir.path(), &orders(&["--events=50", "--format=json", "--remove"]));
    assert_code(&json, 0);
    let summary = json_lines(&out(&json)).pop().expect("a summary");
    assert_documented(&summary, "Summary");
    assert_eq!((&summary["rows_verified"], &summary["entries_verified"]), (&600.into(), &1_800.into()));
    assert!(!dir.path().join("db").exists(), "bench knows its own tables");
}

#[test]
fn interrupt_ends_the_orders_with_their_check() {
    let dir = directory();
    let (mut child, mut lines) = start_until_its_first_line(dir.path(), &orders(&["--report-interval=1"]));
    kill_process(Pid::from_child(&child), Signal::INT).expect("it can be interrupted");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("it can be read");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{rest}");
    assert!(rest.contains("\nverified: 600 rows, 1800 index entries\n"), "{rest}");
}

#[test]
fn options_of_other_workloads_are_refused_for_orders() {
    let dir = directory();
    for (option, way_out) in [
        ("--skip-trx", "leave it out, or run one of sysbench's workloads"),
        ("--point-selects=5", "leave it out, or run one of sysbench's workloads"),
        ("--secondary", "leave it out, or run one of sysbench's workloads"),
        ("--steps=l.i0", "leave it out, or run insert_benchmark"),
    ] {
        let output = run(dir.path(), &orders(&[option]));
        assert_code(&output, 2);
        let name = option.split('=').next().unwrap_or_default();
        assert!(err(&output).contains(&format!("{name} is not for orders: {way_out}")), "{}", err(&output));
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 0, "nothing was made");
}
