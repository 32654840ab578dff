//! What a region server has last said of itself, summed up for people.
//!
//! Sums are made when a report comes, so that to look at many servers costs little.

use std::collections::HashMap;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_schema::ServerName;

use crate::Servers;

/// Regions of a server whose counters are remembered until its next report.
const REGIONS_MAX: usize = 100_000;

/// A server that is online.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
    pub server: ServerName,
    pub is_draining: bool,
    /// `None`: it has not reported to this master.
    pub report: Option<ReportSums>,
}

/// Sums over the regions of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportSums {
    /// When it came, in Unix time.
    pub reported_ms: i64,
    /// Major and minor version that its connection names.
    pub version: Option<(u32, u32)>,
    /// 0: it has no pages.
    pub info_port: u16,
    pub regions_count: usize,
    /// Since the server's start.
    pub requests_count: u64,
    /// By the server's own count.
    pub requests_per_s: u64,
    /// Between the last two reports; `None` before the second.
    pub reads_per_s: Option<f64>,
    pub writes_per_s: Option<f64>,
    pub memstore_bytes: u64,
    pub file_bytes: u64,
    /// Part of the store files' bytes that is on the server's machine; `None` without store files.
    pub locality: Option<f64>,
}

/// The newest report of a server.
#[derive(Default)]
pub(crate) struct Reported {
    pub(crate) sums: ReportSums,
    /// Reads and writes of each region since it was opened.
    counters: HashMap<Bytes, (u64, u64)>,
}

impl Reported {
    /// `before` is the report before this one.
    pub(crate) fn new(
        load: &pb::ServerLoad,
        version: Option<(u32, u32)>,
        now_ms: i64,
        before: Option<&Reported>,
    ) -> Reported {
        const MIB: u64 = 1 << 20;
        let mut sums = ReportSums {
            reported_ms: now_ms,
            version,
            info_port: u16::try_from(load.info_server_port()).unwrap_or(0),
            regions_count: load.region_loads.len(),
            requests_count: load.total_number_of_requests(),
            requests_per_s: load.number_of_requests(),
            ..ReportSums::default()
        };
        let mut counters = HashMap::with_capacity(load.region_loads.len().min(REGIONS_MAX));
        let (mut reads, mut writes, mut local_mb, mut files_mb) = (0, 0, 0.0, 0);
        for region in &load.region_loads {
            sums.memstore_bytes += u64::from(region.mem_store_size_mb()) * MIB;
            files_mb += u64::from(region.storefile_size_mb());
            local_mb += f64::from(region.storefile_size_mb()) * f64::from(region.data_locality());
            let now = (region.read_requests_count(), region.write_requests_count());
            let name = &region.region_specifier.value;
            // A region that was opened anew begins at 0.
            let last = before.and_then(|before| before.counters.get(name)).copied();
            let (last_reads, last_writes) = last.unwrap_or(now);
            reads += now.0.saturating_sub(last_reads);
            writes += now.1.saturating_sub(last_writes);
            if counters.len() < REGIONS_MAX {
                counters.insert(name.clone(), now);
            }
        }
        sums.file_bytes = files_mb * MIB;
        sums.locality = (files_mb > 0).then(|| (local_mb / files_mb as f64).clamp(0.0, 1.0));
        if let Some(passed_ms) = before.map(|before| now_ms - before.sums.reported_ms).filter(|ms| *ms > 0) {
            let rate = |count: u64| Some(count as f64 * 1000.0 / passed_ms as f64);
            (sums.reads_per_s, sums.writes_per_s) = (rate(reads), rate(writes));
        }
        Reported { sums, counters }
    }
}

impl Servers {
    /// All servers that are online, sorted.
    pub fn sights(&self) -> Vec<Sight> {
        let draining = halcyon_contract::RegionServers::draining(self);
        assert!(draining.is_sorted(), "servers are looked for by halves");
        let sight = |remote: std::sync::Arc<crate::remote_server::RemoteServer>| {
            let server = halcyon_contract::RegionServerApi::server_name(&*remote);
            Sight { is_draining: draining.binary_search(&server).is_ok(), report: remote.sums(), server }
        };
        self.remotes().into_iter().map(sight).collect()
    }

    /// When a server that is online has reported last, in Unix time.
    pub fn last_reported_ms(&self, server: &ServerName) -> Option<i64> {
        Some(self.remote(server).ok()?.sums()?.reported_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(regions: &[(&str, u64, u64, u32, f32)]) -> pb::ServerLoad {
        let region =
            |&(name, reads, writes, files_mb, locality): &(&str, u64, u64, u32, f32)| pb::RegionLoad {
                region_specifier: pb::RegionSpecifier {
                    r#type: 1,
                    value: Bytes::copy_from_slice(name.as_bytes()),
                },
                read_requests_count: Some(reads),
                write_requests_count: Some(writes),
                storefile_size_mb: Some(files_mb),
                mem_store_size_mb: Some(2),
                data_locality: Some(locality),
                ..pb::RegionLoad::default()
            };
        let region_loads = regions.iter().map(region).collect();
        pb::ServerLoad { region_loads, info_server_port: Some(70_000), ..pb::ServerLoad::default() }
    }

    #[test]
    fn rates_need_two_reports_and_regions_that_were_there() {
        let first =
            Reported::new(&load(&[("a", 10, 1, 3, 1.0), ("b", 5, 5, 1, 0.0)]), Some((2, 6)), 1000, None);
        assert_eq!((first.sums.reads_per_s, first.sums.locality), (None, Some(0.75)));
        assert_eq!((first.sums.memstore_bytes, first.sums.file_bytes), (4 << 20, 4 << 20));
        assert_eq!((first.sums.info_port, first.sums.version), (0, Some((2, 6))), "70,000 is no port");
        // b was opened anew, and c has come with all its counts
        let regions = [("a", 30, 1, 0, 0.0), ("b", 1, 0, 0, 0.0), ("c", 999, 999, 0, 0.0)];
        let second = Reported::new(&load(&regions), None, 3000, Some(&first));
        assert_eq!((second.sums.reads_per_s, second.sums.writes_per_s), (Some(10.0), Some(0.0)));
        assert_eq!((second.sums.locality, second.sums.regions_count), (None, 3));
        let same_moment = Reported::new(&load(&regions), None, 3000, Some(&second));
        assert_eq!(same_moment.sums.reads_per_s, None);
    }
}
