//! Scripts over one region in `testdata/`; regenerate the expected output with `REWRITE=1` and read it by eye.
//!
//! A block is `open <family>[,KEY=VALUE...] ...` or `run` with commands in its input:
//! `put r f:q=v@ts ...`, `delete r [f | f:q | f:q@ts ...] kind=...`, `increment`, `append`, `check`, `get`, `scan`,
//! `flush`, `compact`, `major`, `reopen`, `crash`, `advance ms=`, `layout`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use bytes::Bytes;
use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};
use halcyon_env::FileSystem;
use halcyon_env::sim::CrashMode;
use halcyon_filter::{Filter, parse_filter};
use halcyon_proto::pb::{self, CompareType};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use prost::Message;

#[test]
fn scripts() {
    datadriven::walk("tests/testdata", |file| {
        let mut bench: Option<Bench> = None;
        file.run(|case| match case.directive.as_str() {
            "open" => {
                let families: Vec<FamilyDescriptor> = case.input.lines().map(parse_family).collect();
                bench = Some(Bench::new(&families));
                String::new()
            }
            "run" => {
                let bench = bench.as_mut().expect("open comes first");
                let mut out = String::new();
                for line in case.input.lines() {
                    let text = run_line(bench, line).unwrap_or_else(|e| format!("{:?}: {e}\n", e.kind()));
                    if !text.is_empty() {
                        out.push_str(&format!("> {line}\n{text}"));
                    }
                }
                out
            }
            other => panic!("unknown directive {other}"),
        });
    });
}

fn parse_family(line: &str) -> FamilyDescriptor {
    let mut words = line.split_whitespace();
    let mut family = FamilyDescriptor::new(words.next().expect("a family")).unwrap();
    for word in words {
        let (key, value) = word.split_once('=').expect("KEY=VALUE");
        family = family.with(key, value);
    }
    family
}

fn lines(cells: &[Cell]) -> String {
    cells.iter().map(|cell| format!("{}\n", show(cell))).collect()
}

fn run_line(bench: &mut Bench, line: &str) -> halcyon_cell::Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let options: BTreeMap<&str, &str> =
        words[1..].iter().filter(|w| !w.contains(':')).filter_map(|word| word.split_once('=')).collect();
    let plain: Vec<&str> =
        words[1..].iter().copied().filter(|w| w.contains(':') || !w.contains('=')).collect();
    match words[0] {
        "put" | "increment" | "append" => {
            let kind = match words[0] {
                "put" => MutationKind::Put,
                "increment" => MutationKind::Increment,
                _ => MutationKind::Append,
            };
            let number = kind == MutationKind::Increment;
            let cells = plain[1..].iter().map(|c| parse_cell(plain[0], c, CellType::Put, number)).collect();
            let mut mutation = mutation(kind, plain[0].as_bytes(), cells);
            mutation.cell_ttl_ms = options.get("ttl").map(|ttl| ttl.parse().unwrap());
            let nonce = options.get("nonce").map(|nonce| Nonce { group: 1, nonce: nonce.parse().unwrap() });
            Ok(lines(&bench.mutate_once(mutation, nonce.unwrap_or_default())?.unwrap_or_default()))
        }
        "delete" => {
            let cell_type = match options.get("kind").copied().unwrap_or("column") {
                "version" => CellType::Delete,
                "column" => CellType::DeleteColumn,
                "family" => CellType::DeleteFamily,
                "family-version" => CellType::DeleteFamilyVersion,
                other => panic!("kind {other}"),
            };
            let cells = plain[1..].iter().map(|c| parse_cell(plain[0], c, cell_type, false)).collect();
            bench.mutate(mutation(MutationKind::Delete, plain[0].as_bytes(), cells))?;
            Ok(String::new())
        }
        "check" => {
            let expected = parse_cell(plain[0], plain[1], CellType::Put, false);
            let op = CompareType::from_str_name(options.get("op").copied().unwrap_or("EQUAL")).unwrap();
            let condition = Condition::new(
                Bytes::copy_from_slice(plain[0].as_bytes()),
                ConditionTest::Column {
                    family: Bytes::copy_from_slice(expected.family()),
                    qualifier: Bytes::copy_from_slice(expected.qualifier()),
                    op,
                    value: Bytes::copy_from_slice(expected.value()),
                },
            );
            let cells = plain[2..].iter().map(|c| parse_cell(plain[0], c, CellType::Put, false)).collect();
            let put = mutation(MutationKind::Put, plain[0].as_bytes(), cells);
            let outcome =
                bench.region.check_and_mutate(condition, vec![put], Nonce::default(), ReadMode::AnyDisk)?;
            bench.wal.drive();
            outcome.ticket.wait()?;
            Ok(format!("processed={}\n", outcome.processed))
        }
        "get" | "scan" => {
            let mut scan = Scan::default();
            let mut columns = &plain[..];
            if words[0] == "get" {
                scan = Scan::of_row(Bytes::copy_from_slice(plain[0].as_bytes()));
                columns = &plain[1..];
            }
            for column in columns {
                let (family, qualifier) = column.split_once(':').unwrap_or((column, "*"));
                let entry = scan.families.entry(Bytes::copy_from_slice(family.as_bytes()));
                if qualifier == "*" {
                    entry.or_insert(None);
                } else if let Some(set) = entry.or_insert_with(|| Some(Default::default())) {
                    set.insert(Bytes::copy_from_slice(qualifier.as_bytes()));
                }
            }
            for (key, value) in &options {
                let number = || value.parse::<i64>().expect("a number");
                let bytes = || Bytes::copy_from_slice(value.as_bytes());
                match *key {
                    "versions" => scan.max_versions = number() as u32,
                    "min" => scan.time_range.min = number(),
                    "max" => scan.time_range.max = number(),
                    "raw" => scan.raw = true,
                    "reversed" => scan.reversed = true,
                    "start" => scan.start_row = bytes(),
                    "after" => (scan.start_row, scan.include_start_row) = (bytes(), false),
                    "stop" => scan.stop_row = bytes(),
                    "through" => (scan.stop_row, scan.include_stop_row) = (bytes(), true),
                    "limit" => scan.store_limit = Some(number() as u32),
                    "offset" => scan.store_offset = number() as u32,
                    "batch" => scan.batch = Some(number() as u32),
                    "prefix" => scan.filter = Some(column_prefix(bytes())),
                    "timestamp" => scan.filter = Some(of_timestamp(number())),
                    other => panic!("option {other}"),
                }
            }
            if words[0] == "get" {
                return Ok(lines(&bench.region.get(scan, ReadMode::AnyDisk)?));
            }
            let batch = scan.batch.is_some();
            let rows = bench.scan(scan)?;
            Ok(rows.iter().map(|row| lines(row) + if batch { "-\n" } else { "" }).collect())
        }
        "flush" => {
            let outcome = bench.region.flush(None)?;
            Ok(if outcome.flushed { String::new() } else { "nothing to flush\n".into() })
        }
        "compact" | "major" => {
            let outcome = bench.compact(words[0] == "major")?;
            Ok(format!("files={} major={}\n", outcome.compacted_files, outcome.major))
        }
        "reopen" => bench.reopen().map(|()| String::new()),
        "crash" => {
            let fs = Arc::new(bench.fs.crash(CrashMode::Drop, 1));
            bench.recover_on(fs).map(|()| String::new())
        }
        "advance" => {
            bench.clock.advance(Duration::from_millis(options["ms"].parse().unwrap()));
            Ok(String::new())
        }
        "layout" => Ok(layout(bench)),
        other => panic!("unknown command {other}"),
    }
}

/// Columns whose names begin with `prefix`; the filter gives hints.
fn column_prefix(prefix: Bytes) -> Box<dyn Filter> {
    let name = "org.apache.hadoop.hbase.filter.ColumnPrefixFilter".into();
    let message = pb::ColumnPrefixFilter { prefix };
    parse_filter(&pb::Filter { name, serialized_filter: Some(message.encode_to_vec().into()) }).unwrap()
}

/// Cells with this timestamp.
fn of_timestamp(timestamp: i64) -> Box<dyn Filter> {
    let name = "org.apache.hadoop.hbase.filter.TimestampsFilter".into();
    let message = pb::TimestampsFilter { timestamps: vec![timestamp], can_hint: None };
    parse_filter(&pb::Filter { name, serialized_filter: Some(message.encode_to_vec().into()) }).unwrap()
}

/// Files of each family and bytes in memory, free of random names.
fn layout(bench: &Bench) -> String {
    let stats = bench.region.stats();
    let mut out = String::new();
    let memory =
        if stats.memstore.data_bytes == 0 { "empty".into() } else { stats.memstore.data_bytes.to_string() };
    out.push_str(&format!("memstore: {memory}\n"));
    for family in bench.table.families() {
        let dir = bench.region.dir().join(&*family.name_str());
        let files = bench.fs.list(&dir).unwrap_or_default();
        let archive = std::path::Path::new("/root/archive/data/default/t")
            .join(bench.info.encoded_name())
            .join(&*family.name_str());
        let archived = bench.fs.list(&archive).unwrap_or_default().len();
        out.push_str(&format!("{}: files={} archived={archived}\n", family.name_str(), files.len()));
    }
    let _ = LATEST_TIMESTAMP;
    out
}
