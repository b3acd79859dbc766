//! Group commit: all of `redo/` except the dirty counts, with `base/handoff.rs`, under shuttle.
//!
//! Shuttle, because a commit is dozens of steps over one mutex, and none of the results here depends on memory order.
//!
//! | shown | by |
//! |---|---|
//! | a commit acknowledged as durable is on the device, synced | [`Disk::assert_durable`] |
//! | a commit acknowledged as written is on the device | [`Disk::assert_written`] |
//! | no waiter is forgotten, whichever thread leads, fails or panics | shuttle reports threads that cannot go on |
//! | each notice is given once, and tells the truth | test `each_notice_is_given_once_whatever_becomes_of_the_log` |
//! | one thread leads at a time | [`Disk`] refuses a write or a sync beside another |
//! | a waiter for room in the buffer gets it, even if no thread waits for the log | shuttle, again |
//! | nothing is written after `close_wait` | [`Disk`] refuses it |
//! | groups are ordered as they stand in the log (COMMIT-1) | [`Model::append`] |
//!
//! Bugs that were planted, and found (`make planted`): `ack_before_sync`, `next_leader_forgotten`,
//! `waiters_forgotten_on_failure`, `copy_rings_no_bell`, `notified_from_now_on`, `panic_told_too_late`,
//! `ordered_after_the_mutex`.

#[path = "../../../millpond/src/planted.rs"]
#[macro_use]
mod planted;

#[path = "../stand_ins/base.rs"]
mod base;
#[path = "../stand_ins/explore.rs"]
mod explore;
mod redo;

/// Devices.
mod io {
    pub(crate) use super::device;
}
#[path = "../../../millpond/src/io/device.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is public in the engine")]
mod device;

use std::io::{Error as IoError, Result as IoResult};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use base::aligned::{BLOCK, to_u64, to_usize};
use base::error::Error;
use base::ids::Lsn;
use base::waits::Waits;
use device::{Device, Files};
use explore::explore;
use redo::files::{Geometry, LogFiles, Owner, Ring};
use redo::group::{BEHIND_MAX, GROUP_FRAME_LEN, GROUP_TRAILER_LEN, GroupKind};
use redo::log::{Log, LogLimits, LogPolicies, Resume};
use redo::log_spin::{LogSpin, SpinSettings};
use redo::pipeline::PipelineSettings;
use redo::recent_closed::LogRecentClosed;
use redo::waiters::Stage;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

/// The log of the model stays in its first file.
const CAPACITY: u64 = 256 << 10;

/// A fault of the device, and at which sync.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Fails(usize),
    Panics(usize),
}

#[derive(Default)]
struct Bytes {
    written: Vec<u8>,
    synced: Vec<u8>,
    syncs: usize,
    trouble: Option<Trouble>,
    writing: bool,
    syncing: bool,
    /// A sync may run beside a write: the log has a thread for each.
    threads: bool,
    closed: bool,
}

/// The first log file. Not a part of the model: the test looks at it between the model's steps.
struct Disk {
    bytes: Mutex<Bytes>,
}

impl Disk {
    fn begin(&self, is_sync: bool) {
        let mut bytes = self.bytes.lock().expect("no thread panicked with it");
        let busy = if !bytes.threads {
            bytes.writing || bytes.syncing
        } else if is_sync {
            bytes.syncing
        } else {
            bytes.writing
        };
        assert!(!busy, "REDO-3: two threads write the log at once");
        assert!(!bytes.closed, "the log is written after it was closed");
        *(if is_sync { &mut bytes.syncing } else { &mut bytes.writing }) = true;
        drop(bytes);
        thread::yield_now();
    }

    /// Whether the group that ends at `end` is on the device, synced.
    fn is_durable(&self, end: Lsn, payload: &[u8]) -> bool {
        let bytes = self.bytes.lock().expect("no thread panicked with it");
        bytes.synced.get(place_of(end, payload)) == Some(payload)
    }

    fn assert_durable(&self, end: Lsn, payload: &[u8]) {
        assert!(self.is_durable(end, payload), "acknowledged, and not durable");
    }

    /// Asserts that the group that ends at `end` is written to the device.
    fn assert_written(&self, end: Lsn, payload: &[u8]) {
        let bytes = self.bytes.lock().expect("no thread panicked with it");
        assert_eq!(bytes.written.get(place_of(end, payload)), Some(payload), "acknowledged, and not written");
    }

    fn syncs(&self) -> usize {
        self.bytes.lock().expect("no thread panicked with it").syncs
    }
}

/// Place in the file of the payload of the group that ends at `end`.
fn place_of(end: Lsn, payload: &[u8]) -> std::ops::Range<usize> {
    let at = BLOCK + to_usize(end.0) - GROUP_TRAILER_LEN - payload.len();
    at..at + payload.len()
}

/// A log file.
struct File {
    name: String,
    /// `None`: the file exists, and is all zeroes.
    disk: Option<Arc<Disk>>,
}

impl Device for File {
    fn read_at(&self, buf: &mut [u8], _offset: u64) -> IoResult<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> IoResult<()> {
        let Some(disk) = &self.disk else { return Ok(()) };
        disk.begin(false);
        let (at, mut bytes) = (to_usize(offset), disk.bytes.lock().expect("no thread panicked with it"));
        let len = bytes.written.len().max(at + buf.len());
        bytes.written.resize(len, 0);
        bytes.written[at..at + buf.len()].copy_from_slice(buf);
        bytes.writing = false;
        Ok(())
    }

    fn sync(&self) -> IoResult<()> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let covered = disk.bytes.lock().expect("no thread panicked with it").written.clone();
        disk.begin(true);
        let mut bytes = disk.bytes.lock().expect("no thread panicked with it");
        bytes.syncing = false;
        bytes.syncs += 1;
        if bytes.trouble == Some(Trouble::Fails(bytes.syncs)) {
            return Err(IoError::other("worn out"));
        }
        if bytes.trouble == Some(Trouble::Panics(bytes.syncs)) {
            drop(bytes);
            std::panic::resume_unwind(Box::new("the device panicked"));
        }
        bytes.synced = covered;
        Ok(())
    }

    fn len(&self) -> IoResult<u64> {
        Ok(CAPACITY)
    }

    fn grow(&self, _len: u64) -> IoResult<()> {
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }
}

struct Directory(Arc<Disk>);

impl Files for Directory {
    fn create(&self, name: &str) -> IoResult<Arc<dyn Device>> {
        let disk = (name == redo::files::file_name(0, 0)).then(|| Arc::clone(&self.0));
        Ok(Arc::new(File { name: name.to_owned(), disk }))
    }

    fn open(&self, name: &str) -> IoResult<Arc<dyn Device>> {
        self.create(name)
    }

    fn rename(&self, _from: &str, _to: &str) -> IoResult<()> {
        Ok(())
    }

    fn remove(&self, _name: &str) -> IoResult<()> {
        Ok(())
    }

    fn list(&self) -> IoResult<Vec<String>> {
        Ok(Vec::new())
    }

    fn sync_names(&self) -> IoResult<()> {
        Ok(())
    }

    fn place(&self) -> String {
        "the model".to_owned()
    }
}

struct Model {
    log: Log,
    disk: Arc<Disk>,
    /// The end of the last group whose `order` was called. Not a part of the model.
    last_ordered: Mutex<Lsn>,
}

impl Model {
    fn new(trouble: Option<Trouble>) -> Arc<Model> {
        Model::with(trouble, LogPolicies::default())
    }

    fn with(trouble: Option<Trouble>, policies: LogPolicies) -> Arc<Model> {
        Model::within(BEHIND_MAX, trouble, policies)
    }

    /// A model whose writers may append at most `behind` bytes ahead of the durable log.
    fn within(behind: u64, trouble: Option<Trouble>, policies: LogPolicies) -> Arc<Model> {
        let disk = Arc::new(Disk { bytes: Mutex::default() });
        let owner = Owner { uuid: [1, 2], page_size: 4096, features: 0 };
        let ring =
            Ring::create(&Directory(Arc::clone(&disk)), owner, Geometry::of(0, CAPACITY)).expect("nothing fails yet");
        {
            let mut bytes = disk.bytes.lock().expect("no thread panicked with it");
            (bytes.syncs, bytes.trouble) = (0, trouble);
        }
        let resume = Resume { checkpoint: Lsn::ZERO, epochs: vec![(Lsn::ZERO, 7)], end: Lsn::ZERO };
        // The smallest possible buffer: four blocks.
        let limits = LogLimits { reserve: 4096, epochs: 0, smallest: 4096, behind };
        let files = LogFiles::new(ring, None);
        let log = Log::resume(files, resume, limits, policies, Arc::default(), Arc::default(), Arc::new(Waits));
        Arc::new(Model { log: log.expect("nothing fails yet"), disk, last_ordered: Mutex::new(Lsn::ZERO) })
    }

    /// Does `work` beside the thread that flushes the log for others.
    fn beside_who_writes_for_others(self: &Arc<Self>, work: impl FnOnce()) {
        let ended = Arc::new(AtomicBool::new(false));
        let flusher = {
            let (model, ended) = (Arc::clone(self), Arc::clone(&ended));
            thread::spawn(move || model.log.flush_for_others(|| ended.load(Ordering::SeqCst)))
        };
        work();
        ended.store(true, Ordering::SeqCst);
        self.log.flusher_bell.ring();
        flusher.join().expect("no panic").expect("nothing fails");
    }

    /// Appends a group. Returns its end and its payload.
    fn append(&self, client: u8, bytes: usize) -> Result<(Lsn, Vec<u8>), Error> {
        let payload = vec![client; bytes];
        let credit = self.log.reserve(bytes, 0)?;
        let mut ordered = None;
        let order = |end| {
            // COMMIT-1: the order of these calls is that of the groups in the log.
            let before = std::mem::replace(&mut *self.last_ordered.lock().expect("no thread panicked with it"), end);
            assert!(before < end, "{end} came after {before}");
            ordered = Some(end);
        };
        let end = self.log.append_latched(credit, GroupKind::Pages, &payload, order, |_| (), |_| ())?;
        assert_eq!(ordered, Some(end));
        Ok((end, payload))
    }

    /// A commit: durable when it returns.
    fn commit(&self, client: u8, bytes: usize) -> Result<(), Error> {
        let (end, payload) = self.append(client, bytes)?;
        self.log.flush_wait(end)?;
        self.disk.assert_durable(end, &payload);
        Ok(())
    }

    /// A commit that is written when it returns.
    fn write(&self, client: u8, bytes: usize) -> Result<(), Error> {
        let (end, payload) = self.append(client, bytes)?;
        self.log.write_wait(end)?;
        self.disk.assert_written(end, &payload);
        Ok(())
    }

    /// A commit; false if it failed, as it may when the device fails.
    fn try_commit(&self, client: u8, bytes: usize) -> bool {
        match catch_unwind(AssertUnwindSafe(|| self.commit(client, bytes))) {
            Ok(committed) => committed.is_ok(),
            Err(panic) if panic.downcast_ref::<&str>() == Some(&"the device panicked") => false,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Threads that each commit `commits` groups of `bytes` bytes. Returns the number of failed commits.
fn commit_all(model: &Arc<Model>, threads: u8, commits: usize, bytes: usize) -> usize {
    let committer = |client| {
        let model = Arc::clone(model);
        thread::spawn(move || (0..commits).filter(|_| !model.try_commit(client, bytes)).count())
    };
    let committers: Vec<_> = (1..=threads).map(committer).collect();
    committers.into_iter().map(|committer| committer.join().expect("no panic")).sum()
}

#[test]
fn commits_are_durable_when_they_are_acknowledged() {
    explore(3_000, || {
        let model = Model::new(None);
        assert_eq!(commit_all(&model, 4, 2, 100), 0);
        let positions = model.log.positions();
        assert_eq!((positions.durable, positions.next), (positions.next, Lsn(8 * to_u64(100 + GROUP_FRAME_LEN))));
    });
}

#[test]
fn waiter_for_written_log_syncs_nothing_and_helps_others() {
    explore(2_000, || {
        let model = Model::new(None);
        let writers: Vec<_> = (1..=2)
            .map(|client| {
                let model = Arc::clone(&model);
                thread::spawn(move || (0..2).for_each(|_| model.write(client, 700).expect("nothing fails")))
            })
            .collect();
        let committer = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.commit(3, 300).expect("nothing fails"))
        };
        writers.into_iter().chain([committer]).for_each(|thread| thread.join().expect("no panic"));
        let syncs = model.disk.syncs();
        model.write(4, 300).expect("nothing fails");
        assert_eq!(model.disk.syncs(), syncs, "no commit waits for a sync");
        model.log.flush_all().expect("nothing fails");
        assert_eq!(model.disk.syncs(), syncs + 1);
    });
}

/// Groups of a fourth of the buffer: a thread that finds the buffer short writes it, or gets room from a thread that
/// does.
#[test]
fn short_buffer_is_written_by_the_thread_that_needs_it() {
    explore(3_000, || {
        let model = Model::new(None);
        assert_eq!(commit_all(&model, 4, 2, 4000), 0);
    });
}

/// No thread waits for these groups to be durable. A thread that needs room in the buffer gets it from the thread that
/// flushes for others, or writes the log itself.
#[test]
fn commit_without_a_wait_gets_room_from_the_log_thread() {
    explore(3_000, || {
        let model = Model::new(None);
        let append = |client: u8| {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                for _ in 0..3 {
                    let credit = model.log.reserve(4000, 0).expect("nothing fails");
                    model.log.append(credit, GroupKind::Pages, &[client; 4000], |_| ()).expect("nothing fails");
                }
            })
        };
        model.beside_who_writes_for_others(|| {
            let appenders: Vec<_> = (1..=3).map(append).collect();
            assert!(model.try_commit(9, 100));
            appenders.into_iter().for_each(|appender| appender.join().expect("no panic"));
        });
    });
}

#[test]
fn all_are_told_when_a_sync_fails() {
    explore(3_000, || {
        let model = Model::new(Some(Trouble::Fails(2)));
        let failed = commit_all(&model, 4, 2, 100);
        // The first sync covers at most one commit of each thread.
        assert!((4..=8).contains(&failed) || model.disk.bytes.lock().expect("whole").syncs < 2);
        assert!(failed == 0 || model.log.health().is_err());
    });
}

/// Each notice that was accepted is given once, whether the log goes on, fails or panics, and `Ok` only if the commit
/// is durable. Beside it another thread commits.
#[test]
fn each_notice_is_given_once_whatever_becomes_of_the_log() {
    for trouble in [None, Some(Trouble::Fails(1)), Some(Trouble::Fails(2)), Some(Trouble::Panics(2))] {
        explore(1_000, move || {
            let model = Model::new(trouble);
            let ended = Arc::new(AtomicBool::new(false));
            let flusher = {
                let (model, ended) = (Arc::clone(&model), Arc::clone(&ended));
                thread::spawn(move || {
                    let work = || model.log.flush_for_others(|| ended.load(Ordering::SeqCst));
                    // As the engine's threads do.
                    if !matches!(catch_unwind(AssertUnwindSafe(work)), Ok(Ok(()))) {
                        model.log.stop(&Error::Bug("the thread ended".into()));
                    }
                })
            };
            let given = Arc::new(Mutex::new(Vec::new()));
            let clients: Vec<_> = (1..=2)
                .map(|client: u8| {
                    let (model, given) = (Arc::clone(&model), Arc::clone(&given));
                    thread::spawn(move || {
                        let mut accepted = Vec::new();
                        for number in 0..2 {
                            let Ok((end, payload)) = model.append(client, 100) else { break };
                            let (of, given) = (Arc::clone(&model), Arc::clone(&given));
                            let notice = move |outcome: Result<(), Error>| {
                                // A panic would end nothing here.
                                let is_true = outcome.is_err() || of.disk.is_durable(end, &payload);
                                given.lock().expect("whole").push((client, number, is_true));
                            };
                            if model.log.notify(end, Box::new(notice)).is_ok() {
                                accepted.push((client, number, true));
                            }
                        }
                        accepted
                    })
                })
                .collect();
            let committer = {
                let model = Arc::clone(&model);
                thread::spawn(move || model.try_commit(3, 100))
            };
            let mut accepted: Vec<_> =
                clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
            committer.join().expect("no panic");
            ended.store(true, Ordering::SeqCst);
            model.log.flusher_bell.ring();
            flusher.join().expect("no panic");
            // As a close does.
            model.log.end_notices();
            let mut given = std::mem::take(&mut *given.lock().expect("whole"));
            given.sort_unstable();
            accepted.sort_unstable();
            assert_eq!(given, accepted);
        });
    }
}

#[test]
fn all_are_told_when_the_leader_panics() {
    explore(3_000, || {
        let model = Model::new(Some(Trouble::Panics(2)));
        let failed = commit_all(&model, 4, 2, 4000);
        assert!(failed == 0 || model.log.health().is_err());
    });
}

/// REDO-11: a failure elsewhere stops the log. Groups that have their place in it become durable all the same.
#[test]
fn groups_with_a_place_become_durable_behind_a_stop() {
    explore(2_000, || {
        let model = Model::new(None);
        let stopper = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.log.stop(&Error::Bug("stopped by the model".into())))
        };
        let append = |client: u8| {
            let model = Arc::clone(&model);
            thread::spawn(move || (0..2).filter_map(|_| model.append(client, 700).ok()).collect::<Vec<_>>())
        };
        let committer = {
            let model = Arc::clone(&model);
            // Refused before it has a place, or durable.
            thread::spawn(move || {
                model.append(9, 100).map(|(end, _)| model.log.flush_wait(end).expect("nothing fails"))
            })
        };
        let appenders: Vec<_> = (1..=2).map(append).collect();
        let appended: Vec<_> = appenders.into_iter().flat_map(|of| of.join().expect("no panic")).collect();
        stopper.join().expect("no panic");
        let _ = committer.join().expect("no panic");
        assert!(model.append(3, 100).is_err(), "it takes no more groups");
        model.log.flush_tail().expect("nothing fails");
        appended.iter().for_each(|(end, payload)| model.disk.assert_durable(*end, payload));
        assert_eq!(model.log.positions().durable, model.log.positions().next);
    });
}

/// REDO-13: no commit waits for a sync, and the flusher makes none unasked. An appender waits for a sync before more
/// bytes are not durable than a group can record.
#[test]
fn writers_stay_within_what_a_group_can_say_of_durability() {
    const BEHIND: u64 = 9_000;
    explore(300, || {
        with_threads_within(BEHIND, false, None, |model| {
            let append = |client: u8| {
                let model = Arc::clone(model);
                thread::spawn(move || {
                    for _ in 0..3 {
                        model.append(client, 4000).expect("nothing fails");
                        let positions = model.log.positions();
                        assert!(positions.next.since(positions.durable) <= BEHIND, "REDO-13: {positions:?}");
                    }
                })
            };
            let appenders: Vec<_> = (1..=2).map(append).collect();
            appenders.into_iter().for_each(|appender| appender.join().expect("no panic"));
            assert!(model.disk.bytes.lock().expect("whole").syncs > 0);
        });
    });
}

#[test]
fn nothing_is_written_once_the_log_is_closed() {
    explore(3_000, || {
        let model = Model::new(None);
        let closer = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.log.close_wait();
                model.disk.bytes.lock().expect("whole").closed = true;
            })
        };
        commit_all(&model, 3, 2, 100);
        closer.join().expect("no panic");
    });
}

/// The work of a pipeline thread until the end.
type Work = fn(&Log, &dyn Fn() -> bool) -> Result<(), Error>;

/// The pipeline, with a window, and its threads. No clock ever wakes one of them.
fn with_threads(trouble: Option<Trouble>, work: impl FnOnce(&Arc<Model>)) {
    with_threads_that(true, trouble, work);
}

fn with_threads_that(sync_each_write: bool, trouble: Option<Trouble>, work: impl FnOnce(&Arc<Model>)) {
    with_threads_within(BEHIND_MAX, sync_each_write, trouble, work);
}

fn with_threads_within(behind: u64, sync_each_write: bool, trouble: Option<Trouble>, work: impl FnOnce(&Arc<Model>)) {
    let spin = SpinSettings { how: LogSpin::Never, cpu_abs_lwm: 0, cpu_pct_hwm: 0 };
    let policies = LogPolicies {
        recent_closed: Some((LogRecentClosed::Wake, 4096)),
        pipeline: Some(PipelineSettings { sync_each_write, spin }),
    };
    let model = Model::within(behind, trouble, policies);
    model.disk.bytes.lock().expect("whole").threads = true;
    let ended = Arc::new(AtomicBool::new(false));
    let works: [Work; 4] = [
        |log, is_ending| pipeline_of(log).write_all(log, is_ending),
        |log, is_ending| pipeline_of(log).flush_all(log, is_ending),
        |log, is_ending| pipeline_of(log).notify_all(log, Stage::Written, is_ending),
        |log, is_ending| pipeline_of(log).notify_all(log, Stage::Flushed, is_ending),
    ];
    pipeline_of(&model.log).begin();
    let start = |work: Work| {
        let (model, ended) = (Arc::clone(&model), Arc::clone(&ended));
        thread::spawn(move || {
            let work = || work(&model.log, &|| ended.load(Ordering::SeqCst));
            // As the engine does for its threads.
            let worked = catch_unwind(AssertUnwindSafe(work));
            if let Err(error) = worked.unwrap_or_else(|_| Err(Error::Bug("it panicked".into()))) {
                model.log.stop(&error);
            }
        })
    };
    let threads: Vec<_> = works.into_iter().map(start).collect();
    work(&model);
    ended.store(true, Ordering::SeqCst);
    pipeline_of(&model.log).ring_all();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn pipeline_of(log: &Log) -> &redo::pipeline::Pipeline {
    log.pipeline.as_ref().expect("the model has one")
}

#[test]
fn commits_behind_threads_are_durable_without_the_clock() {
    explore(300, || with_threads(None, |model| assert_eq!(commit_all(model, 3, 2, 100), 0)));
}

#[test]
fn a_short_buffer_is_written_by_the_writer() {
    explore(300, || with_threads(None, |model| assert_eq!(commit_all(model, 3, 2, 4000), 0)));
}

#[test]
fn all_behind_threads_are_told_when_a_sync_fails() {
    explore(30, || {
        with_threads(Some(Trouble::Fails(2)), |model| {
            let failed = commit_all(model, 3, 2, 100);
            assert!(failed == 0 || model.log.health().is_err());
        });
    });
}

/// An appender that does not wait closes the gap that stops the writer. It must ring, for no other thread will.
#[test]
fn waiter_behind_the_copy_of_a_nonwaiter_needs_no_clock() {
    explore(1_500, || {
        with_threads(None, |model| {
            let loose = {
                let model = Arc::clone(model);
                thread::spawn(move || {
                    let credit = model.log.reserve(100, 0).expect("nothing fails");
                    model.log.append(credit, GroupKind::Pages, &[9; 100], |_| ()).expect("nothing fails");
                })
            };
            assert_eq!(commit_all(model, 1, 1, 100), 0);
            loose.join().expect("no panic");
        });
    });
}

/// If no thread waits for a sync, making room in the buffer needs none: the log is only written.
#[test]
fn thread_with_a_short_buffer_has_it_written_and_not_synced() {
    explore(300, || {
        with_threads_that(false, None, |model| {
            let append = |client: u8| {
                let model = Arc::clone(model);
                thread::spawn(move || {
                    for _ in 0..3 {
                        let credit = model.log.reserve(4000, 0).expect("nothing fails");
                        model.log.append(credit, GroupKind::Pages, &[client; 4000], |_| ()).expect("nothing fails");
                    }
                })
            };
            model.beside_who_writes_for_others(|| {
                let appenders: Vec<_> = (1..=2).map(append).collect();
                appenders.into_iter().for_each(|appender| appender.join().expect("no panic"));
            });
            assert_eq!(model.disk.bytes.lock().expect("whole").syncs, 0);
        });
    });
}

/// Waiters would do the work of a thread that is gone. They must not if its progress is unknown.
#[test]
fn no_thread_goes_on_with_the_work_of_one_that_panicked() {
    explore(300, || {
        with_threads(Some(Trouble::Panics(2)), |model| {
            let failed = commit_all(model, 3, 2, 100);
            let syncs = model.disk.bytes.lock().expect("whole").syncs;
            assert!(syncs <= 2, "{syncs} syncs, of which the second panicked");
            assert!(failed == 0 || model.log.health().is_err());
        });
    });
}

/// A commit is synced before the thread that wakes its waiters exists.
#[test]
fn waiter_before_the_start_of_its_notifier_is_told() {
    explore(600, || {
        let spin = SpinSettings { how: LogSpin::Never, cpu_abs_lwm: 0, cpu_pct_hwm: 0 };
        let settings = PipelineSettings { sync_each_write: true, spin };
        let model = Model::with(None, LogPolicies { recent_closed: None, pipeline: Some(settings) });
        model.disk.bytes.lock().expect("whole").threads = true;
        pipeline_of(&model.log).begin();
        let ended = Arc::new(AtomicBool::new(false));
        let start = |work: Work| {
            let (model, ended) = (Arc::clone(&model), Arc::clone(&ended));
            thread::spawn(move || work(&model.log, &|| ended.load(Ordering::SeqCst)))
        };
        let works: [Work; 3] = [
            |log, is_ending| pipeline_of(log).write_all(log, is_ending),
            |log, is_ending| pipeline_of(log).flush_all(log, is_ending),
            |log, is_ending| pipeline_of(log).notify_all(log, Stage::Flushed, is_ending),
        ];
        let [writer, flusher] = [start(works[0]), start(works[1])];
        let committer = {
            let model = Arc::clone(&model);
            thread::spawn(move || commit_all(&model, 1, 1, 100))
        };
        while model.log.positions().durable == Lsn::ZERO {
            thread::yield_now();
        }
        let teller = start(works[2]);
        assert_eq!(committer.join().expect("no panic"), 0);
        ended.store(true, Ordering::SeqCst);
        pipeline_of(&model.log).ring_all();
        [writer, flusher, teller].into_iter().for_each(|of| of.join().expect("no panic").expect("nothing fails"));
    });
}

/// If a thread cannot be started, the others are let go: they go on until their next check, and waiters do the work.
#[test]
fn waiter_does_the_work_of_threads_that_did_not_all_start() {
    explore(300, || {
        let spin = SpinSettings { how: LogSpin::Never, cpu_abs_lwm: 0, cpu_pct_hwm: 0 };
        let settings = PipelineSettings { sync_each_write: true, spin };
        let model = Model::with(None, LogPolicies { recent_closed: None, pipeline: Some(settings) });
        model.disk.bytes.lock().expect("whole").threads = true;
        pipeline_of(&model.log).begin();
        let ended = Arc::new(AtomicBool::new(false));
        let writer = {
            let (model, ended) = (Arc::clone(&model), Arc::clone(&ended));
            thread::spawn(move || pipeline_of(&model.log).write_all(&model.log, &|| ended.load(Ordering::SeqCst)))
        };
        let ender = {
            let model = Arc::clone(&model);
            thread::spawn(move || pipeline_of(&model.log).end())
        };
        assert_eq!(commit_all(&model, 2, 1, 100), 0);
        ender.join().expect("no panic");
        ended.store(true, Ordering::SeqCst);
        pipeline_of(&model.log).ring_all();
        writer.join().expect("no panic").expect("nothing fails");
    });
}
