//! Command lines that were written for sysbench: `sysbench oltp_read_write --table_size=1000 --mysql-host=db run`.
//!
//! | sysbench's word | translation |
//! |---|---|
//! | `sysbench`, as the name of the program | `millpond bench` |
//! | `--table_size` | `--table-size`: underscores and dashes are the same in the name of any option |
//! | `/usr/share/sysbench/oltp_insert.lua`, `--test=oltp_insert` | `oltp_insert` |
//! | options for a server, a driver, a log level | ignored, with a line for each |

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Prefixes of ignored options, with the reason: one list for all database drivers.
const IGNORED_PREFIXES: [(&str, &str); 3] = [("mysql-", OF_A_SERVER), ("pgsql-", OF_A_SERVER), ("db-", OF_A_SERVER)];

const OF_A_SERVER: &str = "there is no server: the database is in --dir";
const OF_A_DISTRIBUTION: &str = "the choice of rows has sysbench's defaults";
const OF_THREADS: &str = "threads are made as the system makes them";
const OF_LUA: &str = "there is no Lua";

/// Other options of sysbench that are ignored, and why.
const IGNORED: [(&str, &str); 16] = [
    ("verbosity", "--quiet leaves out what is said on standard error"),
    ("debug", "--format=json and --report tell all that is known of a run"),
    ("validate", "rows are always looked at"),
    ("report-checkpoints", "--report-interval and --report tell of each second"),
    ("forced-shutdown", "a run ends when its time is up"),
    ("thread-stack-size", OF_THREADS),
    ("thread-init-timeout", OF_THREADS),
    ("luajit-cmd", OF_LUA),
    ("create-table-options", OF_A_SERVER),
    ("reconnect", OF_A_SERVER),
    ("rand-init", OF_A_DISTRIBUTION),
    ("rand-spec-iter", OF_A_DISTRIBUTION),
    ("rand-spec-pct", OF_A_DISTRIBUTION),
    ("rand-spec-res", OF_A_DISTRIBUTION),
    ("rand-pareto-h", OF_A_DISTRIBUTION),
    ("rand-zipfian-exp", OF_A_DISTRIBUTION),
];

/// A command line in this command's own words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// The words, the program's name first.
    pub(crate) all: Vec<OsString>,
    /// A line for each option that is ignored.
    pub(crate) ignored: Vec<String>,
}

impl Words {
    /// Translates a command line; one without any of sysbench's words stays as it is.
    pub(crate) fn of(given: impl IntoIterator<Item = OsString>) -> Words {
        let mut given = given.into_iter();
        let mut words = Words { all: given.next().into_iter().collect(), ignored: Vec::new() };
        let mut given = given.peekable();
        let is_called_sysbench =
            words.all.first().is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new("sysbench")));
        // `sysbench --version` must not become `bench --version`.
        if is_called_sysbench && given.peek().is_some_and(|word| word != "--version") {
            words.all.push("bench".into());
        }
        let mut is_bench = words.all.len() > 1;
        let mut has_command = is_bench;
        while let Some(word) = given.next() {
            if word == "--" {
                words.all.push(word);
                words.all.extend(given);
                break;
            }
            let text = word.to_str().unwrap_or_default();
            if let Some(option) = text.strip_prefix("--") {
                let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
                words.take_option(&name.replace('_', "-"), value, is_bench);
                continue;
            }
            let is_script = is_bench && text.ends_with(".lua");
            if !has_command && !text.starts_with('-') {
                has_command = true;
                is_bench = text == "bench";
            }
            words.all.push(if is_script { script_name(text) } else { word });
        }
        words
    }

    /// Translates an option; with `bench` it may be one of sysbench's.
    fn take_option(&mut self, name: &str, value: Option<&str>, is_bench: bool) {
        if is_bench
            && name == "test"
            && let Some(value) = value
        {
            self.all.push(script_name(value));
        } else if let Some(why) = why_ignored(name).filter(|_| is_bench) {
            let line = format!("--{name} is ignored: {why}");
            if !self.ignored.contains(&line) {
                self.ignored.push(line);
            }
        } else {
            self.all.push(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")).into());
        }
    }
}

/// The workload that a script is named after: `oltp_insert` of `/usr/share/sysbench/oltp_insert.lua`.
fn script_name(text: &str) -> OsString {
    Path::new(text).file_name().unwrap_or_default().to_str().map_or(text, |name| name.trim_end_matches(".lua")).into()
}

/// Why an option of this name is ignored; `None` if it is not.
fn why_ignored(name: &str) -> Option<&'static str> {
    let by_prefix = IGNORED_PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
    by_prefix.or_else(|| IGNORED.iter().find(|(ignored, _)| *ignored == name)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (String, Vec<String>) {
        let words = Words::of(line.split(' ').map(OsString::from));
        let all: Vec<_> = words.all.iter().map(|word| word.to_string_lossy()).collect();
        (all.join(" "), words.ignored)
    }

    #[test]
    fn underscores_in_names_are_dashes_and_values_stay() {
        for (given, taken) in [
            (
                "m bench oltp_insert --table_size=5 --dir=my_dir run",
                "m bench oltp_insert --table-size=5 --dir=my_dir run",
            ),
            ("m --quiet bench --skip_trx=on oltp_read_only", "m --quiet bench --skip-trx=on oltp_read_only"),
            ("m options --page_size=4KiB", "m options --page-size=4KiB"),
            ("m check -- --my_dir", "m check -- --my_dir"),
            ("m bench /usr/share/sysbench/oltp_insert.lua run", "m bench oltp_insert run"),
            ("m bench --test=oltp_insert.lua run", "m bench oltp_insert run"),
            ("m bench oltp_insert --report=a=b", "m bench oltp_insert --report=a=b"),
            ("m", "m"),
        ] {
            assert_eq!(of(given), (taken.to_owned(), vec![]), "{given}");
        }
    }

    #[test]
    fn program_called_sysbench_is_bench() {
        assert_eq!(of("/usr/bin/sysbench oltp_insert run").0, "/usr/bin/sysbench bench oltp_insert run");
        assert_eq!(of("sysbench --threads=2 oltp_insert run").0, "sysbench bench --threads=2 oltp_insert run");
        assert_eq!(of("sysbench --version").0, "sysbench --version");
        assert_eq!(of("millpond oltp_insert run").0, "millpond oltp_insert run");
    }

    #[test]
    fn server_options_are_ignored_by_bench_and_told_without_values() {
        let line = "sysbench oltp_insert --mysql-password=secret --mysql_host=a --mysql-host=b --db-driver=mysql \
                    --verbosity=5 --rand-spec-pct=1 --threads=4 run";
        let (taken, ignored) = of(line);
        assert_eq!(taken, "sysbench bench oltp_insert --threads=4 run");
        assert_eq!(ignored.len(), 5, "{ignored:?}");
        assert!(ignored[1].starts_with("--mysql-host is ignored: there is no server"), "{ignored:?}");
        assert!(!ignored.join("").contains("secret"));
        assert_eq!(of("m check --mysql-host=a").0, "m check --mysql-host=a");
    }
}
