//! A region on a simulated file system, driven by lines of text.

pub mod scripts;

use std::cell::Cell as ThreadCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use halcyon_cache::BlockCache;
use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP, Result, SharedCells};
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{CryptoSettings, Env, FileSystem, Keys, ManualClock};
use halcyon_memstore::ChunkPool;
use halcyon_region::*;
use halcyon_schema::{
    FamilyDescriptor, RegionInfo, STORE_FILE_TRACKER, TRACKER_MIGRATION_DST, TRACKER_MIGRATION_SRC,
    TableDescriptor, TableName, layout,
};
use halcyon_wal::{SyncMode, Wal, WalConfig, split_logs};

pub struct Bench {
    pub fs: Arc<SimFileSystem>,
    pub clock: Arc<ManualClock>,
    pub table: Arc<TableDescriptor>,
    pub info: RegionInfo,
    pub wal: Arc<Wal>,
    pub region: Arc<Region>,
    pub cache: Arc<BlockCache>,
    pub chunks: Arc<ChunkPool>,
    /// The next opening waits for coprocessors.
    pub is_hosted: bool,
    incarnation: u32,
}

const SPLITTING: &str = "-splitting";
/// Between the first names of two servers; each opening takes the next one.
const OTHER_SERVER: u32 = 1000;

thread_local! {
    static ENCRYPTED: ThreadCell<bool> = const { ThreadCell::new(false) };
    static CHANGE: ThreadCell<fn(&mut RegionSettings)> = const { ThreadCell::new(|_| ()) };
    static REPLAY_FLUSH_BYTES: ThreadCell<u64> = const { ThreadCell::new(64 << 20) };
}

/// Openings on this thread have their settings changed in this way.
pub fn change_settings(change: fn(&mut RegionSettings)) {
    CHANGE.set(change);
}

/// Openings on this thread flush when a replay has so many bytes in memory.
pub fn set_replay_flush_bytes(bytes: u64) {
    REPLAY_FLUSH_BYTES.set(bytes);
}

/// Runs a test with logs that are encrypted, on this thread.
pub fn encrypted(test: impl FnOnce()) {
    ENCRYPTED.set(true);
    test();
    ENCRYPTED.set(false);
}

pub fn is_encrypted() -> bool {
    ENCRYPTED.get()
}

/// The keys of all environments of a test. A key store takes long to open, by design, so it is opened once.
fn same_keys() -> Arc<Keys> {
    static PLAIN: OnceLock<Arc<Keys>> = OnceLock::new();
    static ENCRYPTED: OnceLock<Arc<Keys>> = OnceLock::new();
    let known = if is_encrypted() { &ENCRYPTED } else { &PLAIN };
    known.get_or_init(|| keys(|_| {})).clone()
}

/// With the keys `master` and `second` of a key store that Java wrote.
pub fn keys(change: impl FnOnce(&mut CryptoSettings)) -> Arc<Keys> {
    let mut settings = CryptoSettings {
        parameters: "jceks:///same.jceks?password=st0re-pass".to_string(),
        master_key: Some("master".to_string()),
        encrypts_wal: is_encrypted(),
        ..CryptoSettings::default()
    };
    change(&mut settings);
    Arc::new(Keys::new(settings, |_| {
        Ok(include_bytes!("../../../../base/crypto/testdata/same.jceks").to_vec())
    }))
}

/// The file system's environment, with that clock and those keys.
pub fn env_of(fs: &SimFileSystem, clock: &Arc<ManualClock>) -> Env {
    Env { clock: clock.clone(), keys: same_keys(), ..fs.env() }
}

pub fn root() -> PathBuf {
    PathBuf::from("/root")
}

pub fn settings() -> RegionSettings {
    // Two files are enough for a compaction, two rows for a mini-batch, and any cell for the pipeline.
    let compaction = CompactionSettings { files_min: 2, ..CompactionSettings::default() };
    let mut settings = RegionSettings {
        mini_batch_rows_max: 2,
        in_memory_flush_share: 0.0,
        compaction,
        data_tiering: true,
        replay_flush_bytes: REPLAY_FLUSH_BYTES.get(),
        ..RegionSettings::default()
    };
    CHANGE.get()(&mut settings);
    settings
}

/// A family whose stores go by a list of their files.
pub fn listed(family: FamilyDescriptor) -> FamilyDescriptor {
    family.with(STORE_FILE_TRACKER, "FILE")
}

/// A family whose stores are on their way from one tracker to another.
pub fn migrating(family: FamilyDescriptor, src: &str, dst: &str) -> FamilyDescriptor {
    family
        .with(STORE_FILE_TRACKER, "MIGRATION")
        .with(TRACKER_MIGRATION_SRC, src)
        .with(TRACKER_MIGRATION_DST, dst)
}

/// `HALCYON_TRACKER` runs tests with another store file tracker.
pub fn table(families: &[FamilyDescriptor]) -> Arc<TableDescriptor> {
    let mut table = TableDescriptor::new(TableName::parse(b"t").unwrap());
    if let Ok(tracker) = std::env::var("HALCYON_TRACKER") {
        table = table.with(STORE_FILE_TRACKER, tracker);
    }
    for family in families {
        table = table.with_family(family.clone());
    }
    Arc::new(table)
}

impl Bench {
    pub fn new(families: &[FamilyDescriptor]) -> Bench {
        Bench::on(Arc::new(SimFileSystem::new()), families)
    }

    pub fn on(fs: Arc<SimFileSystem>, families: &[FamilyDescriptor]) -> Bench {
        Bench::try_on(fs, families).expect("nothing fails here")
    }

    pub fn try_on(fs: Arc<SimFileSystem>, families: &[FamilyDescriptor]) -> Result<Bench> {
        let clock = Arc::new(ManualClock::at(1_000_000));
        let table = table(families);
        let info = RegionInfo::new(table.name().clone(), Bytes::new(), Bytes::new(), 1);
        let cache = new_cache();
        let (wal, region, chunks) = open(&fs, &clock, &table, &info, &cache, 1, false)?;
        Ok(Bench { fs, clock, table, info, wal, region, cache, chunks, is_hosted: false, incarnation: 1 })
    }

    pub fn env(&self) -> Env {
        env_of(&self.fs, &self.clock)
    }

    /// Closes in peace and opens again.
    pub fn reopen(&mut self) -> Result<()> {
        self.region.close(false)?;
        self.wal.close()?;
        self.open_again()
    }

    /// Opens again on what is on `fs`, without closing.
    pub fn recover_on(&mut self, fs: Arc<SimFileSystem>) -> Result<()> {
        self.fs = fs;
        self.cache = new_cache();
        self.open_again()
    }

    /// Another server on the same files, which has not opened the region. Its logs have names of their own.
    pub fn other_server(&self) -> Bench {
        Bench {
            fs: self.fs.clone(),
            clock: self.clock.clone(),
            table: self.table.clone(),
            info: self.info.clone(),
            wal: self.wal.clone(),
            region: self.region.clone(),
            cache: new_cache(),
            chunks: self.chunks.clone(),
            is_hosted: self.is_hosted,
            incarnation: self.incarnation + OTHER_SERVER,
        }
    }

    /// Takes the logs of other servers over, and opens the region.
    pub fn take_over(&mut self) -> Result<()> {
        self.open_again()
    }

    fn open_again(&mut self) -> Result<()> {
        self.incarnation += 1;
        (self.wal, self.region, self.chunks) = open(
            &self.fs,
            &self.clock,
            &self.table,
            &self.info,
            &self.cache,
            self.incarnation,
            self.is_hosted,
        )?;
        Ok(())
    }

    /// Carries out one mutation of its own and waits for it.
    pub fn mutate(&self, mutation: Mutation) -> Result<Option<Vec<Cell>>> {
        self.mutate_once(mutation, Nonce::default())
    }

    /// As an operation with a nonce.
    pub fn mutate_once(&self, mutation: Mutation, nonce: Nonce) -> Result<Option<Vec<Cell>>> {
        let mut outcome = self.region.mutate(vec![mutation], false, nonce, ReadMode::AnyDisk)?;
        self.wal.drive();
        outcome.ticket.wait()?;
        outcome.results.remove(0)
    }

    /// All rows in one answer, as the server reads them.
    pub fn scan(&self, scan: Scan) -> Result<Vec<Vec<Cell>>> {
        let mut scanner = self.region.scanner(scan, ReadMode::AnyDisk)?;
        let (mut cells, mut counts) = (SharedCells::new(), Vec::new());
        loop {
            let start = cells.len();
            let state = scanner.next_shared(&mut ScanLimits::NONE.clone(), &mut cells)?;
            counts.push(cells.len() - start);
            if state == NextState::Exhausted {
                break;
            }
        }
        let mut cells = cells.split_off(0).into_iter();
        counts.retain(|&count| count > 0);
        Ok(counts.into_iter().map(|count| cells.by_ref().take(count).collect()).collect())
    }

    /// What another opening of the region needs, with a cache of its own for open mob files.
    pub fn services_with(&self, mob_files: Arc<MobFileCache>) -> RegionServices {
        RegionServices {
            env: self.env(),
            wal: self.wal.clone(),
            cache: new_cache(),
            mob_files,
            chunks: self.chunks.clone(),
            settings: settings(),
            wal_root: None,
        }
    }

    /// Archives the mob files that no store file refers to, however young, and empties the archive.
    pub fn clean_mob_files(&self) -> Result<usize> {
        let count = self.region.archive_unused_mob_files(-1)?;
        for family in self.table.families() {
            let archive = layout::mob_archive_dir(&root(), self.table.name(), &family.name_str());
            if self.fs.exists(&archive)? {
                self.fs.remove_dir_all(&archive)?;
            }
        }
        Ok(count)
    }

    /// Names of the mob files of a family.
    pub fn mob_files(&self, family: &str) -> Vec<String> {
        let dir = layout::mob_family_dir(&root(), self.table.name(), family);
        self.fs.list(&dir).unwrap_or_default().into_iter().map(|entry| entry.name).collect()
    }

    pub fn compact(&self, major: bool) -> Result<CompactionOutcome> {
        self.region.compact(None, CompactionRequest { major, user: true }, &mut &AtomicBool::new(false))
    }
}

fn new_cache() -> Arc<BlockCache> {
    Arc::new(BlockCache::new(1 << 20))
}

type Opened = (Arc<Wal>, Arc<Region>, Arc<ChunkPool>);

fn open(
    fs: &Arc<SimFileSystem>,
    clock: &Arc<ManualClock>,
    table: &Arc<TableDescriptor>,
    info: &RegionInfo,
    cache: &Arc<BlockCache>,
    incarnation: u32,
    is_hosted: bool,
) -> Result<Opened> {
    let env = env_of(fs, clock);
    let wals = root().join("WALs");
    let old = root().join("oldWALs");
    let edits = root().join("data/default/t").join(info.encoded_name()).join("recovered.edits");
    if fs.exists(&wals)? {
        for entry in fs.list(&wals)? {
            let name = entry.name.strip_suffix(SPLITTING).unwrap_or(&entry.name);
            let splitting = wals.join(format!("{name}{SPLITTING}"));
            if name == entry.name {
                fs.rename_over(&wals.join(name), &splitting)?; // its server makes no file there any more
            }
            split_logs(&env, &splitting, &|_, _| Ok(Some(edits.clone())))?;
            fs.remove_dir_all(&splitting)?;
        }
        fs.sync_dir(&wals)?;
    }
    let mut config = WalConfig::new(wals.join(format!("s{incarnation}")), old, format!("s{incarnation}"));
    config.sync_mode = SyncMode::Fsync;
    let wal = Wal::open(env.clone(), config)?;
    let chunks = ChunkPool::new(64 << 10, 4);
    let services = RegionServices {
        env,
        wal: wal.clone(),
        cache: cache.clone(),
        mob_files: MobFileCache::new(1000, 0.5),
        chunks: chunks.clone(),
        settings: RegionSettings { is_hosted, ..settings() },
        wal_root: None,
    };
    let region = Region::open(services, Path::new("/root"), info.clone(), table.clone())?;
    Ok((wal, region, chunks))
}

/// How a family asks for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Exploring,
    RatioBased,
    Fifo,
    DateTiered,
    Stripe,
    /// Values of more than two bytes in mob files.
    Mob,
}

/// The family with the policy in its configuration. Windows are `base_window_ms` long and soon grow.
pub fn with_policy(family: FamilyDescriptor, policy: Policy, base_window_ms: u64) -> FamilyDescriptor {
    const CLASS: &str = "hbase.hstore.defaultengine.compactionpolicy.class";
    const POLICIES: &str = "org.apache.hadoop.hbase.regionserver.compactions";
    const TIERED: &str = "hbase.hstore.compaction.date.tiered";
    match policy {
        Policy::Exploring => family,
        Policy::Mob => family.with("IS_MOB", "true").with("MOB_THRESHOLD", "2"),
        Policy::RatioBased => {
            family.with_configuration(CLASS, format!("{POLICIES}.RatioBasedCompactionPolicy"))
        }
        Policy::Fifo => family.with_configuration(CLASS, format!("{POLICIES}.FIFOCompactionPolicy")),
        Policy::Stripe => family
            .with_configuration(
                "hbase.hstore.engine.class",
                "org.apache.hadoop.hbase.regionserver.StripeStoreEngine",
            )
            .with_configuration("hbase.store.stripe.initialStripeCount", "2")
            .with_configuration("hbase.store.stripe.sizeToSplit", "6000")
            .with_configuration("hbase.store.stripe.compaction.minFiles", "2")
            .with_configuration("hbase.store.stripe.compaction.minFilesL0", "2"),
        Policy::DateTiered => family
            .with_configuration(
                "hbase.hstore.engine.class",
                "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine",
            )
            .with_configuration(format!("{TIERED}.base.window.millis"), base_window_ms.to_string())
            .with_configuration(format!("{TIERED}.windows.per.tier"), "2")
            .with_configuration(format!("{TIERED}.incoming.window.min"), "2")
            .with_configuration(format!("{TIERED}.single.output.for.minor.compaction"), "false"),
    }
}

pub fn mutation(kind: MutationKind, row: &[u8], cells: Vec<Cell>) -> Mutation {
    Mutation {
        kind,
        row: Bytes::copy_from_slice(row),
        cells,
        timestamp: LATEST_TIMESTAMP,
        durability: None,
        time_range: TimeRange::ALL,
        return_results: true,
        cell_ttl_ms: None,
        cluster_ids: None,
    }
}

/// `family:qualifier=value@timestamp`; value and timestamp may be missing.
pub fn parse_cell(row: &str, text: &str, cell_type: CellType, number: bool) -> Cell {
    let (text, timestamp) = match text.rsplit_once('@') {
        Some((text, timestamp)) => (text, timestamp.parse().expect("a timestamp")),
        None => (text, LATEST_TIMESTAMP),
    };
    let (column, value) = text.split_once('=').unwrap_or((text, ""));
    let (family, qualifier) = column.split_once(':').unwrap_or((column, ""));
    let value =
        if number { value.parse::<i64>().unwrap().to_be_bytes().to_vec() } else { value.as_bytes().to_vec() };
    Cell::build(row.as_bytes(), family.as_bytes(), qualifier.as_bytes(), timestamp, cell_type, &value, b"", 0)
}

pub fn show(cell: &Cell) -> String {
    let kind = match cell.cell_type() {
        CellType::Put => "".to_string(),
        other => format!(" {other:?}"),
    };
    let value = match <[u8; 8]>::try_from(cell.value()) {
        Ok(bytes) if bytes[0] == 0 => i64::from_be_bytes(bytes).to_string(),
        _ => cell.value().escape_ascii().to_string(),
    };
    format!(
        "{} {}:{}={}@{}{}",
        cell.row().escape_ascii(),
        cell.family().escape_ascii(),
        cell.qualifier().escape_ascii(),
        value,
        cell.timestamp(),
        kind
    )
}

/// Puts a cell into the row, or deletes the row.
pub fn write(bench: &Bench, row: &str, kind: MutationKind) -> Result<()> {
    let cells = match kind {
        MutationKind::Put => vec![parse_cell(row, "f:q=v", CellType::Put, false)],
        _ => Vec::new(),
    };
    bench.mutate(mutation(kind, row.as_bytes(), cells)).map(|_| ())
}

/// The rows that a scan finds.
pub fn rows(bench: &Bench) -> Vec<String> {
    let rows = bench.scan(Scan::default()).unwrap();
    rows.iter().map(|cells| String::from_utf8_lossy(cells[0].row()).into_owned()).collect()
}

/// Names in the directory of family `f`.
pub fn store_files(bench: &Bench) -> Vec<String> {
    let entries = bench.fs.list(&bench.region.dir().join("f")).unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}
