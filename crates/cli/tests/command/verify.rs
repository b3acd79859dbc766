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
fn verify_snapshot_refuses_what_would_show_nothing() {
    let dir = directory();
    std::fs::write(dir.path().join("notes.txt"), "mine").expect("a file can be written");
    for (args, said) in [
        (&["verify", "snapshot", "--reads=0"][..], &["--reads 0", "at least"][..]),
        (&["verify", "snapshot", "--threads=1"], &["--threads", "'1'", "2 to 64"]),
        (&["verify", "snapshot", "--dir=."], &["not empty", "--dir"]),
        (&["verify"], &["snapshot"]),
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
