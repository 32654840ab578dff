//! Random lives of a cache with a file tier: blocks come and go, files are compacted, the machine dies, disks fail and
//! lie. Whatever is found is the block that belongs there. `HALCYON_SEED` moves all seeds of this file;
//! `cargo xtask fuzz cache` runs it with new ones.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cache::{
    Block, BlockCache, BlockKind, BlockOffset, BlockPriority, CachedFile, FileIdentity, FileTierOptions,
    FromFile,
};
use halcyon_env::FileSystem;
use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
use halcyon_testkit::Random;

const CACHE: &str = "/ssd/cache";
const INDEX: &str = "/ssd/index";
const FILES: usize = 6;
const OFFSETS: usize = 300;
const SEEDS: u64 = 60;

/// One life of the process.
struct Life {
    cache: Arc<BlockCache>,
    /// Files that are open, with what they are.
    files: Vec<(u64, CachedFile)>,
}

/// All that is decided by the dice.
struct World {
    fs: SimFileSystem,
    dice: Random,
    /// The next file's stamp.
    next_stamp: u64,
    /// Files that exist.
    stamps: Vec<u64>,
    found: [usize; 2],
}

fn block(stamp: u64, offset: u64) -> Arc<Block> {
    let mut dice = Random::new(stamp << 32 | offset);
    let len = 500 + dice.below(6000);
    let payload: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| dice.next_u64().to_be_bytes()).collect();
    let marks = (0..dice.below(5)).map(|_| dice.next_u64()).collect();
    let notes = vec![stamp as u8; dice.below(9)].into();
    let held_bytes = payload.len();
    Arc::new(Block::new(BlockKind::Data, Bytes::from(payload), marks, held_bytes).with_notes(notes))
}

fn assert_is(found: &Block, stamp: u64, offset: u64) {
    let expected = block(stamp, offset);
    assert!(found.bytes() == expected.bytes(), "another block at {offset} of file {stamp}");
    assert_eq!((found.marks(), found.notes()), (expected.marks(), expected.notes()));
}

impl World {
    fn begin(&mut self) -> Life {
        let options = FileTierOptions {
            path: CACHE.into(),
            size_bytes: [2 << 20, 3 << 20][usize::from(self.dice.one_in(8))],
            index_path: Some(INDEX.into()),
            queue_blocks_max: 1 + self.dice.below(40),
        };
        let cache = BlockCache::with_file_tier(1 << 20, Arc::new(self.fs.clone()), options);
        let cache = Arc::new(cache);
        let files = self.stamps.iter().map(|stamp| (*stamp, open(&cache, *stamp))).collect();
        Life { cache, files }
    }

    fn step(&mut self, life: &mut Life) {
        let at = self.dice.below(life.files.len());
        let (stamp, file) = &life.files[at];
        let offset = self.dice.below(OFFSETS) as u64;
        match self.dice.below(200) {
            0 => {
                // The file is compacted.
                file.retire();
                self.next_stamp += 1;
                self.stamps.retain(|known| known != stamp);
                self.stamps.push(self.next_stamp);
                life.files[at] = (self.next_stamp, open(&life.cache, self.next_stamp));
            }
            1 => file.evict(),
            2 => {
                file.evict_now();
            }
            3 => life.cache.resize([1 << 20, 512 << 10, 64 << 10][self.dice.below(3)]),
            4 => life.files[at] = (*stamp, open(&life.cache, *stamp)),
            5 => self.spoil(),
            6..50 => {
                life.cache.turn(std::time::Duration::ZERO);
            }
            _ => {
                let found = match file.get(BlockOffset::new(offset), BlockKind::Data) {
                    Some(block) => Some((0, block)),
                    None => match file.get_from_file(BlockOffset::new(offset), true) {
                        FromFile::Found(block) => Some((1, block)),
                        _ => None,
                    },
                };
                match found {
                    Some((tier, block)) => {
                        assert_is(&block, *stamp, offset);
                        self.found[tier] += 1;
                        if tier == 1 {
                            file.insert(BlockOffset::new(offset), block, BlockPriority::Normal);
                        }
                    }
                    None => {
                        file.insert(BlockOffset::new(offset), block(*stamp, offset), BlockPriority::Normal)
                    }
                }
            }
        }
    }

    /// Changes a byte of the cache file.
    fn spoil(&mut self) {
        let Ok(len) = self.fs.open(CACHE.as_ref()).and_then(|file| file.len()) else { return };
        let Ok(file) = self.fs.open_update(CACHE.as_ref(), len) else { return };
        let position = self.dice.below(len as usize) as u64;
        let _ = file.write_all_at(&[self.dice.next_u64() as u8], position);
    }

    fn fault(&mut self) {
        let operations =
            [Operation::Write, Operation::Read, Operation::Sync, Operation::Put, Operation::Remove];
        let fault = Fault::new(self.dice.pick(&operations), "ssd").nth(1 + self.dice.below(60) as u64);
        self.fs.inject(if self.dice.one_in(2) { fault.no_space() } else { fault });
    }

    /// Ends a life, in order or not, and perhaps damages what it leaves.
    fn end(&mut self, life: Life) {
        match self.dice.below(4) {
            0 => {
                let mode = self.dice.pick(&CrashMode::ALL);
                let seed = self.dice.next_u64();
                if self.dice.one_in(2) {
                    self.fs.fail_at(self.fs.sync_points() + 1 + self.dice.below(3) as u64);
                    life.cache.close_file_tier(|| true);
                }
                drop(life);
                self.fs = self.fs.crash(mode, seed);
            }
            1 => drop(life),
            _ => {
                life.cache.close_file_tier(|| true);
                drop(life);
            }
        }
        self.fs.clear_faults();
        if self.dice.one_in(4) {
            self.spoil();
        }
        if self.dice.one_in(6)
            && let Ok(mut bytes) = self.fs.read(INDEX.as_ref())
            && !bytes.is_empty()
        {
            let at = self.dice.below(bytes.len());
            bytes[at] ^= 1 << self.dice.below(8);
            bytes.truncate(bytes.len() - self.dice.below(2));
            self.fs.replace(INDEX.as_ref(), &bytes).unwrap();
        }
    }
}

fn open(cache: &Arc<BlockCache>, stamp: u64) -> CachedFile {
    // One name for all: what the file says of itself tells them apart.
    let identity = FileIdentity { name: "file".into(), len: 7, stamp };
    cache.open_file(identity, Path::new(&format!("/data/{stamp}")))
}

#[test]
fn whatever_happens_a_block_that_is_found_is_the_right_one() {
    let first: u64 = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (mut found, mut restored) = ([0; 2], 0);
    for seed in first..first + SEEDS {
        println!("HALCYON_SEED={seed}");
        let stamps: Vec<u64> = (1..=FILES as u64).collect();
        let mut world = World {
            fs: SimFileSystem::new(),
            dice: Random::new(seed),
            next_stamp: FILES as u64,
            stamps,
            found: [0; 2],
        };
        for _ in 0..4 {
            let mut life = world.begin();
            restored += life.cache.stats().file_tier.map_or(0, |tier| tier.restored_count);
            if world.dice.one_in(3) {
                world.fault();
            }
            for _ in 0..world.dice.below(3000) {
                world.step(&mut life);
            }
            world.end(life);
        }
        found = [found[0] + world.found[0], found[1] + world.found[1]];
    }
    assert!(found[0] > 1000 && found[1] > 1000 && restored > 1000, "{found:?} {restored}");
}
