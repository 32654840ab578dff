use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::BackupTables;
use halcyon_schema::{ServerName, TableDescriptor};

use crate::groups::{GroupMapping, GroupSettings};
use crate::mob::cleaner::MobChoreSettings;
use crate::normalizer::NormalizerSettings;

/// What a master is told when it starts. Plain data.
#[derive(Clone, Debug)]
pub struct MasterSettings {
    /// The master's own name and address, which clients are told.
    pub server_name: ServerName,
    /// Grows with each master of a cluster that becomes active. 0: the only one, in a process with its region server.
    pub epoch: u64,
    /// Until when the master before this one may change files, in `Clock::boot_ns`: its place was taken because its process seemed to have
    /// ended, and it may live. No files of tables are deleted before. `None`: its session had ended.
    pub predecessor_until_ns: Option<u64>,
    /// Version that clients are told (`hbase_version` of the cluster status). 2.6.4: the version checked against.
    pub hbase_version: String,
    /// Port of the web pages; -1 if there are none.
    pub info_port: i32,
    /// Threads that run procedures. 4: they wait for disks, not for processors.
    pub procedure_threads: usize,
    /// A cluster that starts as a whole waits for servers at whose addresses regions were, until no other has come for so long
    /// (`hbase.master.wait.on.regionservers.interval`). 1.5 s.
    pub servers_settle: Duration,
    /// With so many servers it waits no longer (`hbase.master.wait.on.regionservers.maxtostart`). No number.
    pub servers_max: Option<usize>,
    /// Regions of one procedure opened, closed or flushed at a time. 8.
    pub region_threads: usize,
    /// WALs of a dead server that are split at a time. 8.
    pub split_threads: usize,
    /// How long the result of a finished procedure can be asked for. 15 minutes, as HBase's eviction.
    pub result_keep: Duration,
    /// Finished procedures remembered. 10,000.
    pub results_max: usize,
    /// Procedures waiting or running; beyond, new ones are refused with PleaseHoldException. 10,000.
    pub procedures_max: usize,
    /// First pause before a failed step is tried again; doubles up to `retry_pause_max`. 100 ms.
    pub retry_pause: Duration,
    /// Longest pause before a failed step is tried again. 10 s.
    pub retry_pause_max: Duration,
    /// Time between two heartbeats of a lock that a client holds (`hbase.master.procedure.remote.locks.timeout.ms`). 30 s.
    pub remote_lock_timeout: Duration,
    /// Regions that overlap which one merge of a repair takes at most (`hbase.master.metafixer.max.merge.count`). 64.
    pub fix_merge_count_max: usize,
    /// Whether the second daughter of a split opens at another server than the parent had
    /// (`hbase.master.auto.separate.child.regions.after.split.enabled`). False, as in HBase: both open there.
    pub separate_daughters: bool,
    /// How often archive and old logs are cleaned (`hbase.master.cleaner.interval`). One minute: a look costs
    /// little, and HBase's ten let the disk fill under heavy compaction.
    pub cleaner_period: Duration,
    /// How long a store file stays in the archive (`hbase.master.hfilecleaner.ttl`). 5 minutes.
    pub archive_keep: Duration,
    /// Time to live of a snapshot that is taken without one; zero: it is kept for ever (`hbase.master.snapshot.ttl`,
    /// in seconds). Zero, as in HBase.
    pub snapshot_ttl: Duration,
    /// How long clients are told to wait for a snapshot (`hbase.snapshot.master.timeout.millis`). 5 minutes.
    pub snapshot_timeout: Duration,
    /// Whether new descriptors must pass HBase's sanity checks (`hbase.table.sanity.checks`); a table can turn them off,
    /// too. What cannot be obeyed at all is refused in any case.
    pub sanity_checks: bool,
    /// The store file tracker that new tables get which name none (`hbase.store.file-tracker.impl`). `DEFAULT`.
    pub store_file_tracker: String,
    /// What the configuration of each replication peer has: `name=value`, with semicolons between them; without a value the name is
    /// removed (`hbase.replication.peer.base.config`).
    pub peer_base_config: String,
    /// Whether the coprocessors that tables name can be loaded. Without a JVM for them only built-in ones can.
    pub coprocessors: CoprocessorCheck,
    /// Whether families that are to be encrypted are tried first (`hbase.master.check.encryption`).
    pub checks_encryption: bool,
    /// Whether there is to be a table for slow calls, `hbase:slowlog` (`hbase.regionserver.slowlog.systable.enabled`).
    pub slow_log_table: bool,
    /// How long a log stays in `oldWALs` (`hbase.master.logcleaner.ttl`). 10 minutes.
    pub old_wals_keep: Duration,
    /// Bytes of old logs that are kept for replication peers, and as many of archived files of bulk loads
    /// (`replication.wal.bytes.max`). Beyond it the oldest are deleted, and peers miss what is in them. `None`: there is no limit.
    pub peer_wal_bytes_max: Option<u64>,
    /// Whether HBase's backup tool may be used (`hbase.backup.enable`): WALs and archived files that it needs are kept.
    pub backup_enabled: bool,
    /// Where the tool has its books (`hbase.backup.system.table.name`).
    pub backup_tables: BackupTables,
    pub normalizer: NormalizerSettings,
    pub groups: GroupSettings,
    pub group_mapping: GroupMapping,
    pub quotas: QuotaSettings,
    pub mob: MobChoreSettings,
}

/// Looks whether the coprocessors that a table names can be loaded. *Thread safety*: from any thread; may block.
#[derive(Clone, Default)]
pub struct CoprocessorCheck(Option<Checks>);

#[derive(Clone)]
struct Checks {
    permits: Arc<Check>,
    loads: Arc<Check>,
}

type Check = dyn Fn(&TableDescriptor) -> Result<()> + Send + Sync;

impl CoprocessorCheck {
    /// In a cluster whose region servers have a JVM for coprocessors. `permits`: whether it may load what the table names; `loads`: whether
    /// it can.
    pub fn hosted(
        permits: impl Fn(&TableDescriptor) -> Result<()> + Send + Sync + 'static,
        loads: impl Fn(&TableDescriptor) -> Result<()> + Send + Sync + 'static,
    ) -> CoprocessorCheck {
        CoprocessorCheck(Some(Checks { permits: Arc::new(permits), loads: Arc::new(loads) }))
    }

    /// As HBase, only where sanity checks are `wanted`. What nothing can or may load is refused in any case.
    pub(crate) fn check(&self, table: &TableDescriptor, wanted: bool) -> Result<()> {
        match &self.0 {
            None => table.check_no_host(),
            Some(checks) => {
                (checks.permits)(table)?;
                let loaded = if wanted { (checks.loads)(table) } else { Ok(()) };
                loaded.map_err(|error| match error.kind() {
                    ErrorKind::Invalid => {
                        Error::invalid(format!("{} {}", error.message(), halcyon_schema::SANITY_CHECKS_HINT))
                    }
                    _ => error, // nobody could look
                })
            }
        }
    }
}

impl fmt::Debug for CoprocessorCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CoprocessorCheck").field(&self.0.is_some()).finish()
    }
}

/// Of quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSettings {
    /// Whether there are quotas (`hbase.quota.enabled`). False, as in HBase.
    pub enabled: bool,
    /// Whether a deleted table or namespace loses its quotas (`hbase.quota.remove.on.table.delete`). True.
    pub removed_with_table: bool,
    /// How often space quotas are compared with what tables use (`hbase.master.quotas.observer.chore.period`). A minute.
    pub observer_period: Duration,
    /// How often the sizes of snapshots are looked at (`hbase.master.quotas.snapshot.chore.period`). Five minutes.
    pub snapshot_period: Duration,
    /// For how long the size of a region counts that no server reports (`hbase.master.quotas.region.report.retention.millis`).
    /// Ten minutes.
    pub report_keep: Duration,
}

impl Default for QuotaSettings {
    fn default() -> QuotaSettings {
        QuotaSettings {
            enabled: false,
            removed_with_table: true,
            observer_period: Duration::from_secs(60),
            snapshot_period: Duration::from_secs(5 * 60),
            report_keep: Duration::from_secs(10 * 60),
        }
    }
}

impl MasterSettings {
    /// The defaults, for a master of this name.
    pub fn new(server_name: ServerName) -> MasterSettings {
        MasterSettings {
            server_name,
            epoch: 0,
            predecessor_until_ns: None,
            hbase_version: "2.6.4".to_string(),
            info_port: -1,
            procedure_threads: 4,
            servers_settle: Duration::from_millis(1500),
            servers_max: None,
            region_threads: 8,
            split_threads: 8,
            result_keep: Duration::from_secs(15 * 60),
            results_max: 10_000,
            procedures_max: 10_000,
            retry_pause: Duration::from_millis(100),
            retry_pause_max: Duration::from_secs(10),
            remote_lock_timeout: Duration::from_secs(30),
            fix_merge_count_max: 64,
            separate_daughters: false,
            cleaner_period: Duration::from_secs(60),
            archive_keep: Duration::from_secs(5 * 60),
            snapshot_ttl: Duration::ZERO,
            snapshot_timeout: Duration::from_secs(5 * 60),
            sanity_checks: true,
            store_file_tracker: "DEFAULT".to_string(),
            peer_base_config: String::new(),
            coprocessors: CoprocessorCheck::default(),
            checks_encryption: true,
            slow_log_table: false,
            old_wals_keep: Duration::from_secs(10 * 60),
            peer_wal_bytes_max: None,
            backup_enabled: false,
            backup_tables: BackupTables::default(),
            normalizer: NormalizerSettings::default(),
            groups: GroupSettings::default(),
            group_mapping: GroupMapping::default(),
            quotas: QuotaSettings::default(),
            mob: MobChoreSettings::default(),
        }
    }
}

/// What a client asked the process to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopRequest {
    /// End the whole cluster (`Shutdown`).
    Cluster,
    /// End this master (`StopMaster`).
    Master,
}
