//! Canaries beside a run: they watch the device and the CPU while the engine works.
//!
//! CAN-1  A stop of the device counts as the device's own only if the engine had less than [`OUTSTANDING_MAX`] bytes
//!        outstanding when the canary's write began. Otherwise the stop is shared: an engine cannot excuse itself by
//!        flooding the device.
//!
//! Three threads watch. The device's canary writes a block of 4 KiB every 100 ms into a file of its own in the run's
//! directory, in the way of log writes, syncs it, and notes how long that took. The CPU's canary asks to sleep for 10
//! ms and notes how late it wakes. A pair of write and sync that is much longer than usual, or a wake that is much too
//! late, is a stop ([`log`]). A canary sees a stop only from its next write on, so it may miss the first 100 ms of one.
//! The third thread reads each 100 ms how much CPU time others took ([`taken`]).

pub mod log;
pub mod taken;

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use aligned_vec::{AVec, ConstAlign};
use parking_lot::Mutex;
use rustix::fs::{OFlags, fdatasync};

use crate::Error;
use crate::probe::Access;
use crate::recorder::RunClock;
use log::{Beats, MachineLog};
use taken::{Look, Taken};

/// The file's name; the file loses it right after it is created.
pub const FILE_NAME: &str = "millpond-canary.tmp";

/// From one write of the device's canary to the next.
pub const DEVICE_PERIOD: Duration = Duration::from_millis(100);

/// From one look at the CPUs' counters to the next.
pub const TAKEN_PERIOD: Duration = Duration::from_millis(100);

/// The sleep that the CPU's canary asks for.
pub const CPU_PERIOD: Duration = Duration::from_millis(10);

/// With at least this many bytes outstanding, a stop of the device is shared with the engine.
pub const OUTSTANDING_MAX: u64 = 1 << 20;

/// Bytes of one write, and their alignment.
const WRITE_LEN: usize = 4096;

/// Writes before the canary starts again at offset 0: 1 MiB, all written before the run, so that no write grows the
/// file.
const WRITES_PER_LAP: u64 = 256;

/// Value of a time stamp while nothing is under way.
const IDLE: u64 = u64::MAX;

/// The file of the device's canary, ready to be written.
#[derive(Debug)]
pub struct Canary {
    file: File,
    path: PathBuf,
}

impl Canary {
    /// Creates the file in `dir` and writes all of it. The file loses its name at once, so no file stays behind, even
    /// if the process is killed.
    ///
    /// # Errors
    /// [`Error::File`]: the file could not be created, written or synced.
    pub fn new(dir: &Path, access: Access) -> Result<Canary, Error> {
        let path = dir.join(FILE_NAME);
        let failed = |deed| {
            let path = path.clone();
            move |source| Error::File { deed, path, source }
        };
        let file = open(&path, access).map_err(failed("create"))?;
        std::fs::remove_file(&path).map_err(failed("remove"))?;
        let buffer = buffer();
        for number in 0..WRITES_PER_LAP {
            file.write_all_at(&buffer, number * WRITE_LEN as u64).map_err(failed("write"))?;
        }
        file.sync_all().map_err(failed("sync"))?;
        Ok(Canary { file, path })
    }

    /// Writes block `number` and makes it durable.
    fn pair(&self, buffer: &mut [u8], number: u64) -> io::Result<()> {
        // Other bytes each time: some devices skip a write of identical data.
        buffer[..8].copy_from_slice(&number.to_le_bytes());
        self.file.write_all_at(buffer, number % WRITES_PER_LAP * WRITE_LEN as u64)?;
        Ok(fdatasync(&self.file)?)
    }
}

fn buffer() -> AVec<u8, ConstAlign<WRITE_LEN>> {
    AVec::from_iter(WRITE_LEN, std::iter::repeat_n(0x5A, WRITE_LEN))
}

/// Opens the file, through the page cache if the file system has no direct I/O.
fn open(path: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    if access == Access::Cached {
        return options.open(path);
    }
    let direct = OFlags::DIRECT.bits().cast_signed();
    match options.clone().custom_flags(direct).open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => options.open(path),
        opened => opened,
    }
}

/// The worst beats since the last call, with the ones under way: for a second's point and an interval's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The longest pair of write and sync, ended or still under way, in ns.
    pub device_ns: u64,
    /// The largest delay of a wake, ended or still overdue, in ns.
    pub cpu_late_ns: u64,
}

impl Seen {
    /// The worse of two, figure by figure.
    #[must_use]
    pub fn worse(self, other: Seen) -> Seen {
        Seen { device_ns: self.device_ns.max(other.device_ns), cpu_late_ns: self.cpu_late_ns.max(other.cpu_late_ns) }
    }
}

/// The canaries of one run, shared by their threads and the collector.
pub(crate) struct Watch<'a> {
    canary: &'a Canary,
    is_over: AtomicBool,
    device: Live,
    cpu: Live,
    log: Mutex<MachineLog>,
}

/// The state that a canary's thread writes and the collector reads. All accesses are relaxed: each number is an
/// independent figure.
#[derive(Debug)]
struct Live {
    /// The longest beat since the last `take`, in ns.
    worst_ns: AtomicU64,
    /// Begin, or due time, of the beat under way, in ns since the start of the run, or [`IDLE`].
    since_ns: AtomicU64,
}

impl Live {
    fn new() -> Live {
        Live { worst_ns: AtomicU64::new(0), since_ns: AtomicU64::new(IDLE) }
    }

    fn begin(&self, now_ns: u64) {
        self.since_ns.store(now_ns, Ordering::Relaxed);
    }

    fn end(&self, took_ns: u64) {
        self.worst_ns.fetch_max(took_ns, Ordering::Relaxed);
        self.since_ns.store(IDLE, Ordering::Relaxed);
    }

    /// Returns the longest beat since the last call, the one under way included, in ns.
    fn take(&self, now_ns: u64) -> u64 {
        let under_way_ns = now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed));
        self.worst_ns.swap(0, Ordering::Relaxed).max(under_way_ns)
    }
}

impl<'a> Watch<'a> {
    pub(crate) fn new(canary: &'a Canary) -> Watch<'a> {
        Watch {
            canary,
            is_over: AtomicBool::new(false),
            device: Live::new(),
            cpu: Live::new(),
            log: Mutex::new(MachineLog::default()),
        }
    }

    /// Returns the worst beats since the last call.
    pub(crate) fn take_seen(&self, now_ns: u64) -> Seen {
        Seen { device_ns: self.device.take(now_ns), cpu_late_ns: self.cpu.take(now_ns) }
    }

    /// Tells the threads to end; each notices after its current sleep or write.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed); // Relaxed: an independent flag
    }

    /// Notes why a canary does not watch.
    pub(crate) fn fail(&self, why: String) {
        self.log.lock().failure = Some(why);
    }

    /// The log; the canaries' threads have ended.
    pub(crate) fn into_log(self) -> MachineLog {
        self.log.into_inner()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The thread of the device's canary; `outstanding` returns the bytes that the engine has outstanding. After a
    /// failed write the thread notes the cause in the log and ends.
    pub(crate) fn watch_device(&self, clock: RunClock, outstanding: impl Fn() -> u64) {
        let (mut buffer, mut beats) = (buffer(), Beats::default());
        for number in 0_u64.. {
            if self.is_over() {
                break;
            }
            let outstanding_bytes = outstanding();
            let began_ns = clock.now_ns();
            self.device.begin(began_ns);
            let done = self.canary.pair(&mut buffer, number);
            let ended_ns = clock.now_ns();
            self.device.end(ended_ns - began_ns);
            if let Err(cause) = done {
                let text = format!("the device's canary cannot write '{}': {cause}", self.canary.path.display());
                self.fail(text);
                break;
            }
            beats.add(began_ns, ended_ns, outstanding_bytes);
            self.nap(DEVICE_PERIOD.saturating_sub(Duration::from_nanos(ended_ns - began_ns)));
        }
        self.log.lock().device = beats;
    }

    /// The thread of the CPU's canary.
    pub(crate) fn watch_cpu(&self, clock: RunClock) {
        // If the system refuses this, a wake is some 50 us late by default, far below the length of a stop.
        let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        let period_ns = u64::try_from(CPU_PERIOD.as_nanos()).unwrap_or(u64::MAX);
        let mut beats = Beats::default();
        while !self.is_over() {
            let due_ns = clock.now_ns() + period_ns;
            self.cpu.begin(due_ns);
            thread::sleep(CPU_PERIOD);
            let woke_ns = clock.now_ns().max(due_ns);
            self.cpu.end(woke_ns - due_ns);
            beats.add(due_ns, woke_ns, 0);
        }
        self.log.lock().cpu = beats;
    }

    /// The thread that looks how much CPU time others take. It ends at once if the system does not show it: then
    /// nothing counts as taken.
    pub(crate) fn watch_taken(&self, clock: RunClock) {
        let Some(cpus) = taken::own_cpus() else { return };
        let mut seen = Taken::default();
        let mut last: Option<Look> = None;
        while let Some(now) = Look::read(clock.now_ns(), &cpus) {
            if let Some(before) = last.replace(now.clone()) {
                seen.add(&before, &now, cpus.count());
            }
            if self.is_over() {
                break;
            }
            self.nap(TAKEN_PERIOD);
        }
        self.log.lock().taken = seen;
    }

    /// Sleeps for `time`, or until shortly after the run is over.
    fn nap(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() && !self.is_over() {
            let part = left.min(CPU_PERIOD);
            thread::sleep(part);
            left -= part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_the_canary_has_no_name_and_takes_its_pairs() {
        let dir = tempfile::tempdir().unwrap();
        for access in [Access::Direct, Access::Cached] {
            let canary = Canary::new(dir.path(), access).unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            let mut buffer = buffer();
            for number in [0, 1, WRITES_PER_LAP, WRITES_PER_LAP + 1] {
                canary.pair(&mut buffer, number).unwrap();
            }
            assert_eq!(canary.file.metadata().unwrap().len(), WRITES_PER_LAP * WRITE_LEN as u64, "it never grows");
        }
        let error = Canary::new(&dir.path().join("none"), Access::Cached).unwrap_err();
        assert!(error.to_string().contains("none/millpond-canary.tmp"), "{error}");
    }

    #[test]
    fn look_tells_what_ended_once_and_what_is_under_way_each_time() {
        let live = Live::new();
        assert_eq!(live.take(1_000), 0);
        live.begin(1_000);
        live.end(40);
        live.begin(2_000);
        assert_eq!(live.take(2_010), 40, "what ended is longer");
        assert_eq!(live.take(2_500), 500, "still under way");
        live.end(600);
        assert_eq!((live.take(3_000), live.take(3_000)), (600, 0));
        // A wake that is not yet due is not late.
        live.begin(5_000);
        assert_eq!(live.take(4_000), 0);
    }
}
