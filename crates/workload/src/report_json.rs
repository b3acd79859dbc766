//! A run as JSON: one object a line, for programs. `docs/bench-output.md` lists the fields in tables.
//!
//! A schema may gain fields, but never renames or drops one.

use serde::Serialize;

/// The version of the fields' names and meanings.
pub const SCHEMA: u32 = 1;

/// A line: schema and kind first, then the figures.
#[derive(Serialize)]
struct Line<'a, T> {
    schema: u32,
    kind: &'a str,
    #[serde(flatten)]
    figures: &'a T,
}

/// `figures` as a line of `kind`, with a line end.
pub fn line<T: Serialize>(kind: &str, figures: &T) -> String {
    let line = Line { schema: SCHEMA, kind, figures };
    let mut text = serde_json::to_string(&line).expect("figures have names for keys and nothing that can fail");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Two {
        rate_per_s: f64,
        name: &'static str,
    }

    #[test]
    fn line_is_one_object_with_schema_and_kind_first() {
        assert_eq!(
            line("interval", &Two { rate_per_s: 1.5, name: "a \"b\"\n" }),
            "{\"schema\":1,\"kind\":\"interval\",\"rate_per_s\":1.5,\"name\":\"a \\\"b\\\"\\n\"}\n"
        );
    }
}
