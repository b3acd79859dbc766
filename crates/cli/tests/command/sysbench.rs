//! Unchanged scripts for sysbench: the order of words, underscores, options for a server, the four commands.

use super::*;

/// The command under the name `sysbench`, as scripts call it.
fn sysbench(dir: &Path, line: &str) -> Output {
    let link = dir.join("sysbench");
    if !link.exists() {
        std::os::unix::fs::symlink(assert_cmd::cargo::cargo_bin!("millpond"), &link).expect("a link can be made");
    }
    Command::new(link).current_dir(dir).args(line.split(' ')).output().expect("the command starts")
}

const OPTIONS: &str = "--db-driver=mysql --mysql-host=127.0.0.1 --mysql-port=3306 --mysql-user=sb \
                       --mysql-password=secret --mysql-db=sbtest --mysql-ssl=off --mysql_ignore_errors=all --tables=2 \
                       --table_size=300 --threads=2 --time=1 --report-interval=1 --rand-type=uniform --rand-seed=7 \
                       --skip_trx=off --verbosity=3 --validate=on --debug=off --forced-shutdown=off \
                       --report-checkpoints=1 --db-ps-mode=disable --percentile=99";

#[test]
fn sysbench_script_prepares_runs_cleans_up_and_prints_help() {
    let dir = directory();
    let act = |command: &str| sysbench(dir.path(), &format!("oltp_read_write {OPTIONS} {command}"));
    let tables = || out(&run(dir.path(), &["info", "millpond-bench-data"])).matches("table 'sbtest").count();
    let missing = act("run");
    assert_code(&missing, 2);
    let prepared = act("prepare");
    assert_code(&prepared, 0);
    assert!(err(&prepared).contains("loaded sbtest1 to sbtest2 with 600 rows"), "{}", err(&prepared));
    assert_eq!(tables(), 2);
    for _ in 0..2 {
        let ran = act("run");
        assert_code(&ran, 0);
        assert!(out(&ran).contains("thds: 2 tps: ") && out(&ran).contains("99th percentile: "), "{}", out(&ran));
        assert!(!err(&ran).contains("loaded"), "a run takes the tables that are there: {}", err(&ran));
        assert_eq!(tables(), 2);
    }
    let cleaned = act("cleanup");
    assert_code(&cleaned, 0);
    assert!(err(&cleaned).contains("dropped sbtest1 to sbtest2"), "{}", err(&cleaned));
    assert_eq!(tables(), 0);
    let help = act("help");
    assert_code(&help, 0);
    for part in ["oltp_read_write", "--table-size", "--point-selects", "Usage: millpond bench", "help"] {
        assert!(out(&help).contains(part), "no {part} in: {}", out(&help));
    }
}

#[test]
fn each_option_for_a_server_is_told_once_and_without_its_value() {
    let dir = directory();
    let line = format!("--mysql-host=other oltp_insert {OPTIONS} prepare");
    let output = sysbench(dir.path(), &line);
    assert_code(&output, 0);
    let said = err(&output);
    let ignored: Vec<&str> = said.lines().filter(|line| line.contains(" is ignored: ")).collect();
    let names: Vec<&str> = ignored.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(
        names,
        [
            "--mysql-host",
            "--db-driver",
            "--mysql-port",
            "--mysql-user",
            "--mysql-password",
            "--mysql-db",
            "--mysql-ssl",
            "--mysql-ignore-errors",
            "--verbosity",
            "--validate",
            "--debug",
            "--forced-shutdown",
            "--report-checkpoints",
            "--db-ps-mode",
        ]
    );
    assert!(!said.contains("secret"), "{said}");
    let quiet = sysbench(dir.path(), &format!("--quiet {line}"));
    assert_code(&quiet, 0);
    assert_eq!(err(&quiet), "");
    assert_eq!(out(&sysbench(dir.path(), "--version")).split(' ').next(), Some("millpond"));
}

#[test]
fn script_paths_and_old_names_are_taken_and_unknown_refused() {
    let dir = directory();
    let bench = |line: &str| run(dir.path(), &["bench"].into_iter().chain(line.split(' ')).collect::<Vec<_>>());
    let old = "/usr/share/sysbench/oltp_insert.lua --table_size=100 --num-threads=2 --max-time=0 --max-requests=50";
    let output = bench(&format!("{old} --tx-rate=100000"));
    assert_code(&output, 0);
    assert_eq!(field(&out(&output), "total number of events:              "), 50.0);
    assert_code(&bench("--test=oltp_insert --table_size=100 cleanup"), 0);
    for (line, texts) in [
        ("oltp_insert --tabel_size=100 run", ["'--tabel-size'", "'--table-size'"]),
        ("oltp_insert --mysqlhost=a run", ["'--mysqlhost'", "unexpected"]),
        ("oltp_instert.lua run", ["'oltp_instert'", "'oltp_insert'"]),
        ("oltp_insert runn", ["'runn'", "'run'"]),
    ] {
        let refused = bench(line);
        assert_code(&refused, 2);
        assert!(texts.iter().all(|text| err(&refused).contains(text)), "{line}: {}", err(&refused));
    }
}
