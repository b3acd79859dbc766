//! Finds the processes that hold a file lock, in `/proc`.
//!
//! A `flock` lock belongs to the open file, which forked processes share: a child may still hold the lock when the
//! process that took it has ended. So the open files of all visible processes are searched first.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A living process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) pid: u32,
    /// The process's own name, if it is readable.
    pub(super) name: Option<String>,
}

/// Device and inode.
type Identity = (u64, u64);

/// The living processes that hold a lock of one of `files`, sorted by id; empty: none is visible.
pub(super) fn find_holders(files: [&File; 2]) -> Vec<Holder> {
    let identities: Vec<Identity> =
        files.iter().filter_map(|file| file.metadata().ok()).map(|meta| (meta.dev(), meta.ino())).collect();
    let mut pids: Vec<u32> = pids().filter(|pid| has_lock(*pid, &identities)).collect();
    if pids.is_empty() {
        // The holder belongs to another user: its files are invisible, but the system's lock table names the process
        // that took it.
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        pids = takers(&locks, &identities).filter(|pid| of_process(*pid).exists()).collect();
    }
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().map(|pid| Holder { pid, name: name_of(pid) }).collect()
}

/// The end of the sentence "in use by ...". `noted` is the process id in the lock file.
pub(super) fn sentence(holders: &[Holder], noted: Option<u32>) -> String {
    let own = std::process::id();
    let told = |holder: &Holder| match &holder.name {
        _ if holder.pid == own => format!("this process ({own})"),
        Some(name) => format!("process {} ({})", holder.pid, name.escape_default()),
        None => format!("process {}", holder.pid),
    };
    match (holders, noted) {
        ([], Some(noted)) => {
            format!("a process that cannot be seen from here (the lock file notes process id {noted})")
        }
        ([], None) => "a process that cannot be seen from here".to_owned(),
        _ => holders.iter().map(told).collect::<Vec<_>>().join(" and "),
    }
}

fn of_process(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether the process has a locked open file that is one of `identities`.
fn has_lock(pid: u32, identities: &[Identity]) -> bool {
    let process = of_process(pid);
    let infos = std::fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    infos.into_iter().any(|entry| {
        // Checks this first: to stat the file itself may hang on a network file system.
        let is_locked = std::fs::read_to_string(entry.path())
            .is_ok_and(|info| info.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK")));
        let file = process.join("fd").join(entry.file_name());
        is_locked && std::fs::metadata(file).is_ok_and(|meta| identities.contains(&(meta.dev(), meta.ino())))
    })
}

/// The processes that took a lock of one of `identities`, parsed from the text of `/proc/locks`.
fn takers(locks: &str, identities: &[Identity]) -> impl Iterator<Item = u32> {
    let wanted: Vec<String> = identities
        .iter()
        .map(|(dev, inode)| format!("{:02x}:{:02x}:{inode}", rustix::fs::major(*dev), rustix::fs::minor(*dev)))
        .collect();
    locks.lines().filter_map(move |line| {
        // `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`; a waiter has `->` before the kind.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else { return None };
        if wanted.iter().any(|wanted| wanted == file) { pid.parse().ok() } else { None }
    })
}

fn name_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(of_process(pid).join("comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_lock_is_found_by_the_open_files_and_by_the_table() {
        let dir = tempfile::tempdir().expect("a directory");
        let lock = |name: &str| File::create(dir.path().join(name)).expect("made");
        let (locked, other) = (lock("locked"), lock("other"));
        assert_eq!(find_holders([&locked, &other]), []);
        locked.lock().expect("locked");
        let holders = find_holders([&other, &locked]);
        assert_eq!(holders.iter().map(|holder| holder.pid).collect::<Vec<_>>(), [std::process::id()]);
        assert!(holders[0].name.is_some(), "{holders:?}");
        let meta = locked.metadata().expect("known");
        let table = std::fs::read_to_string("/proc/locks").expect("read");
        let found: Vec<u32> = takers(&table, &[(meta.dev(), meta.ino())]).collect();
        assert_eq!(found, [std::process::id()], "{table}");
    }

    #[test]
    fn table_of_locks_is_read_without_waiters_and_other_files() {
        let dev = rustix::fs::makedev(0xfe, 1);
        let table = "1: FLOCK  ADVISORY  WRITE 11 fe:01:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 12 fe:01:77 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 13 fe:01:77 0 EOF\n3: FLOCK  ADVISORY  READ  14 fe:01:78 0 EOF\n";
        assert_eq!(takers(table, &[(dev, 77)]).collect::<Vec<_>>(), [11]);
    }

    #[test]
    fn holders_are_told_by_id_and_name() {
        let holder = |pid, name: Option<&str>| Holder { pid, name: name.map(str::to_owned) };
        let own = std::process::id();
        assert_eq!(sentence(&[holder(own, Some("it"))], None), format!("this process ({own})"));
        let two = [holder(4_000_001, Some("a\u{1b}b")), holder(4_000_002, None)];
        assert_eq!(sentence(&two, Some(3)), "process 4000001 (a\\u{1b}b) and process 4000002");
        assert_eq!(sentence(&[], None), "a process that cannot be seen from here");
        assert!(sentence(&[], Some(7)).ends_with("from here (the lock file notes process id 7)"));
    }
}
