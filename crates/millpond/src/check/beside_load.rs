//! The check of a database at work: log and map in their files, every image, every row, every index entry.
//!
//! Images are read from the data file as a backup reads them: those of one moment, which are pinned. Rows and entries
//! are read through the buffer pool, those of each tree at one snapshot. At a snapshot an index has exactly the entries
//! that its table's rows make. So the check adds up a hash of each entry, once from the rows and once from the index:
//! both are read in their order, and nothing is looked up. Only where the sums differ is each entry looked for.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::backup::moment::Moment;
use crate::backup::options::WorkOptions;
use crate::backup::rate::Pace;
use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::quoted::quoted;
use crate::check::indexes::{Compared, check_indexes};
use crate::check::own_files::{check_log, check_map};
use crate::check::report::CheckReport;
use crate::ddl::{catalog, open_table, open_tree};
use crate::engine::Engine;
use crate::engine::table_state::{IndexState, TableState};
use crate::engine::tree_state::TreeState;
use crate::read::reader::Reader;
use crate::read::snapshot::LiveSnapshot;
use crate::schema::catalog_entry::Entry;
use crate::schema::index_key::EntryBytes;

/// Bytes of rows between two looks at rate and progress.
const TOGETHER: usize = 1 << 20;

/// Most problems that are told one by one, beside those of indexes.
const TOLD_MAX: usize = 1000;

/// Seeds of the two hashes of an entry.
const SEEDS: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344];

/// The number of entries, and the sums of their hashes: the same for the same entries in any order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sums {
    entries: u64,
    hashes: [u64; 2],
    /// Rows that are too short to have an entry.
    short_rows: u64,
}

impl Sums {
    fn add(&mut self, entry: &[u8], value: &[u8]) {
        self.entries += 1;
        for (sum, seed) in self.hashes.iter_mut().zip(SEEDS) {
            *sum = sum.wrapping_add(FixedState::with_seed(seed).hash_one((entry, value)));
        }
    }
}

/// Checks the database of `engine`.
pub(crate) fn check_beside_load(engine: &Arc<Engine>, options: WorkOptions) -> Result<CheckReport, Error> {
    engine.check_changeable()?;
    let pace = Pace::new(engine, &options);
    let reading = Reading { engine, pace, options, unpaid: 0, done: 0, total: 0 };
    let mut check = Check { engine, reading, report: CheckReport::default(), untold: 0 };
    match check.all() {
        Err(error) if check.report.problems.is_empty() || matches!(error, Error::Cancelled(_) | Error::Closed(_)) => {
            return Err(error);
        }
        // What was found so far is told.
        Err(error) => check.report.problems.push(format!("the check ended early: {error}")),
        Ok(()) => {}
    }
    if check.untold > 0 {
        check.report.problems.push(format!("{} more of such problems", check.untold));
    }
    Ok(check.report)
}

fn names(engine: &Engine) -> Result<Vec<(String, Entry)>, Error> {
    let _ddl = engine.ddl();
    engine.check_open()?;
    catalog::all(&engine.core)
}

/// A check under way.
struct Check<'e> {
    engine: &'e Arc<Engine>,
    reading: Reading<'e>,
    report: CheckReport,
    /// Problems beyond [`TOLD_MAX`].
    untold: u64,
}

/// The reading of rows, at the rate of the check.
struct Reading<'e> {
    engine: &'e Arc<Engine>,
    options: WorkOptions,
    pace: Pace<'e>,
    /// Bytes of rows that were not waited for yet.
    unpaid: usize,
    /// Bytes that were read.
    done: u64,
    /// Bytes of the data file, and of the pages of all trees.
    total: u64,
}

impl Reading<'_> {
    /// Notes bytes of rows.
    fn read(&mut self, bytes: usize) -> Result<(), Error> {
        self.unpaid += bytes;
        if self.unpaid < TOGETHER { Ok(()) } else { self.pay() }
    }

    fn pay(&mut self) -> Result<(), Error> {
        let (unpaid, engine, options) = (std::mem::take(&mut self.unpaid), self.engine, &mut self.options);
        let (done, total) = (self.done, self.total);
        self.pace.wait(unpaid, || {
            engine.check_usable()?;
            options.tell(done, total)
        })?;
        options.tell(done, total)
    }

    /// Notes that a tree of `pages` was read.
    fn ended(&mut self, pages: u64) -> Result<(), Error> {
        self.done = self.total.min(self.done + pages * to_u64(self.engine.core.store.page_size()));
        self.pay()
    }
}

/// The trees of a name.
enum Trees {
    Tree(Arc<TreeState>),
    Table(Arc<TableState>),
}

impl Check<'_> {
    fn all(&mut self) -> Result<(), Error> {
        self.images()?;
        for (name, _) in names(self.engine)? {
            self.tree(&name)?;
        }
        Ok(())
    }

    fn tell(&mut self, problem: String) {
        if self.report.problems.len() < TOLD_MAX {
            self.report.problems.push(problem);
        } else {
            self.untold += 1;
        }
    }

    /// Verifies the image of every page.
    fn images(&mut self) -> Result<(), Error> {
        let (engine, moment) = (self.engine, Moment::hold(self.engine)?);
        let of_trees = engine.core.store.used_in_all() * to_u64(engine.core.store.page_size());
        let mut options = std::mem::take(&mut self.reading.options);
        let mut pace = Pace::new(engine, &options);
        let mut look = || {
            moment.check_held()?;
            options.tell(0, moment.bytes() + of_trees)
        };
        let own = check_log(&moment, &mut pace, &mut look, &mut |problem| self.tell(problem));
        engine.end_log_hold();
        own.and_then(|()| check_map(engine, &mut pace, &mut look, &mut |problem| self.tell(problem)))?;
        let read = moment.each_piece(&mut pace, &mut options, of_trees, |_, read, _| {
            match read {
                Ok(read) => {
                    self.report.pages += read.images;
                    read.damage.iter().for_each(|damage| self.tell(damage.to_string()));
                }
                Err(error) => self.tell(error.to_string()),
            }
            Ok(())
        });
        (self.reading.options, self.reading.pace) = (options, pace);
        (self.reading.done, self.reading.total) = (moment.bytes(), moment.bytes() + of_trees);
        read
    }

    /// Checks the rows of a name, and the indexes.
    fn tree(&mut self, name: &str) -> Result<(), Error> {
        let (trees, snapshot) = {
            // Whatever the catalog has now is older than the snapshot.
            let _ddl = self.engine.ddl();
            self.engine.check_open()?;
            let trees = match catalog::find(&self.engine.core, name)? {
                None => return Ok(()),
                Some(Entry::Tree { rows, chunks }) => Trees::Tree(open_tree(self.engine, name, rows, chunks)),
                Some(Entry::Table(table)) => Trees::Table(open_table(self.engine, name, table)),
            };
            (trees, Arc::new(LiveSnapshot::take(self.engine)))
        };
        let reader = Reader::at(&snapshot);
        match trees {
            Trees::Tree(rows) => {
                let table = TableState::new(rows, Vec::new());
                self.rows(&Compared { engine: self.engine, table: &table, reader }, &[])
            }
            Trees::Table(table) => {
                let mut indexes = table.indexes(&self.engine.waits);
                indexes.retain(|index| !index.entries.began_after(snapshot.at()));
                self.rows(&Compared { engine: self.engine, table: &table, reader }, &indexes)
            }
        }
    }

    /// Checks the rows of a tree or table, and these indexes. What is dropped or truncated meanwhile is left out.
    fn rows(&mut self, of: &Compared<'_>, indexes: &[Arc<IndexState>]) -> Result<(), Error> {
        let mut sums = vec![Sums::default(); indexes.len()];
        let read = self.each_row(of, &of.table.rows, |key, row| {
            for (index, sums) in indexes.iter().zip(&mut sums) {
                let (mut entry, definition) = (EntryBytes::new(), &index.definition);
                match definition.append_entry_key(key, row, &mut entry) {
                    Ok(()) => sums.add(&entry, if definition.is_unique { key } else { &[] }),
                    Err(_) => sums.short_rows += 1,
                }
            }
        });
        if !self.is_whole(&of.table.rows, read)? {
            return Ok(());
        }
        for (index, wanted) in indexes.iter().zip(sums) {
            let mut found = Sums::default();
            let read = self.each_row(of, &index.entries, |entry, value| found.add(entry, value));
            if !self.is_whole(&index.entries, read)? {
                continue;
            }
            if found == wanted {
                self.report.index_entries += found.entries;
                continue;
            }
            let before = self.report.problems.len();
            let tick = &mut |bytes| self.reading.read(bytes);
            let compared = check_indexes(of, std::slice::from_ref(index), &[found.entries], &mut self.report, tick);
            if self.is_whole(&index.entries, compared)? && self.report.problems.len() == before {
                let (has, make) = (found.entries, wanted.entries);
                self.tell(format!("{}: it has {has} entries, others than the {make} that rows make", index.entries));
            }
        }
        Ok(())
    }

    /// Reads a tree at the rate of the check, and calls `each` with each row.
    fn each_row(
        &mut self,
        of: &Compared<'_>,
        tree: &Arc<TreeState>,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        let pages = self.engine.core.store.used_count(tree.space);
        let (mut scan, mut before) = (of.all(tree), None::<Vec<u8>>);
        self.report.trees += 1;
        while let Some((key, value)) = scan.next_row()? {
            if let Some(before) = before.as_deref().filter(|before| *before >= key) {
                self.tell(format!("{tree}: key {} comes behind {}", quoted(key), quoted(before)));
            }
            let last = before.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            each(key, value);
            self.report.entries += 1;
            self.reading.read(key.len() + value.len())?;
        }
        self.reading.ended(pages)
    }

    /// Whether a tree was read to its end. Damage is a problem of the report.
    fn is_whole(&mut self, tree: &TreeState, read: Result<(), Error>) -> Result<bool, Error> {
        match read {
            Ok(()) => Ok(true),
            // It was dropped or truncated.
            Err(Error::TreeNotFound(_)) => Ok(false),
            Err(error @ Error::Corruption(_)) => {
                self.tell(format!("{tree}: {error}"));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
