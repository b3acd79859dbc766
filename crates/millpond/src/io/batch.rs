//! Batches of transfers that run at the same time: by io_uring where the kernel allows it, else by a few threads.
//!
//! In both cases the caller waits for the whole batch, so a batch is as easy to reason about as one call. Buffers are
//! not registered with the kernel: with transfers of 16 KiB no gain was measurable.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::squeue::Entry;
use io_uring::{IoUring, Probe, opcode, types};
use rayon_core::{ThreadPool, ThreadPoolBuilder};

use super::device::{ReadPiece, WritePiece};
use crate::base::aligned::{to_u64, to_usize};
use crate::base::sync::{self, Mutex, Rank};

/// Transfers of one batch that are in flight at the same time.
const DEPTH: usize = 64;

/// Transfer threads without io_uring.
const THREADS: usize = 8;

/// Threads that the system must be able to start beside these: the engine itself starts six or seven.
const THREADS_LEFT: usize = 8;

/// Idle rings kept for later batches: one for each thread that runs a batch at the same time.
const RINGS_KEPT: usize = 16;

/// How the transfers of a batch run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IoEngine {
    /// io_uring if the kernel allows it (many containers do not), else threads.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// Eight transfer threads.
    Threads,
}

/// The engine in use.
pub(crate) enum Batches {
    IoUring(Rings),
    /// `None`: the system cannot start enough threads. The caller then transfers piece by piece, which leaves the
    /// available threads to the engine.
    Threads(Option<ThreadPool>),
}

impl Batches {
    /// The engine that the option asks for.
    pub(super) fn new(engine: IoEngine) -> io::Result<Batches> {
        if engine != IoEngine::Threads {
            match Rings::new() {
                Ok(rings) => return Ok(Batches::IoUring(rings)),
                Err(error) if engine == IoEngine::IoUring => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Batches::Threads(pool_of(THREADS)))
    }

    /// The name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Batches::IoUring(_) => "io_uring",
            Batches::Threads(Some(_)) => "threads",
            Batches::Threads(None) => "one by one",
        }
    }

    /// Reads all pieces.
    pub(crate) fn read(&self, file: &File, reads: &mut [ReadPiece<'_>]) -> Vec<io::Result<()>> {
        if let [(buf, offset)] = reads {
            return vec![file.read_exact_at(buf, *offset)];
        }
        match self {
            Batches::IoUring(rings) => {
                let fd = types::Fd(file.as_raw_fd());
                let entry = |(buf, offset): &mut ReadPiece<'_>| {
                    opcode::Read::new(fd, buf.as_mut_ptr(), piece_len(buf)).offset(*offset).build()
                };
                let entries = reads.iter_mut().map(entry).collect();
                #[expect(unsafe_code, reason = "the kernel fills buffers that it was given by address")]
                // SAFETY: until `run` returns, the entries name exclusively borrowed buffers and an open file.
                let ends = unsafe { rings.run(entries) };
                let finish = |((buf, offset), end): (&mut ReadPiece<'_>, io::Result<usize>)| {
                    let done = done_of(end, buf.len())?;
                    file.read_exact_at(&mut buf[done..], *offset + to_u64(done))
                };
                reads.iter_mut().zip(ends).map(finish).collect()
            }
            Batches::Threads(None) => reads.iter_mut().map(|(buf, offset)| file.read_exact_at(buf, *offset)).collect(),
            Batches::Threads(Some(threads)) => {
                let mut results: Vec<io::Result<()>> = reads.iter().map(|_| Ok(())).collect();
                threads.in_place_scope(|scope| {
                    for ((buf, offset), result) in reads.iter_mut().zip(&mut results) {
                        scope.spawn(move |_| *result = file.read_exact_at(buf, *offset));
                    }
                });
                results
            }
        }
    }

    /// Writes all pieces.
    pub(crate) fn write(&self, file: &File, writes: &[WritePiece<'_>]) -> Vec<io::Result<()>> {
        if let [(buf, offset)] = writes {
            return vec![file.write_all_at(buf, *offset)];
        }
        match self {
            Batches::IoUring(rings) => {
                let fd = types::Fd(file.as_raw_fd());
                let entry = |(buf, offset): &WritePiece<'_>| {
                    opcode::Write::new(fd, buf.as_ptr(), piece_len(buf)).offset(*offset).build()
                };
                let entries = writes.iter().map(entry).collect();
                #[expect(unsafe_code, reason = "the kernel reads buffers that it was given by address")]
                // SAFETY: until `run` returns, the entries name borrowed buffers and an open file.
                let ends = unsafe { rings.run(entries) };
                let finish = |((buf, offset), end): (&WritePiece<'_>, io::Result<usize>)| {
                    let done = done_of(end, buf.len())?;
                    file.write_all_at(&buf[done..], *offset + to_u64(done))
                };
                writes.iter().zip(ends).map(finish).collect()
            }
            Batches::Threads(None) => writes.iter().map(|(buf, offset)| file.write_all_at(buf, *offset)).collect(),
            Batches::Threads(Some(threads)) => {
                let mut results: Vec<io::Result<()>> = writes.iter().map(|_| Ok(())).collect();
                threads.in_place_scope(|scope| {
                    for ((buf, offset), result) in writes.iter().zip(&mut results) {
                        scope.spawn(move |_| *result = file.write_all_at(buf, *offset));
                    }
                });
                results
            }
        }
    }
}

/// A pool of `threads` threads. `None`: the system cannot start these and, later, the engine's own.
fn pool_of(threads: usize) -> Option<ThreadPool> {
    let build = || ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("mp-io-{i}")).build().ok();
    sync::beside_stand_ins(THREADS_LEFT, build).flatten()
}

/// The length of a piece. A piece is at most one lot (batch of pages).
fn piece_len(buf: &[u8]) -> u32 {
    u32::try_from(buf.len()).unwrap_or(u32::MAX)
}

/// The transferred bytes of a transfer of `len` bytes. The caller does the rest with an ordinary call, which also
/// returns the error of a transfer that was only interrupted.
fn done_of(end: io::Result<usize>, len: usize) -> io::Result<usize> {
    match end {
        Ok(done) => Ok(done.min(len)),
        Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Idle rings. Each batch in progress has a ring of its own.
pub(crate) struct Rings {
    idle: Mutex<Vec<IoUring>>,
}

impl Rings {
    fn new() -> io::Result<Rings> {
        Ok(Rings { idle: Mutex::new(Rank::Device, vec![new_ring()?]) })
    }

    /// Runs all of `entries`; returns for each the number of transferred bytes, or the error.
    ///
    /// # Safety
    /// Buffers and files that the entries name must stay valid until this returns.
    #[expect(unsafe_code, reason = "io_uring is given addresses")]
    unsafe fn run(&self, entries: Vec<Entry>) -> Vec<io::Result<usize>> {
        let mut results: Vec<io::Result<usize>> = entries.iter().map(|_| Ok(0)).collect();
        let idle = self.idle.lock().pop();
        let Ok(mut ring) = idle.map_or_else(new_ring, Ok) else {
            // Nothing is transferred yet: the caller does it with ordinary calls.
            return results;
        };
        let (mut entries, mut pushed, mut ended, total) = (entries.into_iter(), 0, 0, results.len());
        while ended < total {
            let mut queue = ring.submission();
            while pushed - ended < DEPTH
                && let Some(entry) = entries.next()
            {
                // SAFETY: the caller keeps buffers and file valid; a ring has room for `DEPTH` entries.
                let full = unsafe { queue.push(&entry.user_data(to_u64(pushed))) };
                debug_assert!(full.is_ok(), "a ring has room for `DEPTH` entries");
                pushed += 1;
            }
            drop(queue);
            let waited = ring.submit_and_wait(pushed - ended);
            for end in ring.completion() {
                let result = end.result();
                results[to_usize(end.user_data())] =
                    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                ended += 1;
            }
            if let Err(error) = waited {
                // Interrupted, or short of memory: tries again, and never returns before the entries that the kernel
                // has taken.
                let taken = pushed - ended - ring.submission().len();
                let passing = matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ResourceBusy);
                if taken == 0 && !passing {
                    // The kernel takes no entries: the ring is dropped, and the caller does the rest with ordinary
                    // calls.
                    return results;
                }
                std::hint::spin_loop();
            }
        }
        let mut idle = self.idle.lock();
        if idle.len() < RINGS_KEPT {
            idle.push(ring);
        }
        results
    }
}

fn new_ring() -> io::Result<IoUring> {
    let ring = IoUring::new(u32::try_from(DEPTH).unwrap_or(u32::MAX))?;
    // Linux 5.1 to 5.5 have rings that lack these two operations.
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE) {
        Ok(ring)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_larger_than_a_ring_has_a_result_for_each_piece() {
        let chosen =
            [IoEngine::Auto, IoEngine::Threads].map(|engine| Batches::new(engine).expect("one engine is available"));
        for batches in chosen.into_iter().chain([Batches::Threads(None)]) {
            let file = tempfile::tempfile().expect("a file");
            let pieces: Vec<Vec<u8>> = (0..3 * DEPTH + 1).map(|i| vec![i.to_le_bytes()[0]; 4096]).collect();
            let offset = |i: usize| to_u64(i * 8192);
            let writes: Vec<WritePiece<'_>> = pieces.iter().enumerate().map(|(i, p)| (&p[..], offset(i))).collect();
            assert!(batches.write(&file, &writes).iter().all(Result::is_ok));
            let mut found = vec![vec![0xee; 4096]; pieces.len()];
            let mut reads: Vec<ReadPiece<'_>> =
                found.iter_mut().enumerate().map(|(i, buf)| (&mut buf[..], offset(i))).collect();
            // One piece lies beyond the end of the file, and one crosses it.
            reads[7].1 = 1 << 40;
            reads[9].1 = offset(pieces.len() - 1) + 1024;
            let ends = batches.read(&file, &mut reads);
            let failed: Vec<usize> = (0..ends.len()).filter(|&i| ends[i].is_err()).collect();
            assert_eq!(failed, [7, 9], "{}", batches.name());
            assert!((0..ends.len()).filter(|i| ![7, 9].contains(i)).all(|i| found[i] == pieces[i]));
        }
    }

    #[test]
    fn a_write_that_fails_says_so() {
        let chosen =
            [IoEngine::Auto, IoEngine::Threads].map(|engine| Batches::new(engine).expect("one engine is available"));
        for batches in chosen.into_iter().chain([Batches::Threads(None)]) {
            let file = File::open("/dev/null").expect("there");
            let ends = batches.write(&file, &[(&[1; 512], 0), (&[2; 512], 512)]);
            assert!(ends.iter().all(Result::is_err), "a file that is open for reading only: {ends:?}");
        }
    }
}
