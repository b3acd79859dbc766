//! Commands that ask a running engine by its status socket.

use super::*;

#[test]
fn running_engine_answers_and_is_backed_up_by_its_socket() {
    let dir = directory();
    let args = ["bench", "--table-size=2000", "--time=600", "--dir=db", "--status-socket=sock", "oltp_update_index"];
    let (mut bench, lines) = start_until_its_first_line(dir.path(), &args);
    let in_use = run(dir.path(), &["backup", "db", "backup"]);
    assert_code(&in_use, 2);
    assert!(err(&in_use).contains("by its engine's status socket"), "{}", err(&in_use));
    let checked = run(dir.path(), &["check", "sock"]);
    assert_code(&checked, 0);
    let text = out(&checked);
    assert!(text.contains("\nin indexes:   2000\n") && text.ends_with("\nproblems:     0\n"), "{text}");
    let facts = run(dir.path(), &["info", "sock"]);
    assert_code(&facts, 0);
    assert!(out(&facts).contains("table 'sbtest1':"), "{}", out(&facts));
    assert_eq!(out(&run(dir.path(), &["count", "sock", "sbtest1"])), "2000\n");
    let some = run(dir.path(), &["scan", "sock", "sbtest1", "--index=k", "--reverse", "--limit=3", "--format=hex"]);
    assert_code(&some, 0);
    assert_eq!(out(&some).lines().count(), 3, "{}", out(&some));
    let key = format!("hex:{}", out(&some).split('\t').next().unwrap_or_default());
    let row = run(dir.path(), &["get", "sock", "sbtest1", &key, "--format=hex"]);
    assert_code(&row, 0);
    assert!(out(&row).len() > 300, "{}", out(&row));
    assert_code(&run(dir.path(), &["get", "sock", "sbtest1", "hex:00"]), 1);
    let missing = run(dir.path(), &["scan", "sock", "films"]);
    assert_code(&missing, 2);
    assert!(err(&missing).contains("no tree or table 'films'"), "{}", err(&missing));
    let in_use = run(dir.path(), &["get", "db", "sbtest1", "k"]);
    assert_code(&in_use, 2);
    assert!(err(&in_use).contains("take the socket in the place of the directory"), "{}", err(&in_use));
    let made = run(dir.path(), &["backup", "sock", "backup", "--rate=100MiB"]);
    assert_code(&made, 0);
    assert!(out(&made).contains("\nof:           sock\nLSN:          "), "{}", out(&made));
    let again = run(dir.path(), &["backup", "sock", "backup"]);
    assert_code(&again, 2);
    assert!(err(&again).contains("is not empty"), "{}", err(&again));
    let in_use = run(dir.path(), &["compact", "db"]);
    assert_code(&in_use, 2);
    assert!(err(&in_use).contains("name its engine's status socket"), "{}", err(&in_use));
    let short = run(dir.path(), &["compact", "sock", "--rate=100MiB"]);
    assert_code(&short, 0);
    assert!(out(&short).starts_with("compacted:    sock\nbytes before: "), "{}", out(&short));
    kill_process(Pid::from_child(&bench), Signal::KILL).expect("it can be killed");
    bench.wait().expect("it ends");
    drop(lines);
    for command in ["check", "info"] {
        let dead = run(dir.path(), &[command, "sock"]);
        assert_code(&dead, 2);
        assert!(err(&dead).contains("its engine has ended without a close"), "{}", err(&dead));
        assert_code(&run(dir.path(), &[command, "backup"]), 0);
    }
    let rated = run(dir.path(), &["check", "backup", "--rate=1MiB"]);
    assert_code(&rated, 2);
    assert!(err(&rated).contains("--rate=1.0 MiB is for a running engine"), "{}", err(&rated));
    assert_code(&run(dir.path(), &["restore", "backup", "restored"]), 0);
    assert_code(&run(dir.path(), &["check", "restored"]), 0);
    assert_code(&run(dir.path(), &["compact", "restored"]), 0);
    assert_code(&run(dir.path(), &["check", "restored"]), 0);
    let of_backup = run(dir.path(), &["compact", "backup"]);
    assert_code(&of_backup, 2);
}
