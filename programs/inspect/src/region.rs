//! `halcyon inspect region`: what the directory of a region holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::{Error, KeyRef};
use halcyon_env::{DirEntry, Env};
use halcyon_hfile::HFile;
use halcyon_region::{Reference, is_store_file_name, seq_in_name};
use halcyon_schema::{RegionInfo, TableDescriptor, layout};
use halcyon_wal::WalReader;
use serde_json::{Value, json};

use crate::hfile::open_hfile;
use crate::output::{Done, Output, Stop};
use crate::{listed, place, text};

/// List the files of a region with sizes and sequence ids.
#[derive(Debug, Default, clap::Args)]
pub struct RegionArgs {
    /// Regions: a directory, a full name, or an encoded name.
    #[arg(required = true, value_name = "REGION")]
    pub regions: Vec<String>,
    /// Root directory in which names are looked up.
    #[arg(long, value_name = "DIR", default_value = place::DEFAULT_ROOT)]
    pub data: PathBuf,
    /// Read and check every block of the store files.
    #[arg(long)]
    pub verify: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// What was found in a region.
#[derive(Default)]
struct Totals {
    files: u64,
    bytes: u64,
    max_seq: u64,
}

struct Inspector<'a> {
    env: &'a Env,
    verify: bool,
    dir: PathBuf,
    /// What `.regioninfo` says.
    info: Option<RegionInfo>,
    /// The table's descriptor, if the directory is one of the regions of a table.
    table: Option<TableDescriptor>,
}

pub(crate) fn run(env: &Env, args: &RegionArgs, out: &mut Output<'_>) -> Done {
    for region in &args.regions {
        let dir = place::region_dir(env, &args.data, region)?;
        Inspector { env, verify: args.verify, dir, info: None, table: None }.run(out)?;
    }
    Ok(())
}

impl Inspector<'_> {
    fn run(mut self, out: &mut Output<'_>) -> Done {
        self.region_info(out)?;
        match listed::table_of(self.env, &self.dir) {
            Ok(table) => self.table = table,
            Err(sentence) => out.damage(&self.dir, None, &sentence)?,
        }
        let mut totals = Totals::default();
        for entry in self.list(&self.dir.clone(), out)? {
            let path = self.dir.join(&entry.name);
            match (entry.is_dir, &entry.name[..]) {
                (false, layout::REGION_INFO) => {}
                (true, layout::RECOVERED_EDITS) => self.recovered_edits(&path, &mut totals, out)?,
                (true, name) if !name.starts_with('.') => self.family(&path, &mut totals, out)?,
                _ => other(&path, &entry, out)?,
            }
        }
        let Totals { files, bytes, max_seq } = totals;
        let object = || json!({"storeFiles": files, "bytes": bytes, "maxSequence": max_seq});
        let size = text::size(bytes);
        out.say("summary", object, || {
            format!("{files} store files, {size} ({bytes} bytes), highest sequence id {max_seq}")
        })
    }

    fn list(&self, dir: &Path, out: &mut Output<'_>) -> Result<Vec<DirEntry>, Stop> {
        match place::list(self.env, dir) {
            Ok(entries) => Ok(entries),
            Err(sentence) => out.failed(dir, &sentence).map(|()| Vec::new()),
        }
    }

    fn region_info(&mut self, out: &mut Output<'_>) -> Done {
        let path = self.dir.join(layout::REGION_INFO);
        let read = self.env.fs.read(&path).map_err(Error::from);
        let info = read.and_then(|bytes| RegionInfo::decode_file(&bytes));
        let dir = self.dir.display().to_string();
        match info {
            Ok(info) => {
                let name = place::name(&self.dir);
                out.say("region", || region_object(&info, &dir), || region_text(&info, &dir))?;
                if info.encoded_name() != name {
                    let what = format!(
                        "{}: expected the region of directory {name}, found {}",
                        path.display(),
                        info.encoded_name()
                    );
                    out.damage(&path, None, &what)?;
                }
                self.info = Some(info);
                Ok(())
            }
            Err(error) => {
                out.say("region", || json!({"directory": dir}), || format!("Region directory {dir}"))?;
                out.damage(&path, None, &format!("{}: {error}", path.display()))
            }
        }
    }

    fn family(&self, dir: &Path, totals: &mut Totals, out: &mut Output<'_>) -> Done {
        let name = place::name(dir);
        let entries = self.list(dir, out)?;
        out.say("family", || json!({"family": name}), || format!("Family {name}"))?;
        let listed = match listed::files(self.env, dir, self.table.as_ref()) {
            Ok(listed) => listed,
            Err(sentence) => out.damage(dir, None, &sentence).map(|()| None)?,
        };
        for name in listed.iter().flatten().filter(|name| entries.iter().all(|entry| entry.name != **name)) {
            let what =
                format!("{}: the list of the store's files names {name}, which is not there", dir.display());
            out.damage(&dir.join(name), None, &what)?;
        }
        let is_listed = |entry: &DirEntry| listed.as_ref().is_none_or(|names| names.contains(&entry.name));
        for entry in entries {
            if entry.is_dir && entry.name == layout::FILE_LIST && listed.is_some() {
                continue;
            }
            let path = dir.join(&entry.name);
            let is_link = layout::parse_link_name(&entry.name).is_some()
                || layout::parse_reference_name(&entry.name)
                    .is_some_and(|(file, _)| layout::parse_link_name(file).is_some());
            if entry.is_dir || !(is_link || is_store_file_name(&entry.name)) {
                other(&path, &entry, out)?;
            } else if !is_listed(&entry) {
                unlisted(&path, &entry, out)?;
            } else {
                self.store_file(&path, &entry, totals, out)?;
            }
        }
        Ok(())
    }

    /// A store file, a reference or a link.
    fn store_file(&self, path: &Path, entry: &DirEntry, totals: &mut Totals, out: &mut Output<'_>) -> Done {
        totals.files += 1;
        totals.bytes += entry.len;
        let reference = match layout::parse_reference_name(&entry.name) {
            Some(_) => match Reference::read(self.env, path) {
                Ok(reference) => Some(reference),
                Err(error) => out.damaged(path, None, &error).map(|()| None)?,
            },
            None => None,
        };
        let leads_to = place::targets(path.parent().unwrap_or(path), &entry.name);
        let target = match &leads_to {
            None => Some(path.to_path_buf()),
            Some(places) => match self.env.fs.first_existing(places.iter().map(PathBuf::as_path)) {
                Ok(found) => found.map(Path::to_path_buf),
                Err(error) => return out.damaged(path, None, &error.into()),
            },
        };
        let Some(target) = target else {
            let wanted = leads_to.map_or_else(String::new, |[live, _]| live.display().to_string());
            let what =
                format!("{}: expected a file at {wanted} or in the archive, found none", path.display());
            self.print_file(path, entry, None, reference.as_ref(), None, out)?;
            return out.damage(path, None, &what);
        };
        let opened = open_hfile(self.env, &target);
        let hfile = opened.as_ref().ok();
        let shown_target = (target != path).then_some(&*target);
        self.print_file(path, entry, shown_target, reference.as_ref(), hfile, out)?;
        match &opened {
            Ok(hfile) => {
                totals.max_seq = totals.max_seq.max(max_seq(hfile, &entry.name).unwrap_or(0));
                self.check_file(path, hfile, shown_target.is_some(), out)
            }
            Err(error) => out.damaged(&target, None, error),
        }
    }

    fn check_file(&self, path: &Path, hfile: &Arc<HFile>, is_other: bool, out: &mut Output<'_>) -> Done {
        let keys = [hfile.info().first_key(), hfile.info().last_key()];
        if let (Some(info), false) = (&self.info, is_other) {
            for key in keys.into_iter().flatten().filter(|key| !info.contains_row(key.row())) {
                let row = text::binary(key.row());
                let what = format!("{}: expected rows of region {info}, found row {row}", path.display());
                out.damage(path, None, &what)?;
            }
        }
        if !self.verify {
            return Ok(());
        }
        hfile.verify().or_else(|error| out.damaged(path, None, &error))
    }

    fn print_file(
        &self,
        path: &Path,
        entry: &DirEntry,
        target: Option<&Path>,
        reference: Option<&Reference>,
        hfile: Option<&Arc<HFile>>,
        out: &mut Output<'_>,
    ) -> Done {
        let kind = kind(&entry.name);
        let half = reference.map(|reference| {
            let side = if reference.top { "from" } else { "before" };
            format!("{side} {}", text::binary(&reference.split_row))
        });
        let seq = hfile.and_then(|hfile| max_seq(hfile, &entry.name));
        let target = target.map(|target| target.display().to_string());
        let object = || {
            let mut object = json!({
                "file": path.to_string_lossy(), "kind": kind, "bytes": entry.len, "rows": half, "target": target,
            });
            if let Some(hfile) = hfile {
                file_facts(hfile, seq, &mut object);
            }
            object
        };
        out.say("storeFile", object, || {
            let mut line = format!("  {} {kind} {} bytes", entry.name, entry.len);
            if let Some(hfile) = hfile {
                line.push_str(&file_line(hfile, seq));
            }
            let half = half.as_ref().map(|half| format!(", rows {half}")).unwrap_or_default();
            let target = target.as_ref().map(|target| format!("\n    of {target}")).unwrap_or_default();
            line + &half + &target
        })
    }

    fn recovered_edits(&self, dir: &Path, totals: &mut Totals, out: &mut Output<'_>) -> Done {
        out.say("recoveredEdits", || json!({}), || "Recovered edits".to_string())?;
        for entry in self.list(dir, out)? {
            let path = dir.join(&entry.name);
            let marker = entry.name.strip_suffix(".seqid").or_else(|| entry.name.strip_suffix("_seqid"));
            if let Some(seq) = marker.and_then(|number| number.parse::<u64>().ok()) {
                totals.max_seq = totals.max_seq.max(seq);
                let object = || json!({"file": path.to_string_lossy(), "sequence": seq});
                out.say("seqid", object, || {
                    format!("  {} highest sequence id of the last opening", entry.name)
                })?;
            } else if !entry.name.is_empty() && entry.name.bytes().all(|byte| byte.is_ascii_digit()) {
                self.edits_file(&path, &entry, totals, out)?;
            } else {
                other(&path, &entry, out)?;
            }
        }
        Ok(())
    }

    fn edits_file(&self, path: &Path, entry: &DirEntry, totals: &mut Totals, out: &mut Output<'_>) -> Done {
        let (mut entries, mut cells, mut last) = (0u64, 0u64, 0u64);
        let read = WalReader::open(self.env, path).and_then(|mut reader| {
            while let Some((key, found)) = reader.next_entry()? {
                entries += 1;
                cells += found.len() as u64;
                last = last.max(key.log_sequence_number);
            }
            Ok(reader.torn_at())
        });
        totals.max_seq = totals.max_seq.max(last);
        let torn_at = read.as_ref().ok().copied().flatten();
        let object = || {
            json!({
                "file": path.to_string_lossy(), "bytes": entry.len, "entries": entries, "cells": cells,
                "lastSequence": last, "tornAt": torn_at,
            })
        };
        out.say("editsFile", object, || {
            let torn = torn_at.map(|at| format!(", torn tail at offset {at}")).unwrap_or_default();
            format!(
                "  {} {} bytes, {entries} entries, {cells} cells, last sequence id {last}{torn}",
                entry.name, entry.len
            )
        })?;
        read.map(|_| ()).or_else(|error| out.damaged(path, None, &error))
    }
}

/// A name that no reader of the region takes for one of its files.
fn other(path: &Path, entry: &DirEntry, out: &mut Output<'_>) -> Done {
    let object = || json!({"file": path.to_string_lossy(), "directory": entry.is_dir, "bytes": entry.len});
    let what = if entry.is_dir { "directory" } else { "file" };
    out.say("other", object, || format!("  {} {what} that is no part of the region", entry.name))
}

/// A file that is in the store's directory and not in the list of the store's files.
fn unlisted(path: &Path, entry: &DirEntry, out: &mut Output<'_>) -> Done {
    let object = || json!({"file": path.to_string_lossy(), "bytes": entry.len});
    out.say("unlisted", object, || {
        format!("  {} {} bytes, of no store: the list of its files does not name it", entry.name, entry.len)
    })
}

fn kind(name: &str) -> &'static str {
    match layout::parse_reference_name(name) {
        Some((file, _)) if layout::parse_link_name(file).is_some() => "reference to a link",
        Some(_) => "reference",
        None if layout::parse_link_name(name).is_some() => "link",
        None if seq_in_name(name).is_some() => "bulk-loaded file",
        None => "file",
    }
}

/// The flush sequence id of a file: in its file info or, if it was bulk-loaded, in its name.
fn max_seq(hfile: &HFile, name: &str) -> Option<u64> {
    let name = name.split('.').next().unwrap_or_default();
    hfile.info().max_seq_id().or_else(|| seq_in_name(name)).map(|seq| seq.get())
}

fn file_facts(hfile: &HFile, seq: Option<u64>, object: &mut Value) {
    let info = hfile.info();
    let row = |key: Option<KeyRef<'_>>| key.map(|key| text::binary(key.row()));
    object["cells"] = info.entry_count().into();
    object["maxSequence"] = seq.into();
    object["firstRow"] = row(info.first_key()).into();
    object["lastRow"] = row(info.last_key()).into();
    object["timeRange"] = info.time_range().map(|(min, max)| json!([min, max])).into();
    object["major"] = info.is_major().into();
    object["created"] = info.create_time_ms().map(text::time).into();
}

fn file_line(hfile: &HFile, seq: Option<u64>) -> String {
    let info = hfile.info();
    let row = |key: Option<KeyRef<'_>>| key.map_or_else(String::new, |key| text::binary(key.row()));
    let seq = seq.map_or_else(|| "none".to_string(), |seq| seq.to_string());
    let major = if info.is_major() { ", of a major compaction" } else { "" };
    let created = info.create_time_ms().map(|ms| format!(", created {}", text::time(ms))).unwrap_or_default();
    format!(
        ", {} cells, sequence id {seq}, rows '{}' to '{}'{created}{major}",
        info.entry_count(),
        row(info.first_key()),
        row(info.last_key())
    )
}

fn region_object(info: &RegionInfo, dir: &str) -> Value {
    json!({
        "directory": dir,
        "name": text::binary(info.region_name()),
        "encodedName": info.encoded_name(),
        "table": info.table().as_str(),
        "startKey": text::binary(info.start_key()),
        "endKey": text::binary(info.end_key()),
        "regionId": info.region_id(),
        "replicaId": info.replica_id(),
        "split": info.is_split(),
        "offline": info.is_offline(),
    })
}

fn region_text(info: &RegionInfo, dir: &str) -> String {
    let mut flags = String::new();
    for (is_set, flag) in [(info.is_split(), ", split"), (info.is_offline(), ", offline")] {
        flags.push_str(if is_set { flag } else { "" });
    }
    format!(
        "Region {}\n  directory {dir}\n  table {}, rows '{}' to '{}'{flags}",
        text::binary(info.region_name()),
        info.table(),
        text::binary(info.start_key()),
        text::binary(info.end_key())
    )
}
