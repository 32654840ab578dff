//! Families and scans of the test kit's scripts, as a region has them.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_region::*;
use halcyon_schema::{BlockEncoding, FamilyDescriptor};
use halcyon_testkit::{FamilyOptions, KeepDeletedCells, OracleScan};

use super::{Policy, with_policy};

pub fn descriptor(options: &FamilyOptions, policy: Policy) -> FamilyDescriptor {
    let keep = match options.keep_deleted_cells {
        KeepDeletedCells::False => "FALSE",
        KeepDeletedCells::True => "TRUE",
        KeepDeletedCells::Ttl => "TTL",
    };
    let policies = ["EAGER", "BASIC", "ADAPTIVE", "NONE"];
    let name_sum: usize = options.name.iter().map(|&byte| usize::from(byte)).sum();
    let encoding = BlockEncoding::ALL[options.versions_max.wrapping_add(name_sum) % BlockEncoding::ALL.len()];
    let mut family = FamilyDescriptor::new(&options.name)
        .unwrap()
        .with("DATA_BLOCK_ENCODING", encoding.name())
        .with("VERSIONS", options.versions_max.min(i32::MAX as usize).to_string())
        .with("MIN_VERSIONS", options.min_versions.to_string())
        .with("KEEP_DELETED_CELLS", keep)
        .with("NEW_VERSION_BEHAVIOR", options.new_version_behavior.to_string())
        .with("BLOCKSIZE", "256")
        .with(
            "IN_MEMORY_COMPACTION",
            policies[(options.versions_max ^ options.min_versions) % policies.len()],
        )
        .with("BLOOMFILTER", if options.versions_max.is_multiple_of(2) { "ROWCOL" } else { "ROW" });
    if let Some(ttl_ms) = options.ttl_ms {
        assert_eq!(ttl_ms % 1000, 0, "a family's time to live is in seconds");
        family = family.with("TTL", (ttl_ms / 1000).to_string());
    }
    if policy == Policy::Stripe && name_sum.is_multiple_of(2) {
        family = family.with_configuration("hbase.store.stripe.compaction.flushToL0", "true");
    }
    with_policy(family, policy, 2000)
}

pub fn region_scan(scan: &OracleScan) -> Scan {
    let range = |range: halcyon_testkit::TimeRange| TimeRange { min: range.min, max: range.max };
    let mut families = BTreeMap::new();
    for (family, qualifiers) in &scan.columns {
        let qualifiers = qualifiers.as_ref().map(|set| set.iter().cloned().map(Bytes::from).collect());
        families.insert(Bytes::from(family.clone()), qualifiers);
    }
    Scan {
        start_row: scan.start_row.clone().into(),
        include_start_row: scan.start_inclusive,
        stop_row: scan.stop_row.clone().into(),
        include_stop_row: scan.stop_inclusive,
        reversed: scan.reversed,
        families,
        max_versions: u32::try_from(scan.versions_max).unwrap_or(u32::MAX),
        time_range: range(scan.time_range),
        family_time_ranges: scan
            .family_time_ranges
            .iter()
            .map(|(family, time)| (Bytes::from(family.clone()), range(*time)))
            .collect(),
        batch: scan.batch.map(|batch| batch as u32),
        store_limit: scan.store_limit.map(|limit| limit as u32),
        store_offset: scan.store_offset as u32,
        raw: scan.raw,
        ..Scan::default()
    }
}
