//! Regions, their files, and how they are spread.

use super::{Verdict, bytes};
use crate::numbers::{Numbers, RegionNumbers, ServerNumbers};
use crate::readings::Reading::*;

/// hbase.hstore.blockingStoreFiles is 16: from there on flushes wait for compactions.
const FILES_PER_STORE_MAX: f64 = 12.0;
/// Compactions that wait, on average.
const COMPACTIONS_QUEUED_MAX: f64 = 10.0;
const SMALL_REGIONS_MIN: usize = 100;
const SMALL_REGION_MB: u64 = 256;
/// A cluster with fewer requests per second has no hot region that matters.
const REQUESTS_MIN: f64 = 100.0;
const HOT_SHARE: f64 = 0.5;
const HOT_REGIONS_MIN: usize = 4;
/// Requests of the busiest server against the mean.
const UNEVEN_TIMES: f64 = 2.0;

/// A read looks into every file of a store that may have its row.
pub fn many_store_files(server: &ServerNumbers, _: f64) -> Verdict {
    let per_store = |region: &&RegionNumbers| f64::from(region.files_count) / f64::from(region.stores_count);
    let with_stores = server.regions.iter().filter(|region| region.stores_count > 0);
    let Some(worst) = with_stores.max_by(|a, b| per_store(a).total_cmp(&per_store(b))) else {
        return Verdict::not_measured("the server has no regions with stores");
    };
    let most = per_store(&worst);
    let count = server.regions.iter().filter(|region| region.stores_count > 0);
    let count = count.filter(|region| per_store(region) > FILES_PER_STORE_MAX).count();
    let measured = format!(
        "{most:.1} files for each store of region {}, the most of {} regions; over {FILES_PER_STORE_MAX:.0}: {count}",
        worst.name,
        server.regions.len()
    );
    let change = "a major compaction of these regions now; then more compaction threads \
                  (hbase.regionserver.thread.compaction.small) or larger flushes (hbase.hregion.memstore.flush.size)";
    Verdict::of(most > FILES_PER_STORE_MAX, measured, change)
}

pub fn compactions_behind(server: &ServerNumbers, _: f64) -> Verdict {
    let Some(queued) = server.looks.mean(CompactionsQueued) else {
        return Verdict::not_measured("the server does not tell waiting compactions");
    };
    let measured = format!("{queued:.1} compactions waited on average");
    let change = "more compaction threads (hbase.regionserver.thread.compaction.small) if processors and disks are idle; \
                  else fewer writes for each server";
    Verdict::of(queued > COMPACTIONS_QUEUED_MAX, measured, change)
}

/// Each region has memstores of its own, so many regions flush small files.
pub fn small_regions(server: &ServerNumbers, _: f64) -> Verdict {
    let count = server.regions.len();
    if count == 0 {
        return Verdict::not_measured("the server has no regions");
    }
    let mean_mb = server.size_mb() / count as u64;
    let measured = format!("{count} regions of {mean_mb} MiB on average");
    let is_bad = count >= SMALL_REGIONS_MIN && mean_mb < SMALL_REGION_MB;
    let change = "fewer, larger regions: merge neighbours, create tables with fewer splits, raise hbase.hregion.max.filesize";
    Verdict::of(is_bad, measured, change)
}

pub fn hot_region(numbers: &Numbers) -> Verdict {
    let regions = || numbers.servers.iter().flat_map(|server| &server.regions);
    let known = || regions().filter_map(|region| Some((region, region.requests_per_second?)));
    let sum: f64 = known().map(|(_, rate)| rate).sum();
    let Some((hottest, rate)) = known().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Verdict::not_measured("no region was there all the time");
    };
    if sum < REQUESTS_MIN || regions().count() < HOT_REGIONS_MIN {
        return Verdict::not_measured(&format!(
            "{sum:.0} requests per second to {} regions are too few",
            regions().count()
        ));
    }
    let share = rate / sum;
    let measured = format!(
        "{:.0} % of {sum:.0} requests per second went to one of {} regions: {} ({})",
        share * 100.0,
        regions().count(),
        hottest.name,
        bytes(f64::from(hottest.size_mb) * f64::from(1 << 20))
    );
    let change = format!(
        "split the region of {} if its keys are hot alike; else row keys that spread, such as a hash in front, or another \
         cache for a few hot rows",
        hottest.table
    );
    Verdict::of(share > HOT_SHARE, measured, &change)
}

pub fn uneven_servers(numbers: &Numbers) -> Verdict {
    let known: Vec<(&str, f64)> = numbers
        .servers
        .iter()
        .filter_map(|server| Some((server.name.as_str(), server.requests_per_second()?)))
        .collect();
    if known.len() < 2 {
        return Verdict::not_measured("there are not two servers to compare");
    }
    let mean = known.iter().map(|(_, rate)| rate).sum::<f64>() / known.len() as f64;
    if mean < REQUESTS_MIN {
        return Verdict::not_measured(&format!("{mean:.0} requests per second for each server are too few"));
    }
    let busiest = known.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("there are two");
    let measured = format!(
        "{} has {:.0} requests per second, the mean of {} servers is {mean:.0}",
        busiest.0,
        busiest.1,
        known.len()
    );
    let change = "run the balancer (balance_switch true, balance), with a cost for requests; if one region makes the \
                  difference, see hot-region";
    Verdict::of(busiest.1 > mean * UNEVEN_TIMES, measured, change)
}
