//! Groups many seconds into the few points that a chart can show.

use workload::recorder::Record;
use workload::timeline::{Point, Timeline};

/// The most points that a chart shows.
pub(crate) const BINS_MAX: usize = 300;

/// The rates of some seconds together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RateBin {
    pub(crate) mean: f64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

/// The number of things per bin, for `count` things.
fn per_bin(count: usize) -> usize {
    count.div_ceil(BINS_MAX).max(1)
}

/// The completions of each second in bins, and the seconds per bin; the last bin may have fewer.
pub(crate) fn rates(seconds: &[u64]) -> (u64, Vec<RateBin>) {
    let size = per_bin(seconds.len());
    let bin = |seconds: &[u64]| RateBin {
        mean: seconds.iter().sum::<u64>() as f64 / seconds.len() as f64,
        least: seconds.iter().copied().min().unwrap_or(0),
        most: seconds.iter().copied().max().unwrap_or(0),
    };
    (size as u64, seconds.chunks(size).map(bin).collect())
}

/// The timeline in bins, each the worst of its points, and the seconds per bin; the last bin may have fewer.
pub(crate) fn worst(timeline: &Timeline) -> (u64, Vec<Point>) {
    let size = per_bin(timeline.points().len());
    let bin = |points: &[Point]| points[1..].iter().fold(points[0], |worst, &point| worst.worse(point));
    (timeline.seconds_each() * size as u64, timeline.points().chunks(size).map(bin).collect())
}

/// Bars of the histogram in each factor of ten.
const BARS_PER_DECADE: i32 = 20;

/// The latencies in bars of equal width on a logarithmic scale: ends in ms, and count. There is an empty bar at each
/// end, and the range is at least a factor of ten.
pub(crate) fn latency_bars(record: &Record) -> Vec<(f64, f64, u64)> {
    let latencies = &record.latencies;
    let per_decade = f64::from(BARS_PER_DECADE);
    // The middle of the range that the histogram does not distinguish, a thousandth of the value.
    let bar_of = |ns: u64| ((latencies.median_equivalent(ns) as f64 / 1e6).log10() * per_decade).floor() as i32;
    let counts: Vec<(i32, u64)> =
        latencies.iter_recorded().map(|step| (bar_of(step.value_iterated_to()), step.count_at_value())).collect();
    let (Some((least, _)), Some((most, _))) = (counts.first(), counts.last()) else { return Vec::new() };
    let first = least - 1;
    let end = (most + 2).max(first + BARS_PER_DECADE);
    let edge = |bar: i32| 10_f64.powf(f64::from(bar) / per_decade);
    let mut bars: Vec<(f64, f64, u64)> = (first..end).map(|bar| (edge(bar), edge(bar + 1), 0)).collect();
    for (bar, count) in counts {
        bars[usize::try_from(bar - first).unwrap_or(0)].2 += count;
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_lose_no_transaction_and_are_a_decade_at_least() {
        let mut record = Record::new();
        assert_eq!(latency_bars(&record), []);
        record.latencies.saturating_record_n(125_000, 6);
        assert_eq!(latency_bars(&record).len(), BARS_PER_DECADE as usize);
        for (us, count) in [(120, 5), (950, 2), (12_000, 1)] {
            record.latencies.saturating_record_n(us * 1_000, count);
        }
        let bars = latency_bars(&record);
        assert_eq!(bars.iter().map(|bar| bar.2).sum::<u64>(), 14);
        assert_eq!((bars[0].2, bars[bars.len() - 1].2), (0, 0));
        for (us, count) in [(125, 6), (120, 5), (950, 2), (12_000, 1)] {
            let ms = us as f64 / 1e3;
            let bar = bars.iter().find(|bar| bar.0 <= ms && ms < bar.1).unwrap();
            assert!(bar.2 >= count, "{us} us in {bar:?}");
        }
        assert!(bars.windows(2).all(|pair| pair[0].1 == pair[1].0));
    }

    #[test]
    fn few_seconds_are_shown_each_and_many_with_their_extremes() {
        let (seconds_each, bins) = rates(&[10, 20, 5]);
        assert_eq!(seconds_each, 1);
        assert_eq!(bins[2], RateBin { mean: 5.0, least: 5, most: 5 });
        let hour: Vec<u64> = (0..3_600).collect();
        let (seconds_each, bins) = rates(&hour);
        assert_eq!((seconds_each, bins.len()), (12, 300));
        assert_eq!(bins[1], RateBin { mean: 17.5, least: 12, most: 23 });
        assert_eq!(rates(&hour[..301]).1.last(), Some(&RateBin { mean: 300.0, least: 300, most: 300 }));
        assert_eq!(rates(&[]), (1, Vec::new()));
        assert_eq!(worst(&Timeline::default()), (1, Vec::new()));
    }
}
