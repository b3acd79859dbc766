//! The one error type.

use std::io;

/// What went wrong, in one sentence that names the thing and the way out.
///
/// A variant is what a caller can tell apart; [`action`](Error::action) says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A precondition of a batch did not hold; nothing was written.
    #[error("{0}")]
    Conflict(Box<str>),
    /// An insert found its key taken; nothing was written.
    #[error("{0}")]
    KeyExists(Box<str>),
    /// An update found no such key; nothing was written.
    #[error("{0}")]
    KeyNotFound(Box<str>),
    /// No tree, table or index of this name, or it was dropped.
    #[error("{0}")]
    TreeNotFound(Box<str>),
    /// A tree or a table of this name exists already.
    #[error("{0}")]
    TreeExists(Box<str>),
    /// What was asked for is of another kind: a table and no tree, a tree and no table, an index that is not unique.
    #[error("{0}")]
    WrongKind(Box<str>),
    /// A row of a table lacks bytes that an index is made of.
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
    /// The file system is full: what needs new pages fails, everything else goes on.
    #[error(transparent)]
    OutOfSpace(Box<Failure>),
    /// Bytes on the disk are not what was written there.
    #[error("{0}")]
    Corruption(Box<str>),
    /// The device refused a read, a write or a sync.
    #[error(transparent)]
    DeviceFailed(Box<Failure>),
    /// The engine stopped writing after an earlier failure.
    #[error("{0}")]
    ReadOnly(Box<str>),
    /// A row is locked by a batch that failed and cannot be undone as things are; nothing was written, and everything
    /// else goes on. The engine tries again by itself.
    #[error("{0}")]
    NotUndone(Box<str>),
    /// A tree, a database or the numbers that it gives out have come to the format's end. What is there can be read and
    /// changed.
    #[error("{0}")]
    TooLarge(Box<str>),
    /// The database is open already, in another process or in this one.
    #[error("{0}")]
    InUse(Box<str>),
    /// Not a database, or one of another format version.
    #[error("{0}")]
    Format(Box<str>),
    /// The operating system forbids it.
    #[error(transparent)]
    Permission(Box<Failure>),
    /// The database was closed.
    #[error("{0}")]
    Closed(Box<str>),
    /// The database was opened by another process, of which this one is a fork.
    #[error("{0}")]
    OtherProcess(Box<str>),
    /// The engine contradicts itself: a bug in it.
    #[error("{0}")]
    Bug(Box<str>),
}

const _: () = assert!(size_of::<Error>() <= 24);

/// A sentence, and the operating system's error behind it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: Box<str>,
    source: io::Error,
}

/// What a caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Read again and retry: another writer was first.
    Retry,
    /// Mend the call: the same call will fail again.
    FixCall,
    /// Free space on the file system; the next call then succeeds.
    FreeSpace,
    /// Close and open the database again: recovery brings back everything acknowledged.
    Reopen,
    /// Restore from a backup.
    RestoreFromBackup,
    /// Mend what the message names, such as a full disk: the engine then goes on by itself, and the call can be made
    /// again.
    MendCause,
}

impl Error {
    /// What to do about it.
    pub fn action(&self) -> Action {
        match self {
            Error::Conflict(_) => Action::Retry,
            Error::OutOfSpace(_) => Action::FreeSpace,
            Error::DeviceFailed(_) | Error::ReadOnly(_) | Error::Closed(_) | Error::Bug(_) => Action::Reopen,
            Error::Corruption(_) => Action::RestoreFromBackup,
            Error::NotUndone(_) => Action::MendCause,
            _ => Action::FixCall,
        }
    }

    /// The error for what the operating system said about `doing` (such as `write 4096 bytes at 0 of /db/data`).
    pub(crate) fn io(doing: &str, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                let message = format!("no space to {doing}: free some on that file system and try again");
                Error::OutOfSpace(Box::new(Failure { message: message.into(), source }))
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let message = format!(
                    "no permission to {doing}: give this user read and write access to the directory and its files"
                );
                Error::Permission(Box::new(Failure { message: message.into(), source }))
            }
            _ => Error::device(doing, source),
        }
    }

    /// The same error, for one more who waited for the same thing.
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
            Error::DeviceFailed(failure) => Error::DeviceFailed(again(failure)),
            Error::Permission(failure) => Error::Permission(again(failure)),
            Error::ReadOnly(message) => Error::ReadOnly(message.clone()),
            Error::NotUndone(message) => Error::NotUndone(message.clone()),
            Error::Bug(message) => Error::Bug(message.clone()),
            other => Error::Corruption(other.to_string().into()),
        }
    }

    /// The error for what the operating system said about `doing`, where no kind of failure leaves a way to go on.
    pub(crate) fn device(doing: &str, source: io::Error) -> Error {
        let message = format!("could not {doing}: see the cause, and the kernel's log for the disk; then reopen");
        Error::DeviceFailed(Box::new(Failure { message: message.into(), source }))
    }
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
}
