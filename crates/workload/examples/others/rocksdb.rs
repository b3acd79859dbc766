//! RocksDB. It is built without any compression library, and has Bloom filters of 10 bits a key, as its guides advise.

use std::path::{Path, PathBuf};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator,
    IngestExternalFileOptions, Options, ReadOptions, SstFileWriter, WriteBatch, WriteBufferManager, WriteOptions,
};

use super::{AMPLE_BYTES, Engine, Key, Memory, Outcome, Reader, Row, RowLocks, Value, entry, is_row, push_rows};

/// The column family of the entries; rows are in the default one.
const ENTRIES: &str = "k";

/// Bytes of a file of the load: the default size of RocksDB's own.
const FILE_BYTES: u64 = 64 << 20;

struct RocksDb {
    db: DB,
    /// Of a file of the load, too.
    options: Options,
    /// Of a durable commit.
    synced: WriteOptions,
    locks: RowLocks,
}

pub(super) fn open(dir: &Path, memory: Memory) -> Outcome<Box<dyn Engine>> {
    let (mut options, mut blocks) = (Options::default(), BlockBasedOptions::default());
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_compression_type(DBCompressionType::None);
    blocks.set_bloom_filter(10.0, false);
    match memory {
        Memory::Ample => blocks.set_block_cache(&Cache::new_lru_cache(usize::try_from(AMPLE_BYTES)?)),
        Memory::Bounded(bytes) => {
            // Write buffers, index blocks and filters take their memory from the cache's. Files and levels keep their
            // default ratios to a write buffer.
            let buffer = bytes / 8;
            options.set_write_buffer_size(usize::try_from(buffer)?);
            options.set_target_file_size_base(buffer);
            options.set_max_bytes_for_level_base(4 * buffer);
            let cache = Cache::new_lru_cache(usize::try_from(bytes)?);
            let buffers = usize::try_from(2 * buffer)?;
            let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(buffers, false, cache.clone());
            options.set_write_buffer_manager(&buffers);
            options.set_use_direct_reads(true);
            options.set_use_direct_io_for_flush_and_compaction(true);
            blocks.set_cache_index_and_filter_blocks(true);
            blocks.set_block_cache(&cache);
        }
    }
    options.set_block_based_table_factory(&blocks);
    let families = ["default", ENTRIES].map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
    let db = DB::open_cf_descriptors(&options, dir, families)?;
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    Ok(Box::new(RocksDb { db, options, synced, locks: RowLocks::new() }))
}

impl RocksDb {
    fn family(&self, name: &str) -> Outcome<&ColumnFamily> {
        Ok(self.db.cf_handle(name).ok_or("no column family")?)
    }

    /// Commits. RocksDB syncs the commits of threads that come together in one.
    fn commit(&self, batch: WriteBatch) -> Outcome<()> {
        Ok(self.db.write_opt(batch, &self.synced)?)
    }

    /// Gives sorted files to a column family. RocksDB syncs them.
    fn ingest(&self, family: &str, files: Files<'_>) -> Outcome<()> {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        Ok(self.db.ingest_external_file_cf_opts(self.family(family)?, &options, files.finish()?)?)
    }
}

impl Engine for RocksDb {
    /// By sorted files, which RocksDB takes over. Batches of 1,000 without a log, then a flush, are a third as fast:
    /// there, each row goes through a skip list first.
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Outcome<()> {
        let mut files = Files::new(&self.options, self.db.path().join("rows"));
        let sorted = push_rows(rows, |key, value| files.put(key, value))?;
        self.ingest("default", files)?;
        let mut files = Files::new(&self.options, self.db.path().join("entries"));
        for entry in &sorted {
            files.put(entry, &[])?;
        }
        self.ingest(ENTRIES, files)
    }

    /// An entry is written once before it is deleted, so a `SingleDelete` does.
    fn update(&self, key: &Key, value: &Value) -> Outcome<()> {
        let _row = self.locks.lock(key);
        let old = entry(key, &self.db.get_pinned(key)?.ok_or("a row is gone")?)?;
        let (entries, mut batch) = (self.family(ENTRIES)?, WriteBatch::default());
        batch.put(key, value);
        batch.single_delete_cf(entries, old);
        batch.put_cf(entries, entry(key, value)?, []);
        self.commit(batch)
    }

    fn insert_batch(&self, rows: &[Row]) -> Outcome<()> {
        let (entries, mut batch) = (self.family(ENTRIES)?, WriteBatch::default());
        for (key, value) in rows {
            batch.put(key, value);
            batch.put_cf(entries, entry(key, value)?, []);
        }
        self.commit(batch)
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(RowsReader { db: &self.db, scan: self.db.raw_iterator() }))
    }

    fn counts(&self) -> Outcome<(u64, u64)> {
        let count = |family| -> Outcome<u64> {
            let (mut count, mut rows) = (0, self.db.raw_iterator_cf_opt(self.family(family)?, ReadOptions::default()));
            rows.seek_to_first();
            while rows.valid() {
                count += 1;
                rows.next();
            }
            rows.status()?;
            Ok(count)
        };
        Ok((count("default")?, count(ENTRIES)?))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

/// A thread's view for reads; the iterator serves all its scans.
struct RowsReader<'d> {
    db: &'d DB,
    scan: DBRawIterator<'d>,
}

impl Reader for RowsReader<'_> {
    fn get(&mut self, key: &Key) -> Outcome<bool> {
        Ok(self.db.get_pinned(key)?.is_some_and(|value| is_row(key, &value)))
    }

    fn scan(&mut self, from: &Key, limit: usize) -> Outcome<usize> {
        let (mut seen, mut found) = (0, 0);
        self.scan.seek(from);
        while seen < limit
            && let Some((key, value)) = self.scan.item()
        {
            seen += 1;
            found += usize::from(is_row(key, value));
            self.scan.next();
        }
        self.scan.status()?;
        Ok(found)
    }
}

/// Files of sorted rows.
struct Files<'o> {
    options: &'o Options,
    /// The begin of their paths.
    path: PathBuf,
    writer: Option<SstFileWriter<'o>>,
    paths: Vec<PathBuf>,
}

impl<'o> Files<'o> {
    fn new(options: &'o Options, path: PathBuf) -> Files<'o> {
        Files { options, path, writer: None, paths: Vec::new() }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let path = self.path.with_extension(format!("{}.load", self.paths.len()));
                let writer = none.insert(SstFileWriter::create(self.options));
                writer.open(&path)?;
                self.paths.push(path);
                writer
            }
        };
        writer.put(key, value)?;
        if writer.file_size() >= FILE_BYTES {
            writer.finish()?;
            self.writer = None;
        }
        Ok(())
    }

    /// The paths of the files, which are complete.
    fn finish(mut self) -> Outcome<Vec<PathBuf>> {
        if let Some(writer) = &mut self.writer {
            writer.finish()?;
        }
        Ok(self.paths)
    }
}
