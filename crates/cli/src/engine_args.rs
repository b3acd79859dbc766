//! The engine's options of a command: flags, then `MILLPOND_*` variables, then a file, then defaults.
//!
//! [`OptionInfo::ALL`] is the one table behind flags, variables, file, help, errors and `millpond options`.

use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use millpond::{OptionInfo, Options};
use serde::Serialize;

use crate::exit::Failure;
use crate::output::printable;

/// The heading of the engine's options in help.
const HEADING: &str = "Engine";

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// A flag.
    Flag,
    /// A `MILLPOND_*` variable.
    Environment,
    /// The file that `--config` names.
    File,
    /// The requested profile.
    Profile,
    /// No value was given, and the database keeps its own.
    Database,
    /// No value was given.
    Default,
}

/// The options that the command line and the environment give.
#[derive(Clone, Debug)]
pub(crate) struct EngineArgs {
    config: Option<PathBuf>,
    asked: Vec<Asked>,
    /// Mistakes in flags and variables.
    mistakes: Vec<String>,
}

#[derive(Clone, Debug)]
struct Asked {
    info: &'static OptionInfo,
    text: String,
    origin: Origin,
}

/// An option's value, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct EngineSetting {
    pub(crate) info: &'static OptionInfo,
    /// The value; if it depends on the database or on another option, words that say so.
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

/// The engine's options as a command uses them.
#[derive(Clone, Debug)]
pub(crate) struct EngineSettings {
    pub(crate) options: Options,
    /// All of them, in the order of the table.
    pub(crate) all: Vec<EngineSetting>,
}

impl EngineSettings {
    /// The value of the option called `name`.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.all.iter().find(|setting| setting.info.name == name).map_or("", |setting| &setting.value)
    }

    /// From this duration on an operation counts as a stall, in ms.
    pub(crate) fn stall_threshold_ms(&self) -> u64 {
        let time = humantime::parse_duration(self.value("stall_threshold")).unwrap_or_default();
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether files go through the page cache.
    pub(crate) fn is_cached(&self) -> bool {
        self.value("cached") == "true"
    }
}

/// The flag of an option, such as `--page-size`.
pub(crate) fn flag(info: &OptionInfo) -> String {
    format!("--{}", info.name.replace('_', "-"))
}

/// How the names of variables begin.
const VARIABLES: &str = "MILLPOND_";

/// Variables with this prefix that the project's own tests, scripts and fuzzers read.
const OTHER_VARIABLES: [&str; 5] =
    ["MILLPOND_DECODER", "MILLPOND_FULL", "MILLPOND_PLANTED", "MILLPOND_WRITE_DOCS", "MILLPOND_WRITE_GOLDEN"];

/// The variable of an option, such as `MILLPOND_PAGE_SIZE`.
pub(crate) fn variable(info: &OptionInfo) -> String {
    format!("{VARIABLES}{}", info.name.to_uppercase())
}

/// Unknown names among this process's `MILLPOND_*` variables: a misspelt variable would set nothing.
pub(crate) fn misspelt_variables() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(VARIABLES)).collect();
    names.sort();
    let is_known = |name: &String| {
        OTHER_VARIABLES.contains(&name.as_str()) || OptionInfo::ALL.iter().any(|info| variable(info) == *name)
    };
    names.retain(|name| !is_known(name));
    let misspelt = |name: String| {
        let near = nearest(&name[VARIABLES.len()..].to_lowercase());
        format!(
            "there is no option '{name}', as in the environment; did you mean '{VARIABLES}{}'? \
             ('millpond options' lists all)",
            near.to_uppercase()
        )
    };
    names.into_iter().map(misspelt).collect()
}

/// All mistakes in one failure, if there are any.
pub(crate) fn refuse(mistakes: &[String]) -> Result<(), Failure> {
    match mistakes {
        [] => Ok(()),
        [one] => Err(Failure::message(one)),
        all => Err(Failure::message(format!("{} mistakes in the options:\n  {}", all.len(), all.join("\n  ")))),
    }
}

impl EngineArgs {
    /// Reads the file, if there is one, and returns the values in force. `mistakes` are those of other options.
    ///
    /// # Errors
    /// All mistakes in flags, variables and file, and `mistakes`, in one message; or the file cannot be read.
    pub(crate) fn resolve(&self, mut mistakes: Vec<String>) -> Result<EngineSettings, Failure> {
        mistakes.extend(self.mistakes.iter().cloned().chain(misspelt_variables()));
        let in_file = match self.config.as_deref().map(read_file) {
            None => Vec::new(),
            Some(Ok(in_file)) => in_file,
            Some(Err(in_file)) => {
                mistakes.extend(in_file);
                Vec::new()
            }
        };
        refuse(&mistakes)?;
        let asked_of = |info: &OptionInfo| self.asked.iter().chain(&in_file).find(|asked| asked.info.name == info.name);
        let mut options = Options::new();
        for info in const { &OptionInfo::ALL } {
            if let Some(asked) = asked_of(info) {
                options = info.set(options, &asked.text).map_err(Failure::message)?;
            }
        }
        // Computed when all options are known: the values of a profile depend on the other options.
        let setting = |info| {
            let value = OptionInfo::get(info, &options);
            let is_default = value == info.get(&Options::new());
            let unasked = if is_default { Origin::Default } else { Origin::Profile };
            EngineSetting {
                info,
                value: value.unwrap_or_else(|| info.default()),
                origin: asked_of(info).map_or(unasked, |asked| asked.origin),
            }
        };
        let all = const { &OptionInfo::ALL }.iter().map(setting).collect();
        Ok(EngineSettings { options, all })
    }
}

/// The options in a TOML file, each value checked; or every mistake in it.
fn read_file(path: &Path) -> Result<Vec<Asked>, Vec<String>> {
    let file = format!("'{}'", path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|cause| vec![format!("cannot read the options in {file}: {cause}; name a TOML file with --config")])?;
    let table: toml::Table = text
        .parse()
        .map_err(|cause: toml::de::Error| vec![format!("{file} is not TOML: {}", cause.to_string().trim_end())])?;
    let (mut asked, mut mistakes) = (Vec::new(), Vec::new());
    for (name, value) in &table {
        match asked_in_file(&file, name, value) {
            Ok(found) => asked.push(found),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() { Ok(asked) } else { Err(mistakes) }
}

/// The option of one line of `file`, or its mistake.
fn asked_in_file(file: &str, name: &str, value: &toml::Value) -> Result<Asked, String> {
    let Some(info) = OptionInfo::find(name) else {
        return Err(format!(
            "there is no option '{name}', as in {file}; did you mean '{}'? ('millpond options' lists all)",
            nearest(name)
        ));
    };
    let wrong = |why: &str| format!("invalid value {value} for '{name}' in {file}: {why}");
    let text = match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(switch) => switch.to_string(),
        _ => return Err(wrong("neither a text, nor a whole number, nor true or false")),
    };
    info.set(Options::new(), &text).map(drop).map_err(|why| wrong(&why))?;
    Ok(Asked { info, text, origin: Origin::File })
}

/// The option whose name is most like `name`.
fn nearest(name: &str) -> &'static str {
    let alike = |info: &OptionInfo| strsim::jaro(info.name, name);
    OptionInfo::ALL.iter().max_by(|a, b| alike(a).total_cmp(&alike(b))).map_or("", |info| info.name)
}

/// The flag of one option.
fn arg(info: &'static OptionInfo) -> Arg {
    let default = info.default();
    let long = format!(
        "{}\n\nRange: {}.\nDefault: {default}.\nChanges: {}. Variable: {}.",
        info.help,
        info.range,
        match info.changes {
            "creation" => "never, it is fixed when the database is made",
            "open" => "when the database is opened",
            _ => "also while the database is open",
        },
        variable(info)
    );
    let arg = Arg::new(info.name)
        .long(info.name.replace('_', "-"))
        .value_name(info.value)
        .env(variable(info))
        .hide_env(true)
        .help_heading(HEADING)
        .help(format!("{} [default: {default}]", info.help))
        .long_help(long)
        .value_parser(ValueParser::os_string())
        .action(ArgAction::Set);
    if info.value == "BOOL" { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
}

/// The value of one option from its flag or variable, or its mistake.
fn asked(info: &'static OptionInfo, matches: &ArgMatches) -> Result<Option<Asked>, String> {
    let Some(given) = matches.get_one::<OsString>(info.name) else { return Ok(None) };
    let text = given.to_string_lossy().into_owned();
    let (origin, place) = match matches.value_source(info.name) {
        Some(ValueSource::EnvVariable) => (Origin::Environment, variable(info)),
        _ => (Origin::Flag, format!("{} <{}>", flag(info), info.value)),
    };
    // The engine takes a socket's path as text, so even a path must be UTF-8.
    let checked = if given.to_str().is_some() { info.set(Options::new(), &text) } else { Err("not UTF-8".to_owned()) };
    match checked {
        Ok(_) => Ok(Some(Asked { info, text, origin })),
        Err(why) => Err(format!("invalid value '{text}' for '{place}': {why}")),
    }
}

impl Args for EngineArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help_heading(HEADING)
            .help("TOML file with options of this group; flags and MILLPOND_* variables come first")
            .long_help(
                "TOML file with options of this group, by their names with underscores, as\n  \
                 buffer_pool_size = \"64MiB\"\nA flag comes first, then the option's MILLPOND_* variable, then this file.",
            )
            .value_parser(clap::value_parser!(PathBuf));
        command.args(const { &OptionInfo::ALL }.iter().map(arg)).arg(config)
    }

    fn augment_args_for_update(command: Command) -> Command {
        EngineArgs::augment_args(command)
    }
}

impl FromArgMatches for EngineArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<EngineArgs, clap::Error> {
        let config = matches.get_one::<PathBuf>("config").cloned();
        let (mut all, mut mistakes) = (Vec::new(), Vec::new());
        for info in const { &OptionInfo::ALL } {
            match asked(info, matches) {
                Ok(asked) => all.extend(asked),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        Ok(EngineArgs { config, asked: all, mistakes })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = EngineArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The names of a few of the engine's options.
pub(crate) trait Names {
    /// The options, by their names in the table.
    const NAMES: &'static [&'static str];
}

/// A few of the engine's options: those of `N`, by flag or variable. For commands that need no others.
#[derive(Clone, Debug)]
pub(crate) struct SomeOptions<N>(pub(crate) Options, PhantomData<N>);

impl<N: Names> SomeOptions<N> {
    fn infos() -> impl Iterator<Item = &'static OptionInfo> {
        N::NAMES.iter().map(|name| OptionInfo::find(name).expect("the engine has this option"))
    }
}

impl<N: Names> Args for SomeOptions<N> {
    fn augment_args(command: Command) -> Command {
        command.args(SomeOptions::<N>::infos().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        SomeOptions::<N>::augment_args(command)
    }
}

impl<N: Names> FromArgMatches for SomeOptions<N> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SomeOptions<N>, clap::Error> {
        let wrong = |why: String| clap::Error::raw(ErrorKind::ValueValidation, format!("{}\n", printable(&why)));
        let mut options = Options::new();
        for info in SomeOptions::<N>::infos() {
            if let Some(asked) = asked(info, matches).map_err(wrong)? {
                options = info.set(options, &asked.text).map_err(wrong)?;
            }
        }
        Ok(SomeOptions(options, PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = SomeOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `--cached` alone, for commands that take no other option of the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedArg(pub(crate) bool);

impl CachedArg {
    fn info() -> &'static OptionInfo {
        OptionInfo::find("cached").expect("the engine has this option")
    }
}

impl Args for CachedArg {
    fn augment_args(command: Command) -> Command {
        command.arg(arg(CachedArg::info()).help_heading(None::<&str>))
    }

    fn augment_args_for_update(command: Command) -> Command {
        CachedArg::augment_args(command)
    }
}

impl FromArgMatches for CachedArg {
    fn from_arg_matches(matches: &ArgMatches) -> Result<CachedArg, clap::Error> {
        let info = CachedArg::info();
        let wrong = |why: String| clap::Error::raw(ErrorKind::ValueValidation, format!("{}\n", printable(&why)));
        let options = match asked(info, matches).map_err(wrong)? {
            Some(asked) => info.set(Options::new(), &asked.text).unwrap_or_default(),
            None => Options::new(),
        };
        Ok(CachedArg(info.get(&options).as_deref() == Some("true")))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = CachedArg::from_arg_matches(matches)?;
        Ok(())
    }
}
