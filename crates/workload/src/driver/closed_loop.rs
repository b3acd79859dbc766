//! The closed loop: each thread begins its next transaction when its last is done.
//!
//! The closed loop finds the highest rate, but its latencies flatter (coordinated omission): while the engine stalls,
//! no thread sends a request, so the latencies lack the requests that real clients would have sent in that time.

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
