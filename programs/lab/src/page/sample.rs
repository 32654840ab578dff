//! Experiments that nobody ran, shaped as real ones are, for tests and for looking at the page.
//!
//! `PAGE_SAMPLE=FILE cargo test -p halcyon-lab page::tests::sample_is_written` writes one to look at.

use crate::outcome::*;

/// Numbers that look like chance and are the same each time.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// 0 to 1.
    pub fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// With this median; `width` is the factor that two thirds lie within.
    pub fn log_normal(&mut self, median: f64, width: f64) -> f64 {
        let normal =
            (-2.0 * self.part().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * self.part()).cos();
        median * width.powf(normal)
    }
}

/// How a side of the sample behaves.
struct Manner {
    side: &'static str,
    rate: f64,
    median_us: f64,
    width: f64,
    pause_ms: f64,
    pause_every_s: f64,
    resident: f64,
    cpu_us: f64,
}

const MANNERS: &[Manner] = &[
    Manner {
        side: "halcyon",
        rate: 61_000.0,
        median_us: 210.0,
        width: 1.45,
        pause_ms: 0.4,
        pause_every_s: 9.0,
        resident: 1.1e9,
        cpu_us: 11.0,
    },
    Manner {
        side: "g1",
        rate: 17_500.0,
        median_us: 690.0,
        width: 1.9,
        pause_ms: 48.0,
        pause_every_s: 1.4,
        resident: 4.4e9,
        cpu_us: 74.0,
    },
    Manner {
        side: "zgc",
        rate: 14_800.0,
        median_us: 780.0,
        width: 1.8,
        pause_ms: 0.12,
        pause_every_s: 0.7,
        resident: 5.2e9,
        cpu_us: 91.0,
    },
];

fn side(id: &str, label: &str, product: Product, command: &[&str]) -> Side {
    Side {
        id: id.into(),
        label: label.into(),
        product,
        command_line: command.iter().map(|word| (*word).to_string()).collect(),
        settings: vec!["hbase.regionserver.handler.count=30".into(), "hbase.wal.sync=written".into()],
        missing: None,
    }
}

/// As `zgc` in its quick form finds it: three cases, three sides, three repetitions, thousands of points.
pub fn large() -> Experiment {
    let java = "/usr/lib/jvm/java-17/bin/java";
    let mut experiment = small();
    experiment.sides = vec![
        side(
            "g1",
            "HBase 2.6.4, G1, JDK 17",
            Product::Hbase,
            &[
                java,
                "-Xmx4g",
                "-XX:+UseG1GC",
                "-Xlog:gc*,safepoint:file=gc.log",
                "-cp",
                "lib/*",
                "org.apache.hadoop.hbase.master.HMaster",
                "start",
            ],
        ),
        side("zgc", "HBase 2.6.4, ZGC, JDK 17", Product::Hbase, &[java, "-Xmx4g", "-XX:+UseZGC"]),
        side("halcyon", "Halcyon", Product::Halcyon, &["halcyon", "standalone", "--data", "./data"]),
    ];
    let cases = [
        ("ycsb-a", "YCSB A: half reads, half updates"),
        ("ycsb-c", "YCSB C: reads only"),
        ("ycsb-f", "YCSB F: read, modify, write"),
    ];
    experiment.cases = cases.map(|(id, label)| Case { id: id.into(), label: label.into() }).to_vec();
    experiment.runs.clear();
    experiment.partial = None;
    for (at, case) in experiment.cases.iter().enumerate() {
        for repetition in 1..=3 {
            for manner in MANNERS {
                experiment.runs.push(run(manner, case, repetition, 1.0 - at as f64 * 0.23));
            }
        }
    }
    experiment.runs.pop();
    let last = experiment.runs.last_mut().expect("there are runs");
    last.partial = Some("the server stopped answering after 31 s".into());
    experiment
}

fn run(manner: &Manner, case: &Case, repetition: u32, factor: f64) -> Run {
    let mut chance = Chance::new(
        u64::from(repetition) * 7919 + manner.rate as u64 + case.id.len() as u64 * 31 + (factor * 1e6) as u64,
    );
    let seconds = 180;
    let rate = manner.rate * factor * (0.94 + 0.12 * chance.part());
    let mut run = Run {
        side: manner.side.into(),
        case: case.id.clone(),
        repetition,
        command_line: [
            "halcyon",
            "bench",
            "ycsb",
            "run",
            "--workload",
            "a",
            "--seconds",
            "180",
            "--table",
            "usertable",
        ]
        .map(str::to_string)
        .to_vec(),
        started_ms: 1_795_232_640_000 + u64::from(repetition) * 600_000,
        elapsed_s: f64::from(seconds),
        partial: None,
        warmup_s: 60.0,
        warmup_rates_per_s: vec![],
        operations: 0,
        operations_per_s: rate,
        rate_wanted_per_s: None,
        latencies: vec![],
        series: vec![],
        slow: vec![],
        slow_left_out: 0,
        pauses: pauses(manner, f64::from(seconds), &mut chance),
        resources: Resources {
            server_cpu_s: rate * f64::from(seconds) * manner.cpu_us / 1e6,
            client_cpu_s: rate * f64::from(seconds) * 9e-6,
            others_cpu_s: 3.1,
            resident_bytes: (manner.resident * 0.97) as u64,
            resident_peak_bytes: (manner.resident * (0.98 + 0.04 * chance.part())) as u64,
            disk_read_bytes: 120_000_000,
            disk_written_bytes: (rate * 180.0 * 600.0) as u64,
            io_wait_s: 4.0,
            stolen_s: 0.5,
            bound_by: if manner.side == "halcyon" { "client CPU" } else { "server CPU" }.into(),
        },
        errors: vec![],
        disk_bytes: Some(2_400_000_000),
    };
    let mut histograms = vec![(case_kinds(&case.id)[0], std::collections::BTreeMap::new())];
    histograms.extend(case_kinds(&case.id).get(1).map(|kind| (*kind, std::collections::BTreeMap::new())));
    for second in 0..seconds {
        let in_pause: f64 = run
            .pauses
            .iter()
            .filter(|pause| pause.at_s as u32 == second)
            .map(|pause| pause.length_ms / 1e3)
            .sum();
        let operations = (rate * (1.0 - in_pause).max(0.02) * (0.95 + 0.1 * chance.part())) as u64;
        run.operations += operations;
        let start = 0.35 + 0.65 * (f64::from(second) / 40.0).min(1.0);
        run.series.push(Second {
            at_s: f64::from(second),
            operations,
            p50_us: manner.median_us as u64,
            p99_us: chance.log_normal(manner.median_us * 4.0 + in_pause * 2e5, 1.25) as u64,
            max_us: (manner.median_us * 30.0 + in_pause * 1e6) as u64,
            resident_bytes: Some((manner.resident * start) as u64),
        });
    }
    for (kind, histogram) in &mut histograms {
        for _ in 0..200_000 {
            let mut us = chance.log_normal(manner.median_us, manner.width);
            if chance.part() < manner.pause_ms / manner.pause_every_s / 1e3 {
                us += chance.part() * manner.pause_ms * 1500.0;
            }
            if chance.part() < 1e-4 {
                us *= 12.0;
            }
            let bucket = 10f64.powf((us.max(1.0).log10() * 64.0).round() / 64.0) as u64;
            *histogram.entry(bucket).or_insert(0) += 1;
            if us > 20_000.0 && run.slow.len() < 4000 {
                let at_s = chance.part() * f64::from(seconds);
                run.slow.push(Slow { at_s, latency_us: us as u64, kind: (*kind).into() });
            }
        }
    }
    let pauses: Vec<(f64, f64)> = run.pauses.iter().map(|pause| (pause.at_s, pause.length_ms)).collect();
    for (at_s, length_ms) in pauses.into_iter().filter(|(_, length_ms)| *length_ms > 20.0) {
        for _ in 0..30 {
            let latency_us = (length_ms * 1e3 * (0.3 + 0.8 * chance.part())) as u64;
            run.slow.push(Slow {
                at_s: at_s + chance.part() * length_ms / 1e3,
                latency_us,
                kind: "read".into(),
            });
        }
    }
    run.latencies = histograms
        .into_iter()
        .map(|(kind, histogram)| Latency {
            kind: kind.to_string(),
            mean_us: manner.median_us,
            histogram: histogram.into_iter().collect(),
        })
        .collect();
    run
}

fn case_kinds(case: &str) -> &'static [&'static str] {
    match case {
        "ycsb-c" => &["read"],
        "ycsb-f" => &["read", "read-modify-write"],
        _ => &["read", "update"],
    }
}

fn pauses(manner: &Manner, seconds: f64, chance: &mut Chance) -> Vec<Pause> {
    let mut pauses = Vec::new();
    let mut at_s = 0.0;
    loop {
        at_s += manner.pause_every_s * (0.4 + 1.2 * chance.part());
        if at_s >= seconds {
            return pauses;
        }
        let (kind, cause) = match manner.side {
            "halcyon" if chance.part() < 0.3 => (PauseKind::Stall, "scheduler: a thread that only sleeps"),
            "halcyon" if chance.part() < 0.3 => {
                (PauseKind::Host, "host: scheduler: a thread that only sleeps")
            }
            "halcyon" => (PauseKind::Disk, "sync: the log"),
            "g1" if chance.part() < 0.08 => (PauseKind::Collection, "Mixed, G1 Evacuation Pause"),
            "g1" => (PauseKind::Collection, "Young (Normal), G1 Evacuation Pause"),
            _ => (PauseKind::Collection, "Mark Start"),
        };
        let length_ms = chance.log_normal(manner.pause_ms, if manner.side == "g1" { 1.9 } else { 1.5 });
        pauses.push(Pause { at_s, length_ms, kind, cause: cause.into() });
        if manner.side != "halcyon" && chance.part() < 0.3 {
            let length_ms = chance.log_normal(0.2, 2.0);
            pauses.push(Pause {
                at_s: at_s + 0.1,
                length_ms,
                kind: PauseKind::Safepoint,
                cause: "ICBufferFull".into(),
            });
        }
        if manner.side == "zgc" && chance.part() < 0.06 {
            let length_ms = chance.log_normal(90.0, 1.8);
            let cause = "RpcServer.default.FPBQ.Fifo.handler=12".into();
            pauses.push(Pause { at_s: at_s + 0.2, length_ms, kind: PauseKind::AllocationStall, cause });
        }
    }
}

/// Two sides, one of which did not start, and one run: what fits on a screen.
pub fn small() -> Experiment {
    let run = Run {
        side: "halcyon".into(),
        case: "ycsb-a".into(),
        repetition: 1,
        command_line: ["halcyon", "bench", "ycsb", "run", "a b"].map(str::to_string).to_vec(),
        started_ms: 1_795_232_640_000,
        elapsed_s: 4.0,
        partial: Some("interrupted".into()),
        warmup_s: 60.0,
        warmup_rates_per_s: vec![],
        operations: 1000,
        operations_per_s: 250.0,
        rate_wanted_per_s: Some(250.0),
        latencies: vec![Latency {
            kind: "read".into(),
            mean_us: 120.0,
            histogram: vec![(100, 900), (200, 90), (900, 9), (30_000, 1)],
        }],
        series: (0..4u32)
            .map(|n| Second {
                at_s: f64::from(n),
                operations: 240 + u64::from(n) * 5,
                p50_us: 100,
                p99_us: 200,
                max_us: 900,
                resident_bytes: Some(50 << 20),
            })
            .collect(),
        slow: vec![Slow { at_s: 1.5, latency_us: 30_000, kind: "read".into() }],
        slow_left_out: 0,
        pauses: vec![
            Pause {
                at_s: 1.49,
                length_ms: 29.0,
                kind: PauseKind::Stall,
                cause: "disk: sync of the log".into(),
            },
            Pause { at_s: 3.0, length_ms: 2.0, kind: PauseKind::Stall, cause: "core".into() },
        ],
        resources: Resources {
            server_cpu_s: 0.4,
            client_cpu_s: 0.1,
            others_cpu_s: 0.0,
            resident_bytes: 50 << 20,
            resident_peak_bytes: 51 << 20,
            disk_read_bytes: 0,
            disk_written_bytes: 4 << 20,
            io_wait_s: 0.2,
            stolen_s: 0.1,
            bound_by: "the rate that was asked for".into(),
        },
        errors: vec![("RegionTooBusyException".into(), 2)],
        disk_bytes: None,
    };
    let mut g1 = side("g1", "HBase 2.6.4, G1, JDK 17", Product::Hbase, &[]);
    g1.missing = Some("no JDK 17 was found".into());
    let text = |text: &str| Entry::Text(text.into());
    let measured = |median: f64, min: f64, max: f64| Entry::Measured { median, min, max, unit: "/s".into() };
    let published = |value: f64| Entry::Published { value, unit: "/s".into() };
    Experiment {
        format: FORMAT,
        name: "zgc".into(),
        title: "Reads and writes beside a collector: G1, ZGC and none".into(),
        question: "How much throughput does a collector without long pauses cost, and what is left of the pauses? The same load runs against HBase with G1 and with ZGC, and against Halcyon, in turns on one machine.".into(),
        sources: vec![
            Source { title: "A write-up of ZGC under HBase".into(), address: "https://example.org/zgc".into() },
            Source { title: "A talk".into(), address: "slides, page 12".into() },
        ],
        quick: true,
        partial: Some("interrupted after 1 of 18 runs".into()),
        started_ms: 1_795_232_640_000,
        ended_ms: Some(1_795_233_000_000),
        environment: Environment {
            cpu: "a processor".into(),
            cores: 2,
            memory_bytes: 8 << 30,
            system: "Debian 12, Linux 6.1".into(),
            sync_ms: Some(1.25),
            halcyon: "0.1.0".into(),
            jdks: vec!["17.0.17 /usr/lib/jvm/java-17-openjdk-amd64".into()],
        },
        durability: "handed to the operating system when acknowledged; a power failure may lose it".into(),
        sides: vec![g1, side("halcyon", "Halcyon", Product::Halcyon, &["halcyon", "standalone"])],
        cases: vec![
            Case { id: "ycsb-a".into(), label: "YCSB A: half reads, half updates".into() },
            Case { id: "ycsb-b".into(), label: "YCSB B: never run".into() },
        ],
        runs: vec![run],
        tables: vec![Table {
            title: "Operations in a second, by workload".into(),
            columns: ["workload", "G1, published", "ZGC, published", "HBase G1, here", "HBase ZGC, here", "Halcyon, here"]
                .map(str::to_string)
                .to_vec(),
            rows: vec![
                vec![text("A"), published(17_540.0), published(14_320.5), measured(17_500.0, 17_010.0, 17_900.0), Entry::Absent("no JDK 17".into()), measured(61_234.0, 59_800.0, 62_010.0)],
                vec![text("B"), published(20_110.0), published(18_005.0), measured(21_000.0, 20_500.0, 21_000.0), measured(19_100.0, 19_100.0, 19_100.0), text("see below")],
            ],
            remark: "Published figures are of other machines and other versions: compare their proportions, not their sizes.".into(),
        }],
        not_comparable: vec![
            "Client and server share two cores, so that a faster server leaves the client less.".into(),
            "The published runs had a cluster of several machines.".into(),
        ],
    }
}
