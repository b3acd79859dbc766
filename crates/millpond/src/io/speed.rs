//! A device's speed, as arithmetic: writes and bytes a second, with slower periods.

/// A device's speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Writes a second, whatever their size.
    pub writes_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Slower periods. Where several overlap, the first in the list counts.
    pub slower: Vec<Slower>,
}

/// A period in which a device is slower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slower {
    /// Its begin, in nanoseconds from the device's begin.
    pub from_ns: u64,
    /// Its length, in nanoseconds.
    pub for_ns: u64,
    /// It recurs after this many nanoseconds; 0: never.
    pub every_ns: u64,
    /// The remaining part of the speed: 0 to 1.
    pub factor: f64,
}

impl Slower {
    /// Whether the device is slower at `at_ns`, and until when that stays so.
    fn at(&self, at_ns: u64) -> (bool, u64) {
        let Some(since) = at_ns.checked_sub(self.from_ns) else { return (false, self.from_ns) };
        let (lap, within) = match self.every_ns {
            0 => (0, since),
            every => (since / every, since % every),
        };
        let begin = self.from_ns + lap * self.every_ns;
        match (within < self.for_ns, self.every_ns) {
            (true, _) => (true, begin + self.for_ns),
            (false, 0) => (false, u64::MAX),
            (false, every) => (false, begin + every),
        }
    }
}

impl Speed {
    /// A device that does `writes_per_s` writes a second, and is never slower.
    pub fn of_writes(writes_per_s: f64) -> Speed {
        Speed { writes_per_s, bytes_per_s: f64::INFINITY, slower: Vec::new() }
    }

    /// The part of its speed that the device has at `at_ns`, and until when that stays so.
    fn factor(&self, at_ns: u64) -> (f64, u64) {
        let mut until = u64::MAX;
        for slower in &self.slower {
            let (is_slower, change) = slower.at(at_ns);
            until = until.min(change);
            if is_slower {
                return (slower.factor, until);
            }
        }
        (1.0, until)
    }

    /// When `writes` writes of `bytes` in total, done one after the other from `begin_ns`, are done.
    pub fn end_of(&self, begin_ns: u64, writes: u64, bytes: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let mut left_ns = (writes as f64 / self.writes_per_s).max(bytes as f64 / self.bytes_per_s) * 1e9;
        let mut at_ns = begin_ns;
        loop {
            let (factor, until) = self.factor(at_ns);
            #[expect(clippy::cast_precision_loss, reason = "a span of hours is below 2^53 ns")]
            let can = if until == u64::MAX { f64::INFINITY } else { (until - at_ns) as f64 * factor };
            if left_ns <= can && factor > 0.0 {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
                let rest_ns = (left_ns / factor) as u64;
                return at_ns + rest_ns;
            }
            if until == u64::MAX {
                return u64::MAX;
            }
            left_ns -= can;
            at_ns = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_slow_time_takes_longer_and_a_stop_all_of_it() {
        let mut speed = Speed::of_writes(1000.0);
        assert_eq!(speed.end_of(S, 100, 0), S + S / 10);
        speed.slower.push(Slower { from_ns: S, for_ns: 2 * S, every_ns: 10 * S, factor: 0.1 });
        assert_eq!(speed.end_of(S, 100, 0), 2 * S);
        assert_eq!(speed.end_of(0, 1000, 0), S);
        assert_eq!(speed.end_of(0, 1100, 0), 2 * S);
        assert_eq!(speed.end_of(2 * S, 200, 0), 3 * S + S / 10, "a hundred in the slow second, the rest in full speed");
        assert_eq!(speed.end_of(11 * S, 100, 0), 12 * S, "again");
        speed.slower.insert(0, Slower { from_ns: 5 * S, for_ns: S / 2, every_ns: 0, factor: 0.0 });
        assert_eq!(speed.end_of(5 * S - 1, 0, 0), 5 * S - 1);
        assert_eq!(speed.end_of(5 * S, 1, 0), 5 * S + S / 2 + S / 1000);
        speed.bytes_per_s = 1e6;
        assert_eq!(speed.end_of(7 * S, 1, 1_000_000), 8 * S);
    }
}
