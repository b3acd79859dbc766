//! The machine beside the run: figures of the canaries.

use maud::{Markup, html};
use workload::driver::Finished;
use workload::figures::RunFigures;

use super::page::{ms, span_of, time_chart};
use crate::report::bins;
use crate::report::charts::{Curve, bin_name};

/// Two charts, of the device's pairs and the CPU's wakes; nothing if the machine was not watched.
pub(super) fn machine(figures: &RunFigures, finished: &Finished) -> Markup {
    let Some(seen) = figures.machine else { return html! {} };
    let judged = &figures.judged;
    let (seconds_each, points) = bins::worst(&finished.timeline);
    let seconds = finished.seconds.len() as u64;
    let chart = |values: Vec<f64>, what: &'static str| {
        let curve = Curve { values: values.clone(), band: None };
        let title =
            move |bin: usize| format!("{}: {what} {} ms", bin_name(bin, seconds_each, seconds), ms(values[bin]));
        time_chart(seconds_each, seconds, vec![curve], None, "ms", title)
    };
    let pairs = points.iter().map(|point| point.machine.device_ns as f64 / 1e6).collect();
    let wakes = points.iter().map(|point| point.machine.cpu_late_ns as f64 / 1e6).collect();
    html! {
        h2 { "The machine beside the run" }
        p.note {
            span.key.first {} "the device: the longest of its canary's pairs of a 4 KiB write and a sync in each "
            (span_of(seconds_each)) ", one each 100 ms. Median " (ms(seen.canary_median_pair_ms))
            " ms, slowest of its own " (ms(seen.canary_worst_pair_ms)) " ms, slowest under the engine's writes "
            (ms(seen.canary_worst_shared_pair_ms)) " ms; it stood still for " (ms(judged.device_stopped_ms)) " ms by itself, and for "
            (ms(judged.device_shared_ms)) " ms while the engine had 1 MiB or more outstanding."
        }
        (chart(pairs, "slowest pair"))
        p.note {
            span.key.first {} "the CPU: how late its canary woke at most, which asks to sleep for 10 ms. Median "
            (ms(seen.canary_median_wake_ms)) " ms, latest " (ms(seen.canary_worst_wake_ms)) " ms; it stood still for "
            (ms(judged.cpu_stopped_ms)) " ms. Others took " (ms(judged.cpu_taken_ms))
            " ms of it while threads of this process waited for a CPU."
        }
        (chart(wakes, "latest wake"))
    }
}
