//! The closed loop: each thread begins its next transaction when its last is done.
//!
//! It finds the highest rate, and it flatters: while the engine stalls, no thread asks anything of it, so the requests
//! that a real client would have made in that time are missing from the latencies.

use super::worker::{Leave, Worker};
use crate::Error;
use crate::generators::Client;
use crate::recorder::{Begun, Totals};

/// Runs a worker's thread to its end.
pub(super) fn run<C: Client>(mut worker: Worker<'_, C>) -> Result<Totals, Error> {
    let Some(clock) = worker.wait_for_start() else {
        return worker.finish();
    };
    loop {
        if !worker.draw() {
            return worker.finish();
        }
        let begun_ns = clock.now_ns();
        let leave = worker.shared.take_leave(begun_ns);
        if leave == Leave::Over {
            return worker.finish();
        }
        worker.execute(clock, leave, Begun::at(begun_ns))?;
    }
}
