//! Each rule where it applies and where not; whole answers for four machines; flags that a JVM on this machine accepts.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::machine::GIB;
use super::print::{self, InUse};
use super::*;

fn machine(jdk: u32, heap_gib: u64, cores: u32, collector: Collector) -> Machine {
    Machine::new(jdk, heap_gib * GIB, cores, collector)
}

fn flags(text: &str) -> Vec<Flag> {
    flags::parse_all(text)
}

#[allow(clippy::disallowed_methods)] // a test's own files
fn golden(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/advise-{name}.expected"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&path).unwrap_or_default(), "{name}; UPDATE=1 writes it anew");
}

#[test]
fn whole_answers() {
    use Collector::{G1, Zgc};
    for (name, machine) in [
        ("jdk8-8g", machine(8, 8, 8, G1)),
        ("jdk17-31g", machine(17, 31, 16, G1)),
        ("jdk11-100g", machine(11, 100, 40, G1)),
        ("jdk21-100g-zgc", machine(21, 100, 40, Zgc)),
    ] {
        golden(name, &print::text(&machine, None));
    }
}

/// (rule, flag or nothing, machine)
#[test]
fn each_rule() {
    use Collector::{G1, Zgc};
    let rows: &[(&str, Option<&str>, Machine)] = &[
        ("heap-max", Some("-Xmx31g"), machine(17, 31, 8, G1)),
        ("heap-fixed", Some("-Xms31g"), machine(17, 31, 8, G1)),
        ("g1", Some("-XX:+UseG1GC"), machine(8, 8, 8, G1)),
        ("g1", None, machine(17, 8, 8, Zgc)),
        ("zgc-unlock", Some("-XX:+UnlockExperimentalVMOptions"), machine(11, 8, 8, Zgc)),
        ("zgc-unlock", None, machine(15, 8, 8, Zgc)),
        ("zgc", Some("-XX:+UseZGC"), machine(17, 8, 8, Zgc)),
        ("zgc-generational", Some("-XX:+ZGenerational"), machine(21, 8, 8, Zgc)),
        ("zgc-generational", None, machine(20, 8, 8, Zgc)),
        ("zgc-generational", None, machine(23, 8, 8, Zgc)),
        ("zgc-soft-max", Some("-XX:SoftMaxHeapSize=90g"), machine(17, 100, 8, Zgc)),
        ("zgc-soft-max", None, machine(11, 100, 8, Zgc)),
        ("zgc-threads", Some("-XX:ConcGCThreads=10"), machine(11, 100, 40, Zgc)),
        ("zgc-threads", None, machine(17, 100, 40, Zgc)),
        ("huge-pages", Some("-XX:+UseTransparentHugePages"), machine(17, 100, 40, G1)),
        ("huge-pages", None, machine(17, 8, 8, G1)),
        ("pretouch", Some("-XX:+AlwaysPreTouch"), machine(17, 8, 8, G1)),
        ("pretouch", None, machine(17, 2, 8, G1)),
        ("pause-goal", Some("-XX:MaxGCPauseMillis=100"), machine(17, 8, 8, G1)),
        ("pause-goal", None, machine(17, 8, 8, Zgc)),
        ("reference-threads", Some("-XX:+ParallelRefProcEnabled"), machine(11, 8, 8, G1)),
        ("reference-threads", None, machine(17, 8, 8, G1)),
        ("fixed-plab", Some("-XX:-ResizePLAB"), machine(8, 8, 8, G1)),
        ("fixed-plab", None, machine(11, 8, 8, G1)),
        ("gc-threads", Some("-XX:ParallelGCThreads=28"), machine(11, 100, 40, G1)),
        ("gc-threads", Some("-XX:ParallelGCThreads=13"), machine(11, 100, 16, G1)),
        ("gc-threads", None, machine(11, 100, 8, G1)),
        ("unlock", Some("-XX:+UnlockExperimentalVMOptions"), machine(11, 100, 40, G1)),
        ("unlock", None, machine(11, 8, 40, G1)),
        ("new-size", Some("-XX:G1NewSizePercent=3"), machine(11, 31, 40, G1)),
        ("new-size", Some("-XX:G1NewSizePercent=2"), machine(11, 64, 40, G1)),
        ("new-size", Some("-XX:G1NewSizePercent=1"), machine(11, 100, 40, G1)),
        ("new-size", None, machine(11, 8, 40, G1)),
        ("marking-start", Some("-XX:InitiatingHeapOccupancyPercent=89"), machine(11, 100, 40, G1)),
        (
            "marking-start",
            Some("-XX:InitiatingHeapOccupancyPercent=70"),
            Machine { cache_share: 0.1, ..machine(11, 100, 40, G1) },
        ),
        ("tenuring", Some("-XX:MaxTenuringThreshold=1"), machine(11, 8, 8, G1)),
        ("heap-waste", Some("-XX:G1HeapWastePercent=10"), machine(11, 8, 8, G1)),
        ("mixed-count", Some("-XX:G1MixedGCCountTarget=16"), machine(11, 8, 8, G1)),
        ("region-size", Some("-XX:G1HeapRegionSize=8m"), machine(11, 8, 8, G1)),
        ("region-size", None, machine(11, 31, 8, G1)),
        ("numa", Some("-XX:+UseNUMA"), machine(17, 100, 40, G1)),
        ("numa", None, machine(11, 100, 40, G1)),
        ("perf-data", Some("-XX:+PerfDisableSharedMem"), machine(11, 8, 8, Zgc)),
        (
            "direct-memory",
            Some("-XX:MaxDirectMemorySize=22g"),
            Machine { bucket_cache: 16 * GIB, offheap_memstore: 4 * GIB, ..machine(11, 31, 8, G1) },
        ),
        ("direct-memory", None, machine(11, 31, 8, G1)),
        (
            "log",
            Some(
                "-Xlog:gc*,safepoint:file=/var/log/hbase/gc.log:time,uptime,level,tags:filecount=10,filesize=100m",
            ),
            machine(11, 8, 8, G1),
        ),
        ("log", None, machine(8, 8, 8, G1)),
        ("log-8", Some("-Xloggc:/var/log/hbase/gc.log"), machine(8, 8, 8, G1)),
        ("log-8-details", Some("-XX:+PrintGCDetails"), machine(8, 8, 8, G1)),
        ("log-8-dates", Some("-XX:+PrintGCDateStamps"), machine(8, 8, 8, G1)),
        ("log-8-stopped", Some("-XX:+PrintGCApplicationStoppedTime"), machine(8, 8, 8, G1)),
        ("log-8-stopped", None, machine(11, 8, 8, G1)),
    ];
    for (rule, expected, machine) in rows {
        let found = advice(machine).into_iter().find(|row| row.rule == *rule).map(|row| row.flag);
        assert_eq!(found.as_deref(), *expected, "{rule} for {machine:?}");
    }
    let tested: BTreeSet<&str> = rows.iter().map(|(rule, ..)| *rule).collect();
    let mut known = BTreeSet::new();
    for jdk in [8, 11, 17, 21] {
        for collector in [G1, Zgc] {
            let machine = Machine { bucket_cache: GIB, ..machine(jdk, 12, 40, collector) };
            known.extend(advice(&machine).iter().map(|row| row.rule));
            known.extend(advice(&Machine { heap: 100 * GIB, ..machine }).iter().map(|row| row.rule));
        }
    }
    assert_eq!(tested, known, "every rule has a row here");
}

#[test]
fn each_trap() {
    use Collector::{G1, Zgc};
    let plain = machine(17, 31, 8, G1);
    let rows: &[(&str, bool, Machine)] = &[
        ("fixed-plab", true, machine(9, 31, 8, G1)),
        ("fixed-plab", true, machine(16, 31, 8, G1)),
        ("fixed-plab", false, machine(8, 31, 8, G1)),
        ("fixed-plab", false, plain.clone()),
        ("compressed-pointers", true, machine(17, 32, 8, G1)),
        ("compressed-pointers", true, machine(17, 40, 8, G1)),
        ("compressed-pointers", false, plain.clone()),
        ("compressed-pointers", false, machine(17, 48, 8, G1)),
        ("zgc-pointers", true, machine(17, 31, 8, Zgc)),
        ("zgc-pointers", false, machine(17, 64, 8, Zgc)),
        ("zgc-early", true, machine(11, 31, 8, Zgc)),
        ("zgc-early", false, machine(15, 31, 8, Zgc)),
        ("zgc-one-generation", true, machine(17, 31, 8, Zgc)),
        ("zgc-one-generation", false, machine(21, 31, 8, Zgc)),
        ("heap-shares", true, Machine { cache_share: 0.45, ..plain.clone() }),
        ("heap-shares", false, plain.clone()),
        ("marking-room", true, plain.clone()),
        ("marking-room", false, Machine { cache_share: 0.2, ..plain.clone() }),
        ("direct-sum", true, Machine { offheap: Some(16 * GIB), bucket_cache: 16 * GIB, ..plain.clone() }),
        (
            "direct-sum",
            true,
            Machine {
                offheap: Some(20 * GIB),
                bucket_cache: 16 * GIB,
                offheap_memstore: 4 * GIB,
                ..plain.clone()
            },
        ),
        (
            "direct-sum",
            false,
            Machine {
                offheap: Some(22 * GIB),
                bucket_cache: 16 * GIB,
                offheap_memstore: 4 * GIB,
                ..plain.clone()
            },
        ),
        ("cache-twice", true, Machine { bucket_cache: GIB, ..plain.clone() }),
        ("cache-twice", false, Machine { bucket_cache: GIB, cache_share: 0.1, ..plain.clone() }),
        ("leaving-jdk-8", true, machine(8, 31, 8, G1)),
        ("leaving-jdk-8", false, plain.clone()),
        ("jdk-support", true, machine(25, 31, 8, G1)),
        ("jdk-support", false, plain.clone()),
    ];
    for (rule, expected, machine) in rows {
        let found = warnings(machine).iter().any(|row| row.rule == *rule);
        assert_eq!(found, *expected, "{rule} for {machine:?}");
    }
}

fn verdict(machine: &Machine, text: &str) -> (Verdict, String) {
    let flags = flags(text);
    let change = compare(machine, &flags).into_iter().find(|change| change.flag == flags[0].text).unwrap();
    (change.verdict, change.instead)
}

#[test]
fn flags_in_use() {
    use Collector::{G1, Zgc};
    let (m8, m11, m17) = (machine(8, 31, 16, G1), machine(11, 31, 16, G1), machine(17, 31, 16, G1));
    let drop = (Verdict::Drop, String::new());
    let keep = (Verdict::Keep, String::new());
    assert_eq!(verdict(&m8, "-XX:-ResizePLAB"), keep);
    assert_eq!(verdict(&m11, "-XX:-ResizePLAB"), drop);
    assert_eq!(verdict(&m17, "-XX:-ResizePLAB"), drop);
    assert_eq!(verdict(&m17, "-XX:+ResizePLAB"), keep);
    assert_eq!(
        verdict(&m11, "-XX:MaxGCPauseMillis=50"),
        (Verdict::Change, "-XX:MaxGCPauseMillis=100".to_string())
    );
    assert_eq!(verdict(&m11, "-Xmx31744m"), keep, "the same size in another unit");
    assert_eq!(verdict(&m11, "-XX:+UseConcMarkSweepGC"), drop, "one collector only");
    for (jdk, dropped) in [(8, false), (17, false), (18, true), (25, true)] {
        let found = verdict(&machine(jdk, 31, 16, G1), "-XX:+UseBiasedLocking");
        assert_eq!(found.0 == Verdict::Drop, dropped, "JDK {jdk}");
    }
    assert_eq!(verdict(&m8, "-XX:+PrintGCDetails"), keep);
    assert_eq!(verdict(&m11, "-XX:+PrintGCDetails"), drop);
    assert_eq!(verdict(&m11, "-XX:+PrintGCDateStamps"), drop);
    assert_eq!(verdict(&machine(25, 100, 40, Zgc), "-XX:+ZGenerational"), drop);
    assert_eq!(verdict(&machine(21, 100, 40, Zgc), "-XX:-ZGenerational").0, Verdict::Change);
    assert_eq!(verdict(&m11, "-Xlog:gc*,safepoint:file=x.log"), keep, "another place for the log is as good");
    assert_eq!(verdict(&m11, "-Xlog:gc:file=x.log").0, Verdict::Change, "no safepoints");
    assert_eq!(verdict(&m11, "-Dx=y"), keep);
    assert_eq!(verdict(&m11, "-XX:MaxGCPauseMillis=50 -XX:MaxGCPauseMillis=100"), drop, "the last one wins");
    assert_eq!(verdict(&m11, "-XX:MaxGCPauseMillis=50 -Dx=1 -Dx=2").0, Verdict::Change);
}

/// Whoever follows the advice is told to keep everything.
#[test]
fn advice_agrees_with_itself() {
    for jdk in 8..=25 {
        for heap in [2, 8, 31, 32, 64, 100, 200] {
            for collector in [Collector::G1, Collector::Zgc] {
                let machine = Machine { bucket_cache: GIB, ..machine(jdk, heap, 40, collector) };
                let text: Vec<String> = advice(&machine).into_iter().map(|row| row.flag).collect();
                let changes = compare(&machine, &flags(&text.join(" ")));
                assert!(
                    changes.iter().all(|change| change.verdict == Verdict::Keep),
                    "{machine:?}: {changes:?}"
                );
            }
        }
    }
}

const ENV: &str = r#"# the usual file
export JAVA_HOME=/usr/java/jdk1.8.0/
export HBASE_HEAPSIZE=32G
export HBASE_OFFHEAPSIZE=10240   # megabytes
if [ -f /etc/hbase-more ]; then . /etc/hbase-more; fi
export HBASE_OPTS="$HBASE_OPTS -XX:+UseConcMarkSweepGC -Djava.net.preferIPv4Stack=true"
GC='-XX:+UseG1GC -XX:-ResizePLAB'
export HBASE_REGIONSERVER_OPTS="$HBASE_REGIONSERVER_OPTS ${GC} \
  -XX:ParallelGCThreads=28 -XX:MaxGCPauseMillis=50
  -Xmn4g -XX:MaxGCPauseMillis=100 -Dlog=$ELSEWHERE/x"
export HBASE_IDENT_STRING=`whoami`
export HBASE_X=${HBASE_Y:-3}
export HBASE_Z=$(date)
A=1 B=2
"#;

#[test]
fn an_environment_file() {
    let file = EnvFile::read(ENV);
    let flags: Vec<String> = file.flags().iter().map(ToString::to_string).collect();
    let expected = "-Xmx32g -XX:MaxDirectMemorySize=10240m -XX:+UseConcMarkSweepGC -Djava.net.preferIPv4Stack=true -XX:+UseG1GC \
                    -XX:-ResizePLAB -XX:ParallelGCThreads=28 -XX:MaxGCPauseMillis=50 -Xmn4g -XX:MaxGCPauseMillis=100 \
                    -Dlog=${ELSEWHERE}/x";
    assert_eq!(flags.join(" "), expected);
    let lines: Vec<usize> = file.not_understood.iter().map(|(at, _)| *at).collect();
    assert_eq!(lines, [5, 11, 12, 13, 14]);
    let machine =
        Machine { offheap: Some(10 * GIB), bucket_cache: 10 * GIB, ..machine(11, 32, 40, Collector::G1) };
    let in_use = InUse { changes: compare(&machine, &file.flags()), not_understood: file.not_understood };
    golden("hbase-env", &print::text(&machine, Some(&in_use)));
    let json = print::json(&machine, Some(&in_use)).to_string();
    assert!(json.contains("\"do\":\"drop\",\"flag\":\"-XX:-ResizePLAB\""), "{json}");
}

#[test]
fn odd_files() {
    for text in [
        "",
        "=",
        "export",
        "export =x",
        "A=\"",
        "A='x",
        "A=\\",
        "A=$",
        "A=${",
        "A=${B",
        "\"",
        "A=x\\\n",
        "é=é",
        "A=$é",
    ] {
        let _ = EnvFile::read(text).flags();
    }
    assert_eq!(EnvFile::read("HBASE_OPTS='a $X'\n").get("HBASE_OPTS"), Some("a $X"));
    assert_eq!(EnvFile::read("A=\"x # y\" # z\n").get("A"), Some("x # y"));
    assert_eq!(EnvFile::read("A=x\nA=\"$A$A\"\n".repeat(40).as_str()).get("A").map(str::len), Some(2));
    // doubles until it is too long, and stops there
    let file = EnvFile::read(&format!("A=xxxxxxxx\n{}", "A=\"$A$A\"\n".repeat(60)));
    assert!(file.get("A").is_some_and(|value| value.len() <= 64 << 10) && !file.not_understood.is_empty());
}

/// What is not tested here is told to `.ci/run`, which knows what may be missing.
fn left_out(what: &str) {
    eprintln!("LEFT OUT: {what}");
    if let Some(path) = std::env::var_os("HALCYON_LEFT_OUT") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        std::io::Write::write_all(&mut file.unwrap(), format!("{what}\n").as_bytes()).unwrap();
    }
}

/// A JVM on this machine starts with what is recommended for it, and refuses what the table says it refuses.
#[test]
fn the_jvm_accepts_the_advice() {
    let homes: Vec<PathBuf> = jvm_homes();
    if homes.is_empty() {
        left_out("the JVM is not asked about the advice: there is none under /usr/lib/jvm or JAVA_HOME");
    }
    for home in homes {
        let java = |flags: &[String]| {
            let done = std::process::Command::new(home.join("bin/java"))
                .args(flags)
                .arg("-version")
                .output()
                .unwrap();
            (
                done.status.success(),
                String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned(),
            )
        };
        let (_, version) = java(&[]);
        let Some(jdk) = version.split('"').nth(1).and_then(|text| {
            let mut parts = text.split('.');
            let first: u32 = parts.next()?.parse().ok()?;
            if first == 1 { parts.next()?.parse().ok() } else { Some(first) }
        }) else {
            continue;
        };
        for collector in [Collector::G1, Collector::Zgc] {
            if collector == Collector::Zgc && jdk < 15 {
                continue;
            }
            for (heap, cores) in [(2, 4), (100, 40)] {
                let machine = Machine { bucket_cache: GIB, ..machine(jdk, heap, cores, collector) };
                let log = std::env::temp_dir().join(format!("halcyon-advise-{}.log", std::process::id()));
                let mut flags: Vec<String> = advice(&machine).into_iter().map(|row| row.flag).collect();
                flags
                    .iter_mut()
                    .for_each(|flag| *flag = flag.replace("/var/log/hbase/gc.log", &log.to_string_lossy()));
                // the sizes are another machine's; the names and values of all other flags are what is asked about
                flags.retain(|flag| {
                    let own = ["-Xm", "-XX:SoftMax", "-XX:+AlwaysPreTouch", "-XX:+UseTransparentHugePages"];
                    !own.iter().any(|start| flag.starts_with(start))
                });
                flags.push("-Xmx64m".to_string());
                let (started, said) = java(&flags);
                for number in ["", ".0", ".1"] {
                    #[allow(clippy::disallowed_methods)] // a test's own files
                    let _ = std::fs::remove_file(format!("{}{number}", log.display()));
                }
                assert!(started && !said.to_lowercase().contains("warning"), "JDK {jdk}: {flags:?}: {said}");
            }
        }
        for flag in [
            "-XX:+UseConcMarkSweepGC",
            "-XX:+PrintGCDateStamps",
            "-XX:+UseBiasedLocking",
            "-XX:+AggressiveOpts",
        ] {
            let dropped = compare(&machine(jdk, 31, 8, Collector::G1), &flags(flag))
                .iter()
                .any(|change| change.flag == flag && change.reason.contains("does not start"));
            assert_eq!(!java(&[flag.to_string()]).0, dropped, "JDK {jdk} {flag}");
        }
    }
}

#[allow(clippy::disallowed_methods)] // a test looks around on its own machine
fn jvm_homes() -> Vec<PathBuf> {
    let installed =
        std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let named = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let homes: BTreeSet<PathBuf> =
        installed.chain(named).filter_map(|path| path.canonicalize().ok()).collect();
    homes.into_iter().filter(|home| home.join("bin/java").exists()).collect()
}
