//! Reads blocks and cells of a store file, past damage.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use halcyon_cell::{CellRef, CellScanner, Key, KeyRef};
use halcyon_env::Env;
use halcyon_hfile::{BlockHeader, BlockKind, ReadMode};
use halcyon_schema::mob::is_mob_reference;
use halcyon_schema::{MobReference, TableName, layout};
use serde_json::json;

use super::Inspected;
use super::stats::Stats;
use crate::output::{Done, Output, Stop};
use crate::{place, text};

/// Complaints of one kind about one file that are printed; the rest is counted.
const COMPLAINTS_MAX: u64 = 20;

/// What is known of the cells before.
struct Cells<'a> {
    path: &'a Path,
    prints_key: bool,
    prints_value: bool,
    collects: bool,
    /// Its name, if the family of cells is checked.
    family_dir: Option<String>,
    comparator: halcyon_cell::CellComparator,
    last_key: Vec<u8>,
    cells_count: u64,
    out_of_order_count: u64,
    other_family_count: u64,
    /// Looks for the mob files that cells refer to.
    mob: Option<MobFiles<'a>>,
    missing_count: u64,
}

/// The mob files that were looked for, and whether they are there.
struct MobFiles<'a> {
    env: &'a Env,
    root: PathBuf,
    seen: HashMap<(TableName, String), bool>,
}

impl MobFiles<'_> {
    /// The error is a sentence.
    fn is_there(&mut self, family: &str, reference: &MobReference<'_>) -> Result<bool, String> {
        let key = (reference.table.clone(), reference.file.to_string());
        if let Some(&is_there) = self.seen.get(&key) {
            return Ok(is_there);
        }
        let places = [
            layout::mob_family_dir(&self.root, &reference.table, family).join(reference.file),
            layout::mob_archive_dir(&self.root, &reference.table, family).join(reference.file),
        ];
        let found = self.env.fs.first_existing(places.iter().map(PathBuf::as_path));
        let is_there = found.map_err(|error| error.to_string())?.is_some();
        self.seen.insert(key, is_there);
        Ok(is_there)
    }
}

impl<'a> Cells<'a> {
    fn new(file: &Inspected<'a>) -> Cells<'a> {
        let args = file.args;
        Cells {
            path: file.path,
            prints_key: args.printkey || args.printkv,
            prints_value: args.printkv,
            collects: args.stats || args.details,
            family_dir: args.checkfamily.then(|| place::name(file.path.parent().unwrap_or(file.path))),
            comparator: file.hfile.as_ref().map(|hfile| hfile.comparator()).unwrap_or_default(),
            last_key: Vec::new(),
            cells_count: 0,
            out_of_order_count: 0,
            other_family_count: 0,
            mob: mob_files(file),
            missing_count: 0,
        }
    }

    fn cell(&mut self, cell: CellRef<'_>, offset: u64, stats: &mut Stats, out: &mut Output<'_>) -> Done {
        self.cells_count += 1;
        if self.collects {
            stats.add(cell);
        }
        if self.prints_key {
            out.say("cell", || text::cell_object(cell, self.prints_value), || self.line(cell))?;
        }
        self.check_order(cell, offset, out)?;
        self.check_family(cell, offset, out)?;
        self.check_mob_file(cell, offset, out)?;
        self.last_key.clear();
        self.last_key.extend_from_slice(cell.key().bytes());
        Ok(())
    }

    fn line(&self, cell: CellRef<'_>) -> String {
        let key = text::key(cell.key());
        let mut line = format!("K: {key}/vlen={}/seqid={}", cell.value_len(), cell.seq());
        if self.prints_value {
            line.push_str(&format!(" V: {}", text::binary(cell.value())));
            for (at, tag) in cell.tag_iter().enumerate() {
                let value = text::binary(tag.value);
                line.push_str(&format!(" T[{at}]: [Tag type : {}, value : {value}]", tag.tag_type));
            }
        }
        line
    }

    fn check_order(&mut self, cell: CellRef<'_>, offset: u64, out: &mut Output<'_>) -> Done {
        if self.last_key.is_empty() {
            return Ok(());
        }
        let last = KeyRef::trusted(&self.last_key);
        if self.comparator.compare_keys(last, cell.key()).is_le() {
            return Ok(());
        }
        self.out_of_order_count += 1;
        if self.out_of_order_count > COMPLAINTS_MAX {
            return Ok(());
        }
        let (last, found) = (text::key(last), text::key(cell.key()));
        let place = format!("{}: block at offset {offset}", self.path.display());
        out.damage(self.path, Some(offset), &format!("{place}: expected a cell behind {last}, found {found}"))
    }

    fn check_family(&mut self, cell: CellRef<'_>, offset: u64, out: &mut Output<'_>) -> Done {
        let Some(family) = &self.family_dir else { return Ok(()) };
        if cell.family() == family.as_bytes() {
            return Ok(());
        }
        self.other_family_count += 1;
        if self.other_family_count > COMPLAINTS_MAX {
            return Ok(());
        }
        let place = format!("{}: block at offset {offset}", self.path.display());
        let found = text::key(cell.key());
        out.damage(
            self.path,
            Some(offset),
            &format!("{place}: expected a cell of family {family}, found {found}"),
        )
    }

    fn check_mob_file(&mut self, cell: CellRef<'_>, offset: u64, out: &mut Output<'_>) -> Done {
        let Some(mob) = self.mob.as_mut().filter(|_| is_mob_reference(cell)) else { return Ok(()) };
        let family = String::from_utf8_lossy(cell.family()).into_owned();
        let reference = MobReference::of(cell).map_err(|error| error.to_string());
        let found = reference.and_then(|reference| Ok((mob.is_there(&family, &reference)?, reference)));
        let what = match found {
            Ok((true, _)) => return Ok(()),
            Ok((false, reference)) => {
                format!("mob file {} of table {} is missing", reference.file, reference.table)
            }
            Err(sentence) => sentence,
        };
        self.missing_count += 1;
        if self.missing_count > COMPLAINTS_MAX {
            return Ok(());
        }
        let key = text::key(cell.key());
        out.damage(self.path, Some(offset), &format!("{}: {key}: {what}", self.path.display()))
    }

    fn end(&self, out: &mut Output<'_>) -> Done {
        for (count, what) in [
            (self.out_of_order_count, "cells out of order"),
            (self.other_family_count, "cells of other families"),
            (self.missing_count, "cells without their mob file"),
        ] {
            if count > COMPLAINTS_MAX {
                out.damage(self.path, None, &format!("{}: {count} {what} in all", self.path.display()))?;
            }
        }
        Ok(())
    }
}

/// `None`: nobody asks, or the file does not stand in the directory of a region.
fn mob_files<'a>(file: &Inspected<'a>) -> Option<MobFiles<'a>> {
    let region_dir = file.path.parent().and_then(Path::parent)?;
    let (root, _) = place::of_region(region_dir).filter(|_| file.args.check_mob_integrity)?;
    Some(MobFiles { env: file.env, root, seen: HashMap::new() })
}

/// Reads every block. Returns the number of cells.
pub(super) fn all(file: &mut Inspected<'_>, stats: &mut Stats, out: &mut Output<'_>) -> Result<u64, Stop> {
    let mut cells = Cells::new(file);
    if file.args.printblockheaders {
        out.say("blocks", || json!({}), || "Block Headers:".to_string())?;
    }
    while let Some(step) = file.walk.next() {
        match step {
            Ok(block) => {
                if file.args.printblockheaders {
                    print_header(&block, out)?;
                }
                read(file, &block, &mut cells, stats, out)?;
            }
            Err(gap) => {
                let what = format!("{}; {} bytes are passed over", gap.error.message(), gap.len);
                out.damage(file.path, Some(gap.offset), &what)?;
            }
        }
    }
    cells.end(out)?;
    stats.end();
    Ok(cells.cells_count)
}

fn read(
    file: &Inspected<'_>,
    block: &BlockHeader,
    cells: &mut Cells<'_>,
    stats: &mut Stats,
    out: &mut Output<'_>,
) -> Done {
    let Some(hfile) = &file.hfile else {
        let checked = file.walk.check(block);
        return checked.or_else(|error| out.damaged(file.path, Some(block.offset), &error));
    };
    let mut printed = Ok(());
    let visited = hfile.visit_block(block, |cell| {
        if printed.is_ok() {
            printed = cells.cell(cell, block.offset, stats, out);
        }
    });
    printed?;
    visited.or_else(|error| out.damaged(file.path, Some(block.offset), &error))
}

/// Compares what the file says of itself with what was read, unless damage was found: then both differ anyway.
pub(super) fn compare(file: &Inspected<'_>, is_damaged: bool, out: &mut Output<'_>) -> Done {
    let (Some(hfile), false) = (&file.hfile, is_damaged) else { return Ok(()) };
    hfile.verify_index().or_else(|error| out.damaged(file.path, None, &error))
}

/// Prints the cells of one row. Returns their number.
pub(super) fn row(
    file: &Inspected<'_>,
    row: &[u8],
    stats: &mut Stats,
    out: &mut Output<'_>,
) -> Result<u64, Stop> {
    let Some(hfile) = &file.hfile else {
        let what = format!("{}: a row cannot be found in a file that cannot be opened", file.path.display());
        return out.failed(file.path, &what).map(|()| 0);
    };
    let mut cells = Cells::new(file);
    let mut scanner = hfile.scanner(ReadMode::AnyDisk, false);
    let mut moved = scanner.seek(Key::first_on_row(row).get());
    while moved.is_ok() {
        let Some(cell) = scanner.peek().filter(|cell| cell.row() == row) else { break };
        cells.cell(cell, 0, stats, out)?;
        moved = scanner.next();
    }
    stats.end();
    moved.or_else(|error| out.damaged(file.path, None, &error))?;
    Ok(cells.cells_count)
}

fn kind_name(block: &BlockHeader) -> &'static str {
    match block.kind {
        BlockKind::Data if block.encoded => "ENCODED_DATA",
        BlockKind::Data => "DATA",
        BlockKind::LeafIndex => "LEAF_INDEX",
        BlockKind::IntermediateIndex => "INTERMEDIATE_INDEX",
        BlockKind::RootIndex => "ROOT_INDEX",
        BlockKind::BloomChunk => "BLOOM_CHUNK",
        BlockKind::Meta => "META",
        BlockKind::FileInfo => "FILE_INFO",
        BlockKind::GeneralBloomMeta => "GENERAL_BLOOM_META",
        BlockKind::DeleteFamilyBloomMeta => "DELETE_FAMILY_BLOOM_META",
    }
}

fn print_header(block: &BlockHeader, out: &mut Output<'_>) -> Done {
    let kind = kind_name(block);
    let checksum = format!("{:?}", block.checksum).to_uppercase();
    out.say(
        "block",
        || {
            json!({
                "blockType": kind,
                "fileOffset": block.offset,
                "onDiskSizeWithHeader": block.on_disk_bytes,
                "onDiskDataSizeWithHeader": block.guarded_bytes,
                "uncompressedSizeWithoutHeader": block.plain_bytes,
                "prevBlockOffset": block.previous_offset,
                "checksumType": checksum,
                "bytesPerChecksum": block.bytes_per_checksum,
            })
        },
        || {
            format!(
                "[blockType={kind}, fileOffset={}, uncompressedSizeWithoutHeader={}, prevBlockOffset={}, \
                 checksumType={checksum}, bytesPerChecksum={}, onDiskDataSizeWithHeader={}, \
                 getOnDiskSizeWithHeader={}]",
                block.offset,
                block.plain_bytes,
                block.previous_offset,
                block.bytes_per_checksum,
                block.guarded_bytes,
                block.on_disk_bytes
            )
        },
    )
}
