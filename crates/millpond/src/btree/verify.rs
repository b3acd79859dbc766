//! Verifies a whole tree and reports all problems. The tree is at rest.

use std::collections::BTreeSet;

use super::descent::child_id;
use super::scan::{Seen, row};
use crate::base::ids::{PageId, SpaceId};
use crate::base::page::verify::structure_problem;
use crate::base::page::view::PageView;
use crate::base::row::Row;
use crate::core::Core;

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct TreeReport {
    pub(crate) pages: BTreeSet<PageId>,
    /// Number of rows without a delete mark.
    pub(crate) entries: u64,
    /// Number of rows with a delete mark.
    pub(crate) deleted: u64,
    pub(super) height: u8,
    pub(crate) problems: Vec<String>,
}

struct Expected {
    id: PageId,
    level: Option<u8>,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// Walks the tree of `space`.
pub(crate) fn verify_tree(core: &Core, space: SpaceId) -> TreeReport {
    let mut report = TreeReport::default();
    let mut open = vec![Expected { id: PageId::root(space), level: None, low: Vec::new(), high: None }];
    while let Some(expected) = open.pop() {
        if !report.pages.insert(expected.id) {
            report.problems.push(format!("page {} is named twice", expected.id));
            continue;
        }
        let pin = match core.pool.load(expected.id) {
            Ok(pin) => pin,
            Err(error) => {
                report.problems.push(error.to_string());
                continue;
            }
        };
        let page = pin.read();
        let view = page.view();
        if expected.level.is_none() {
            report.height = view.level().saturating_add(1);
        }
        if let Some(problem) = structure_problem(page.bytes()) {
            report.problems.push(format!("page {}: {problem}", expected.id));
        }
        check_page(view, &expected, &mut report);
        if view.is_leaf() {
            for index in 0..view.len() {
                // At rest no transaction is in flight.
                match row(view, index, |_| false) {
                    Ok(Seen::Gone) => report.deleted += 1,
                    Ok(_) => report.entries += 1,
                    Err(error) => report.problems.push(error.to_string()),
                }
                let stamp = Row::decode(view.value(index)).and_then(|row| row.stamp);
                let to_come = core.store.txn_to_come();
                if let Some(stamp) = stamp.filter(|stamp| space >= SpaceId::FIRST && stamp.txn >= to_come) {
                    let problem = format!("the row of transaction {}, and {to_come} is the next to begin", stamp.txn);
                    report.problems.push(format!("page {}: entry {index} is {problem}", expected.id));
                }
            }
            continue;
        }
        for index in 0..view.len() {
            match child_id(space, view, index) {
                Ok(id) => {
                    let last = index + 1 == view.len();
                    let high = if last { view.high_fence().map(<[u8]>::to_vec) } else { Some(view.key(index + 1)) };
                    open.push(Expected { id, level: view.level().checked_sub(1), low: view.key(index), high });
                }
                Err(error) => report.problems.push(error.to_string()),
            }
        }
    }
    report
}

fn check_page(view: PageView<'_>, expected: &Expected, report: &mut TreeReport) {
    let id = expected.id;
    if expected.level.is_some_and(|level| level != view.level()) {
        report.problems.push(format!("page {id} has level {}, its parent says {:?}", view.level(), expected.level));
    }
    if view.low_fence() != expected.low || view.high_fence() != expected.high.as_deref() {
        report.problems.push(format!("page {id} has other fences than its parent says"));
    }
}
