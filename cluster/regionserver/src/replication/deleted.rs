//! Edits of tables and families that were deleted, here and at the peer.
//!
//! A peer that lacks a table or a family refuses a batch with an edit of it, and what follows waits. With
//! `hbase.replication.drop.on.deleted.table` and `hbase.replication.drop.on.deleted.columnfamily` such edits are dropped
//! after a refusal, but only if the table or family is not here any more either: one that is to be created at the peer loses
//! nothing. Checked against `HBaseInterClusterReplicationEndpoint` of 2.6.4.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use halcyon_cell::{Cell, Error, Result};
use halcyon_env::FileSystem;
use halcyon_schema::{TableDescriptor, TableName};

use super::filter::{load_of, with_load};
use super::wals::Batch;

/// What a peer lacks, by its exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    Table,
    Family,
}

impl Lack {
    /// As HBase's source decides, from anywhere in the text of an exception.
    pub(super) fn of_text(text: &str) -> Option<Lack> {
        if text.contains("TableNotFoundException") {
            Some(Lack::Table)
        } else if text.contains("NoSuchColumnFamilyException") {
            Some(Lack::Family)
        } else {
            None
        }
    }
}

/// Takes the edits of what is deleted here out of a batch, and returns their number of cells. A table that cannot be looked at
/// counts as one that is there.
pub(super) fn drop_deleted(batch: &mut Batch, lack: Lack, fs: &dyn FileSystem, root: &Path) -> usize {
    let mut known: HashMap<Bytes, Option<TableDescriptor>> = HashMap::new();
    let mut unsure: HashSet<Bytes> = HashSet::new();
    let mut cells = std::mem::take(&mut batch.cells).into_iter();
    let (mut entries, mut kept, mut dropped) = (Vec::new(), Vec::new(), 0);
    for mut entry in std::mem::take(&mut batch.entries) {
        let name = entry.key.table_name.clone();
        let count = usize::try_from(entry.associated_cell_count.unwrap_or(0)).unwrap_or(0);
        if !known.contains_key(&name) && !unsure.contains(&name) {
            if let Ok(found) = table_here(fs, root, &name) {
                known.insert(name.clone(), found);
            } else {
                unsure.insert(name.clone());
            }
        }
        let before = kept.len();
        for cell in cells.by_ref().take(count) {
            let left = match (known.get(&name), lack) {
                (None, _) | (Some(Some(_)), Lack::Table) => Some(cell),
                (Some(None), _) => None,
                (Some(Some(table)), Lack::Family) => {
                    without_deleted(cell, &mut dropped, &|family| table.family(family).is_none())
                }
            };
            match left {
                Some(cell) => kept.push(cell),
                None => dropped += 1,
            }
        }
        if kept.len() > before {
            entry.associated_cell_count =
                Some(i32::try_from(kept.len() - before).expect("an entry has no more cells than before"));
            entries.push(entry);
        }
    }
    batch.bytes = kept.iter().map(|cell| cell.bytes().len()).sum();
    (batch.entries, batch.cells) = (entries, kept);
    dropped
}

/// The cell, unless its family is deleted. A bulk load is left without the deleted families, which count as dropped.
fn without_deleted(cell: Cell, dropped: &mut usize, is_deleted: &dyn Fn(&[u8]) -> bool) -> Option<Cell> {
    let Some(mut load) = load_of(&cell) else {
        return (!is_deleted(cell.family())).then_some(cell);
    };
    let count = load.stores.len();
    load.stores.retain(|store| !is_deleted(&store.family_name));
    match load.stores.len() {
        0 => None,
        left if left == count => Some(cell),
        left => {
            *dropped += count - left;
            Some(with_load(&cell, &load))
        }
    }
}

/// A table's descriptor; `None` if it has neither that nor a directory. An error: it cannot be told.
fn table_here(fs: &dyn FileSystem, root: &Path, name: &[u8]) -> Result<Option<TableDescriptor>> {
    let table = TableName::parse(name)?;
    if let Some((found, _)) = TableDescriptor::read_newest(fs, root, &table)? {
        return Ok(Some(found));
    }
    match fs.exists(&table.dir(root))? {
        true => Err(Error::corrupt(format!("{table} has a directory and no descriptor"))),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;
    use halcyon_proto::pb;
    use halcyon_schema::{FamilyDescriptor, layout};

    use super::*;

    fn batch(tables: &[(&'static str, &[&str])]) -> Batch {
        let mut batch = Batch::default();
        for (table, families) in tables {
            let key = pb::WalKey { table_name: Bytes::from_static(table.as_bytes()), ..Default::default() };
            let count = Some(families.len() as i32);
            batch.entries.push(pb::WalEntry { key, associated_cell_count: count, ..Default::default() });
            batch
                .cells
                .extend(families.iter().map(|family| Cell::put(b"r", family.as_bytes(), b"q", 1, b"v")));
        }
        batch
    }

    fn shown(batch: &Batch) -> Vec<(String, i32)> {
        let shown = |entry: &pb::WalEntry| {
            (
                String::from_utf8_lossy(&entry.key.table_name).into_owned(),
                entry.associated_cell_count.unwrap(),
            )
        };
        batch.entries.iter().map(shown).collect()
    }

    #[test]
    fn only_what_is_gone_here_too_is_dropped() {
        let (fs, root) = (SimFileSystem::new(), Path::new("/hbase"));
        let env = fs.env();
        let table = TableDescriptor::new(TableName::parse(b"here").unwrap())
            .with_family(FamilyDescriptor::new(b"f").unwrap());
        let dir = layout::table_desc_dir(root, table.name());
        env.fs.create_dir_all(&dir).unwrap();
        let bytes = table.encode_file();
        env.fs.put_new(&dir.join(layout::table_info_name(1, bytes.len())), &bytes).unwrap();

        let some =
            || batch(&[("here", &["f", "g"]), ("gone", &["f"]), ("here", &["g"]), ("no table", &["f"])]);
        let mut tables = some();
        assert_eq!(drop_deleted(&mut tables, Lack::Table, &*env.fs, root), 1);
        let all = |counts: &[(&str, i32)]| -> Vec<(String, i32)> {
            counts.iter().map(|(name, count)| (name.to_string(), *count)).collect()
        };
        assert_eq!(shown(&tables), all(&[("here", 2), ("here", 1), ("no table", 1)]));
        assert_eq!(tables.cells.len(), 4);
        let mut families = some();
        assert_eq!(drop_deleted(&mut families, Lack::Family, &*env.fs, root), 3);
        assert_eq!(shown(&families), all(&[("here", 1), ("no table", 1)]));
        assert!(families.cells.iter().all(|cell| cell.family() == b"f"));
    }

    #[test]
    fn an_exception_says_what_a_peer_lacks() {
        let nested = "RetriesExhaustedWithDetailsException: Failed 1 action: org.apache.hadoop.hbase.TableNotFoundException: t";
        assert_eq!(Lack::of_text(nested), Some(Lack::Table));
        assert_eq!(Lack::of_text("o.a.h.h.regionserver.NoSuchColumnFamilyException: f"), Some(Lack::Family));
        assert_eq!(Lack::of_text("java.io.IOException: full"), None);
    }
}
