//! Flags of a server's JVM, by release and collector.

use std::path::Path;

use super::spec::Collector;

/// Packages that HBase's and Hadoop's reflection reaches into; Java 17 and later keep them shut unless told.
const OPENED: &[&str] = &[
    "java.io",
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.regex",
    "jdk.internal.util.random",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
];
/// The first release with modules and with the unified log.
const MODULES: u32 = 9;
/// From here on `sun.misc.Unsafe` and native code ask for leave.
const LEAVE_ASKED: u32 = 24;

/// Flags that turn a collector on. The error says that this release has none such.
pub(super) fn collector_flags(collector: Collector, jdk: u32) -> Result<Vec<String>, String> {
    let flags: &[&str] = match (collector, jdk) {
        (Collector::G1, _) => &["-XX:+UseG1GC"],
        (Collector::Parallel, _) => &["-XX:+UseParallelGC"],
        (Collector::Zgc, 11..=14) => &["-XX:+UnlockExperimentalVMOptions", "-XX:+UseZGC"],
        (Collector::Zgc, 15..=22) => &["-XX:+UseZGC"],
        // two generations are the default of 23
        (Collector::Zgc, 23) => &["-XX:+UseZGC", "-XX:-ZGenerational"],
        (Collector::Zgc, 24..) => return Err(format!("JDK {jdk} has ZGC with two generations only")),
        (Collector::Zgc, _) => return Err(format!("JDK {jdk} has no ZGC: it came with 11")),
        (Collector::ZgcGenerational, 21..=23) => &["-XX:+UseZGC", "-XX:+ZGenerational"],
        (Collector::ZgcGenerational, 24..) => &["-XX:+UseZGC"],
        (Collector::ZgcGenerational, _) => {
            return Err(format!("JDK {jdk} has no ZGC with two generations: it came with 21"));
        }
        (Collector::Shenandoah, 12..=14) => &["-XX:+UnlockExperimentalVMOptions", "-XX:+UseShenandoahGC"],
        (Collector::Shenandoah, _) => &["-XX:+UseShenandoahGC"],
    };
    Ok(flags.iter().map(|flag| flag.to_string()).collect())
}

/// Flags that open what HBase, Hadoop and Accumulo reach into.
pub(super) fn access_flags(jdk: u32) -> Vec<String> {
    let mut flags = Vec::new();
    if jdk >= MODULES {
        flags.extend(OPENED.iter().map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")));
        flags.push("--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED".to_string());
        flags.push("--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED".to_string());
        flags.push("--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED".to_string());
        flags.push("--add-modules=jdk.unsupported".to_string());
    }
    if jdk >= LEAVE_ASKED {
        flags.push("--sun-misc-unsafe-memory-access=allow".to_string());
        flags.push("--enable-native-access=ALL-UNNAMED".to_string());
    }
    flags
}

/// Flags that make the collector write its log, safepoints and wall times included.
pub(super) fn log_flags(jdk: u32, log: &Path) -> Vec<String> {
    let log = log.display();
    if jdk >= MODULES {
        return vec![format!("-Xlog:gc*,safepoint:file={log}:time,uptime,level,tags:filecount=0")];
    }
    let details =
        ["PrintGCDetails", "PrintGCDateStamps", "PrintGCTimeStamps", "PrintGCApplicationStoppedTime"];
    let mut flags = vec![format!("-Xloggc:{log}")];
    flags.extend(details.iter().map(|detail| format!("-XX:+{detail}")));
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_has_its_own_zgc() {
        let flags = |collector, jdk| collector_flags(collector, jdk).map(|flags| flags.join(" "));
        assert_eq!(flags(Collector::Zgc, 17).unwrap(), "-XX:+UseZGC");
        assert_eq!(flags(Collector::Zgc, 23).unwrap(), "-XX:+UseZGC -XX:-ZGenerational");
        assert_eq!(flags(Collector::ZgcGenerational, 21).unwrap(), "-XX:+UseZGC -XX:+ZGenerational");
        assert_eq!(flags(Collector::ZgcGenerational, 25).unwrap(), "-XX:+UseZGC");
        for (collector, jdk) in [(Collector::Zgc, 25), (Collector::Zgc, 8), (Collector::ZgcGenerational, 17)]
        {
            assert!(collector_flags(collector, jdk).is_err(), "{collector} {jdk}");
        }
    }

    #[test]
    fn what_a_release_does_not_know_is_left_out() {
        assert!(access_flags(8).is_empty());
        assert!(!access_flags(17).iter().any(|flag| flag.contains("unsafe-memory-access")));
        assert!(access_flags(25).iter().any(|flag| flag.contains("unsafe-memory-access")));
        assert!(log_flags(8, "/gc.log".as_ref())[0].starts_with("-Xloggc:"));
        assert!(log_flags(11, "/gc.log".as_ref())[0].starts_with("-Xlog:gc*,safepoint:file=/gc.log:"));
    }
}
