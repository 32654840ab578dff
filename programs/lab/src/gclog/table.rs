//! The log in numbers: per kind and cause of a pause, and in all.

use std::collections::BTreeMap;

use super::events::{Lengths, Pause};
use super::reader::Log;

/// Lengths of one row, in milliseconds. Percentiles of pauses are exact (nearest rank); those of other rows, which are
/// too many to keep, are up to 3.2 % too high.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub count: u64,
    pub total_ms: f64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Row {
    pub fn of(mut lengths: Vec<f64>) -> Row {
        lengths.sort_by(f64::total_cmp);
        let count = lengths.len();
        let total_ms: f64 = lengths.iter().sum();
        let rank = |quantile: f64| match count {
            0 => 0.0,
            _ => lengths[((quantile * count as f64).ceil() as usize).clamp(1, count) - 1],
        };
        Row {
            count: count as u64,
            total_ms,
            mean_ms: if count == 0 { 0.0 } else { total_ms / count as f64 },
            p50_ms: rank(0.5),
            p99_ms: rank(0.99),
            p999_ms: rank(0.999),
            max_ms: rank(1.0),
        }
    }
}

impl From<&Lengths> for Row {
    fn from(lengths: &Lengths) -> Row {
        Row {
            count: lengths.count,
            total_ms: lengths.total_ms,
            mean_ms: lengths.mean_ms(),
            p50_ms: lengths.quantile_ms(0.5),
            p99_ms: lengths.quantile_ms(0.99),
            p999_ms: lengths.quantile_ms(0.999),
            max_ms: lengths.max_ms,
        }
    }
}

/// The whole log as rows.
#[derive(Debug)]
pub struct Table {
    /// Pauses of collections as (kind, cause), longest total first.
    pub pauses: Vec<(String, String, Row)>,
    pub all_pauses: Row,
    /// Safepoints that are no collection, by operation, longest total first.
    pub other_safepoints: Vec<(String, Row)>,
    pub all_other: Row,
    /// Milliseconds in which the application stood still: the safepoints' total, with the time to reach them, if the log
    /// has safepoints, else the pauses.
    pub stopped_ms: f64,
    /// Milliseconds from the wish to stop until the last thread had stopped; `None` if the log has no safepoints.
    pub reaching: Option<Lengths>,
    /// Seconds between first and last line, of all JVMs together.
    pub wall_s: f64,
}

impl Table {
    pub fn of(log: &Log) -> Table {
        let rows = |collection: bool| {
            let mut groups: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
            for pause in log.pauses.iter().filter(|pause| pause.collection == collection) {
                let key = (log.names.text(pause.kind), log.names.text(pause.cause));
                groups.entry(key).or_default().push(pause.length_ms);
            }
            let named = |((kind, cause), lengths): ((&str, &str), _)| {
                (kind.to_string(), cause.to_string(), Row::of(lengths))
            };
            let mut rows: Vec<_> = groups.into_iter().map(named).collect();
            rows.sort_by(|a, b| b.2.total_ms.total_cmp(&a.2.total_ms));
            rows
        };
        let all = |collection: bool| {
            let wanted = |pause: &&Pause| pause.collection == collection;
            Row::of(log.pauses.iter().filter(wanted).map(|pause| pause.length_ms).collect())
        };
        let all_pauses = all(true);
        let safepoints_ms: f64 = log.safepoints.values().map(|found| found.total.total_ms).sum();
        let mut reaching = Lengths::default();
        log.safepoints.values().for_each(|found| reaching.merge(&found.reaching));
        // a log that has safepoints but not those of the collections would count too little
        let stopped_ms = safepoints_ms.max(all_pauses.total_ms);
        Table {
            pauses: rows(true),
            all_pauses,
            other_safepoints: rows(false).into_iter().map(|(_, cause, row)| (cause, row)).collect(),
            all_other: all(false),
            stopped_ms,
            reaching: (!log.safepoints.is_empty()).then_some(reaching),
            wall_s: log.jvms.iter().map(|jvm| jvm.wall_s).sum(),
        }
    }

    /// Share of the time in which the application stood still, 0 to 1; `None` if the log has no times.
    pub fn stopped_share(&self) -> Option<f64> {
        (self.wall_s > 0.0).then(|| self.stopped_ms / 1e3 / self.wall_s)
    }
}
