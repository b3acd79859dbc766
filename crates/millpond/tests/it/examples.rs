//! The examples for users, run as users run them.

#[expect(dead_code, reason = "`main` is for users")]
#[path = "../../examples/bank.rs"]
mod bank;
#[expect(dead_code, reason = "`main` is for users")]
#[path = "../../examples/job_queue.rs"]
mod job_queue;
#[expect(dead_code, reason = "`main` is for users")]
#[path = "../../examples/secondary_index.rs"]
mod secondary_index;

#[test]
fn example_of_a_secondary_index_prints_what_it_found() {
    let dir = tempfile::tempdir().expect("made");
    // The second time the table exists.
    for _ in 0..2 {
        let mut out = Vec::new();
        secondary_index::show(dir.path(), &mut out).expect("shown");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "in Oslo:\n  7: ada@example.org\n  12: eve@example.org\nbob@example.org is number 9\n\
             refused: index 'by_email' of table 'people' is unique, and another row has 'ada@example.org' there: change \
             that row first, or give this one another value\n"
        );
    }
}

#[test]
fn example_of_a_bank_keeps_the_sum() {
    let dir = tempfile::tempdir().expect("made");
    for _ in 0..2 {
        let mut out = Vec::new();
        bank::show(dir.path(), &mut out).expect("shown");
        assert_eq!(String::from_utf8(out).expect("text"), "10 accounts have 1000 together\n");
    }
}

#[test]
fn example_of_a_queue_does_each_job_once() {
    let dir = tempfile::tempdir().expect("made");
    for _ in 0..2 {
        let mut out = Vec::new();
        job_queue::show(dir.path(), &mut out).expect("shown");
        assert_eq!(String::from_utf8(out).expect("text"), "40 jobs were done, each once; 0 are left\n");
    }
}
