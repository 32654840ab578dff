//! Statistics of the cells of a store file.

use halcyon_cell::CellRef;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::output::{Done, Output};
use crate::text;

/// Upper ends of the ranges that `-d` counts, as in HBase's tool.
const RANGES: [u64; 18] = [
    1,
    3,
    10,
    50,
    100,
    500,
    1000,
    5000,
    10_000,
    50_000,
    100_000,
    500_000,
    750_000,
    1_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
];
const PERCENTILES: [f64; 6] = [50.0, 75.0, 95.0, 98.0, 99.0, 99.9];

/// A row of which all cells so far were added.
#[derive(Default)]
struct Row {
    key: Vec<u8>,
    bytes: u64,
    cells: u64,
}

/// Lengths of keys and values, and sizes of rows.
pub(super) struct Stats {
    key_bytes: Distribution,
    value_bytes: Distribution,
    row_bytes: Distribution,
    row_cells: Distribution,
    row: Row,
    biggest_row: Row,
}

impl Default for Stats {
    fn default() -> Stats {
        Stats {
            key_bytes: Distribution::new("Key length"),
            value_bytes: Distribution::new("Val length"),
            row_bytes: Distribution::new("Row size (bytes)"),
            row_cells: Distribution::new("Row size (columns)"),
            row: Row::default(),
            biggest_row: Row::default(),
        }
    }
}

impl Stats {
    pub(super) fn add(&mut self, cell: CellRef<'_>) {
        if self.row.cells > 0 && self.row.key != cell.row() {
            self.end();
        }
        self.key_bytes.add(cell.key_len() as u64);
        self.value_bytes.add(cell.value_len() as u64);
        self.row.key.clear();
        self.row.key.extend_from_slice(cell.row());
        self.row.bytes += cell.bytes().len() as u64;
        self.row.cells += 1;
    }

    /// Ends the row under way.
    pub(super) fn end(&mut self) {
        let row = std::mem::take(&mut self.row);
        if row.cells == 0 {
            return;
        }
        self.row_bytes.add(row.bytes);
        self.row_cells.add(row.cells);
        if row.bytes > self.biggest_row.bytes {
            self.biggest_row = row;
        }
    }

    pub(super) fn print(&self, details: bool, out: &mut Output<'_>) -> Done {
        let all = [&self.key_bytes, &self.value_bytes, &self.row_bytes, &self.row_cells];
        let biggest = text::binary(&self.biggest_row.key);
        let object = || {
            let mut fields: serde_json::Map<String, Value> =
                all.iter().map(|each| (each.name.to_string(), each.object(details))).collect();
            fields.insert("Key of biggest row".to_string(), biggest.clone().into());
            Value::Object(fields)
        };
        out.say("stats", object, || {
            let texts: Vec<String> = all.iter().map(|each| each.text(details)).collect();
            format!("Stats:\n{}\nKey of biggest row: {biggest}", texts.join("\n"))
        })
    }
}

struct Distribution {
    name: &'static str,
    sum: f64,
    sum_of_squares: f64,
    min: u64,
    max: u64,
    ranges: [u64; RANGES.len() + 1],
    histogram: Histogram<u64>,
}

impl Distribution {
    fn new(name: &'static str) -> Distribution {
        Distribution {
            name,
            sum: 0.0,
            sum_of_squares: 0.0,
            min: u64::MAX,
            max: 0,
            ranges: [0; RANGES.len() + 1],
            histogram: Histogram::new(3).expect("three digits are in the library's bounds"),
        }
    }

    fn add(&mut self, value: u64) {
        self.sum += value as f64;
        self.sum_of_squares += (value as f64) * (value as f64);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.ranges[RANGES.iter().position(|&end| value <= end).unwrap_or(RANGES.len())] += 1;
        self.histogram.saturating_record(value);
    }

    fn mean(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.sum / self.histogram.len() as f64 }
    }

    fn deviation(&self) -> f64 {
        if self.histogram.is_empty() {
            return 0.0;
        }
        let mean_of_squares = self.sum_of_squares / self.histogram.len() as f64;
        (mean_of_squares - self.mean() * self.mean()).max(0.0).sqrt()
    }

    fn min(&self) -> u64 {
        if self.histogram.is_empty() { 0 } else { self.min }
    }

    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ends = RANGES.iter().copied().chain([u64::MAX]);
        ends.zip(self.ranges).filter(|&(_, count)| count > 0)
    }

    fn object(&self, details: bool) -> Value {
        let mut object = json!({
            "min": self.min(), "max": self.max, "mean": self.mean(), "stddev": self.deviation(),
            "count": self.histogram.len(),
        });
        for percentile in PERCENTILES {
            object[format!("p{percentile}")] = self.histogram.value_at_percentile(percentile).into();
        }
        if details {
            let ranges = self.ranges().map(|(end, count)| json!({"upTo": end, "count": count}));
            object["ranges"] = ranges.collect::<Vec<Value>>().into();
        }
        object
    }

    fn text(&self, details: bool) -> String {
        let mut lines = vec![format!("   {}:", self.name)];
        let mut line = |name: &str, value: String| lines.push(format!("{name:>18} {value}"));
        line("min =", self.min().to_string());
        line("max =", self.max.to_string());
        line("mean =", format!("{:.2}", self.mean()));
        line("stddev =", format!("{:.2}", self.deviation()));
        for percentile in PERCENTILES {
            let value = self.histogram.value_at_percentile(percentile);
            line(&format!("{percentile}% <="), value.to_string());
        }
        line("count =", self.histogram.len().to_string());
        if details {
            line("(range <= count):", String::new());
            for (end, count) in self.ranges() {
                let end = if end == u64::MAX { "more".to_string() } else { end.to_string() };
                line(&format!("{end} <="), count.to_string());
            }
        }
        lines.join("\n")
    }
}
