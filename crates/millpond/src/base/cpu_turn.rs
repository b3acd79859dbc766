//! A writer's turn on the CPU.
//!
//! Where more threads write than there are CPUs, the system takes the CPU from one of them at its tick, after some 3
//! ms, wherever it is: also with a page latched. Who wants that page then waits until all the others have had their 3
//! ms. So who has written for [`TURN_NS`] gives up the CPU where he holds nothing: most threads lose it there, and each
//! waits for many short turns in place of many long ones. Where nobody else wants the CPU, that is one call in 50 us.
//!
//! Readers do not: their operations take less than looking at the clock for each of them is worth.

use std::cell::Cell;

use super::{clock, sync};

/// How long a turn is. Some five updates, in memory; a switch costs about a twentieth of it.
const TURN_NS: u64 = 50_000;

/// Who waited for so long was not on the CPU: it begins a turn.
const OFF_CPU_NS: u64 = 20_000;

thread_local! {
    /// When this thread's turn began.
    static BEGAN_NS: Cell<u64> = const { Cell::new(0) };
}

/// This thread has waited for `ns` nanoseconds, until `now_ns`.
pub(super) fn waited(ns: u64, now_ns: u64) {
    if ns >= OFF_CPU_NS {
        BEGAN_NS.set(now_ns);
    }
}

/// Gives up the CPU if this thread's turn is over. The caller holds nothing that anybody waits for.
pub(crate) fn end() {
    if is_over(clock::now_ns()) {
        sync::yield_cpu();
        BEGAN_NS.set(clock::now_ns());
    }
}

fn is_over(now_ns: u64) -> bool {
    now_ns.saturating_sub(BEGAN_NS.get()) >= TURN_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_lasts_its_time_and_begins_anew_with_a_wait_off_the_cpu() {
        BEGAN_NS.set(1_000_000);
        assert!(!is_over(1_000_000) && !is_over(1_000_000 + TURN_NS - 1) && is_over(1_000_000 + TURN_NS));
        waited(OFF_CPU_NS - 1, 2_000_000);
        assert!(is_over(2_000_000), "a write to memory is no rest");
        waited(OFF_CPU_NS, 2_000_000);
        assert!(!is_over(2_000_000) && is_over(2_000_000 + TURN_NS));
        assert!(!is_over(1_999_999), "the clock was read before");
    }

    #[test]
    fn who_ends_a_turn_that_is_over_begins_another() {
        BEGAN_NS.set(0);
        while !is_over(clock::now_ns()) {
            std::hint::spin_loop();
        }
        end();
        let began_ns = BEGAN_NS.get();
        assert!(began_ns >= TURN_NS && began_ns <= clock::now_ns());
        end();
        assert!(BEGAN_NS.get() == began_ns || BEGAN_NS.get() >= began_ns + TURN_NS, "one that is not goes on");
    }
}
