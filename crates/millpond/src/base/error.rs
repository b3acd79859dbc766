//! The one error type.

use std::io;

use crate::base::row_error::RowError;

/// The failure in one sentence, which names the thing that failed and the way out.
///
/// A variant is a case that a caller can tell apart; [`action`](Error::action) tells the caller what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A precondition of a batch did not hold; nothing was written.
    #[error("{0}")]
    Conflict(RowError),
    /// An insert found its key taken, or another row has the same fields in a unique index; nothing was written.
    #[error("{0}")]
    KeyExists(RowError),
    /// An update found no such key; nothing was written.
    #[error("{0}")]
    KeyNotFound(RowError),
    /// An index cannot be unique, since two rows have the same fields. The index, or the load of its table, is given
    /// up.
    #[error("{0}")]
    NotUnique(Box<str>),
    /// Transactions waited for one another's locks. This one was chosen to give way, and has been rolled back. Begin it
    /// again; [`Db::retry`](crate::Db::retry) does.
    #[error("{0}")]
    Deadlock(Box<str>),
    /// A lock was not given up in the time for which the transaction waits
    /// ([`lock_timeout`](crate::TxnOptions::lock_timeout)), or at once if it does not wait; a batch waits for 50 s. The
    /// statement or batch has changed nothing; the transaction goes on.
    #[error("{0}")]
    LockTimeout(Box<str>),
    /// Another thread cancelled the statement while it waited for a lock. It has changed nothing; the transaction goes
    /// on.
    #[error("{0}")]
    Cancelled(Box<str>),
    /// A read is to lock a row, and all row locks that are more than a stamp take an eighth of the buffer pool's size
    /// already (1 MiB at least). The read has locked nothing; the transaction goes on, with the locks that it has.
    #[error("{0}")]
    TooManyLocks(Box<str>),
    /// The transaction was committed or rolled back before this call.
    #[error("{0}")]
    TransactionOver(Box<str>),
    /// A table has another definition than the caller's. The error lists what differs.
    #[error("{0}")]
    DefinitionDiffers(Box<str>),
    /// A snapshot is older than the tree, table or index that it is to read: that was created, loaded, truncated or
    /// built since. Or it is older than [`max_snapshot_age`](crate::Options::max_snapshot_age). Take a new snapshot.
    #[error("{0}")]
    SnapshotTooOld(Box<str>),
    /// No tree, table or index of this name, or it was dropped.
    #[error("{0}")]
    TreeNotFound(Box<str>),
    /// A tree or a table of this name exists already.
    #[error("{0}")]
    TreeExists(Box<str>),
    /// The thing asked for is of another kind: a table and no tree, a tree and no table, an index that is not unique.
    #[error("{0}")]
    WrongKind(Box<str>),
    /// A row of a table lacks bytes that an index consists of.
    #[error("{0}")]
    RowTooShort(Box<str>),
    /// A key is longer than the page size allows.
    #[error("{0}")]
    KeyTooLong(Box<str>),
    /// A value has 4 GiB or more.
    #[error("{0}")]
    ValueTooLong(Box<str>),
    /// A bulk load's rows do not ascend in their keys; nothing was loaded.
    #[error("{0}")]
    NotAscending(Box<str>),
    /// Options out of range, or not those that the database was created with.
    #[error("{0}")]
    InvalidOptions(Box<str>),
    /// The file system is full: operations that need new pages fail, all others go on.
    #[error(transparent)]
    OutOfSpace(Box<Failure>),
    /// A limit of the operating system is reached: open files, threads, or memory.
    #[error(transparent)]
    LimitReached(Box<Failure>),
    /// Bytes on the disk differ from those that were written there.
    #[error("{0}")]
    Corruption(Box<str>),
    /// The device refused a read, a write or a sync.
    #[error(transparent)]
    DeviceFailed(Box<Failure>),
    /// The engine stopped writing after an earlier failure, or the database was opened with `read_only`.
    #[error("{0}")]
    ReadOnly(Box<str>),
    /// A failed batch holds a lock on the row, and the engine cannot undo that batch now. Nothing was written, and
    /// everything else goes on. The engine retries the undo by itself.
    #[error("{0}")]
    NotUndone(Box<str>),
    /// A tree, a database or a sequence of ids has reached the limit of the format. Existing data can be read and
    /// changed.
    #[error("{0}")]
    TooLarge(Box<str>),
    /// The database is open already, in another process or in this one.
    #[error("{0}")]
    InUse(Box<str>),
    /// Not a database, or a database of another format version.
    #[error("{0}")]
    Format(Box<str>),
    /// The operating system denies permission.
    #[error(transparent)]
    Permission(Box<Failure>),
    /// The database was closed.
    #[error("{0}")]
    Closed(Box<str>),
    /// Another process opened the database, and this one is a fork of it.
    #[error("{0}")]
    OtherProcess(Box<str>),
    /// The engine contradicts itself: a bug in the engine.
    #[error("{0}")]
    Bug(Box<str>),
}

const _: () = assert!(size_of::<Error>() <= 24);

/// The result of most calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A sentence, with the operating system's error as its cause.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: Box<str>,
    source: io::Error,
}

/// The way out where a page or a row of a tree is damaged; `check` tells which tree it is.
pub(crate) const MEND_TREE: &str = "if it is of an index, drop that and create it again (`millpond check` tells); else restore a backup (`millpond restore`)";

/// The way out where an index is damaged, or disagrees with its table.
pub(crate) const MEND_INDEX: &str = "drop the index and create it again, then run `millpond check`: if more is damaged, restore a backup (`millpond restore`)";

/// The way out where map or superblocks are damaged: a rebuild makes both from the page images and the log.
pub(crate) const MEND_MAP: &str = "run `millpond rebuild`, or restore a backup (`millpond restore`)";

/// What a caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Read again and retry: another writer was first.
    Retry,
    /// Correct the call: the same call will fail again.
    FixCall,
    /// Free space on the file system; the next call then succeeds.
    FreeSpace,
    /// Close and open the database again: recovery restores every acknowledged change.
    Reopen,
    /// Follow the first advice of the message, such as `millpond rebuild` or creating an index again. Where that does
    /// not help, restore from a backup.
    RestoreFromBackup,
    /// Remove the cause that the message names, such as a full disk. The engine then goes on by itself, and the call
    /// can be repeated.
    MendCause,
}

impl Error {
    /// The row that the error is about: of [`Conflict`](Error::Conflict), [`KeyExists`](Error::KeyExists) and
    /// [`KeyNotFound`](Error::KeyNotFound).
    pub fn row(&self) -> Option<&RowError> {
        match self {
            Error::Conflict(row) | Error::KeyExists(row) | Error::KeyNotFound(row) => Some(row),
            _ => None,
        }
    }

    /// The advice to the caller.
    pub fn action(&self) -> Action {
        match self {
            Error::Conflict(_) | Error::SnapshotTooOld(_) | Error::Deadlock(_) | Error::LockTimeout(_) => Action::Retry,
            Error::OutOfSpace(_) => Action::FreeSpace,
            Error::DeviceFailed(_) | Error::ReadOnly(_) | Error::Closed(_) | Error::Bug(_) => Action::Reopen,
            Error::Corruption(_) => Action::RestoreFromBackup,
            Error::NotUndone(_) | Error::LimitReached(_) => Action::MendCause,
            _ => Action::FixCall,
        }
    }

    /// The error for an operating system's error in `doing` (such as `write 4096 bytes at 0 of /db/data`).
    pub(crate) fn io(doing: &str, source: io::Error) -> Error {
        if let Some(limit) = limit_met(&source) {
            let message = format!("could not {doing}: {limit}, and try again");
            return Error::LimitReached(Box::new(Failure { message: message.into(), source }));
        }
        match source.kind() {
            _ if is_full(&source) => {
                let message = format!("no space to {doing}: free some on that file system and try again");
                Error::OutOfSpace(Box::new(Failure { message: message.into(), source }))
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                let message = format!(
                    "no permission to {doing}: the file system is read-only; mount it for writing, or open the database \
                     with `read_only`"
                );
                Error::Permission(Box::new(Failure { message: message.into(), source }))
            }
            io::ErrorKind::PermissionDenied => {
                let message = format!(
                    "no permission to {doing}: give this user read and write access to the directory and its files"
                );
                Error::Permission(Box::new(Failure { message: message.into(), source }))
            }
            _ => Error::device(doing, source),
        }
    }

    /// The error for the thread `name`, which the system did not start.
    pub(crate) fn thread(name: &str, source: io::Error) -> Error {
        // `EAGAIN` means a limit only here: for other calls it has other meanings.
        if source.kind() != io::ErrorKind::WouldBlock {
            return Error::io(&format!("start the thread {name}"), source);
        }
        let message = format!(
            "could not start the thread {name}: no more threads are allowed: raise the limit of threads (`ulimit -u`, or \
             `pids.max` of the control group), or end some, and try again"
        );
        Error::LimitReached(Box::new(Failure { message: message.into(), source }))
    }

    /// The file system is full.
    pub(crate) fn out_of_space(message: String) -> Error {
        let source = io::ErrorKind::StorageFull.into();
        Error::OutOfSpace(Box::new(Failure { message: message.into(), source }))
    }

    /// Adds one more way out to the sentence of a full file system.
    pub(crate) fn with_advice(self, advice: &str) -> Error {
        match self {
            Error::OutOfSpace(failure) | Error::DeviceFailed(failure) => {
                let message = format!("{}; {advice}", failure.message).into();
                Error::OutOfSpace(Box::new(Failure { message, source: failure.source }))
            }
            other => other,
        }
    }

    /// A copy of the error, for another thread that waited for the same result.
    pub(crate) fn once_more(&self) -> Error {
        let again = |failure: &Failure| {
            let source = match failure.source.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(failure.source.kind(), failure.source.to_string()),
            };
            Box::new(Failure { message: failure.message.clone(), source })
        };
        match self {
            Error::OutOfSpace(failure) => Error::OutOfSpace(again(failure)),
            Error::LimitReached(failure) => Error::LimitReached(again(failure)),
            Error::DeviceFailed(failure) => Error::DeviceFailed(again(failure)),
            Error::Permission(failure) => Error::Permission(again(failure)),
            Error::ReadOnly(message) => Error::ReadOnly(message.clone()),
            Error::NotUndone(message) => Error::NotUndone(message.clone()),
            Error::Corruption(message) => Error::Corruption(message.clone()),
            Error::Closed(message) => Error::Closed(message.clone()),
            // No thread waits for the result of anything else.
            other => Error::Bug(other.to_string().into()),
        }
    }

    /// The error for an operating system's error in `doing`, where the engine must stop whatever the cause is.
    pub(crate) fn device(doing: &str, source: io::Error) -> Error {
        let message = if is_full(&source) {
            format!(
                "no space to {doing}, without which nothing can be written: free some on that file system, then reopen"
            )
        } else if let Some(limit) = limit_met(&source) {
            format!("could not {doing}: {limit}, then reopen")
        } else {
            format!("could not {doing}: see the cause, and the kernel's log for the disk; then reopen")
        };
        Error::DeviceFailed(Box::new(Failure { message: message.into(), source }))
    }

    /// Whether the cause is a full file system, whatever its variant.
    pub(crate) fn is_of_full_device(&self) -> bool {
        matches!(self, Error::OutOfSpace(failure) | Error::DeviceFailed(failure) if is_full(&failure.source))
    }
}

fn is_full(source: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The operating system's limit that was reached, with the advice; `None`: it was no limit.
fn limit_met(source: &io::Error) -> Option<&'static str> {
    use rustix::io::Errno;
    let raw = source.raw_os_error();
    let is = |errno: Errno| raw == Some(errno.raw_os_error());
    if is(Errno::MFILE) {
        return Some(
            "this process has as many files open as it may: raise its limit (`ulimit -n`), or have it close some",
        );
    }
    if is(Errno::NFILE) {
        return Some("all processes have as many files open as they may: raise `fs.file-max`, or have some closed");
    }
    let no_memory = "there is no memory for it: use a smaller `buffer_pool_size`, or allow the process more memory";
    (is(Errno::NOMEM) || source.kind() == io::ErrorKind::OutOfMemory).then_some(no_memory)
}

/// The sentence of a call on a closed database.
pub(crate) const CLOSED: &str = "the database was closed";

/// The error of a call on a closed database.
pub(crate) fn closed() -> Error {
    Error::Closed(format!("{CLOSED}: open it again").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn io_errors_are_told_apart_and_keep_their_cause() {
        let full = Error::io("grow '/db/data.mpd'", io::Error::from(io::ErrorKind::StorageFull));
        assert!(matches!(full, Error::OutOfSpace(_)) && full.action() == Action::FreeSpace);
        assert!(full.to_string().contains("grow '/db/data.mpd'"), "{full}");
        let denied = Error::io("open '/db/lock'", io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(matches!(denied, Error::Permission(_)));
        let cause = denied.source().expect("the cause is kept").downcast_ref::<io::Error>();
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::PermissionDenied));
        let other = Error::io("sync '/db/redo'", io::Error::other("gone"));
        assert!(matches!(other, Error::DeviceFailed(_)) && other.action() == Action::Reopen);
    }

    #[test]
    fn limits_of_the_system_are_named_with_what_raises_them() {
        use rustix::io::Errno;
        let of = |errno: Errno| Error::io("open '/db/data.mpd'", errno.into());
        for (error, named) in [
            (of(Errno::MFILE), "`ulimit -n`"),
            (of(Errno::NFILE), "`fs.file-max`"),
            (of(Errno::NOMEM), "`buffer_pool_size`"),
            (Error::thread("mp-keeper", Errno::AGAIN.into()), "`ulimit -u`, or `pids.max`"),
            (Error::thread("mp-keeper", Errno::NOMEM.into()), "`buffer_pool_size`"),
        ] {
            let text = error.to_string();
            assert!(text.contains(named) && !text.contains("kernel's log"), "{text}");
            assert!(matches!(error, Error::LimitReached(_)) && error.action() == Action::MendCause, "{error:?}");
            assert_eq!(error.once_more().to_string(), text);
        }
        let stopped = Error::device("write page 1", Errno::NOMEM.into()).to_string();
        assert!(stopped.contains("`buffer_pool_size`") && stopped.ends_with("then reopen"), "{stopped}");
    }

    #[test]
    fn full_disk_that_stops_the_engine_asks_for_a_reopen() {
        let stopped = Error::device("write superblock 1", io::ErrorKind::StorageFull.into());
        assert!(stopped.action() == Action::Reopen && stopped.is_of_full_device());
        let text = stopped.to_string();
        assert!(text.contains("free some on that file system, then reopen") && !text.contains("try again"), "{text}");
    }
}
