//! The place of experiments: data that is loaded once, fresh copies of it, and children that run on the copies in turn.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use super::arm::{ArmPlan, Phase, SlowDevice, Tables, Work};
use super::disturbance::Beside;
use super::findings::Setting;
use super::limits;
use super::outcome::Outcome;
use crate::database_files;
use crate::exit::Failure;
use crate::machine::Machine;
use crate::output::talk;
use crate::signals;

/// The stop flag is checked at this interval.
const LOOK: Duration = Duration::from_millis(100);

/// A directory in memory, and the bytes that must be free there.
const IN_MEMORY: &str = "/dev/shm";
const IN_MEMORY_MIN: u64 = 2 << 30;

/// Prefix of the names of a lab's directories; the id of its process follows.
const PREFIX: &str = "millpond-lab-";

/// A place for experiments.
pub(super) struct Lab {
    dir: Place,
    /// A directory in memory, if there is room.
    memory: Option<Place>,
    /// Loaded databases, in `dir` or `memory`.
    loaded: Mutex<BTreeSet<PathBuf>>,
    stop: Arc<AtomicBool>,
    pub(super) is_quick: bool,
    pub(super) rounds: u32,
    pub(super) machine: Machine,
    /// Parent directories that the lab created; dropped last, and removed if they are empty.
    _above: MadeAbove,
}

/// A directory that is removed with its content on drop.
struct Place {
    dir: TempDir,
    /// Lock while the directory is in use. A process id alone proves nothing: the process may run in another container.
    _lock: File,
}

impl Place {
    /// Makes a directory within `parent`, and removes the directories of killed labs there.
    fn within(parent: &Path) -> std::io::Result<Place> {
        for entry in fs::read_dir(parent)?.flatten() {
            if entry.file_name().to_str().and_then(process_of).is_some_and(is_gone) && is_unlocked(&entry.path()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let dir = tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir_in(parent)?;
        let lock = File::open(dir.path())?;
        // On a file system without locks, the process id has to be enough.
        let _ = lock.try_lock();
        Ok(Place { dir, _lock: lock })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// The process that made a directory, or a control group, of this name.
pub(super) fn process_of(name: &str) -> Option<Pid> {
    let (number, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Pid::from_raw(number.parse().ok()?)
}

/// Whether the process does not exist, or is a zombie, as in a container whose first process does not wait for
/// children.
pub(super) fn is_gone(process: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap_or_default();
    let is_dead = status.lines().any(|line| line.starts_with("State:\tZ"));
    is_dead || test_kill_process(process) == Err(Errno::SRCH)
}

fn is_unlocked(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|dir| dir.try_lock().is_ok())
}

/// Directories that were created above a lab's directory; the deepest first.
struct MadeAbove(Vec<PathBuf>);

impl MadeAbove {
    /// The missing directories on the path to `dir`, `dir` included.
    fn for_dir(dir: &Path) -> MadeAbove {
        let missing = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
        MadeAbove(missing.map(Path::to_owned).collect())
    }
}

impl Drop for MadeAbove {
    fn drop(&mut self) {
        for dir in &self.0 {
            // Fails if another process has put a file into it.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// The initial data of an experiment.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) options: Vec<(String, String)>,
    pub(super) work: Vec<Work>,
    /// Whether the files are in memory, if there is room.
    pub(super) in_memory: bool,
}

/// A setting, with its device and quota.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) name: String,
    pub(super) is_default: bool,
    pub(super) options: Vec<(String, String)>,
    pub(super) device: Option<SlowDevice>,
    /// Its quota, in percent of one CPU.
    pub(super) quota: Option<u64>,
}

/// Options from words: `["cached=true", ...]`.
pub(super) fn options(words: &[&str]) -> Vec<(String, String)> {
    let of = |word: &&str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    words.iter().filter_map(of).collect()
}

impl Arm {
    /// A classic setting.
    pub(super) fn classic(name: &str, words: &[&str]) -> Arm {
        Arm { name: name.to_owned(), is_default: false, options: options(words), device: None, quota: None }
    }

    /// The engine's own default.
    pub(super) fn default(words: &[&str]) -> Arm {
        Arm { is_default: true, ..Arm::classic("default", words) }
    }

    /// The setting on this device.
    pub(super) fn on(self, device: &SlowDevice) -> Arm {
        Arm { device: Some(device.clone()), ..self }
    }

    /// Whether its pages are written in place.
    pub(super) fn is_in_place(&self) -> bool {
        self.options.iter().any(|(name, value)| {
            (name == "page_store" && value == "in_place") || (name == "profile" && value != "millpond")
        })
    }
}

impl Lab {
    /// Makes a lab within `dir`.
    ///
    /// # Errors
    /// No files can be made there.
    pub(super) fn new(dir: &Path, is_quick: bool, rounds: u32, stop: Arc<AtomicBool>) -> Result<Lab, Failure> {
        let above = MadeAbove::for_dir(dir);
        database_files::make_writable(dir)?;
        let inside = Place::within(dir).map_err(|cause| {
            Failure::message(format!(
                "cannot make a directory in '{}': {cause}; name another with --dir",
                dir.display()
            ))
        })?;
        let machine = Machine::under(inside.path());
        let loaded = Mutex::default();
        Ok(Lab { dir: inside, memory: memory(), loaded, stop, is_quick, rounds, machine, _above: above })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) // Relaxed: an independent flag
    }

    /// Returns an error if the lab was interrupted.
    fn go_on(&self) -> Result<(), Failure> {
        if self.is_stopped() { Err(Failure::message("interrupted")) } else { Ok(()) }
    }

    /// Location of files that should be in memory, in words.
    pub(super) fn where_in_memory(&self) -> String {
        if self.memory.is_some() {
            "files in memory".to_owned()
        } else {
            format!("files on disk: {IN_MEMORY} has no room")
        }
    }

    /// Advice if there is no room for `files`.
    fn advice(&self, files: &Path) -> String {
        if self.memory.as_ref().is_some_and(|memory| files.starts_with(memory.path())) {
            format!("make room in {IN_MEMORY}, where these files are, whatever --dir says")
        } else {
            "name another place with --dir".to_owned()
        }
    }

    /// Seconds: `quick` in quick runs, otherwise `full`.
    pub(super) fn seconds(&self, quick: u64, full: u64) -> u64 {
        if self.is_quick { quick } else { full }
    }

    /// Runs all settings in turn, round by round, each on a fresh copy of the same data.
    pub(super) fn in_turn(
        &self,
        name: &str,
        base: &Base,
        arms: &[Arm],
        phases: &[Phase],
    ) -> Result<Vec<Setting>, Failure> {
        let mut settings: Vec<Setting> = arms.iter().map(setting).collect();
        for round in 1..=self.rounds {
            for at in order(arms.len(), round as usize) {
                talk(&format!("{name}: {}, round {round} of {}", arms[at].name, self.rounds));
                settings[at].rounds.push(self.run(name, base, &arms[at], phases)?);
            }
        }
        Ok(settings)
    }

    /// Runs all settings side by side, each begun `apart` after the one before it: for experiments that mostly wait.
    pub(super) fn side_by_side(
        &self,
        name: &str,
        base: &Base,
        arms: &[Arm],
        phases: &[Phase],
        apart: Duration,
    ) -> Result<Vec<Setting>, Failure> {
        let mut settings: Vec<Setting> = arms.iter().map(setting).collect();
        for round in 1..=self.rounds {
            self.go_on()?;
            talk(&format!("{name}: {} settings side by side, round {round} of {}", arms.len(), self.rounds));
            let plans =
                arms.iter().map(|arm| self.plan(name, base, arm, phases)).collect::<Result<Vec<_>, Failure>>()?;
            let ran: Vec<Result<Vec<Outcome>, Failure>> = thread::scope(|scope| {
                let children: Vec<_> = plans
                    .iter()
                    .map(|(_, plan)| {
                        let child = scope.spawn(|| self.watch(plan, None));
                        self.rest(apart);
                        child
                    })
                    .collect();
                let panicked = || Failure::message("a thread of the lab panicked");
                children.into_iter().map(|child| child.join().unwrap_or_else(|_| Err(panicked()))).collect()
            });
            for (setting, ran) in settings.iter_mut().zip(ran) {
                setting.rounds.push(ran?);
            }
        }
        Ok(settings)
    }

    /// Runs a setting once.
    fn run(&self, name: &str, base: &Base, arm: &Arm, phases: &[Phase]) -> Result<Vec<Outcome>, Failure> {
        self.go_on()?;
        let (_copy, plan) = self.plan(name, base, arm, phases)?;
        self.watch(&plan, arm.quota)
    }

    /// Whether the system can put a child under a quota, so that none has to be imitated.
    pub(super) fn has_quotas() -> bool {
        let mut child = Command::new("cat");
        let Ok(mut child) = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() else { return false };
        let group = limits::Group::cpu_quota(child.id(), 100);
        // `cat` ends with its input; the group can be removed only after that.
        drop(child.stdin.take());
        let _ = child.wait();
        group.is_ok()
    }

    /// A fresh copy of the data, which is removed with the returned directory, and the plan of the run on it.
    fn plan(&self, name: &str, base: &Base, arm: &Arm, phases: &[Phase]) -> Result<(TempDir, ArmPlan), Failure> {
        let from = self.loaded(name, base, arm.is_in_place())?;
        let copy = self.copy_of(&from).map_err(|cause| {
            Failure::message(format!("cannot copy the data in '{}': {cause}; {}", from.display(), self.advice(&from)))
        })?;
        let plan = ArmPlan {
            lab: std::process::id(),
            dir: copy.path().to_owned(),
            options: arm.options.clone(),
            device: arm.device.clone(),
            phases: phases.to_vec(),
            is_kept: false,
        };
        Ok((copy, plan))
    }

    /// The directory of the data, which is loaded at the first call.
    fn loaded(&self, name: &str, base: &Base, in_place: bool) -> Result<PathBuf, Failure> {
        let parent = self.memory.as_ref().filter(|_| base.in_memory).unwrap_or(&self.dir).path();
        let store = if in_place { "in_place" } else { "copy_on_write" };
        let dir = parent.join(format!("{name}-{store}"));
        if self.loaded.lock().contains(&dir) {
            return Ok(dir);
        }
        talk(&format!("{name}: loading, pages {store}"));
        let mut options = base.options.clone();
        options.push(("page_store".to_owned(), store.to_owned()));
        let phase =
            |work: &Work| Phase { name: "load".to_owned(), quiet_s: 0.0, work: work.clone(), time_s: 0, beside: None };
        let phases = base.work.iter().map(phase).collect();
        let lab = std::process::id();
        let plan = ArmPlan { lab, dir: dir.clone(), options, device: None, phases, is_kept: true };
        self.loaded.lock().insert(dir.clone());
        self.watch(&plan, None)?;
        Ok(dir)
    }

    /// Removes the loaded data of an experiment.
    pub(super) fn clear(&self) {
        for dir in std::mem::take(&mut *self.loaded.lock()) {
            let _ = fs::remove_dir_all(dir);
        }
    }

    /// Sleeps for `time`, or until an interrupt.
    fn rest(&self, time: Duration) {
        let began = Instant::now();
        while !self.is_stopped() && began.elapsed() < time {
            thread::sleep(LOOK.min(time.saturating_sub(began.elapsed())));
        }
    }

    /// Copies the files of a database into a directory beside it.
    fn copy_of(&self, from: &Path) -> std::io::Result<TempDir> {
        let parent = from.parent().unwrap_or(Path::new("."));
        let to = tempfile::Builder::new().prefix("copy-").tempdir_in(parent)?;
        for entry in fs::read_dir(from)? {
            if self.is_stopped() {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            let entry = entry?;
            let copy = to.path().join(entry.file_name());
            fs::copy(entry.path(), &copy)?;
            // Synced, or the device would still write the copy when the run begins.
            fs::File::open(&copy)?.sync_all()?;
        }
        Ok(to)
    }

    /// Runs a child to its end, under a quota of `percent` of a CPU if that is given. If the system cannot set the
    /// quota, it is imitated.
    fn watch(&self, plan: &ArmPlan, percent: Option<u64>) -> Result<Vec<Outcome>, Failure> {
        let cannot = |what: &str, cause: &dyn std::fmt::Display| {
            Failure::message(format!("cannot {what} a run of the lab: {cause}"))
        };
        self.go_on()?;
        let program = std::env::current_exe().map_err(|e| cannot("start", &e))?;
        let mut child = Command::new(program)
            .arg("lab-arm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| cannot("start", &e))?;
        let text = serde_json::to_string(plan).map_err(|e| cannot("plan", &e))?;
        // Set before the child has its plan, so that all its work is under the quota.
        let group = percent.map(|percent| limits::Group::cpu_quota(child.id(), percent));
        let imitated = percent.filter(|_| group.as_ref().is_some_and(Result::is_err));
        let (input, said) = (child.stdin.take(), child.stderr.take());
        let is_over = AtomicBool::new(false);
        // Threads that may signal the child end before `wait`: until then its process id cannot be reused.
        let (outcomes, said) = thread::scope(|scope| {
            let (pid, is_over) = (child.id(), &is_over);
            // Standard error is read in a thread of its own, or the child could block on a full pipe.
            let said = scope.spawn(move || said.map(heard_from).unwrap_or_default());
            if let Some(mut input) = input {
                // The write fails if the child has already ended; then its message says why.
                let _ = input.write_all(text.as_bytes());
            }
            if let Some(percent) = imitated {
                scope.spawn(move || limits::imitate_quota(pid, percent, is_over));
            }
            scope.spawn(move || self.pass_on_interrupt(pid, is_over));
            let outcomes = outcomes(&mut child);
            is_over.store(true, Ordering::Relaxed);
            (outcomes, said.join().unwrap_or_default())
        });
        let ended = child.wait().map_err(|e| cannot("end", &e))?;
        match ended.code() {
            Some(0) if percent.is_some() => outcomes.map(under_quota),
            Some(0) => outcomes,
            Some(code) if signals::is_interrupted(code) => Err(Failure::message("interrupted")),
            _ => {
                let said = said.trim();
                let said = said.strip_prefix("error: ").unwrap_or(said);
                let dir = plan.dir.display();
                let mut text = format!("a run of the lab in '{dir}' ended with {ended}: {said}");
                if said.to_lowercase().contains("no space") {
                    text = format!("{text}; {}", self.advice(&plan.dir));
                }
                Err(Failure::message(text))
            }
        }
    }

    /// Sends TERM to the child `pid` once after an interrupt, since the signal may have reached only this process.
    fn pass_on_interrupt(&self, pid: u32, is_over: &AtomicBool) {
        let Some(child) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        while !is_over.load(Ordering::Relaxed) {
            if self.is_stopped() {
                let _ = kill_process(child, Signal::TERM);
                return;
            }
            thread::sleep(LOOK);
        }
    }
}

/// Outcomes of a run under a quota.
fn under_quota(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    outcomes.iter_mut().for_each(|outcome| outcome.machine = outcome.machine.map(Beside::under_quota));
    outcomes
}

/// The order of the settings in a round, counted from 1. Each round begins with another setting, and every second round
/// runs backwards, so that no setting always follows the same one.
fn order(settings: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..settings).collect();
    order.rotate_left((round - 1) % settings.max(1));
    if round.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// The most bytes that are kept of a child's error message.
const SAID_MAX: u64 = 64 << 10;

/// Reads `said` to its end, and returns the first [`SAID_MAX`] bytes.
fn heard_from(mut said: impl Read) -> String {
    let mut first = Vec::new();
    let _ = said.by_ref().take(SAID_MAX).read_to_end(&mut first);
    let _ = std::io::copy(&mut said, &mut std::io::sink());
    String::from_utf8_lossy(&first).into_owned()
}

fn setting(arm: &Arm) -> Setting {
    Setting { name: arm.name.clone(), is_default: arm.is_default, options: arm.options.clone(), rounds: Vec::new() }
}

/// A directory in memory, if there is room for loaded data and a copy of it.
fn memory() -> Option<Place> {
    // This first removes the leftovers of killed labs, which take room.
    let place = Place::within(Path::new(IN_MEMORY)).ok()?;
    let free = rustix::fs::statvfs(place.path()).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    (free >= IN_MEMORY_MIN).then_some(place)
}

/// Initial data: tables of sysbench.
pub(super) fn tables(count: u32, rows: u64, words: &[&str]) -> Base {
    Base { options: options(words), work: vec![Work::Prepare(Tables { count, rows })], in_memory: false }
}

/// The outcomes that a child prints.
fn outcomes(child: &mut Child) -> Result<Vec<Outcome>, Failure> {
    let Some(output) = child.stdout.take() else { return Ok(Vec::new()) };
    let line = |line: std::io::Result<String>| -> Result<Outcome, Failure> {
        let wrong = |cause: &dyn std::fmt::Display| {
            Failure::message(format!("a run of the lab said something strange: {cause}"))
        };
        serde_json::from_str(&line.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))
    };
    BufReader::new(output).lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_take_turns_in_another_order_each_round() {
        assert_eq!(order(4, 1), [0, 1, 2, 3]);
        assert_eq!(order(4, 2), [0, 3, 2, 1]);
        assert_eq!(order(4, 3), [2, 3, 0, 1]);
        assert_eq!(order(0, 2), [0; 0]);
    }

    #[test]
    fn long_output_of_a_child_is_read_to_its_end() {
        let (told, mut tells) = std::io::pipe().unwrap();
        let much = vec![b'x'; 4 * SAID_MAX as usize];
        let said = thread::scope(|scope| {
            // More than a pipe holds: without a reader this would block for ever.
            scope.spawn(move || tells.write_all(&much).unwrap());
            heard_from(told)
        });
        assert_eq!(said.len() as u64, SAID_MAX);
    }

    #[test]
    fn what_a_killed_lab_has_left_goes_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let dir = parent.path().join(name);
            fs::create_dir_all(dir.join("within")).unwrap();
            dir
        };
        // No process has an id above the largest one of Linux.
        let gone = make("millpond-lab-4194305-abc");
        let locked = make("millpond-lab-4194306-abc");
        let held = File::open(&locked).unwrap();
        held.try_lock().unwrap();
        let kept = [
            locked.clone(),
            make(&format!("millpond-lab-{}-abc", std::process::id())),
            make("millpond-lab-4194305"),
            make("millpond-lab-data"),
            make("other-4194305-abc"),
        ];
        let place = Place::within(parent.path()).unwrap();
        assert!(!gone.exists());
        assert!(kept.iter().all(|dir| dir.exists()), "{kept:?}");
        let own = place.path().to_owned();
        assert!(!is_unlocked(&own) && own.starts_with(parent.path()));
        let mut child = Command::new("true").spawn().unwrap();
        let dead = Pid::from_child(&child);
        let began = Instant::now();
        while !is_gone(dead) {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not end");
            thread::yield_now();
        }
        child.wait().unwrap();
        drop((place, held));
        assert!(!own.exists() && locked.exists());
    }

    #[test]
    fn created_directories_are_removed_up_to_the_first_old_one() {
        let parent = tempfile::tempdir().unwrap();
        let deep = parent.path().join("a/b/c");
        let above = MadeAbove::for_dir(&deep);
        fs::create_dir_all(&deep).unwrap();
        drop(above);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        let above = MadeAbove::for_dir(&deep);
        fs::create_dir_all(&deep).unwrap();
        fs::write(parent.path().join("a/b/file"), "x").unwrap();
        drop(above);
        assert!(!deep.exists() && parent.path().join("a/b/file").exists());
    }
}
