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
    write_descriptors(&descriptors)?;
    let mut config = prost_build::Config::new();
    config.bytes(["."]);
    // A Multi has thousands of these, of which each uses one; in a list of whole ones most of the room would be empty.
    for part in ["mutation", "get", "service_call"] {
        config.boxed(format!(".hbase.pb.Action.{part}"));
    }
    // The parameters of procedures go with their types.
    config.enable_type_names();
    config.type_name_domain(["."], "type.googleapis.com");
    config.compile_fds(descriptors)?;
    Ok(())
}

/// For programs that show messages whose types they learn at run time; without the comments.
fn write_descriptors(all: &prost_types::FileDescriptorSet) -> Result<(), Box<dyn std::error::Error>> {
    let mut all = all.clone();
    all.file.iter_mut().for_each(|file| file.source_code_info = None);
    let path = Path::new(&std::env::var("OUT_DIR")?).join("descriptors.bin");
    Ok(std::fs::write(path, prost::Message::encode_to_vec(&all))?)
}
