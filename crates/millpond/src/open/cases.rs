//! The states in which an open finds a directory, and what each leads to.
//!
//! By the names of files ([`Case`]), before anything is read:
//!
//! | state | recognised by | leads to |
//! |---|---|---|
//! | new | no file, or the lock file alone | a creation, if the option `create` allows it; else [`Error::Format`] |
//! | created half | a data file without its final name, or log files alone | the same, after these files are removed |
//! | another's | none of the above, and an unknown file | [`Error::Format`] |
//! | lost | map files, and no data file | [`Error::Corruption`] |
//! | a database | a data file | the cases below |
//!
//! By the contents, in the order in which [`open_existing`](super::start::open_existing) comes to them:
//!
//! | state | recognised by | leads to |
//! |---|---|---|
//! | other format | the newest superblock is of another version, or has unknown features | [`Error::Format`] |
//! | other options | the superblock has another page size or page store | [`Error::InvalidOptions`] |
//! | half a superblock | one of the two is damaged, and its directory shows that it is the older | it is written anew |
//! | log switched half | the superblock names two rings | both are read as one log; a checkpoint ends the switch |
//! | log made half | log files that the superblock does not name | these files are removed |
//! | closed cleanly | the log ends at the checkpoint | nothing is redone |
//! | crashed | the log goes on behind the checkpoint | its pages are redone, and its unfinished batches undone |
//! | log torn at its end | a group is not whole, and none behind it shows that more was durable | the log ends there |
//! | torn, in place | the copy of a page is whole and its image is not | the image is put back |
//! | read-only | the option | all of the above in memory; refused if what is redone does not fit the pool |
//! | loaded half | files of a sort; a space that no name leads to | they are removed; it is dropped |
//! | damaged | any check of the above fails | [`Error::Corruption`] |
//!
//! [`Error::Format`]: crate::base::error::Error::Format
//! [`Error::InvalidOptions`]: crate::base::error::Error::InvalidOptions
//! [`Error::Corruption`]: crate::base::error::Error::Corruption

use crate::io::directory_lock::LOCK_FILE;
use crate::redo::files::is_log_file;
use crate::store::files::{DATA_FILE, DATA_FILE_NEW, is_map_file, lost_its_data_file};

/// The state of a directory, as the names of its files tell it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Case<'n> {
    /// There is a data file.
    Database,
    /// There is no file of a database, and no other file.
    New,
    /// A creation was cut short: it has made some files, and no database.
    CutShort,
    /// A database lost its data file.
    Lost,
    /// There is this file, which is of no database, and no data file.
    Strange(&'n str),
}

impl Case<'_> {
    /// The state of a directory with these names.
    pub(super) fn of(names: &[String]) -> Case<'_> {
        let unfinished = |name: &str| name == DATA_FILE_NEW || is_map_file(name) || is_log_file(name);
        let stranger = names.iter().find(|name| *name != LOCK_FILE && !unfinished(name));
        match stranger {
            _ if names.iter().any(|name| name == DATA_FILE) => Case::Database,
            _ if lost_its_data_file(names) => Case::Lost,
            Some(stranger) => Case::Strange(stranger),
            None if names.iter().any(|name| unfinished(name)) => Case::CutShort,
            None => Case::New,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_the_state_of_a_directory() {
        for (names, case) in [
            ("", Case::New),
            (LOCK_FILE, Case::New),
            ("redo-0-0.mpd", Case::CutShort),
            ("redo-0-0.mpd data-new.mpd map.mpd", Case::CutShort),
            ("map.mpd", Case::Lost),
            ("map.mpd redo-0-0.mpd notes.txt", Case::Lost),
            ("notes.txt", Case::Strange("notes.txt")),
            ("redo-0-0.mpd notes.txt", Case::Strange("notes.txt")),
            ("data.mpd", Case::Database),
            ("data.mpd map.mpd notes.txt", Case::Database),
        ] {
            let names: Vec<String> = names.split_whitespace().map(ToOwned::to_owned).collect();
            assert_eq!(Case::of(&names), case, "{names:?}");
        }
    }
}
