//! `halcyon inspect hfile`: what HBase's HFilePrettyPrinter prints, from files that may be damaged.
//!
//! Blocks are read in the order in which they lie in the file, so that a damaged index hides no cell. What the file says of
//! itself is compared with what was read when all blocks are sound.

mod facts;
mod scan;
mod stats;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cache::BlockCache;
use halcyon_env::Env;
use halcyon_hfile::{BlockWalk, HFile, ReaderOptions};
use serde_json::json;

use crate::output::{Done, Output, Stop};
use crate::{listed, place, text};

/// Index and bloom blocks are kept here while a file is looked at.
const CACHE_BYTES: u64 = 16 << 20;

/// Print the metadata, blocks and cells of store files, and check them.
///
/// Without -m, -b and -w, the whole file is read and checked.
#[derive(Debug, Default, clap::Args)]
#[command(disable_help_flag = true)]
pub struct HfileArgs {
    /// Store files.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Store file; as the argument FILE.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// All store files of a region: its directory, full name or encoded name.
    #[arg(short, long, value_name = "NAME")]
    pub region: Option<String>,
    /// Root directory in which -r finds the region.
    #[arg(long, value_name = "DIR", default_value = place::DEFAULT_ROOT)]
    pub data: PathBuf,
    /// Print what is done, and with -b every level of the block index.
    #[arg(short, long)]
    pub verbose: bool,
    /// Print cells with values and tags.
    #[arg(short = 'p', long)]
    pub printkv: bool,
    /// Print the keys of cells.
    #[arg(short = 'e', long)]
    pub printkey: bool,
    /// Print trailer, file info and bloom filters.
    #[arg(short = 'm', long)]
    pub printmeta: bool,
    /// Print the root of the block index.
    #[arg(short = 'b', long)]
    pub printblocks: bool,
    /// Print the header of each block.
    #[arg(short = 'h', long)]
    pub printblockheaders: bool,
    /// Check the order of cells; done whenever the whole file is read.
    #[arg(short = 'k', long)]
    pub checkrow: bool,
    /// Check that all cells are of the family that the directory is named after.
    #[arg(short = 'a', long)]
    pub checkfamily: bool,
    /// Print only the cells of this row; \xNN is one byte.
    #[arg(short = 'w', long = "seekToRow", alias = "seek-to-row", value_name = "ROW")]
    pub seek_to_row: Option<String>,
    /// Print statistics of keys, values and rows.
    #[arg(short, long)]
    pub stats: bool,
    /// Print statistics with counts by range.
    #[arg(short, long)]
    pub details: bool,
    /// Print the cells whose mob files are missing.
    #[arg(short = 'i', long = "checkMobIntegrity", alias = "check-mob-integrity")]
    pub check_mob_integrity: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

impl HfileArgs {
    /// Whether every block is read.
    fn reads_all(&self) -> bool {
        let checks = self.checkrow || self.checkfamily || self.check_mob_integrity;
        let asked = self.verbose || self.printblockheaders || checks;
        let cells = self.printkv || self.printkey || self.stats || self.details;
        let parts_only = self.printmeta || self.printblocks || self.seek_to_row.is_some();
        // -w prints only the cells of its row.
        (asked || (cells && self.seek_to_row.is_none())) || !parts_only
    }
}

/// One file that is looked at.
pub(crate) struct Inspected<'a> {
    env: &'a Env,
    args: &'a HfileArgs,
    path: &'a Path,
    walk: BlockWalk,
    /// `None`: what a reader needs in memory is damaged. Blocks are checked by their checksums alone.
    hfile: Option<Arc<HFile>>,
}

pub(crate) fn run(env: &Env, args: &HfileArgs, out: &mut Output<'_>) -> Done {
    let mut files: Vec<PathBuf> = args.files.iter().chain(&args.file).cloned().collect();
    if let Some(region) = &args.region {
        files.extend(files_of_region(env, args, region)?);
    }
    if files.is_empty() && args.region.is_none() {
        return Err(Stop::Failed("name a store file, or a region with -r".to_string()));
    }
    let row = args.seek_to_row.as_deref().map(text::parse_row).transpose().map_err(Stop::Failed)?;
    let mut cells_count = 0;
    for path in &files {
        cells_count += inspect_file(env, args, row.as_deref(), path, out)?;
    }
    if args.reads_all() || row.is_some() {
        let damage_count = out.damage_count();
        let object = || json!({"files": files.len(), "cells": cells_count, "damage": damage_count});
        out.say("summary", object, || format!("Scanned kv count -> {cells_count}"))?;
    }
    Ok(())
}

fn files_of_region(env: &Env, args: &HfileArgs, region: &str) -> Result<Vec<PathBuf>, Stop> {
    let dir = place::region_dir(env, &args.data, region)?;
    let table = listed::table_of(env, &dir).map_err(Stop::Failed)?;
    let mut files = Vec::new();
    for family in place::directories(env, &dir).map_err(Stop::Failed)? {
        let listed = listed::files(env, &family, table.as_ref()).map_err(Stop::Failed)?;
        for entry in place::list(env, &family).map_err(Stop::Failed)? {
            let is_own = halcyon_region::is_store_file_name(&entry.name)
                && halcyon_schema::layout::parse_reference_name(&entry.name).is_none()
                && listed.as_ref().is_none_or(|names| names.contains(&entry.name));
            if !entry.is_dir && is_own && place::name(&family) != halcyon_schema::layout::RECOVERED_EDITS {
                files.push(family.join(entry.name));
            }
        }
    }
    Ok(files)
}

/// Returns the number of cells that were read.
fn inspect_file(
    env: &Env,
    args: &HfileArgs,
    row: Option<&[u8]>,
    path: &Path,
    out: &mut Output<'_>,
) -> Result<u64, Stop> {
    let walk = match BlockWalk::open(env, path) {
        Ok(walk) => walk,
        Err(error) => return out.failed(path, error.message()).map(|()| 0),
    };
    let name = || path.display().to_string();
    out.say("file", || json!({"file": name()}), || format!("Scanning -> {}", name()))?;
    let damage_before = out.damage_count();
    let hfile = open(env, path, &walk, out)?;
    let mut file = Inspected { env, args, path, walk, hfile };
    if args.printmeta {
        facts::print(&file, out)?;
    }
    if args.printblocks {
        facts::print_index(&file, out)?;
    }
    let mut stats = stats::Stats::default();
    let mut cells_count = 0;
    if args.reads_all() {
        cells_count = scan::all(&mut file, &mut stats, out)?;
        scan::compare(&file, out.damage_count() > damage_before, out)?;
    }
    if let Some(row) = row {
        cells_count = scan::row(&file, row, &mut stats, out)?;
    }
    if args.stats || args.details {
        stats.print(args.details, out)?;
    }
    Ok(cells_count)
}

/// Reports what keeps the file from being opened.
fn open(env: &Env, path: &Path, walk: &BlockWalk, out: &mut Output<'_>) -> Result<Option<Arc<HFile>>, Stop> {
    if let Err(error) = walk.trailer() {
        out.damaged(path, None, &error)?;
        return Ok(None);
    }
    match open_hfile(env, path) {
        Ok(hfile) => Ok(Some(hfile)),
        Err(error) => {
            out.damaged(path, None, &error)?;
            Ok(None)
        }
    }
}

/// Opens a store file with a cache of its own.
pub(crate) fn open_hfile(env: &Env, path: &Path) -> halcyon_cell::Result<Arc<HFile>> {
    let options = ReaderOptions { cache_data: false, ..ReaderOptions::default() };
    HFile::open(env, path, &Arc::new(BlockCache::new(CACHE_BYTES)), options)
}
