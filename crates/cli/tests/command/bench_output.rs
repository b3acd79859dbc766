//! The output of `bench` for programs and as a page: JSON lines, the report.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Map, Value};

use super::*;

/// The document that describes the fields.
const DOCUMENT: &str = include_str!("../../../../docs/bench-output.md");

/// The fields in the table under a heading of the document, and the optional ones among them.
fn documented(heading: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let after = DOCUMENT.split_once(&format!("\n## {heading}\n")).expect("the heading is there").1;
    let table = after.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let (mut always, mut sometimes) = (BTreeSet::new(), BTreeSet::new());
    for (names, rest) in rows {
        for name in names.split("`, `") {
            let of = if rest.contains("only ") { &mut sometimes } else { &mut always };
            of.insert(name.to_owned());
        }
    }
    (always, sometimes)
}

/// Checks a line against the document: every field is documented, every required field is present, fields with a unit
/// are numbers.
#[track_caller]
pub(super) fn assert_documented(line: &Map<String, Value>, heading: &str) {
    let (always, sometimes) = documented(heading);
    assert!(always.len() > 5, "the table is read: {always:?}");
    let found: BTreeSet<String> = line.keys().cloned().collect();
    let unknown: Vec<_> = found.iter().filter(|name| !always.contains(*name) && !sometimes.contains(*name)).collect();
    let missing: Vec<_> = always.difference(&found).collect();
    assert!(unknown.is_empty() && missing.is_empty(), "{heading}: not documented {unknown:?}, missing {missing:?}");
    for (name, value) in line {
        let is_figure = ["_s", "_ms", "_percent", "_bytes"].iter().any(|unit| name.ends_with(unit));
        let is_right =
            value.as_f64().is_some_and(|figure| figure >= 0.0) || (value.is_null() && name.contains("_per_s"));
        assert!(!is_figure || is_right, "{name} is {value}");
    }
}

pub(super) fn json_lines(text: &str) -> Vec<Map<String, Value>> {
    let object = |line: &str| match serde_json::from_str(line) {
        Ok(Value::Object(object)) => object,
        other => unreachable!("{other:?} in: {line}"),
    };
    text.lines().map(object).collect()
}

#[test]
fn json_has_an_object_a_line_with_the_documented_fields() {
    let dir = directory();
    for more in [&["--rate=200", "oltp_read_write"][..], &["--percentile=0", "oltp_update_index"]] {
        let output =
            run(dir.path(), &bench(&[&["--format=json", "--threads=2", "--durability=commit"], more].concat()));
        assert_code(&output, 0);
        let lines = json_lines(&out(&output));
        let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap_or_default()).collect();
        assert_eq!(kinds, ["interval", "interval", "summary"]);
        assert!(lines.iter().all(|line| line["schema"] == 1));
        let (intervals, summary) = (&lines[..2], &lines[2]);
        intervals.iter().for_each(|interval| assert_documented(interval, "Interval"));
        assert_documented(summary, "Summary");
        assert_eq!(intervals[0].contains_key("queue_length"), more[0].starts_with("--rate"));
        let figure = |line: &Map<String, Value>, name: &str| line[name].as_f64().expect("a figure");
        assert!(["calm", "not_calm", "inconclusive"].contains(&summary["verdict"].as_str().expect("a word")));
        assert!(figure(summary, "canary_pairs") > 0.0 && figure(summary, "canary_wakes") > 0.0);
        assert!(figure(&intervals[0], "canary_pair_max_ms") > 0.0);
        assert!(figure(summary, "slowest_ms") >= figure(summary, "latency_max_ms"));
        assert!(figure(summary, "slowest_attributed_ms") <= figure(summary, "slowest_ms"));
        assert!(figure(summary, "blackout_attributed_ms") <= figure(summary, "blackout_ms"));
        assert!(figure(summary, "median_per_s") > 0.0);
        let counted: f64 = intervals.iter().map(|interval| figure(interval, "transactions")).sum();
        assert!(counted > 0.0 && counted <= figure(summary, "transactions"));
        assert!(figure(summary, "latency_min_ms") <= figure(summary, "latency_mean_ms"));
        assert!(figure(summary, "latency_mean_ms") <= figure(summary, "latency_max_ms"));
        assert_eq!((&summary["law_violations"], &summary["waits_of"]), (&0.into(), &"clients".into()));
        for slow in summary["slow_operations"].as_array().expect("a list") {
            let waits = slow["waits"].as_array().expect("a list");
            let waited_us: u64 = waits.iter().filter_map(|wait| wait["total_us"].as_u64()).sum();
            let [elapsed_us, cpu_us, runnable_us] = ["elapsed_us", "cpu_us", "runnable_us"].map(|name| &slow[name]);
            let cpu_us = cpu_us.as_u64().unwrap_or(0) + runnable_us.as_u64().unwrap_or(0);
            assert!(waited_us + cpu_us <= elapsed_us.as_u64().expect("a number"), "more than the whole: {slow}");
        }
        let settings = summary["settings"].as_array().expect("a list");
        let of = |name: &str| settings.iter().find(|setting| setting["name"] == name).expect("it is listed");
        assert_eq!(
            of("--threads"),
            &serde_json::json!({
                "group": "Workload", "name": "--threads", "value": "2", "origin": "flag"
            })
        );
        assert_eq!((&of("--durability")["origin"], &of("--page-size")["origin"]), (&"flag".into(), &"database".into()));
        assert_eq!(
            (&of("--buffer-pool-size")["value"], &of("--redo-capacity")["value"]),
            (&"128MiB".into(), &"256MiB".into())
        );
    }
}

#[test]
fn check_answers_with_the_verdicts_exit_code() {
    let dir = directory();
    let check =
        |more: &[&str]| run(dir.path(), &[&["bench", "--table-size=500", "--check", "--format=json"], more].concat());
    // The first run's verdict depends on the machine; the second run has no whole second.
    for more in [&["--time=2", "oltp_point_select"][..], &["--events=3", "oltp_point_select"]] {
        let output = check(more);
        let summary = json_lines(&out(&output)).pop().expect("a summary");
        let code = match summary["verdict"].as_str() {
            Some("calm") => 0,
            Some("not_calm") => 1,
            _ => 3,
        };
        assert_code(&output, code);
        if more[0].starts_with("--events") {
            assert_eq!(code, 3, "the run has no whole second: {summary:?}");
        }
    }
    let without_run = check(&["oltp_point_select", "cleanup"]);
    assert_code(&without_run, 2);
    assert!(err(&without_run).contains("--check"), "{}", err(&without_run));
}

#[test]
fn settings_are_the_databases_also_where_none_were_given() {
    let dir = directory();
    let made = [
        "bench",
        "--table-size=50",
        "--page-size=8KiB",
        "--page-store=in_place",
        "--redo-capacity=16MiB",
        "--buffer-pool-size=3MiB",
        "oltp_point_select",
        "prepare",
    ];
    assert_code(&run(dir.path(), &made), 0);
    let again = ["bench", "--table-size=50", "--events=3", "--buffer-pool-size=1001KiB", "--format=json"];
    let again = [&again[..], &["--report=run.html", "oltp_point_select", "run"]].concat();
    let output = run(dir.path(), &again);
    assert_code(&output, 0);
    let summary = json_lines(&out(&output)).pop().expect("a summary");
    let page = text_of(&std::fs::read_to_string(dir.path().join("run.html")).expect("the report is there"));
    let settings = summary["settings"].as_array().expect("a list");
    for (name, value, origin, word) in [
        ("--page-size", "8KiB", "database", "the database's"),
        ("--page-store", "in_place", "database", "the database's"),
        ("--redo-capacity", "256MiB", "default", ""),
        // Whole pages.
        ("--buffer-pool-size", "1000KiB", "flag", "given"),
        ("--buffer-pool-size-max", "1000KiB", "default", ""),
    ] {
        let setting = settings.iter().find(|setting| setting["name"] == name).expect("it is listed");
        assert_eq!((&setting["value"], &setting["origin"]), (&value.into(), &origin.into()), "{name}");
        assert!(page.contains(&format!("{name} {value} {word}")), "{name} in {page}");
    }
}

#[test]
fn histogram_is_in_the_json_when_it_is_asked_for() {
    let dir = directory();
    let args = ["--format=json", "--histogram", "--report-interval=0"];
    let of_run = [&["bench", "--table-size=500", "--events=300", "oltp_point_select"], &args[..]].concat();
    let of_steps = ["bench", "--table-size=500", "--dir=other", "--steps=l.i0", "insert_benchmark"];
    for (args, heading) in [(of_run, "Summary"), ([&of_steps[..], &args].concat(), "Step of the insert benchmark")] {
        let output = run(dir.path(), &args);
        assert_code(&output, 0);
        let line = json_lines(&out(&output)).swap_remove(0);
        assert_documented(&line, heading);
        let buckets = line["latency_histogram"].as_array().expect("a list");
        let counted: u64 = buckets.iter().filter_map(|bucket| bucket["count"].as_u64()).sum();
        assert_eq!(Some(counted), line["transactions"].as_u64(), "every transaction is in one: {buckets:?}");
        let latencies: Vec<f64> = buckets.iter().filter_map(|bucket| bucket["latency_ms"].as_f64()).collect();
        assert!(latencies.len() == buckets.len() && latencies.is_sorted(), "{latencies:?}");
        let (max_ms, last) = (line["latency_max_ms"].as_f64(), latencies.last().copied());
        assert!(max_ms.zip(last).is_some_and(|(max, last)| (max / last).ln().abs() < 0.02), "{max_ms:?} {last:?}");
    }
}

#[test]
fn json_of_an_interrupted_run_ends_with_its_summary() {
    let dir = directory();
    let args = ["bench", "--table-size=500", "--time=600", "--format=json", "--report=run.html", "oltp_update_index"];
    let mut child =
        millpond(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it has a standard output"));
    let mut text = String::new();
    lines.read_line(&mut text).expect("it can be read");
    kill_process(Pid::from_child(&child), Signal::INT).expect("it can be interrupted");
    lines.read_to_string(&mut text).expect("it can be read");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let lines = json_lines(&text);
    assert_eq!(lines.last().map(|line| &line["interrupted"]), Some(&Value::Bool(true)));
    let page = std::fs::read_to_string(dir.path().join("run.html")).expect("the report is there");
    assert!(page.contains("interrupted"));
}

/// The page as a tree; it is XML, too.
fn parsed(page: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    roxmltree::Document::parse_with_options(page, options).expect("the page is well formed")
}

/// All text in the page, a space between two pieces.
pub(super) fn text_of(page: &str) -> String {
    let document = parsed(page);
    document.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect::<Vec<_>>().join(" ")
}

#[test]
fn report_has_the_summarys_figures_and_every_chart() {
    let dir = directory();
    let args = bench(&["--report=run.html", "--rand-seed=77", "oltp_update_index"]);
    let output = run(dir.path(), &args);
    assert_code(&output, 0);
    let summary = out(&output);
    let page = std::fs::read_to_string(dir.path().join("run.html")).expect("the report is there");
    let text = text_of(&page).replace(',', "");
    for (name, unit) in [
        ("    median rate:                         ", "tps"),
        ("worst second:     ", "tps"),
        ("brownout (under half the median):    ", "s"),
        ("         max:                           ", "ms"),
    ] {
        let after = summary.split_once(name).expect("the summary has it").1.trim_start();
        let figure = after.split_whitespace().next().unwrap_or_default();
        assert!(
            text.contains(&format!(" {figure} {unit}")) || text.contains(&format!(" {figure}  {unit}")),
            "no {figure} {unit} in the page:\n{text}"
        );
    }
    assert!(text.contains("--rand-seed 77 given"), "{text}");
    let verdict = summary.lines().find_map(|line| line.strip_prefix("verdict: ")).expect("it ends with one");
    assert!(text.contains(&format!("Verdict: {}", verdict.replace(',', ""))), "{verdict}:\n{text}");
    let document = parsed(&page);
    let charts: Vec<_> = document.descendants().filter(|node| node.has_tag_name(SVG)).collect();
    assert_eq!(charts.len(), 10);
    for chart in charts {
        assert!(chart.descendants().any(|node| node.is_element() && node.tag_name().name() == "title"), "{chart:?}");
    }
}

/// The name of a chart in the page.
const SVG: (&str, &str) = ("http://www.w3.org/2000/svg", "svg");

#[test]
fn report_needs_no_network_and_runs_nothing() {
    let dir = directory();
    assert_code(&run(dir.path(), &bench(&["--report=run.html", "oltp_point_select"])), 0);
    let page = std::fs::read_to_string(dir.path().join("run.html")).expect("the report is there");
    for node in parsed(&page).descendants().filter(roxmltree::Node::is_element) {
        let name = node.tag_name().name();
        assert!(!["script", "link", "img", "iframe", "object", "use", "image"].contains(&name), "<{name}>");
        for attribute in node.attributes() {
            let name = attribute.name();
            assert!(!["src", "href", "onload", "onclick"].contains(&name), "{attribute:?}");
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn hostile_names_are_shown_as_they_are_and_harm_nothing() {
    let dir = directory();
    let name = "<script>alert('a')<!-- &amp; \"b\" ]]>";
    assert_code(&run(dir.path(), &bench(&["--report=run.html", "--dir", name, "oltp_point_select"])), 0);
    let page = std::fs::read_to_string(dir.path().join("run.html")).expect("the report is there");
    assert!(!page.contains("<script"));
    assert!(text_of(&page).contains(name));
}

#[test]
fn report_of_a_run_without_a_second_or_transaction_says_so() {
    let dir = directory();
    let tiny = ["bench", "--table-size=50", "--report=run.html", "--events=3", "oltp_point_select"];
    assert_code(&run(dir.path(), &tiny), 0);
    let page = std::fs::read_to_string(dir.path().join("run.html")).expect("the report is there");
    assert!(text_of(&page).contains("no whole second"), "{page}");
    let mode = std::fs::metadata(dir.path().join("run.html")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o600, 0o600);
}

#[test]
fn unwritable_report_is_refused_before_anything_is_done() {
    let dir = directory();
    for (path, why) in [("none/run.html", "No such file or directory"), (".", "it is no file")] {
        let output = run(dir.path(), &bench(&["--report", path, "oltp_update_index"]));
        assert_code(&output, 2);
        assert!(err(&output).contains("cannot write the report to") && err(&output).contains(why), "{}", err(&output));
        assert_eq!(out(&output), "");
    }
    let without_run = run(dir.path(), &bench(&["--report=run.html", "oltp_update_index", "prepare"]));
    assert_code(&without_run, 2);
    assert!(err(&without_run).contains("--report"), "{}", err(&without_run));
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 0, "nothing was made");
}

#[test]
fn quiet_says_nothing_but_what_went_wrong() {
    let dir = directory();
    let output = run(dir.path(), &bench(&["-q", "--report=run.html", "oltp_point_select"]));
    assert_code(&output, 0);
    assert_eq!(err(&output), "");
    assert!(out(&output).contains("SQL statistics:"));
    let wrong = run(dir.path(), &["-q", "check", "none"]);
    assert_code(&wrong, 2);
    assert!(err(&wrong).starts_with("error: "), "{}", err(&wrong));
}

#[test]
fn text_says_no_percentile_and_another_stall_threshold() {
    let dir = directory();
    let output = run(dir.path(), &bench(&["--percentile=0", "--stall-threshold=20ms", "oltp_point_select"]));
    assert_code(&output, 0);
    let text = out(&output);
    assert!(text.contains(" lat (ms,0%): 0.00 "), "{text}");
    assert!(text.contains("         percentile stats:               disabled\n"), "{text}");
    assert!(
        text.contains("    stalls (slower than 20 ms):          0\n") || text.contains("20 ms):          "),
        "{text}"
    );
}
