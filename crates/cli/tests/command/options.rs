//! The engine's options from flags, variables and a file, and the output of `millpond options`.

use millpond::OptionInfo;
use serde_json::Value;

use super::*;

/// The lines of `options --format=json`.
fn listed(command: &mut Command) -> Vec<Value> {
    let output = command.output().expect("the command starts");
    assert_code(&output, 0);
    out(&output).lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn options(dir: &Path, more: &[&str]) -> Command {
    millpond(dir, &[&["options", "--format=json"], more].concat())
}

/// Value and origin of an option.
#[track_caller]
fn of(lines: &[Value], name: &str) -> (String, String) {
    let line = lines.iter().find(|line| line["name"] == name).expect("it is listed");
    (line["value"].as_str().expect("text").to_owned(), line["origin"].as_str().expect("text").to_owned())
}

#[test]
fn options_lists_every_option_with_the_engines_own_default() {
    let dir = directory();
    let lines = listed(&mut options(dir.path(), &[]));
    assert_eq!(lines.len(), OptionInfo::ALL.len());
    let engine = Options::new();
    for (line, info) in lines.iter().zip(OptionInfo::ALL) {
        assert_eq!((&line["schema"], &line["kind"]), (&Value::from(1), &Value::from("option")));
        assert_eq!((&line["name"], &line["origin"]), (&Value::from(info.name), &Value::from("default")));
        assert_eq!(line["value"], info.get(&engine).unwrap_or_else(|| info.default()), "{}", info.name);
        assert_eq!(line["default"], info.default(), "{}", info.name);
        for said in ["unit", "range", "changes", "help", "flag", "variable"] {
            assert!(line[said].as_str().is_some_and(|text| !text.is_empty()), "{said} of {}", info.name);
        }
    }
    let text = out(&run(dir.path(), &["options"]));
    assert_eq!(text.lines().count(), 3 * OptionInfo::ALL.len(), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 0, "nothing was made");
}

#[test]
fn bench_help_has_every_option_with_range_default_and_variable() {
    let dir = directory();
    let help = out(&run(dir.path(), &["bench", "--help"])).split_whitespace().collect::<Vec<_>>().join(" ");
    for info in OptionInfo::ALL {
        for part in [
            format!("--{}", info.name.replace('_', "-")),
            format!("Range: {}.", info.range),
            format!("Default: {}.", info.default()),
            format!("Variable: MILLPOND_{}.", info.name.to_uppercase()),
        ] {
            assert!(help.contains(&part), "no '{part}' in:\n{help}");
        }
    }
}

#[test]
fn flag_comes_before_variable_before_file_before_default() {
    let dir = directory();
    std::fs::write(
        dir.path().join("run.toml"),
        "buffer_pool_size = \"32MiB\"\nread_ahead_pages = 8\ncached = true\ndurability = \"none\"\n",
    )
    .expect("a file can be written");
    let flags = ["--config=run.toml", "--buffer-pool-size=96MiB"];
    let mut command = options(dir.path(), &flags);
    command.env("MILLPOND_BUFFER_POOL_SIZE", "64MiB").env("MILLPOND_READ_AHEAD_PAGES", "16");
    let lines = listed(&mut command);
    for (name, value, origin) in [
        ("buffer_pool_size", "96MiB", "flag"),
        ("read_ahead_pages", "16", "environment"),
        ("cached", "true", "file"),
        ("durability", "none", "file"),
        ("io_engine", "auto", "default"),
        ("buffer_pool_size_max", "buffer_pool_size", "default"),
    ] {
        assert_eq!(of(&lines, name), (value.to_owned(), origin.to_owned()), "{name}");
    }
}

#[test]
fn variables_and_file_reach_the_database_that_bench_makes() {
    let dir = directory();
    std::fs::write(dir.path().join("run.toml"), "redo_capacity = \"8MiB\"\n").expect("a file can be written");
    let args = ["bench", "--dir=db", "--config=run.toml", "--table-size=100", "oltp_insert", "prepare"];
    let mut command = millpond(dir.path(), &args);
    command.env("MILLPOND_PAGE_SIZE", "4KiB").env("MILLPOND_BUFFER_POOL_SIZE", "4MiB");
    assert_code(&command.output().expect("the command starts"), 0);
    let info = out(&run(dir.path(), &["info", "db"]));
    let of = |name: &str| info.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(of("page size:").contains("4096") || of("page size:").contains("4.0 KiB"), "{info}");
    assert!(info.contains("8.0 MiB") || info.contains("8388608"), "{info}");
}

#[test]
fn wrong_values_name_where_they_come_from() {
    let dir = directory();
    let wrong = |args: &[&str], variable: Option<(&str, &str)>, parts: &[&str]| {
        let mut command = millpond(dir.path(), args);
        if let Some((name, value)) = variable {
            command.env(name, value);
        }
        let output = command.output().expect("the command starts");
        assert_code(&output, 2);
        assert_eq!(out(&output), "");
        for part in parts {
            assert!(err(&output).contains(part), "{args:?} does not say {part}:\n{}", err(&output));
        }
    };
    let pool = "MILLPOND_BUFFER_POOL_SIZE";
    wrong(&["options"], Some((pool, "lots")), &[pool, "'lots'", "64MiB"]);
    wrong(&["bench", "oltp_insert"], Some((pool, "64")), &[pool, "'64'", "64MiB"]);
    wrong(&["check", "none"], Some(("MILLPOND_CACHED", "maybe")), &["MILLPOND_CACHED", "'maybe'", "true, false"]);
    wrong(&["options", "--read-ahead-pages=65"], None, &["--read-ahead-pages", "'65'", "0 to 64"]);
    wrong(&["options", "--config=none.toml"], None, &["'none.toml'", "No such file"]);
    for (text, parts) in [
        ("bufer_pool_size = 1", &["'run.toml'", "'bufer_pool_size'", "'buffer_pool_size'"][..]),
        ("durability = \"often\"", &["'run.toml'", "'durability'", "\"often\"", "background(100ms)"]),
        ("durability = [1]", &["'run.toml'", "'durability'", "[1]", "neither"]),
        ("durability =", &["'run.toml'", "not TOML"]),
    ] {
        std::fs::write(dir.path().join("run.toml"), text).expect("a file can be written");
        wrong(&["options", "--config=run.toml"], None, parts);
        wrong(&["bench", "--config=run.toml", "oltp_insert"], None, parts);
    }
    let made = std::fs::read_dir(dir.path()).expect("it can be read").count();
    assert_eq!(made, 1, "nothing was made but the file");
}

#[test]
fn all_mistakes_are_told_at_once_wherever_they_come_from() {
    let dir = directory();
    std::fs::write(dir.path().join("run.toml"), "durability = \"often\"\nio_capcity = 5\n")
        .expect("a file can be written");
    let flags = ["--config=run.toml", "--read-ahead-pages=65", "--page-size=5KiB"];
    for args in [&["options"][..], &["bench", "--tables=0", "oltp_insert"]] {
        let mut command = millpond(dir.path(), &[args, &flags].concat());
        command.env("MILLPOND_STALL_THRESHOLD", "20").env("MILLPOND_IO_ENGIN", "threads");
        let output = command.output().expect("the command starts");
        assert_code(&output, 2);
        let (said, count) = (err(&output), if args[0] == "bench" { 7 } else { 6 });
        assert!(said.starts_with(&format!("error: {count} mistakes in the options:\n  ")), "{said}");
        assert_eq!(said.lines().count(), count + 1, "{said}");
        for part in [
            "'65' for '--read-ahead-pages <PAGES>'",
            "'5KiB' for '--page-size <SIZE>'",
            "'20' for 'MILLPOND_STALL_THRESHOLD'",
            "'MILLPOND_IO_ENGINE'",
            "\"often\" for 'durability' in 'run.toml'",
            "'io_capcity', as in 'run.toml'; did you mean 'io_capacity'?",
        ] {
            assert!(said.contains(part), "no {part} in: {said}");
        }
    }
    // Mistakes that only an open finds: options that contradict the database, and options that do not fit together.
    let args = ["bench", "--dir=db", "--buffer-pool-size=1KiB", "--doublewrite=on", "--io-capacity=200", "oltp_insert"];
    let output = run(dir.path(), &args);
    assert_code(&output, 2);
    for part in ["buffer_pool_size is 1KiB", "doublewrite is for page_store=in_place", "io_capacity"] {
        assert!(err(&output).contains(part), "no {part} in: {}", err(&output));
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 1, "nothing was made");
}

#[test]
fn cached_is_a_flag_with_and_without_a_value() {
    let dir = directory();
    for (args, value) in [
        (&["--cached"][..], "true"),
        (&["--cached=false"], "false"),
        (&["--cached=on"], "true"),
        (&["--cached", "--cached=off"], "false"),
    ] {
        assert_eq!(of(&listed(&mut options(dir.path(), args)), "cached").0, value, "{args:?}");
    }
}

#[test]
fn document_has_the_table_of_options() {
    let mut table = String::from("| option | what | unit | range | default | changes |\n|---|---|---|---|---|---|\n");
    for info in OptionInfo::ALL {
        let (help, default) = (info.help, info.default());
        table.push_str(&format!(
            "| `{}` | {help} | {} | {} | {default} | {} |\n",
            info.name, info.unit, info.range, info.changes
        ));
    }
    let document = include_str!("../../../../docs/options.md");
    assert!(document.contains(&table), "docs/options.md is to have this table:\n{table}");
}

#[test]
fn profile_sets_what_was_not_given_and_says_so() {
    let dir = directory();
    let lines = listed(&mut options(dir.path(), &["--profile=mysql-8.0", "--io-capacity=4000"]));
    assert_eq!(of(&lines, "profile"), ("mysql-8.0".to_owned(), "flag".to_owned()));
    assert_eq!(of(&lines, "io_capacity"), ("4000".to_owned(), "flag".to_owned()));
    assert_eq!(of(&lines, "max_dirty_pages_pct"), ("90".to_owned(), "profile".to_owned()));
    assert_eq!(of(&lines, "log_spin"), ("affinity".to_owned(), "profile".to_owned()));
    assert_eq!(of(&lines, "buffer_pool_size").1, "default");
}

/// The values in force with a profile, even if other options leave some of its values unused.
#[test]
fn a_profile_says_what_is_in_force_beside_other_options() {
    let dir = directory();
    let lines = listed(&mut options(dir.path(), &["--profile=mysql-8.0", "--buffer-pool-size=1GiB"]));
    assert_eq!(of(&lines, "buffer_pool_instances"), ("8".to_owned(), "profile".to_owned()));
    let words = ["--profile=percona-5.7", "--buffer-pool-size=1GiB", "--empty-free-list-algorithm=handoff"];
    let lines = listed(&mut options(dir.path(), &words));
    assert_eq!(of(&lines, "buffer_pool_instances"), ("1".to_owned(), "default".to_owned()));
    let words = ["--profile=mysql-8.0", "--adaptive-flushing-method=envelope", "--log-writer-threads=false"];
    let lines = listed(&mut options(dir.path(), &words));
    assert_eq!(of(&lines, "io_capacity").1, "default");
    assert_eq!(of(&lines, "log_spin").1, "default");
    assert_eq!(of(&lines, "log_recent_closed"), ("poll".to_owned(), "profile".to_owned()));
}
