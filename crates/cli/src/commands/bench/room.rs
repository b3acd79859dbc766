//! Checks before a load that the tables can fit on the disk: a load that fills the disk would fail only at its end.

use std::path::Path;

use millpond::ByteSize;
use rustix::fs::statvfs;
use rustix::process::geteuid;
use workload::generators::orders::Order;

use super::BenchArgs;
use crate::database_files;
use crate::engine_args::EngineSettings;
use crate::exit::Failure;
use crate::values::Benchmark;

/// The log of a new database, unless the options ask for a certain one.
const FIRST_LOG: ByteSize = ByteSize::mib(16);

/// Refuses tables that cannot fit on the disk together with the log of a new database.
///
/// # Errors
/// The disk has less room than that.
pub(super) fn check_new(args: &BenchArgs, engine: &EngineSettings) -> Result<(), Failure> {
    let asked = engine.value("redo_capacity").parse::<ByteSize>().unwrap_or(FIRST_LOG);
    check(args, args.tables_to_load(), asked.as_u64())
}

/// Refuses `tables` that cannot fit beside the data of the database. The size of the data file counts as room, since
/// space of deleted rows is reused.
///
/// # Errors
/// The disk has less room than that.
pub(super) fn check_more(args: &BenchArgs, tables: u32) -> Result<(), Failure> {
    check(args, tables, 0)
}

fn check(args: &BenchArgs, tables: u32, log_bytes: u64) -> Result<(), Failure> {
    let dir = &args.load.dir;
    let needed = bytes_at_least(args, tables).saturating_add(log_bytes);
    // If the system does not report free space, the load goes ahead.
    let Some(free) = free_bytes(dir) else { return Ok(()) };
    if needed <= free.saturating_add(database_files::bytes(dir).data_bytes) {
        return Ok(());
    }
    let (rows, fewer) =
        (args.load.table_size, if let Benchmark::Insert = args.workload { "threads" } else { "tables" });
    let (needed, free, dir) = (ByteSize::b(needed), ByteSize::b(free), dir.display());
    Err(Failure::message(format!(
        "the tables cannot fit: {tables} of {rows} rows need at least {needed}, and the disk under '{dir}' has {free} \
         free; ask for a smaller --table-size or fewer --{fewer}, or name a --dir on a larger disk"
    )))
}

/// Bytes of the rows of `tables` tables, without the overhead of pages, indexes and copies.
fn bytes_at_least(args: &BenchArgs, tables: u32) -> u64 {
    let row = match args.workload {
        Benchmark::Oltp(_) => workload::generators::row::LEN_MIN,
        Benchmark::Insert => args.sizes().row_len_min(),
        Benchmark::Orders => (Order::LEN - Order::KEY_LEN) as u64,
    };
    args.load.table_size.saturating_mul(u64::from(tables)).saturating_mul(row)
}

/// Bytes that this user may still write to the disk of `dir`, or of its nearest existing parent.
fn free_bytes(dir: &Path) -> Option<u64> {
    let dir = if dir.is_absolute() { dir.to_owned() } else { Path::new(".").join(dir) };
    let found = dir.ancestors().find_map(|above| statvfs(above).ok())?;
    // Only the superuser may use the reserved blocks.
    let blocks = if geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    Some(blocks.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_bytes_are_those_of_the_disk_above_what_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(dir.path()) > Some(0));
        assert!(free_bytes(&dir.path().join("a/b")) > Some(0));
        assert!(free_bytes(Path::new("not-there")) > Some(0));
    }
}
