//! Requests of other processes on the status socket that take their time.
//!
//! Each runs on a thread of its own, as work in the background: its waits are not among those of operations. It keeps
//! at most a snapshot or the pins of a backup, which no writer waits for. It ends when its client leaves.

use std::ffi::OsStr;
use std::ops::{Bound, ControlFlow};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytesize::ByteSize;
use millpond_server::{Bytes, Client, Facts, Gone, Request, Rows};

use crate::backup::copy::back_up_to;
use crate::backup::options::WorkOptions;
use crate::base::error::Error;
use crate::base::quoted::quoted;
use crate::check::beside_load::check_beside_load;
use crate::ddl::{catalog, open_table, open_tree};
use crate::engine::Engine;
use crate::engine::table_state::{IndexState, TableState};
use crate::engine::tree_state::TreeState;
use crate::observe::facts::tree_facts;
use crate::observe::status::About;
use crate::open::compact::compact;
use crate::open::fixed_options::page_store_of;
use crate::read::reader::Reader;
use crate::read::scan::{At, Scan};
use crate::read::snapshot::LiveSnapshot;
use crate::schema::catalog_entry::Entry;
use crate::schema::key_range::KeyBounds;
use crate::store::superblock::{FORMAT, uuid_text};

/// The longest value that the socket sends, in bytes.
const VALUE_MAX: usize = 64 << 20;

/// Rows that are counted between two looks whether the client is there.
const COUNTED_TOGETHER: u64 = 10_000;

/// Does the work of a request.
pub(super) fn answer(
    engine: &Arc<Engine>,
    about: &About,
    request: Request,
    client: &mut Client,
) -> Result<Facts, Error> {
    match request {
        Request::Backup { to, rate } => {
            let to = Path::new(OsStr::from_bytes(&to.0));
            if !to.is_absolute() {
                let message = format!("the path '{}' is not absolute: name all of it", to.display());
                return Err(Error::InvalidOptions(message.into()));
            }
            let report = watched(rate, client, |options| back_up_to(engine, to, options))?;
            Ok(facts([
                ("LSN", report.lsn.to_string()),
                ("pages", report.pages.to_string()),
                ("log bytes", report.log_bytes.to_string()),
            ]))
        }
        Request::Check { rate } => {
            let report = watched(rate, client, |options| check_beside_load(engine, options))?;
            let counts = [
                ("pages", report.pages),
                ("trees", report.trees),
                ("entries", report.entries),
                ("in indexes", report.index_entries),
            ];
            let problems = report.problems.into_iter().map(|problem| ("problem", problem));
            Ok(facts(counts.map(|(name, count)| (name, count.to_string())).into_iter().chain(problems)))
        }
        Request::Compact { rate } => {
            let report = watched(rate, client, |options| compact(engine, options))?;
            let bytes = [("bytes before", report.bytes_before), ("bytes after", report.bytes_after)];
            Ok(facts(bytes.map(|(name, bytes)| (name, bytes.to_string()))))
        }
        Request::Info {} => {
            let superblock = engine.core.store.superblock();
            let identity = [
                ("database", about.place.clone()),
                ("uuid", uuid_text(superblock.uuid)),
                ("format", FORMAT.to_string()),
                ("page store", page_store_of(&superblock).to_string()),
                ("page size", superblock.page_size.to_string()),
            ];
            Ok(facts(identity).into_iter().chain(tree_facts(engine)?).collect())
        }
        Request::Get { of, key } => {
            let of = Named::find(engine, &of)?;
            let row = of.unless_ended(of.rows().get(engine, &key.0, of.reader.view()))?;
            if let Some(value) = row {
                send(client, &key.0, &value)?;
            }
            Ok(Facts::new())
        }
        Request::Scan(rows) => {
            let read = read(engine, &rows, true, |key, value, _| send(client, key, value))?;
            Ok(facts([("rows", read.to_string())]))
        }
        Request::Count(rows) => {
            let counted = read(engine, &rows, false, |_, _, count| match count % COUNTED_TOGETHER {
                0 => client.progress(count, count).map_err(gone),
                _ => Ok(()),
            })?;
            Ok(facts([("rows", counted.to_string())]))
        }
    }
}

fn facts(all: impl IntoIterator<Item = (&'static str, String)>) -> Facts {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn gone(_: Gone) -> Error {
    Error::Cancelled("the client left, or took nothing for a minute".into())
}

/// Sends a row, unless its value is too long for memory: JSON takes several times its bytes.
fn send(client: &mut Client, key: &[u8], value: &[u8]) -> Result<(), Error> {
    if value.len() > VALUE_MAX {
        let (key, len) = (quoted(key), value.len());
        let message = format!(
            "the value of key {key} has {len} bytes, and the socket takes {VALUE_MAX}: read it in the program that has the database open"
        );
        return Err(Error::ValueTooLong(message.into()));
    }
    client.row(key, value).map_err(gone)
}

/// Does work whose progress the client is told of, until it leaves.
fn watched<T>(
    rate: Option<u64>,
    client: &mut Client,
    work: impl FnOnce(WorkOptions) -> Result<T, Error>,
) -> Result<T, Error> {
    let options = rate.map_or_else(WorkOptions::new, |rate| WorkOptions::new().rate(ByteSize::b(rate)));
    let mut client = client.clone();
    work(options.progress(move |progress| match client.progress(progress.done, progress.total) {
        Ok(()) => ControlFlow::Continue(()),
        Err(Gone) => ControlFlow::Break(()),
    }))
}

/// Reads rows at a snapshot, and calls `each` with the key, the value and the count so far. Returns the count. If the
/// rows are not wanted, entries of an index are enough.
fn read(
    engine: &Arc<Engine>,
    rows: &Rows,
    wants_rows: bool,
    mut each: impl FnMut(&[u8], &[u8], u64) -> Result<(), Error>,
) -> Result<u64, Error> {
    let of = Named::find(engine, &rows.of)?;
    let index = rows.index.as_deref().map(|name| of.index(engine, name)).transpose()?;
    let own = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| bytes.0.to_vec());
    let from = own(&rows.from).map_or(Bound::Unbounded, Bound::Included);
    let before = own(&rows.before).map_or(Bound::Unbounded, Bound::Excluded);
    let range: KeyBounds = (from, before);
    let (tree, range) = match &index {
        None => (of.rows(), Some(range)),
        Some(index) => (&index.entries, index.definition.entry_range(&range)),
    };
    let mut scan = Scan::new(engine, tree, of.reader.clone(), range);
    let (at, limit) = (if rows.is_reverse { At::Back } else { At::Front }, rows.limit.unwrap_or(u64::MAX));
    let (mut count, mut fields) = (0, Vec::new());
    while count < limit
        && let Some((key, value)) = scan.row_at(at)?
    {
        count += 1;
        match &index {
            Some(index) if wants_rows => {
                let key = index.definition.split_entry(key, value, &mut fields);
                let row = key.map(|key| of.unless_ended(of.rows().get(engine, key, of.reader.view()))).transpose()?;
                match (key, row.flatten()) {
                    (Some(key), Some(row)) if index.definition.has_fields(key, &row, &fields) => {
                        each(key, &row, count)?;
                    }
                    _ => {
                        let message = format!("{} does not agree with its table: see `millpond check`", index.entries);
                        return Err(Error::Corruption(message.into()));
                    }
                }
            }
            _ => each(key, value, count)?,
        }
    }
    Ok(count)
}

/// A tree or a table, by its name, and a snapshot that is not older.
struct Named {
    trees: Trees,
    reader: Reader,
    snapshot: Arc<LiveSnapshot>,
}

enum Trees {
    Tree(Arc<TreeState>),
    Table(Arc<TableState>),
}

impl Named {
    fn find(engine: &Arc<Engine>, name: &str) -> Result<Named, Error> {
        let _ddl = engine.ddl();
        engine.check_open()?;
        let trees = match catalog::find(&engine.core, name)? {
            Some(Entry::Tree { rows, chunks }) => Trees::Tree(open_tree(engine, name, rows, chunks)),
            Some(Entry::Table(table)) => Trees::Table(open_table(engine, name, table)),
            None => {
                let message = format!("no tree or table '{name}': `millpond info` lists them");
                return Err(Error::TreeNotFound(message.into()));
            }
        };
        let snapshot = Arc::new(LiveSnapshot::take(engine));
        Ok(Named { trees, reader: Reader::at(&snapshot), snapshot })
    }

    fn rows(&self) -> &Arc<TreeState> {
        match &self.trees {
            Trees::Tree(rows) => rows,
            Trees::Table(table) => &table.rows,
        }
    }

    fn index(&self, engine: &Engine, name: &str) -> Result<Arc<IndexState>, Error> {
        let indexes = match &self.trees {
            Trees::Tree(_) => Vec::new(),
            Trees::Table(table) => table.indexes(&engine.waits),
        };
        let index = indexes.into_iter().find(|index| index.definition.name == name).ok_or_else(|| {
            let message = format!("{} has no index '{name}': `millpond info` lists them", self.rows());
            Error::TreeNotFound(message.into())
        })?;
        index.entries.check_snapshot(self.snapshot.at())?;
        Ok(index)
    }

    fn unless_ended<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        self.reader.unless_ended(read)
    }
}
