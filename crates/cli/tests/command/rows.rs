//! Rows in the shell: they come, are found, go, and move between databases byte for byte.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use millpond::{ByteSize, Field, TableDefinition};

use super::examples::in_shell;
use super::*;

/// Runs a command with an input.
fn fed(dir: &Path, args: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut command = millpond(dir, args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // A command that refuses its input may have ended before it reads all of it.
    let _ = child.stdin.take().expect("it has a standard input").write_all(input.as_ref());
    child.wait_with_output().expect("it ends")
}

/// Asserts that a command ends with `code`, prints `text`, and says all of `said` on standard error.
#[track_caller]
fn assert_ends(output: &Output, code: i32, text: &str, said: &[&str]) {
    assert_code(output, code);
    assert_eq!(out(output), text);
    for part in said {
        assert!(err(output).contains(part), "not said: {part}\n{}", err(output));
    }
}

fn open(dir: &Path, options: Options) -> Db {
    Db::open(dir, options).expect("a database can be opened")
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The rows of every tree and table.
fn contents(dir: &Path) -> BTreeMap<String, Rows> {
    let db = open(dir, Options::new().create(false).read_only(true));
    let rows = |scan: millpond::Scan| scan.collect::<Result<Rows, _>>().expect("it can be read");
    let trees = db.trees().expect("listed").into_iter().map(|name| {
        let tree = db.open_tree(&name).expect("it is there");
        (name, rows(tree.scan(..)))
    });
    let tables = db.tables().expect("listed").into_iter().map(|name| {
        let table = db.open_table(&name).expect("it is there");
        (name, rows(table.scan(..)))
    });
    trees.chain(tables).collect()
}

/// Rows with every byte in keys and values, an empty key, empty values, and a long value.
fn odd_rows() -> Rows {
    let all: Vec<u8> = (0..=255).collect();
    let mut rows: Rows = all.iter().map(|byte| (vec![*byte], vec![*byte; usize::from(*byte) % 3])).collect();
    rows.push((Vec::new(), b"the empty key".to_vec()));
    rows.push((all.clone(), Vec::new()));
    rows.push((b"long".to_vec(), all.repeat(5000)));
    rows.push((b"hex:00".to_vec(), b"\\t\\x00 {\"hex\":\"00\"}".to_vec()));
    rows.push((b"lines\r\n".to_vec(), b"\r\n\t\r".to_vec()));
    rows.sort();
    rows
}

/// A database of trees and tables with odd names, rows and indexes.
fn make_odd(dir: &Path, page_kib: u64) {
    let db = open(dir, Options::new().page_size(ByteSize::kib(page_kib)));
    db.bulk_load("rows", odd_rows()).expect("loaded");
    for name in ["empty", "tab\tline\nquote\"back\\", "\u{e4}\u{1F600} ../x", "-", &"n".repeat(255)] {
        db.create_tree(name).expect("created");
    }
    let indexes = TableDefinition::new()
        .index("by_city", [Field::value(0..2)])
        .unique("by_name", [Field::value(2..)])
        .index("by_both=", [Field::key(0..1), Field::value(1..2)]);
    db.create_table("none\u{7f}", indexes.clone()).expect("created");
    let table = db.create_table("people", indexes).expect("created");
    for number in 0..1500u32 {
        let city = [b"ny", b"la", b"\0\xff"][number as usize % 3];
        table.put(number.to_be_bytes(), [&city[..], &number.to_be_bytes()].concat()).expect("written");
    }
    table.put("long", [b'x'; 100_000]).expect_err("an entry of the index would be too long");
    db.create_table("plain", TableDefinition::new()).expect("created").put("", "").expect("written");
    db.close().expect("closed");
}

#[test]
fn rows_come_are_found_and_go() {
    let dir = directory();
    let act = |args: &[&str]| run(dir.path(), args);
    assert_ends(&act(&["put", "db", "t", "a", "1"]), 2, "", &["'db' does not exist"]);
    assert_ends(&act(&["put", "--create", "db", "t", "a", "1"]), 0, "", &[]);
    let missing = ["no tree or table 'u' in 'db': it has 't'", "millpond info db", "--create"];
    assert_ends(&act(&["put", "db", "u", "a", "1"]), 2, "", &missing);
    assert_ends(&act(&["put", "db", "t", "u32:7", r"x\ty\\"]), 0, "", &[]);
    assert_ends(&act(&["put", "db", "t", "a", "hex:00ff"]), 0, "", &[]);
    assert_ends(&act(&["put", "db", "t", "text:u64:1", ""]), 0, "", &[]);
    assert_ends(&act(&["get", "db", "t", "a"]), 0, "\\x00\\xff\n", &[]);
    assert_ends(&act(&["get", "db", "t", "a", "--format=hex"]), 0, "00ff\n", &[]);
    assert_ends(&act(&["get", "db", "t", "hex:00000007"]), 0, "x\\ty\\\\\n", &[]);
    assert_ends(&act(&["get", "db", "t", "a", "--format=tsv"]), 0, "key\tvalue\na\t\\x00\\xff\n", &[]);
    let json = "{\"key\":\"a\",\"value\":{\"hex\":\"00ff\"}}\n";
    assert_ends(&act(&["get", "db", "t", "a", "--format=jsonl"]), 0, json, &[]);
    let absent = act(&["get", "db", "t", "b"]);
    assert_ends(&absent, 1, "", &[]);
    assert_eq!(err(&absent), "");
    let rows = "\\x00\\x00\\x00\\x07\tx\\ty\\\\\na\t\\x00\\xff\nu64:1\t\n";
    assert_ends(&act(&["scan", "db", "t"]), 0, rows, &[]);
    assert_ends(&act(&["count", "db", "t"]), 0, "3\n", &[]);
    assert_ends(&act(&["delete", "db", "t", "a", "b", "u32:7"]), 0, "2\n", &[]);
    assert_ends(&act(&["delete", "db", "t", "a", "b"]), 1, "0\n", &[]);
    assert_ends(&act(&["scan", "db", "t", "--format=tsv"]), 0, "key\tvalue\nu64:1\t\n", &[]);
    assert_ends(&act(&["scan", "db", "t", "--prefix=x", "--format=tsv"]), 0, "key\tvalue\n", &[]);
    for args in [&["get", "db", "u", "a"][..], &["scan", "db", "u"], &["count", "db", "u"], &["export", "db", "u"]] {
        assert_ends(&act(args), 2, "", &["no tree or table 'u' in 'db': it has 't' (`millpond info db` lists all)"]);
    }
}

#[test]
fn ranges_are_by_key_or_by_an_index_both_ways() {
    let dir = directory();
    let rows = "4\tnyeve\n1\tnyada\n3\tlacid\n2\tlabob\n";
    let args = ["load", "db", "people", "--index=by_city=value[0..2]", "--unique=by_name=value[2..]"];
    assert_ends(&fed(dir.path(), &args, rows), 0, "", &["loaded 4 rows into the new table 'people'"]);
    for (words, keys) in [
        ("", "1234"),
        ("--reverse", "4321"),
        ("--from=2", "234"),
        ("--before=3", "12"),
        ("--from=2 --before=4 --reverse", "32"),
        ("--from=3 --before=2", ""),
        ("--prefix=3", "3"),
        ("--limit=2", "12"),
        ("--limit=0", ""),
        ("--index=by_city", "2314"),
        ("--index=by_city --from=m", "14"),
        ("--index=by_city --before=ny --reverse", "32"),
        ("--index=by_city --prefix=ny --limit=1", "1"),
        ("--index=by_name", "1234"),
        ("--index=by_name --prefix=b", "2"),
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let scanned = run(dir.path(), &[&["scan", "db", "people"], &words[..]].concat());
        assert_code(&scanned, 0);
        let found: String = out(&scanned).lines().map(|line| &line[..1]).collect();
        assert_eq!(found, keys, "{words:?}");
        if !words.iter().any(|word| word.starts_with("--limit") || *word == "--reverse") {
            let counted = run(dir.path(), &[&["count", "db", "people"], &words[..]].concat());
            assert_ends(&counted, 0, &format!("{}\n", keys.len()), &[]);
        }
    }
    let wrong = run(dir.path(), &["scan", "db", "people", "--index=by_age"]);
    assert_ends(&wrong, 2, "", &["table 'people' has no index 'by_age': it has 'by_city', 'by_name'"]);
    assert_code(&run(dir.path(), &["put", "--create", "db", "t", "a", "1"]), 0);
    let wrong = run(dir.path(), &["count", "db", "t", "--index=by_city"]);
    assert_ends(&wrong, 2, "", &["tree 't' has no indexes", "omit --index"]);
}

#[test]
fn every_byte_goes_through_a_pipe_in_every_form() {
    let dir = directory();
    make_odd(&dir.path().join("db"), 16);
    for form in ["text", "hex", "jsonl", "tsv"] {
        for sorted in ["", "--sorted"] {
            let to = format!("{form}{sorted}");
            let scan = format!("millpond scan db rows --format={form} --reverse={}", sorted.is_empty());
            let scan = scan.replace(" --reverse=true", " --reverse").replace(" --reverse=false", "");
            let line = format!("{scan} | millpond load --format={form} {sorted} to{to} rows");
            assert_code(&in_shell(dir.path(), &line).output().expect("the shell starts"), 0);
            assert!(contents(&dir.path().join(format!("to{to}")))["rows"] == odd_rows(), "{to}");
        }
    }
}

#[test]
fn export_moves_all_between_page_sizes_and_back() {
    let dir = directory();
    make_odd(&dir.path().join("small"), 4);
    for line in [
        "millpond export small > small.jsonl",
        "millpond load large --page-size=16KiB < small.jsonl",
        "millpond export large > large.jsonl && cmp small.jsonl large.jsonl",
        "millpond load again --page-size=4KiB --input=large.jsonl",
        "millpond export again | cmp large.jsonl",
        "millpond check large && millpond check again",
    ] {
        assert_code(&in_shell(dir.path(), line).output().expect("the shell starts"), 0);
    }
    let all = contents(&dir.path().join("small"));
    assert!(all["rows"] == odd_rows() && all.len() == 9, "{:?}", all.keys());
    assert!(contents(&dir.path().join("large")) == all && contents(&dir.path().join("again")) == all);
    let definition = |db: &str| {
        let db = open(&dir.path().join(db), Options::new());
        db.open_table("people").expect("it is there").definition()
    };
    assert_eq!(definition("large"), definition("small"));
    assert!(definition("again").indexes()[1].is_unique());
    // Some of them, in the order that was asked for.
    let some = run(dir.path(), &["export", "small", "people", "-q", "--", "-", "empty"]);
    assert_code(&some, 0);
    assert!(
        out(&some).starts_with("{\"millpond_export\":1,\"names\":[\"people\",\"-\",\"empty\"]}\n{\"table\":\"people\"")
    );
    assert!(out(&some).ends_with("{\"tree\":\"-\"}\n{\"tree\":\"empty\"}\n{\"end\":true,\"rows\":1500}\n"));
    let twice = run(dir.path(), &["export", "small", "empty", "empty"]);
    assert_ends(&twice, 2, "", &["'empty' is named twice"]);
}

/// An export of two trees and a table.
const EXPORT: &str = r#"{"millpond_export":1,"names":["a","b","t"]}
{"tree":"a"}
{"key":"1","value":"x"}
{"tree":"b"}
{"table":"t","indexes":[{"name":"i","unique":true,"fields":["value[0..1]"]}]}
{"key":"1","value":"x"}
{"key":"2","value":"y"}
{"end":true,"rows":3}
"#;

#[test]
fn export_that_was_cut_short_leaves_no_half_tree() {
    let dir = directory();
    let lines: Vec<&str> = EXPORT.lines().collect();
    for cut in 1..lines.len() {
        let db = format!("db{cut}");
        // Once between two lines, once within the next one.
        for part in [lines[..cut].join("\n") + "\n", lines[..cut].join("\n") + "\n" + &lines[cut][..5]] {
            assert_ends(&fed(dir.path(), &["load", &db], part), 2, "", &["the export"]);
            let left = contents(&dir.path().join(&db));
            let whole = [("a", 4), ("b", 5)].into_iter().filter(|(_, from)| cut >= *from).map(|(name, _)| name);
            assert!(left.keys().eq(whole), "{cut}: {:?}", left.keys());
            std::fs::remove_dir_all(dir.path().join(&db)).expect("it can be removed");
        }
    }
    assert_code(&fed(dir.path(), &["load", "whole"], EXPORT.trim_end()), 0);
    assert_eq!(out(&run(dir.path(), &["export", "whole"])), EXPORT);
    let table = "'t' was not loaded, and what came before it was";
    for (old, new, said) in [
        ("\"rows\":3", "\"rows\":4", &["line 8 of standard input", "an export of 4 rows, of which 3 came", table][..]),
        ("3}\n", "3}\n\n", &["line 9 of standard input", "comes after the end of the export", table]),
        (
            "\"2\",\"value\":\"y\"",
            "\"1\",\"value\":\"y\"",
            &["line 7 of standard input", "key '1'", "the same as", table],
        ),
        (
            "\"2\",\"value\":\"y\"",
            "\"2\",\"value\":\"\"",
            &["line 7 of standard input", "has 0 bytes", "index 'i'", table],
        ),
        ("\"value\":\"y\"", "\"value\":\"x\"", &["index 'i' of table 't' cannot be unique", "'1'", "'2'"]),
        ("\"2\"", "\"\\ud800\"", &["line 7 of standard input", "make it again", table]),
        ("{\"tree\":\"a\"}\n", "", &["line 2 of standard input", "is a row before any tree"]),
        ("{\"tree\":\"b\"}", "{\"millpond_export\":1}", &["begins a second export", "'a' was not loaded"]),
        ("value[0..1]", "value", &["line 5 of standard input", "'value' is no field"]),
    ] {
        let damaged = EXPORT.replacen(old, new, 1);
        assert!(damaged != EXPORT, "{old}");
        assert_ends(&fed(dir.path(), &["load", "damaged"], damaged), 2, "", said);
        let left = contents(&dir.path().join("damaged"));
        assert!(!left.contains_key("t"), "{old}: {:?}", left.keys());
        std::fs::remove_dir_all(dir.path().join("damaged")).expect("it can be removed");
    }
}

#[test]
fn what_is_no_export_makes_no_database() {
    let dir = directory();
    for (input, said) in [
        ("", "standard input is empty: write the NAME of a tree"),
        ("a\t1\n", "line 1 of standard input, 'a\\t1', begins no export: write the NAME of a tree"),
        ("{\"key\":\"a\",\"value\":\"1\"}\n", "begins no export"),
        ("{\"millpond_export\":2,\"more\":1}\n", "begins no export"),
        ("{\"millpond_export\":2}\n", "form 2, and this build reads form 1: use a newer build"),
    ] {
        assert_ends(&fed(dir.path(), &["load", "db"], input), 2, "", &[said]);
    }
    let missing = run(dir.path(), &["load", "db", "t", "--input=none"]);
    assert_ends(&missing, 2, "", &["cannot open 'none': No such file", "another file with --input"]);
    for args in [&["--sorted"][..], &["--format=hex"], &["--index=i=key[0..1]"]] {
        assert_ends(&fed(dir.path(), &[&["load", "db"], args].concat(), ""), 2, "", &["NAME"]);
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("it can be read").count(), 0, "nothing was made");
}

#[test]
fn export_whose_names_exist_is_refused_before_any_is_made() {
    let dir = directory();
    assert_code(&run(dir.path(), &["put", "--create", "db", "t", "a", "1"]), 0);
    let texts = ["'db' has tree 't' already", "another directory", "nothing was loaded"];
    assert_ends(&fed(dir.path(), &["load", "db"], EXPORT), 2, "", &texts);
    assert!(contents(&dir.path().join("db")).keys().eq(["t"]));
    // An export without its list of names meets the tree later.
    let unlisted = EXPORT.replace(",\"names\":[\"a\",\"b\",\"t\"]", "");
    assert_ends(&fed(dir.path(), &["load", "db"], unlisted), 2, "", &["tree 't' exists already"]);
    assert!(contents(&dir.path().join("db")).keys().eq(["a", "b", "t"]));
    // One that names its tree is no input for a tree of another name.
    let texts = ["line 1 of standard input", "begins an export", "leave the name out"];
    assert_ends(&fed(dir.path(), &["load", "db", "u", "--format=jsonl"], EXPORT), 2, "", &texts);
}

#[test]
fn mistake_in_a_line_leaves_nothing_of_a_new_tree() {
    let dir = directory();
    let long = format!("a\t1\n{}\n", "x".repeat(10_000));
    let key = format!("a\t1\n{}\t1\n", "x".repeat(4000));
    for (args, input, said) in [
        (&[][..], "a\t1\nb\n", &["line 2 of standard input, 'b', has no tab", "--format"][..]),
        (&[], &long, &["line 2 of standard input, 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...', has no tab"]),
        (&[], &key, &["line 2 of standard input: key 'xxx", "has 4000 bytes: at most 3072"]),
        (&[], "a\t1\t2", &["line 1 of standard input", "more than one tab"]),
        (&[], "a\t1\r\nb\t2\r\n", &["line 1 of standard input, 'a\\t1\\r', ends with CR LF", "tr -d '\\r'"]),
        (&[], "a\t\\q\n", &["line 1", "'\\q' is no escape", "\\\\ for a backslash"]),
        (&[], "b\t1\na\t1\nb\t2\n", &["key 'b'", "the same as that of the row before", "each key once"]),
        (&["--sorted"], "b\t1\na\t1\n", &["line 2 of standard input", "key 'a'", "below that of the row before"]),
        (&["--format=hex"], "61\t6\n", &["line 1 of standard input, '61\\t6', is no hex", "two digits a byte"]),
        (&["--format=tsv"], "a\t1\n", &["line 1 of standard input, 'a\\t1', is no heading", "--format=text"]),
        (&["--format=tsv"], "", &["standard input is empty: a tsv begins with the line key, tab, value"]),
        (&["--format=jsonl"], "{\"key\":\"a\"}\n", &["line 1", "missing field `value`", "{\"hex\":\"00ff\"}"]),
        (&["--index=i=value[0..2]"], "a\tx\n", &["line 1", "has 1 bytes: index 'i' wants at least 2"]),
        (&["--index=i=value[2..0]"], "a\tx\n", &["the field value[2..0] ends before it begins"]),
        (&["--unique=i=value[0..1]"], "a\tx\nb\ty\nc\tx", &["index 'i' of table 't' cannot be unique", "'a'", "'c'"]),
    ] {
        assert_ends(&fed(dir.path(), &[&["load", "db", "t"], args].concat(), input), 2, "", said);
        assert_eq!(contents(&dir.path().join("db")), BTreeMap::new(), "{input}");
    }
    // Without a mistake: in any order, and without the last line end.
    assert_code(&fed(dir.path(), &["load", "db", "t"], "b\t2\na\t1"), 0);
    assert_code(&fed(dir.path(), &["load", "db", "none"], ""), 0);
    assert_ends(&run(dir.path(), &["scan", "db", "t"]), 0, "a\t1\nb\t2\n", &[]);
    assert_ends(&run(dir.path(), &["count", "db", "none"]), 0, "0\n", &[]);
}

#[test]
fn rows_go_into_an_existing_tree_up_to_a_mistake() {
    let dir = directory();
    let load = |more: &[&str], input: &str| fed(dir.path(), &[&["load", "db", "t"], more].concat(), input);
    let lines = |range: std::ops::Range<u32>, value: &str| -> String {
        range.map(|number| format!("{number:05}\t{value}{number}\n")).collect()
    };
    assert_code(&load(&["--unique=by_value=value[0..]"], &lines(0..10, "a")), 0);
    let refused = load(&["--index=more=key[0..1]"], "");
    assert_ends(&refused, 2, "", &["table 't' exists already", "--index and --unique are for a new table"]);
    // Several batches: some rows are replaced, some are new. The last of a key counts.
    let more = lines(5..2500, "b") + "00007\tlast\n";
    assert_ends(&load(&[], &more), 0, "", &["loaded 2496 rows into table 't'"]);
    assert_ends(&run(dir.path(), &["count", "db", "t"]), 0, "2500\n", &[]);
    assert_ends(&run(dir.path(), &["get", "db", "t", "00007"]), 0, "last\n", &[]);
    // A line that is no row, in the second batch.
    let said = ["line 1502 of standard input, 'no row', has no tab", "the lines before it are in table 't'"];
    assert_ends(&load(&[], &(lines(3000..4501, "c") + "no row\n" + &lines(5000..5001, "c"))), 2, "", &said);
    assert_ends(&run(dir.path(), &["count", "db", "t"]), 0, "4001\n", &[]);
    // A row that the index refuses, in the middle of a batch.
    let said = ["line 1201 of standard input: row '07200'", "another row has 'last' there", "(that is row '00007')"];
    assert_ends(&load(&[], &(lines(6000..7200, "d") + "07200\tlast\n" + &lines(7201..9000, "d"))), 2, "", &said);
    assert_ends(&run(dir.path(), &["count", "db", "t", "--index=by_value"]), 0, "5201\n", &[]);
    assert_code(&run(dir.path(), &["check", "db"]), 0);
}

#[test]
fn database_in_use_is_refused_with_what_can_be_asked() {
    let dir = directory();
    let db = open(&dir.path().join("db"), Options::new());
    db.create_tree("t").expect("created");
    for args in [
        &["get", "db", "t", "a"][..],
        &["scan", "db", "t"],
        &["count", "db", "t"],
        &["put", "db", "t", "a", "1"],
        &["delete", "db", "t", "a"],
        &["load", "db", "t"],
        &["export", "db"],
    ] {
        assert_ends(
            &fed(dir.path(), args, ""),
            2,
            "",
            &["'db' is in use by", "close it there", "take the socket in the place of the directory"],
        );
    }
}

#[test]
fn reading_commands_write_nothing_even_after_a_crash() {
    let dir = directory();
    make_odd(&dir.path().join("db"), 16);
    assert_code(&run(dir.path(), &["put", "--create", "db", "t", "a", "1"]), 0);
    // A crash: the log may have changes that no page has.
    assert_eq!(cut_load(dir.path(), &many_rows(), Signal::KILL), None);
    let files = || -> BTreeMap<_, _> {
        let entries = std::fs::read_dir(dir.path().join("db")).expect("it can be read");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.map(|path| (path.clone(), std::fs::read(path).expect("it can be read"))).collect()
    };
    let before = files();
    for args in
        [&["get", "db", "rows", "a"][..], &["scan", "db", "people"], &["count", "db", "rows"], &["export", "db"]]
    {
        assert_code(&run(dir.path(), args), 0);
        assert!(files() == before, "{args:?}");
    }
    assert_ends(&run(dir.path(), &["get", "db", "t", "a"]), 0, "1\n", &[]);
}

#[test]
fn reader_that_ends_early_is_a_quiet_end_of_rows() {
    let dir = directory();
    make_odd(&dir.path().join("db"), 16);
    for args in [&["scan", "db", "rows"][..], &["export", "db"], &["count", "db", "rows"], &["get", "db", "rows", "a"]]
    {
        let line = format!("millpond {} | head -c 1 > /dev/null", args.join(" "));
        let output = in_shell(dir.path(), &line).output().expect("the shell starts");
        assert_code(&output, 0);
        assert!(!err(&output).contains("error"), "{}", err(&output));
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let output = millpond(dir.path(), args).stdout(writer).output().expect("the command starts");
        assert_ends(&output, 0, "", &[]);
        assert_eq!(err(&output), "");
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = millpond(dir.path(), args).stdout(full).output().expect("the command starts");
        assert_ends(&output, 2, "", &["cannot write to standard output: No space left"]);
    }
}

/// Rows for a load that is cut off.
fn many_rows() -> Vec<u8> {
    (0..100_000u32).flat_map(|n| format!("{n:08}\tvalue {n}\n").into_bytes()).collect()
}

/// Starts a load into tree `t`, gives it `rows`, sends it a signal once it has read most of them, and returns its exit
/// code.
fn cut_load(dir: &Path, rows: &[u8], signal: Signal) -> Option<i32> {
    let mut command = millpond(dir, &["load", "db", "t"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts");
    let mut input = child.stdin.take().expect("it has a standard input");
    // More than a pipe and the command's buffer hold: when this returns, the command reads, and so heeds interrupts.
    input.write_all(rows).expect("it can be written");
    kill_process(Pid::from_child(&child), signal).expect("it can be told");
    drop(input);
    child.wait().expect("it ends").code()
}

#[test]
fn interrupt_ends_a_load_with_nothing_or_with_whole_lines() {
    let dir = directory();
    let rows = many_rows();
    assert_eq!(cut_load(dir.path(), &rows, Signal::INT), Some(130));
    assert_eq!(contents(&dir.path().join("db")), BTreeMap::new());
    assert_code(&run(dir.path(), &["put", "db", "t", "a", "1", "--create"]), 0);
    assert_eq!(cut_load(dir.path(), &rows, Signal::INT), Some(130));
    let left = contents(&dir.path().join("db"));
    let whole = left["t"].iter().all(|(key, value)| key == b"a" || value.starts_with(b"value "));
    assert!(whole && left["t"].len() < 100_001, "{}", left["t"].len());
    assert_code(&run(dir.path(), &["check", "db"]), 0);
}

#[test]
fn dumps_of_other_stores_load_as_documented() {
    let dir = directory();
    let page = include_str!("../../../../docs/rows.md");
    let ldb = "0x6B31 ==> 0x7631\n0x6B32 ==> 0x\n";
    let mdb = "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n 6b31\n 7631\n 6b32\n \nDATA=END\n";
    for (tool, dump) in [("ldb", ldb), ("mdb_dump", mdb)] {
        std::fs::write(dir.path().join(tool), format!("cat <<'END'\n{dump}END\n")).expect("a file can be written");
        let lines = page.lines().filter_map(|line| line.strip_prefix("$ "));
        let lines: Vec<&str> = lines.filter(|line| line.starts_with(tool)).collect();
        assert!(!lines.is_empty(), "{tool}");
        for (at, line) in lines.iter().enumerate() {
            // In the place of the tool: a script that prints its dump.
            let line = line.replacen(tool, &format!("sh ./{tool}"), 1).replace("NEW", &format!("{tool}-{at}"));
            assert_code(&in_shell(dir.path(), &line).output().expect("the shell starts"), 0);
            let all = contents(&dir.path().join(format!("{tool}-{at}")));
            let rows = vec![(b"k1".to_vec(), b"v1".to_vec()), (b"k2".to_vec(), Vec::new())];
            assert_eq!(all.into_values().collect::<Vec<_>>(), [rows], "{line}");
        }
    }
}
