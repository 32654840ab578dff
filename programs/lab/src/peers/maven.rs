//! Jars by coordinates: fetched once through Maven, then taken from the cache without a network.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halcyon_env::Env;

use super::Lab;
use super::server_process::{Order, ServerProcess};

/// Named with its version, so that Maven does not ask the network which one is the newest.
const GOAL: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";
const FETCH_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// How long another lab may be at it.
const LOCK_TIME_MAX: Duration = FETCH_TIME_MAX;
const LOCK_PERIOD: Duration = Duration::from_millis(500);
/// Holds the POM by which the jars beside it were fetched; written last.
const COMPLETE: &str = "complete.xml";

/// A product as its coordinates say.
#[derive(Debug)]
pub(super) struct Jars {
    /// `HBase 2.6.4`.
    pub label: &'static str,
    /// Directory in the cache.
    pub name: &'static str,
    pub pom: &'static str,
}

impl Jars {
    pub fn directory(&self, lab: &Lab) -> PathBuf {
        lab.cache.join(self.name)
    }

    /// Where the jars lie.
    pub fn lib(&self, lab: &Lab) -> PathBuf {
        self.directory(lab).join("lib")
    }

    /// Whether all jars of this very POM are there.
    pub fn is_cached(&self, lab: &Lab) -> bool {
        let complete = lab.env.fs.read(&self.lib(lab).join(COMPLETE));
        complete.is_ok_and(|pom| pom == self.pom.as_bytes())
    }

    /// Fetches the jars if they are not there. The error is a sentence.
    pub fn fetch(&self, lab: &Lab) -> Result<PathBuf, String> {
        let directory = self.directory(lab);
        let failed = |error: std::io::Error| format!("cannot keep jars: {error}");
        lab.env.fs.create_dir_all(&directory).map_err(failed)?;
        let _lock = lock(&lab.env, &directory.join("lock"))?;
        let lib = self.lib(lab);
        if self.is_cached(lab) {
            return Ok(lib);
        }
        for old in [&lib, &directory.join("fetched")] {
            if lab.env.fs.exists(old).map_err(failed)? {
                lab.env.fs.remove_dir_all(old).map_err(failed)?;
            }
        }
        let pom = directory.join("pom.xml");
        lab.env.fs.replace(&pom, self.pom.as_bytes()).map_err(failed)?;
        let (fetched, out) = (directory.join("fetched"), directory.join("fetch.log"));
        if lab.env.fs.exists(&out).map_err(failed)? {
            lab.env.fs.remove_file(&out).map_err(failed)?;
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut command: Vec<String> = ["mvn", "-q", "-B", "-f"].map(str::to_string).to_vec();
        command.extend([text(&pom), GOAL.to_string(), format!("-DoutputDirectory={}", text(&fetched))]);
        let order = Order {
            command,
            variables: Vec::new(),
            directory: directory.clone(),
            out: out.clone(),
            grace: Duration::from_secs(1),
        };
        eprintln!("fetching {} through Maven into {}", self.label, directory.display());
        let maven = ServerProcess::start(&lab.env, &lab.exe, order).map_err(|why| {
            format!(
                "{} is not in {} and Maven, which fetches it, did not start: {why}",
                self.label,
                directory.display()
            )
        })?;
        if !maven.wait(FETCH_TIME_MAX)? {
            let said = lab.env.fs.read(&out).unwrap_or_default();
            return Err(self.why(&directory, &String::from_utf8_lossy(&said), &out));
        }
        lab.env.fs.replace(&fetched.join(COMPLETE), self.pom.as_bytes()).map_err(failed)?;
        lab.env.fs.rename(&fetched, &lib).and_then(|()| lab.env.fs.sync_dir(&directory)).map_err(failed)?;
        Ok(lib)
    }

    /// What Maven's complaints mean.
    fn why(&self, directory: &Path, said: &str, out: &Path) -> String {
        const NETWORK: &[&str] = &[
            "Unknown host",
            "Network is unreachable",
            "Connection refused",
            "timed out",
            "Temporary failure in name resolution",
            "No route to host",
            "offline mode",
            "Could not transfer",
        ];
        let no_network = NETWORK.iter().any(|sign| said.contains(sign));
        let what =
            if no_network { "the network or the repository cannot be reached" } else { "Maven failed" };
        // Maven puts escapes for colours in front, terminal or not
        let errors = said.lines().filter_map(|line| Some(line.split_once("[ERROR] ")?.1));
        let first: String = errors.clone().next().unwrap_or("it said nothing").chars().take(400).collect();
        format!(
            "{} is not in {} and could not be fetched: {what}: {first} (all of it: {})",
            self.label,
            directory.display(),
            out.display()
        )
    }
}

/// Waits while another process fetches the same.
fn lock(env: &Env, path: &Path) -> Result<Box<dyn halcyon_env::FileLock>, String> {
    let start_ns = env.clock.monotonic_ns();
    loop {
        match env.fs.lock(path) {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                return Err(format!("cannot keep jars: {error}"));
            }
            Err(_) if env.clock.monotonic_ns() - start_ns > LOCK_TIME_MAX.as_nanos() as u64 => {
                return Err(format!("{}: another process keeps it", path.display()));
            }
            Err(_) => env.clock.sleep(LOCK_PERIOD),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JARS: Jars = Jars { label: "Something 1", name: "something", pom: "<project/>" };

    fn lab() -> Lab {
        let env = halcyon_env::sim::SimFileSystem::new().env();
        Lab { env, cache: "/cache".into(), exe: "/none".into() }
    }

    #[test]
    fn a_filled_cache_needs_nothing_and_another_pom_is_another_set() {
        let lab = lab();
        assert!(!JARS.is_cached(&lab));
        let lib = JARS.lib(&lab);
        lab.env.fs.create_dir_all(&lib).unwrap();
        lab.env.fs.replace(&lib.join(COMPLETE), b"<project/>").unwrap();
        assert_eq!(JARS.fetch(&lab).unwrap(), lib);
        let other = Jars { pom: "<project>2</project>", ..JARS };
        assert!(!other.is_cached(&lab));
        let told = other.fetch(&lab).unwrap_err();
        assert!(told.contains("Something 1 is not in /cache/something and Maven"), "{told}");
    }

    #[test]
    fn what_maven_says_becomes_a_sentence() {
        let said = "[INFO] x\n\x1b[0m[ERROR] Plugin p or one of its dependencies could not be resolved: Unknown host repo\n[ERROR] more";
        let told = JARS.why("/cache".as_ref(), said, "/cache/fetch.log".as_ref());
        assert!(told.contains("the network or the repository cannot be reached: Plugin p or one"), "{told}");
        let told = JARS.why("/cache".as_ref(), "[ERROR] Malformed POM", "/cache/fetch.log".as_ref());
        assert!(told.contains("Maven failed: Malformed POM"), "{told}");
    }
}
