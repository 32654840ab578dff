//! Fields of records, with the names that `hbtop` gives them.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Value as Json, json};

use crate::args::Mode;

/// What can be known of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Namespace,
    Table,
    Region,
    Server,
    User,
    StartKey,
    Requests,
    Reads,
    FilteredReads,
    Writes,
    FileSize,
    UncompressedSize,
    Files,
    Memstore,
    Locality,
    Compacting,
    Compacted,
    Regions,
    UsedHeap,
    MaxHeap,
    Clients,
}

use Field::*;

impl Field {
    /// The heading, which is also the name in options and filters.
    pub fn name(self) -> &'static str {
        match self {
            Namespace => "NAMESPACE",
            Table => "TABLE",
            Region => "REGION",
            Server => "SERVER",
            User => "USER",
            StartKey => "SKEY",
            Requests => "#REQ/S",
            Reads => "#READ/S",
            FilteredReads => "#FREAD/S",
            Writes => "#WRITE/S",
            FileSize => "SF",
            UncompressedSize => "USF",
            Files => "#SF",
            Memstore => "MEMSTORE",
            Locality => "LOCALITY",
            Compacting => "#COMPingCELL",
            Compacted => "#COMPedCELL",
            Regions => "#REGION",
            UsedHeap => "UHEAP",
            MaxHeap => "MHEAP",
            Clients => "#CLIENT",
        }
    }

    /// The name in JSON, with its unit.
    pub fn key(self) -> &'static str {
        match self {
            Namespace => "namespace",
            Table => "table",
            Region => "region",
            Server => "server",
            User => "user",
            StartKey => "start_key",
            Requests => "requests_per_second",
            Reads => "reads_per_second",
            FilteredReads => "filtered_reads_per_second",
            Writes => "writes_per_second",
            FileSize => "store_file_size_mb",
            UncompressedSize => "uncompressed_size_mb",
            Files => "store_files_count",
            Memstore => "memstore_size_mb",
            Locality => "data_locality",
            Compacting => "compacting_cells_count",
            Compacted => "compacted_cells_count",
            Regions => "regions_count",
            UsedHeap => "used_heap_mb",
            MaxHeap => "max_heap_mb",
            Clients => "clients_count",
        }
    }

    /// Fields of a mode in the order in which they are shown.
    pub fn of(mode: Mode) -> &'static [Field] {
        match mode {
            Mode::Servers => &[
                Server,
                Requests,
                Reads,
                FilteredReads,
                Writes,
                FileSize,
                UncompressedSize,
                Files,
                Memstore,
                Regions,
                UsedHeap,
                MaxHeap,
            ],
            Mode::Regions => &[
                Namespace,
                Table,
                Region,
                Server,
                Requests,
                Reads,
                FilteredReads,
                Writes,
                FileSize,
                UncompressedSize,
                Files,
                Memstore,
                Locality,
                Compacting,
                Compacted,
                StartKey,
            ],
            Mode::Tables => &[
                Namespace,
                Table,
                Requests,
                Reads,
                FilteredReads,
                Writes,
                FileSize,
                UncompressedSize,
                Files,
                Memstore,
                Regions,
            ],
            Mode::Namespaces => &[
                Namespace,
                Requests,
                Reads,
                FilteredReads,
                Writes,
                FileSize,
                UncompressedSize,
                Files,
                Memstore,
                Regions,
            ],
            Mode::Users => &[User, Requests, Reads, FilteredReads, Writes, Clients],
        }
    }

    /// A field of a mode by its name, in any case.
    pub fn parse(mode: Mode, name: &str) -> Result<Field, String> {
        let wanted = name.trim();
        let found = Field::of(mode).iter().find(|field| field.name().eq_ignore_ascii_case(wanted));
        found.copied().ok_or_else(|| {
            let known: Vec<&str> = Field::of(mode).iter().map(|field| field.name()).collect();
            format!("there is no field \"{wanted}\" in mode {}; there are {}", mode.name(), known.join(", "))
        })
    }

    pub fn is_text(self) -> bool {
        matches!(self, Namespace | Table | Region | Server | User | StartKey)
    }
}

/// What is known of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Count(u64),
    Mb(u64),
    /// Part of a whole.
    Part(f64),
    /// Per second; unknown before the second report of a server.
    Rate(Option<f64>),
}

impl Value {
    /// What numbers are compared by; an unknown rate is the smallest.
    pub fn number(&self) -> f64 {
        match self {
            Value::Text(_) => 0.0,
            Value::Count(count) | Value::Mb(count) => *count as f64,
            Value::Part(part) => *part,
            Value::Rate(rate) => rate.unwrap_or(-1.0),
        }
    }

    pub fn compare(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            _ => self.number().total_cmp(&other.number()),
        }
    }

    pub fn json(&self) -> Json {
        match self {
            Value::Text(text) => json!(text),
            Value::Count(count) | Value::Mb(count) => json!(count),
            Value::Part(part) => json!(part),
            Value::Rate(rate) => json!(rate.map(|rate| (rate * 10.0).round() / 10.0)),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Count(count) => write!(f, "{count}"),
            Value::Mb(mb) if *mb >= 10 << 10 => write!(f, "{:.1}GB", *mb as f64 / 1024.0),
            Value::Mb(mb) => write!(f, "{mb}MB"),
            Value::Part(part) => write!(f, "{part:.2}"),
            Value::Rate(Some(rate)) => write!(f, "{rate:.0}"),
            Value::Rate(None) => f.write_str("-"),
        }
    }
}
