//! Logs of real JVMs and composed ones, what is read from them, and what happens when they are damaged.
//!
//! `UPDATE=1 cargo test -p halcyon-lab` writes the expected texts anew; read the difference.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

#[allow(clippy::disallowed_methods)] // a test's own files
fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn read(bytes: &[u8]) -> Log {
    let mut reader = Reader::new();
    reader.feed(bytes);
    reader.finish()
}

/// JDK 17 and 25 are real; 8, 11 and 21 are composed, as their heads say.
const LOGS: &[&str] = &[
    "g1-17",
    "g1-25",
    "zgc-17",
    "zgc-25",
    "shen-17",
    "shen-17-degenerated",
    "gshen-25",
    "par-17",
    "par-25",
    "ser-25",
    "composed-jdk8-g1",
    "composed-jdk8-cms",
    "composed-jdk8-parallel",
    "composed-jdk11-g1",
    "composed-jdk21-zgc",
];

#[test]
#[allow(clippy::disallowed_methods)] // a test's own files
fn logs_read_as_expected() {
    for name in LOGS {
        let log = read(&file(&format!("{name}.log")));
        let found = format!("{}\n{}", print::text(&log), print::pauses(&log));
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/{name}.expected"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, expected, "{name}; UPDATE=1 writes it anew");
    }
}

/// What the JVM itself counted at its end (`GarbageCollectorMXBean`, printed by the program that made the logs) and what
/// was read from its log.
#[test]
fn counts_agree_with_the_jvm() {
    let counted: &[(&str, &[(&str, usize)])] = &[
        ("g1-17", &[("Young", 6), ("Full", 1)]),
        ("g1-25", &[("Young", 2), ("Full", 1)]),
        ("par-17", &[("Young", 27), ("Full", 1)]),
        ("par-25", &[("Young", 16), ("Full", 1)]),
        ("ser-25", &[("Young", 13), ("Full", 1)]),
        ("zgc-17", &[("Mark", 4), ("Relocate", 2)]),
        ("shen-17", &[("", 8)]),
        ("gshen-25", &[("", 8)]),
        ("zgc-25", &[("", 13)]),
    ];
    for (name, kinds) in counted {
        let log = read(&file(&format!("{name}.log")));
        for (kind, count) in *kinds {
            let wanted = |pause: &&Pause| pause.collection && log.names.text(pause.kind).starts_with(kind);
            assert_eq!(log.pauses.iter().filter(wanted).count(), *count, "{name} {kind}");
        }
    }
}

/// The safepoint lines come from another part of the JVM than the pauses. Each pause lies inside one safepoint and fills
/// most of it, where it is not as short as the work of stopping.
#[test]
fn pauses_agree_with_safepoints() {
    for name in &LOGS[..10] {
        let bytes = file(&format!("{name}.log"));
        let log = read(&bytes);
        let text = String::from_utf8(bytes).unwrap();
        // counted here with other means than the reader's
        let at_safepoint_ns: Vec<f64> = text
            .lines()
            .filter(|line| !line.contains("\"ThreadDump\"") && !line.contains("CleanClassLoader"))
            .filter_map(|line| line.split_once("At safepoint: ")?.1.split_once(" ns")?.0.parse().ok())
            .collect();
        let pauses: Vec<f64> =
            log.pauses.iter().filter(|pause| pause.collection).map(|pause| pause.length_ms).collect();
        // an explicit collection of Parallel is a young and a full pause in one safepoint
        assert!(
            pauses.len() == at_safepoint_ns.len()
                || name.starts_with("par") && pauses.len() == at_safepoint_ns.len() + 1
        );
        let (stopped, paused) = (at_safepoint_ns.iter().sum::<f64>() / 1e6, pauses.iter().sum::<f64>());
        assert!(paused <= stopped + 0.001 * pauses.len() as f64, "{name}: {paused} ms in {stopped} ms");
        let overhead = 0.5 * pauses.len() as f64;
        assert!(stopped - paused <= overhead, "{name}: {paused} ms in {stopped} ms, {} pauses", pauses.len());
    }
}

/// With `safepoint+stats` the JVM writes at its end how often each operation stopped it.
#[test]
fn safepoints_agree_with_the_jvms_statistics() {
    for name in ["par-25", "g1-17"] {
        let bytes = file(&format!("{name}.log"));
        let log = read(&bytes);
        let text = String::from_utf8(bytes).unwrap();
        let mut compared = 0;
        for line in text.lines().filter(|line| line.contains("[safepoint,stats") && !line.contains('(')) {
            let words: Vec<&str> = line.rsplit(']').next().unwrap_or_default().split_whitespace().collect();
            let [operation, count] = words[..] else { continue };
            let Ok(count) = count.parse::<u64>() else { continue };
            // the last one, at which the JVM ends, has no line of its own (JDK 17 calls it None)
            if matches!(operation, "Halt" | "None") {
                continue;
            }
            let mine = log.safepoints.iter().find(|(found, _)| log.names.text(**found) == operation);
            assert_eq!(mine.map(|(_, found)| found.total.count), Some(count), "{name} {operation}");
            compared += 1;
        }
        assert!(compared >= 2, "{name}: {compared} operations");
    }
}

#[test]
fn several_starts_in_one_file() {
    let one = file("g1-17.log");
    let log = read(&[one.clone(), one.clone(), file("zgc-25.log")].concat());
    let collectors: Vec<_> = log.jvms.iter().map(|jvm| jvm.collector.clone().unwrap_or_default()).collect();
    assert_eq!(collectors, ["G1", "G1", "ZGC (generational)"]);
    let (single, other) = (read(&one), read(&file("zgc-25.log")));
    assert_eq!(log.pauses.len(), 2 * single.pauses.len() + other.pauses.len());
    assert_eq!(
        log.memory.allocated,
        2 * single.memory.allocated + other.memory.allocated,
        "nothing between two JVMs"
    );
    let wall = |log: &Log| log.jvms.iter().map(|jvm| jvm.wall_s).sum::<f64>();
    assert!(
        (wall(&log) - 2.0 * wall(&single) - wall(&other)).abs() < 0.1,
        "{} {}",
        wall(&log),
        wall(&single)
    );
}

#[test]
fn pieces_do_not_matter() {
    for name in LOGS {
        let bytes = file(&format!("{name}.log"));
        let whole = print::json(&read(&bytes), true).to_string();
        for step in [1, 7, 4096] {
            let mut reader = Reader::new();
            bytes.chunks(step).for_each(|piece| reader.feed(piece));
            assert_eq!(print::json(&reader.finish(), true).to_string(), whole, "{name} by {step}");
        }
    }
}

/// The reader keeps pauses, and nothing that grows with lines, phases or names.
#[test]
fn long_lines_and_many_names_are_bounded() {
    let mut reader = Reader::new();
    reader.feed(&vec![b'['; 3 << 20]);
    reader.feed(b"\n[1.0s][info][gc] GC(0) Pause Young (Normal) (x) 6M->1M(96M) 1.375ms\n");
    for n in 0..20_000 {
        reader.feed(
            format!("[1.0s][gc] GC({n}) Concurrent Phase {n} 1.0ms\n[1.0s][gc,start] GC({n}) Pause X{n}\n")
                .as_bytes(),
        );
        reader.feed(format!("[1.0s][gc] GC({n}) Garbage Collection (Why {n})\n").as_bytes());
    }
    let log = reader.finish();
    assert_eq!((log.pauses.len(), log.lines_unknown), (1, 1));
    assert!(log.phases.len() < 500, "{}", log.phases.len());
    assert_eq!(log.phases.values().map(|found| found.count).sum::<u64>(), 20_000);
}

/// A directory of the test's own, with files in it; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    #[allow(clippy::disallowed_methods)] // a test's own files
    fn with(name: &str, files: &[(&str, &[u8])]) -> Folder {
        let path = std::env::temp_dir().join(format!("halcyon-gclog-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (file, bytes) in files {
            std::fs::write(path.join(file), bytes).unwrap();
        }
        Folder(path)
    }

    fn run(&self, files: &[&str]) -> Result<String, String> {
        let files = files.iter().map(|file| self.0.join(file)).collect();
        run(&halcyon_env::Env::real(), &GclogArgs { files, json: true, pauses: true })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_no_log_is_said() {
    let folder = Folder::with(
        "bad",
        &[("empty", b""), ("notes", b"Dear reader,\nall is well.\n"), ("bytes", &[0xfe; 100])],
    );
    for (file, said) in [
        ("absent", "no such file"),
        ("empty", "it is empty"),
        ("notes", "Dear reader,"),
        ("bytes", "not a GC log"),
        (".", "directory"),
    ] {
        let error = folder.run(&[file]).unwrap_err();
        assert!(error.contains(said) && error.contains(file), "{file}: {error}");
    }
}

/// `-Xlog` with `filecount` leaves pieces; whichever order they come in, they are one log.
#[test]
fn rotated_pieces_in_any_order() {
    for name in ["g1-17", "gshen-25", "composed-jdk8-g1"] {
        let bytes = file(&format!("{name}.log"));
        let line_ends: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes[*at] == b'\n').map(|at| at + 1).collect();
        let (first, second) = (line_ends[line_ends.len() / 3], line_ends[line_ends.len() * 2 / 3]);
        let pieces: &[(&str, &[u8])] = &[
            ("gc.log.0", &bytes[..first]),
            ("gc.log.1", &bytes[first..second]),
            ("gc.log", &bytes[second..]),
        ];
        let folder = Folder::with(name, &[pieces, &[("whole.log", bytes.as_slice())]].concat());
        let whole = folder.run(&["whole.log"]).unwrap();
        assert_eq!(folder.run(&["gc.log", "gc.log.0", "gc.log.1"]).unwrap(), whole, "{name}");
        assert_eq!(folder.run(&["gc.log.1", "gc.log", "gc.log.0"]).unwrap(), whole, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Cut anywhere, bytes turned over: never a panic, and never a length that is no length.
    #[test]
    fn damage(which in 0..LOGS.len(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60),
              from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let mut bytes = file(&format!("{}.log", LOGS[which]));
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
        let log = read(&bytes[from.min(to)..from.max(to)]);
        let _ = (print::text(&log), print::json(&log, true).to_string(), print::pauses(&log));
        prop_assert!(log.pauses.iter().all(|pause| pause.length_ms.is_finite() && pause.length_ms >= 0.0));
        prop_assert!(log.pauses.iter().all(|pause| pause.start_s.is_finite()));
    }

    /// A log that was cut off tells the same of what is left.
    #[test]
    fn cut_off(which in 0..LOGS.len(), at in any::<prop::sample::Index>()) {
        let bytes = file(&format!("{}.log", LOGS[which]));
        let whole = read(&bytes);
        let cut = read(&bytes[..at.index(bytes.len())]);
        prop_assert!(cut.pauses.len() <= whole.pauses.len());
        for (cut, whole) in cut.pauses.iter().zip(&whole.pauses) {
            prop_assert_eq!(cut.length_ms, whole.length_ms);
        }
    }
}
