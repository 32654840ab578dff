//! Flags in use against the rules.

use super::flags::Flag;
use super::machine::Machine;
use super::rules::{self, Source};

/// What to do about one flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    Change,
    Add,
    Drop,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Keep => "keep",
            Verdict::Change => "change",
            Verdict::Add => "add",
            Verdict::Drop => "drop",
        }
    }
}

/// One flag, in use or wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub verdict: Verdict,
    /// As it is; empty for one to add.
    pub flag: String,
    /// As it should be; empty for one to keep or drop.
    pub instead: String,
    pub reason: String,
    pub source: Option<Source>,
}

/// A flag that a JDK no longer knows, or that no longer does anything.
struct Gone {
    name: &'static str,
    /// First release that warns and ignores it; 0 if it was never so.
    ignored: u32,
    /// First release that does not start with it; 0 if there is none up to 25.
    refused: u32,
    why: &'static str,
    source: Source,
}

const CMS: &str = "CMS left in JDK 14";
const LOG: &str = "-Xlog took its place in JDK 9";

const fn gone(name: &'static str, ignored: u32, refused: u32, why: &'static str, source: Source) -> Gone {
    Gone { name, ignored, refused, why, source }
}

/// Checked against JDK 17 and 25 by starting them; the releases between by the sources named.
const GONE: &[Gone] = &[
    gone("UseConcMarkSweepGC", 14, 15, CMS, rules::JEP_NO_CMS),
    gone("UseParNewGC", 10, 11, "ParNew was CMS's young collector and left before it", rules::JEP_NO_CMS),
    gone("CMSInitiatingOccupancyFraction", 14, 15, CMS, rules::JEP_NO_CMS),
    gone("UseCMSInitiatingOccupancyOnly", 14, 15, CMS, rules::JEP_NO_CMS),
    gone("CMSParallelRemarkEnabled", 14, 15, CMS, rules::JEP_NO_CMS),
    gone("CMSClassUnloadingEnabled", 14, 15, CMS, rules::JEP_NO_CMS),
    gone("CMSScavengeBeforeRemark", 14, 15, CMS, rules::JEP_NO_CMS),
    gone(
        "UseBiasedLocking",
        18,
        19,
        "biased locking is off since JDK 15, was obsolete in 18 and gone after",
        rules::JEP_BIAS,
    ),
    gone("PrintGCDateStamps", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintGCTimeStamps", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintGCApplicationStoppedTime", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintGCApplicationConcurrentTime", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintTenuringDistribution", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintAdaptiveSizePolicy", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintHeapAtGC", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintReferenceGC", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintPromotionFailure", 0, 9, LOG, rules::JEP_LOG),
    gone("UseGCLogFileRotation", 0, 9, LOG, rules::JEP_LOG),
    gone("NumberOfGCLogFiles", 0, 9, LOG, rules::JEP_LOG),
    gone("GCLogFileSize", 0, 9, LOG, rules::JEP_LOG),
    gone("PrintGCDetails", 9, 0, "a name for -Xlog:gc*, with a warning, since JDK 9", rules::JEP_LOG),
    gone("PrintGC", 9, 0, "a name for -Xlog:gc, with a warning, since JDK 9", rules::JEP_LOG),
    gone("-Xloggc", 9, 0, "a name for -Xlog:gc:FILE, with a warning, since JDK 9", rules::JEP_LOG),
    gone("PermSize", 8, 17, "there is no permanent generation since JDK 8", rules::JEP_PERM),
    gone("MaxPermSize", 8, 17, "there is no permanent generation since JDK 8", rules::JEP_PERM),
    gone("AggressiveOpts", 12, 13, "it had stopped doing anything", rules::JAVA_TOOL),
    gone(
        "UseParallelOldGC",
        15,
        16,
        "the parallel collector has no other old generation any more",
        rules::JAVA_TOOL,
    ),
    gone("ZGenerational", 24, 0, "ZGC has only two generations now", rules::JEP_ZGEN_ONLY),
];

/// Flags that work against what is recommended: (name, whether they do on this machine, why, source).
type Against = (&'static str, fn(&Machine, &Flag) -> bool, &'static str, Source);
const AGAINST: &[Against] = &[
    (
        "ResizePLAB",
        |m, flag| m.g1() && (9..=16).contains(&m.jdk) && flag.value == "-",
        "fixed buffers are divided among all threads on JDK 9 to 16: JDK-8257145",
        rules::PLAB,
    ),
    (
        "ResizePLAB",
        |m, flag| m.g1() && m.jdk >= 17 && flag.value == "-",
        "resizing is cheap now, and with fixed buffers G1 no longer enlarges them when much is promoted at once (JDK-8288966)",
        Source { title: "JDK-8288966", url: "https://github.com/openjdk/jdk/pull/9726" },
    ),
    ("-Xmn", fixes_young, YOUNG, rules::JAVA_TOOL),
    ("NewSize", fixes_young, YOUNG, rules::JAVA_TOOL),
    ("MaxNewSize", fixes_young, YOUNG, rules::JAVA_TOOL),
    ("NewRatio", fixes_young, YOUNG, rules::JAVA_TOOL),
    (
        "UseCompressedOops",
        |m, flag| m.heap >= 32 * super::machine::GIB && flag.value == "+",
        "not possible from 32g on",
        rules::JAVA_TOOL,
    ),
    (
        "DisableExplicitGC",
        |m, _| m.direct_needed() > 0,
        "direct memory that ran out is freed by System.gc()",
        rules::JAVA_TOOL,
    ),
];

const YOUNG: &str = "a fixed young generation takes from G1 the means to meet its pause goal";

fn fixes_young(machine: &Machine, _: &Flag) -> bool {
    machine.g1()
}

const COLLECTORS: &[&str] = &[
    "UseG1GC",
    "UseZGC",
    "UseShenandoahGC",
    "UseParallelGC",
    "UseSerialGC",
    "UseConcMarkSweepGC",
    "UseParNewGC",
];

/// What to keep, change, drop and add, in this order of the flags in use, then those to add.
pub fn compare(machine: &Machine, in_use: &[Flag]) -> Vec<Change> {
    let wanted: Vec<_> =
        rules::advice(machine).into_iter().map(|advice| (Flag::parse(&advice.flag), advice)).collect();
    let mut changes = Vec::new();
    for (at, flag) in in_use.iter().enumerate() {
        let recommended = wanted.iter().find(|(wanted, _)| wanted.name == flag.name);
        let drop = |reason: String, source| Change {
            verdict: Verdict::Drop,
            flag: flag.text.clone(),
            instead: String::new(),
            reason,
            source,
        };
        let keep =
            |reason: &str, source| Change { verdict: Verdict::Keep, ..drop(reason.to_string(), source) };
        let later = in_use[at + 1..].iter().find(|later| later.name == flag.name && single(&flag.name));
        changes.push(if let Some(later) = later {
            drop(format!("overridden by {later} behind it"), None)
        } else if let Some((reason, source)) = gone_at(machine.jdk, &flag.name) {
            drop(reason, Some(source))
        } else if let Some((_, _, why, source)) =
            AGAINST.iter().find(|(name, applies, ..)| *name == flag.name && applies(machine, flag))
        {
            drop(why.to_string(), Some(*source))
        } else if let Some((wanted, advice)) = recommended {
            match wanted.same(flag)
                || wanted.name.starts_with("-Xlog") && logs_enough(&flag.value)
                || wanted.name == "-Xloggc"
            {
                true => keep(advice.reason, Some(advice.source)),
                false => Change {
                    verdict: Verdict::Change,
                    instead: wanted.text.clone(),
                    ..keep(advice.reason, Some(advice.source))
                },
            }
        } else if COLLECTORS.contains(&flag.name.as_str()) && flag.value == "+" {
            drop(format!("two collectors cannot be chosen; the advice is for {}", machine.collector), None)
        } else {
            keep("no rule is about it", None)
        });
    }
    for (flag, advice) in &wanted {
        if !in_use.iter().any(|used| used.name == flag.name) {
            changes.push(Change {
                verdict: Verdict::Add,
                flag: String::new(),
                instead: flag.text.clone(),
                reason: advice.reason.to_string(),
                source: Some(advice.source),
            });
        }
    }
    changes
}

/// Whether the last flag of a name wins; others add up.
fn single(name: &str) -> bool {
    const ADD_UP: &[&str] = &[
        "-D",
        "-Xlog",
        "-javaagent",
        "-agentlib",
        "--add-opens",
        "--add-exports",
        "--add-modules",
        "OnError",
    ];
    !ADD_UP.iter().any(|start| name.starts_with(start))
}

/// Pauses and safepoints both.
fn logs_enough(selection: &str) -> bool {
    selection.starts_with("gc*") && selection.contains("safepoint")
}

fn gone_at(jdk: u32, name: &str) -> Option<(String, Source)> {
    let gone = GONE.iter().find(|gone| gone.name == name)?;
    let reason = if gone.refused != 0 && jdk >= gone.refused {
        format!("JDK {jdk} does not start with it: {}", gone.why)
    } else if gone.ignored != 0 && jdk >= gone.ignored {
        format!("without use on JDK {jdk}: {}", gone.why)
    } else {
        return None;
    };
    Some((reason, gone.source))
}
