//! A CPU quota for a child, set through control groups, version 1 or 2, whichever is writable. If none is, the quota is
//! imitated by stopping the child.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use super::laboratory::{is_gone, process_of};

/// The period of a quota: the kernel's default.
const PERIOD: Duration = Duration::from_millis(100);

/// Interval at which an imitated quota is checked.
const LOOK: Duration = Duration::from_millis(4);

/// Counter for unique names of groups.
static GROUPS: AtomicU64 = AtomicU64::new(0);

/// Prefix of the names of groups.
const PREFIX: &str = "millpond-lab-";

/// A control group with a process in it; removed on drop.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    /// Dropped after the group is removed: `Group::drop` runs before the fields' drops.
    _switch: Option<Switch>,
}

/// The controller `cpu`, enabled for the child groups of `parent`.
#[derive(Debug)]
struct Switch {
    parent: PathBuf,
}

impl Switch {
    /// Enables the controller. `None`: it is enabled already, or may not be enabled; then a child group has no
    /// `cpu.max`.
    fn on(parent: &Path) -> Option<Switch> {
        let file = parent.join(SUBTREE);
        let is_on = |text: &str| text.split_whitespace().any(|of| of == "cpu");
        if fs::read_to_string(&file).is_ok_and(|text| is_on(&text)) {
            return None;
        }
        set(&file, "+cpu").ok().map(|()| Switch { parent: parent.to_owned() })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // Another lab's group may need the controller now.
        let is_ours = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
        let others = fs::read_dir(&self.parent).into_iter().flatten().flatten().any(is_ours);
        if !others {
            let _ = set(&self.parent.join(SUBTREE), "-cpu");
        }
    }
}

/// File of a version 2 group that lists the controllers of its child groups.
const SUBTREE: &str = "cgroup.subtree_control";

impl Group {
    /// Puts the process `pid` into a group whose processes together get `percent` of one CPU. The group is a child of
    /// this process's group, or of the nearest ancestor that may have one. (In version 2, a group with processes may
    /// have no children with controllers, except the root.)
    ///
    /// # Errors
    /// No group can be made, or the process cannot be put into it.
    pub(super) fn cpu_quota(pid: u32, percent: u64) -> io::Result<Group> {
        let quota_us = percent * 1_000;
        let (v1, v2) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let own = fs::read_to_string("/proc/self/cgroup")?;
        if v1.is_dir() {
            let settings = [("cpu.cfs_period_us", "100000".to_owned()), ("cpu.cfs_quota_us", quota_us.to_string())];
            return first_of(places(v1, own_group(&own, "cpu")), |parent| Group::make(parent, None, &settings, pid));
        }
        let settings = [("cpu.max", format!("{quota_us} 100000"))];
        first_of(places(v2, own_group(&own, "")), |parent| Group::make(parent, Switch::on(parent), &settings, pid))
    }

    fn make(parent: &Path, switch: Option<Switch>, settings: &[(&str, String)], pid: u32) -> io::Result<Group> {
        remove_left_in(parent);
        let number = GROUPS.fetch_add(1, Ordering::Relaxed); // Relaxed: a name
        // A process with this id in another container may have left groups with the same number.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let path = parent.join(format!("{PREFIX}{}-{number}-{since:x}", std::process::id()));
        fs::create_dir(&path)?;
        let group = Group { path, _switch: switch };
        settings.iter().try_for_each(|(file, value)| set(&group.path.join(file), value))?;
        set(&group.path.join("cgroup.procs"), &pid.to_string())?;
        Ok(group)
    }
}

/// The group of a process in the hierarchy of a controller, from `/proc/PID/cgroup`. The line of version 2 names no
/// controller.
fn own_group<'t>(text: &'t str, controller: &str) -> &'t str {
    let group = |line: &'t str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|of| of == controller).then_some(group)
    };
    text.lines().find_map(group).unwrap_or("/")
}

/// The result of `make` for the first place where it succeeds; otherwise the error of the last place.
fn first_of<T>(places: Vec<PathBuf>, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let none = Err(io::ErrorKind::NotFound.into());
    places.iter().fold(none, |made, place| made.or_else(|_| make(place)))
}

/// Possible parents of a new group: `group`, if it is visible here, and its ancestors.
fn places(mount: &Path, group: &str) -> Vec<PathBuf> {
    let within = Path::new(group.trim_start_matches('/'));
    within.ancestors().map(|group| mount.join(group)).filter(|place| place.is_dir()).collect()
}

/// Writes a control file. Never creates one: a new file would have no meaning.
fn set(file: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}

/// Removes the groups of killed labs in `parent`; these hold no process any more.
fn remove_left_in(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(process_of).is_some_and(is_gone) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be exiting.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Until `is_over`, stops the process `pid` for the rest of each 100 ms in which it has used up its `percent` of a CPU.
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

/// CPU time of all threads of a process, in ns.
fn used_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| -> Option<u64> {
        fs::read_to_string(thread.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
    };
    threads.filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The state of a process: the word after its name in brackets.
    fn state(pid: u32) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// Whether a process reaches a state for which `is_right` holds, within some seconds.
    fn becomes(pid: u32, is_right: impl Fn(Option<char>) -> bool) -> bool {
        (0..2_000).any(|_| {
            thread::sleep(Duration::from_millis(5));
            is_right(state(pid))
        })
    }

    #[test]
    fn process_over_its_quota_stands_still_until_the_quota_ends() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let (pid, is_over) = (child.id(), AtomicBool::new(false));
        let (stood, went_on) = thread::scope(|scope| {
            let quota = scope.spawn(|| imitate_quota(pid, 1, &is_over));
            let stood = becomes(pid, |state| state == Some('T'));
            is_over.store(true, Ordering::Relaxed);
            let ended = quota.join().is_ok();
            (stood, ended && becomes(pid, |state| state != Some('T')))
        });
        child.kill().expect("it can be ended");
        child.wait().expect("it ends");
        assert!(stood, "it used more than 1 % of a CPU");
        assert!(went_on, "no thread stops it any more");
    }

    #[test]
    fn group_of_a_process_is_of_the_hierarchy_with_the_controller() {
        let text = "12:cpuset:/\n4:cpu,cpuacct:/a/b\n1:name=systemd:/c:d\n0::/user.slice/e\n";
        let of = |controller| own_group(text, controller);
        assert_eq!((of("cpu"), of("cpuacct"), of("cpuset")), ("/a/b", "/a/b", "/"));
        assert_eq!((of("name=systemd"), of(""), of("memory")), ("/c:d", "/user.slice/e", "/"));
    }

    #[test]
    fn a_group_is_made_in_the_nearest_place_that_there_is() {
        let mount = tempfile::tempdir().expect("a directory");
        let root = mount.path();
        fs::create_dir_all(root.join("a/b")).expect("directories");
        assert_eq!(places(root, "/a/b"), [root.join("a/b"), root.join("a"), root.join("")]);
        assert_eq!(places(root, "/a/elsewhere"), [root.join("a"), root.join("")], "a part of it is to be seen here");
        assert_eq!(places(root, "/"), [root.join("")]);
        let above = |place: &Path| if place.ends_with("a/b") { set(&place.join("no"), "") } else { Ok(()) };
        let named = |place: &Path| above(place).map(|()| place.to_owned());
        assert_eq!(first_of(places(root, "/a/b"), named).expect("the one above"), root.join("a"));
        assert_eq!(first_of(places(root, "/a"), named).expect("itself"), root.join("a"));
        assert!(first_of(vec![root.join("a/b")], named).is_err() && first_of(Vec::new(), named).is_err());
        // Without the controller the file does not exist; the failed group must be removed.
        assert!(Group::make(&root.join("a"), None, &[("cpu.max", "1000 100000".to_owned())], 1).is_err());
        assert!(Group::make(&root.join("a"), None, &[], 1).is_err(), "nor one for its processes");
        assert_eq!(fs::read_dir(root.join("a")).expect("it can be read").count(), 1);
    }

    #[test]
    fn controller_is_switched_off_unless_others_need_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join(SUBTREE);
        let text = || fs::read_to_string(&file).expect("it is there");
        assert!(Switch::on(dir.path()).is_none(), "nothing to switch");
        fs::write(&file, "memory cpu pids").expect("a file");
        assert!(Switch::on(dir.path()).is_none(), "it is on");
        fs::write(&file, "").expect("a file");
        let switch = Switch::on(dir.path()).expect("it is ours to switch");
        assert_eq!(text(), "+cpu");
        drop(switch);
        assert_eq!(text(), "-cpu");
        fs::write(&file, "").expect("a file");
        let switch = Switch::on(dir.path()).expect("it is ours to switch");
        fs::create_dir(dir.path().join(format!("{PREFIX}1-0"))).expect("a directory");
        drop(switch);
        assert_eq!(text(), "+cpu", "there is another group");
    }

    #[test]
    fn what_a_killed_lab_has_left_goes_with_the_next_group() {
        let dir = tempfile::tempdir().expect("a directory");
        // No process has an id above the largest one of Linux.
        let left =
            [format!("{PREFIX}4194305-0-1f"), format!("{PREFIX}{}-0-1f", std::process::id()), "other".to_owned()];
        left.iter().for_each(|name| fs::create_dir(dir.path().join(name)).expect("a directory"));
        remove_left_in(dir.path());
        assert_eq!(left.map(|name| dir.path().join(name).exists()), [false, true, true]);
    }

    #[test]
    fn a_control_file_that_is_not_there_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("cpu.max");
        assert!(set(&file, "1000 100000").is_err() && !file.exists());
        fs::write(&file, "max 100000").expect("a file");
        set(&file, "1000 100000").expect("it is there");
    }
}
