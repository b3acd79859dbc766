//! The manifest of a backup: a text that names it, in a file that is written last.

use crate::backup::options::BackupReport;
use crate::backup::target::sync_names;
use crate::base::aligned::{BLOCK, aligned};
use crate::base::crc::crc32c;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::io::device::Files;
use crate::store::files::{MANIFEST, UNFINISHED};
use crate::store::superblock::uuid_text;

/// The first line.
const TITLE: &str = "millpond backup 1";

/// The facts of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) uuid: [u64; 2],
    pub(crate) lsn: Lsn,
    pub(crate) pages: u64,
    pub(crate) log_bytes: u64,
}

impl Manifest {
    /// The report of the backup.
    pub(crate) fn report(&self) -> BackupReport {
        BackupReport { lsn: self.lsn.0, commit_ts: self.lsn.into(), pages: self.pages, log_bytes: self.log_bytes }
    }

    /// The lines before the checksum.
    fn lines(&self) -> String {
        let Manifest { uuid, lsn, pages, log_bytes } = self;
        let uuid = uuid_text(*uuid);
        format!("{TITLE}\nuuid {uuid}\nlsn {lsn}\ncommit_ts {lsn}\npages {pages}\nlog_bytes {log_bytes}\n")
    }

    /// Writes the manifest: a backup from then on. Durable on return.
    pub(crate) fn write(&self, files: &dyn Files) -> Result<(), Error> {
        let lines = self.lines();
        let text = format!("{lines}crc {:08x}\n", crc32c(&[], &[lines.as_bytes()]));
        let mut block = aligned(BLOCK);
        block.fill(b'\n');
        block[..text.len()].copy_from_slice(text.as_bytes());
        let make = || {
            // The mark becomes the manifest.
            let file = files.open(UNFINISHED)?;
            file.write_at(&block, 0)?;
            file.sync()?;
            files.rename(UNFINISHED, MANIFEST)
        };
        make().map_err(|e| Error::io(&format!("write '{MANIFEST}' in '{}'", files.place()), e))?;
        sync_names(files)
    }

    /// Reads the manifest.
    pub(crate) fn read(files: &dyn Files) -> Result<Manifest, Error> {
        let file = files.open(MANIFEST).map_err(|e| {
            if e.kind() != std::io::ErrorKind::NotFound {
                return Error::io(&format!("open '{MANIFEST}' in '{}'", files.place()), e);
            }
            let message = format!(
                "'{}' is no backup: it has no file '{MANIFEST}', or `millpond backup` was cut short: name the directory of a whole one",
                files.place()
            );
            Error::Format(message.into())
        })?;
        let mut block = aligned(BLOCK);
        file.read_at(&mut block, 0).map_err(|e| Error::io(&format!("read '{}'", file.name()), e))?;
        Manifest::parse(&String::from_utf8_lossy(&block)).ok_or_else(|| {
            let message = format!("'{}' is damaged, or of a later build: take another backup", file.name());
            Error::Corruption(message.into())
        })
    }

    /// The manifest in a text; `None` if the text is not as it was written.
    fn parse(text: &str) -> Option<Manifest> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let number = |name: &str| field(name)?.parse::<u64>().ok();
        let uuid = field("uuid")?;
        let half = |range| u64::from_str_radix(uuid.get(range)?, 16).ok().map(u64::swap_bytes);
        let manifest = Manifest {
            uuid: [half(0..16)?, half(16..32)?],
            lsn: Lsn(number("lsn")?),
            pages: number("pages")?,
            log_bytes: number("log_bytes")?,
        };
        let lines = manifest.lines();
        let crc = u32::from_str_radix(field("crc")?, 16).ok()?;
        (text.starts_with(&lines) && crc == crc32c(&[], &[lines.as_bytes()])).then_some(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::simulated::SimulatedDisk;

    #[test]
    fn manifest_is_read_as_written_and_each_changed_byte_is_found() {
        let disk = SimulatedDisk::new();
        let manifest = Manifest { uuid: [7, u64::MAX], lsn: Lsn(12_345), pages: 9, log_bytes: 0 };
        assert!(matches!(Manifest::read(&disk), Err(Error::Format(_))));
        crate::backup::target::mark_unfinished(&disk).expect("marked");
        manifest.write(&disk).expect("written");
        assert_eq!(Manifest::read(&disk).expect("read"), manifest);
        let text = format!("{}crc", manifest.lines());
        for byte in 0..text.len() {
            assert!(disk.flip_bit(MANIFEST, crate::base::aligned::to_u64(byte), 1));
            assert!(Manifest::read(&disk).is_err(), "byte {byte}");
            assert!(disk.flip_bit(MANIFEST, crate::base::aligned::to_u64(byte), 1));
        }
    }
}
