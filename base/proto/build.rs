#![allow(clippy::disallowed_methods)] // a build script reads the source tree
//! Compiles `proto/*.proto` with protox, so that no `protoc` has to be installed.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(Path::new("proto"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    let descriptors = protox::compile(&files, ["proto"])?;
    let mut config = prost_build::Config::new();
    config.bytes(["."]);
    // A Multi has thousands of these, of which each uses one; in a list of whole ones most of the room would be empty.
    for part in ["mutation", "get", "service_call"] {
        config.boxed(format!(".hbase.pb.Action.{part}"));
    }
    config.compile_fds(descriptors)?;
    Ok(())
}
