//! `millpond verify`: a run that compares enough, and what it leaves.

use super::*;

#[test]
fn verify_snapshot_compares_20000_reads_and_cleans_up() {
    let dir = directory();
    let args = ["verify", "snapshot", "--reads=20000", "--seed=1", "--threads=4", "--dir=db"];
    let output = run(dir.path(), &args);
    assert_code(&output, 0);
    let text = out(&output);
    let counts = text.lines().find(|line| line.contains("compared with the replay")).expect("the counts");
    let reads: u64 = counts.split(' ').next().expect("a word").parse().expect("a number");
    assert!(reads >= 20_000 && text.ends_with("\nall right\n"), "{text}");
    assert!(!dir.path().join("db").exists());
}

#[test]
fn verify_isolation_sees_what_each_level_allows() {
    let dir = directory();
    let args = ["verify", "isolation", "--transactions=6000", "--seed=1", "--threads=8", "--dir=db"];
    let output = run(dir.path(), &args);
    assert_code(&output, 0);
    let text = out(&output);
    for level in ["read committed in", "repeatable read, latest in", "repeatable read in"] {
        assert!(text.contains(level), "{text}");
    }
    let committed = text.lines().filter_map(|line| line.trim().split_once(" committed, ")?.0.parse::<u64>().ok());
    assert!(committed.clone().count() == 3 && committed.sum::<u64>() > 9_000, "{text}");
    assert!(text.ends_with("\nall right\n") && !dir.path().join("db").exists(), "{text}");
}

#[test]
fn verify_isolation_refuses_what_would_show_nothing() {
    let dir = directory();
    for (args, said) in [
        (&["verify", "isolation", "--transactions=0"][..], &["--transactions 0", "thousands"][..]),
        (&["verify", "isolation", "--level=serializable"], &["'serializable'", "repeatable-read", "--level"]),
        (&["verify", "isolation", "--transactions=2", "--threads=2", "--dir=db"], &["never seen", "--transactions"]),
    ] {
        let output = run(dir.path(), args);
        assert_code(&output, 2);
        said.iter().for_each(|part| assert!(err(&output).contains(part), "{args:?}: {}", err(&output)));
    }
}

#[test]
fn verify_snapshot_refuses_what_would_show_nothing() {
    let dir = directory();
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("a file can be written");
    for (args, said) in [
        (&["verify", "snapshot", "--reads=0"][..], &["--reads 0", "at least"][..]),
        (&["verify", "snapshot", "--threads=1"], &["--threads", "'1'", "2 to 64"]),
        (&["verify", "snapshot", "--dir=."], &["not empty", "--dir"]),
        (&["verify"], &["snapshot", "isolation"]),
        (&["verify", "snapshots"], &["'snapshots'", "'snapshot'"]),
    ] {
        let output = run(dir.path(), args);
        assert_code(&output, 2);
        said.iter().for_each(|part| assert!(err(&output).contains(part), "{args:?}: {}", err(&output)));
    }
}

#[test]
fn bench_holds_a_snapshot_and_says_what_it_kept() {
    let dir = directory();
    let load = ["bench", "--snapshot-held", "--time=2", "--table-size=500", "--threads=2", "oltp_update_index"];
    let output = run(dir.path(), &load);
    assert_code(&output, 0);
    let text = out(&output);
    let line = text.lines().find(|line| line.starts_with("Snapshot held for ")).expect("the line");
    assert!(line.ends_with(" of undo pages kept for it") && !line.contains(" 0 B "), "{line}");
}
