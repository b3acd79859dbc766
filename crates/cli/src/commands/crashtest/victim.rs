//! The child that is killed: it puts load on the database with all its threads, or only opens it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use millpond::{ByteSize, Db, Error, Field, Table, TableDefinition, Tree, WorkOptions};

use super::backups;
use super::operations::{Stopped, Trees, Worker};
use super::protocol::{Frame, TreeId};
use super::values::{K, SERIAL, random};
use super::{CrashtestArgs, options};
use crate::exit::{Answer, Failure, describe, no_thread};
use crate::output::complain;

/// Exit code of a victim that cannot start a thread: that says nothing about the database.
pub(super) const NO_THREAD: i32 = 3;

/// A victim that the parent does not kill ends by itself after this time.
const LIFE_MAX: Duration = Duration::from_secs(120);

/// Bytes of a backup a second: fast, so that some are whole before the kill.
const BACKUP_RATE: ByteSize = ByteSize::mib(256);

/// Arguments of the child.
#[derive(Debug, Args)]
pub(crate) struct VictimArgs {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    threads: u8,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    round: u64,
    #[arg(long)]
    profile: String,
    #[arg(long)]
    cached: bool,
    #[arg(long)]
    transactions: bool,
    /// The directory to make backups in.
    #[arg(long)]
    backups: Option<PathBuf>,
    #[arg(long)]
    deed: Deed,
}

/// The child's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Deed {
    /// Opens the database and puts load on it.
    Load,
    /// Opens and closes the database.
    Recover,
}

/// Runs the child.
pub(crate) fn run(args: &VictimArgs) -> Result<Answer, Failure> {
    let options = options(&args.profile, args.cached, args.round).map_err(Failure::message)?;
    let db = Db::open(&args.dir, options).or_else(|error| {
        let failure = Failure::from(error);
        if lacks_threads(&failure) { give_up(&failure) } else { Err(failure) }
    })?;
    if args.deed == Deed::Recover {
        db.close()?;
        return Ok(Answer::Yes);
    }
    let trees = Trees { single: single(&db)?, rows: rows(&db)?, db };
    // Not `stdout()`, which buffers by line.
    let pipe = io::stdout().as_fd().try_clone_to_owned().map(File::from).map_err(Failure::of_output)?;
    let ends_at = Instant::now() + LIFE_MAX;
    let stopped = thread::scope(|scope| {
        if let Some(dir) = &args.backups {
            let (db, pipe) = (&trees.db, &pipe);
            let work = move || back_up(db, dir, ends_at, pipe);
            let started = thread::Builder::new().name("victim-backups".to_owned()).spawn_scoped(scope, work);
            started.unwrap_or_else(|cause| give_up(&no_thread("a thread of the victim", &cause)));
        }
        let workers: Vec<_> = (0..args.threads)
            .map(|number| {
                let (trees, pipe) = (trees.clone(), &pipe);
                let work = move || {
                    let random = random(args.seed, args.round, u64::from(number));
                    let mut worker = Worker::new(number, random, trees, args.transactions, pipe)?;
                    while Instant::now() < ends_at {
                        match worker.step() {
                            Ok(()) => {}
                            // Ends the whole process at once: no other thread may go on after a fault.
                            Err(Stopped::Fault) => std::process::exit(1),
                            Err(Stopped::Pipe(cause)) => return Err(Failure::of_output(cause)),
                        }
                    }
                    Ok(())
                };
                let name = format!("victim-{number}");
                thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, work)
                    .unwrap_or_else(|cause| give_up(&no_thread("a thread of the victim", &cause)))
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| Failure::message("a thread of the victim panicked; its message is above"))?
        })
    });
    stopped.map(|()| Answer::Yes)
}

/// Makes one backup after another, and keeps the last whole one. Ends the process after a fault.
fn back_up(db: &Db, dir: &Path, ends_at: Instant, pipe: &File) -> io::Result<()> {
    let to = |number: u64| dir.join(number.to_string());
    let (mut number, mut whole) = (0, None);
    while Instant::now() < ends_at {
        Frame::Begin { thread: backups::THREAD, number, changes: Vec::new() }.send(pipe)?;
        match db.backup(to(number), WorkOptions::new().rate(BACKUP_RATE)) {
            Ok(_) => {
                Frame::Ack { thread: backups::THREAD, number }.send(pipe)?;
                if let Some(older) = whole.replace(number) {
                    fs::remove_dir_all(to(older))?;
                }
            }
            // Writers needed the room of the log, which is very small; or it is growing.
            Err(Error::OutOfSpace(_) | Error::InUse(_)) => {}
            Err(error) => {
                Frame::Fault { thread: backups::THREAD, number, text: format!("a backup failed: {error}") }
                    .send(pipe)?;
                std::process::exit(1);
            }
        }
        number += 1;
    }
    Ok(())
}

/// Whether the system refused to start a thread.
fn lacks_threads(failure: &Failure) -> bool {
    let Failure::Error(error) = failure else { return false };
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| cause.kind() == io::ErrorKind::WouldBlock)
}

/// Ends the whole process for lack of threads: the started threads would go on for two minutes.
fn give_up(failure: &Failure) -> ! {
    if let Failure::Error(error) = failure {
        complain(&describe(error.as_ref()));
    }
    std::process::exit(NO_THREAD)
}

fn single(db: &Db) -> Result<Tree, Error> {
    match db.open_tree(TreeId::Single.name()) {
        Err(Error::TreeNotFound(..)) => db.create_tree(TreeId::Single.name()),
        opened => opened,
    }
}

fn rows(db: &Db) -> Result<Table, Error> {
    match db.open_table(TreeId::Rows.name()) {
        Err(Error::TreeNotFound(..)) => {
            let definition =
                TableDefinition::new().index("k", [Field::value(K)]).unique("serial", [Field::value(SERIAL)]);
            db.create_table(TreeId::Rows.name(), definition)
        }
        opened => opened,
    }
}

/// A running child, seen from the parent.
pub(super) struct Victim {
    child: Child,
    frames: Receiver<Frame>,
    reader: JoinHandle<io::Result<()>>,
}

impl Victim {
    /// Starts this program as a child.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn start(args: &CrashtestArgs, round: u64, deed: Deed) -> Result<Victim, Failure> {
        let cannot = |cause: io::Error| Failure::message(format!("cannot start a process to be killed: {cause}"));
        let program = std::env::current_exe().map_err(cannot)?;
        let deed = if deed == Deed::Load { "load" } else { "recover" };
        let mut command = Command::new(program);
        command
            .args(["crashtest-victim", "--deed", deed, "--threads", &args.threads.to_string()])
            .args([
                "--seed",
                &args.seed.to_string(),
                "--round",
                &round.to_string(),
                "--profile",
                &args.profile,
                "--dir",
            ])
            .arg(&args.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if args.cached.0 {
            command.arg("--cached");
        }
        if args.transactions {
            command.arg("--transactions");
        }
        if args.backups {
            command.arg("--backups").arg(args.backups_dir());
        }
        let mut child = command.spawn().map_err(cannot)?;
        let mut pipe = child.stdout.take().ok_or_else(|| Failure::message("the child has no standard output"))?;
        let (sender, frames) = mpsc::channel();
        let read = move || {
            while let Some(frame) = Frame::receive(&mut pipe)? {
                if sender.send(frame).is_err() {
                    break;
                }
            }
            Ok(())
        };
        match thread::Builder::new().name("victim-reader".to_owned()).spawn(read) {
            Ok(reader) => Ok(Victim { child, frames, reader }),
            Err(cause) => {
                child.kill().and_then(|()| child.wait()).map_err(cannot)?;
                Err(no_thread("a thread that reads what the process to be killed says", &cause))
            }
        }
    }

    /// The child's messages, as they arrive.
    pub(super) fn frames(&self) -> &Receiver<Frame> {
        &self.frames
    }

    /// Kills the child; returns its exit status and its remaining messages.
    ///
    /// # Errors
    /// It could not be killed, or its messages could not be read.
    pub(super) fn kill(mut self) -> io::Result<(ExitStatus, Vec<Frame>)> {
        self.child.kill()?;
        let status = self.child.wait()?;
        let rest = self.frames.iter().collect();
        match self.reader.join() {
            Ok(read) => read?,
            Err(_) => return Err(io::Error::other("the thread that reads the victim's messages panicked")),
        }
        Ok((status, rest))
    }
}
