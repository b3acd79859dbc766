//! Spans of a run's time, in ns since its start: gaps, slow transactions, stops of the machine.

/// A gap or a transaction of at least this length is kept as a span: half of the least limit of a verdict.
pub const KEPT_FROM_NS: u64 = 50_000_000;

/// The most spans that one list keeps.
const KEPT_MAX: usize = 4_096;

/// Slow transactions that end in the same tenth of a second of one thread share an entry.
const MERGED_NS: u64 = 100_000_000;

/// From one moment to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Begin, in ns since the start of the run.
    pub from_ns: u64,
    /// End, in ns since the start of the run; never before the begin.
    pub to_ns: u64,
}

impl Span {
    /// The span between two times; empty if the second is the earlier one.
    pub fn new(from_ns: u64, to_ns: u64) -> Span {
        Span { from_ns, to_ns: to_ns.max(from_ns) }
    }

    /// Length in ns.
    pub fn len_ns(self) -> u64 {
        self.to_ns - self.from_ns
    }

    /// Length of the overlap with `others`, which are sorted and disjoint, as [`union`] returns them, in ns.
    pub fn within_ns(self, others: &[Span]) -> u64 {
        let shared = |other: &Span| other.to_ns.min(self.to_ns).saturating_sub(other.from_ns.max(self.from_ns));
        let first = others.partition_point(|other| other.to_ns <= self.from_ns);
        others[first..].iter().take_while(|other| other.from_ns < self.to_ns).map(shared).sum()
    }
}

/// Merges spans into sorted, disjoint spans that do not touch.
pub fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut apart: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match apart.last_mut() {
            Some(last) if span.from_ns <= last.to_ns => last.to_ns = last.to_ns.max(span.to_ns),
            _ => apart.push(span),
        }
    }
    apart
}

/// A slow transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slow {
    /// Arrival, in ns since the start of the run; in a closed loop, the begin.
    pub arrived_ns: u64,
    /// Begin, in ns since the start of the run.
    pub began_ns: u64,
    /// End, in ns since the start of the run.
    pub ended_ns: u64,
}

impl Slow {
    /// From arrival to end, in ns.
    pub fn latency_ns(self) -> u64 {
        self.ended_ns.saturating_sub(self.arrived_ns)
    }
}

/// The long gaps or slow transactions of one thread, in bounded memory: beyond the bound, the longest stay.
#[derive(Clone, Debug)]
pub struct Longest<T> {
    kept: Vec<T>,
}

impl<T> Default for Longest<T> {
    fn default() -> Longest<T> {
        Longest { kept: Vec::new() }
    }
}

impl<T: Copy> Longest<T> {
    /// The kept ones.
    pub fn kept(&self) -> &[T] {
        &self.kept
    }

    fn push(&mut self, one: T, length_ns: impl Fn(&T) -> u64) {
        self.kept.push(one);
        if self.kept.len() >= 2 * KEPT_MAX {
            self.kept.sort_unstable_by_key(|kept| std::cmp::Reverse(length_ns(kept)));
            self.kept.truncate(KEPT_MAX);
        }
    }
}

impl Longest<Span> {
    /// Keeps a gap.
    pub fn add(&mut self, gap: Span) {
        self.push(gap, |gap| gap.len_ns());
    }
}

impl Longest<Slow> {
    /// Keeps a transaction; of several that end within the same tenth of a second, the longest. That one spans nearly
    /// the whole time of the others, so little information is lost.
    pub fn add(&mut self, slow: Slow) {
        match self.kept.last_mut() {
            Some(last) if last.ended_ns / MERGED_NS == slow.ended_ns / MERGED_NS => {
                if last.latency_ns() < slow.latency_ns() {
                    *last = slow;
                }
            }
            _ => self.push(slow, |slow| slow.latency_ns()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from_ns: u64, to_ns: u64) -> Span {
        Span::new(from_ns, to_ns)
    }

    #[test]
    fn union_of_touching_spans_is_one() {
        let apart = union(vec![span(50, 60), span(0, 10), span(10, 20), span(55, 58), span(30, 31)]);
        assert_eq!(apart, [span(0, 20), span(30, 31), span(50, 60)]);
        assert_eq!(union(Vec::new()), []);
    }

    #[test]
    fn share_of_a_span_within_others_counts_each_part_once() {
        let others = [span(0, 20), span(30, 31), span(50, 60)];
        assert_eq!(span(10, 55).within_ns(&others), 10 + 1 + 5);
        assert_eq!(span(20, 30).within_ns(&others), 0);
        assert_eq!(span(52, 53).within_ns(&others), 1);
        assert_eq!(span(0, 99).within_ns(&[]), 0);
    }

    #[test]
    fn longest_of_too_many_gaps_stay() {
        let mut gaps = Longest::<Span>::default();
        for number in 0..20_000_u64 {
            gaps.add(span(number, 2 * number));
        }
        assert!(gaps.kept().len() < 2 * KEPT_MAX);
        assert!(gaps.kept().contains(&span(19_999, 39_998)));
    }

    #[test]
    fn slow_transactions_of_a_tenth_of_a_second_share_an_entry() {
        let slow = |arrived_ns, ended_ms: u64| Slow { arrived_ns, began_ns: 7, ended_ns: ended_ms * 1_000_000 };
        let mut kept = Longest::<Slow>::default();
        for (arrived_ns, ended_ms) in [(5, 110), (0, 150), (3, 190), (4, 210)] {
            kept.add(slow(arrived_ns, ended_ms));
        }
        assert_eq!(kept.kept(), [slow(3, 190), slow(4, 210)]);
    }
}
