//! Rows as lines. In each form every key and value comes back byte for byte.

use clap::ValueEnum;
use millpond::OwnedRow;
use millpond_server::Bytes;
use serde::{Deserialize, Serialize};

use super::text::{append_escaped, unescaped};

/// The first line of a table with tabs.
const HEADING: &str = "key\tvalue";

/// How rows are written, a line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Key, a tab, value, with escapes
    Text,
    /// The same in hex digits
    Hex,
    /// A JSON object
    Jsonl,
    /// As text, below a heading
    Tsv,
}

/// A row in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(serialize = "Bytes<B>: Serialize", deserialize = "Bytes<B>: Deserialize<'de>"))]
struct Row<B> {
    key: Bytes<B>,
    value: Bytes<B>,
}

impl Form {
    /// The line before the first row, if there is one.
    pub(super) fn heading(self) -> Option<&'static str> {
        (self == Form::Tsv).then_some(HEADING)
    }

    /// Appends a row and its line end.
    pub(super) fn append_row(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match self {
            Form::Jsonl => append_json(&Row { key: Bytes(key), value: Bytes(value) }, out),
            form => {
                form.append_piece(key, out);
                out.push(b'\t');
                form.append_piece(value, out);
            }
        }
        out.push(b'\n');
    }

    /// Appends what `get` prints: text and hex show the value alone, the other forms the row.
    pub(super) fn append_found(self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if matches!(self, Form::Jsonl | Form::Tsv) {
            return self.append_row(key, value, out);
        }
        self.append_piece(value, out);
        out.push(b'\n');
    }

    /// Appends a key or a value.
    fn append_piece(self, bytes: &[u8], out: &mut Vec<u8>) {
        if self == Form::Hex {
            let from = out.len();
            out.resize(from + 2 * bytes.len(), 0);
            // The length is right, so it cannot fail.
            let _ = hex::encode_to_slice(bytes, &mut out[from..]);
        } else {
            append_escaped(bytes, out);
        }
    }

    /// The key and the value of a line.
    ///
    /// # Errors
    /// It is no row of this form: the reason, with the way out.
    pub(super) fn row(self, line: &[u8]) -> Result<OwnedRow, String> {
        if self == Form::Jsonl {
            let row: Row<Vec<u8>> = parsed(line).map_err(|why| {
                format!(
                    r#"{why}: write {{"key":"...","value":"..."}}, with {{"hex":"00ff"}} for bytes that are no UTF-8"#
                )
            })?;
            return Ok((row.key.0, row.value.0));
        }
        if line.ends_with(b"\r") {
            return Err("ends with CR LF: convert the line ends (tr -d '\\r'), or write \\r for that byte".to_owned());
        }
        let mut pieces = line.split(|byte| *byte == b'\t');
        match (pieces.next(), pieces.next(), pieces.next()) {
            (Some(key), Some(value), None) => Ok((self.piece(key)?, self.piece(value)?)),
            (_, Some(_), Some(_)) => Err("has more than one tab: write \\t for a tab in a key or value".to_owned()),
            _ => Err("has no tab: write the key, a tab and the value, or name another --format".to_owned()),
        }
    }

    fn piece(self, text: &[u8]) -> Result<Vec<u8>, String> {
        if self != Form::Hex {
            return unescaped(text).map_err(|why| format!("is wrong: {why}"));
        }
        hex::decode(text).map_err(|why| format!("is no hex ({why}): write two digits a byte, with nothing between"))
    }
}

/// Appends a value as JSON without control characters.
pub(super) fn append_json(value: &impl Serialize, out: &mut Vec<u8>) {
    let json = serde_json::to_string(value).expect("names of fields are strings");
    if !json.chars().any(char::is_control) {
        return out.extend_from_slice(json.as_bytes());
    }
    for c in json.chars() {
        let mut encoded = [0; 4];
        match c {
            // DEL and those above it, which JSON allows in a string as they are. A terminal may obey them.
            c if c.is_control() => out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut encoded).as_bytes()),
        }
    }
}

/// The value of a line of JSON.
///
/// # Errors
/// The reason, without the number of the line, which is always 1.
pub(super) fn parsed<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|why| {
        let said = why.to_string();
        let what = said.rsplit_once(" at line ").map_or(said.as_str(), |(what, _)| what);
        format!("is not what it should be ({what}, column {})", why.column())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Form; 4] = [Form::Text, Form::Hex, Form::Jsonl, Form::Tsv];

    fn line(form: Form, key: &[u8], value: &[u8]) -> String {
        let mut out = Vec::new();
        form.append_row(key, value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_row_comes_back_in_every_form() {
        let all: Vec<u8> = (0..=255).collect();
        let (long, text) = (vec![0xA5; 1 << 20], "t\u{f6}m\u{9b}\u{7f}\u{2028}".as_bytes());
        let pieces = [&b""[..], b"tom", &all, &long, text, b"\\x00\\", b"{\"hex\":\"00\"}", b"\xed\xa0\x80", b"\r"];
        for form in ALL {
            for key in pieces {
                for value in pieces {
                    let line = line(form, key, value);
                    let line = line.strip_suffix('\n').unwrap();
                    assert!(line.chars().all(|c| c == '\t' || !c.is_control()), "{form:?}");
                    assert_eq!(form.row(line.as_bytes()), Ok((key.to_vec(), value.to_vec())), "{form:?}");
                }
            }
        }
    }

    #[test]
    fn forms_look_as_documented() {
        for (form, row, found) in [
            (Form::Text, "a\\x00\tb\\\\\n", "b\\\\\n"),
            (Form::Hex, "6100\t625c\n", "625c\n"),
            (
                Form::Jsonl,
                "{\"key\":\"a\\u0000\",\"value\":\"b\\\\\"}\n",
                "{\"key\":\"a\\u0000\",\"value\":\"b\\\\\"}\n",
            ),
            (Form::Tsv, "a\\x00\tb\\\\\n", "a\\x00\tb\\\\\n"),
        ] {
            assert_eq!(line(form, b"a\0", b"b\\"), row);
            let mut out = Vec::new();
            form.append_found(b"a\0", b"b\\", &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), found);
        }
        assert_eq!(
            line(Form::Jsonl, b"\xff", "\u{9b}".as_bytes()),
            "{\"key\":{\"hex\":\"ff\"},\"value\":\"\\u009b\"}\n"
        );
    }

    #[test]
    fn lines_that_are_no_rows_are_refused_with_a_way_out() {
        for (form, line, why) in [
            (Form::Text, &b"tom"[..], "has no tab"),
            (Form::Text, b"", "has no tab"),
            (Form::Tsv, b"a\tb\tc", "write \\t for a tab"),
            (Form::Text, b"a\tb\r", "tr -d '\\r'"),
            (Form::Text, b"a\t\\q", "no escape"),
            (Form::Hex, b"61\t6", "two digits a byte"),
            (Form::Hex, b"0x61\t62", "Invalid character 'x'"),
            (Form::Jsonl, b"{\"key\":\"a\"}", "missing field `value`, column 11"),
            (Form::Jsonl, b"{\"key\":\"a\",\"value\":\"\xff\"}", "for bytes that are no UTF-8"),
            (Form::Jsonl, b"{\"key\":\"a\",\"value\":\"\"} x", "trailing characters"),
            (Form::Jsonl, b"", "EOF while parsing"),
        ] {
            let said = form.row(line).unwrap_err();
            assert!(said.contains(why), "{form:?} {line:?}: {said}");
        }
        // White space of JSON, as a line end of two characters leaves it.
        assert!(Form::Jsonl.row(b"{\"key\":\"a\", \"value\":\"\"}\r").is_ok());
    }
}
