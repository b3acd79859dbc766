//! The example for users, run as users run it.

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
