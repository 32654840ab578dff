use std::time::Duration;

use super::*;
use crate::numbers::{Looks, RegionNumbers};
use crate::readings::{Reading, Readings};

/// A server whose readings were these at the first and at the last look.
fn server(first: &[(Reading, f64)], last: &[(Reading, f64)]) -> ServerNumbers {
    let looks = [first, last].map(|look| look.iter().copied().collect::<Readings>());
    ServerNumbers { name: "a:16020".into(), looks: Looks(looks.to_vec()), regions: Vec::new() }
}

/// Counters that were 0 at the first look, and levels that stayed.
fn grown(readings: &[(Reading, f64)]) -> ServerNumbers {
    let zeros: Vec<(Reading, f64)> = readings.iter().map(|(reading, _)| (*reading, 0.0)).collect();
    server(&zeros, readings)
}

fn level(readings: &[(Reading, f64)]) -> ServerNumbers {
    server(readings, readings)
}

fn region(name: &str, rate: f64, stores_count: u32, files_count: u32, size_mb: u32) -> RegionNumbers {
    RegionNumbers {
        name: name.into(),
        table: "t".into(),
        requests_per_second: Some(rate),
        stores_count,
        files_count,
        size_mb,
    }
}

fn cluster(servers: Vec<ServerNumbers>) -> Numbers {
    Numbers { time: Duration::from_secs(10), servers, ..Numbers::default() }
}

/// What was measured, if a change is asked for and `setting` is in it.
#[track_caller]
fn asks(verdict: Verdict, setting: &str) -> String {
    match verdict {
        Verdict::Change { measured, change } => {
            assert!(change.contains(setting), "{change}");
            measured
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn fine(verdict: Verdict) -> String {
    match verdict {
        Verdict::Fine { measured } => measured,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn not_measured(verdict: Verdict) -> String {
    match verdict {
        Verdict::NotMeasured { why } => why,
        other => panic!("{other:?}"),
    }
}

use Reading::*;

#[test]
fn cache_too_small() {
    let rule = |hits, misses, evictions| {
        let mut server = grown(&[
            (CacheHits, hits),
            (CacheMisses, misses),
            (CacheEvictions, evictions),
            (CacheCapacityBytes, 1e9),
        ]);
        server.regions = vec![region("r", 1.0, 1, 1, 4096)];
        memory::cache_too_small(&server, 10.0)
    };
    let measured = asks(rule(6000.0, 4000.0, 3900.0), "hfile.block.cache.size");
    assert_eq!(
        measured,
        "60.0 % of 10000 block look-ups were hits, 3900 blocks were evicted; the cache of 954 MiB serves store files of 4096 MiB"
    );
    assert!(fine(rule(9500.0, 500.0, 500.0)).starts_with("95.0 %"));
    fine(rule(6000.0, 4000.0, 0.0)); // a cache that fills
    assert!(not_measured(rule(600.0, 300.0, 300.0)).contains("900 blocks"));
    not_measured(memory::cache_too_small(&grown(&[(CacheHits, 1e6)]), 10.0));
}

#[test]
fn writes_blocked() {
    let rule = |reading, count| memory::writes_blocked(&grown(&[(reading, count)]), 10.0);
    assert_eq!(
        asks(rule(WritesHeldBack, 7.0), "memstore.size"),
        "7 writes were held back in 10 s because memstores were full"
    );
    assert_eq!(
        asks(rule(UpdatesBlockedMs, 1500.0), "memstore.size"),
        "updates were blocked for 1500 ms in 10 s"
    );
    fine(rule(WritesHeldBack, 0.0));
    fine(rule(UpdatesBlockedMs, 0.0));
    not_measured(rule(CacheHits, 1.0));
}

#[test]
fn handlers_full() {
    let rule = |looks: &[(f64, f64)]| {
        let look = |(busy, queued): &(f64, f64)| {
            Readings::from([(HandlersBusy, *busy), (HandlersMax, 30.0), (CallsQueued, *queued)])
        };
        let looks = Looks(looks.iter().map(look).collect());
        calls::handlers_full(&ServerNumbers { looks, ..ServerNumbers::default() }, 10.0)
    };
    let measured = asks(rule(&[(30.0, 5.0), (30.0, 1.0), (12.0, 0.0)]), "handler.count");
    assert_eq!(
        measured,
        "all 30 handlers were busy and calls waited at 67 % of the looks; on average 24.0 were busy and 2.0 calls waited"
    );
    fine(rule(&[(30.0, 0.0), (30.0, 0.0)])); // busy, and nobody waits
    fine(rule(&[(30.0, 5.0), (3.0, 0.0), (3.0, 0.0)]));
    not_measured(rule(&[]));
}

#[test]
fn calls_refused() {
    let rule = |count| calls::calls_refused(&grown(&[(CallsRefused, count)]), 10.0);
    assert_eq!(asks(rule(3.0), "callqueue"), "3 calls were refused in 10 s because a queue was full");
    fine(rule(0.0));
    not_measured(calls::calls_refused(&grown(&[]), 10.0));
}

#[test]
fn small_calls() {
    let rule =
        |single, batches| calls::small_calls(&grown(&[(SingleCalls, single), (BatchCalls, batches)]), 10.0);
    assert_eq!(
        asks(rule(50_000.0, 100.0), "BufferedMutator"),
        "5000 calls per second were for a single row, 100 % of all gets and writes; 100 were batches"
    );
    fine(rule(5000.0, 0.0)); // few
    fine(rule(50_000.0, 20_000.0)); // mixed
    not_measured(calls::small_calls(&grown(&[(SingleCalls, 1e6)]), 10.0));
}

#[test]
fn slow_wal_sync() {
    let of_halcyon =
        |syncs, seconds| wal::slow_sync(&grown(&[(WalSyncs, syncs), (WalSyncSeconds, seconds)]), 10.0);
    assert_eq!(
        asks(of_halcyon(100.0, 3.0), "hbase.wal.dir"),
        "a WAL sync took 30.0 ms on average, of 100 syncs"
    );
    assert!(fine(of_halcyon(100.0, 0.2)).contains("2.0 ms"));
    assert!(not_measured(of_halcyon(19.0, 3.0)).contains("19 WAL syncs"));
    let of_hbase =
        server(&[(WalSyncs, 0.0), (WalSyncMeanMs, 40.0)], &[(WalSyncs, 50.0), (WalSyncMeanMs, 44.0)]);
    assert!(asks(wal::slow_sync(&of_hbase, 10.0), "hsync").contains("42.0 ms"));
    not_measured(wal::slow_sync(&grown(&[(WalSyncs, 100.0)]), 10.0));
}

#[test]
fn many_store_files() {
    let rule =
        |regions| regions::many_store_files(&ServerNumbers { regions, ..ServerNumbers::default() }, 10.0);
    let measured = asks(rule(vec![region("r1", 1.0, 2, 30, 9), region("r2", 1.0, 1, 3, 9)]), "compaction");
    assert_eq!(measured, "15.0 files for each store of region r1, the most of 2 regions; over 12: 1");
    assert!(fine(rule(vec![region("r1", 1.0, 3, 30, 9)])).starts_with("10.0 files"));
    not_measured(rule(vec![]));
    not_measured(rule(vec![region("r1", 1.0, 0, 0, 0)]));
}

#[test]
fn compactions_behind() {
    let rule = |queued| regions::compactions_behind(&level(&[(CompactionsQueued, queued)]), 10.0);
    assert_eq!(asks(rule(25.0), "thread.compaction"), "25.0 compactions waited on average");
    fine(rule(3.0));
    not_measured(regions::compactions_behind(&grown(&[]), 10.0));
}

#[test]
fn small_regions() {
    let rule = |count, size_mb| {
        let regions = vec![region("r", 1.0, 1, 1, size_mb); count];
        regions::small_regions(&ServerNumbers { regions, ..ServerNumbers::default() }, 10.0)
    };
    assert_eq!(asks(rule(500, 20), "max.filesize"), "500 regions of 20 MiB on average");
    fine(rule(500, 5000));
    fine(rule(20, 1));
    not_measured(rule(0, 0));
}

#[test]
fn hot_region() {
    let rule = |rates: &[f64]| {
        let regions = rates.iter().enumerate().map(|(at, rate)| region(&format!("r{at}"), *rate, 1, 1, 100));
        let server = ServerNumbers { regions: regions.collect(), ..ServerNumbers::default() };
        regions::hot_region(&cluster(vec![server]))
    };
    let measured = asks(rule(&[10.0, 900.0, 50.0, 40.0]), "split the region of t");
    assert_eq!(measured, "90 % of 1000 requests per second went to one of 4 regions: r1 (100 MiB)");
    fine(rule(&[250.0; 4]));
    assert!(not_measured(rule(&[0.0, 90.0, 0.0, 0.0])).contains("90 requests per second"));
    assert!(not_measured(rule(&[900.0, 1.0])).contains("2 regions"));
    not_measured(rule(&[]));
}

#[test]
fn uneven_servers() {
    let rule = |rates: &[f64]| {
        let server = |(at, rate): (usize, &f64)| ServerNumbers {
            name: format!("s{at}:1"),
            regions: vec![region("r", *rate, 1, 1, 1)],
            ..ServerNumbers::default()
        };
        regions::uneven_servers(&cluster(rates.iter().enumerate().map(server).collect()))
    };
    assert_eq!(
        asks(rule(&[100.0, 100.0, 1000.0]), "balancer"),
        "s2:1 has 1000 requests per second, the mean of 3 servers is 400"
    );
    fine(rule(&[500.0, 700.0]));
    not_measured(rule(&[1e6]));
    assert!(not_measured(rule(&[1.0, 50.0])).contains("too few"));
}

#[test]
fn changes_come_first_and_every_rule_has_a_verdict() {
    let refusing = grown(&[(CallsRefused, 3.0)]);
    let judged = judge(&cluster(vec![refusing, ServerNumbers::default()]));
    assert_eq!(judged.len(), CLUSTER_RULES.len() + 2 * SERVER_RULES.len());
    assert_eq!((judged[0].rule, &judged[0].server[..]), ("calls-refused", "a:16020"));
    assert!(judged[1..].iter().all(|one| !matches!(one.verdict, Verdict::Change { .. })));
    let text = crate::report::text(&cluster(vec![grown(&[(CallsRefused, 3.0)])]), &judged);
    assert!(text.contains("calls-refused  a:16020\n  measured  3 calls were refused"), "{text}");
    assert!(text.contains("\n1 thing to change\n") && text.contains("not measured  slow-wal-sync"), "{text}");
    let json = crate::report::json(&cluster(vec![]), &judged);
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&parsed["rules"][0]["verdict"], json.matches('\n').count()), (&"change".into(), 1));
}
