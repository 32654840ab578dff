//! The crates of the workspace and what each depends on, as `cargo metadata` tells it.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// A crate of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its folder below the root of the workspace, such as `base/cell`.
    pub folder: String,
    pub name: String,
    pub dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    pub name: String,
    /// Only for tests, examples and benchmarks.
    pub dev: bool,
}

/// Part of what `cargo metadata --format-version 1` prints.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<PackageDependency>,
}

#[derive(Deserialize)]
struct PackageDependency {
    name: String,
    /// `dev`, `build`, or null for an ordinary one.
    kind: Option<String>,
}

/// Asks `cargo` for the crates of the workspace at `root`. The error is a sentence.
pub fn read_workspace(root: &Path) -> Result<Vec<Manifest>, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    parse(&output.stdout, &root)
}

fn parse(json: &[u8], root: &Path) -> Result<Vec<Manifest>, String> {
    let metadata: Metadata =
        serde_json::from_slice(json).map_err(|error| format!("cargo metadata: {error}"))?;
    metadata.packages.into_iter().map(|package| manifest(package, root)).collect()
}

fn manifest(package: Package, root: &Path) -> Result<Manifest, String> {
    let folder = Path::new(&package.manifest_path)
        .parent()
        .and_then(|folder| folder.strip_prefix(root).ok())
        .ok_or_else(|| format!("{}: not below {}", package.manifest_path, root.display()))?;
    let dependencies = package
        .dependencies
        .into_iter()
        .map(|used| Dependency { name: used.name, dev: used.kind.as_deref() == Some("dev") })
        .collect();
    Ok(Manifest { folder: folder.to_string_lossy().into_owned(), name: package.name, dependencies })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_folders_and_kinds() {
        let json = br#"{"packages": [{"name": "halcyon-x", "manifest_path": "/house/base/x/Cargo.toml", "dependencies": [
            {"name": "bytes", "kind": null}, {"name": "protox", "kind": "build"}, {"name": "proptest", "kind": "dev"}]}]}"#;
        let manifests = parse(json, Path::new("/house")).expect("valid");
        let used = |name: &str, dev| Dependency { name: name.to_string(), dev };
        let expected = Manifest {
            folder: "base/x".to_string(),
            name: "halcyon-x".to_string(),
            dependencies: vec![used("bytes", false), used("protox", false), used("proptest", true)],
        };
        assert_eq!(manifests, [expected]);
        assert!(parse(json, Path::new("/other")).is_err());
        assert!(parse(b"{}", Path::new("/house")).is_err());
    }
}
