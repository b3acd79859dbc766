//! The open loop: transactions arrive by a schedule, whatever the engine does, and latency counts from the arrival.
//!
//! Workers take arrivals in order, and each sleeps until its own, so no thread hands them out. A late worker begins at
//! once. So neither the system's timer nor the number of threads limits the rate, as long as the engine keeps up. If it
//! falls behind, the queue is the arrivals that no worker has taken ([`Schedule::waiting`]).

use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use super::NAP;
use super::arrivals::Schedule;
use super::worker::{Leave, Shared, Worker};
use crate::Error;
use crate::generators::Client;
use crate::recorder::{Begun, RunClock, Totals};

/// Runs a worker's thread to its end.
pub(super) fn run<C: Client>(mut worker: Worker<'_, C>, schedule: &Schedule) -> Result<Totals, Error> {
    // By default a sleep ends up to 50 us late, which would show as latency of the engine. If the system refuses the
    // change, that stays so.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
    let Some(clock) = worker.wait_for_start() else {
        return worker.finish();
    };
    loop {
        if !worker.draw() || worker.shared.is_over(clock.now_ns()) {
            return worker.finish();
        }
        let arrival_ns = schedule.take();
        // The arrival lies after the end of the run, or the run was stopped.
        let Some(begun_ns) = sleep_until(worker.shared, clock, arrival_ns) else { return worker.finish() };
        let leave = worker.shared.take_leave(begun_ns);
        if leave == Leave::Over {
            // The transaction arrived in time, but the time was up before it began.
            worker.leave(arrival_ns);
            return worker.finish();
        }
        worker.execute(clock, leave, Begun { since_ns: arrival_ns, at_ns: begun_ns })?;
    }
}

/// Sleeps until `arrival_ns` and returns the time then; `None` if the arrival lies after the end of the run, or the run
/// was stopped.
fn sleep_until(shared: &Shared<'_>, clock: RunClock, arrival_ns: u64) -> Option<u64> {
    loop {
        if shared.is_over(arrival_ns) {
            return None;
        }
        let now_ns = clock.now_ns();
        if now_ns >= arrival_ns {
            // An arrival in time that is taken late still begins, unless the time is up (DRV-2).
            return Some(now_ns);
        }
        thread::sleep(NAP.min(Duration::from_nanos(arrival_ns - now_ns)));
    }
}
