//! The tables that `bench` creates and uses: with id as a column, with drawn ids.

use super::*;

/// Every workload over the tables of sysbench.
const OVER_TABLES: [&str; 10] = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_insert",
    "select_random_points",
    "select_random_ranges",
    "oltp_delete",
];

#[test]
fn every_workload_runs_with_secondary_and_without_auto_inc() {
    let dir = directory();
    for flags in [&["--dir=secondary", "--secondary"][..], &["--dir=drawn", "--auto-inc=off"]] {
        for workload in OVER_TABLES {
            let args = ["bench", "--table-size=300", "--time=0", "--events=100", "--threads=2", workload];
            let output = run(dir.path(), &[&args[..], flags].concat());
            assert_code(&output, 0);
            assert_eq!(field(&out(&output), "total number of events:              "), 100.0, "{}", out(&output));
        }
        let database = flags[0].trim_start_matches("--dir=");
        let check = run(dir.path(), &["check", database]);
        assert_code(&check, 0);
        assert!(out(&check).contains("problems:     0"), "{}", out(&check));
        let info = out(&run(dir.path(), &["info", database]));
        assert_eq!(info.contains("index 'xid'"), database == "secondary", "{info}");
    }
    // A run uses the tables as they are, and draws ids that no earlier run drew.
    for _ in 0..2 {
        let args = ["bench", "--table-size=300", "--events=100", "--auto-inc=off", "--dir=drawn", "oltp_insert", "run"];
        assert_code(&run(dir.path(), &args), 0);
    }
}
