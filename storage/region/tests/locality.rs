//! How much of a region is on the machine of its server.

use std::sync::Arc;

use crate::common::*;
use halcyon_env::sim::SimFileSystem;
use halcyon_schema::FamilyDescriptor;

fn flushed_on(fs: SimFileSystem) -> (Bench, Arc<SimFileSystem>) {
    let fs = Arc::new(fs);
    let bench = Bench::on(fs.clone(), &[FamilyDescriptor::new(b"f").unwrap()]);
    write(&bench, "row", halcyon_region::MutationKind::Put).unwrap();
    assert_eq!(bench.region.store_file_bytes_at("data-node-0"), 0, "there is no file yet");
    bench.region.flush(None).unwrap();
    (bench, fs)
}

#[test]
fn bytes_on_a_host() {
    let (bench, fs) = flushed_on(SimFileSystem::hdfs(1));
    let store_dir = bench.region.dir().join("f");
    let files = store_files(&bench);
    let holders = fs.data_nodes_of(&store_dir.join(&files[0])).unwrap();
    assert_eq!(holders.len(), 3);
    let all = bench.region.stats().store_file_bytes;
    for number in 0..4 {
        let expected = if holders.contains(&number) { all } else { 0 };
        assert_eq!(bench.region.store_file_bytes_at(&format!("data-node-{number}")), expected);
    }
    assert_eq!(bench.region.store_file_bytes_at("elsewhere"), 0);
}

#[test]
fn a_file_of_this_machine_is_here_whatever_its_name() {
    let (bench, _) = flushed_on(SimFileSystem::new());
    let all = bench.region.stats().store_file_bytes;
    assert!(all > 0);
    assert_eq!(bench.region.store_file_bytes_at("any"), all);
}
