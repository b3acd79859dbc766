//! Bytes in JSON: a string if they are UTF-8, otherwise an object with hex digits, `{"hex":"00ff"}`.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The only name in the object of bytes that are no UTF-8.
const HEX: &str = "hex";

/// Bytes that JSON shows as they are if they are UTF-8, and else in hex. Each sequence of bytes comes back as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes<B = Vec<u8>>(pub B);

impl<B: AsRef<[u8]>> Serialize for Bytes<B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.0.as_ref();
        if let Ok(text) = std::str::from_utf8(bytes) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(HEX, &hex::encode(bytes))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a string, or {"hex":"00ff"} for bytes that are no UTF-8"#)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
        Ok(Bytes(text.as_bytes().to_vec()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Bytes, E> {
        Ok(Bytes(text.into_bytes()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bytes, A::Error> {
        let (mut bytes, mut names) = (None, 0);
        while let Some(name) = map.next_key::<String>()? {
            if name != HEX {
                return Err(de::Error::unknown_field(&name, &[HEX]));
            }
            names += 1;
            let digits: String = map.next_value()?;
            let wrong = |why| de::Error::custom(format_args!("\"hex\" has no pairs of hex digits: {why}"));
            bytes = Some(hex::decode(digits).map_err(wrong)?);
        }
        match bytes {
            Some(bytes) if names == 1 => Ok(Bytes(bytes)),
            Some(_) => Err(de::Error::duplicate_field(HEX)),
            None => Err(de::Error::missing_field(HEX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf8_is_a_string_and_other_bytes_are_hex() {
        for (bytes, json) in [
            (&b""[..], r#""""#),
            (b"tom \"the\" cat\n", r#""tom \"the\" cat\n""#),
            ("\u{e4}".as_bytes(), "\"\u{e4}\""),
            (b"\x00\xff", r#"{"hex":"00ff"}"#),
            (b"\xed\xa0\x80", r#"{"hex":"eda080"}"#),
        ] {
            assert_eq!(serde_json::to_string(&Bytes(bytes)).expect("has a form"), json);
            assert_eq!(serde_json::from_str::<Bytes>(json).expect("has a form"), Bytes(bytes.to_vec()));
        }
        // Hex is taken for any bytes, in either case.
        assert_eq!(serde_json::from_str::<Bytes>(r#"{"hex":"4A4b"}"#).expect("has a form"), Bytes(b"JK".to_vec()));
    }

    #[test]
    fn json_that_is_no_bytes_is_refused() {
        for (json, why) in [
            ("7", r#"expected a string, or {"hex":"00ff"}"#),
            ("{}", "missing field `hex`"),
            (r#"{"hex":"0"}"#, "no pairs of hex digits: Odd number of digits"),
            (r#"{"hex":"0g"}"#, "no pairs of hex digits: Invalid character 'g'"),
            (r#"{"hex":"00","hex":"11"}"#, "duplicate field `hex`"),
            (r#"{"hex":"00","more":1}"#, "unknown field `more`"),
            (r#""\ud800""#, "hex escape"),
        ] {
            let said = serde_json::from_str::<Bytes>(json).expect_err("refused").to_string();
            assert!(said.contains(why), "{json}: {said}");
        }
        let said = serde_json::from_slice::<Bytes>(b"\"\xff\"").expect_err("refused").to_string();
        assert!(said.contains("invalid unicode code point"), "{said}");
    }
}
