//! Values of a command's own options; sysbench's options take bare numbers.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use workload::generators::insert_benchmark::Step;
use workload::generators::oltp::Workload;
use workload::keys::RandType;

/// Reads a number of rows: bare, or with k or M for a thousand or a million.
pub(crate) fn rows(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number of rows: write, for example, 10000 or 2M".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "more rows than a table can have".to_owned())
}

/// Longest time: a year.
pub(crate) const SECONDS_MAX: u64 = 31_536_000;

/// Reads a whole number of any type.
pub(crate) fn count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "not a whole number that fits: write, for example, 10".to_owned())
}

/// Reads a whole number in `range`.
pub(crate) fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let wrong = || format!("not a whole number from {} to {}", range.start(), range.end());
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(wrong)
    }
}

/// Reads whole seconds, bare as in sysbench.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let seconds: Option<u64> = text.parse().ok();
    seconds
        .filter(|&seconds| seconds <= SECONDS_MAX)
        .ok_or_else(|| format!("not whole seconds from 0 to {SECONDS_MAX}: write, for example, 60"))
}

/// Reads a switch, as in sysbench: `true`, `false`, `on` or `off`.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" => Ok(true),
        "false" | "off" => Ok(false),
        _ => Err("not one of true, false, on, off".to_owned()),
    }
}

/// Format of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs: an object a line.
    Json,
}

/// The value of `--rate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// As many transactions as the threads can run.
    Unlimited,
    /// This number of transactions a second.
    PerSecond(f64),
    /// This share of the rate that a first phase measures.
    Share(f64),
}

/// Reads a rate: a number of transactions per second, 0 for no limit, or a share such as `80%`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let wrong = || "not a rate: write transactions per second, as 5000, or a share of the maximum, as 80%".to_owned();
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| wrong())?;
        if !(percent > 0.0 && percent <= 1_000.0) {
            return Err("a share must be above 0% and at most 1000%".to_owned());
        }
        return Ok(Rate::Share(percent / 100.0));
    }
    match text.parse::<u32>() {
        Ok(0) => Ok(Rate::Unlimited),
        Ok(per_s) => Ok(Rate::PerSecond(f64::from(per_s))),
        Err(_) => Err(wrong()),
    }
}

/// The load that `bench` puts on a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// One of sysbench's workloads.
    Oltp(Workload),
    /// The insert benchmark.
    Insert,
    /// The order queue.
    Orders,
}

impl Benchmark {
    /// The name of the insert benchmark.
    pub(crate) const INSERT: &str = "insert_benchmark";

    /// The name of the order queue.
    pub(crate) const ORDERS: &str = "orders";

    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Benchmark::Oltp(workload) => workload.name(),
            Benchmark::Insert => Benchmark::INSERT,
            Benchmark::Orders => Benchmark::ORDERS,
        }
    }

    /// Whether it runs over `--tables` tables, not over a table per thread.
    pub(crate) const fn uses_tables(self) -> bool {
        match self {
            Benchmark::Oltp(workload) => workload.uses_tables(),
            Benchmark::Insert => false,
            Benchmark::Orders => true,
        }
    }
}

/// Reads a benchmark's name.
pub(crate) fn benchmark() -> impl TypedValueParser<Value = Benchmark> {
    let names = Workload::ALL.map(Workload::name).into_iter().chain([Benchmark::INSERT, Benchmark::ORDERS]);
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        Benchmark::INSERT => Ok(Benchmark::Insert),
        Benchmark::ORDERS => Ok(Benchmark::Orders),
        name => name.parse().map(Benchmark::Oltp),
    })
}

/// The requested steps of the insert benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steps(pub(crate) Vec<Step>);

/// Reads steps with commas between them. Preparing steps may appear only once.
pub(crate) fn steps(text: &str) -> Result<Steps, String> {
    let steps: Vec<Step> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.prepares()) {
        if steps[..at].contains(step) {
            return Err(format!("{step} is in it twice: leave one out"));
        }
    }
    Ok(Steps(steps))
}

/// Reads a distribution's name.
pub(crate) fn rand_type() -> impl TypedValueParser<Value = RandType> {
    PossibleValuesParser::new(RandType::ALL.map(RandType::name)).try_map(|name| name.parse::<RandType>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_decimal_multiples() {
        assert_eq!(rows("10000"), Ok(10_000));
        assert_eq!(rows("2M"), Ok(2_000_000));
        assert_eq!(rows("5k"), Ok(5_000));
        for wrong in ["", "M", "1.5M", "-3", "2G", "99999999999999999999", "18446744073709551615M"] {
            assert!(rows(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_numbers_or_shares() {
        assert_eq!(rate("0"), Ok(Rate::Unlimited));
        assert_eq!(rate("5000"), Ok(Rate::PerSecond(5_000.0)));
        assert_eq!(rate("80%"), Ok(Rate::Share(0.8)));
        for wrong in ["", "%", "-1", "0%", "1001%", "NaN%", "5k", "1e9"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_and_seconds_are_whole_and_bare() {
        assert_eq!(count("0"), Ok(0_u64));
        assert_eq!(count("12"), Ok(12_u32));
        for wrong in ["", "-1", "1.5", "4294967296", "ten"] {
            assert!(count::<u32>(wrong).is_err(), "{wrong}");
        }
        let threads = whole(1..=64_u8);
        assert_eq!((threads("1"), threads("64")), (Ok(1), Ok(64)));
        for wrong in ["0", "65", "1e9", "", "-1", "99999999999999999999"] {
            assert_eq!(threads(wrong), Err("not a whole number from 1 to 64".to_owned()), "{wrong}");
        }
        assert_eq!(seconds("60"), Ok(60));
        for wrong in ["60s", "-1", "31536001"] {
            assert!(seconds(wrong).unwrap_err().contains("31536000"), "{wrong}");
        }
    }

    #[test]
    fn steps_have_commas_between_them_and_load_once() {
        assert_eq!(steps("l.i0,qr7,qr7").map(|steps| steps.0.len()), Ok(3));
        assert!(steps("l.x,l.i1,l.x").is_err_and(|why| why.contains("l.x is in it twice")));
        for wrong in ["", "l.i0,", "l.i0 l.x"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn switches_are_words() {
        for (text, value) in [("true", true), ("on", true), ("false", false), ("off", false)] {
            assert_eq!(switch(text), Ok(value));
        }
        for wrong in ["", "yes", "1", "True"] {
            assert_eq!(switch(wrong), Err("not one of true, false, on, off".to_owned()));
        }
    }
}
