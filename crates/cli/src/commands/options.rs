//! `millpond options`: which options the engine has, and what a run would use.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use workload::report_json;

use crate::engine_args::{EngineArgs, EngineSetting, Origin, flag, variable};
use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::values::Format;

/// Arguments of `options`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_long_help = "\
Takes the engine's options as bench does, and shows the values that a run with them would use. A
flag comes before a MILLPOND_* variable, that before the file of --config, and that before the
default. Opening a database checks that the options fit together, and fit the database. All
mistakes are reported at once.

Examples:
  millpond options
  millpond options --buffer-pool-size=64MiB --format=json
  MILLPOND_DURABILITY=none millpond options --config=fast.toml")]
pub(crate) struct OptionsArgs {
    /// text, or json: one object a line
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    format: Format,

    #[command(flatten)]
    engine: EngineArgs,
}

/// An option as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    value: &'a str,
    origin: Origin,
    default: String,
    unit: &'a str,
    range: &'a str,
    changes: &'a str,
    flag: String,
    variable: String,
    help: &'a str,
}

/// Lists the options.
pub(crate) fn run(args: &OptionsArgs) -> Result<Answer, Failure> {
    let settings = args.engine.resolve(Vec::new())?.all;
    let text = match args.format {
        Format::Text => text(&settings),
        Format::Json => settings.iter().map(|setting| report_json::line("option", &line(setting))).collect(),
    };
    print(&text)?;
    Ok(Answer::Yes)
}

fn line(setting: &EngineSetting) -> Line<'_> {
    let info = setting.info;
    Line {
        name: info.name,
        value: &setting.value,
        origin: setting.origin,
        default: info.default(),
        unit: info.unit,
        range: info.range,
        changes: info.changes,
        flag: flag(info),
        variable: variable(info),
        help: info.help,
    }
}

/// Two lines an option: name, value and origin; description.
fn text(settings: &[EngineSetting]) -> String {
    let width = |of: fn(&EngineSetting) -> &str| settings.iter().map(|setting| of(setting).len()).max().unwrap_or(0);
    let (names, values) = (width(|setting| setting.info.name), width(|setting| &setting.value));
    let mut text = String::new();
    for setting in settings {
        let info = setting.info;
        let origin = match setting.origin {
            Origin::Flag => flag(info),
            Origin::Environment => variable(info),
            Origin::File => "file".to_owned(),
            Origin::Profile => "profile".to_owned(),
            Origin::Database | Origin::Default => "default".to_owned(),
        };
        let _ = writeln!(text, "{:<names$}  {:<values$}  {origin}", info.name, setting.value);
        let _ = writeln!(text, "    {}", info.help);
        let changes = match info.changes {
            "creation" => "fixed at creation",
            "open" => "fixed at open",
            _ => "changes online",
        };
        let default = info.default();
        // A name has no unit.
        let unit = if info.unit == "name" { String::new() } else { format!("unit: {}; ", info.unit) };
        let _ = writeln!(text, "    {unit}range: {}; default: {default}; {changes}", info.range);
    }
    text
}
