//! Measures the device by itself, with one thread: 4 KiB writes, each synced before the next, and long sequential
//! writes.
//!
//! The first rate is the yardstick for durable commits. An engine with group commit, where many threads share a sync,
//! can exceed it; without group commit an engine cannot reach it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aligned_vec::{AVec, ConstAlign};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync};

use crate::Error;

/// The file's name; it exists only while the probe runs.
pub const FILE_NAME: &str = "millpond-probe.tmp";

/// Bytes of one write, and their alignment.
const WRITE_LEN: usize = 4096;

/// Writes before the probe starts again at offset 0: 4 MiB, all written before the clock starts, so that no write grows
/// the file.
const WRITES_PER_LAP: u64 = 1024;

/// Whether writes go through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Straight to the device (`O_DIRECT`).
    Direct,
    /// Through the page cache.
    Cached,
}

/// Measured sync pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyncPairs {
    /// Pairs of a 4 KiB write and its sync that one thread made in a second.
    pub per_s: f64,
    /// The longest that one pair took, in ms.
    pub worst_ms: f64,
    /// Mode in which the file was opened; a file system without direct I/O is measured through the page cache.
    pub access: Access,
}

impl SyncPairs {
    /// The faster of two measurements: something other than the device slowed down the other one.
    pub fn faster(self, other: SyncPairs) -> SyncPairs {
        if other.per_s > self.per_s { other } else { self }
    }

    /// Whether two measurements differ by more than half, so that something disturbed one of them.
    pub fn contradicts(self, other: SyncPairs) -> bool {
        self.per_s.max(other.per_s) > 1.5 * self.per_s.min(other.per_s)
    }
}

/// Measures write + sync pairs in `dir`; blocks the calling thread for about `duration`.
///
/// # Errors
/// [`Error::File`]: the file could not be made, written, synced or removed.
pub fn sync_pairs(dir: &Path, access: Access, duration: Duration) -> Result<SyncPairs, Error> {
    let path = dir.join(FILE_NAME);
    let (file, access) = open(&path, access).map_err(failed("create", &path))?;
    let measured = measure(&file, &path, access, duration);
    drop(file);
    let removed = std::fs::remove_file(&path).map_err(failed("remove", &path));
    let measured = measured?;
    removed?;
    Ok(measured)
}

/// Bytes of one sequential write.
const SEQUENTIAL_LEN: usize = 1 << 20;

/// Measures the bytes a second of one thread that writes `bytes` sequentially into a new file in `dir`, in writes of 1
/// MiB, with a sync at the end. The file's space is allocated before the clock starts.
///
/// # Errors
/// [`Error::File`]: the file could not be made, written, synced or removed.
pub fn sequential_write(dir: &Path, access: Access, bytes: u64) -> Result<f64, Error> {
    let path = dir.join(FILE_NAME);
    let (file, _) = open(&path, access).map_err(failed("create", &path))?;
    let measured = write_sequentially(&file, &path, bytes);
    drop(file);
    let removed = std::fs::remove_file(&path).map_err(failed("remove", &path));
    let measured = measured?;
    removed?;
    Ok(measured)
}

fn write_sequentially(file: &File, path: &Path, bytes: u64) -> Result<f64, Error> {
    let buffer: AVec<u8, ConstAlign<WRITE_LEN>> =
        AVec::from_iter(WRITE_LEN, (0..SEQUENTIAL_LEN).map(|at| ((at * 131) >> 3) as u8));
    let len = bytes.next_multiple_of(SEQUENTIAL_LEN as u64);
    fallocate(file, FallocateFlags::empty(), 0, len).map_err(|cause| failed("grow", path)(cause.into()))?;
    let began = Instant::now();
    for offset in (0..len).step_by(SEQUENTIAL_LEN) {
        file.write_all_at(&buffer, offset).map_err(failed("write", path))?;
    }
    fdatasync(file).map_err(|cause| failed("sync", path)(cause.into()))?;
    Ok(len as f64 / began.elapsed().as_secs_f64())
}

fn measure(file: &File, path: &Path, access: Access, duration: Duration) -> Result<SyncPairs, Error> {
    let mut buffer: AVec<u8, ConstAlign<WRITE_LEN>> = AVec::from_iter(WRITE_LEN, std::iter::repeat_n(0xA5, WRITE_LEN));
    for number in 0..WRITES_PER_LAP {
        file.write_all_at(&buffer, number * WRITE_LEN as u64).map_err(failed("write", path))?;
    }
    file.sync_all().map_err(failed("sync", path))?;

    let started = Instant::now();
    let mut pair_began = started;
    let mut worst = Duration::ZERO;
    let mut pairs = 0_u64;
    while started.elapsed() < duration || pairs == 0 {
        // Other bytes each time: some devices skip a write of identical data.
        buffer[..8].copy_from_slice(&pairs.to_le_bytes());
        file.write_all_at(&buffer, pairs % WRITES_PER_LAP * WRITE_LEN as u64).map_err(failed("write", path))?;
        fdatasync(file).map_err(|cause| failed("sync", path)(cause.into()))?;
        pairs += 1;
        let now = Instant::now();
        worst = worst.max(now - pair_began);
        pair_began = now;
    }
    let per_s = pairs as f64 / (pair_began - started).as_secs_f64();
    Ok(SyncPairs { per_s, worst_ms: worst.as_secs_f64() * 1e3, access })
}

/// Opens the file, through the page cache if the file system has no direct I/O.
fn open(path: &Path, access: Access) -> io::Result<(File, Access)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    if access == Access::Cached {
        return Ok((options.open(path)?, Access::Cached));
    }
    let direct = OFlags::DIRECT.bits().cast_signed();
    match options.clone().custom_flags(direct).open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => Ok((options.open(path)?, Access::Cached)),
        opened => Ok((opened?, Access::Direct)),
    }
}

fn failed(deed: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = PathBuf::from(path);
    move |source| Error::File { deed, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        for access in [Access::Direct, Access::Cached] {
            let pairs = sync_pairs(dir.path(), access, Duration::from_millis(20)).unwrap();
            assert!(pairs.per_s > 0.0);
            assert!(pairs.worst_ms > 0.0);
            assert!(pairs.worst_ms >= 1e3 / pairs.per_s * 0.99, "the worst is not better than the mean");
            assert!(sequential_write(dir.path(), access, 3 << 20).unwrap() > 0.0);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn faster_of_two_is_taken_and_a_wide_gap_is_noticed() {
        let pairs = |per_s| SyncPairs { per_s, worst_ms: 1.0, access: Access::Direct };
        assert_eq!(pairs(800.0).faster(pairs(9_000.0)).per_s, 9_000.0);
        assert_eq!(pairs(9_000.0).faster(pairs(800.0)).per_s, 9_000.0);
        assert!(pairs(800.0).contradicts(pairs(9_000.0)));
        assert!(pairs(9_000.0).contradicts(pairs(800.0)));
        assert!(!pairs(9_000.0).contradicts(pairs(8_000.0)));
    }

    #[test]
    fn missing_directory_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        let error = sync_pairs(&missing, Access::Cached, Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("none/millpond-probe.tmp"), "{error}");
    }
}
