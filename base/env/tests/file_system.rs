//! The machine's file system and the simulated one keep the promises of every file system.
#![allow(clippy::disallowed_methods)] // a directory of the machine, for the real file system

use std::path::Path;

use halcyon_env::RealFileSystem;
use halcyon_env::sim::SimFileSystem;
use halcyon_testkit::{FileAbilities, check_fences, check_file_system, for_each_seed};

#[test]
fn the_simulated_file_system() {
    check_file_system(&SimFileSystem::new(), Path::new("/"), FileAbilities::LOCAL);
    let fs = SimFileSystem::new();
    check_fences(&fs, &fs, Path::new("/"), FileAbilities::LOCAL);
}

#[test]
fn the_simulated_hdfs() {
    for_each_seed("-p halcyon-env --test file_system the_simulated_hdfs", 0..100, |seed| {
        check_file_system(&SimFileSystem::hdfs(seed), Path::new("/"), FileAbilities::HDFS);
        let fs = SimFileSystem::hdfs(seed);
        check_fences(&fs, &fs, Path::new("/"), FileAbilities::HDFS);
    });
}

#[test]
fn the_real_file_system() {
    let root = std::env::temp_dir().join(format!("halcyon-env-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    check_file_system(&RealFileSystem, &root, FileAbilities::LOCAL);
    let fences = root.join("fences");
    std::fs::create_dir(&fences).unwrap();
    check_fences(&RealFileSystem, &RealFileSystem, &fences, FileAbilities::LOCAL);
    std::fs::remove_dir_all(&root).unwrap();
}
