//! Threads that read, write, evict and rotate a real file at once; and how long the longest of them waits.
#![allow(clippy::disallowed_methods)] // threads, clocks and a directory of its own

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use halcyon_cache::{
    Block, BlockCache, BlockKind, BlockOffset, BlockPriority, CachedFile, FileIdentity, FileTierOptions,
    FromFile,
};
use halcyon_env::Env;
use halcyon_testkit::Random;

/// The block offset of this number.
fn at(offset: u64) -> BlockOffset {
    BlockOffset::new(offset)
}

fn open(cache: &Arc<BlockCache>, name: u64) -> CachedFile {
    let identity = FileIdentity { name: name.to_string().into(), len: 1, stamp: 1 };
    cache.open_file(identity, Path::new("/data/file"))
}

/// Says on each of its bytes whose it is.
fn block(file: u64, offset: u64, len: usize) -> Arc<Block> {
    let word = (file << 32 | offset).to_be_bytes();
    let payload = Bytes::from(word.repeat(len / 8));
    let held_bytes = payload.len();
    Arc::new(Block::new(BlockKind::Data, payload, Box::new([offset]), held_bytes))
}

fn fresh_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("halcyon-cache-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

/// The file is small beside what goes through it, so that segments are written over while others read there.
#[test]
fn readers_never_see_a_block_that_is_being_written_over() {
    let dir = fresh_dir("threads");
    let options = FileTierOptions {
        path: dir.join("cache"),
        size_bytes: 4 << 20,
        index_path: None,
        queue_blocks_max: 64,
    };
    let cache = Arc::new(BlockCache::with_file_tier(2 << 20, Env::real().fs, options));
    let files: Vec<CachedFile> = (0..4).map(|name| open(&cache, name)).collect();
    let (done, from_file) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cache.turn(Duration::from_millis(5));
            }
        });
        let readers: Vec<_> = (0..4u64)
            .map(|seed| {
                let (cache, files, from_file) = (&cache, &files, &from_file);
                scope.spawn(move || {
                    let mut dice = Random::new(seed);
                    // Until enough has gone through the file: how soon depends on who gets to run.
                    let begin = Instant::now();
                    while !(cache.stats().file_tier.is_some_and(|tier| tier.evictions_count > 100)
                        && from_file.load(Ordering::Relaxed) > 1000)
                    {
                        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", cache.stats());
                        let name = dice.below(4) as u64;
                        let (file, offset) = (&files[name as usize], dice.below(600) as u64);
                        let found = file.get(at(offset), BlockKind::Data).or_else(|| {
                            match file.get_from_file(at(offset), true) {
                                FromFile::Found(found) => {
                                    from_file.fetch_add(1, Ordering::Relaxed);
                                    Some(found)
                                }
                                _ => None,
                            }
                        });
                        let expected = block(name, offset, 4000);
                        match found {
                            Some(found) => assert!(found.bytes() == expected.bytes(), "{name} {offset}"),
                            None => file.insert(at(offset), expected, BlockPriority::Normal),
                        }
                        if dice.one_in(5000) {
                            file.evict();
                        }
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let tier = cache.stats().file_tier.unwrap();
    assert!(tier.is_on, "{tier:?}");
    assert_eq!(tier.damaged_count, 0, "what was written over meanwhile is no damage");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A gibibyte of blocks goes: first all of a file's, then what a smaller cache has no room for. Prints how long the
/// longest look at a block took beside it.
#[test]
#[ignore = "takes a gibibyte and a quiet machine"]
fn how_long_others_wait_while_a_large_cache_is_dropped() {
    for what in ["nothing", "a file that goes", "a cache that shrinks"] {
        let cache = Arc::new(BlockCache::new(1 << 30));
        let (kept, gone) = (open(&cache, 1), open(&cache, 2));
        (0..1000).for_each(|offset| kept.insert(at(offset), block(1, offset, 16 << 10), BlockPriority::High));
        (0..60_000)
            .for_each(|offset| gone.insert(at(offset), block(2, offset, 16 << 10), BlockPriority::Normal));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let (mut longest, mut looks) = (Duration::ZERO, 0u64);
                while !done.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    kept.get(at(looks % 1000), BlockKind::Data);
                    longest = longest.max(started.elapsed());
                    looks += 1;
                }
                (longest, looks)
            });
            let started = Instant::now();
            match what {
                "a file that goes" => gone.retire(),
                "a cache that shrinks" => cache.resize(32 << 20),
                _ => std::thread::sleep(Duration::from_millis(300)),
            }
            let asked = started.elapsed();
            let (mut steps, mut longest_step) = (0, Duration::ZERO);
            loop {
                let started = Instant::now();
                let more = cache.turn(Duration::ZERO);
                longest_step = longest_step.max(started.elapsed());
                steps += 1;
                if !more {
                    break;
                }
            }
            let took = started.elapsed();
            done.store(true, Ordering::Relaxed);
            let (longest, looks) = looking.join().unwrap();
            println!(
                "{what}: asked in {asked:?}; {steps} steps in {took:?}, the longest {longest_step:?}; of {looks} looks the \
                 longest took {longest:?}"
            );
        });
    }
}
