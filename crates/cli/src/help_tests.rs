//! Checks the help texts against clap's model of the command.

use clap::{Arg, Command as ClapCommand, CommandFactory, Parser};

use super::{Cli, Command, Words};

/// Every command and subcommand that is not hidden, with the words that lead to it.
fn commands() -> Vec<(String, ClapCommand)> {
    fn collect(path: &str, command: &ClapCommand, all: &mut Vec<(String, ClapCommand)>) {
        all.push((path.to_owned(), command.clone()));
        for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            collect(&format!("{path} {}", below.get_name()), below, all);
        }
    }
    let mut command = Cli::command();
    command.build();
    let mut all = Vec::new();
    collect("millpond", &command, &mut all);
    all
}

fn args(command: &ClapCommand) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

/// The examples in a command's help.
fn examples(command: &ClapCommand) -> Vec<String> {
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    help.lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.contains("millpond "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_argument_is_documented_and_help_fits_the_terminal() {
    let commands = commands();
    assert!(commands.len() >= 21, "{} commands seen", commands.len());
    for (path, command) in commands {
        for help in [command.clone().render_help(), command.clone().render_long_help()] {
            for line in help.to_string().lines() {
                assert!(line.chars().count() <= 120, "{path}: longer than 120 columns:\n{line}");
            }
        }
        let long = command.clone().render_long_help().to_string();
        let long_words = long.split_whitespace().collect::<Vec<_>>().join(" ");
        for arg in args(&command) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.len() > 8 && !help.ends_with('.'), "{path} {}: '{help}'", arg.get_id());
            let long_help = arg.get_long_help().map_or(help, ToString::to_string);
            let first = long_help.lines().next().unwrap_or_default();
            assert!(long_words.contains(first), "{path}: {first}");
            // Values that clap does not list must be in the text.
            let possible = if arg.is_hide_possible_values_set() { arg.get_possible_values() } else { Vec::new() };
            for value in possible {
                assert!(long.contains(value.get_name()), "{path} {}: {}", arg.get_id(), value.get_name());
            }
            let takes_values = arg.get_action().takes_values();
            for default in arg.get_default_values().iter().filter(|_| takes_values) {
                let default = default.to_string_lossy();
                assert!(long_words.contains(&format!("default: {default}")), "{path} {}: {default}", arg.get_id());
            }
        }
    }
}

#[test]
fn every_command_has_examples_that_parse() {
    for (path, command) in commands().into_iter().skip(1).filter(|(path, _)| !path.starts_with("millpond dump ")) {
        let examples = examples(&command);
        assert!(!examples.is_empty(), "{path} has no example");
        for example in examples {
            for command in example.split(['|', '>']).filter(|command| command.contains("millpond ")) {
                let words = command.split_whitespace().skip_while(|word| *word != "millpond");
                // As a shell does with quotes.
                let words = words.map(|word| word.replace('\'', "").into());
                let parsed = Cli::try_parse_from(Words::of(words).all);
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err().map(|error| error.to_string()));
            }
        }
    }
}

/// The first `A to B` in a text.
fn range(text: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    words.windows(3).find_map(|words| match words {
        [least, "to", most] => Some((least.parse().ok()?, most.parse().ok()?)),
        _ => None,
    })
}

/// Whether the command accepts an option, as far as parsing shows.
fn takes(path: &str, arg: &Arg, value: u64) -> bool {
    let option = format!("--{}={value}", arg.get_long().unwrap_or_default());
    let mut words: Vec<&str> = path.split(' ').collect();
    words.push(&option);
    match path {
        "millpond bench" if arg.get_help_heading() == Some("Insert benchmark") => words.push("insert_benchmark"),
        "millpond bench" => words.push("oltp_read_write"),
        "millpond probe" => words.push("."),
        _ => {}
    }
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Command::Bench(args), .. }) => args.check(&[]).is_ok(),
        parsed => parsed.is_ok(),
    }
}

#[test]
fn ranges_that_help_states_are_those_that_are_taken() {
    let mut seen = 0;
    for (path, command) in commands() {
        for arg in args(&command).filter(|arg| arg.get_help_heading() != Some("Engine")) {
            let Some((least, most)) = range(&arg.get_help().map(ToString::to_string).unwrap_or_default()) else {
                continue;
            };
            seen += 1;
            let (name, taken) = (arg.get_id(), |value| takes(&path, arg, value));
            assert!(taken(least) && taken(most), "{path} {name}: {least} and {most}");
            assert!(least == 0 || !taken(least - 1), "{path} {name}: {least} is not the least");
            assert!(!taken(most + 1), "{path} {name}: {most} is not the most");
        }
    }
    assert!(seen >= 18, "{seen} ranges seen");
}
