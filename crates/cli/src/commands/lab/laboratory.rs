//! Where experiments are made: data that is loaded once, fresh copies of it, children that run on them in turn.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::arm::{ArmPlan, Phase, SlowDevice, Tables, Work};
use super::findings::Setting;
use super::limits;
use super::outcome::Outcome;
use crate::database_files;
use crate::exit::Failure;
use crate::machine::Machine;
use crate::output::talk;

/// The exit code of a child that was interrupted.
const INTERRUPTED: i32 = 130;

/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Where files are in memory, and the bytes that have to be free there.
const IN_MEMORY: &str = "/dev/shm";
const IN_MEMORY_MIN: u64 = 2 << 30;

/// A place for experiments.
pub(super) struct Lab {
    /// Goes with all that is in it.
    dir: TempDir,
    /// The directory above, if it was made for this.
    made: Option<PathBuf>,
    /// Databases that are loaded.
    loaded: Mutex<BTreeSet<PathBuf>>,
    stop: Arc<AtomicBool>,
    /// A directory in memory, if there is one with room.
    memory: Option<PathBuf>,
    pub(super) is_quick: bool,
    pub(super) rounds: u32,
    pub(super) machine: Machine,
}

/// Data to begin with.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) options: Vec<(String, String)>,
    pub(super) work: Vec<Work>,
    /// Files in memory, where there is room for them.
    pub(super) in_memory: bool,
}

/// A setting, and how it is run.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) name: String,
    pub(super) is_default: bool,
    pub(super) options: Vec<(String, String)>,
    pub(super) device: Option<SlowDevice>,
    /// Per cent of one CPU that it gets.
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

    /// The engine's own.
    pub(super) fn default(words: &[&str]) -> Arm {
        Arm { is_default: true, ..Arm::classic("default", words) }
    }

    /// On this device.
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
    /// Makes a place within `dir`.
    ///
    /// # Errors
    /// No files can be made there.
    pub(super) fn new(dir: &Path, is_quick: bool, rounds: u32, stop: Arc<AtomicBool>) -> Result<Lab, Failure> {
        let was_there = dir.exists();
        database_files::make_writable(dir)?;
        let inside = tempfile::Builder::new().prefix("lab-").tempdir_in(dir).map_err(|cause| {
            Failure::message(format!(
                "cannot make a directory in '{}': {cause}; name another with --dir",
                dir.display()
            ))
        })?;
        let machine = Machine::under(inside.path());
        let made = (!was_there).then(|| dir.to_owned());
        Ok(Lab { dir: inside, made, loaded: Mutex::default(), stop, memory: memory(), is_quick, rounds, machine })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) // Relaxed: stands for itself
    }

    /// That it was interrupted, if so.
    fn go_on(&self) -> Result<(), Failure> {
        if self.is_stopped() { Err(Failure::message("interrupted")) } else { Ok(()) }
    }

    /// Where the files are of data that is to be in memory.
    pub(super) fn where_in_memory(&self) -> String {
        if self.memory.is_some() {
            "files in memory".to_owned()
        } else {
            format!("files on disk: {IN_MEMORY} has no room")
        }
    }

    /// Seconds: the first in quick runs.
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
            for (arm, setting) in arms.iter().zip(&mut settings) {
                talk(&format!("{name}: {}, round {round} of {}", arm.name, self.rounds));
                setting.rounds.push(self.run(name, base, arm, phases)?);
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

    /// Whether quotas are the system's here, and not imitated: a child can be put under one.
    pub(super) fn has_quotas() -> bool {
        let mut child = Command::new("cat");
        let Ok(mut child) = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() else { return false };
        let group = limits::Group::cpu_quota(child.id(), 100);
        // It ends with its input, and the group can go behind it alone.
        drop(child.stdin.take());
        let _ = child.wait();
        group.is_ok()
    }

    /// A fresh copy of the data, which goes with the directory that is returned, and what is to be run on it.
    fn plan(&self, name: &str, base: &Base, arm: &Arm, phases: &[Phase]) -> Result<(TempDir, ArmPlan), Failure> {
        let from = self.loaded(name, base, arm.is_in_place())?;
        let copy = self.copy_of(&from).map_err(|cause| {
            Failure::message(format!(
                "cannot copy the data in '{}': {cause}; name another place with --dir",
                from.display()
            ))
        })?;
        let plan = ArmPlan {
            dir: copy.path().to_owned(),
            options: arm.options.clone(),
            device: arm.device.clone(),
            phases: phases.to_vec(),
        };
        Ok((copy, plan))
    }

    /// The data, loaded if it is not there yet.
    fn loaded(&self, name: &str, base: &Base, in_place: bool) -> Result<PathBuf, Failure> {
        let memory = self.memory.as_deref().filter(|_| base.in_memory);
        let parent = memory.unwrap_or(self.dir.path());
        let store = if in_place { "in_place" } else { "copy_on_write" };
        let dir = parent.join(format!("millpond-lab-{}-{name}-{store}", std::process::id()));
        if self.loaded.lock().contains(&dir) {
            return Ok(dir);
        }
        talk(&format!("{name}: loading, pages {store}"));
        let mut options = base.options.clone();
        options.push(("page_store".to_owned(), store.to_owned()));
        let phase =
            |work: &Work| Phase { name: "load".to_owned(), quiet_s: 0.0, work: work.clone(), time_s: 0, beside: None };
        let plan = ArmPlan { dir: dir.clone(), options, device: None, phases: base.work.iter().map(phase).collect() };
        self.loaded.lock().insert(dir.clone());
        self.watch(&plan, None)?;
        Ok(dir)
    }

    /// Removes what an experiment has loaded.
    pub(super) fn clear(&self) {
        for dir in std::mem::take(&mut *self.loaded.lock()) {
            let _ = fs::remove_dir_all(dir);
        }
    }

    /// Sleeps, but not behind an interrupt.
    fn rest(&self, time: Duration) {
        let began = Instant::now();
        while !self.is_stopped() && began.elapsed() < time {
            thread::sleep(LOOK.min(time.saturating_sub(began.elapsed())));
        }
    }

    /// The files of a database beside it.
    fn copy_of(&self, from: &Path) -> std::io::Result<TempDir> {
        let parent = from.parent().unwrap_or(Path::new("."));
        let to = tempfile::Builder::new().prefix("millpond-lab-copy-").tempdir_in(parent)?;
        for entry in fs::read_dir(from)? {
            if self.is_stopped() {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            let entry = entry?;
            let copy = to.path().join(entry.file_name());
            fs::copy(entry.path(), &copy)?;
            // Or the run would begin with the copy's writes.
            fs::File::open(&copy)?.sync_all()?;
        }
        Ok(to)
    }

    /// Runs a child to its end; under a quota of `percent` of a CPU, if there is one, which is imitated where the
    /// system has none.
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
        // Before it has its plan: nothing of what it does is without the quota.
        let group = percent.map(|percent| limits::Group::cpu_quota(child.id(), percent));
        let imitated = percent.filter(|_| group.as_ref().is_some_and(Result::is_err));
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes()).map_err(|e| cannot("start", &e))?;
        }
        let is_over = AtomicBool::new(false);
        // Who may send it a signal ends before it is waited for: its number is its own until then.
        let outcomes = thread::scope(|scope| {
            let (pid, is_over) = (child.id(), &is_over);
            if let Some(percent) = imitated {
                scope.spawn(move || limits::imitate_quota(pid, percent, is_over));
            }
            scope.spawn(move || self.pass_on_interrupt(pid, is_over));
            let outcomes = outcomes(&mut child);
            is_over.store(true, Ordering::Relaxed);
            outcomes
        });
        let ended = child.wait_with_output().map_err(|e| cannot("end", &e))?;
        match ended.status.code() {
            Some(0) => outcomes,
            Some(INTERRUPTED) => Err(Failure::message("interrupted")),
            _ => {
                let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
                let said = said.strip_prefix("error: ").unwrap_or(&said).to_owned();
                Err(Failure::message(format!("a run of the lab ended with {}: {said}", ended.status)))
            }
        }
    }

    /// Tells the child `pid` once that all is to end: a signal may have come to this process alone.
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

impl Drop for Lab {
    fn drop(&mut self) {
        self.clear();
        // The directory within goes before the one above, which is only removed if it is empty.
        let _ = fs::remove_dir_all(self.dir.path());
        if let Some(made) = &self.made {
            let _ = fs::remove_dir(made);
        }
    }
}

fn setting(arm: &Arm) -> Setting {
    Setting { name: arm.name.clone(), is_default: arm.is_default, options: arm.options.clone(), rounds: Vec::new() }
}

/// A directory in memory, if there is one with room for what is loaded there and for a copy of it.
fn memory() -> Option<PathBuf> {
    let dir = PathBuf::from(IN_MEMORY);
    let free = rustix::fs::statvfs(&dir).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    (free >= IN_MEMORY_MIN && tempfile::tempfile_in(&dir).is_ok()).then_some(dir)
}

/// Tables of sysbench to begin with.
pub(super) fn tables(count: u32, rows: u64, words: &[&str]) -> Base {
    Base { options: options(words), work: vec![Work::Prepare(Tables { count, rows })], in_memory: false }
}

/// What a child prints.
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
