//! How long the calls take that a server makes often. Needs CLUSTER_HDFS, as `testing/cluster/cluster.sh run` sets it:
//! `testing/cluster/cluster.sh run cargo run --example latencies -p halcyon-hdfs`

use std::io;
use std::path::Path;

use halcyon_env::{Clock, FileSystem, SystemClock};
use halcyon_hdfs::{CreateOptions, HdfsAddress, HdfsFileSystem, HdfsOptions, Site};

const ROUNDS: usize = 300;
const FILE_BYTES: usize = 16 << 20;
const PIECES_BYTES: [usize; 2] = [4 << 10, 64 << 10];

fn measure(name: &str, mut body: impl FnMut(usize) -> io::Result<()>) -> io::Result<()> {
    let clock = SystemClock::new();
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let start = clock.monotonic_ns();
        body(round)?;
        times.push((clock.monotonic_ns() - start) as f64 / 1e6);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{name:<28} p50 {:7.2} ms   p99 {:7.2} ms   max {:7.2} ms", at(0.5), at(0.99), at(1.0));
    Ok(())
}

fn main() -> io::Result<()> {
    let root = std::env::var("CLUSTER_HDFS").map_err(|_| io::Error::other("CLUSTER_HDFS is not set"))?;
    let fs = HdfsFileSystem::new(HdfsAddress::new(&root, &Site::default())?, HdfsOptions::default())?;
    let dir = Path::new("/latencies");
    fs.create_dir_all(dir)?;
    let file = |round: usize| dir.join(format!("f{round}"));
    let moved = |round: usize| dir.join(format!("m{round}"));
    measure("look up", |_| fs.list(dir).map(|_| ()))?;
    let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
    measure("create and close", |round| fs.create_with(&file(round), options)?.close())?;
    measure("put_new of 1 KiB", |round| fs.put_new(&dir.join(format!("p{round}")), &[1; 1024]))?;
    measure("rename", |round| fs.rename(&dir.join(format!("p{round}")), &moved(round)))?;
    let mut log = fs.create_log(&dir.join("log"))?;
    log.write_all(&[1; 1024])?;
    log.sync()?;
    measure("1 KiB and flush (hflush)", |_| log.write_all(&[1; 1024]).and_then(|()| log.flush()))?;
    measure("1 KiB and sync (hsync)", |_| log.write_all(&[1; 1024]).and_then(|()| log.sync()))?;
    log.close()?;
    let mut large = fs.create_with(&dir.join("large"), options)?;
    (0..FILE_BYTES >> 20).try_for_each(|_| large.write_all(&[7; 1 << 20]))?;
    large.close()?;
    let open = fs.open(&dir.join("large"))?;
    for bytes in PIECES_BYTES {
        let mut buffer = vec![0; bytes];
        measure(&format!("read {} KiB", bytes >> 10), |round| {
            let offset = (round * 7_919_357) % (FILE_BYTES - bytes);
            open.read_exact_at(&mut buffer, offset as u64)
        })?;
    }
    fs.remove_dir_all(dir)
}
