//! Keys and values in JSON: a string, or `{"hex": "00ff"}` for bytes that are no UTF-8.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The one name in the object of bytes that are no UTF-8.
const HEX: &str = "hex";

/// Bytes of a key or a value. In JSON: a string, or `{"hex": "00ff"}` for bytes that are no UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes<'a>(pub Cow<'a, [u8]>);

impl Bytes<'_> {
    /// A copy of the bytes.
    #[must_use]
    pub fn of(bytes: impl Into<Vec<u8>>) -> Bytes<'static> {
        Bytes(Cow::Owned(bytes.into()))
    }
}

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(HEX, &to_hex(&self.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Bytes<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a string, or an object {{\"{HEX}\": \"00ff\"}}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
                Ok(text.as_bytes().to_vec())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<u8>, A::Error> {
                let wrong = || de::Error::custom(format!("the object is not {{\"{HEX}\": \"00ff\"}}"));
                let Some((name, digits)) = map.next_entry::<Cow<'_, str>, Cow<'_, str>>()? else { return Err(wrong()) };
                if name != HEX || map.next_entry::<Cow<'_, str>, de::IgnoredAny>()?.is_some() {
                    return Err(wrong());
                }
                from_hex(digits.as_bytes())
                    .ok_or_else(|| de::Error::custom(format!("'{digits}' are no pairs of hex digits")))
            }
        }

        deserializer.deserialize_any(Either).map(Bytes::of)
    }
}

/// The bytes as lower-case hex digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [byte >> 4, byte & 0xF].map(|half| char::from(DIGITS[usize::from(half)]));
    bytes.iter().flat_map(digits).collect()
}

/// The bytes of hex digits in either case; `None`: they are no pairs of such.
#[must_use]
pub fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    bytes.collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_readable_and_other_bytes_are_hex() {
        let every: Vec<u8> = (0..=255).collect();
        for (bytes, json) in [
            (&b""[..], "\"\""),
            (b"abc", "\"abc\""),
            (b"a\"\n\0", "\"a\\\"\\n\\u0000\""),
            ("M\u{fc}hle".as_bytes(), "\"M\u{fc}hle\""),
            (b"\x00\xff", "{\"hex\":\"00ff\"}"),
            (&every, &format!("{{\"hex\":\"{}\"}}", to_hex(&every))),
        ] {
            assert_eq!(serde_json::to_string(&Bytes(Cow::Borrowed(bytes))).expect("written"), json);
            assert_eq!(serde_json::from_str::<Bytes<'_>>(json).expect("read"), Bytes::of(bytes));
        }
        assert_eq!(serde_json::from_str::<Bytes<'_>>("{\"hex\":\"0AfF\"}").expect("read"), Bytes::of(*b"\x0a\xff"));
    }

    #[test]
    fn what_is_neither_form_is_refused() {
        for json in [
            "1",
            "null",
            "[1]",
            "{}",
            "{\"hex\":\"0\"}",
            "{\"hex\":\"0g\"}",
            "{\"text\":\"00\"}",
            "{\"hex\":\"00\",\"x\":1}",
        ] {
            assert!(serde_json::from_str::<Bytes<'_>>(json).is_err(), "{json}");
        }
    }
}
