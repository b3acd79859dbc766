//! The closed loop: each thread begins its next transaction when its last is done.
//!
//! It finds the highest rate, and it flatters: while the engine stalls, no thread asks anything of it, so the requests
//! that a real client would have made in that time are missing from the latencies.

use super::worker::Worker;
use crate::Error;
use crate::engine::Session;
use crate::recorder::Totals;

/// Runs a worker's thread to its end.
pub(super) fn run<S: Session>(mut worker: Worker<'_, S>) -> Result<Totals, Error> {
    let Some(clock) = worker.wait_for_start() else {
        return Ok(worker.finish());
    };
    loop {
        let event = worker.draw();
        let begun_ns = clock.now_ns();
        if worker.shared.is_over(begun_ns) {
            return Ok(worker.finish());
        }
        worker.execute(clock, &event, begun_ns)?;
    }
}
