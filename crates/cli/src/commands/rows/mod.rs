//! `millpond get`, `scan`, `count`, `put`, `delete`, `load`, `export`: the rows of a database from the shell.
//!
//! | file | contents |
//! |---|---|
//! | `text` | bytes as text: escapes, and the words of a command line |
//! | `form` | rows as lines: text, hex, jsonl, tsv |
//! | `place` | a database, and the tree or table of a name |
//! | `source`, `running_source` | reads of rows: of a directory, and of a running engine |
//! | `input`, `output` | lines of standard input or a file; rows to standard output |
//! | `read`, `write` | the commands `get`, `scan`, `count`; `put`, `delete` |
//! | `load`, `new_load`, `batches`, `restored` | the command `load`: into a new tree, an existing one, of an export |
//! | `export`, `export_line` | the command `export`, and the lines of its output |

mod batches;
pub(crate) mod export;
mod export_line;
mod form;
mod input;
pub(crate) mod load;
mod new_load;
mod output;
mod place;
pub(crate) mod read;
mod restored;
mod running_source;
mod source;
mod text;
pub(crate) mod write;

use crate::engine_args::Names;

/// The engine's options of commands that read or change single rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening;

impl Names for Opening {
    const NAMES: &'static [&'static str] = &["buffer_pool_size", "cached"];
}

/// The engine's options of commands that may make a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creating;

impl Names for Creating {
    const NAMES: &'static [&'static str] = &["page_size", "buffer_pool_size", "redo_capacity", "cached"];
}
