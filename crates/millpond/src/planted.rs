//! Planted bugs, to check that the tests find them: `make planted`.
//!
//! A build with `--cfg planted` contains all of them, asleep; `MILLPOND_PLANTED` names the one that is awake. Other
//! builds contain none: there `planted!` is `false`.

#[cfg(planted)]
pub(crate) fn is_awake(bug: &str) -> bool {
    static AWAKE: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("MILLPOND_PLANTED").ok());
    AWAKE.as_deref() == Some(bug)
}

#[cfg(not(planted))]
pub(crate) const fn is_awake(_bug: &str) -> bool {
    false
}

/// Whether the bug of this name is awake.
macro_rules! planted {
    ($bug:literal) => {
        $crate::planted::is_awake($bug)
    };
}
