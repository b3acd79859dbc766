//! Finding the log without a superblock: from the headers of its files.

use std::collections::{BTreeMap, BTreeSet};

use super::files::{Geometry, LogFiles, Owner, Ring, parse_name, read_header};
use super::scan::LogScan;
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, round_down};
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::io::device::Files;

/// A group's begin, and the epoch that is in force there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Start {
    pub(crate) at: Lsn,
    pub(crate) nonce: u64,
}

/// Whose log it is, and its files. Where the log goes over to a second ring follows from the groups there.
pub(crate) fn find_rings(files: &dyn Files) -> Result<(Owner, LogFiles), Error> {
    let (owner, geometries) = read_headers(files)?;
    let mut rings = Vec::new();
    for geometry in geometries {
        // One that is not complete was never in use, or is no longer.
        if let Ok(ring) = Ring::open(files, owner, geometry) {
            let log = LogFiles::new(ring.clone(), None);
            rings.push((ring, log.laps()?.into_iter().min()));
        }
    }
    let used = rings.iter().filter(|(_, lap)| lap.is_some()).count();
    let mut used_rings = rings.into_iter().filter_map(|(ring, lap)| Some((ring, lap?)));
    match (used, used_rings.next(), used_rings.next()) {
        (1, Some((ring, _)), _) => Ok((owner, LogFiles::new(ring, None))),
        (2, Some((first, _)), Some((second, lap))) => Ok((owner, find_switch(first, &second, lap)?)),
        _ => {
            let message = format!(
                "the log files in '{}' are not one whole ring, or two: restore them, or the database from a backup",
                files.place()
            );
            Err(Error::Corruption(message.into()))
        }
    }
}

/// What the headers of the log files agree on, and the rings that they are of, older generations first.
fn read_headers(files: &dyn Files) -> Result<(Owner, Vec<Geometry>), Error> {
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    let mut owners: BTreeMap<u32, (Owner, Geometry)> = BTreeMap::new();
    let mut identities: BTreeSet<[u64; 2]> = BTreeSet::new();
    let mut block = aligned(BLOCK);
    for name in names.iter().filter(|name| parse_name(name).is_some()) {
        let file = files.open(name).map_err(|e| Error::io(&format!("open log file '{name}'"), e))?;
        // One that is too short to have a header has none.
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
            "the headers of the log files in '{}' are of {} databases: put back the files of one, or restore a backup",
            files.place(),
            identities.len()
        );
        return Err(Error::Corruption(message.into()));
    };
    Ok((owner, owners.into_values().map(|(_, geometry)| geometry).collect()))
}

/// The block at which the log goes over from `first` to `second`, whose oldest lap is `lap`: there, and there alone,
/// the group that crosses it is whole, and ends where the lap begins.
fn find_switch(first: Ring, second: &Ring, lap: Start) -> Result<LogFiles, Error> {
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
                return Ok(log);
            }
            if crossing < lap.at && scan.next()?.is_some_and(|group| group.end == lap.at) {
                return Ok(log);
            }
            at = Lsn(at.0.saturating_sub(BLOCK_U64));
        }
    }
    // The superblock had gone over, and the first ring was not removed yet.
    Ok(LogFiles::new(second.clone(), None))
}
