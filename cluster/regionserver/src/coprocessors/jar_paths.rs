//! From where the JVM may load jars that tables name (HBase: `CoprocessorWhitelistMasterObserver`).
//!
//! Whoever may create or alter a table names the class and the jar of a coprocessor, and so decides which code runs beside the server. With
//! `hbase.coprocessor.region.whitelist.paths` the operator says where such jars may be. HBase asks when a table is created or
//! altered; here a region that opens asks as well, because a descriptor also comes from a snapshot, from another cluster, or from the file system.

use halcyon_cell::{Error, Result};
use halcyon_schema::TableDescriptor;

/// The setting.
pub(crate) const JAR_PATHS: &str = "hbase.coprocessor.region.whitelist.paths";

/// `Invalid` if the table names a jar that no path of the list allows. `list`: paths with commas between them, in which `*` stands for any
/// letters and `?` for one; a path without a scheme is one of any file system.
pub(crate) fn check(table: &TableDescriptor, list: &str) -> Result<()> {
    let allowed: Vec<&str> = list.split(',').map(str::trim).filter(|path| !path.is_empty()).collect();
    for (key, value) in table.attributes() {
        if !key.to_ascii_lowercase().starts_with(b"coprocessor$") {
            continue;
        }
        let value = String::from_utf8_lossy(value);
        let mut parts = value.split('|').map(str::trim);
        let (jar, class) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !jar.is_empty() && !allowed.iter().any(|path| allows(path, jar)) {
            return Err(Error::invalid(format!(
                "Loading {class} DENIED in {JAR_PATHS}: {jar} is in no path of it"
            )));
        }
    }
    Ok(())
}

/// A path as Hadoop reads it: scheme and host in small letters, no part that is `.` or `..`.
struct JarPath {
    scheme: String,
    host: String,
    path: String,
}

impl JarPath {
    fn parse(text: &str) -> JarPath {
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if !scheme.contains('/') => (scheme, rest),
            _ => ("", text),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = host.split(':').next().unwrap_or_default();
        let is_absolute = path.starts_with('/') || !scheme.is_empty();
        JarPath {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_ascii_lowercase(),
            path: normal(path, is_absolute),
        }
    }

    fn is_of_any_file_system(&self) -> bool {
        self.scheme.is_empty() && self.host.is_empty() && self.path.starts_with('/')
    }
}

fn normal(path: &str, is_absolute: bool) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    format!("{}{}", if is_absolute { "/" } else { "" }, parts.join("/"))
}

/// `CoprocessorWhitelistMasterObserver.validatePath`. A jar whose name Hadoop changes after the comparison is allowed only where every path
/// of its file system is: it takes a choice between several (`{a,b}`) apart, and backslashes out of each part, which may be `\..`.
fn allows(path: &str, jar: &str) -> bool {
    if path == "*" {
        return true;
    }
    let (path, asked) = (JarPath::parse(path), JarPath::parse(jar));
    let is_same = (&path.scheme, &path.host) == (&asked.scheme, &asked.host);
    if !path.is_of_any_file_system() && !is_same {
        return false;
    }
    if path.path == "/" {
        return true;
    }
    let is_changed = asked.path.contains(['{', '}', '\\']) || asked.path.split('/').any(|part| part == "..");
    !is_changed && matches(path.path.as_bytes(), asked.path.as_bytes())
}

/// Whether a text is one of a pattern with `*` and `?` (`FilenameUtils.wildcardMatch`).
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // Where the last asterisk stands, and what it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(of) {
            Some(b'*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(letter) if *letter == b'?' || *letter == text[at] => (at, of) = (at + 1, of + 1),
            _ => {
                let Some((asterisk, from)) = star else { return false };
                star = Some((asterisk, from + 1));
                (at, of) = (from + 1, asterisk + 1);
            }
        }
    }
    pattern[of..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    const JARS: [&str; 13] = [
        "file:///opt/a.jar",
        "file:/opt/a.jar",
        "/opt/a.jar",
        "opt/a.jar",
        "hdfs://nn:8020/opt/a.jar",
        "hdfs://NN/opt/a.jar",
        "hdfs:///opt/a.jar",
        "file:///opt/../etc/a.jar",
        "file:///opt//x/./a.jar",
        "file:///opt/x/a.jar",
        "/opt",
        "s3a://b/opt/a.jar",
        "file://host/opt/a.jar",
    ];

    /// What the class of HBase 2.6.4 answers, one figure for each of the jars.
    #[test]
    fn paths_allow_what_they_do_in_hbase() {
        for (path, answers) in [
            ("*", "1111111111111"),
            ("/", "1111111111111"),
            ("file:///", "1100000111000"),
            ("file:///opt", "0000000000000"),
            ("file:///opt/", "0000000000000"),
            ("file:///opt/*", "1100000011000"),
            ("/opt/*", "1110111011011"),
            ("/opt/?.jar", "1110111000011"),
            ("/opt/a.jar", "1110111000011"),
            ("hdfs://nn", "0000110000000"),
            ("hdfs://nn/", "0000110000000"),
            ("hdfs://nn/opt/*", "0000110000000"),
            ("hdfs:///opt/*", "0000001000000"),
            ("HDFS://nn/*", "0000110000000"),
            ("opt/*", "0001000000000"),
            ("*.jar", "0011000000000"),
            ("hdfs:///*", "0000001000000"),
            ("file:/opt/*.jar", "1100000011000"),
            ("/opt/**", "1110111011011"),
        ] {
            let allowed: String = JARS.iter().map(|jar| if allows(path, jar) { '1' } else { '0' }).collect();
            assert_eq!(allowed, answers, "{path}");
        }
    }

    /// Hadoop takes such a name apart after the comparison, so that its parts may lie anywhere; HBase allows it.
    #[test]
    fn a_choice_between_names_is_no_way_out() {
        assert!(!allows("/opt/*", "file:///opt/{a,/../../etc/b}.jar"));
        assert!(!allows("/opt/*", "/opt/{a,b}.jar"));
        assert!(!allows("*/opt/*", "../../opt/b.jar"));
        assert!(!allows("file:///opt/*", "file:///opt/\\../tmp/evil.jar"));
        assert!(!allows("hdfs://nn/apps/*", "hdfs://nn/apps/\\.\\./tmp/evil.jar"));
        assert!(!allows("/opt/*", "/opt/a\\.jar"));
        assert!(allows("file:///", "file:///opt/\\../tmp/a.jar"));
        assert!(allows("file:///", "file:///opt/{a,b}.jar"));
        assert!(allows("/opt/*", "/opt/*.jar"));
    }

    #[test]
    fn a_table_is_asked_for_the_jars_of_all_its_classes() {
        let table = TableDescriptor::new(TableName::parse(b"t").unwrap())
            .with("coprocessor$1", "|org.x.OnTheClassPath|1|")
            .with("Coprocessor$2", " file:///opt/a.jar | org.x.Index |1001|k=/etc/b.jar");
        check(&table, "file:///srv/*, file:///opt/*").unwrap();
        let error = check(&table, "file:///srv/*").unwrap_err();
        for word in ["org.x.Index", JAR_PATHS, "file:///opt/a.jar"] {
            assert!(error.message().contains(word), "{error}");
        }
        check(&table, "").unwrap_err();
    }
}
