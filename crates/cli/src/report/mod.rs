//! `--report`: the results as one HTML page.
//!
//! The page contains everything: style, and charts as SVG. It is written to a file beside the target, then renamed, so
//! that a reader sees the old page or the new one. Before the run the command tests that this is possible.

pub(crate) mod bins;
pub(crate) mod charts;
pub(crate) mod multiples;
mod shell;

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

pub(crate) use shell::page;

use crate::exit::{Failure, without_temporary_name};
use crate::output::talk;

/// The first bytes of every page.
const PAGE_BEGIN: &[u8] = b"<!DOCTYPE html>";

/// A file that a report can be written to.
#[derive(Debug)]
pub(crate) struct ReportFile {
    path: PathBuf,
}

impl ReportFile {
    /// Tests whether a report can be written to `path`; leaves an existing file unchanged.
    ///
    /// # Errors
    /// The directory does not exist or is not writable, or `path` is no file, or a file that is no page.
    pub(crate) fn check(path: &Path) -> Result<ReportFile, Failure> {
        // A link stays a link: its target is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if path.exists() && !path.is_file() {
            return Err(Failure::message(format!(
                "cannot write the report to '{}': it is no file; name one, as --report=run.html",
                path.display()
            )));
        }
        if !may_be_replaced(&path).map_err(|cause| cannot(&path, &cause))? {
            return Err(Failure::message(format!(
                "cannot write the report to '{}': there is a file that is no report; name another one",
                path.display()
            )));
        }
        temporary(&path).map_err(|cause| cannot(&path, &cause))?;
        Ok(ReportFile { path })
    }

    /// Writes the page as it is so far, without a message.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn save(&self, page: &str) -> Result<(), Failure> {
        write_whole(&self.path, page.as_bytes()).map_err(|cause| cannot(&self.path, &cause))
    }

    /// Writes the page.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn write(&self, page: &str) -> Result<(), Failure> {
        self.save(page)?;
        talk(&format!("wrote the report to '{}'", self.path.display()));
        Ok(())
    }
}

/// Whether `path` is missing, empty, or a page. So a typing error cannot destroy a file of a database.
fn may_be_replaced(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?.take(PAGE_BEGIN.len() as u64).read_to_end(&mut begin)?,
    };
    Ok(begin.is_empty() || begin.eq_ignore_ascii_case(PAGE_BEGIN))
}

/// A temporary file beside `path`, removed on drop.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new()
        .prefix(".millpond-report-")
        .suffix(".tmp")
        // The usual mode of a new file; the system applies the user's umask.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = temporary(path)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|kept| kept.error)?;
    Ok(())
}

fn cannot(path: &Path, cause: &io::Error) -> Failure {
    let cause = without_temporary_name(cause);
    Failure::message(format!("cannot write the report to '{}': {cause}; name another file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_leaves_no_trace_and_what_is_there_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.html");
        ReportFile::check(&path).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::write(&path, "<!doctype html>old").unwrap();
        let file = ReportFile::check(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"<!doctype html>old");
        write_whole(&file.path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_refused_and_a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data.mpd");
        std::fs::write(&data, "pages").unwrap();
        for wrong in [dir.path().to_owned(), dir.path().join("none/run.html"), "/dev/null".into(), data] {
            let Err(Failure::Error(error)) = ReportFile::check(&wrong) else {
                unreachable!("{} was accepted", wrong.display())
            };
            assert!(error.to_string().contains(&*wrong.to_string_lossy()), "{error}");
        }
        let (link, target) = (dir.path().join("link.html"), dir.path().join("target.html"));
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_whole(&ReportFile::check(&link).unwrap().path, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
    }
}
