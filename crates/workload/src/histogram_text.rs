//! The histogram of a run's latencies in sysbench's buckets, which grow by 1.8 %: as numbers, and as sysbench's text
//! with a bar for each bucket that is not empty.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::Serialize;

/// sysbench's number of buckets.
const BUCKETS: usize = 1024;

/// The latency of the first bucket, in ms, and of the last.
const FIRST_MS: f64 = 0.001;
const LAST_MS: f64 = 100_000.0;

/// Characters of the longest bar.
const BAR_LEN: usize = 40;

/// Transactions of about one latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// The latency in the middle of the bucket.
    pub latency_ms: f64,
    /// Number of transactions; more than 0.
    pub count: u64,
}

/// Latencies in ns as sysbench's buckets, the shortest first; empty buckets are left out.
pub fn histogram_buckets(latencies: &Histogram<u64>) -> Vec<Bucket> {
    let mut counts = [0_u64; BUCKETS];
    for step in latencies.iter_recorded() {
        // The middle of the range that the histogram does not distinguish, a thousandth of the value.
        let ns = latencies.median_equivalent(step.value_iterated_to());
        counts[bucket(ns as f64 / 1e6)] += step.count_at_value();
    }
    let buckets = (0..).zip(counts).filter(|(_, count)| *count > 0);
    buckets.map(|(bucket, count)| Bucket { latency_ms: value_ms(bucket), count }).collect()
}

/// sysbench's block for latencies in ns.
pub fn histogram_block(latencies: &Histogram<u64>) -> String {
    let buckets = histogram_buckets(latencies);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let mut text = String::from("Latency histogram (values are in milliseconds)\n");
    if most > 0 {
        text.push_str("       value  ------------- distribution ------------- count\n");
    }
    for Bucket { latency_ms, count } in buckets {
        let stars = (count as f64 * BAR_LEN as f64 / most as f64 + 0.5) as usize;
        writeln!(text, "{latency_ms:12.3} |{:<BAR_LEN$} {count}", "*".repeat(stars))
            .expect("writing to a String cannot fail");
    }
    text.push_str(" \n");
    text
}

/// Buckets for each factor of e.
fn buckets_per_e() -> f64 {
    (BUCKETS - 1) as f64 / (LAST_MS / FIRST_MS).ln()
}

/// The bucket of a latency: the one with the nearest value, on a scale of logarithms.
fn bucket(ms: f64) -> usize {
    // The conversion turns negative numbers, from latencies below the first bucket, into 0.
    (((ms / FIRST_MS).ln() * buckets_per_e() + 0.5) as usize).min(BUCKETS - 1)
}

/// The latency that a bucket stands for.
fn value_ms(bucket: usize) -> f64 {
    (bucket as f64 / buckets_per_e()).exp() * FIRST_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::latency_histogram;

    #[test]
    fn block_has_sysbenchs_layout_and_values() {
        let mut latencies = latency_histogram();
        for (us, count) in [(619, 60_564), (630, 2_156), (642, 214)] {
            latencies.saturating_record_n(us * 1_000, count);
        }
        assert_eq!(
            histogram_block(&latencies),
            "Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.619 |**************************************** 60564
       0.630 |*                                        2156
       0.642 |                                         214
 \n"
        );
    }

    #[test]
    fn latencies_beyond_the_ends_fall_into_the_outer_buckets() {
        let mut latencies = latency_histogram();
        for ns in [1, 900, 1_000, 5_000_000, 3_000_000_000_000] {
            latencies.saturating_record(ns);
        }
        let text = histogram_block(&latencies);
        let counts: Vec<u64> =
            text.lines().filter_map(|line| line.split_once('|')?.1.split_whitespace().last()?.parse().ok()).collect();
        assert_eq!(counts.iter().sum::<u64>(), 5, "{text}");
        assert!(text.contains("\n       0.001 |"), "{text}");
        assert!(text.contains("\n  100000.000 |"), "{text}");
    }

    #[test]
    fn run_without_transactions_has_no_lines() {
        assert_eq!(histogram_block(&latency_histogram()).lines().count(), 2);
    }
}
