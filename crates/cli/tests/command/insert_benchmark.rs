//! `bench insert_benchmark`: its steps as text, as JSON and as a page; runs over existing tables; wrong usage.

use super::bench_output::{assert_documented, json_lines, text_of};
use super::*;

const TINY: [&str; 7] = [
    "bench",
    "--table-size=2k",
    "--threads=2",
    "--time=1",
    "--dir=db",
    "--load-rows-per-commit=100",
    "insert_benchmark",
];

fn insert_benchmark<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&TINY[..], more].concat()
}

/// The names in the table at the end.
fn steps_in(text: &str) -> Vec<&str> {
    let table = text.split_once("\nInsert benchmark:\n").expect("the table is there").1;
    table.lines().skip(1).map_while(|line| line.strip_prefix("    ")?.split(' ').next()).collect()
}

#[test]
fn every_step_is_shown_by_itself_and_all_in_a_table_and_a_page() {
    let dir = directory();
    let output = run(dir.path(), &insert_benchmark(&["--report=run.html"]));
    assert_code(&output, 0);
    let text = out(&output);
    let steps = ["l.i0", "l.x", "l.i1", "l.i2", "qr100", "qp100", "qr500", "qp500", "qr1000", "qp1000"];
    assert_eq!(steps_in(&text), steps);
    let page = std::fs::read_to_string(dir.path().join("run.html")).expect("the report is there");
    let page = text_of(&page);
    for step in steps {
        let of_step = text.split_once(&format!("\n{step}: ")).expect("its heading is there").1;
        assert!(of_step.contains("; 2 clients, ") && of_step.contains("\nCalm:\n"), "{of_step}");
        assert!(page.contains(&format!(" {step}: ")), "{step} in {page}");
    }
    assert_eq!(text.matches("    inserted:      ").count(), 9, "{text}");
    assert_eq!(text.matches("    rate beside the queries:   ").count(), 6, "{text}");
    // Queries commit nothing: only the writers beside them wait for the log.
    assert_eq!(text.matches("\n    waited for (writers beside, too):    ").count(), 6, "{text}");
    assert_eq!(text.matches("\nWhere the time went (clients and writers beside):\n").count(), 6, "{text}");
    assert_eq!(text.matches("\n    per transaction: ").count(), 4, "{text}");
    assert_eq!(page.matches("also by those that write beside the queries").count(), 6, "{page}");
    assert!(text.contains("    made:                                12000 ("), "{text}");
    assert!(text.ends_with(" write+sync pairs/s (one thread)\n"), "{text}");
    assert!(text.contains("\nverified: 4000 rows, 12000 index entries\n"), "{text}");
    let own = text.lines().filter(|line| !line.contains("thds: ") && !line.starts_with("    waited for"));
    own.for_each(|line| assert!(line.chars().count() <= 120, "{line}"));
    let check = run(dir.path(), &["check", "db"]);
    assert_code(&check, 0);
}

#[test]
fn tables_of_a_run_before_are_used_and_actions_have_their_steps() {
    let dir = directory();
    let missing = run(dir.path(), &insert_benchmark(&["run"]));
    assert_code(&missing, 2);
    assert!(err(&missing).contains("prepare"), "{}", err(&missing));
    let prepared = run(dir.path(), &insert_benchmark(&["prepare"]));
    assert_code(&prepared, 0);
    assert_eq!(steps_in(&out(&prepared)), ["l.i0", "l.x"]);
    let again = run(dir.path(), &insert_benchmark(&["--steps=l.i0,l.x,l.i2"]));
    assert_code(&again, 0);
    assert_eq!(steps_in(&out(&again)), ["l.i2"]);
    for said in [
        "l.i0 is left out: purchases1 to purchases2 are loaded already; drop them with the action 'cleanup'",
        "l.x is left out: purchases1 to purchases2 have their indexes already",
    ] {
        assert!(err(&again).contains(said), "{}", err(&again));
    }
    let other = run(dir.path(), &insert_benchmark(&["--table-size=3k", "--steps=l.i2", "run"]));
    assert_code(&other, 2);
    assert!(err(&other).contains("--table-size=2000 --data-length=10"), "{}", err(&other));
    let more = run(dir.path(), &insert_benchmark(&["--threads=3", "--steps=l.i2"]));
    assert_code(&more, 2);
    assert!(err(&more).contains("'purchases3' does not exist"), "{}", err(&more));
    let dropped = run(dir.path(), &insert_benchmark(&["cleanup"]));
    assert_code(&dropped, 0);
    assert_eq!(err(&dropped), "dropped purchases1 to purchases2\n");
    let without_index = run(dir.path(), &insert_benchmark(&["--steps=l.i0,qr5", "--remove"]));
    assert_code(&without_index, 2);
    assert!(err(&without_index).contains("'marketsegment'"), "{}", err(&without_index));
}

#[test]
fn json_has_a_line_for_each_interval_and_step_and_a_last_one() {
    let dir = directory();
    let args = ["--format=json", "--steps=l.i0,l.x,l.i1,qp20", "--remove", "--warmup-time=1"];
    let output = run(dir.path(), &insert_benchmark(&args));
    assert_code(&output, 0);
    let lines = json_lines(&out(&output));
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    of_kind("interval").iter().for_each(|interval| assert_documented(interval, "Interval"));
    assert!(of_kind("interval").iter().all(|interval| interval.contains_key("step")));
    let steps = of_kind("step");
    assert_eq!(steps.iter().map(|step| &step["step"]).collect::<Vec<_>>(), ["l.i0", "l.x", "l.i1", "qp20"]);
    steps.iter().for_each(|step| assert_documented(step, "Step of the insert benchmark"));
    assert_eq!((&steps[0]["rows_inserted"], &steps[0]["rows_deleted"]), (&4_000.into(), &0.into()));
    assert_eq!(steps[1]["entries_made"], 12_000);
    assert_eq!(steps[2]["rows_inserted"], steps[2]["rows_deleted"]);
    assert_eq!(steps[3]["rows_wanted_per_s"], 40.0);
    assert!(steps[3]["is_rate_kept"].is_boolean());
    assert_eq!((&steps[2]["waits_of"], &steps[3]["waits_of"]), (&"clients".into(), &"clients_and_writers".into()));
    assert!(steps.iter().all(|step| step["law_violations"] == 0), "{steps:?}");
    let last = lines.last().expect("there are lines");
    assert_eq!((&last["kind"], of_kind("summary").len()), (&"summary".into(), 1));
    assert_documented(last, "Summary of the insert benchmark");
    assert_eq!((&last["rows_verified"], &last["entries_verified"]), (&4_000.into(), &12_000.into()));
    assert!(!dir.path().join("db").exists(), "bench knows its own tables");
}

#[test]
fn interrupt_ends_the_step_and_leaves_out_those_behind_it() {
    let dir = directory();
    let mut args = insert_benchmark(&["--steps=l.i0,l.x,l.i1,qr50"]);
    args[3] = "--time=600";
    let mut child =
        millpond(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it has a standard output"));
    let mut text = String::new();
    while !text.split_once("\nl.i1: ").is_some_and(|(_, of_step)| of_step.contains("thds: 2 tps: ")) {
        assert_ne!(lines.read_line(&mut text).expect("it can be read"), 0, "it ended early:\n{text}");
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it can be interrupted");
    lines.read_to_string(&mut text).expect("it can be read");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{text}");
    assert_eq!(steps_in(&text), ["l.i0", "l.x", "l.i1"]);
    assert!(!text.contains("verified: "), "{text}");
    assert_code(&run(dir.path(), &["check", "db"]), 0);
}

#[test]
fn wrong_usage_names_option_value_and_way_out() {
    let dir = directory();
    let cases: [(&[&str], &[&str]); 13] = [
        (&["--steps=l.i0,l.i3"], &["--steps", "'l.i3'", "l.i0,l.x,l.i1"]),
        (&["--steps=qr"], &["--steps", "'qr'", "qr100"]),
        (&["--steps="], &["--steps"]),
        (&["--steps=l.i0,l.x,l.i0"], &["--steps", "l.i0 is in it twice"]),
        (&["--rate=50"], &["--rate", "insert_benchmark", "--steps=qr200"]),
        (&["--tables=2"], &["--tables", "--threads"]),
        (&["--events=5"], &["--events", "leave it out"]),
        (&["--point-selects=5"], &["--point-selects", "leave it out"]),
        (&["--secondary"], &["--secondary", "leave it out"]),
        (&["--time=0"], &["--time=0", "--time=10"]),
        (&["--rows-per-commit=3000"], &["--rows-per-commit", "not 3000", "1 to 2000"]),
        (&["--data-length=4001"], &["--data-length", "not 4001", "0 to 4000"]),
        (&["--rows-per-query=0"], &["--rows-per-query", "not 0", "1 to 100000"]),
    ];
    for (more, texts) in cases {
        let output = run(dir.path(), &insert_benchmark(more));
        assert_code(&output, 2);
        assert_eq!(out(&output), "", "{more:?}");
        for text in texts {
            assert!(err(&output).contains(text), "{more:?} does not say {text}:\n{}", err(&output));
        }
    }
    let foreign = run(dir.path(), &["bench", "--steps=l.i0", "oltp_insert"]);
    assert_code(&foreign, 2);
    assert!(err(&foreign).contains("--steps is not for oltp_insert"), "{}", err(&foreign));
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 0, "nothing was made");
}
