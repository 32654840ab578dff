//! Time series: a row holds the points of an hour, a column for each second. Nine of ten operations append the next point,
//! the others read the last full hour of a series as one row.
//!
//! Each client has series of its own, so it knows each point that a row must have.

use std::sync::Arc;

use halcyon_client::{ClientError, Get, Put, Row, Table};

use crate::random::Random;
use crate::run::{Client, Done, Outcome, Recorder, Step, run};
use crate::shape::value::{is_value, row_key, splits, value};
use crate::shape::{FAMILY, NOT_FOUND, Setup, WRONG_VALUE};

pub(super) const KINDS: &[&str] = &["APPEND", "READ"];
const APPEND: usize = 0;
const READ: usize = 1;
/// One of so many operations reads.
const OPERATIONS_PER_READ: u64 = 10;

pub(super) async fn run_shape(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    setup.make_table(splits(setup.regions)).await?;
    let hour = Hour { columns: setup.args.columns, value_len: setup.value_len };
    for series in 0..setup.rows {
        setup.table(0).put(hour.whole(series, 0)).await?;
    }
    let plan = setup.plan();
    let count = setup.args.clients as u64;
    let clients = (0..count).map(|number| {
        let recorder = plan.recorder();
        let series = (number..setup.rows).step_by(count as usize);
        let client = SeriesClient {
            table: setup.table(number as usize),
            series: series.map(|number| Series { number, hour: 1, second: 0 }).collect(),
            hour: hour.clone(),
            random: Random::fork(setup.seed, number),
            recorder: Arc::clone(&recorder),
        };
        (client, recorder)
    });
    Ok(run(&plan, clients.collect()).await)
}

/// How a row looks.
#[derive(Clone)]
struct Hour {
    columns: u32,
    value_len: usize,
}

impl Hour {
    /// A series begins anywhere, and its hours follow each other.
    fn key(&self, series: u64, hour: u64) -> Vec<u8> {
        [&row_key(series)[..], format!("-{hour:08}").as_bytes()].concat()
    }

    fn point(&self, series: u64, hour: u64, second: u32) -> Vec<u8> {
        value(series, self.version(hour, second), self.value_len)
    }

    fn version(&self, hour: u64, second: u32) -> u64 {
        hour * u64::from(self.columns) + u64::from(second)
    }

    fn append(&self, series: u64, hour: u64, second: u32) -> Put {
        let point = self.point(series, hour, second);
        Put::new(self.key(series, hour)).column(FAMILY, qualifier(second), point)
    }

    fn whole(&self, series: u64, hour: u64) -> Put {
        let put = Put::new(self.key(series, hour));
        (0..self.columns)
            .fold(put, |put, second| put.column(FAMILY, qualifier(second), self.point(series, hour, second)))
    }

    /// What is wrong with a row that must have all points of an hour, in order.
    fn wrong(&self, found: &Row, series: u64, hour: u64) -> Option<&'static str> {
        if found.len() != self.columns as usize {
            return Some(NOT_FOUND);
        }
        let is_right = |(second, cell): (u32, &halcyon_client::Cell)| {
            let version = self.version(hour, second);
            cell.qualifier() == qualifier(second) && is_value(cell.value(), series, version, self.value_len)
        };
        (!(0..).zip(found.cells()).all(is_right)).then_some(WRONG_VALUE)
    }
}

fn qualifier(second: u32) -> [u8; 2] {
    u16::try_from(second).expect("a row has at most 65536 columns").to_be_bytes()
}

/// Where a series ends.
struct Series {
    number: u64,
    hour: u64,
    /// Of the next point.
    second: u32,
}

struct SeriesClient {
    table: Table,
    series: Vec<Series>,
    hour: Hour,
    random: Random,
    recorder: Arc<Recorder>,
}

impl Client for SeriesClient {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let at = self.random.below(self.series.len() as u64) as usize;
        let series = &mut self.series[at];
        if self.random.below(OPERATIONS_PER_READ) == 0 {
            let hour = series.hour - 1;
            let found = self.table.get(Get::new(self.hour.key(series.number, hour))).await?;
            if let Some(class) = self.hour.wrong(&found, series.number, hour) {
                self.recorder.error(class);
            }
            return Ok(Step::Done(Done { operations: 1, kind: Some(READ) }));
        }
        self.table.put(self.hour.append(series.number, series.hour, series.second)).await?;
        series.second += 1;
        if series.second == self.hour.columns {
            (series.hour, series.second) = (series.hour + 1, 0);
        }
        Ok(Step::Done(Done { operations: 1, kind: Some(APPEND) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_follow_each_other_and_points_differ() {
        let hour = Hour { columns: 3_600, value_len: 16 };
        assert!(hour.key(5, 9) < hour.key(5, 10));
        assert_eq!(hour.version(1, 0), hour.version(0, 3_599) + 1);
        assert_ne!(hour.point(5, 1, 0), hour.point(5, 1, 1));
        assert_ne!(hour.point(5, 1, 0), hour.point(6, 1, 0));
        assert!(qualifier(255) < qualifier(256) && qualifier(65_535) == [255, 255]);
    }
}
