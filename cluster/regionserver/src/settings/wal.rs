//! Settings of the WAL that are no plain values.

use halcyon_schema::Compression;
use halcyon_settings::Effect::Restart;
use halcyon_settings::Setting;
use halcyon_wal::SyncMode;

use super::server::{RegionServerSettings, share};

pub(super) const SETTINGS: &[Setting<RegionServerSettings>] =
    &[WAL_SYNC, WAL_VALUE_CODEC, WAL_STORAGE_POLICY, WAL_BLOCK_SIZE, WAL_ROLL_MULTIPLIER];

const WAL_SYNC: Setting<RegionServerSettings> = Setting {
    name: "wal.sync",
    unit: "fsync, written",
    effect: Restart,
    text: "What `SYNC_WAL` waits for (`--wal-sync`).",
    set: |settings, text| {
        settings.wal_sync = match text.trim() {
            "fsync" => SyncMode::Fsync,
            "written" => SyncMode::Written,
            _ => return Err("is neither fsync nor written".to_string()),
        };
        Ok(())
    },
    get: |settings| {
        let mode = if settings.wal_sync == SyncMode::Fsync { "fsync" } else { "written" };
        Some(mode.to_string())
    },
};

const WAL_VALUE_CODEC: Setting<RegionServerSettings> = Setting {
    name: "hbase.regionserver.wal.value.compression.type",
    unit: "codec",
    effect: Restart,
    text: "The codec of values in WALs, as in a family's `COMPRESSION`. `hbase.io.compress.zstd.codec` counts here, too.",
    set: |settings, text| {
        let codec = Compression::parse(text.trim());
        settings.wal_value_codec = codec.ok_or_else(|| "is no codec of HBase".to_string())?;
        Ok(())
    },
    get: |settings| Some(settings.wal_value_codec.name().to_string()),
};

const WAL_STORAGE_POLICY: Setting<RegionServerSettings> = Setting {
    name: "hbase.wal.storage.policy",
    unit: "policy",
    effect: Restart,
    text: "On which kind of disks HDFS keeps WALs, such as `ALL_SSD`. `NONE`: HDFS's own setting.",
    set: |settings, text| {
        settings.wal_storage_policy = text.trim().to_ascii_uppercase();
        Ok(())
    },
    get: |settings| Some(settings.wal_storage_policy.clone()),
};

const WAL_BLOCK_SIZE: Setting<RegionServerSettings> = Setting {
    name: "hbase.regionserver.hlog.blocksize",
    unit: "bytes",
    effect: Restart,
    text: "Times the next, it sets `hbase.regionserver.logroll.size`. HBase's default gives 128 MiB, too. In HDFS a WAL file has one block of this size, or of twice `hbase.regionserver.logroll.size` if that is more; a write that does not fit into it is refused.",
    set: |settings, text| {
        settings.wal_block_bytes = text.trim().parse().map_err(|_| "is not a whole number".to_string())?;
        settings.wal_roll_bytes = settings.wal_roll_of_blocks();
        Ok(())
    },
    get: |_| None,
};

const WAL_ROLL_MULTIPLIER: Setting<RegionServerSettings> = Setting {
    name: "hbase.regionserver.logroll.multiplier",
    unit: "share",
    effect: Restart,
    text: "See above.",
    set: |settings, text| {
        settings.wal_roll_multiplier = share(text)?;
        settings.wal_roll_bytes = settings.wal_roll_of_blocks();
        Ok(())
    },
    get: |_| None,
};
