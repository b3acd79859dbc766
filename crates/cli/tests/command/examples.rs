//! Every example in the help and in the README runs, in a short form.

use super::*;

/// The database of examples that name none.
const DATABASE: &str = "millpond-bench-data";

/// The words of each example in a text. Examples are lines that begin with `before`: an indent in help, a prompt in the
/// README.
fn examples<'t>(text: &'t str, before: &str) -> Vec<Vec<&'t str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(before));
    let commands = lines.filter(|line| line.starts_with("millpond ") || line.starts_with("MILLPOND_"));
    commands.map(|line| line.split(" # ").next().unwrap_or_default().split_whitespace().collect()).collect()
}

/// The words after `millpond`, with small sizes and times, and with paths that the test may use.
fn made_short(words: &[&str]) -> Vec<String> {
    let mut short: Vec<String> = Vec::new();
    for word in words.iter().skip_while(|word| **word != "millpond").skip(1) {
        let before = short.last().map(String::as_str);
        short.push(match *word {
            _ if before == Some("--rounds") || before == Some("--time") => "1".to_owned(),
            _ if before == Some("--reads") => "400".to_owned(),
            "--rate=80%" => "--rate=200".to_owned(),
            "DIR" => DATABASE.to_owned(),
            "SOCKET" => "millpond.sock".to_owned(),
            word => match word.split_once('=') {
                Some(("--time" | "--warmup-time", _)) => "--time=1".to_owned(),
                Some(("--table-size", _)) => "--table-size=500".to_owned(),
                Some((option @ ("--threads" | "--tables"), _)) => format!("{option}=2"),
                _ => word.replace("/tmp/", "").replace("/mnt/disk/", ""),
            },
        });
    }
    short
}

/// Runs an example in `dir`, over tables of 500 rows.
#[track_caller]
fn assert_runs(dir: &Path, words: &[&str]) {
    let mut args = made_short(words);
    let is_over_tables = args[0] == "bench" && !args.iter().any(|arg| arg.starts_with("--table-size"));
    if is_over_tables {
        args.push("--table-size=500".to_owned());
    }
    if args[0] == "verify" && args.get(1).is_some_and(|promise| promise == "isolation") {
        // With fewer it might not see all that a level allows.
        args.retain(|arg| !arg.starts_with("--transactions") && !arg.starts_with("--threads"));
        args.extend(["--transactions=4000", "--threads=8"].map(str::to_owned));
    } else if args[0] == "verify" && !args.iter().any(|arg| arg.starts_with("--reads")) {
        args.push("--reads=400".to_owned());
    }
    if args[0] == "bench" && !args.iter().any(|arg| arg.starts_with("--time")) {
        args.push("--time=1".to_owned());
    }
    // Examples in README and help use different numbers of tables, so each run here begins without a database.
    let begins_anew = args[0] == "bench" && !args.iter().any(|arg| arg == "cleanup");
    if begins_anew {
        std::fs::remove_dir_all(dir.join(DATABASE)).ok();
    }
    if ["backup", "restore"].contains(&args[0].as_str()) {
        // The examples of both name the same directories.
        std::fs::remove_dir_all(dir.join(args.last().expect("a target"))).ok();
    }
    if args[0] == "rebuild" {
        let data = dir.join(DATABASE).join("data.mpd");
        let mut bytes = std::fs::read(&data).expect("it can be read");
        bytes[..1 << 17].fill(0);
        std::fs::write(&data, &bytes).expect("it can be written");
    }
    if args[0] == "top" && !args.iter().any(|arg| arg == "--once") {
        args.push("--once".to_owned());
    }
    let is_for_a_shell = args.iter().any(|arg| ["|", ">"].contains(&arg.as_str()) || arg.contains('\''));
    let mut command = if is_for_a_shell {
        in_shell(dir, &format!("millpond {}", args.join(" ")))
    } else {
        millpond(dir, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let variables = words.iter().take_while(|word| **word != "millpond").filter_map(|word| word.split_once('='));
    let engine = args.iter().any(|arg| arg == "millpond.sock").then(|| Engine::start(dir));
    assert_code(&command.envs(variables).output().expect("the command starts"), 0);
    drop(engine);
}

/// A line for a shell, which finds the command by its name.
pub(super) fn in_shell(dir: &Path, line: &str) -> Command {
    let command = Path::new(assert_cmd::cargo::cargo_bin!("millpond")).parent().expect("it is in a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.current_dir(dir).args(["-c", line]).env("PATH", format!("{}:{path}", command.display()));
    shell
}

/// An engine that answers on its status socket until it is dropped, and the read end of its standard output. Without
/// that end the engine's process would end at its next line.
struct Engine(std::process::Child, #[expect(dead_code, reason = "kept open")] BufReader<std::process::ChildStdout>);

impl Engine {
    fn start(dir: &Path) -> Engine {
        let args = ["bench", "--dir=running", "--status-socket=millpond.sock", "--time=600", "oltp_update_index"];
        let (child, output) = start_until_its_first_line(dir, &args);
        Engine(child, output)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        let _ = self.0.wait();
    }
}

#[test]
fn every_example_in_help_runs() {
    let dir = directory();
    std::fs::write(dir.path().join("fast.toml"), "durability = \"none\"\n").expect("a file can be written");
    std::fs::write(dir.path().join("people.tsv"), "key\tvalue\n1\tnyada\n2\tlabob\n").expect("a file can be written");
    let mut seen = 0;
    for command in [
        &["bench"][..],
        &["options"],
        &["crashtest"],
        &["check"],
        &["info"],
        &["dump"],
        &["status"],
        &["top"],
        &["probe"],
        &["backup"],
        &["restore"],
        &["compact"],
        &["rebuild"],
        &["put"],
        &["load"],
        &["get"],
        &["scan"],
        &["count"],
        &["export"],
        &["delete"],
        &["verify"],
        &["verify", "snapshot"],
        &["verify", "isolation"],
    ] {
        let help = out(&run(dir.path(), &[command, &["--help"]].concat()));
        let examples = examples(&help, "  ");
        assert!(!examples.is_empty(), "{command:?}");
        for example in examples {
            seen += 1;
            assert_runs(dir.path(), &example);
            // The examples that follow need tables.
            if example.contains(&"cleanup") {
                assert_runs(dir.path(), &["millpond", "bench", "oltp_update_index", "prepare"]);
            }
        }
    }
    assert!(seen >= 34, "{seen} examples seen");
}

/// The project's root.
fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn dependency_and_links_in_the_readme_lead_somewhere() {
    let readme = include_str!("../../../../README.md");
    let block = readme.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).map(|(block, _)| block);
    let table: toml::Table = block.expect("a block of Cargo.toml").parse().expect("it is TOML");
    let path = table["dependencies"]["millpond"]["path"].as_str().expect("a path");
    // The path is that of a project beside the clone.
    let below = path.strip_prefix("../millpond/").expect("a clone beside the project");
    let manifest = std::fs::read_to_string(root().join(below).join("Cargo.toml")).expect("the crate is there");
    let manifest: toml::Table = manifest.parse().expect("it is TOML");
    assert_eq!(manifest["package"]["name"].as_str(), Some("millpond"));

    let links = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links: Vec<&str> = links.filter(|link| !link.starts_with("http")).collect();
    for link in &links {
        assert!(root().join(link).exists(), "{link} is not there");
    }
    for wanted in ["docs/seeing.md", "docs/metrics.md"] {
        assert!(links.contains(&wanted), "no link to {wanted}: {links:?}");
    }
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("there is one");
    for target in ["demo", "test", "install", "lab"] {
        let (said, is_there) = (format!("make {target}"), format!("\n{target}: "));
        assert!(readme.contains(&said) && makefile.contains(&is_there), "{target}");
    }
}

#[test]
fn every_command_in_the_readme_runs() {
    let dir = directory();
    let examples = examples(include_str!("../../../../README.md"), "$ ");
    assert!(examples.len() >= 12, "{examples:?}");
    for example in examples {
        assert_runs(dir.path(), &example);
    }
}
