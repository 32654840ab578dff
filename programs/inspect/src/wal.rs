//! `halcyon inspect wal`: what HBase's WALPrettyPrinter prints, from WALs and recovered edits that may be damaged.

use std::path::{Path, PathBuf};

use halcyon_cell::{Cell, ErrorKind};
use halcyon_env::Env;
use halcyon_proto::pb;
use halcyon_wal::WalReader;
use serde_json::{Value, json};

use crate::output::{Done, Output, Stop};
use crate::{place, text};

/// Damaged places after which a file is left: each of them is searched behind to the end of the file.
const DAMAGE_MAX: u32 = 100;

/// Print the entries of WALs and recovered edits.
#[derive(Debug, Default, clap::Args)]
#[command(disable_help_flag = true)]
pub struct WalArgs {
    /// WALs or recovered edits, or directories of them.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print one JSON object a line.
    #[arg(short, long)]
    pub json: bool,
    /// Print values.
    #[arg(short = 'p', long)]
    pub printvals: bool,
    /// Print only the rows of cells.
    #[arg(short = 'k', long = "outputOnlyRowKey", alias = "output-only-row-key")]
    pub output_only_row_key: bool,
    /// Print only entries of this region, by its encoded name.
    #[arg(short, long, value_name = "REGION")]
    pub region: Option<String>,
    /// Print only the entry with this sequence id.
    #[arg(short, long, value_name = "NUMBER")]
    pub sequence: Option<u64>,
    /// Print only entries of these tables.
    #[arg(short, long, value_name = "TABLE,...", value_delimiter = ',')]
    pub tables: Vec<String>,
    /// Print only cells of this row; \xNN is one byte.
    #[arg(short = 'w', long, value_name = "ROW")]
    pub row: Option<String>,
    /// Print only cells whose rows start with this.
    #[arg(short = 'f', long = "rowPrefix", alias = "row-prefix", value_name = "ROW")]
    pub row_prefix: Option<String>,
    /// Begin at this offset, where an entry begins.
    #[arg(short = 'g', long, value_name = "OFFSET")]
    pub goto: Option<u64>,
    /// Print help.
    #[arg(short = 'h', long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

/// Which entries and cells are printed.
struct Wanted<'a> {
    args: &'a WalArgs,
    row: Option<Vec<u8>>,
    row_prefix: Option<Vec<u8>>,
}

impl Wanted<'_> {
    fn entry(&self, key: &pb::WalKey) -> bool {
        let args = self.args;
        args.sequence.is_none_or(|sequence| sequence == key.log_sequence_number)
            && args.region.as_ref().is_none_or(|region| region.as_bytes() == key.encoded_region_name)
            && (args.tables.is_empty() || args.tables.iter().any(|table| table.as_bytes() == key.table_name))
    }

    fn cell(&self, cell: &Cell) -> bool {
        self.row.as_ref().is_none_or(|row| cell.row() == row)
            && self.row_prefix.as_ref().is_none_or(|prefix| cell.row().starts_with(prefix))
    }
}

/// What one file held.
#[derive(Default)]
struct Counts {
    entries: u64,
    cells: u64,
    printed: u64,
    /// Smallest and largest sequence id.
    sequences: Option<(u64, u64)>,
}

pub(crate) fn run(env: &Env, args: &WalArgs, out: &mut Output<'_>) -> Done {
    let row = |text: &Option<String>| text.as_deref().map(text::parse_row).transpose().map_err(Stop::Failed);
    let wanted = Wanted { args, row: row(&args.row)?, row_prefix: row(&args.row_prefix)? };
    for path in &args.files {
        for file in files(env, path)? {
            inspect_file(env, &wanted, &file, out)?;
        }
    }
    Ok(())
}

/// The file itself, or the files of a directory.
fn files(env: &Env, path: &Path) -> Result<Vec<PathBuf>, Stop> {
    match env.fs.list(path) {
        Ok(entries) => {
            let files = entries.into_iter().filter(|entry| !entry.is_dir && !entry.name.ends_with(".seqid"));
            Ok(files.map(|entry| path.join(entry.name)).collect())
        }
        Err(_) => Ok(vec![path.to_path_buf()]),
    }
}

fn inspect_file(env: &Env, wanted: &Wanted<'_>, path: &Path, out: &mut Output<'_>) -> Done {
    let mut reader = match WalReader::open(env, path) {
        Ok(reader) => reader,
        Err(error) if error.kind() == ErrorKind::Corrupt => return out.damaged(path, Some(0), &error),
        Err(error) => return out.failed(path, error.message()),
    };
    print_header(path, &reader, out)?;
    if let Some(offset) = wanted.args.goto
        && let Err(error) = reader.seek(offset)
    {
        return out.failed(path, error.message());
    }
    let mut counts = Counts::default();
    let mut damage_count = 0;
    loop {
        let at = reader.offset();
        match reader.next_entry() {
            Ok(Some((key, cells))) => entry(wanted, &reader, &key, &cells, &mut counts, out)?,
            Ok(None) => break,
            Err(error) => {
                damage_count += 1;
                if !pass_damage(path, &mut reader, at, &error, damage_count, out)? {
                    break;
                }
            }
        }
    }
    summary(path, &reader, &counts, out)
}

/// Reports damage, and goes to the next whole entry; `false` if there is none.
fn pass_damage(
    path: &Path,
    reader: &mut WalReader,
    at: u64,
    error: &halcyon_cell::Error,
    damage_count: u32,
    out: &mut Output<'_>,
) -> Result<bool, Stop> {
    let next = if damage_count < DAMAGE_MAX { reader.skip_damage() } else { Ok(None) };
    let what = match next {
        Ok(Some(next)) => format!("{}; the next whole entry is at offset {next}", error.message()),
        _ => format!("{}; no entry behind it can be read", error.message()),
    };
    out.damage(path, Some(at), &what)?;
    Ok(matches!(next, Ok(Some(_))))
}

fn print_header(path: &Path, reader: &WalReader, out: &mut Output<'_>) -> Done {
    let header = reader.header();
    let (writer, codec) = (header.writer_cls_name(), header.cell_codec_cls_name());
    let name = path.display().to_string();
    let object = || {
        json!({
            "file": name, "writer": writer, "cellCodec": codec, "compressed": header.has_compression(),
            "closed": reader.has_trailer(),
        })
    };
    out.say("file", object, || {
        let compressed = if header.has_compression() { "\nCompressed: dictionary" } else { "" };
        format!("Scanning -> {name}\nWriter Classes: {writer}\nCell Codec Class: {codec}{compressed}")
    })
}

fn entry(
    wanted: &Wanted<'_>,
    reader: &WalReader,
    key: &pb::WalKey,
    cells: &[Cell],
    counts: &mut Counts,
    out: &mut Output<'_>,
) -> Done {
    counts.entries += 1;
    counts.cells += cells.len() as u64;
    let sequence = key.log_sequence_number;
    let (low, high) = counts.sequences.unwrap_or((sequence, sequence));
    counts.sequences = Some((low.min(sequence), high.max(sequence)));
    if !wanted.entry(key) {
        return Ok(());
    }
    let shown: Vec<&Cell> = cells.iter().filter(|cell| wanted.cell(cell)).collect();
    if shown.is_empty() {
        return Ok(());
    }
    counts.printed += 1;
    out.say(
        "entry",
        || entry_object(wanted.args, reader.offset(), key, &shown),
        || entry_text(wanted.args, reader.offset(), key, &shown),
    )
}

fn entry_object(args: &WalArgs, behind: u64, key: &pb::WalKey, cells: &[&Cell]) -> Value {
    let cell = |cell: &&Cell| {
        if args.output_only_row_key {
            return json!({"row": text::binary(cell.row())});
        }
        let mut object = text::cell_object(cell.get(), args.printvals);
        object["tags"] = text::tags(cell.get()).into();
        object
    };
    json!({
        "sequence": key.log_sequence_number,
        "table": text::binary(&key.table_name),
        "region": text::binary(&key.encoded_region_name),
        "writeTime": key.write_time,
        "position": behind,
        "actions": cells.iter().map(cell).collect::<Vec<Value>>(),
    })
}

fn entry_text(args: &WalArgs, behind: u64, key: &pb::WalKey, cells: &[&Cell]) -> String {
    let mut lines = vec![format!(
        "Sequence={}, table={}, region={}, at write timestamp={}",
        key.log_sequence_number,
        text::binary(&key.table_name),
        text::binary(&key.encoded_region_name),
        text::java_date(key.write_time as i64)
    )];
    for cell in cells {
        let row = text::binary(cell.row());
        if args.output_only_row_key {
            lines.push(format!("row={row}"));
            continue;
        }
        lines.push(format!(
            "row={row}, column={}:{}, timestamp={}, type={}",
            text::binary(cell.family()),
            text::binary(cell.qualifier()),
            cell.timestamp(),
            text::type_name(cell.get().type_code())
        ));
        let tags = text::tags(cell.get());
        if !tags.is_empty() {
            lines.push(format!("    tag: [{}]", tags.join(", ")));
        }
        if args.printvals {
            lines.push(format!("    value: {}", text::binary(cell.value())));
        }
    }
    lines.push(format!("position: {behind}"));
    lines.join("\n")
}

/// A torn tail is what a crash leaves. It is named, and is no damage.
fn summary(path: &Path, reader: &WalReader, counts: &Counts, out: &mut Output<'_>) -> Done {
    let Counts { entries, cells, printed, sequences } = counts;
    let torn_at = reader.torn_at();
    let object = || {
        json!({
            "file": path.to_string_lossy(), "entries": entries, "cells": cells, "printed": printed,
            "firstSequence": sequences.map(|(low, _)| low), "lastSequence": sequences.map(|(_, high)| high),
            "tornAt": torn_at,
        })
    };
    out.say("summary", object, || {
        let range =
            sequences.map_or_else(String::new, |(low, high)| format!(", sequence ids {low} to {high}"));
        let mut line = format!("{}: {entries} entries, {cells} cells{range}", place::name(path));
        if let Some(at) = torn_at {
            line.push_str(&format!("\nTorn tail at offset {at}: the writer ended without closing the file"));
        }
        line
    })
}
