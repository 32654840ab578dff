//! Which store file trackers a table may have, and may change to (HBase: `StoreFileTrackerValidationUtils`).
//!
//! A tracker is changed through `MIGRATION`, with which regions open by the old one and write down their files for the new one.
//! Any other way would lose files.

use halcyon_cell::Error;
use halcyon_rpc::RpcError;
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor, Tracker};

use crate::errors;
use crate::state::{RegionState, TableEntry};

type Answer<T> = std::result::Result<T, RpcError>;

/// A table that is made has no files to migrate.
pub(crate) fn check_new_table(table: &TableDescriptor) -> Answer<()> {
    table.families().iter().try_for_each(|family| check_new_family(table, family))
}

fn check_new_family(table: &TableDescriptor, family: &FamilyDescriptor) -> Answer<()> {
    if tracker_of(table, family)? != Tracker::Migration {
        return Ok(());
    }
    Err(RpcError::do_not_retry(format!(
        "Should not use MIGRATION as store file tracker for new family {} of table {}",
        family.name_str(),
        table.name()
    )))
}

/// Each family of a table that is changed from `old` to `new`.
pub(crate) fn check_modified_table(
    old: &TableDescriptor,
    new: &TableDescriptor,
    is_disabled: bool,
) -> Answer<()> {
    new.families().iter().try_for_each(|family| match old.family(family.name()) {
        Some(before) => check_family((old, before), (new, family), is_disabled),
        None => check_new_family(new, family),
    })
}

fn check_family(
    (old, before): (&TableDescriptor, &FamilyDescriptor),
    (new, family): (&TableDescriptor, &FamilyDescriptor),
    is_disabled: bool,
) -> Answer<()> {
    let (old_tracker, new_tracker) = (tracker_of(old, before)?, tracker_of(new, family)?);
    let of_family = format!("for family {} of table {}", family.name_str(), new.name());
    let refuse = |why: String| Err(RpcError::do_not_retry(why));
    match (old_tracker, new_tracker) {
        (Tracker::Migration, Tracker::Migration) => {
            let ((old_src, old_dst), (src, dst)) = (migration_of(old, before)?, migration_of(new, family)?);
            for (side, was, is) in [("src", old_src, src), ("dst", old_dst, dst)] {
                if was != is {
                    let (was, is) = (was.name(), is.name());
                    return refuse(format!(
                        "The {side} tracker has been changed from {was} to {is} {of_family}"
                    ));
                }
            }
            Ok(())
        }
        // A region has to open under MIGRATION before (HBASE-26611).
        (Tracker::Migration, _) if is_disabled => Err(RpcError::table_not_enabled(format!(
            "Should not change store file tracker implementation from MIGRATION while table {} is disabled",
            new.name()
        ))),
        (Tracker::Migration, tracker) => {
            let dst = migration_of(old, before)?.1;
            if tracker != dst {
                let (dst, tracker) = (dst.name(), tracker.name());
                return refuse(format!("Should migrate tracker to {dst} but got {tracker} {of_family}"));
            }
            Ok(())
        }
        (tracker, Tracker::Migration) => {
            let (src, dst) = migration_of(new, family)?;
            if tracker != src {
                let (tracker, src) = (tracker.name(), src.name());
                return refuse(format!(
                    "Should use src tracker {tracker} first but got {src} when migrating from {tracker} {of_family}"
                ));
            }
            if src == dst {
                return refuse(format!(
                    "The src tracker and dst tracker are both {} {of_family}",
                    src.name()
                ));
            }
            Ok(())
        }
        (old, new) if old == new => Ok(()),
        (old, _) => {
            refuse(format!("Should change to MIGRATION first when migrating from {} {of_family}", old.name()))
        }
    }
}

/// A region that has not opened during the migration would open without its files afterwards. HBase waits until all are open.
pub(crate) fn check_migrated(entry: &TableEntry, new: &TableDescriptor) -> Answer<()> {
    let old = &entry.descriptor;
    for family in new.families() {
        let Some(before) = old.family(family.name()) else { continue };
        if tracker_of(old, before)? != Tracker::Migration || tracker_of(new, family)? == Tracker::Migration {
            continue;
        }
        let is_open =
            |region: &RegionInfo| entry.regions.get(region).is_some_and(|it| it.state == RegionState::Open);
        if let Some(region) = entry.live_regions().iter().find(|region| !is_open(region)) {
            return Err(RpcError::do_not_retry(format!(
                "{region} is not open, so its files have not been migrated: assign it first"
            )));
        }
    }
    Ok(())
}

/// A snapshot is not restored over a table with other trackers (`validatePreRestoreSnapshot`).
pub(crate) fn check_restore(current: &TableDescriptor, of_snapshot: &TableDescriptor) -> Answer<()> {
    for family in current.families() {
        let Some(restored) = of_snapshot.family(family.name()) else { continue };
        let (now, then) = (tracker_of(current, family)?, tracker_of(of_snapshot, restored)?);
        if now != then {
            return Err(errors::restore_snapshot(format!(
                "Restoring Snapshot is not possible because  the config for column family {} has incompatible \
                 configuration. Current SFT: {} SFT from snapshot: {}",
                family.name_str(),
                now.class(),
                then.class()
            )));
        }
    }
    Ok(())
}

fn tracker_of(table: &TableDescriptor, family: &FamilyDescriptor) -> Answer<Tracker> {
    table.tracker(family).map_err(errors::invalid)
}

fn migration_of(table: &TableDescriptor, family: &FamilyDescriptor) -> Answer<(Tracker, Tracker)> {
    table.migration(family).map_err(errors::invalid)
}

/// A tracker that a client names. As in HBase, a name that is none is looked for as a class.
pub(crate) fn named(text: &str) -> Answer<Tracker> {
    let unknown = || {
        let message =
            format!("java.lang.ClassNotFoundException: {text} is not supported: DEFAULT and FILE are");
        errors::invalid(Error::invalid(message))
    };
    Tracker::parse(text).ok_or_else(unknown)
}
