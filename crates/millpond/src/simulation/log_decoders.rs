//! The decoders of the log: one group, a scan over many, recovery of a database from arbitrary groups, and a rebuild
//! from arbitrary files.

use std::sync::{Arc, OnceLock};

use bytesize::ByteSize;
use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::same::{UUID, same};
use super::{Image, ServiceTime, SimulatedDisk, Unsynced, run};
use crate::api::database::Db;
use crate::base::aligned::{BLOCK, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::page::reader::Reader;
use crate::options::Options;
use crate::redo::files::{Geometry, Lap, LogFiles, Owner, RING, Ring, header_block, is_log_file};
use crate::redo::group::{
    GROUP_FRAME_LEN, Group, GroupKind, Place, claimed_len, epoch_nonce, payload_crc, read_group, write_group,
};
use crate::redo::scan::{LONGEST, LogScan};
use crate::store::files::DATA_FILE;
use crate::store::superblock::{OFFSETS, Superblock};
use crate::tools::check::{CheckOptions, check_on};
use crate::tools::rebuild::{RebuildOptions, rebuild_on};

const KINDS: [GroupKind; 3] = [GroupKind::Pages, GroupKind::Map, GroupKind::Epoch];

fn sealed(place: Place, durable: Lsn, kind: GroupKind, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; payload.len() + GROUP_FRAME_LEN];
    write_group(&mut out, place, durable, kind, payload, payload_crc(payload));
    out
}

/// Nonce (8), LSN (8), the group.
pub(super) fn group_sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let (nonce, at) = (rng.next_u64(), 5000 + (rng.next_u64() >> 8));
    let payload = vec![rng.next_u64().to_le_bytes()[0]; to_usize(1 + rng.next_u64() % 200)];
    let kind = KINDS[to_usize(rng.next_u64() % 3)];
    let group = sealed(Place { nonce, at: Lsn(at) }, Lsn(at - rng.next_u64() % 5000), kind, &payload);
    [&nonce.to_le_bytes()[..], &at.to_le_bytes(), &group].concat()
}

pub(super) fn feed_group(bytes: &[u8]) -> Result<bool, String> {
    let mut reader = Reader::new(bytes);
    let (Some(nonce), Some(at)) = (reader.u64(), reader.u64()) else { return Ok(false) };
    // An LSN never uses all 64 bits.
    let place = Place { nonce, at: Lsn(at & u64::MAX >> 1) };
    let group = reader.rest();
    let _ = read_group(group, place);
    let mut accepted = false;
    if let Some(len) = claimed_len(group, LONGEST.min(group.len()))
        && let Some(read) = read_group(&group[..len], place)
    {
        let again = sealed(place, read.durable, read.kind, read.payload);
        same("a group", &again.as_slice(), &&group[..len])?;
        accepted = len == group.len();
    }
    let durable = Lsn(place.at.0.saturating_sub(nonce % 100));
    let whole = sealed(place, durable, KINDS[to_usize(nonce % 3)], group);
    let expected = Group {
        start: place.at,
        end: place.at.plus(to_u64(whole.len())),
        durable,
        kind: KINDS[to_usize(nonce % 3)],
        payload: group,
    };
    same("a sealed group", &read_group(&whole, place), &Some(expected)).map(|()| accepted)
}

/// A group to write: kind (1), distance of the durable LSN that it states in units of 16 bytes (1), length (2),
/// payload. The upper bit of the kind marks a broken group.
struct Draft<'a> {
    kind: GroupKind,
    broken: bool,
    behind: u64,
    payload: &'a [u8],
}

fn draft<'a>(reader: &mut Reader<'a>) -> Option<Draft<'a>> {
    let (kind, behind, len) = (reader.u8()?, reader.u8()?, reader.u16()?);
    let payload = reader.take(usize::from(len))?;
    let (kind, broken) = (KINDS[usize::from(kind & 0x7f) % 3], kind & 0x80 != 0);
    // No group has an empty payload.
    (!payload.is_empty()).then_some(Draft { kind, broken, behind: u64::from(behind) * 16, payload })
}

fn encode_draft(out: &mut Vec<u8>, kind: u8, behind: u8, payload: &[u8]) {
    out.extend_from_slice(&[kind, behind]);
    out.extend_from_slice(&u16::try_from(payload.len()).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(payload);
}

pub(super) fn log_scan_sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.next_u64() % 30 {
        let payload = vec![rng.next_u64().to_le_bytes()[1]; to_usize(1 + rng.next_u64() % 900)];
        let kind = rng.next_u64().to_le_bytes()[0] % 24;
        let kind = if kind == 23 { 0x81 } else { kind % 8 / 3 };
        encode_draft(&mut out, kind, rng.next_u64().to_le_bytes()[0], if kind == 2 { &[7; 8] } else { &payload });
    }
    out
}

/// The expected result of [`feed_log_scan`]: the ends of the good groups, and the first group that proves a lost one.
struct Written {
    ends: Vec<(Lsn, u64)>,
    proof: Option<Lsn>,
}

/// Writes groups into `log`, whose first byte has LSN 4096.
fn lay(log: &mut [u8], bytes: &[u8]) -> Written {
    let (mut at, mut nonce, mut reader) = (Lsn(4096), 1, Reader::new(bytes));
    let mut written = Written { ends: Vec::new(), proof: None };
    let mut end: Option<(Lsn, u64)> = None;
    while let Some(draft) = draft(&mut reader) {
        let durable = Lsn(at.0.saturating_sub(draft.behind));
        let mut group = sealed(Place { nonce, at }, durable, draft.kind, draft.payload);
        let from = to_usize(at.since(Lsn(4096)));
        if from + group.len() > log.len() {
            break;
        }
        if draft.broken {
            group[5] ^= 1;
            end = end.or(Some((at, nonce)));
        } else if let Some((end, epoch)) = end
            && epoch == nonce
            && durable > end
        {
            written.proof = written.proof.or(Some(at));
        }
        log[from..from + group.len()].copy_from_slice(&group);
        at = at.plus(to_u64(group.len()));
        if let Some(next) = epoch_nonce(draft.payload).filter(|_| draft.kind == GroupKind::Epoch) {
            nonce = next;
        }
        if end.is_none() {
            written.ends.push((at, nonce));
        }
    }
    written
}

/// Scans a log whose files contain these groups, followed by the input bytes as remains of an older lap.
pub(super) fn feed_log_scan(bytes: &[u8]) -> Result<bool, String> {
    let disk = SimulatedDisk::new();
    let owner = Owner { uuid: UUID, page_size: 4096, features: 0 };
    let ring = Ring::create(&disk, owner, Geometry::of(0, 32 << 10)).map_err(|e| e.to_string())?;
    let files = LogFiles::new(ring, None);
    let mut log = vec![0; 7 * BLOCK];
    for (byte, old) in log.iter_mut().zip(bytes.iter().cycle()) {
        *byte = *old;
    }
    let written = lay(&mut log[..6 * BLOCK], bytes);
    files.write(&log, Lsn(4096)).map_err(|e| e.to_string())?;
    let mut scan = LogScan::new(&files, 1, Lsn(4096));
    let mut ends = Vec::new();
    while let Some(end) = scan.next().map_err(|e| e.to_string())?.map(|group| group.end) {
        ends.push((end, scan.nonce()));
    }
    same("a log", &ends, &written.ends)?;
    let proof = scan.proof_of_more().map_err(|e| e.to_string())?;
    same("the proof of more", &proof, &written.proof)?;
    Ok(!ends.is_empty() && proof.is_none())
}

/// A database after a crash, its newest superblock, and the groups of its log from the checkpoint on.
struct Crashed {
    image: Image,
    superblock: Superblock,
    groups: Vec<u8>,
}

fn open_log(disk: &SimulatedDisk) -> Result<(Superblock, LogFiles), Error> {
    let image = disk.image();
    let found = OFFSETS.map(|offset| Superblock::decode(&image[DATA_FILE][to_usize(offset)..]));
    let superblock = Superblock::choose(found, DATA_FILE)?;
    let files = LogFiles::open(disk, superblock.owner(), superblock.redo, superblock.switch)?;
    Ok((superblock, files))
}

/// A history with changes of two trees, a split, and a map group at the end of its log.
fn history() -> Result<super::History, Error> {
    let disk = SimulatedDisk::with_image(Image::new(), ServiceTime { read_ns: 1000, write_ns: 1000, sync_ns: 2000 });
    let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(160));
    let db = Db::open_on(Arc::new(disk.clone()), options.redo_capacity(ByteSize::kib(512)))?;
    let trees = [db.create_tree("a")?, db.create_tree("b")?];
    db.checkpoint()?;
    for i in 0..40u8 {
        trees[usize::from(i % 2)].put([b'k', i / 2], [i; 200])?;
    }
    db.drop_tree("b")?;
    db.checkpoint()?;
    Ok(disk.history())
}

/// The last moment before the checkpoint at which the log contains all kinds of groups.
fn crashed() -> Result<Crashed, Error> {
    let history = run(7, history).0?;
    for boundary in (0..=history.boundaries()).rev() {
        let disk = SimulatedDisk::with_image(history.crash_image(boundary, Unsynced::All), ServiceTime::default());
        let (mut superblock, files) = open_log(&disk)?;
        let mut scan = LogScan::new(&files, superblock.nonce, superblock.checkpoint_lsn);
        let (mut groups, mut maps, mut pages) = (Vec::new(), 0, 0);
        while let Some(group) = scan.next()? {
            let kind = match group.kind {
                GroupKind::Pages => 0,
                GroupKind::Map => 1,
                GroupKind::Epoch => 2,
            };
            (pages, maps) = (pages + u32::from(kind == 0), maps + u32::from(kind == 1));
            encode_draft(&mut groups, kind, 0, group.payload);
        }
        if maps > 0 && pages > 30 {
            // Makes a log that ends early look like a crash, so that recovery goes on.
            superblock.durable_lsn = superblock.checkpoint_lsn;
            superblock.write(&*crate::io::device::Files::open(&disk, DATA_FILE).map_err(|e| Error::io("open", e))?)?;
            return Ok(Crashed { image: disk.image(), superblock, groups });
        }
    }
    Err(Error::Bug("no such moment".into()))
}

fn template() -> Result<&'static Crashed, String> {
    static TEMPLATE: OnceLock<Result<Crashed, String>> = OnceLock::new();
    TEMPLATE.get_or_init(|| crashed().map_err(|e| e.to_string())).as_ref().map_err(Clone::clone)
}

/// The real log, cut after some groups.
pub(super) fn recovery_sample(seed: u64) -> Vec<u8> {
    let Ok(template) = template() else { return Vec::new() };
    let (mut reader, mut out) = (Reader::new(&template.groups), Vec::new());
    for number in 0.. {
        let Some(group) = draft(&mut reader).filter(|_| seed % 4 != 3 || number < seed / 4 % 60) else { break };
        let kind = KINDS.iter().position(|kind| *kind == group.kind).unwrap_or(0).to_le_bytes()[0];
        encode_draft(&mut out, kind, 0, group.payload);
    }
    out
}

/// Recovers, in memory, the database with these groups in its log from the checkpoint on.
pub(super) fn feed_recovery(bytes: &[u8]) -> Result<bool, String> {
    let template = template()?;
    let disk = SimulatedDisk::with_image(template.image.clone(), ServiceTime::default());
    let (_, files) = open_log(&disk).map_err(|e| e.to_string())?;
    let start = template.superblock.checkpoint_lsn;
    let from = to_usize(start.0) % BLOCK;
    let mut log = vec![0; 64 * BLOCK];
    let (mut at, mut nonce, mut reader) = (start, template.superblock.nonce, Reader::new(bytes));
    while let Some(draft) = draft(&mut reader) {
        let group = sealed(Place { nonce, at }, Lsn(at.0.saturating_sub(draft.behind)), draft.kind, draft.payload);
        let offset = from + to_usize(at.since(start));
        if offset + group.len() > log.len() {
            break;
        }
        log[offset..offset + group.len()].copy_from_slice(&group);
        at = at.plus(to_u64(group.len()));
        if let Some(next) = epoch_nonce(draft.payload).filter(|_| draft.kind == GroupKind::Epoch) {
            nonce = next;
        }
    }
    files.write(&log, Lsn(start.0 - to_u64(from))).map_err(|e| e.to_string())?;
    let options = CheckOptions { buffer_pool_size: ByteSize::kib(160), ..CheckOptions::default() };
    let (checked, _) = run(3, || check_on(Arc::new(disk), &options));
    match checked {
        Ok(report) => Ok(report.problems.is_empty()),
        Err(Error::Bug(message)) => Err(message.into()),
        Err(_) => Ok(false),
    }
}

/// Changes of single files, which are sorted by name: file and kind of change (1), offset (4), length (2), bytes. The
/// upper three bits of the first byte are the kind: overwrite, truncate, remove, or write a valid header of a log file.
pub(super) fn rebuild_sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.next_u64() % 6 {
        let [file, way, len, byte, ..] = rng.next_u64().to_le_bytes();
        out.push((file % 8) | ((way % 8) << 5));
        out.extend_from_slice(&(rng.next_u32() % 70_000).to_le_bytes());
        out.extend_from_slice(&u16::from(len % 40).to_le_bytes());
        out.extend(std::iter::repeat_n(byte, usize::from(len % 40)));
    }
    out
}

/// Applies these changes to the files of a crashed database, rebuilds it with force, and opens it.
pub(super) fn feed_rebuild(bytes: &[u8]) -> Result<bool, String> {
    let template = template()?;
    let mut image = template.image.clone();
    let names: Vec<String> = image.keys().cloned().collect();
    let mut reader = Reader::new(bytes);
    while let (Some(which), Some(at), Some(len)) = (reader.u8(), reader.u32(), reader.u16()) {
        let Some(new) = reader.take(usize::from(len)) else { break };
        let name = &names[usize::from(which & 0x1f) % names.len()];
        let Some(file) = image.get_mut(name) else { continue };
        let at = to_usize(u64::from(at)) % file.len().max(1);
        match which >> 5 {
            0..5 => file.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = *new),
            5 => file.truncate(at),
            6 => drop(image.remove(name)),
            _ if is_log_file(name) && file.len() >= BLOCK => {
                let mut reader = Reader::new(new);
                let numbers = (reader.u32(), reader.u64(), reader.u64(), reader.u64());
                let (Some(generation), Some(payload_bytes), Some(first_group), Some(nonce)) = numbers else { continue };
                let lap = Lap { boundary: Lsn::ZERO, first_group: Lsn(first_group >> 1), nonce };
                let geometry = Geometry { generation, payload_bytes };
                let index = u64::from(which) % RING;
                file[..BLOCK].copy_from_slice(&header_block(template.superblock.owner(), index, geometry, Some(&lap)));
            }
            _ => {}
        }
    }
    let disk = SimulatedDisk::with_image(image, ServiceTime::default());
    let options = RebuildOptions { force: true, ..RebuildOptions::default() };
    let (rebuilt, _) = run(3, || rebuild_on(Arc::new(disk.clone()), &options));
    let report = match rebuilt {
        Ok(report) => report,
        Err(Error::Bug(message)) => return Err(message.into()),
        Err(_) => return Ok(false),
    };
    // The rebuilt database opens: remaining damage is in pages, and is reported for each page.
    let options = CheckOptions { buffer_pool_size: ByteSize::kib(160), ..CheckOptions::default() };
    let (checked, _) = run(3, || check_on(Arc::new(disk), &options));
    match checked {
        Ok(checked) => Ok(report.lost.is_empty() && checked.problems.is_empty()),
        Err(Error::Corruption(_)) if !report.lost.is_empty() => Ok(false),
        Err(error) => Err(format!("the rebuilt database does not open: {error}; lost: {:?}", report.lost)),
    }
}
