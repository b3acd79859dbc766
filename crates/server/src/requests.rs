//! Requests on the socket that take their time, and their answers: each is one line of JSON.
//!
//! `{"count": {"of": "films"}}` is a request. Its answer is any number of lines `{"progress": ...}` and `{"row": ...}`,
//! then one line `{"done": ...}` or `{"error": "..."}`. Without such a last line the answer is cut short.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

/// A request that takes its time. `of` names a tree or a table. Reads are of one snapshot, taken for the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// A backup to a directory, which is new or empty.
    Backup {
        /// The absolute path of the directory.
        to: Bytes,
        /// Most bytes of the data file a second; left out: the engine's default.
        #[serde(default)]
        rate: Option<u64>,
    },
    /// A check of every page, row and index entry.
    Check {
        /// Most bytes a second; left out: the engine's default.
        #[serde(default)]
        rate: Option<u64>,
    },
    /// The data file made short: its free end goes back to the file system.
    Compact {
        /// Most bytes moved a second; left out: the engine's default.
        #[serde(default)]
        rate: Option<u64>,
    },
    /// Facts about the database.
    Info {},
    /// The row of a key, if there is one.
    Get {
        /// The tree or table.
        of: String,
        /// The key.
        key: Bytes,
    },
    /// The rows of a range.
    Scan(Rows),
    /// The number of rows of a range.
    Count(Rows),
}

/// Rows of a tree or table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// The tree or table.
    pub of: String,
    /// The index whose fields the range is of, and whose order the rows have; left out: the primary key's.
    #[serde(default)]
    pub index: Option<String>,
    /// The first key, or fields; left out: from the begin.
    #[serde(default)]
    pub from: Option<Bytes>,
    /// The first key, or fields, behind the range; left out: to the end.
    #[serde(default)]
    pub before: Option<Bytes>,
    /// From the last row back.
    #[serde(default)]
    pub is_reverse: bool,
    /// The most rows; left out: all.
    #[serde(default)]
    pub limit: Option<u64>,
}

/// Names and values, for people.
pub type Facts = Vec<(String, String)>;

/// A line of an answer. A server sends rows of borrowed bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", bound(serialize = "B: AsRef<[u8]>", deserialize = "Bytes<B>: Deserialize<'de>"))]
pub enum Answer<B = Vec<u8>> {
    /// How far a backup, a check or a compaction is: bytes.
    Progress {
        /// Bytes that are done.
        done: u64,
        /// All bytes.
        total: u64,
    },
    /// A row.
    Row {
        /// Its primary key.
        key: Bytes<B>,
        /// Its value.
        value: Bytes<B>,
    },
    /// The last line: all is done.
    Done(Facts),
    /// The last line: nothing more comes, and why.
    Error(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_written_by_hand_needs_only_what_it_asks_for() {
        let rows = |of: &str| Rows { of: of.to_owned(), ..Rows::default() };
        for (line, wanted) in [
            (r#"{"info": {}}"#, Request::Info {}),
            (r#"{"check": {}}"#, Request::Check { rate: None }),
            (r#"{"compact": {"rate": 9}}"#, Request::Compact { rate: Some(9) }),
            (r#"{"backup": {"to": "/b"}}"#, Request::Backup { to: Bytes(b"/b".to_vec()), rate: None }),
            (r#"{"count": {"of": "t"}}"#, Request::Count(rows("t"))),
            (
                r#"{"scan": {"of": "t", "from": "a", "before": {"hex": "ff"}, "limit": 3}}"#,
                Request::Scan(Rows {
                    from: Some(Bytes(b"a".to_vec())),
                    before: Some(Bytes(vec![0xFF])),
                    limit: Some(3),
                    ..rows("t")
                }),
            ),
        ] {
            let read: Request = serde_json::from_str(line).expect(line);
            assert_eq!(read, wanted);
            let again = serde_json::to_string(&read).expect("written");
            assert_eq!(serde_json::from_str::<Request>(&again).expect("read"), wanted);
        }
        for wrong in [
            r#"{"drop": {"of": "t"}}"#,
            r#"{"count": {}}"#,
            r#"{"check": {"rat": 1}}"#,
            r#"{"scan": {"of": "t", "most": 1}}"#,
            "{",
        ] {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
        }
    }
}
