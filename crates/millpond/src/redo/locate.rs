//! Finding the log without a superblock, from the headers of its files.

use std::collections::{BTreeMap, BTreeSet};

use super::files::{Geometry, LogFiles, Owner, Ring, Start, holds_groups, parse_name, read_header};
use super::group::{BUFFER_MAX, Place, claimed_len, read_group};
use super::scan::LogScan;
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, round_down, round_up, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::io::device::Files;

/// The log's owner, its files, and the reason why they may not be the whole log (`None`: they are). The groups in the
/// files show where the log moves to a second ring.
pub(crate) fn find_rings(files: &dyn Files) -> Result<(Owner, LogFiles, Option<String>), Error> {
    let (owner, geometries) = read_headers(files)?;
    let mut rings = Vec::new();
    let mut incomplete = None;
    for geometry in geometries {
        match Ring::open(files, owner, geometry) {
            Err(_) => incomplete = Some(geometry.generation),
            Ok(ring) => {
                let log = LogFiles::new(ring.clone(), None);
                rings.push((ring, log.laps()?.into_iter().min()));
            }
        }
    }
    rings.retain(|(_, lap)| lap.is_some());
    let told: BTreeSet<u32> = rings.iter().map(|(ring, _)| ring.geometry.generation).collect();
    let used = rings.len();
    let mut used_rings = rings.into_iter().filter_map(|(ring, lap)| Some((ring, lap?)));
    let (log, doubt) = match (used, used_rings.next(), used_rings.next()) {
        (1, Some((ring, _)), _) => (LogFiles::new(ring, None), None),
        (2, Some((first, _)), Some((second, lap))) => find_switch(first, &second, lap)?,
        _ => {
            let message = format!(
                "the log files in '{}' are not one whole ring, or two: restore them, or a backup (`millpond restore`)",
                files.place()
            );
            return Err(Error::Corruption(message.into()));
        }
    };
    // An older ring may be in removal. A newer incomplete ring is not in use yet, unless it has lost files.
    let newer = incomplete.filter(|generation| told.last() < Some(generation));
    let doubt =
        doubt.or(newer.map(|generation| format!("log files of generation {generation} are missing or damaged")));
    let doubt = if doubt.is_some() { doubt } else { left_over(files, &told)? };
    Ok((owner, log, doubt))
}

/// A reason why the log may be longer than the rings of generations `told`, whose files name their first groups: a log
/// file of another generation holds groups.
fn left_over(files: &dyn Files, told: &BTreeSet<u32>) -> Result<Option<String>, Error> {
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    for name in names {
        let file = || files.open(&name).map_err(|e| Error::io(&format!("open log file '{name}'"), e));
        if parse_name(&name).is_some_and(|(generation, _)| !told.contains(&generation)) && holds_groups(&*file()?)? {
            return Ok(Some(format!(
                "log file '{name}' holds groups, and its ring is damaged: where they begin is not known"
            )));
        }
    }
    Ok(None)
}

/// The owner that the log files' headers agree on, and the rings of these files, older generations first.
fn read_headers(files: &dyn Files) -> Result<(Owner, Vec<Geometry>), Error> {
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    let mut owners: BTreeMap<u32, (Owner, Geometry)> = BTreeMap::new();
    let mut identities: BTreeSet<[u64; 2]> = BTreeSet::new();
    let mut block = aligned(BLOCK);
    for name in names.iter().filter(|name| parse_name(name).is_some()) {
        let file = files.open(name).map_err(|e| Error::io(&format!("open log file '{name}'"), e))?;
        // A file too short for a header has none.
        if file.read_at(&mut block, 0).is_ok()
            && let Some((owner, _, geometry)) = read_header(&block)
        {
            identities.insert(owner.uuid);
            owners.insert(geometry.generation, (owner, geometry));
        }
    }
    let one = owners.values().next().filter(|_| identities.len() == 1);
    let Some((owner, _)) = one.copied() else {
        let message = format!(
            "the headers of the log files in '{}' are of {} databases: put back the files of one, or restore a backup (`millpond restore`)",
            files.place(),
            identities.len()
        );
        return Err(Error::Corruption(message.into()));
    };
    Ok((owner, owners.into_values().map(|(_, geometry)| geometry).collect()))
}

/// Finds the block at which the log moves from `first` to `second`, whose oldest lap is `lap`. Only there is the group
/// that crosses the switch whole, and does it end where the lap begins. If there is no such block: the ring that the
/// log is in, and the reason for doubt.
fn find_switch(first: Ring, second: &Ring, lap: Start) -> Result<(LogFiles, Option<String>), Error> {
    let alone = LogFiles::new(first, None);
    for start in alone.laps()? {
        let mut scan = LogScan::new(&alone, start.nonce, start.at);
        while scan.next()?.is_some() {}
        let (crossing, nonce) = (scan.position(), scan.nonce());
        let mut at = Lsn(round_down(lap.at.0));
        while at.plus(BLOCK_U64) > crossing && at > Lsn::ZERO && lap.at.since(at) <= 1 << 20 {
            let log = alone.with_second(at, second.clone());
            let mut scan = LogScan::new(&log, nonce, crossing);
            if crossing == lap.at && at == lap.at && scan.next()?.is_some() {
                return Ok((log, None));
            }
            if crossing < lap.at && scan.next()?.is_some_and(|group| group.end == lap.at) {
                return Ok((log, None));
            }
            at = Lsn(at.0.saturating_sub(BLOCK_U64));
        }
    }
    let other = LogFiles::new(second.clone(), None);
    if LogScan::new(&other, lap.nonce, lap.at).next()?.is_none() {
        // The log was moving: the crash kept the lap, and lost the groups. That holds if this is the ring's first lap.
        let earlier = other.unknown_file(lap.at, lap.at)?;
        return Ok((alone, earlier.map(unknown_groups)));
    }
    let (from, to) = (alone.geometry().generation, second.geometry.generation);
    let doubt = format!("the log in the files of generation {from} does not lead on to that of generation {to}");
    Ok((other, Some(doubt)))
}

/// The log, as found by its files alone.
pub(crate) struct FoundLog {
    /// The oldest reachable group that a checkpoint may be at.
    pub(crate) start: Start,
    /// Why the checkpoint may have been before `start`; `None` if it was not.
    pub(crate) doubt: Option<String>,
}

/// Finds the log by its laps, and checks that it accounts for all files.
pub(crate) fn find_log(log: &LogFiles) -> Result<FoundLog, Error> {
    let (found, end) = search(log)?;
    if found.doubt.is_some() {
        return Ok(found);
    }
    // The first group of a database is behind the first block of the first file.
    let from = if found.start.at.0 <= BLOCK_U64 { Lsn::ZERO } else { found.start.at };
    let unknown = log.unknown_file(from, end)?;
    Ok(FoundLog { doubt: unknown.map(unknown_groups), ..found })
}

fn unknown_groups(name: String) -> String {
    format!("log file '{name}' holds groups, and does not say where they begin")
}

/// The oldest start among `newest` and `others` from which the log runs through `newest` to the same end.
pub(crate) fn reach_back(log: &LogFiles, newest: Start, others: impl Iterator<Item = Start>) -> Result<Start, Error> {
    let run = |from: Start| -> Result<(bool, Lsn), Error> {
        let mut scan = LogScan::new(log, from.nonce, from.at);
        let mut passes = false;
        loop {
            passes |= Start { at: scan.position(), nonce: scan.nonce() } == newest;
            if scan.next()?.is_none() {
                return Ok((passes, scan.position()));
            }
        }
    };
    let wanted = run(newest)?;
    let older: BTreeSet<Start> = others.filter(|other| *other < newest).collect();
    for start in older {
        if run(start)? == wanted {
            return Ok(start);
        }
    }
    Ok(newest)
}

/// Finds the start of the log from the first groups of the files that it runs through. Also returns its end.
///
/// The file that holds the log's end has lost its earlier lap. The rest of that lap is searched for groups, from the
/// earliest place of the oldest checkpoint on: one ring before the end, less the two blocks that are left free.
fn search(log: &LogFiles) -> Result<(FoundLog, Lsn), Error> {
    let mut chains: Vec<Chain> = Vec::new();
    for lap in log.laps()? {
        match chains.last_mut() {
            Some(chain) if chain.begins.contains_key(&lap.at) => chain.laps += 1,
            _ => chains.push(Chain::of(log, lap)?),
        }
    }
    // A crash may keep a lap and lose its groups: such a chain counts as without groups. Of equal chains the older
    // wins.
    let groups = |chain: &Chain| (chain.laps, chain.begins.len() > 1);
    let Some(chosen) = (0..chains.len()).rev().max_by_key(|index| groups(&chains[*index])) else {
        return Err(Error::Corruption("no log file says where its first group begins: put back the log's files, or restore a backup (`millpond restore`)".into()));
    };
    let later = chains.get(chosen + 1).filter(|chain| chain.begins.len() > 1).map(|chain| chain.start.at);
    let chain = chains.swap_remove(chosen);
    let (start, end) = (chain.start, chain.end);
    // The log no longer writes a ring that it has left.
    let (written, capacity) = match log.switch() {
        Some(switch) => (switch.at.0, log.geometry().capacity()),
        None => (round_up(end.0), log.capacity()),
    };
    // The most that one flush may have destroyed, and one group that it cut.
    let slack = 2 * (capacity / 8).clamp(16 << 10, BUFFER_MAX);
    if let Some(later) = later.filter(|later| later.since(end) > slack) {
        let doubt = format!("the log ends at LSN {end}, though groups from LSN {later} on are there");
        return Ok((FoundLog { start, doubt: Some(doubt) }, end));
    }
    let back = Lsn((written + 2 * BLOCK_U64).saturating_sub(capacity));
    if back > start.at {
        let first = chain.begins.range(back..).next();
        let start = first.map_or(start, |(at, nonce)| Start { at: *at, nonce: *nonce });
        return Ok((FoundLog { start, doubt: None }, end));
    }
    // The first group of a database is behind the first block.
    Ok((search_before(log, back.max(Lsn(BLOCK_U64)), slack, start)?, end))
}

struct Chain {
    start: Start,
    end: Lsn,
    laps: usize,
    /// Begins of groups with the nonces there, and the chain's end.
    begins: BTreeMap<Lsn, u64>,
}

impl Chain {
    fn of(log: &LogFiles, start: Start) -> Result<Chain, Error> {
        let mut begins = BTreeMap::from([(start.at, start.nonce)]);
        let mut from = start;
        loop {
            // A scan goes no further than the wall of its start.
            let mut scan = LogScan::new(log, from.nonce, from.at);
            while scan.next()?.is_some() {
                begins.insert(scan.position(), scan.nonce());
            }
            if scan.position() == from.at {
                return Ok(Chain { start, end: from.at, laps: 1, begins });
            }
            from = Start { at: scan.position(), nonce: scan.nonce() };
        }
    }
}

/// Looks from `back` on for an older group from which the log runs on to `first`.
fn search_before(log: &LogFiles, back: Lsn, slack: u64, first: Start) -> Result<FoundLog, Error> {
    let mut bytes = aligned(to_usize(Lsn(round_up(first.at.0)).since(back)));
    log.read(&mut bytes, back)?;
    let bytes = &bytes[..to_usize(first.at.since(back))];
    let reaches = |at: Lsn| -> Result<bool, Error> {
        let mut scan = LogScan::new(log, first.nonce, at);
        while scan.position() < first.at && scan.next()?.is_some() {}
        Ok(scan.position() == first.at)
    };
    let mut offset = 0;
    let mut found = first;
    while offset < bytes.len() {
        let place = Place { nonce: first.nonce, at: back.plus(to_u64(offset)) };
        let rest = &bytes[offset..];
        let whole = claimed_len(rest, rest.len()).filter(|len| rest[..4] == rest[len - 4..*len]);
        let group = whole.and_then(|len| read_group(&rest[..len], place));
        offset += 1;
        if let Some(group) = group {
            if reaches(group.start)? {
                found.at = group.start;
                break;
            }
            // The log does not run on from this group: it is older than the bytes that a flush destroyed.
            offset += to_usize(group.end.since(group.start)) - 1;
        }
    }
    let gap = &bytes[..to_usize(found.at.since(back))];
    // In a ring on its first lap, only the end of the group that crosses into the ring stands before its first group.
    let young = gap[..gap.len() - gap.len().min(to_usize(slack))].iter().all(|byte| *byte == 0);
    let doubt = (to_u64(gap.len()) > slack && !young)
        .then(|| format!("the log before LSN {} cannot be read, and the last checkpoint may be there", found.at));
    Ok(FoundLog { start: found, doubt })
}
