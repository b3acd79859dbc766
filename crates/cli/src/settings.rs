//! Every option of a command and its value, read from the command's own definition, so that none is forgotten.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use millpond::Options;
use serde::Serialize;

use crate::engine_args::{EngineSettings, Origin, flag};

/// An option of a command, and its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setting {
    /// Its heading in the help.
    pub(crate) group: String,
    /// Its flag; without a flag, its name in the help.
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) origin: Origin,
}

/// The options of `command` that were given or have a default, in the order of its help.
pub(crate) fn of(command: &Command, given: &ArgMatches) -> Vec<Setting> {
    let mut settings = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let origin = match given.value_source(id) {
            Some(ValueSource::CommandLine) => Origin::Flag,
            Some(ValueSource::EnvVariable) => Origin::Environment,
            Some(_) => Origin::Default,
            None => continue,
        };
        let value = given.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy().into_owned());
        settings.push(Setting {
            group: arg.get_help_heading().unwrap_or("What to do").to_owned(),
            name: arg.get_long().map_or_else(|| id.to_uppercase(), |long| format!("--{long}")),
            value: value.collect::<Vec<_>>().join(" "),
            origin,
        });
    }
    settings
}

/// `given`, with all of the engine's options as they are `in_force` in the open database.
pub(crate) fn with_engine(given: &[Setting], engine: &EngineSettings, in_force: &Options) -> Vec<Setting> {
    let names: Vec<String> = engine.all.iter().map(|setting| flag(setting.info)).collect();
    let mut settings: Vec<Setting> = given.iter().filter(|setting| !names.contains(&setting.name)).cloned().collect();
    settings.extend(engine.all.iter().zip(names).map(|(setting, name)| Setting {
        group: "Engine".to_owned(),
        name,
        value: setting.info.get(in_force).unwrap_or_else(|| setting.value.clone()),
        origin: match setting.origin {
            Origin::Default if setting.info.is_kept() => Origin::Database,
            origin => origin,
        },
    }));
    settings
}
