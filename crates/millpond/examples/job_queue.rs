//! A queue of jobs: each worker takes the first job that no other worker has, as `SELECT ... FOR UPDATE SKIP LOCKED`
//! does.
//!
//! `cargo run --package millpond --example job_queue [DIR]`: in DIR, or in a directory that it removes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use millpond::{Cursor, Db, Isolation, Options, ReadMode, Tree, TxnOptions, key};

const JOBS: u32 = 40;
const WORKERS: usize = 4;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args_os().nth(1).map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    show(&dir, &mut std::io::stdout())
}

/// Takes the next job, does it by `work`, and removes it. False: no job is left that no other worker has.
///
/// The job and its removal are one transaction: if the worker fails or the process ends, the job is there for another.
fn do_next(db: &Db, jobs: &Tree, work: impl FnOnce(&[u8])) -> millpond::Result<bool> {
    let mut txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted))?;
    let mut cursor = Cursor::new(jobs, ..);
    let Some((job, _)) = cursor.next(&mut txn, ReadMode::exclusive().skip_locked())? else { return Ok(false) };
    let job = job.to_vec();
    work(&job);
    txn.delete(jobs, &job)?;
    txn.commit()?;
    Ok(true)
}

/// Opens the database in `dir`, adds jobs, and has several workers do them.
pub(crate) fn show(dir: &Path, out: &mut impl Write) -> Outcome {
    let db = Db::open(dir, Options::new())?;
    let jobs = db.open_or_create_tree("jobs")?;
    for job in 0..JOBS {
        jobs.put(key::encode(&job), format!("job {job}"))?;
    }
    let done = Mutex::new(Vec::new());
    let work = || -> millpond::Result<()> {
        while do_next(&db, &jobs, |job| done.lock().expect("no panic").push(job.to_vec()))? {}
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let mut done = done.into_inner()?;
    done.sort_unstable();
    done.dedup();
    writeln!(out, "{} jobs were done, each once; {} are left", done.len(), jobs.scan(..).count())?;
    drop(jobs);
    db.close()?;
    Ok(())
}
