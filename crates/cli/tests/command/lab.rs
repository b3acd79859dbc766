//! The stall lab: its list, wrong usage, and a run of one setting in the way of the lab.

use std::io::Write as _;

use serde_json::{Value, json};

use super::*;

/// The output of a run of one setting with this plan.
fn arm(dir: &Path, plan: &Value) -> Output {
    let mut child = millpond(dir, &["lab-arm"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(plan.to_string().as_bytes()).expect("it reads");
    drop(input);
    child.wait_with_output().expect("it ends")
}

fn phase(name: &str, work: &Value, beside: &Value) -> Value {
    json!({ "name": name, "quiet_s": 0.0, "work": work, "time_s": 1, "beside": beside })
}

fn plan(dir: &Path, options: &Value, phases: &Value) -> Value {
    json!({
        "lab": std::process::id(), "dir": dir.join("db"), "options": options, "device": null, "phases": phases,
        "is_kept": true,
    })
}

#[test]
fn list_has_each_experiment_with_its_stall_and_source() {
    let dir = directory();
    let output = run(dir.path(), &["lab", "list", "--format=json"]);
    assert_code(&output, 0);
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<&str> = lines.iter().filter_map(|line| line["name"].as_str()).collect();
    for name in ["free-list", "cpu-quota", "log-closer", "sync-flush", "insert-benchmark", "hiccup", "burst"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(lines.iter().all(|line| line["title"].is_string() && line["source"].is_string()));
    let text = out(&run(dir.path(), &["lab", "list"]));
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
    assert_eq!(text.matches(" min with --quick").count(), names.len(), "{text}");
}

#[test]
fn misspelt_name_gets_the_nearest_one_and_nothing_is_made() {
    let dir = directory();
    let output = run(dir.path(), &["lab", "run", "free-lst"]);
    assert_code(&output, 2);
    assert!(err(&output).contains("did you mean 'free-list'?"), "{}", err(&output));
    let output = run(dir.path(), &["lab", "run", "nosuch"]);
    assert_code(&output, 2);
    assert!(!err(&output).contains("did you mean") && err(&output).contains("hiccup"), "{}", err(&output));
    let output = run(dir.path(), &["lab", "run", "hiccup", "--report=none/lab.html"]);
    assert_code(&output, 2);
    assert!(err(&output).contains("none/lab.html"), "{}", err(&output));
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 0);
}

#[test]
fn a_run_of_a_setting_tells_what_each_phase_came_to() {
    let dir = directory();
    let tables = json!({ "count": 2, "rows": 2_000 });
    let load = |rows: u64| json!({ "Prepare": { "count": 2, "rows": rows } });
    let work = json!({ "Oltp": { "workload": "oltp_update_index", "tables": tables, "threads": 2, "per_s": 300.0 } });
    let phases = json!([
        phase("load", &load(2_000), &Value::Null),
        phase("updates", &work, &json!({ "Scan": { "after_s": 0.1 } })),
    ]);
    let options = json!([["cached", "true"], ["empty_free_list_algorithm", "backoff"]]);
    let output = arm(dir.path(), &plan(dir.path(), &options, &phases));
    assert_code(&output, 0);
    let lines: Vec<Value> = out(&output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    let of = &lines[1];
    assert_eq!((&of["phase"], of["seconds"].as_array().map(Vec::len)), (&Value::from("updates"), Some(1)));
    assert!(of["figures"]["per_s"].as_f64().is_some_and(|per_s| per_s > 50.0), "{of}");
    assert!(of["figures"]["beside_ms"].as_f64().is_some_and(|ms| ms > 0.0), "the scan took some time: {of}");
    assert!(of["numbers"]["log_syncs"].as_u64().is_some_and(|syncs| syncs > 0), "{of}");
    assert!(of["waits"]["log_flush"].is_array(), "{of}");
    assert!(of["machine"]["pair_ms"].as_f64().is_some_and(|ms| ms > 0.0), "the canary ran beside it: {of}");
}

#[test]
fn a_run_on_a_slow_device_makes_no_more_writes_than_that() {
    let dir = directory();
    let tables = json!({ "count": 1, "rows": 500 });
    let work = json!({ "Oltp": { "workload": "oltp_update_index", "tables": tables, "threads": 1, "per_s": null } });
    let phases =
        json!([phase("load", &json!({ "Prepare": tables }), &Value::Null), phase("updates", &work, &Value::Null)]);
    let mut plan = plan(dir.path(), &json!([["cached", "true"]]), &phases);
    plan["device"] = json!({ "writes_per_s": 200.0, "bytes_per_s": 1e9, "slower": [] });
    let output = arm(dir.path(), &plan);
    assert_code(&output, 0);
    let last: Value = serde_json::from_str(out(&output).lines().last().expect("a line")).expect("JSON");
    // A durable commit is a write and a sync at least.
    let per_s = last["figures"]["per_s"].as_f64().expect("a number");
    assert!(per_s > 0.0 && per_s <= 110.0, "{last}");
}

#[test]
fn run_without_keep_ends_without_a_close_and_leaves_it_sound() {
    let left = |is_kept: bool| {
        let dir = directory();
        let tables = json!({ "count": 1, "rows": 500 });
        let work =
            json!({ "Oltp": { "workload": "oltp_update_index", "tables": tables, "threads": 1, "per_s": null } });
        let load = phase("load", &json!({ "Prepare": tables }), &Value::Null);
        let phases = json!([load, phase("updates", &work, &Value::Null)]);
        let mut plan = plan(dir.path(), &json!([["cached", "true"]]), &phases);
        plan["is_kept"] = json!(is_kept);
        assert_code(&arm(dir.path(), &plan), 0);
        let status = out(&run(dir.path(), &["status", "db"]));
        assert_code(&run(dir.path(), &["check", "db"]), 0);
        status
    };
    let [kept, thrown] = [true, false].map(left);
    let is_closed = |status: &str| status.lines().any(|line| line.starts_with("closed:") && line.contains(" yes"));
    assert!(is_closed(&kept) && !is_closed(&thrown), "{kept}\n{thrown}");
}

#[test]
fn interrupt_of_the_lab_alone_leaves_neither_data_nor_report() {
    let dir = directory();
    let mut child = millpond(dir.path(), &["lab", "run", "ddl-drop", "--quick", "--dir=data/a/b", "--report=lab.html"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut said = BufReader::new(child.stderr.take().expect("it has one"));
    let mut line = String::new();
    while !line.contains("loading") {
        line.clear();
        assert_ne!(said.read_line(&mut line).expect("it can be read"), 0, "it ended early");
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it can be interrupted");
    said.read_to_string(&mut line).expect("it can be read");
    assert_eq!(child.wait().expect("it ends").code(), Some(143), "{line}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 0);
}

#[test]
fn a_run_without_a_plan_or_with_a_strange_one_says_so() {
    let dir = directory();
    for (plan, said) in [
        (json!({}), "no plan of an experiment"),
        (plan(dir.path(), &json!([["speed", "high"]]), &json!([])), "'speed' is no option"),
        (plan(dir.path(), &json!([["doublewrite", "on"], ["page_store", "copy_on_write"]]), &json!([])), "doublewrite"),
    ] {
        let output = arm(dir.path(), &plan);
        assert_code(&output, 2);
        assert!(err(&output).contains(said), "{}", err(&output));
    }
}
