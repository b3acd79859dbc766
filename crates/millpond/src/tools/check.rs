//! `check`: everything that can be verified about a database at rest.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytesize::ByteSize;

use crate::api::database::Db;
use crate::api::trees::handle;
use crate::base::aligned::{aligned, to_u64};
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId};
use crate::base::page::verify::structure_problem;
use crate::btree::verify::verify_tree;
use crate::check::indexes::{Compared, check_indexes};
use crate::check::report::CheckReport;
use crate::core::Core;
use crate::ddl::catalog::{self, Readable};
use crate::engine::tree_state::TreeState;
use crate::io::device::Files;
use crate::io::directory::{Directory, HowToOpen};
use crate::io::directory_lock::Access;
use crate::io::overlay::Overlay;
use crate::options::Options;
use crate::read::long_values;
use crate::read::reader::Reader;
use crate::schema::catalog_entry::Entry;
use crate::store::image::SlotContent;
use crate::store::superblock::Found;
use crate::txn::record::UndoRecord;

/// How a database is checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Whether files are read through the page cache. Default: no.
    pub cached: bool,
    /// Bytes of the buffer pool that the check uses. Default: 64 MiB.
    pub buffer_pool_size: ByteSize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { cached: false, buffer_pool_size: ByteSize::mib(64) }
    }
}

/// Checks the database in directory `path`: superblocks, map, every page, every tree, every free slot, and each entry
/// of each index against its row. The log beyond the last checkpoint is replayed in memory. The files are only read.
/// The check takes the memory of the pool, some 20 bytes for every page and, after a crash, the memory of recovery's
/// writes. For every row it searches each of the table's indexes.
///
/// If pages of the catalog are damaged, all pages are read, and trees without a readable name are walked from their
/// roots. Indexes and long values, which only the catalog assigns to tables and trees, cannot be checked then, and the
/// report says so.
///
/// # Errors
/// As [`Db::open`]: a failure to open the database is an error. Damage that is found afterwards is a problem in the
/// report.
pub fn check(path: impl AsRef<Path>, options: CheckOptions) -> Result<CheckReport, Error> {
    let directory = Directory::open(path.as_ref(), HowToOpen::new(Access::Read, options.cached))?;
    check_on(Arc::new(directory), &options)
}

/// Checks the database on any implementation of [`Files`].
///
/// # Errors
/// As [`check`].
pub fn check_on(files: Arc<dyn Files>, options: &CheckOptions) -> Result<CheckReport, Error> {
    let db = open_what_is_readable(&files, options.buffer_pool_size)?;
    let opened = db.opened().clone();
    let mut report = CheckReport {
        log_groups: opened.redo_groups,
        log_bytes: opened.redo_bytes,
        orphan_spaces: to_u64(opened.orphan_spaces.len()),
        ..CheckReport::default()
    };
    for (place, found) in opened.superblocks.iter().enumerate() {
        match found {
            Found::Valid(_) => report.superblocks += 1,
            Found::Foreign | Found::Damaged | Found::OtherFormat { .. } | Found::UnknownFeatures { .. } => {
                report.problems.push(format!(
                    "superblock {place} is damaged; the other one serves, and the next checkpoint mends it"
                ));
            }
        }
    }
    report.problems.extend(opened.not_undone);
    db.checkpoint()?;
    check_trees(&db, &mut report)?;
    db.close()?;
    Ok(report)
}

/// Opens a database with recovery, all of whose writes stay in memory.
pub(super) fn open_in_memory(files: &Arc<dyn Files>, pool: ByteSize) -> Result<Db, Error> {
    let db = open_what_is_readable(files, pool)?;
    match &db.opened().catalog_damage {
        Some(damage) => Err(Error::Corruption(damage.as_str().into())),
        None => Ok(db),
    }
}

/// As [`open_in_memory`], but opens a database with a damaged catalog, too.
fn open_what_is_readable(files: &Arc<dyn Files>, pool: ByteSize) -> Result<Db, Error> {
    let mut options = Options::new().create(false).buffer_pool_size(pool);
    options.fit_pool = true;
    options.at_rest = true;
    Db::open_on(Arc::new(Overlay::new(Arc::clone(files))), options)
}

fn check_trees(db: &Db, report: &mut CheckReport) -> Result<(), Error> {
    let core = &db.engine().core;
    let mut reached: BTreeSet<PageId> = BTreeSet::new();
    let mut walk = |what: &str, space: SpaceId, report: &mut CheckReport| {
        let mut walk = verify_tree(core, space);
        report.trees += 1;
        report.entries += walk.entries;
        report.deleted_rows += walk.deleted;
        report.problems.extend(walk.problems.drain(..).map(|problem| format!("{what}: {problem}")));
        reached.append(&mut walk.pages);
        walk.entries
    };
    walk("tree 'catalog'", SpaceId::CATALOG, report);
    let (names, mut unnamed) = names(db, report)?;
    for (name, entry) in names {
        for space in entry.spaces() {
            unnamed.remove(&space);
        }
        let (rows, sizes): (Arc<TreeState>, Vec<u64>) = match entry {
            Entry::Tree { rows, chunks } => {
                let rows = handle(db.engine(), &name, rows, chunks).state;
                let sizes = rows.with_chunks().map(|tree| walk(&tree.to_string(), tree.space, report)).collect();
                (rows, sizes)
            }
            Entry::Table(table) => {
                let table = db.table(&name, table);
                let sizes: Vec<u64> = table
                    .state
                    .trees(&db.engine().waits)
                    .iter()
                    .map(|tree| walk(&tree.to_string(), tree.space, report))
                    .collect();
                let (engine, state) = (db.engine(), &*table.state);
                let compared = Compared { engine, table: state, reader: Reader::newest() };
                if let Err(error) =
                    check_indexes(&compared, &state.indexes(&engine.waits), &sizes[1..], report, &mut |_| Ok(()))
                {
                    let rows = &state.rows;
                    let problem = format!("{rows}: its indexes cannot be compared with its rows: {error}");
                    report.problems.push(problem);
                }
                (Arc::clone(&table.state.rows), sizes)
            }
        };
        if let (Some(_), Some(chunks)) = (rows.chunks(), sizes.last()) {
            match long_values::problems(db.engine(), &rows, *chunks) {
                Ok(problems) => report.problems.extend(problems),
                Err(error) => report.problems.push(format!("{rows}: its long values cannot be looked at: {error}")),
            }
        }
    }
    // An interrupted creation may have left a space without a root.
    let images = core.store.pages();
    let has_root = |space: &SpaceId| images.binary_search(&PageId::root(*space)).is_ok();
    let (unnamed, rootless): (BTreeSet<SpaceId>, BTreeSet<SpaceId>) = unnamed.into_iter().partition(has_root);
    for space in &unnamed {
        walk(&format!("space {space}"), *space, report);
    }
    if let (Some(first), Some(last)) = (unnamed.first(), unnamed.last()) {
        report.problems.push(format!(
            "the catalog is damaged, and the names of {} spaces from {first} to {last} cannot be read: their pages and \
             the structure of their trees were looked at, but not whether indexes and long values agree with their rows",
            unnamed.len()
        ));
    }
    let mut buf = aligned(core.store.page_size());
    for id in core.store.used(SpaceId::UNDO) {
        report.undo_pages += 1;
        report.problems.extend(undo_problem(core, id));
        reached.insert(id);
    }
    for id in images {
        report.pages += 1;
        if let Err(error) = core.store.read(id, &mut buf)
            && !reached.contains(&id)
        {
            report.problems.push(error.to_string());
        }
        if !reached.contains(&id) && !rootless.contains(&id.space()) {
            report.problems.push(format!("page {id} has an image, and no tree leads to it"));
        }
    }
    for slot in core.store.free_slots() {
        report.free_slots += 1;
        match core.store.slot_content(slot, &mut buf)? {
            SlotContent::Zero => report.never_written += 1,
            SlotContent::Image(_) => report.older_images += 1,
            // An image torn by a crash is no problem: nothing names it.
            SlotContent::Garbage => {}
        }
    }
    Ok(())
}

/// Names, and their catalog entries.
type Names = Vec<(String, Entry)>;

/// The names in the catalog, and their entries. If the catalog is damaged: the readable names, and the spaces that may
/// have other names.
fn names(db: &Db, report: &mut CheckReport) -> Result<(Names, BTreeSet<SpaceId>), Error> {
    let core = &db.engine().core;
    if db.opened().catalog_damage.is_none() {
        return Ok((catalog::all(core)?, BTreeSet::new()));
    }
    let Readable { entries, problems } = catalog::readable(core);
    report.problems.extend(problems);
    let mut spaces = core.store.spaces();
    spaces.retain(|space| *space >= SpaceId::FIRST);
    Ok((entries, spaces))
}

/// The problem of an undo page, if there is one.
fn undo_problem(core: &Core, id: PageId) -> Option<String> {
    let pin = match core.pool.load(id) {
        Ok(pin) => pin,
        Err(error) => return Some(error.to_string()),
    };
    let page = pin.read();
    let view = page.view();
    if let Some(problem) = structure_problem(page.bytes()) {
        return Some(format!("undo page {id}: {problem}"));
    }
    let is_record = |index: usize| {
        let number = u16::try_from(index).ok().map(u16::to_be_bytes);
        let record = UndoRecord::decode(view.value(index));
        number.is_some_and(|number| view.key(index) == number)
            && record.is_some_and(|record| record.changes().all(|change| change.is_some()))
    };
    let broken = (0..view.len()).find(|index| !is_record(*index));
    broken.map(|index| format!("undo page {id}: entry {index} is no record"))
}
