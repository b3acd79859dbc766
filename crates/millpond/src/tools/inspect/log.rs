//! The log as text.

use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::page::op::PageOp;
use crate::io::device::Files;
use crate::mtr::Record;
use crate::redo::files::LogFiles;
use crate::redo::files::Start;
use crate::redo::group::{Group, GroupKind, epoch_nonce};
use crate::redo::locate::find_rings;
use crate::redo::scan::LogScan;
use crate::store::image::slot_of;
use crate::store::look::DataFile;
use crate::store::map::MapEntry;
use crate::store::page_store::MapRecord;
use crate::store::superblock::Superblock;
use crate::tools::inspect::Lines;
use crate::tools::inspect::page::{shown, shown_fences, shown_value};

/// Writes the groups from LSN `from` on, or from the checkpoint on.
pub(crate) fn groups(files: &dyn Files, from: Option<u64>, limit: Option<u64>, out: Lines<'_>) -> Result<(), Error> {
    let superblock = DataFile::open(files).and_then(|data| data.superblock());
    let (log, page_size, checkpoint) = match &superblock {
        Ok(superblock) => {
            let log = LogFiles::open(files, superblock.owner(), superblock.redo, superblock.switch)?;
            (log, superblock.page_size, Some(Start { at: superblock.checkpoint_lsn, nonce: superblock.nonce }))
        }
        Err(error) => {
            if !out(&format!("no superblock ({error}): the log files' headers must do")) {
                return Ok(());
            }
            let (owner, log, doubt) = find_rings(files)?;
            if doubt.is_some_and(|doubt| !out(&format!("doubtful: {doubt}"))) {
                return Ok(());
            }
            (log, owner.page_size, None)
        }
    };
    let laps = log.laps()?;
    let wanted = from.map(Lsn).or(checkpoint.map(|start| start.at)).unwrap_or(Lsn::ZERO);
    let starts = || laps.iter().copied().chain(checkpoint);
    let before = starts().filter(|start| start.at <= wanted).max_by_key(|start| start.at);
    let Some(start) = before.or_else(|| starts().min_by_key(|start| start.at)) else {
        let message = format!("no log file in '{}' says where its first group begins", files.place());
        return Err(Error::Corruption(message.into()));
    };
    let mut scan = LogScan::new(&log, start.nonce, start.at);
    let mut left = limit.unwrap_or(u64::MAX);
    if !out(&format!("log from LSN {}, in the epoch of nonce {:016x}", start.at.max(wanted), start.nonce)) {
        return Ok(());
    }
    while let Some(group) = scan.next()? {
        if group.end <= wanted {
            continue;
        }
        if left == 0 {
            out("there is more: this is as much as was asked for");
            return Ok(());
        }
        left -= 1;
        if !write_group(&group, u64::from(page_size), out) {
            return Ok(());
        }
    }
    end(&mut scan, superblock.as_ref().ok(), out)
}

fn end(scan: &mut LogScan<'_>, superblock: Option<&Superblock>, out: Lines<'_>) -> Result<(), Error> {
    let end = scan.position();
    let why = scan.why_ended()?;
    if !out(&format!("end {end}: {why}")) {
        return Ok(());
    }
    if let Some(durable) = superblock.map(|superblock| superblock.durable_lsn).filter(|durable| *durable > end) {
        out(&format!("  damage: the superblock says that the log was durable to {durable}"));
    }
    if let Some(at) = scan.proof_of_more()? {
        out(&format!("  damage: the group at {at} shows that more was durable"));
    }
    Ok(())
}

fn write_group(group: &Group<'_>, page_size: u64, out: Lines<'_>) -> bool {
    let kind = match group.kind {
        GroupKind::Pages => "pages",
        GroupKind::Map => "map",
        GroupKind::Epoch => "epoch",
    };
    if !out(&format!("{}..{} {kind}, durable {}", group.start, group.end, group.durable)) {
        return false;
    }
    match group.kind {
        GroupKind::Pages => Record::all(group.payload).all(|record| write_record(record, out)),
        GroupKind::Map => match MapRecord::all(group.payload) {
            None => out("  no map records: the payload is of odd length"),
            Some(records) => records.iter().all(|record| {
                let (id, entry) = (PageId(record.page_id.get()), MapEntry(record.entry.get()));
                let slot = slot_of(entry, page_size).map_or("no slot".to_owned(), |slot| format!("slot {}", slot.0));
                out(&format!("  page {id} in {slot}, tag {:05x}, LSN {}", entry.tag(), record.image_lsn.get()))
            }),
        },
        GroupKind::Epoch => match epoch_nonce(group.payload) {
            Some(nonce) => out(&format!("  nonce {nonce:016x}")),
            None => out("  no nonce: the payload is of odd length"),
        },
    }
}

fn write_record(record: Option<Record<'_>>, out: Lines<'_>) -> bool {
    match record {
        None => out("  a record that is none"),
        Some(Record::Padding) => out("  padding"),
        Some(Record::DropSpace(space)) => out(&format!("  drop space {space}")),
        Some(Record::Txn(txn)) => out(&format!("  commit transaction {txn}")),
        Some(Record::Page { id, previous, ops }) => {
            out(&format!("  page {id}, from LSN {previous}, {} bytes", to_u64(ops.len())))
                && Record::ops(ops).all(|op| out(&format!("    {}", op.map_or("no operation".to_owned(), op_text))))
        }
    }
}

fn op_text(op: PageOp<'_>) -> String {
    let key_text = |key: &[u8]| shown(key, usize::MAX);
    match op {
        PageOp::Init { level, low, high, entries } => {
            format!("init level {level}, {}, {} entries", shown_fences(low, high), entries.len())
        }
        PageOp::Insert { key, value } => format!("insert {} = {}", key_text(key), shown_value(value)),
        PageOp::Replace { key, value } => format!("replace {} = {}", key_text(key), shown_value(value)),
        PageOp::Patch { key, patch } => format!("patch {}: {} bytes of changes", key_text(key), patch.0.len()),
        PageOp::Remove { key } => format!("remove {}", key_text(key)),
        PageOp::Truncate { keep, high } => format!("truncate to {keep} entries below {}", key_text(high)),
        PageOp::Compact { oldest } => format!("compact below transaction {oldest}"),
        PageOp::Free => "free".to_owned(),
    }
}
