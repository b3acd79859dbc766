//! The values of options as text: names, numbers, sizes and times.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::io::batch::IoEngine;
use crate::io::directory::GroupAccess;
use crate::options::durability::Durability;
use crate::options::page_store::PageStoreKind;
use crate::options::profile::Profile;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
use crate::pool::neighbors::FlushNeighbors;
use crate::pool::options::{DirtyTracking, EmptyFreeListAlgorithm, PageReplacement};
use crate::redo::log_spin::LogSpin;
use crate::redo::recent_closed::LogRecentClosed;
use crate::store::doublewrite::Doublewrite;

/// The type of an option's value.
///
/// A `range` is the text of the table. If it has two ends of this type, such as `0 to 64` or `1ms to 3600s`, they are
/// checked. Other ranges depend on other options, whose combinations `mistakes.rs` checks.
pub(crate) trait Value: Sized {
    /// The names of a choice.
    const NAMES: &'static str = "";

    fn parse(text: &str, range: &str) -> Result<Self, String>;

    /// The form that [`parse`](Self::parse) reads.
    fn text(&self) -> String;

    fn is_in(&self, _range: &str) -> bool {
        true
    }
}

/// Whether `value` lies between the ends of `range`, which `read` reads.
fn is_between<T: PartialOrd>(value: &T, range: &str, read: impl Fn(&str) -> Option<T>) -> bool {
    let (least, most) = range.split_once(" to ").unwrap_or_default();
    let most = most.strip_suffix(", or none").unwrap_or(most);
    read(least).zip(read(most)).is_none_or(|(least, most)| (least..=most).contains(value))
}

/// Declares the names of choices.
macro_rules! choices {
    ($($choice:ident: $first:ident $first_name:literal $(, $other:ident $name:literal)*;)*) => {$(
        impl Value for $choice {
            const NAMES: &'static str = concat!($first_name $(, ", ", $name)*);

            fn parse(text: &str, _range: &str) -> Result<Self, String> {
                match text {
                    $first_name => Ok($choice::$first),
                    $($name => Ok($choice::$other),)*
                    _ => Err(format!("not one of {}", Self::NAMES)),
                }
            }

            fn text(&self) -> String {
                match self {
                    $choice::$first => $first_name.to_owned(),
                    $($choice::$other => $name.to_owned(),)*
                }
            }
        }
    )*};
}

choices! {
    AdaptiveFlushingMethod:
        Envelope "envelope", Adaptive "adaptive", KeepAverage "keep_average", SyncOnly "sync_only";
    CleanerLsnAgeFactor: Legacy "legacy", HighCheckpoint "high_checkpoint";
    DirtyTracking: Scan "scan", FlushList "flush_list";
    Doublewrite: On "on", Off "off", DetectOnly "detect_only";
    EmptyFreeListAlgorithm: Handoff "handoff", Legacy "legacy", Backoff "backoff";
    FlushNeighbors: None "none", Area "area", Seq "seq";
    GroupAccess: None "none", Read "read", Write "write";
    IoEngine: Auto "auto", IoUring "io_uring", Threads "threads";
    LogRecentClosed: None "none", Poll "poll", Wake "wake", WakeIfUnset "wake_if_unset";
    LogSpin: Quota "quota", Affinity "affinity", Never "never";
    PageReplacement: S3Fifo "s3_fifo", MidpointLru "midpoint_lru";
    PageStoreKind: CopyOnWrite "copy_on_write", InPlace "in_place";
    Profile:
        Millpond "millpond", Mysql55 "mysql-5.5", Mysql56 "mysql-5.6", Mysql80 "mysql-8.0",
        Percona57 "percona-5.7", Percona80 "percona-8.0";
}

/// The name in options.
impl fmt::Display for PageStoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Value for bool {
    const NAMES: &'static str = "true, false";

    fn parse(text: &str, _range: &str) -> Result<Self, String> {
        match text {
            "true" | "on" => Ok(true),
            "false" | "off" => Ok(false),
            _ => Err(format!("not one of {}, on, off", Self::NAMES)),
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Value for $number {
            fn parse(text: &str, range: &str) -> Result<Self, String> {
                let number = text.parse().ok().filter(|number: &Self| number.is_in(range));
                number.ok_or_else(|| format!("use {range}"))
            }

            fn text(&self) -> String {
                self.to_string()
            }

            fn is_in(&self, range: &str) -> bool {
                is_between(self, range, |end| end.parse().ok())
            }
        }
    )*};
}

numbers! { u8 u16 usize }

impl Value for ByteSize {
    fn parse(text: &str, range: &str) -> Result<Self, String> {
        let size = size(text)?;
        if size.is_in(range) { Ok(size) } else { Err(format!("use {range}")) }
    }

    fn text(&self) -> String {
        size_text(*self)
    }

    fn is_in(&self, range: &str) -> bool {
        match range.split(", ").map(|one| size(one).ok()).collect::<Option<Vec<_>>>() {
            Some(sizes) => sizes.contains(self),
            None => is_between(self, range, |end| size(end).ok()),
        }
    }
}

fn size(text: &str) -> Result<ByteSize, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a size needs a unit: write, for example, 64MiB".to_owned());
    }
    text.parse().map_err(|_| "not a size: write, for example, 64MiB".to_owned())
}

/// A size in the largest unit of which it is a multiple.
pub(crate) fn size_text(size: ByteSize) -> String {
    let bytes = size.as_u64();
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = |(_, shift): &(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    units
        .into_iter()
        .find(fits)
        .map_or_else(|| format!("{bytes}B"), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

impl Value for Duration {
    fn parse(text: &str, range: &str) -> Result<Self, String> {
        let time = time_ms(text).map(Duration::from_millis).filter(|time| time.is_in(range));
        let example = if Duration::from_millis(20).is_in(range) { "20ms" } else { "10s" };
        time.ok_or_else(|| format!("not a time from {range}: write, for example, {example}"))
    }

    fn text(&self) -> String {
        let ms = self.as_millis();
        if ms > 0 && ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
    }

    fn is_in(&self, range: &str) -> bool {
        is_between(self, range, |end| time_ms(end).map(Duration::from_millis))
    }
}

/// `None` is `none`.
impl Value for Option<Duration> {
    fn parse(text: &str, range: &str) -> Result<Self, String> {
        if text == "none" { Ok(None) } else { Duration::parse(text, range).map(Some) }
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), Value::text)
    }

    fn is_in(&self, range: &str) -> bool {
        self.is_none_or(|time| time.is_in(range))
    }
}

/// Milliseconds of a time such as `20ms` or `2s`.
fn time_ms(text: &str) -> Option<u64> {
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => ms.parse().ok(),
        (None, Some(s)) => s.parse::<u64>().ok()?.checked_mul(1_000),
        (None, None) => None,
    }
}

impl Value for PathBuf {
    fn parse(text: &str, _range: &str) -> Result<Self, String> {
        if text.is_empty() { Err("name a path".to_owned()) } else { Ok(text.into()) }
    }

    fn text(&self) -> String {
        self.display().to_string()
    }
}

impl Value for Durability {
    fn parse(text: &str, _range: &str) -> Result<Self, String> {
        let parsed = match text {
            "commit" => Durability::Commit,
            "written" => Durability::Written,
            "none" => Durability::None,
            _ => {
                let time = text.strip_prefix("background(").and_then(|rest| rest.strip_suffix(')'));
                let time = time.ok_or("not one of commit, written, background(100ms), none")?;
                let wrong = "background needs a time with its unit: write, for example, background(100ms)";
                Durability::Background(time_ms(time).and_then(|ms| u32::try_from(ms).ok()).ok_or(wrong)?)
            }
        };
        parsed.validate().map(|()| parsed)
    }

    fn text(&self) -> String {
        match self {
            Durability::Commit => "commit".to_owned(),
            Durability::Written => "written".to_owned(),
            Durability::Background(ms) => format!("background({})", Duration::from_millis(u64::from(*ms)).text()),
            Durability::None => "none".to_owned(),
        }
    }
}
