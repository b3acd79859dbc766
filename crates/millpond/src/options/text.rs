//! The values of options as text: names, numbers, sizes and times.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;

use crate::options::durability::Durability;

/// The value that `text` names among `values`.
pub(crate) fn named<T: Copy>(values: &[(&str, T)], text: &str) -> Result<T, String> {
    let found = values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| format!("not one of {}", values.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")))
}

/// The first name of `value`.
pub(crate) fn name_of<T: Copy + PartialEq>(values: &[(&str, T)], value: T) -> String {
    values.iter().find(|(_, listed)| *listed == value).map(|(name, _)| (*name).to_owned()).unwrap_or_default()
}

pub(crate) fn number(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let wrong = || format!("use {} to {}", range.start(), range.end());
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(wrong)
}

pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
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

/// Milliseconds of a time such as `20ms` or `2s`.
pub(crate) fn time_ms(text: &str) -> Option<u64> {
    match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(ms), _) => ms.parse().ok(),
        (None, Some(s)) => s.parse::<u64>().ok()?.checked_mul(1_000),
        (None, None) => None,
    }
}

pub(crate) fn time_text(ms: u64) -> String {
    if ms > 0 && ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}

pub(crate) fn millis_text(time: Duration) -> String {
    time_text(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) fn durability(text: &str) -> Result<Durability, String> {
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

pub(crate) fn durability_text(durability: Durability) -> String {
    match durability {
        Durability::Commit => "commit".to_owned(),
        Durability::Written => "written".to_owned(),
        Durability::Background(ms) => format!("background({})", time_text(u64::from(ms))),
        Durability::None => "none".to_owned(),
    }
}
