//! Keys in messages: the first 32 bytes, escaped, in quotes.

pub(crate) fn quoted(key: &[u8]) -> String {
    let short = &key[..key.len().min(32)];
    let dots = if short.len() < key.len() { "..." } else { "" };
    format!("'{}{dots}'", short.escape_ascii())
}
