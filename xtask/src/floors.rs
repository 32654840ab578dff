//! The floors: who may depend on whom.
//!
//! ```text
//! base  <  storage, wire  <  cluster  <  programs        testing: anywhere, but only as a dev-dependency
//! ```
//!
//! A crate may use every floor below its own. `storage` and `wire` are strangers. Within a floor only the pairs in
//! [`SIDEWAYS`] are allowed, and a pair there needs a reason. The floor of a crate is the folder it lies in.

use std::collections::BTreeMap;
use std::path::Path;

use crate::manifest::{Manifest, read_workspace};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Floor {
    Base,
    Storage,
    Wire,
    Cluster,
    Programs,
    Testing,
    Xtask,
}

impl Floor {
    fn of_folder(folder: &str) -> Option<Floor> {
        Some(match folder {
            "base" => Floor::Base,
            "storage" => Floor::Storage,
            "wire" => Floor::Wire,
            "cluster" => Floor::Cluster,
            "programs" => Floor::Programs,
            "testing" => Floor::Testing,
            "xtask" => Floor::Xtask,
            _ => return None,
        })
    }

    /// Height; equal heights are different rooms of one floor.
    fn height(self) -> u8 {
        match self {
            Floor::Base => 0,
            Floor::Storage | Floor::Wire => 1,
            Floor::Cluster => 2,
            Floor::Programs => 3,
            Floor::Testing | Floor::Xtask => 4,
        }
    }
}

/// Neighbours on one floor that may be used: (who, whom).
const SIDEWAYS: &[(&str, &str)] = &[
    // descriptors are protobuf messages, and hold names and times of cells
    ("halcyon-schema", "halcyon-cell"),
    ("halcyon-schema", "halcyon-proto"),
    // a table's descriptor is a file with rules of its own, which master and region server read
    ("halcyon-schema", "halcyon-env"),
    // a value that makes no sense is an error like others
    ("halcyon-settings", "halcyon-cell"),
    // codecs have the names that descriptors give them, and a damaged stream is an error like others
    ("halcyon-compression", "halcyon-cell"),
    ("halcyon-compression", "halcyon-schema"),
    // a wrapped key is a protobuf message, and one that cannot be unwrapped is an error like others
    ("halcyon-crypto", "halcyon-cell"),
    ("halcyon-crypto", "halcyon-proto"),
    // whoever opens files has the keys for them
    ("halcyon-env", "halcyon-crypto"),
    // threads come through one door
    ("halcyon-env", "halcyon-scheduler"),
    // blocks are read through the cache
    ("halcyon-hfile", "halcyon-cache"),
    // the region is where the storage floor comes together
    ("halcyon-region", "halcyon-memstore"),
    ("halcyon-region", "halcyon-wal"),
    ("halcyon-region", "halcyon-cache"),
    ("halcyon-region", "halcyon-hfile"),
    ("halcyon-region", "halcyon-filter"),
    // the client speaks the same frames as the server
    ("halcyon-client", "halcyon-rpc"),
    // the messages between master and region server; neither knows the other
    ("halcyon-master", "halcyon-contract"),
    ("halcyon-regionserver", "halcyon-contract"),
    // the same messages over the network
    ("halcyon-servers", "halcyon-contract"),
    // a master gives some orders through ZooKeeper
    ("halcyon-zookeeper", "halcyon-contract"),
    // clients find a cluster through one service, which the master answers too
    ("halcyon-master", "halcyon-coord"),
    // the coordinator over ZooKeeper is one of two; the trait and the lease are shared with the embedded one
    ("halcyon-zookeeper", "halcyon-coord"),
    // one binary: the lab is a library of its own, and a subcommand of the program
    ("halcyon", "halcyon-lab"),
    // the inspector is a subcommand as well, and knows no server
    ("halcyon", "halcyon-inspect"),
    // the check of a root directory, likewise; it reads meta as the inspector does, and finds a cluster as the load does
    ("halcyon", "halcyon-check"),
    ("halcyon-check", "halcyon-inspect"),
    ("halcyon-check", "halcyon-load"),
    // the load generators are subcommands of the one program, and a crate of their own
    ("halcyon", "halcyon-load"),
    // the terminal tools are subcommands too, and find a cluster with the options of the load generators
    ("halcyon", "halcyon-top"),
    ("halcyon", "halcyon-tune"),
    ("halcyon", "halcyon-migrate"),
    ("halcyon", "halcyon-import"),
    // addresses are written as those of a migration
    ("halcyon-import", "halcyon-migrate"),
    ("halcyon", "halcyon-shadow"),
    // clusters are named by the same URLs, and latencies drawn by the same hand
    ("halcyon-shadow", "halcyon-migrate"),
    ("halcyon-shadow", "halcyon-lab"),
    ("halcyon-top", "halcyon-load"),
    ("halcyon-tune", "halcyon-load"),
    // the info ports take profiles; the signal handler has a crate of its own
    ("halcyon", "halcyon-profile"),
    // the shell is a subcommand of the one program, and a crate of its own
    ("halcyon", "halcyon-shell"),
];

/// As [`SIDEWAYS`], for tests alone.
const SIDEWAYS_IN_TESTS: &[(&str, &str)] = &[
    // both roles together over one disk that fails
    ("halcyon-regionserver", "halcyon-master"),
];

/// Libraries that stay out of floors: (floor, library, why).
const OUTSIDE: &[(Floor, &str, &str)] = &[
    (Floor::Base, "tokio", "base starts no threads"),
    (Floor::Storage, "tokio", "the caller drives storage; it has no runtime of its own"),
];

/// Looks at all crates of the workspace; each complaint is one line.
pub fn check(root: &Path) -> Vec<String> {
    match read_workspace(root) {
        Ok(crates) => judge(&crates),
        Err(error) => vec![error],
    }
}

fn judge(crates: &[Manifest]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut floors = BTreeMap::new();
    for manifest in crates {
        match manifest.folder.split('/').next().and_then(Floor::of_folder) {
            Some(floor) => {
                floors.insert(manifest.name.as_str(), floor);
            }
            None => complaints.push(format!("{}: lies on no floor", manifest.folder)),
        }
    }
    for manifest in crates {
        let Some(&own) = floors.get(manifest.name.as_str()) else { continue };
        for dependency in &manifest.dependencies {
            let verdict = match floors.get(dependency.name.as_str()) {
                Some(&other) => inside(own, &manifest.name, other, &dependency.name, dependency.dev),
                None => outside(own, &dependency.name, dependency.dev),
            };
            if let Some(why) = verdict {
                let Manifest { folder, name, .. } = manifest;
                complaints.push(format!("{folder}/Cargo.toml: {name} on {}: {why}", dependency.name));
            }
        }
    }
    complaints
}

/// Why one crate of ours may not use another, if it may not.
fn inside(own: Floor, name: &str, other: Floor, used: &str, dev: bool) -> Option<String> {
    if own == Floor::Testing {
        return None;
    }
    if other == Floor::Testing {
        return (!dev).then(|| "testing is only ever a dev-dependency".to_string());
    }
    let pair = (name, used);
    if other.height() < own.height() || SIDEWAYS.contains(&pair) || (dev && SIDEWAYS_IN_TESTS.contains(&pair))
    {
        return None;
    }
    Some(if other.height() > own.height() {
        format!("points upward, from {own:?} to {other:?}")
    } else if own != other {
        format!("{own:?} and {other:?} are strangers")
    } else {
        format!("points sideways inside {own:?}; allowed pairs stand in xtask/src/floors.rs")
    })
}

fn outside(own: Floor, used: &str, dev: bool) -> Option<String> {
    if dev {
        return None;
    }
    OUTSIDE
        .iter()
        .find(|(floor, library, _)| *floor == own && *library == used)
        .map(|(_, _, why)| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Dependency;

    fn krate(folder: &str, name: &str, uses: &[&str]) -> Manifest {
        let dependencies = uses
            .iter()
            .map(|used| match used.strip_prefix("dev:") {
                Some(used) => Dependency { name: used.to_string(), dev: true },
                None => Dependency { name: used.to_string(), dev: false },
            })
            .collect();
        Manifest { folder: folder.to_string(), name: name.to_string(), dependencies }
    }

    /// A house in which everything is as it should be, with one crate more.
    fn complaints_with(folder: &str, name: &str, uses: &[&str]) -> Vec<String> {
        let mut crates = vec![
            krate("base/cell", "halcyon-cell", &["bytes"]),
            krate("base/env", "halcyon-env", &[]),
            krate("storage/cache", "halcyon-cache", &["halcyon-cell"]),
            krate("storage/wal", "halcyon-wal", &["halcyon-cell", "dev:tokio", "dev:halcyon-testkit"]),
            krate("wire/rpc", "halcyon-rpc", &["halcyon-cell", "tokio"]),
            krate("cluster/master", "halcyon-master", &["halcyon-rpc", "halcyon-cell"]),
            krate("programs/halcyon", "halcyon", &["halcyon-master", "halcyon-wal"]),
            krate("testing/testkit", "halcyon-testkit", &["halcyon-master", "halcyon-cache"]),
        ];
        assert_eq!(judge(&crates), Vec::<String>::new());
        crates.push(krate(folder, name, uses));
        judge(&crates)
    }

    #[test]
    fn downward_is_allowed() {
        assert!(complaints_with("storage/new", "new", &["halcyon-cell", "halcyon-env"]).is_empty());
        assert!(complaints_with("cluster/new", "new", &["halcyon-rpc", "halcyon-wal", "tokio"]).is_empty());
    }

    #[test]
    fn upward_is_not() {
        let complaints = complaints_with("base/new", "new", &["halcyon-cache"]);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].contains("points upward, from Base to Storage"), "{complaints:?}");
        assert_eq!(complaints_with("storage/new", "new", &["halcyon-master"]).len(), 1);
        // a test may not look upward either, but for testing
        assert_eq!(complaints_with("storage/new", "new", &["dev:halcyon-master"]).len(), 1);
    }

    #[test]
    fn storage_and_wire_are_strangers() {
        let complaints = complaints_with("storage/new", "new", &["halcyon-rpc"]);
        assert!(complaints[0].contains("strangers"), "{complaints:?}");
        assert!(complaints_with("wire/new", "new", &["halcyon-wal"])[0].contains("strangers"));
    }

    #[test]
    fn sideways_only_where_it_is_written_down() {
        assert!(complaints_with("storage/hfile", "halcyon-hfile", &["halcyon-cache"]).is_empty());
        let complaints = complaints_with("storage/new", "halcyon-new", &["halcyon-cache"]);
        assert!(complaints[0].contains("points sideways inside Storage"), "{complaints:?}");
    }

    #[test]
    fn testing_is_a_dev_dependency() {
        assert!(complaints_with("storage/new", "new", &["dev:halcyon-testkit"]).is_empty());
        assert_eq!(complaints_with("storage/new", "new", &["halcyon-testkit"]).len(), 1);
    }

    #[test]
    fn storage_has_no_runtime() {
        assert!(complaints_with("storage/new", "new", &["dev:tokio"]).is_empty());
        assert!(complaints_with("storage/new", "new", &["tokio"])[0].contains("no runtime"));
    }

    #[test]
    fn every_crate_has_a_floor() {
        assert!(complaints_with("attic/new", "new", &[])[0].contains("lies on no floor"));
    }

    #[test]
    fn this_workspace_holds() {
        let root = crate::root();
        assert!(read_workspace(&root).expect("cargo knows the workspace").len() > 10);
        assert_eq!(check(&root), Vec::<String>::new());
    }
}
