//! The little of a `Cargo.toml` that the floors are about: the crate's name and what it depends on.
//!
//! Read line by line and not by a TOML library: the manifests of this workspace are written one dependency a line, and
//! a form that this reader does not know is an error and not silence.

/// A crate as its manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub name: String,
    pub dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    pub name: String,
    /// Only for tests and benchmarks.
    pub dev: bool,
}

impl Manifest {
    /// Reads a manifest; the error is a sentence.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let mut name = None;
        let mut dependencies = Vec::new();
        let mut section = String::new();
        let mut depth = 0_i32; // inside a value that goes over several lines
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if depth == 0 {
                if let Some(header) = line.strip_prefix('[') {
                    section = header.trim_end_matches(']').trim_matches('[').trim().to_string();
                    if let Some(dependency) = table_of_one(&section) {
                        dependencies.push(dependency);
                    }
                    continue;
                }
                let (key, value) = line
                    .split_once('=')
                    .ok_or_else(|| format!("line {}: neither a section nor a key", number + 1))?;
                let key = key.trim();
                if section == "package" && key == "name" {
                    name = Some(value.trim().trim_matches('"').to_string());
                } else if let Some(dev) = kind(&section) {
                    let crate_name = key.split('.').next().unwrap_or(key).trim_matches('"');
                    dependencies.push(Dependency { name: crate_name.to_string(), dev });
                }
            }
            depth += brackets(line);
        }
        let name = name.ok_or("no package name")?;
        Ok(Manifest { name, dependencies })
    }
}

/// Whether a section lists dependencies, and if so whether those of tests.
fn kind(section: &str) -> Option<bool> {
    match section.rsplit('.').next() {
        Some("dependencies" | "build-dependencies") => Some(false),
        Some("dev-dependencies") => Some(true),
        _ => None,
    }
}

/// `[dependencies.some-crate]`, a section for one dependency.
fn table_of_one(section: &str) -> Option<Dependency> {
    let (parent, name) = section.rsplit_once('.')?;
    let dev = kind(parent)?;
    Some(Dependency { name: name.trim_matches('"').to_string(), dev })
}

fn brackets(line: &str) -> i32 {
    line.chars().fold(0, |depth, c| match c {
        '[' | '{' => depth + 1,
        ']' | '}' => depth - 1,
        _ => depth,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(manifest: &Manifest) -> Vec<(&str, bool)> {
        manifest.dependencies.iter().map(|d| (d.name.as_str(), d.dev)).collect()
    }

    #[test]
    fn reads_every_way_to_write_a_dependency() {
        let manifest = Manifest::parse(
            r#"
[package]
name = "halcyon-x" # a comment
version.workspace = true

[dependencies]
bytes.workspace = true
halcyon-cell = { path = "../cell" }
tokio = { workspace = true, features = [
    "rt",
    "net",
] }

[dependencies.halcyon-env]
workspace = true

[target.'cfg(unix)'.dependencies]
libc = "0.2"

[dev-dependencies]
halcyon-testkit.workspace = true

[build-dependencies]
protox.workspace = true

[lints]
workspace = true
"#,
        )
        .expect("a manifest");
        assert_eq!(manifest.name, "halcyon-x");
        assert_eq!(
            names(&manifest),
            [
                ("bytes", false),
                ("halcyon-cell", false),
                ("tokio", false),
                ("halcyon-env", false),
                ("libc", false),
                ("halcyon-testkit", true),
                ("protox", false),
            ]
        );
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        assert!(Manifest::parse("[package]\nname = \"x\"\n[dependencies]\nsomething odd\n").is_err());
        assert!(Manifest::parse("[dependencies]\nbytes = \"1\"\n").is_err());
    }
}
