//! RocksDB under the loads of `halcyon-bench`.
//!
//! Tuned where the comparison asks for it (memory, block size, bloom filter, compression, the disk's word) and left
//! alone elsewhere: levelled compaction, two background jobs, index and filter blocks beside the cache. It runs on
//! jemalloc, as it usually does.

use std::process::ExitCode;

use clap::Parser;
use halcyon_bench::engine::{Compression, Scanned};
use halcyon_bench::keys::Key;
use halcyon_bench::plan::Plan;
use halcyon_bench::{Engine, Failure, Opening, Row, run};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, WaitForCompactOptions, WriteBatch, WriteOptions,
};

#[derive(Parser)]
#[command(about = "Measures RocksDB")]
enum Command {
    /// One line for each load
    Run {
        #[command(flatten)]
        plan: Plan,
    },
}

fn main() -> ExitCode {
    let Command::Run { plan } = Command::parse();
    match run(&plan, RocksEngine::open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("halcyon-bench-rocksdb: {error}");
            ExitCode::FAILURE
        }
    }
}

struct RocksEngine {
    db: DB,
    fsync: bool,
}

impl RocksEngine {
    fn open(opening: &Opening) -> Result<Box<dyn Engine>, Failure> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(opening.cache_bytes));
        blocks.set_bloom_filter(10.0, false);
        if let Some(bytes) = opening.block_bytes {
            blocks.set_block_size(bytes);
        }
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_write_buffer_size(opening.memstore_bytes);
        options.set_max_write_buffer_number(opening.memstores_max as i32);
        options.set_compression_type(match opening.compression {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
            Compression::Snappy => DBCompressionType::Snappy,
        });
        std::fs::create_dir_all(&opening.dir)?;
        let db = DB::open(&options, &opening.dir)?;
        Ok(Box::new(RocksEngine { db, fsync: opening.fsync }))
    }
}

impl Engine for RocksEngine {
    fn write(&self, rows: &[Row<'_>]) -> Result<(), Failure> {
        let mut options = WriteOptions::default();
        options.set_sync(self.fsync);
        if let [row] = rows {
            return Ok(self.db.put_opt(row.key, row.value, &options)?);
        }
        let mut batch = WriteBatch::default();
        rows.iter().for_each(|row| batch.put(row.key, row.value));
        Ok(self.db.write_opt(batch, &options)?)
    }

    fn read(&self, key: &Key) -> Result<Option<usize>, Failure> {
        Ok(self.db.get_pinned(key)?.map(|value| value.len()))
    }

    fn scan(&self) -> Result<Scanned, Failure> {
        let mut rows = self.db.raw_iterator();
        let mut scanned = Scanned::default();
        rows.seek_to_first();
        while let Some((key, value)) = rows.item() {
            scanned.rows += 1;
            scanned.bytes += (key.len() + value.len()) as u64;
            rows.next();
        }
        rows.status()?;
        Ok(scanned)
    }

    fn settle(&self) -> Result<(), Failure> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.db.wait_for_compact(&options)?)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}
