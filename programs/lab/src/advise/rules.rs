//! The rules: tables of condition, flag, reason and source.
//!
//! A new rule is a new row. A row's condition sees the whole [`Machine`]; its reason says what the flag does for a region
//! server, in numbers where the source has them.

use super::machine::{GIB, Machine, print_size};

/// Where a fact was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub title: &'static str,
    pub url: &'static str,
}

pub(super) const INTEL: Source = Source {
    title: "Kaczmarek, Yi, Wang: Tuning Java Garbage Collection for HBase (2014)",
    url: "https://blog.cloudera.com/tuning-java-garbage-collection-for-hbase/",
};
pub(super) const HUBSPOT: Source = Source {
    title: "HubSpot: Tuning G1GC For Your HBase Cluster",
    url: "https://product.hubspot.com/blog/g1gc-tuning-your-hbase-cluster",
};
const CLOUDERA_11: Source = Source {
    title: "Cloudera: CDH6.3 HBase: G1 GC Tuning with JDK11",
    url: "https://blog.cloudera.com/cdh6-3-hbase-g1-gc-tuning-with-jdk11/",
};
pub(super) const PLAB: Source = Source {
    title: "JDK-8257145: Performance regression with -XX:-ResizePLAB after JDK-8079555",
    url: "https://github.com/openjdk/jdk/pull/1474",
};
const PLAB_HBASE: Source = Source {
    title: "After JDK upgrade from 8 to 11 the HBase performance drops by nearly 20 %",
    url: "https://www.programmersought.net/2021/08/09/after-jdk-upgrade-from-8-to-11-the-hbase-performance-drops-by-nearly-20/",
};
const BOOK: Source = Source { title: "HBase reference guide", url: "https://hbase.apache.org/book.html" };
const BOOK_DIRECT: Source = Source {
    title: "HBase reference guide, direct memory",
    url: "https://hbase.apache.org/book.html#direct.memory",
};
const BOOK_JAVA: Source =
    Source { title: "HBase reference guide, Java versions", url: "https://hbase.apache.org/book.html#java" };
const DIRECT_EQUAL: Source = Source {
    title: "HBASE-12369: warn if hbase.bucketcache.size is close to MaxDirectMemorySize",
    url: "https://issues.apache.org/jira/browse/HBASE-12369",
};
const ORACLE_Z: Source = Source {
    title: "Oracle: HotSpot collector tuning guide, The Z Garbage Collector",
    url: "https://docs.oracle.com/en/java/javase/21/gctuning/z-garbage-collector.html",
};
const Z_WIKI: Source =
    Source { title: "OpenJDK wiki: ZGC", url: "https://wiki.openjdk.org/display/zgc/Main" };
const JEP_NUMA: Source =
    Source { title: "JEP 345: NUMA-Aware Memory Allocation for G1", url: "https://openjdk.org/jeps/345" };
const JEP_ZGC_PRODUCT: Source =
    Source { title: "JEP 377: ZGC, a product feature", url: "https://openjdk.org/jeps/377" };
const JEP_ZGEN: Source = Source { title: "JEP 439: Generational ZGC", url: "https://openjdk.org/jeps/439" };
pub(super) const JEP_ZGEN_ONLY: Source =
    Source { title: "JEP 490: ZGC: Remove the Non-Generational Mode", url: "https://openjdk.org/jeps/490" };
pub(super) const JEP_NO_CMS: Source = Source {
    title: "JEP 363: Remove the Concurrent Mark Sweep Collector",
    url: "https://openjdk.org/jeps/363",
};
pub(super) const JEP_BIAS: Source =
    Source { title: "JEP 374: Deprecate and Disable Biased Locking", url: "https://openjdk.org/jeps/374" };
pub(super) const JEP_LOG: Source =
    Source { title: "JEP 271: Unified GC Logging", url: "https://openjdk.org/jeps/271" };
pub(super) const JEP_PERM: Source =
    Source { title: "JEP 122: Remove the Permanent Generation", url: "https://openjdk.org/jeps/122" };
pub(super) const JAVA_TOOL: Source = Source {
    title: "Oracle: the java command",
    url: "https://docs.oracle.com/en/java/javase/21/docs/specs/man/java.html",
};
const ORACLE_G1: Source = Source {
    title: "Oracle: HotSpot collector tuning guide, Garbage-First",
    url: "https://docs.oracle.com/en/java/javase/21/gctuning/garbage-first-g1-garbage-collector1.html",
};

/// A flag with its reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    pub rule: &'static str,
    pub flag: String,
    pub reason: &'static str,
    pub source: Source,
}

/// Something that does not go together.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    pub rule: &'static str,
    pub text: String,
    pub source: Source,
}

struct Rule {
    name: &'static str,
    when: fn(&Machine) -> bool,
    flag: fn(&Machine) -> String,
    reason: &'static str,
    source: Source,
}

struct Trap {
    name: &'static str,
    /// What to say, if it applies.
    says: fn(&Machine) -> Option<String>,
    source: Source,
}

/// The flags recommended for a machine, in the order in which they belong on a command line.
pub fn advice(machine: &Machine) -> Vec<Advice> {
    let wanted = RULES.iter().filter(|rule| (rule.when)(machine));
    let row = |rule: &Rule| Advice {
        rule: rule.name,
        flag: (rule.flag)(machine),
        reason: rule.reason,
        source: rule.source,
    };
    wanted.map(row).collect()
}

/// What does not go together on a machine.
pub fn warnings(machine: &Machine) -> Vec<Warning> {
    let row =
        |trap: &Trap| (trap.says)(machine).map(|text| Warning { rule: trap.name, text, source: trap.source });
    TRAPS.iter().filter_map(row).collect()
}

const RULES: &[Rule] = &[
    Rule {
        name: "heap-max",
        when: |_| true,
        flag: |m| format!("-Xmx{}", print_size(m.heap)),
        reason: "the heap",
        source: BOOK,
    },
    Rule {
        name: "heap-fixed",
        when: |_| true,
        flag: |m| format!("-Xms{}", print_size(m.heap)),
        reason: "as large from the start as it may become: growing is a pause of its own, and all caches fill it anyway",
        source: HUBSPOT,
    },
    Rule {
        name: "g1",
        when: Machine::g1,
        flag: |_| "-XX:+UseG1GC".to_string(),
        reason: "large heaps of which more than half lives long; the default since JDK 9, but not on JDK 8",
        source: CLOUDERA_11,
    },
    Rule {
        name: "zgc-unlock",
        when: |m| m.zgc() && m.jdk < 15,
        flag: |_| "-XX:+UnlockExperimentalVMOptions".to_string(),
        reason: "ZGC is an experiment before JDK 15",
        source: JEP_ZGC_PRODUCT,
    },
    Rule {
        name: "zgc",
        when: Machine::zgc,
        flag: |_| "-XX:+UseZGC".to_string(),
        reason: "pauses that do not grow with the heap, for memory and processor time beside the application",
        source: ORACLE_Z,
    },
    Rule {
        name: "zgc-generational",
        when: |m| m.zgc() && (21..=22).contains(&m.jdk),
        flag: |_| "-XX:+ZGenerational".to_string(),
        reason: "two generations: short-lived requests are collected without walking memstores and caches; the default only from JDK 23",
        source: JEP_ZGEN,
    },
    Rule {
        name: "zgc-soft-max",
        when: |m| m.zgc() && m.jdk >= 13,
        flag: |m| format!("-XX:SoftMaxHeapSize={}", print_size(m.heap / 10 * 9 / (1 << 20) * (1 << 20))),
        reason: "collects as if the heap were a tenth smaller, so that a burst of writes finds room before threads must wait for memory",
        source: ORACLE_Z,
    },
    Rule {
        name: "zgc-threads",
        when: |m| m.zgc() && m.jdk < 17 && m.cores >= 8,
        flag: |m| format!("-XX:ConcGCThreads={}", m.cores / 4),
        reason: "a quarter of the processors instead of an eighth: before JDK 17 the number is fixed, and a collection that is slower than the writes stalls them",
        source: Z_WIKI,
    },
    Rule {
        name: "huge-pages",
        when: |m| m.zgc() || m.heap >= 32 * GIB,
        flag: |_| "-XX:+UseTransparentHugePages".to_string(),
        reason: "fewer misses of the address cache in a large heap; wants /sys/kernel/mm/transparent_hugepage/enabled at madvise and, for ZGC, shmem_enabled at advise",
        source: Z_WIKI,
    },
    Rule {
        name: "pretouch",
        when: |m| m.heap >= 4 * GIB,
        flag: |_| "-XX:+AlwaysPreTouch".to_string(),
        reason: "takes every page from the operating system at the start, not in the middle of a collection; the start takes longer",
        source: JAVA_TOOL,
    },
    Rule {
        name: "pause-goal",
        when: Machine::g1,
        flag: |_| "-XX:MaxGCPauseMillis=100".to_string(),
        reason: "the goal of the published read tests with 100 GB heaps; a goal, no bound: HubSpot sets 50 to keep Eden small",
        source: INTEL,
    },
    Rule {
        name: "reference-threads",
        when: |m| m.g1() && m.jdk < 17,
        flag: |_| "-XX:+ParallelRefProcEnabled".to_string(),
        reason: "references are handled by many threads: remark took 75 % less time, pauses 30 %; the default from JDK 17 on",
        source: INTEL,
    },
    Rule {
        name: "fixed-plab",
        when: |m| m.g1() && m.jdk == 8,
        flag: |_| "-XX:-ResizePLAB".to_string(),
        reason: "copying threads keep the size of their buffers instead of talking about it at each pause; only on JDK 8, see the traps",
        source: INTEL,
    },
    Rule {
        name: "gc-threads",
        when: |m| m.g1() && m.cores > 8,
        flag: |m| format!("-XX:ParallelGCThreads={}", gc_threads(m.cores)),
        reason: "8, and five eighths of the processors above 8: more threads wait for each other",
        source: INTEL,
    },
    Rule {
        name: "unlock",
        when: |m| m.g1() && m.heap >= 24 * GIB,
        flag: |_| "-XX:+UnlockExperimentalVMOptions".to_string(),
        reason: "G1NewSizePercent is behind it",
        source: INTEL,
    },
    Rule {
        name: "new-size",
        when: |m| m.g1() && m.heap >= 24 * GIB,
        flag: |m| format!("-XX:G1NewSizePercent={}", new_size_percent(m.heap)),
        reason: "the smallest young generation: 3 % of 32 GB, 2 % of 64 GB, 1 % from 100 GB on; the default of 5 % forces long young pauses on a large heap. HubSpot found 8 % better for its writes: watch the share of time in pauses",
        source: INTEL,
    },
    Rule {
        name: "marking-start",
        when: Machine::g1,
        flag: |m| format!("-XX:InitiatingHeapOccupancyPercent={}", marking_percent(m)),
        reason: "marking begins 20 % above what memstores and block cache fill by design (at most 90 % less Eden): below, it runs without end. From JDK 9 on a starting value that G1 adapts",
        source: HUBSPOT,
    },
    Rule {
        name: "tenuring",
        when: Machine::g1,
        flag: |_| "-XX:MaxTenuringThreshold=1".to_string(),
        reason: "what outlives a request lives long in HBase: copying it between survivor spaces is work for nothing",
        source: HUBSPOT,
    },
    Rule {
        name: "heap-waste",
        when: Machine::g1,
        flag: |_| "-XX:G1HeapWastePercent=10".to_string(),
        reason: "regions that are nearly all alive are left alone: they made the longest mixed collections",
        source: HUBSPOT,
    },
    Rule {
        name: "mixed-count",
        when: Machine::g1,
        flag: |_| "-XX:G1MixedGCCountTarget=16".to_string(),
        reason: "the old regions of one marking in 16 small steps instead of 8",
        source: HUBSPOT,
    },
    Rule {
        name: "region-size",
        when: |m| m.g1() && m.heap >= GIB && region_size(m.heap).is_some(),
        flag: |m| format!("-XX:G1HeapRegionSize={}", print_size(region_size(m.heap).unwrap_or(16 << 20))),
        reason: "about 2048 regions, and at least four chunks of a memstore (2 MB) in each: an object of half a region is humongous and takes whole regions",
        source: ORACLE_G1,
    },
    Rule {
        name: "numa",
        when: |m| m.g1() && m.jdk >= 14 && m.cores >= 32,
        flag: |_| "-XX:+UseNUMA".to_string(),
        reason: "young regions near the processor that fills them, on machines of several sockets; without effect on others. ZGC does so by itself",
        source: JEP_NUMA,
    },
    Rule {
        name: "perf-data",
        when: |_| true,
        flag: |_| "-XX:+PerfDisableSharedMem".to_string(),
        reason: "the JVM's counters are no file that is written at safepoints and waits for a busy disk; jps and jstat no longer see the process",
        source: HUBSPOT,
    },
    Rule {
        name: "direct-memory",
        when: |m| m.direct_needed() > 0,
        flag: |m| {
            format!("-XX:MaxDirectMemorySize={}", print_size(m.offheap.unwrap_or(0).max(m.direct_needed())))
        },
        reason: "bucket cache and memstores outside the heap, and 2 GB for network buffers, pools and HDFS's client; HBASE_OFFHEAPSIZE sets it",
        source: BOOK_DIRECT,
    },
    Rule {
        name: "log",
        when: |m| m.jdk >= 9,
        flag: |_| {
            "-Xlog:gc*,safepoint:file=/var/log/hbase/gc.log:time,uptime,level,tags:filecount=10,filesize=100m"
                .to_string()
        },
        reason: "pauses and all other safepoints, at next to no cost; halcyon lab gclog reads it",
        source: JEP_LOG,
    },
    Rule {
        name: "log-8",
        when: |m| m.jdk == 8,
        flag: |_| "-Xloggc:/var/log/hbase/gc.log".to_string(),
        reason: "where the collector's log goes",
        source: HUBSPOT,
    },
    Rule {
        name: "log-8-details",
        when: |m| m.jdk == 8,
        flag: |_| "-XX:+PrintGCDetails".to_string(),
        reason: "causes, generations and lengths in the log",
        source: HUBSPOT,
    },
    Rule {
        name: "log-8-dates",
        when: |m| m.jdk == 8,
        flag: |_| "-XX:+PrintGCDateStamps".to_string(),
        reason: "wall times, to compare with HBase's own log",
        source: HUBSPOT,
    },
    Rule {
        name: "log-8-stopped",
        when: |m| m.jdk == 8,
        flag: |_| "-XX:+PrintGCApplicationStoppedTime".to_string(),
        reason: "all safepoints with the time to reach them, not only collections",
        source: HUBSPOT,
    },
];

const TRAPS: &[Trap] = &[
    Trap {
        name: "fixed-plab",
        says: |m| {
            (m.g1() && (9..=16).contains(&m.jdk)).then(|| {
                "do not carry -XX:-ResizePLAB over from JDK 8: from JDK 9 on the fixed buffer is divided among all threads, \
                 which cost HBase nearly 20 % on JDK 11 (JDK-8257145, reported in 2020 and repaired around JDK 16)"
                    .to_string()
            })
        },
        source: PLAB_HBASE,
    },
    Trap {
        name: "compressed-pointers",
        says: |m| {
            (m.g1() && (32 * GIB..48 * GIB).contains(&m.heap)).then(|| {
                format!(
                    "a heap of {} has pointers of 8 bytes and may hold less than one of 31g, which has pointers of 4: take 31g, \
                     or 48g and more",
                    print_size(m.heap)
                )
            })
        },
        source: JAVA_TOOL,
    },
    Trap {
        name: "zgc-pointers",
        says: |m| {
            (m.zgc() && m.heap < 32 * GIB).then(|| {
                "ZGC has no compressed pointers: what fits into this heap with G1 may need half as much again".to_string()
            })
        },
        source: Z_WIKI,
    },
    Trap {
        name: "zgc-early",
        says: |m| {
            (m.zgc() && m.jdk < 15).then(|| match m.jdk < 11 {
                true => format!("JDK {} has no ZGC", m.jdk),
                false => format!("ZGC is an experiment on JDK {}: without class unloading before 12, and not for production before 15", m.jdk),
            })
        },
        source: JEP_ZGC_PRODUCT,
    },
    Trap {
        name: "zgc-one-generation",
        says: |m| {
            (m.zgc() && (15..=20).contains(&m.jdk)).then(|| {
                "with one generation every collection walks all memstores and caches: leave a quarter of the heap free, and \
                 look for \"Allocation Stall\" in the log"
                    .to_string()
            })
        },
        source: JEP_ZGEN,
    },
    Trap {
        name: "heap-shares",
        says: |m| {
            (m.filled_share() > 0.8 + 1e-9).then(|| {
                format!(
                    "hbase.regionserver.global.memstore.size {} and hfile.block.cache.size {} are {:.2} together; a region server \
                     refuses to start above 0.8",
                    m.memstore_share,
                    m.cache_share,
                    m.filled_share()
                )
            })
        },
        source: BOOK,
    },
    Trap {
        name: "marking-room",
        says: |m| {
            let room = wanted_marking_percent(m);
            (m.g1() && room > highest_marking_percent(m)).then(|| {
                format!(
                    "memstores and block cache may fill {:.0} % of the heap; with 20 % for the rest marking should begin at {room} %, \
                     which leaves Eden too little: lower the shares to {:.2} together, or move the cache out of the heap",
                    m.filled_share() * 100.0,
                    f64::from(highest_marking_percent(m) - 20) / 100.0
                )
            })
        },
        source: HUBSPOT,
    },
    Trap {
        name: "direct-sum",
        says: |m| {
            let given = m.offheap?;
            (given < m.direct_needed()).then(|| {
                format!(
                    "direct memory of {} does not hold a bucket cache of {}, memstores of {} outside the heap, and about 2g for \
                     network, pools and HDFS's client: give {}",
                    print_size(given),
                    print_size(m.bucket_cache),
                    print_size(m.offheap_memstore),
                    print_size(m.direct_needed())
                )
            })
        },
        source: DIRECT_EQUAL,
    },
    Trap {
        name: "cache-twice",
        says: |m| {
            (m.bucket_cache > 0 && m.cache_share > 0.2).then(|| {
                format!(
                    "with a bucket cache outside, the heap's share {} of hfile.block.cache.size holds only index and bloom blocks: \
                     0.2 or less is usual, and the rest can go to memstores",
                    m.cache_share
                )
            })
        },
        source: Source {
            title: "Cloudera: Configure the off-heap BucketCache",
            url: "https://docs.cloudera.com/runtime/7.2.11/configuring-hbase/topics/hbase-configure-offheap-bucketcache-cli.html",
        },
    },
    Trap {
        name: "leaving-jdk-8",
        says: |m| {
            (m.g1() && m.jdk == 8).then(|| {
                "when you leave JDK 8, drop -XX:-ResizePLAB and the Print flags with it; JDK 9 and later refuse some of them"
                    .to_string()
            })
        },
        source: PLAB,
    },
    Trap {
        name: "jdk-support",
        says: |m| {
            (!matches!(m.jdk, 8 | 11 | 17)).then(|| {
                format!("HBase 2.6 names JDK 8, 11 and 17 as supported; {} is not among them", m.jdk)
            })
        },
        source: BOOK_JAVA,
    },
];

/// Eight, and five eighths of the rest.
fn gc_threads(cores: u32) -> u32 {
    8 + cores.saturating_sub(8) * 5 / 8
}

fn new_size_percent(heap: u64) -> u32 {
    match heap / GIB {
        0..24 => 5,
        24..48 => 3,
        48..96 => 2,
        _ => 1,
    }
}

fn wanted_marking_percent(machine: &Machine) -> u32 {
    (machine.filled_share() * 100.0).round() as u32 + 20
}

fn highest_marking_percent(machine: &Machine) -> u32 {
    90 - new_size_percent(machine.heap)
}

fn marking_percent(machine: &Machine) -> u32 {
    wanted_marking_percent(machine).min(highest_marking_percent(machine))
}

/// The power of two near a 2048th of the heap, from 8 MiB to 32 MiB; `None` if the JVM would choose it anyway.
fn region_size(heap: u64) -> Option<u64> {
    let by_itself = (heap / 2048).max(1).ilog2();
    let by_itself = (1u64 << by_itself).clamp(1 << 20, 32 << 20);
    let wanted = by_itself.max(8 << 20);
    (wanted != by_itself).then_some(wanted)
}
