//! The check of a table's indexes: every entry, computed anew from the rows.
//!
//! The check searches each row's entry, which finds missing entries. If an index has more entries than were found so,
//! the check walks the index, and looks up the row of each entry. So nothing is sorted, nor held in memory.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::quoted::quoted;
use crate::check::report::CheckReport;
use crate::engine::Engine;
use crate::engine::table_state::{IndexState, TableState};
use crate::engine::tree_state::TreeState;
use crate::read::reader::Reader;
use crate::read::scan::Scan;
use crate::schema::index_key::EntryBytes;

/// Most problems of an index that are reported one by one.
const TOLD_MAX: u64 = 20;

/// A table whose indexes are compared with its rows, and what the comparison sees.
pub(crate) struct Compared<'t> {
    pub(crate) engine: &'t Arc<Engine>,
    pub(crate) table: &'t TableState,
    pub(crate) reader: Reader,
}

/// Is told of the bytes that were read, may wait, and ends the comparison with an error.
pub(crate) type Tick<'t> = dyn FnMut(usize) -> Result<(), Error> + 't;

/// Bytes that a lookup counts as: the page that it may read.
const LOOKUP_BYTES: usize = 4096;

impl Compared<'_> {
    /// A scan of all rows of a tree of the table.
    pub(crate) fn all(&self, tree: &Arc<TreeState>) -> Scan {
        Scan::new(self.engine, tree, self.reader.clone(), Some((Bound::Unbounded, Bound::Unbounded)))
    }

    fn get(&self, tree: &TreeState, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.reader.unless_ended(tree.get(self.engine, key, self.reader.view()))
    }
}

/// The findings on an index.
struct Findings<'t> {
    index: &'t IndexState,
    /// Rows whose entry is there.
    right: u64,
    /// The number of problems. The first [`TOLD_MAX`] are reported.
    problems: u64,
}

impl Findings<'_> {
    fn tell(&mut self, report: &mut CheckReport, what: std::fmt::Arguments<'_>) {
        self.problems += 1;
        if self.problems <= TOLD_MAX {
            report.problems.push(format!("{}: {what}", self.index.entries));
        }
    }

    /// Compares the entry in the index with the row of `key` and value `row`.
    fn check_row(&mut self, of: &Compared<'_>, key: &[u8], row: &[u8], report: &mut CheckReport) -> Result<(), Error> {
        let mut entry = EntryBytes::new();
        if let Err(short) = self.index.definition.append_entry_key(key, row, &mut entry) {
            self.tell(report, format_args!("{}", of.table.too_short(self.index, key, short)));
            return Ok(());
        }
        let wanted = if self.index.definition.is_unique { key } else { &[] };
        let found = of.get(&self.index.entries, &entry)?;
        if found.as_deref() == Some(wanted) {
            self.right += 1;
            return Ok(());
        }
        let (entry, key) = (quoted(&entry), quoted(key));
        match found.map(|other| quoted(&other)) {
            None => self.tell(report, format_args!("the entry {entry} of row {key} is missing")),
            Some(other) => self.tell(report, format_args!("the entry {entry} of row {key} names row {other}")),
        }
        Ok(())
    }

    /// Finds the entries whose row has other fields, or does not exist.
    fn find_surplus(&mut self, of: &Compared<'_>, report: &mut CheckReport, tick: &mut Tick<'_>) -> Result<(), Error> {
        let (mut scan, mut fields) = (of.all(&self.index.entries), Vec::new());
        let definition = &self.index.definition;
        while let Some((entry, value)) = scan.next_row()? {
            tick(entry.len() + LOOKUP_BYTES)?;
            let Some(key) = definition.split_entry(entry, value, &mut fields) else {
                self.tell(report, format_args!("the entry {} is none", quoted(entry)));
                continue;
            };
            let wrong = match of.get(&of.table.rows, key)? {
                Some(row) if definition.has_fields(key, &row, &fields) => continue,
                Some(_) => "and that row has other fields",
                None => "and there is no such row",
            };
            self.tell(report, format_args!("the entry {} is of row {}, {wrong}", quoted(entry), quoted(key)));
        }
        Ok(())
    }
}

/// Compares indexes of a table with its rows. `sizes`: the number of entries of each index.
///
/// # Errors
/// Rows or entries cannot be read.
pub(crate) fn check_indexes(
    of: &Compared<'_>,
    indexes: &[Arc<IndexState>],
    sizes: &[u64],
    report: &mut CheckReport,
    tick: &mut Tick<'_>,
) -> Result<(), Error> {
    let mut all: Vec<Findings<'_>> = indexes.iter().map(|index| Findings { index, right: 0, problems: 0 }).collect();
    if all.is_empty() {
        return Ok(());
    }
    let compared = compare(of, sizes, &mut all, report, tick);
    for findings in all {
        report.index_entries += findings.right;
        if let Some(more) = findings.problems.checked_sub(TOLD_MAX).filter(|more| *more > 0) {
            report.problems.push(format!("{}: {more} more of such problems", findings.index.entries));
        }
    }
    compared
}

fn compare(
    of: &Compared<'_>,
    sizes: &[u64],
    all: &mut [Findings<'_>],
    report: &mut CheckReport,
    tick: &mut Tick<'_>,
) -> Result<(), Error> {
    let mut rows = of.all(&of.table.rows);
    while let Some((key, row)) = rows.next_row()? {
        tick(key.len() + row.len() + all.len() * LOOKUP_BYTES)?;
        for findings in &mut *all {
            findings.check_row(of, key, row, report)?;
        }
    }
    for (findings, size) in all.iter_mut().zip(sizes) {
        if findings.right != *size {
            findings.find_surplus(of, report, tick)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::api::database::Db;
    use crate::api::table::Table;
    use crate::api::tree::Tree;
    use crate::backup::options::WorkOptions;
    use crate::check::report::CheckReport;
    use crate::options::Options;
    use crate::schema::definition::{Field, TableDefinition};
    use crate::tools::check::{CheckOptions, check};

    /// The tree of an index, to be changed behind the table's back.
    fn entries(table: &Table, at: usize) -> Tree {
        Tree {
            engine: Arc::clone(&table.engine),
            state: Arc::clone(&table.state.indexes(&table.engine.waits)[at].entries),
        }
    }

    fn rows(table: &Table) -> Tree {
        Tree { engine: Arc::clone(&table.engine), state: Arc::clone(&table.state.rows) }
    }

    /// Makes a table of 100 rows in `dir` and has `harm` done to it.
    fn harmed(dir: &Path, harm: impl FnOnce(&Table)) {
        let db = Db::open(dir, Options::new().cached(true)).expect("opened");
        let definition = TableDefinition::new()
            .index("kind", [Field::value(0..1)])
            .unique("name", [Field::value(1..4)])
            .index("text", [Field::value(1..)]);
        let table = db.create_table("t", definition).expect("created");
        for number in 0..100 {
            table.insert(format!("k{number:02}").as_bytes(), format!("x{number:03}").as_bytes()).expect("inserted");
        }
        // Deleted rows do not count, nor do their entries.
        assert!(table.delete(b"k99").expect("deleted"));
        harm(&table);
        drop(table);
        db.close().expect("closed");
    }

    /// The findings of a check of the closed database. That of the open one finds the same.
    fn check_after(harm: impl FnOnce(&Table)) -> CheckReport {
        let dir = tempfile::tempdir().expect("a directory");
        harmed(dir.path(), harm);
        let report = check(dir.path(), CheckOptions { cached: true, ..CheckOptions::default() }).expect("checked");
        let db = Db::open(dir.path(), Options::new().cached(true)).expect("opened");
        let beside = db.check(WorkOptions::new()).expect("checked");
        let sorted = |report: &CheckReport| {
            let mut problems = report.problems.clone();
            problems.sort();
            problems
        };
        assert_eq!((sorted(&beside), beside.index_entries), (sorted(&report), report.index_entries));
        report
    }

    #[test]
    fn what_agrees_is_counted_and_nothing_is_told() {
        let report = check_after(|_| {});
        assert_eq!((report.problems, report.index_entries), (vec![], 297));
    }

    #[test]
    fn missing_surplus_and_wrong_entries_are_told_by_index_and_key() {
        let report = check_after(|table| {
            assert!(entries(table, 0).delete(b"xk07").expect("deleted"));
            entries(table, 0).insert(b"yk08", b"").expect("inserted");
            entries(table, 0).insert(b"xgone", b"").expect("inserted");
            entries(table, 0).insert(b"", b"").expect("inserted");
            entries(table, 1).update(b"009", b"k10").expect("updated");
            entries(table, 2).update(b"011\0\x01k11", b"?").expect("updated");
            rows(table).update(b"k12", b"x1").expect("updated");
        });
        let kind = |what: &str| format!("index 'kind' of table 't': {what}");
        let name = |what: &str| format!("index 'name' of table 't': {what}");
        let text = |what: &str| format!("index 'text' of table 't': {what}");
        let wanted = [
            kind("the entry 'xk07' of row 'k07' is missing"),
            name("the entry '009' of row 'k09' names row 'k10'"),
            text("the entry '011\\x00\\x01k11' of row 'k11' names row '?'"),
            name(
                "the value of row 'k12' of table 't' has 2 bytes: index 'name' wants at least 4 (its field value[1..4])",
            ),
            text("the entry '1\\x00\\x01k12' of row 'k12' is missing"),
            kind("the entry '' is none"),
            kind("the entry 'xgone' is of row 'gone', and there is no such row"),
            kind("the entry 'yk08' is of row 'k08', and that row has other fields"),
            name("the entry '009' is of row 'k10', and that row has other fields"),
            name("the entry '012' is of row 'k12', and that row has other fields"),
            text("the entry '011\\x00\\x01k11' is none"),
            text("the entry '012\\x00\\x01k12' is of row 'k12', and that row has other fields"),
        ];
        assert_eq!(report.problems, wanted);
    }

    /// A lookup reports the same in a read-only database, where it can write nothing to find out.
    #[test]
    fn an_index_that_disagrees_is_told_with_read_only() {
        let dir = tempfile::tempdir().expect("a directory");
        harmed(dir.path(), |table| assert!(rows(table).update(b"k20", b"x777").is_ok()));
        let db = Db::open(dir.path(), Options::new().cached(true).read_only(true)).expect("opened");
        let name = db.open_table("t").expect("opened").index("name").expect("there");
        let error = name.get(b"020").expect_err("they disagree").to_string();
        assert!(error.starts_with("index 'name' of table 't' has the entry '020' of row 'k20', which is another"));
        assert_eq!(name.get(b"777").expect("read"), None);
    }

    #[test]
    fn many_problems_of_one_index_are_counted() {
        let report = check_after(|table| {
            for number in 0..99 {
                assert!(entries(table, 1).delete(format!("{number:03}").as_bytes()).expect("deleted"));
            }
        });
        assert_eq!(report.problems.len(), 21);
        assert_eq!(report.problems[20], "index 'name' of table 't': 79 more of such problems");
        assert_eq!(report.index_entries, 198);
    }

    #[test]
    fn index_that_disagrees_is_reported_by_each_operation() {
        check_after(|table| {
            rows(table).update(b"k20", b"x777").expect("updated");
            let name = table.index("name").expect("there");
            let error = name.get(b"020").expect_err("they disagree").to_string();
            assert!(error.starts_with("index 'name' of table 't' has the entry '020' of row 'k20', which is another"));
            assert_eq!(name.get(b"777").expect("read"), None);
            entries(table, 0).insert(b"zk21", b"").expect("inserted");
            let error = table.put(b"k21", b"z021").expect_err("they disagree").to_string();
            assert!(
                error.starts_with("index 'kind' of table 't' has the entry 'zk21' of a row that has none"),
                "{error}"
            );
        });
    }
}
