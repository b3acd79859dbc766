//! Values that go by names on the command line.

/// The one of `all` that is called `text`; otherwise what there is to choose from.
pub(crate) fn by_name<T: Copy, const N: usize>(
    text: &str,
    all: [T; N],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let found = all.into_iter().find(|value| name(*value) == text);
    found.ok_or_else(|| format!("not one of {}", all.map(name).join(", ")))
}
