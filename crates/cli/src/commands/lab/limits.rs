//! Limits that the system sets for a child: a quota of CPU, writes of a device. Through control groups, version 1 or 2,
//! whichever can be written; a quota where none can be is imitated by stopping the child.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The period of a quota, as the kernel has it by default.
const PERIOD: Duration = Duration::from_millis(100);

/// How often an imitated quota is looked at.
const LOOK: Duration = Duration::from_millis(4);

/// Names of groups, so that no two are alike.
static GROUPS: AtomicU64 = AtomicU64::new(0);

/// A control group; it goes when it is dropped.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
}

impl Group {
    /// A group whose processes get `percent` of one CPU together.
    ///
    /// # Errors
    /// None can be made here.
    pub(super) fn cpu_quota(percent: u64) -> io::Result<Group> {
        let quota_us = percent * 1_000;
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        if v1.is_dir() {
            return Group::make(
                v1,
                &[("cpu.cfs_period_us", "100000".into()), ("cpu.cfs_quota_us", quota_us.to_string())],
            );
        }
        let v2 = Path::new("/sys/fs/cgroup");
        // It may be on already, or not be ours to switch on: then `cpu.max` is not there.
        let _ = fs::write(v2.join("cgroup.subtree_control"), "+cpu");
        Group::make(v2, &[("cpu.max", format!("{quota_us} 100000"))])
    }

    fn make(parent: &Path, settings: &[(&str, String)]) -> io::Result<Group> {
        let number = GROUPS.fetch_add(1, Ordering::Relaxed); // Relaxed: a name
        let path = parent.join(format!("millpond-lab-{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group { path };
        settings.iter().try_for_each(|(file, value)| {
            let file = group.path.join(file);
            // A file that is not there is not to be made.
            fs::OpenOptions::new()
                .write(true)
                .open(file)
                .and_then(|mut open| io::Write::write_all(&mut open, value.as_bytes()))
        })?;
        Ok(group)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be on its way out.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Stops the process `pid` for the rest of each 100 ms in which it has used `percent` of them, until `is_over`.
pub(super) fn imitate_quota(pid: u32, percent: u64, is_over: &AtomicBool) {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let granted_ns = u64::try_from(PERIOD.as_nanos()).unwrap_or(u64::MAX) / 100 * percent;
    while !is_over.load(Ordering::Relaxed) {
        let (began, before) = (Instant::now(), used_ns(pid));
        let mut is_stopped = false;
        while began.elapsed() < PERIOD {
            thread::sleep(LOOK.min(PERIOD.saturating_sub(began.elapsed())));
            if !is_stopped && used_ns(pid).saturating_sub(before) >= granted_ns {
                is_stopped = kill_process(process, Signal::STOP).is_ok();
            }
        }
        if is_stopped {
            let _ = kill_process(process, Signal::CONT);
        }
    }
}

/// CPU that all threads of a process have used, in ns.
fn used_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| -> Option<u64> {
        fs::read_to_string(thread.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    threads.filter_map(of).sum()
}
