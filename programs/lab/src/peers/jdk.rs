//! JDKs of this machine.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use halcyon_env::Env;

/// Directories that hold JDKs side by side.
const DIRECTORIES: &[&str] = &["/usr/lib/jvm", "/usr/java", "/usr/local/java", "/opt/java"];
/// The same, below the user's directory.
const DIRECTORIES_OF_USER: &[&str] = &[".sdkman/candidates/java", ".jdks", ".asdf/installs/java"];

/// A Java that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Jdk {
    /// Feature release: 8, 17.
    pub major: u32,
    /// As its `release` file says: `17.0.15`.
    pub version: String,
    /// `Debian`, `Eclipse Adoptium`; empty if it does not say.
    pub implementor: String,
    pub home: PathBuf,
    /// Without a compiler it runs servers, but not the lab's own Java programs.
    pub compiler: bool,
}

impl Jdk {
    pub fn java(&self) -> PathBuf {
        self.home.join("bin/java")
    }
}

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct SearchPaths {
    pub java_home: Option<OsString>,
    pub path: Option<OsString>,
    pub user: Option<OsString>,
    /// Beside the usual ones.
    pub directories: Vec<PathBuf>,
}

impl SearchPaths {
    /// Of this process's environment.
    pub fn of_environment() -> SearchPaths {
        let get = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        SearchPaths {
            java_home: get("JAVA_HOME"),
            path: get("PATH"),
            user: get("HOME"),
            directories: DIRECTORIES.iter().map(PathBuf::from).collect(),
        }
    }
}

/// All JDKs, each once, by version. What has no `release` file is not one: JDK 8 and all later ones have it.
pub fn find(env: &Env, places: &SearchPaths) -> Vec<Jdk> {
    let mut homes: Vec<PathBuf> = places.java_home.iter().map(PathBuf::from).collect();
    for directory in places.path.iter().flat_map(std::env::split_paths) {
        // a link such as /usr/bin/java leads to the JDK
        if let Ok(java) = directory.join("java").canonicalize()
            && let Some(home) = java.parent().and_then(Path::parent)
        {
            homes.push(home.to_path_buf());
        }
    }
    let beside: Vec<PathBuf> = homes.iter().filter_map(|home| home.parent()).map(PathBuf::from).collect();
    let of_user = places
        .user
        .iter()
        .flat_map(|user| DIRECTORIES_OF_USER.iter().map(move |directory| Path::new(user).join(directory)));
    for directory in places.directories.iter().cloned().chain(of_user).chain(beside) {
        let entries = env.fs.list(&directory).unwrap_or_default();
        homes.extend(entries.iter().filter(|entry| entry.is_dir).map(|entry| directory.join(&entry.name)));
    }
    let real: BTreeSet<PathBuf> = homes.iter().filter_map(|home| home.canonicalize().ok()).collect();
    let mut found: Vec<Jdk> = real.iter().filter_map(|home| read(env, home)).collect();
    // JRE inside an old JDK: the JDK is enough
    let homes: Vec<PathBuf> = found.iter().map(|jdk| jdk.home.clone()).collect();
    found.retain(|jdk| !homes.iter().any(|home| home.join("jre") == jdk.home));
    found.sort();
    found
}

/// The newest of a feature release, one with a compiler first. The error names what there is instead.
pub fn choose(found: &[Jdk], major: u32, compiler: bool) -> Result<&Jdk, String> {
    let fits = |jdk: &&Jdk| jdk.major == major && (jdk.compiler || !compiler);
    let best = found.iter().filter(fits).max_by_key(|jdk| (jdk.compiler, numbers(&jdk.version)));
    best.ok_or_else(|| {
        if found.iter().any(|jdk| jdk.major == major) {
            return format!(
                "the JDK {major} of this machine has no compiler (a JRE), which the lab's Java programs need"
            );
        }
        let versions: BTreeSet<u32> = found.iter().map(|jdk| jdk.major).collect();
        let versions: Vec<String> = versions.iter().map(u32::to_string).collect();
        let there = match versions.as_slice() {
            [] => "there is none".to_string(),
            some => format!("there are {}", some.join(", ")),
        };
        format!(
            "no JDK {major} was found ({there}); JAVA_HOME, PATH, /usr/lib/jvm and ~/.sdkman were looked at"
        )
    })
}

fn numbers(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn read(env: &Env, home: &Path) -> Option<Jdk> {
    if !env.fs.exists(&home.join("bin/java")).ok()? {
        return None;
    }
    let release = env.fs.read(&home.join("release")).ok()?;
    let release = String::from_utf8_lossy(&release);
    let value = |name: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(line.trim().trim_matches('"').to_string())
    };
    let version = value("JAVA_VERSION")?;
    let parts = numbers(&version);
    let major = match parts.as_slice() {
        [1, major, ..] => *major, // 1.8.0_392
        [major, ..] => *major,
        [] => return None,
    };
    let compiler = env.fs.exists(&home.join("bin/javac")).ok()?;
    let implementor = value("IMPLEMENTOR").unwrap_or_default();
    Some(Jdk { major, version, implementor, home: home.to_path_buf(), compiler })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories to look into
mod tests {
    use std::fs;

    use super::*;

    fn jdk(home: &Path, release: &str, compiler: bool) {
        fs::create_dir_all(home.join("bin")).unwrap();
        fs::write(home.join("bin/java"), "").unwrap();
        fs::write(home.join("release"), release).unwrap();
        if compiler {
            fs::write(home.join("bin/javac"), "").unwrap();
        }
    }

    #[test]
    fn jdks_are_found_where_they_usually_lie() {
        let root = std::env::temp_dir().join(format!("halcyon-jdks-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let release = |version: &str| format!("IMPLEMENTOR=\"Somebody\"\nJAVA_VERSION=\"{version}\"\n");
        jdk(&root.join("jvm/jdk-17"), &release("17.0.9"), true);
        jdk(&root.join("jvm/jdk-17-newer"), &release("17.0.15"), true);
        jdk(&root.join("jvm/jre-21"), &release("21"), false);
        jdk(&root.join("jvm/jdk8"), &release("1.8.0_392"), true);
        jdk(&root.join("jvm/jdk8/jre"), &release("1.8.0_392"), false);
        jdk(&root.join("jvm/broken"), "JAVA_VERSION=\"\"\n", true);
        fs::create_dir_all(root.join("jvm/no-java")).unwrap();
        std::os::unix::fs::symlink("jdk-17", root.join("jvm/default")).unwrap();
        jdk(&root.join("home/.sdkman/candidates/java/11.0.2-open"), &release("11.0.2"), true);
        jdk(&root.join("own/25"), &release("25.0.3"), true);
        fs::create_dir_all(root.join("bin")).unwrap();
        std::os::unix::fs::symlink(root.join("own/25/bin/java"), root.join("bin/java")).unwrap();
        let places = SearchPaths {
            java_home: Some(root.join("jvm/jdk8").into()),
            path: Some(root.join("bin").into()),
            user: Some(root.join("home").into()),
            directories: vec![root.join("jvm"), root.join("none")],
        };
        let found = find(&Env::real(), &places);
        let versions: Vec<&str> = found.iter().map(|jdk| jdk.version.as_str()).collect();
        assert_eq!(versions, ["1.8.0_392", "11.0.2", "17.0.15", "17.0.9", "21", "25.0.3"]);
        assert_eq!(found[0].implementor, "Somebody");
        assert_eq!(choose(&found, 17, true).unwrap().version, "17.0.15");
        assert_eq!(choose(&found, 8, true).unwrap().home, root.join("jvm/jdk8").canonicalize().unwrap());
        assert_eq!(choose(&found, 21, false).unwrap().version, "21");
        assert!(choose(&found, 21, true).unwrap_err().contains("no compiler"));
        let told = choose(&found, 19, false).unwrap_err();
        assert!(told.starts_with("no JDK 19 was found (there are 8, 11, 17, 21, 25)"), "{told}");
        assert!(choose(&[], 17, false).unwrap_err().contains("there is none"));
        fs::remove_dir_all(root).unwrap();
    }
}
