//! One piece of work in several background threads.

use std::io;

use super::error::Error;
use super::sync::{JoinHandle, spawn};
use super::waits::enter_background;

/// Runs `threads` pieces of work, each on a background thread; a single piece, on the caller's thread. Returns their
/// results in order, or the first error. If the system cannot start all threads, the caller does the remaining pieces
/// one by one. So no piece may wait for another.
///
/// # Errors
/// An error of the work; a thread that panicked.
pub(crate) fn in_parallel<T, W>(name: &str, threads: usize, work: impl Fn(usize) -> W) -> Result<Vec<T>, Error>
where
    T: Send + 'static,
    W: FnOnce() -> Result<T, Error> + Send + 'static,
{
    if threads == 1 {
        return work(0)().map(|result| vec![result]);
    }
    let start = |piece| {
        let work = work(piece);
        spawn(name, move || {
            enter_background();
            work()
        })
    };
    started_or_here(name, threads, start, |piece| work(piece)())
}

/// As [`in_parallel`], but `start` starts a piece's thread, and `here` does a piece whose thread did not start.
fn started_or_here<T>(
    name: &str,
    threads: usize,
    start: impl Fn(usize) -> io::Result<JoinHandle<Result<T, Error>>>,
    here: impl Fn(usize) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    // All threads are started, then all are joined: none outlives this call.
    let running: Vec<_> = (0..threads).map(start).collect();
    let ended: Vec<_> = running
        .into_iter()
        .enumerate()
        .map(|(piece, thread)| match thread {
            Ok(thread) => {
                thread.join().unwrap_or_else(|_| Err(Error::Bug(format!("a thread '{name}' panicked").into())))
            }
            Err(_) => here(piece),
        })
        .collect();
    ended.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_without_a_thread_are_done_by_the_caller() {
        for can_start in [0, 1, 3] {
            let start = |piece: usize| match piece < can_start {
                true => spawn("piece", move || Ok(piece * 10)),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
            let done = started_or_here("piece", 4, start, |piece| Ok(piece * 10 + 1)).expect("no error");
            let expected: Vec<usize> = (0..4).map(|piece| piece * 10 + usize::from(piece >= can_start)).collect();
            assert_eq!(done, expected);
        }
        let failed = started_or_here(
            "piece",
            2,
            |_| Err(io::ErrorKind::WouldBlock.into()),
            |piece| match piece {
                0 => Ok(()),
                _ => Err(Error::Bug("the second".into())),
            },
        );
        assert!(failed.is_err());
    }
}
