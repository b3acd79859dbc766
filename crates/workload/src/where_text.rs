//! Where the time went, as text: for an average transaction, and for the slowest operations of the run.
//!
//! ```text
//! Where the time went:
//!     per transaction, from arrival: 3.42 ms = queued 3.00 + log_flush 0.35 + page_read 0.03 + rest 0.04
//!     slowest 1: 37.0 ms (write, from its begin) = page_latch 30.1 + page_read 5.2 + on cpu 0.8 + rest 0.9
//!         longest latch 28.0 ms: leaf 6:48 of index 'k' of table 'sbtest2'
//! ```

use std::fmt::Write as _;

use crate::engine::SlowOperation;
use crate::figures::{RunFigures, WaitsOf};

/// Slow operations that are shown.
const SHOWN: usize = 5;

/// The `Where the time went:` block. The rest of a transaction is CPU time and waits for a CPU. Under a rate a
/// transaction counts from its arrival, so its time in the queue is a part. An operation of the engine counts from its
/// begin.
pub fn where_block(figures: &RunFigures) -> String {
    let mut text = match figures.waits_of {
        WaitsOf::Clients => {
            let from = if figures.is_offered { ", from arrival" } else { "" };
            format!("Where the time went:\n    per transaction{from}: {}\n", per_transaction(figures))
        }
        // The waits cover more threads than the latencies, so a transaction's share is unknown.
        WaitsOf::ClientsAndWriters => "Where the time went (clients and writers beside):\n".to_owned(),
    };
    for (number, slow) in (1..).zip(figures.slow_operations.iter().take(SHOWN)) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    slowest {number}: {}", slow_text(slow, figures.is_offered));
    }
    text
}

/// A transaction's latency and its parts, on average.
fn per_transaction(figures: &RunFigures) -> String {
    let transactions = figures.transactions.max(1) as f64;
    let waits = figures.waits.iter().map(|wait| (wait.class, wait.total_us as f64 / 1e3 / transactions));
    let queued = [("queued", figures.queued_sum_ms / transactions)];
    sum(figures.latency_sum_ms / transactions, "", queued.into_iter().chain(waits).collect(), 2)
}

/// An operation of the engine. With arrivals in the report, the text says that the operation counts from its begin.
fn slow_text(slow: &SlowOperation, has_arrivals: bool) -> String {
    let ms = |us: u64| us as f64 / 1e3;
    let mut parts: Vec<_> = slow.waits.iter().map(|wait| (wait.class, ms(wait.total_us))).collect();
    parts.extend(slow.cpu_us.map(|cpu_us| ("on cpu", ms(cpu_us))));
    parts.extend(slow.runnable_us.map(|runnable_us| ("runnable", ms(runnable_us))));
    let from = if has_arrivals { ", from its begin" } else { "" };
    let mut text = sum(ms(slow.elapsed_us), &format!(" ({}{from})", slow.operation), parts, 1);
    if let Some(latch) = slow.latch.as_ref().filter(|latch| latch.waited_us * 10 >= slow.elapsed_us) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n        longest latch {:.1} ms: {}", ms(latch.waited_us), latch.page);
    }
    text
}

/// A time as a sum of its parts, the largest first; parts that would be shown as 0 belong to the rest.
fn sum(total_ms: f64, label: &str, mut parts: Vec<(&str, f64)>, digits: usize) -> String {
    let least_ms = 0.5 * 0.1_f64.powi(digits as i32);
    parts.retain(|(_, ms)| *ms >= least_ms);
    parts.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let rest_ms = total_ms - parts.iter().map(|(_, ms)| ms).sum::<f64>();
    if rest_ms >= least_ms || parts.is_empty() {
        parts.push(("rest", rest_ms.max(0.0)));
    }
    let parts: Vec<_> = parts.iter().map(|(name, ms)| format!("{name} {ms:.digits$}")).collect();
    format!("{total_ms:.digits$} ms{label} = {}", parts.join(" + "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Finished;
    use crate::engine::{Counters, Latch, Wait};
    use crate::figures::Labels;
    use crate::probe::{Access, SyncPairs};
    use crate::recorder::Totals;

    fn slow(total_ms: f64, waits: &[(&'static str, f64)], cpu: Option<(f64, f64)>) -> SlowOperation {
        let us = |ms: f64| (ms * 1e3).round() as u64;
        let wait = |(class, ms): &(&'static str, f64)| Wait { class, count: 1, total_us: us(*ms), stalls: 0 };
        SlowOperation {
            operation: "write",
            elapsed_us: us(total_ms),
            waits: waits.iter().map(wait).collect(),
            cpu_us: cpu.map(|(cpu, _)| us(cpu)),
            runnable_us: cpu.map(|(_, runnable)| us(runnable)),
            latch: None,
        }
    }

    #[test]
    fn slow_operation_is_the_sum_of_its_parts_the_most_first() {
        let waits = [("page_read", 5.2), ("log_flush", 30.1), ("lane", 0.01)];
        let slow_text = |slow: &SlowOperation| super::slow_text(slow, false);
        let text = slow_text(&slow(37.0, &waits, Some((0.8, 0.02))));
        assert_eq!(text, "37.0 ms (write) = log_flush 30.1 + page_read 5.2 + on cpu 0.8 + rest 0.9");
        assert_eq!(slow_text(&slow(8.0, &[], None)), "8.0 ms (write) = rest 8.0");
        let text = slow_text(&slow(10.0, &[("page_read", 7.0)], Some((2.0, 1.0))));
        assert_eq!(text, "10.0 ms (write) = page_read 7.0 + on cpu 2.0 + runnable 1.0");
        let latched = |waited_us| {
            let latch = Some(Latch { page: "root 7:0".to_owned(), waited_us });
            slow_text(&SlowOperation { latch, ..slow(5.0, &[("page_latch", 5.0)], None) })
        };
        assert_eq!(latched(4_100), "5.0 ms (write) = page_latch 5.0\n        longest latch 4.1 ms: root 7:0");
        assert_eq!(latched(499), "5.0 ms (write) = page_latch 5.0", "less than a tenth explains nothing");
    }

    #[test]
    fn time_in_the_queue_is_apart_and_its_begin_is_said() {
        let thread = Totals { transactions: 100, latency_ns: 500_000_000, queued_ns: 450_000_000, ..Totals::default() };
        let waits = vec![Wait { class: "log_flush", count: 100, total_us: 40_000, stalls: 0 }];
        let finished = Finished {
            threads: vec![thread],
            offered_per_s: Some(50.0),
            counters: Counters { waits, ..Counters::default() },
            slow_operations: vec![slow(8.0, &[], None)],
            ..Finished::default()
        };
        let device = SyncPairs { per_s: 1.0, worst_ms: 1.0, access: Access::Direct };
        let of = |finished: &Finished| {
            where_block(&RunFigures::of(finished, &device, Labels { percentile: 95, stall_threshold_ms: 100 }))
        };
        assert_eq!(
            of(&finished),
            "Where the time went:\n    \
             per transaction, from arrival: 5.00 ms = queued 4.50 + log_flush 0.40 + rest 0.10\n    \
             slowest 1: 8.0 ms (write, from its begin) = rest 8.0\n"
        );
        let closed = of(&Finished { offered_per_s: None, ..finished });
        assert!(closed.contains("    per transaction: ") && closed.contains(" 8.0 ms (write) = "), "{closed}");
    }

    #[test]
    fn time_without_waits_is_rest() {
        assert_eq!(sum(0.25, "", vec![("log_flush", 0.001)], 2), "0.25 ms = rest 0.25");
        assert_eq!(sum(0.0, "", Vec::new(), 2), "0.00 ms = rest 0.00");
    }
}
