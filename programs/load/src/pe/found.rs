//! What reads found: rows that are not there cost less than those that are, and a figure for them is worth nothing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_cell::Cell;
use serde_json::{Value, json};

/// Rows that were asked for by their key and those that came, of all clients.
#[derive(Default)]
pub(super) struct Found {
    rows: AtomicU64,
    cells: AtomicU64,
    value_bytes: AtomicU64,
    missing: AtomicU64,
}

impl Found {
    /// A row of a scan, or the answer to a get, which has no cells if there is no such row.
    pub fn row(&self, cells: &[Cell]) {
        if cells.is_empty() {
            self.missing.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.cells.fetch_add(cells.len() as u64, Ordering::Relaxed);
        let bytes = cells.iter().map(|cell| cell.value().len() as u64).sum();
        self.value_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A region, or that there is none.
    pub fn region(&self, is_there: bool) {
        let counter = if is_there { &self.rows } else { &self.missing };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub fn to_json(&self) -> Value {
        let [rows, cells, value_bytes, missing] = self.all();
        json!({ "rows": rows, "cells": cells, "value_bytes": value_bytes, "missing": missing })
    }

    fn all(&self) -> [u64; 4] {
        [&self.rows, &self.cells, &self.value_bytes, &self.missing].map(|count| count.load(Ordering::Relaxed))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, cells, value_bytes, missing] = self.all();
        write!(f, "found {rows} rows, {cells} cells, {value_bytes} bytes of values; not there {missing}")
    }
}
