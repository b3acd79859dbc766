//! Values that have names on the command line.

/// The value of `all` with the name `text`; otherwise an error that lists the names.
pub(crate) fn by_name<T: Copy, const N: usize>(
    text: &str,
    all: [T; N],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let found = all.into_iter().find(|value| name(*value) == text);
    found.ok_or_else(|| format!("not one of {}", all.map(name).join(", ")))
}
