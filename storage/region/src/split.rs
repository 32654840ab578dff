//! Splitting and merging: where a region would be cut in two, and files that one region leaves to others.
//!
//! ```text
//! parent (closed)   <family>/<hfile>
//! daughters         <family>/<hfile>.<parent>     a reference to the half below, and one to the half above
//! merged region     <family>/<hfile>.<parent>     a reference to all of it, of each file of each parent
//! all of them       recovered.edits/<n>.seqid     where the parents' sequence ids ended
//!                   recovered.edits/halcyon.nonces   of operations that clients may repeat
//! ```
//!
//! The children are made in a directory of their own below `.tmp` of the (first) parent and are renamed into place when they
//! are complete. A name that is taken is refused: what is there may be an open region, and nothing here removes one. Whoever
//! opens the parent again, because the children are not to be, takes away what was not renamed yet (`place.rs`). So neither
//! a caller that stood still meanwhile nor a request that is carried out late brings a child into place afterwards.
//!
//! Nothing is copied: the next compaction of a daughter writes what she needs into files of her own. A region with
//! references is not split and not merged, so a reference never leads to another one. The regions' rows in
//! `hbase:meta`, and when the parents' files may go, are the master's business.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cache::BlockCache;
use halcyon_cell::{Error, Result, SeqId};
use halcyon_env::Env;
use halcyon_hfile::ReadMode;
use halcyon_schema::{FamilyDescriptor, RegionInfo, StoreFileTracker, TableDescriptor, layout};

use crate::edits_dir::{RECOVERED_EDITS, highest_marker};
use crate::open::{names_in_store, open_files};
use crate::place::StagingDir;
use crate::region::{Region, RegionServices};
use crate::replayed_nonces::ReplayedNonces;
use crate::store::file_list::{Listed, write_first};
use crate::store::{Reference, Store, StoreFile, StoreFileName, StoreFileOpener, StoreView};

impl Region {
    /// Whether files of a parent are still needed.
    pub fn has_references(&self) -> bool {
        self.stores.iter().any(Store::has_references)
    }

    /// The row that would begin the second of two halves: the one in the middle of the largest file of the largest
    /// store, or between two of its stripes (HBase: `RegionSplitPolicy.getSplitPoint`, `StoreFileManager
    /// .getSplitPoint`). `None` if nothing is in files, or if a half would be empty. *Blocking.*
    pub fn split_point(&self) -> Result<Option<Bytes>> {
        let mut largest: Option<(u64, Bytes)> = None;
        for store in &self.stores {
            let view = store.view();
            let size: u64 = view.files.iter().map(|file| file.len_bytes).sum();
            if largest.as_ref().is_some_and(|(most, _)| *most >= size) {
                continue;
            }
            if let Some(row) = split_point_of(&view, store.compaction().stripes.split_imbalance_max)? {
                largest = Some((size, row));
            }
        }
        let row = largest.map(|(_, row)| row);
        Ok(row.filter(|row| self.info.contains_row(row) && row != self.info.start_key()))
    }

    /// Makes the directories of a split's daughters, durably, with references to the files of the parent, which
    /// must be closed and free of references itself. An error if a daughter's directory is there already: an attempt that
    /// failed may have left it, and the next one needs daughters of other names. *Blocking.*
    pub fn split_files(
        services: &RegionServices,
        root: &Path,
        table: &TableDescriptor,
        parent: &RegionInfo,
        daughters: &[RegionInfo; 2],
    ) -> Result<()> {
        let split_row = daughters[1].start_key().clone();
        assert!(
            daughters[0].start_key() == parent.start_key()
                && daughters[0].end_key() == &split_row
                && daughters[1].end_key() == parent.end_key(),
            "daughters have all rows of their parent, and no row twice"
        );
        refer(services, root, table, std::slice::from_ref(parent), daughters, |_, daughter, file| {
            let info = file.hfile.info();
            let (Some(first), Some(last)) = (info.first_key(), info.last_key()) else { return None };
            let top = daughter.start_key() == &split_row;
            let has_rows = if top { last.row() >= &split_row[..] } else { first.row() < &split_row[..] };
            has_rows.then(|| Reference { split_row: split_row.clone(), top })
        })
    }

    /// As `split_files`: makes the directory of the region that takes the place of `parents`: neighbours,
    /// regions that overlap, or regions that are apart.
    pub fn merge_files(
        services: &RegionServices,
        root: &Path,
        table: &TableDescriptor,
        parents: &[RegionInfo],
        merged: &RegionInfo,
    ) -> Result<()> {
        refer(services, root, table, parents, std::slice::from_ref(merged), |parent, _, file| {
            let has_rows = file.hfile.info().first_key().is_some();
            has_rows.then(|| Reference { split_row: parent.start_key().clone(), top: true })
        })
    }
}

/// Where a stripe begins, so that no file has rows on both sides, if the sides are alike; else the middle of the largest
/// file, of those in the stripe that makes one side too large if that makes it better.
fn split_point_of(view: &StoreView, imbalance_max: f64) -> Result<Option<Bytes>> {
    let in_the_middle_of = |stripe: Option<usize>| -> Result<Option<Bytes>> {
        let files = view.files.iter().enumerate();
        let of_stripe = files.filter(|(at, _)| stripe.is_none() || view.stripes.of_file(*at) == stripe);
        let largest = of_stripe.map(|(_, file)| file).max_by_key(|file| file.len_bytes);
        Ok(largest.map(|file| middle_row(file)).transpose()?.flatten())
    };
    let mut sizes = vec![0; view.stripes.count()];
    for (at, file) in view.files.iter().enumerate() {
        if let Some(stripe) = view.stripes.of_file(at) {
            sizes[stripe] += file.len_bytes;
        }
    }
    let Some((first_right, stripe)) = between_stripes(&sizes, imbalance_max) else {
        return in_the_middle_of(None);
    };
    let boundary = view.stripes.starts()[first_right].clone();
    let divided = stripe.map(|stripe| in_the_middle_of(Some(stripe))).transpose()?.flatten();
    Ok(Some(divided.unwrap_or(boundary)))
}

/// The first stripe of the right side, so that the sides are as alike as whole stripes allow; and the stripe in whose
/// middle to split instead, if they are not alike enough and it would help. `None`: a side would have nothing.
fn between_stripes(sizes: &[u64], imbalance_max: f64) -> Option<(usize, Option<usize>)> {
    let (mut left, mut right) = (0u64, 0u64);
    let (mut first_rest, mut end_rest) = (0, sizes.len());
    while first_rest < end_rest {
        if left >= right {
            end_rest -= 1;
            right += sizes[end_rest];
        } else {
            left += sizes[first_rest];
            first_rest += 1;
        }
    }
    if left == 0 || right == 0 {
        return None;
    }
    assert!(0 < first_rest && first_rest < sizes.len(), "both sides have a stripe, as both have bytes");
    let imbalance = |a: f64, b: f64| if a > b { a / b } else { b / a };
    let now = imbalance(left as f64, right as f64);
    if now < imbalance_max {
        return Some((first_rest, None));
    }
    let is_right_larger = right >= left;
    let larger = if is_right_larger { first_rest } else { first_rest - 1 };
    let half = sizes[larger] as f64 / 2.0;
    let (most, least) = if is_right_larger { (right, left) } else { (left, right) };
    let helps = imbalance(most as f64 - half, least as f64 + half) < now;
    Some((first_rest, helps.then_some(larger)))
}

/// The row of the middle key, unless it is the file's first or last.
fn middle_row(file: &StoreFile) -> Result<Option<Bytes>> {
    let info = file.hfile.info();
    let (Some(first), Some(last)) = (info.first_key(), info.last_key()) else { return Ok(None) };
    let Some(middle) = file.hfile.mid_key(ReadMode::AnyDisk)? else { return Ok(None) };
    let row = middle.get().row();
    Ok((row != first.row() && row != last.row()).then(|| Bytes::copy_from_slice(row)))
}

/// Makes `children` with references to the parents' files, as `choose` says for each parent, child and file.
fn refer(
    services: &RegionServices,
    root: &Path,
    table: &TableDescriptor,
    parents: &[RegionInfo],
    children: &[RegionInfo],
    choose: impl Fn(&RegionInfo, &RegionInfo, &StoreFile) -> Option<Reference>,
) -> Result<()> {
    let RegionServices { env, cache, .. } = services;
    // Where the WALs have a root of their own, the markers have, too.
    let marker_root = services.wal_root.as_ref().map(|wal| (&wal.env, &*wal.path));
    let staging = StagingDir::begin(env, &parents[0].dir(root))?;
    for child in children {
        Region::create_in(env, &staging.path(child.encoded_name()), child, table.families())?;
    }
    let mut highest = SeqId::ZERO;
    let oldest_ms = env.clock.now_ms().saturating_sub(services.settings.nonce_age_max.as_millis() as i64);
    let mut nonces = ReplayedNonces::since(oldest_ms);
    // Of stores that go by one: directory and files.
    let mut lists: BTreeMap<PathBuf, Vec<Listed>> = BTreeMap::new();
    for parent in parents {
        for (env, root) in marker_root.into_iter().chain([(env, root)]) {
            let edits_dir = parent.dir(root).join(RECOVERED_EDITS);
            highest = highest.max(highest_marker(env, &edits_dir)?);
            nonces.read(env, &edits_dir)?;
        }
        for family in table.families() {
            let tracker = table.store_file_tracker(family)?;
            for file in files_of(env, root, cache, parent, family, tracker)? {
                highest = highest.max(file.max_seq);
                let mut referred = file.hfile.info().first_key().is_none();
                for child in children {
                    if let Some(reference) = choose(parent, child, &file) {
                        let name = layout::reference_name(&file.name, parent.encoded_name());
                        let dir = staging.path(child.encoded_name()).join(&*family.name_str());
                        env.fs.put_new(&dir.join(&name), &reference.encode())?;
                        if tracker.writes_list() {
                            lists.entry(dir).or_default().push(Listed { name, len: 0 });
                        }
                        referred = true;
                    }
                }
                assert!(referred, "no child has the rows of {}: they would go with the parent", file.name);
            }
        }
    }
    for (dir, files) in lists {
        write_first(env, &dir, files)?;
    }
    for child in children {
        nonces.keep_first(env, &staging.path(child.encoded_name()).join(RECOVERED_EDITS))?;
        let (env, dir) = match marker_root {
            Some((env, root)) => (env, child.dir(root)),
            None => (env, staging.path(child.encoded_name())),
        };
        let edits_dir = dir.join(RECOVERED_EDITS);
        env.fs.create_dir_all(&edits_dir)?;
        env.fs.put_new(&edits_dir.join(format!("{highest}.seqid")), b"")?;
    }
    for child in children {
        staging.publish(&staging.path(child.encoded_name()), &child.dir(root))?;
    }
    Ok(())
}

/// The store files of one family of a closed region.
fn files_of(
    env: &Env,
    root: &Path,
    cache: &Arc<BlockCache>,
    region: &RegionInfo,
    family: &FamilyDescriptor,
    tracker: StoreFileTracker,
) -> Result<Vec<Arc<StoreFile>>> {
    let dir = region.dir(root).join(&*family.name_str());
    let names = names_in_store(env, &dir, tracker)?;
    let is_reference = |name: &&String| StoreFileName::parse(name).is_some_and(|name| name.parent.is_some());
    if let Some(name) = names.iter().find(is_reference) {
        let path = dir.join(name);
        return Err(Error::invalid(format!("{} is a reference: compact the region first", path.display())));
    }
    open_files(StoreFileOpener { env, cache, family }, &dir, &names, root, region)
}

#[cfg(test)]
mod tests {
    use super::between_stripes;

    #[test]
    fn sides_of_whole_stripes_if_they_are_alike() {
        assert_eq!(between_stripes(&[10, 10, 10, 10], 1.5), Some((2, None)));
        assert_eq!(between_stripes(&[10, 20, 10, 30], 1.5), Some((2, None)));
        assert_eq!(between_stripes(&[10], 1.5), None);
        assert_eq!(between_stripes(&[], 1.5), None);
        assert_eq!(between_stripes(&[0, 10], 1.5), None);
    }

    #[test]
    fn a_stripe_that_is_too_large_is_split_in_its_middle() {
        assert_eq!(between_stripes(&[10, 100], 1.5), Some((1, Some(1))));
        assert_eq!(between_stripes(&[100, 10, 10], 1.5), Some((1, Some(0))));
        assert_eq!(between_stripes(&[10, 30, 10], 1.5), Some((1, Some(1))));
        assert_eq!(between_stripes(&[10, 30, 10], 4.5), Some((1, None)));
        assert_eq!(between_stripes(&[10, 17], 1.5), Some((1, None)), "its middle would be worse");
    }
}
