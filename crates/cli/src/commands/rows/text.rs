//! Bytes as text: printable UTF-8 stays as it is; the rest is escaped, as are backslash, tab and line end.

/// What a mistake in an escape says.
const ESCAPES: &str = r"write \\ for a backslash, or one of \t, \n, \r, \xNN (two hex digits)";

/// Most characters of a value in an error.
const SHOWN_MAX: usize = 40;

/// Appends `bytes` to `out` as text without tab, line end and control characters.
pub(super) fn append_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    // Most keys and values: copied in one piece.
    if bytes.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\') {
        return out.extend_from_slice(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut encoded = [0; 4];
            match c {
                '\t' => out.extend_from_slice(br"\t"),
                '\n' => out.extend_from_slice(br"\n"),
                '\r' => out.extend_from_slice(br"\r"),
                '\\' => out.extend_from_slice(br"\\"),
                c if c.is_control() => append_hex_escapes(c.encode_utf8(&mut encoded).as_bytes(), out),
                c => out.extend_from_slice(c.encode_utf8(&mut encoded).as_bytes()),
            }
        }
        append_hex_escapes(chunk.invalid(), out);
    }
}

fn append_hex_escapes(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.extend_from_slice(br"\x");
        out.extend_from_slice(hex::encode([*byte]).as_bytes());
    }
}

/// The bytes of a text with escapes.
///
/// # Errors
/// A backslash begins no escape.
pub(super) fn unescaped(text: &[u8]) -> Result<Vec<u8>, String> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let behind = &rest[at + 1..];
        let (byte, len) = match behind {
            [b't', ..] => (b'\t', 1),
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => match hex::decode([*high, *low]).as_deref() {
                Ok([byte]) => (*byte, 3),
                _ => return Err(no_escape(&rest[at..])),
            },
            _ => return Err(no_escape(&rest[at..])),
        };
        out.push(byte);
        rest = &behind[len..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

fn no_escape(text: &[u8]) -> String {
    let begin: String = String::from_utf8_lossy(&text[..text.len().min(4)]).chars().take(2).collect();
    format!("'{begin}' is no escape: {ESCAPES}")
}

/// The beginning of a line, in quotes, for an error. Its own escapes stay as they are.
pub(super) fn shown_line(line: &[u8]) -> String {
    let begin = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN_MAX)]);
    let mut text = String::from("'");
    for c in begin.chars().take(SHOWN_MAX) {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text.push_str(if line.len() > begin.len() || begin.chars().count() > SHOWN_MAX { "...'" } else { "'" });
    text
}

/// The beginning of a key or a value, in quotes, for an error.
pub(super) fn shown(bytes: &[u8]) -> String {
    // A character has at most four bytes, and an escape as many characters.
    let begin = &bytes[..bytes.len().min(4 * SHOWN_MAX)];
    let mut text = Vec::new();
    append_escaped(begin, &mut text);
    let text = String::from_utf8_lossy(&text);
    let short: String = text.chars().take(SHOWN_MAX).collect();
    let dots = if short.len() < text.len() || begin.len() < bytes.len() { "..." } else { "" };
    format!("'{short}{dots}'")
}

/// A key or a value on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) Vec<u8>);

/// Reads a key or a value on a command line.
pub(super) fn word(text: &str) -> Result<Word, String> {
    let number = |kind: &str, most: &str| format!("not a number from 0 to {most}: write, for example, {kind}:7");
    let bytes = match text.split_once(':') {
        Some(("hex", digits)) => {
            hex::decode(digits).map_err(|why| format!("not pairs of hex digits ({why}): write, for example, hex:00ff"))
        }
        Some(("u32", digits)) => {
            let wrong = |_| number("u32", "4294967295");
            digits.parse::<u32>().map(|number| number.to_be_bytes().to_vec()).map_err(wrong)
        }
        Some(("u64", digits)) => {
            let wrong = |_| number("u64", "18446744073709551615");
            digits.parse::<u64>().map(|number| number.to_be_bytes().to_vec()).map_err(wrong)
        }
        Some(("text", text)) => unescaped(text.as_bytes()),
        _ => unescaped(text.as_bytes()),
    };
    bytes.map(Word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        append_escaped(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_byte_comes_back_from_printable_text() {
        let all: Vec<u8> = (0..=255).collect();
        let text = escaped(&all);
        assert!(text.chars().all(|c| !c.is_control()), "{text}");
        assert_eq!(unescaped(text.as_bytes()), Ok(all));
        for (bytes, text) in [
            (&b"a\tb\nc\r\\"[..], r"a\tb\nc\r\\"),
            ("\u{e4}\u{1F600}\u{85}".as_bytes(), "\u{e4}\u{1F600}\\xc2\\x85"),
            (b"\x00\x1b\x7f\xff", r"\x00\x1b\x7f\xff"),
            (b"", ""),
        ] {
            assert_eq!(escaped(bytes), text);
            assert_eq!(unescaped(text.as_bytes()), Ok(bytes.to_vec()));
        }
    }

    #[test]
    fn backslash_that_begins_no_escape_is_refused() {
        for wrong in [r"\", r"a\q", r"\x0", r"\xg0", r"\x", r"\0"] {
            let said = unescaped(wrong.as_bytes()).unwrap_err();
            assert!(said.contains("is no escape: write \\\\ for a backslash"), "{wrong}: {said}");
        }
    }

    #[test]
    fn words_are_text_or_numbers_or_hex() {
        for (text, bytes) in [
            ("tom", &b"tom"[..]),
            ("", b""),
            (r"a\x00", b"a\x00"),
            ("hex:00fF", b"\x00\xff"),
            ("hex:", b""),
            ("u32:7", b"\0\0\0\x07"),
            ("u64:256", b"\0\0\0\0\0\0\x01\0"),
            ("text:hex:00", b"hex:00"),
            ("http://a", b"http://a"),
        ] {
            assert_eq!(word(text), Ok(Word(bytes.to_vec())), "{text}");
        }
        for (text, why) in [
            ("hex:0", "for example, hex:00ff"),
            ("u32:4294967296", "from 0 to 4294967295: write, for example, u32:7"),
            ("u64:-1", "for example, u64:7"),
            (r"\z", "no escape"),
        ] {
            assert!(word(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn line_is_shown_with_its_own_escapes() {
        assert_eq!(shown_line(b"a\t\\q\r"), r"'a\t\q\r'");
        assert_eq!(shown_line(&[b'x'; 10_000_000]), format!("'{}...'", "x".repeat(40)));
        assert_eq!(shown_line(&[b'x'; 41]), format!("'{}...'", "x".repeat(40)));
        assert_eq!(shown_line("\u{e4}".repeat(40).as_bytes()), format!("'{}'", "\u{e4}".repeat(40)));
    }

    #[test]
    fn long_value_is_short_in_errors() {
        assert_eq!(shown(b"a\tb"), r"'a\tb'");
        assert_eq!(shown(&[b'x'; 100]), format!("'{}...'", "x".repeat(40)));
        assert_eq!(shown(&[b'x'; 10_000_000]), format!("'{}...'", "x".repeat(40)));
        assert_eq!(shown("\u{e4}".repeat(40).as_bytes()), format!("'{}'", "\u{e4}".repeat(40)));
    }
}
