//! The metrics as text: for Prometheus, and as JSON.

use std::fmt::Write as _;

use crate::engine::Engine;
#[cfg(feature = "server")]
use crate::observe::metrics::Metric;
use crate::observe::metrics::{MetricValue, values};

/// The metrics in Prometheus' text format.
pub(crate) fn prometheus(engine: &Engine) -> String {
    let mut text = String::new();
    for (metric, value) in values(engine) {
        let kind = metric.kind.name();
        let name = format!("millpond_{}{}", metric.name, if kind == "counter" { "_total" } else { "" });
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
        let _ = match value {
            MetricValue::Number(number) => writeln!(text, "{name} {number}"),
            MetricValue::Numbers(numbers) => {
                let sample =
                    |(at, number): (usize, u64)| writeln!(text, "{name}{{{}=\"{at}\"}} {number}", metric.label);
                numbers.into_iter().enumerate().try_for_each(sample)
            }
            MetricValue::Named(numbers) => numbers
                .into_iter()
                .try_for_each(|(of, number)| writeln!(text, "{name}{{{}=\"{of}\"}} {number}", metric.label)),
            MetricValue::Times(times) => {
                for (bound, count) in &times.buckets {
                    let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
                }
                let (count, total) = (times.count, times.total_us);
                writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {total}\n{name}_count {count}")
            }
        };
    }
    text
}

/// One object of numbers by name. A histogram is an object of `count`, `sum` and `buckets` by their upper bound. A
/// gauge of several things is an array, or an object if they have names.
#[cfg(feature = "server")]
pub(crate) fn json(engine: &Engine) -> String {
    let member = |(metric, value): (&Metric, MetricValue)| match value {
        MetricValue::Number(number) => format!("\"{}\":{number}", metric.name),
        MetricValue::Numbers(numbers) => format!("\"{}\":{numbers:?}", metric.name),
        MetricValue::Named(numbers) => {
            let members: Vec<_> = numbers.iter().map(|(of, number)| format!("\"{of}\":{number}")).collect();
            format!("\"{}\":{{{}}}", metric.name, members.join(","))
        }
        MetricValue::Times(times) => {
            let buckets: Vec<_> = times.buckets.iter().map(|(bound, count)| format!("\"{bound}\":{count}")).collect();
            let (name, count, sum) = (metric.name, times.count, times.total_us);
            format!("\"{name}\":{{\"count\":{count},\"sum\":{sum},\"buckets\":{{{}}}}}", buckets.join(","))
        }
    };
    let members: Vec<_> = values(engine).into_iter().map(member).collect();
    format!("{{{}}}\n", members.join(","))
}
