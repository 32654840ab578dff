//! What was measured over the time of looking.

use std::collections::HashMap;
use std::time::Duration;

use halcyon_client::ClusterMetrics;
use halcyon_schema::parse_region_name;

use crate::readings::{Reading, Readings};

/// Everything that the rules judge.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    pub version: String,
    pub time: Duration,
    pub servers: Vec<ServerNumbers>,
    /// Why the info port of a server did not tell anything, by server.
    pub silent: Vec<(String, String)>,
}

/// One server.
#[derive(Clone, Debug, Default)]
pub struct ServerNumbers {
    /// Host and port.
    pub name: String,
    pub looks: Looks,
    pub regions: Vec<RegionNumbers>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionNumbers {
    pub name: String,
    pub table: String,
    /// `None` if the region was not there all the time.
    pub requests_per_second: Option<f64>,
    pub stores_count: u32,
    pub files_count: u32,
    pub size_mb: u32,
}

/// The readings of one server, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Looks(pub Vec<Readings>);

impl Looks {
    /// What a counter grew by. `None` if it was not there or went back, as after a restart.
    pub fn grown(&self, reading: Reading) -> Option<f64> {
        let (first, last) = (self.0.first()?.get(&reading)?, self.0.last()?.get(&reading)?);
        (self.0.len() > 1 && last >= first).then_some(last - first)
    }

    pub fn last(&self, reading: Reading) -> Option<f64> {
        self.0.last()?.get(&reading).copied()
    }

    /// Mean of a level.
    pub fn mean(&self, reading: Reading) -> Option<f64> {
        let known: Vec<f64> = self.0.iter().filter_map(|look| look.get(&reading).copied()).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// Share of the looks for which `is_so`. `None` without a look.
    pub fn share(&self, is_so: impl Fn(&Readings) -> bool) -> Option<f64> {
        let count = self.0.iter().filter(|look| is_so(look)).count();
        (!self.0.is_empty()).then(|| count as f64 / self.0.len() as f64)
    }
}

impl ServerNumbers {
    pub fn requests_per_second(&self) -> Option<f64> {
        let known: Vec<f64> = self.regions.iter().filter_map(|region| region.requests_per_second).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    pub fn size_mb(&self) -> u64 {
        self.regions.iter().map(|region| u64::from(region.size_mb)).sum()
    }
}

/// Regions of a server between two reports of it.
pub fn regions(first: &ClusterMetrics, last: &ClusterMetrics, server: &str) -> Vec<RegionNumbers> {
    let find =
        |metrics: &ClusterMetrics| metrics.servers.iter().find(|one| one.name.to_string() == server).cloned();
    let (Some(last), first) = (find(last), find(first)) else { return Vec::new() };
    let reported_ms = first.as_ref().map_or(0, |first| first.report_end_ms);
    let seconds = last.report_end_ms.saturating_sub(reported_ms) as f64 / 1000.0;
    let before: HashMap<Vec<u8>, u64> = first
        .iter()
        .flat_map(|first| &first.regions)
        .map(|region| (region.region_name.clone(), region.read_requests_count + region.write_requests_count))
        .collect();
    let numbers = |region: &halcyon_client::RegionMetrics| {
        let now = region.read_requests_count + region.write_requests_count;
        let grown = before.get(&region.region_name).and_then(|before| now.checked_sub(*before));
        let table = parse_region_name(&region.region_name).map(|parts| parts.table.to_string());
        RegionNumbers {
            name: region.region_name.escape_ascii().to_string(),
            table: table.unwrap_or_default(),
            requests_per_second: grown.filter(|_| seconds > 0.0).map(|grown| grown as f64 / seconds),
            stores_count: region.stores_count,
            files_count: region.store_files_count,
            size_mb: region.store_file_size_mb,
        }
    };
    last.regions.iter().map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_and_levels_have_means() {
        let look =
            |hits, queued| Readings::from([(Reading::CacheHits, hits), (Reading::CompactionsQueued, queued)]);
        let looks = Looks(vec![look(100.0, 0.0), look(150.0, 4.0), look(400.0, 5.0)]);
        assert_eq!(looks.grown(Reading::CacheHits), Some(300.0));
        assert_eq!(looks.grown(Reading::CacheMisses), None, "not measured");
        assert_eq!(
            (looks.mean(Reading::CompactionsQueued), looks.last(Reading::CacheHits)),
            (Some(3.0), Some(400.0))
        );
        assert_eq!(looks.share(|look| look[&Reading::CompactionsQueued] > 3.0), Some(2.0 / 3.0));
        let restarted = Looks(vec![look(100.0, 0.0), look(5.0, 0.0)]);
        assert_eq!(restarted.grown(Reading::CacheHits), None);
        assert_eq!(Looks(vec![look(1.0, 0.0)]).grown(Reading::CacheHits), None, "one look shows no growth");
    }
}
