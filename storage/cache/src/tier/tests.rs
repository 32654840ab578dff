//! The tier behind a cache: evicted blocks come back, across restarts, crashes, damage and errors of the disk.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};

use super::*;
use crate::{BlockCache, BlockKind, BlockOffset, BlockPriority, CachedFile, FileId, FileIdentity};

const CACHE: &str = "/ssd/cache";
const INDEX: &str = "/ssd/index";
const MEMORY: u64 = 9 << 18;

/// The block offset of this number.
fn at(offset: u64) -> BlockOffset {
    BlockOffset::new(offset)
}

fn options(size_bytes: u64) -> FileTierOptions {
    FileTierOptions { path: CACHE.into(), size_bytes, index_path: Some(INDEX.into()), queue_blocks_max: 64 }
}

fn open_with(fs: &SimFileSystem, options: FileTierOptions) -> Arc<BlockCache> {
    Arc::new(BlockCache::with_file_tier(MEMORY, Arc::new(fs.clone()), options))
}

fn open(fs: &SimFileSystem) -> Arc<BlockCache> {
    open_with(fs, options(8 << 20))
}

fn file(cache: &Arc<BlockCache>, name: &str) -> CachedFile {
    let identity = FileIdentity { name: name.into(), len: 1, stamp: 1 };
    cache.open_file(identity, Path::new(&format!("/data/{name}")))
}

/// The block that belongs at this offset of a file: nobody else's.
fn block(name: &str, offset: u64) -> Arc<Block> {
    let text = format!("{name} {offset} ").repeat(1000);
    let len = 4000 + (offset as usize * 37) % 3000;
    let payload = Bytes::copy_from_slice(&text.as_bytes()[..len.min(text.len())]);
    let held_bytes = payload.len();
    Arc::new(
        Block::new(BlockKind::Data, payload, Box::new([offset, 7]), held_bytes)
            .with_notes(name.as_bytes().into()),
    )
}

/// Looks into both tiers, as a reader does that may wait.
fn find(file: &CachedFile, offset: u64) -> Option<Arc<Block>> {
    file.get(at(offset), BlockKind::Data).or_else(|| match file.get_from_file(at(offset), true) {
        FromFile::Found(block) => Some(block),
        FromFile::NotThere => None,
        FromFile::NeedsDisk => panic!("it may wait"),
    })
}

fn assert_same(found: &Block, name: &str, offset: u64) {
    let expected = block(name, offset);
    assert!(found.bytes() == expected.bytes(), "{name} {offset}");
    assert_eq!((found.marks(), found.notes()), (expected.marks(), expected.notes()));
}

/// Reads blocks as a scan does; what comes back is right or not there. Returns how many came back.
fn read(file: &CachedFile, name: &str, offsets: std::ops::Range<u64>) -> usize {
    offsets
        .filter(|offset| {
            let found = find(file, *offset);
            found.iter().for_each(|found| assert_same(found, name, *offset));
            found.is_some()
        })
        .count()
}

/// Puts blocks into memory, and lets what falls out go to the file.
fn fill(cache: &BlockCache, file: &CachedFile, name: &str, offsets: std::ops::Range<u64>) {
    for offset in offsets {
        file.insert(at(offset), block(name, offset), BlockPriority::Normal);
        if offset % 16 == 0 {
            cache.settle();
        }
    }
    cache.settle();
}

fn tier(cache: &BlockCache) -> FileTierStats {
    if cache.file_tier_failure().is_none() {
        cache.tier_for_test().index.check_accounts();
    }
    cache.stats().file_tier.unwrap()
}

#[test]
fn what_leaves_memory_comes_back_from_the_file() {
    let cache = open(&SimFileSystem::new());
    let a = file(&cache, "a");
    fill(&cache, &a, "a", 0..500);
    for offset in 0..50 {
        let payload = Bytes::from(vec![7; 5000]);
        let index = Arc::new(Block::new(BlockKind::LeafIndex, payload, Box::new([]), 5000));
        a.insert(at(1 << 40 | offset), index, BlockPriority::Normal);
    }
    fill(&cache, &a, "a", 500..900);
    let stats = tier(&cache);
    assert!(stats.is_on && stats.blocks_count > 300 && stats.dropped_count == 0, "{stats:?}");
    assert_eq!(stats.written_count, stats.blocks_count);
    assert_eq!(read(&a, "a", 0..900), 900);
    assert_eq!(tier(&cache).hits_count, tier(&cache).blocks_count, "each of them was read");
    let index = (0..50).map(|offset| 1 << 40 | offset).filter(|offset| !a.is_in_memory(at(*offset)));
    let gone = index.map(|offset| assert!(find(&a, offset).is_none(), "blocks of the index are not written"));
    assert!(gone.count() > 0);
    // A thread of the network does not wait.
    let in_file = (0..900).find(|offset| !a.is_in_memory(at(*offset))).unwrap();
    assert!(matches!(a.get_from_file(at(in_file), false), FromFile::NeedsDisk));
    // What was promoted is not written again when it leaves once more.
    let found = find(&a, in_file).unwrap();
    a.insert(at(in_file), found, BlockPriority::Normal);
    fill(&cache, &a, "a", 0..in_file);
    let stats = tier(&cache);
    assert_eq!((stats.written_count, stats.evictions_count), (stats.blocks_count, 0), "each block once");
    let used = cache.stats().used_bytes;
    assert!(used <= MEMORY && used > tier(&cache).index_bytes, "{used}");
}

#[test]
fn a_full_queue_drops_blocks_and_waits_for_nobody() {
    let cache = open(&SimFileSystem::new());
    let a = file(&cache, "a");
    for offset in 0..900 {
        a.insert(at(offset), block("a", offset), BlockPriority::Normal);
    }
    let stats = tier(&cache);
    assert!(
        stats.dropped_count > 300 && stats.written_count == 0 && stats.queued_bytes <= MEMORY / 8,
        "{stats:?}"
    );
    let waiting = (0..900).find(|offset| !a.is_in_memory(at(*offset))).unwrap();
    assert_same(&find(&a, waiting).unwrap(), "a", waiting);
    assert_eq!(tier(&cache).hits_count, 1, "found in the queue");
    while cache.turn(Duration::ZERO) {}
    let stats = tier(&cache);
    assert!(stats.written_count > 30 && stats.queued_bytes == 0, "{stats:?}");
    assert_eq!(read(&a, "a", 0..900) as u64, cache.stats().blocks_count + stats.blocks_count);
}

#[test]
fn the_file_goes_round_and_keeps_what_is_used() {
    let cache = open_with(&SimFileSystem::new(), options(4 << 20));
    let (hot, cold) = (file(&cache, "hot"), file(&cache, "cold"));
    fill(&cache, &hot, "hot", 0..700);
    let in_file: Vec<u64> =
        (0..700).filter(|offset| !hot.is_in_memory(at(*offset))).step_by(3).take(40).collect();
    assert_eq!(in_file.len(), 40);
    for round in 0..30 {
        in_file.iter().for_each(|offset| drop(find(&hot, *offset)));
        fill(&cache, &cold, "cold", round * 100..round * 100 + 100);
    }
    let stats = tier(&cache);
    assert!(stats.evictions_count > 1000 && stats.used_bytes <= 4 << 20, "{stats:?}");
    assert!(stats.used_bytes > 2 << 20, "{stats:?}");
    let left = in_file.iter().filter(|offset| find(&hot, **offset).is_some()).count();
    assert!(left >= 38, "{left} of 40 are left");
    assert!(read(&cold, "cold", 0..3000) > 300);
    assert_eq!(tier(&cache).damaged_count, 0);
}

/// With small blocks in a large file it is the index that is full first. It follows the memory that the cache has.
#[test]
fn the_index_has_a_limit_in_memory() {
    let fs = SimFileSystem::new();
    let cache = open_with(&fs, options(64 << 20));
    let a = file(&cache, "a");
    let small = |offset: u64| {
        let payload = Bytes::copy_from_slice(&offset.to_be_bytes().repeat(100));
        Arc::new(Block::new(BlockKind::Data, payload, Box::new([]), 800))
    };
    for offset in 0..20_000 {
        a.insert(at(offset), small(offset), BlockPriority::Normal);
        if offset % 16 == 0 {
            cache.settle();
        }
    }
    // One segment, two mebibytes here, may be filled beyond the limit.
    let segment_entries = 2500;
    let stats = tier(&cache);
    assert!(stats.written_count > 15_000 && stats.blocks_count > 2000, "{stats:?}");
    assert!(stats.index_bytes <= MEMORY / INDEX_SHARE + segment_entries * ENTRY_BYTES, "{stats:?}");
    assert!(cache.stats().used_bytes <= MEMORY, "{:?}", cache.stats());
    cache.resize(MEMORY / 4);
    cache.settle();
    let stats = tier(&cache);
    assert!(stats.index_bytes <= MEMORY / 4 / INDEX_SHARE + segment_entries * ENTRY_BYTES, "{stats:?}");
    assert!(
        (0..20_000).all(|offset| find(&a, offset).is_none_or(|found| found.bytes() == small(offset).bytes()))
    );

    // What is left in the segment that is being filled is nothing to try for again and again.
    cache.resize(0);
    cache.settle();
    assert!(!cache.turn(Duration::ZERO));

    // As it does when the memory is less in the next life.
    cache.resize(MEMORY);
    one_life_of_small_blocks(&cache, &a, small);
    let left = tier(&cache).blocks_count;
    drop((a, cache));
    let less = Arc::new(BlockCache::with_file_tier(MEMORY / 8, Arc::new(fs.clone()), options(64 << 20)));
    assert!(tier(&less).restored_count == left || tier(&less).restored_count == 0);
    less.settle();
    let stats = tier(&less);
    assert!(stats.index_bytes <= MEMORY / 8 / INDEX_SHARE + segment_entries * ENTRY_BYTES, "{stats:?}");
}

fn one_life_of_small_blocks(cache: &Arc<BlockCache>, a: &CachedFile, small: impl Fn(u64) -> Arc<Block>) {
    for offset in 20_000..25_000 {
        a.insert(at(offset), small(offset), BlockPriority::Normal);
        if offset % 16 == 0 {
            cache.settle();
        }
    }
    cache.close_file_tier(|| true);
}

#[test]
fn a_file_that_is_gone_leaves_both_tiers() {
    let fs = SimFileSystem::new();
    let cache = open(&fs);
    let (a, b) = (file(&cache, "a"), file(&cache, "b"));
    fill(&cache, &a, "a", 0..600);
    fill(&cache, &b, "b", 0..600);
    assert_eq!(read(&a, "a", 0..600), 600);
    a.retire();
    cache.settle();
    assert_eq!(read(&a, "a", 0..600), 0);
    assert_eq!(read(&b, "b", 0..600), 600);
    drop(b);
    cache.sweep(&fs, FileId::ZERO, 100);
    cache.settle();
    assert_eq!((tier(&cache).blocks_count, tier(&cache).used_bytes, cache.stats().blocks_count), (0, 0, 0));
    drop(a);
    fill(&cache, &file(&cache, "c"), "c", 0..3000);
    assert!(tier(&cache).blocks_count > 1000, "the room is used again");
}

#[test]
fn a_file_that_goes_while_its_block_is_written_leaves_nothing() {
    let fs = SimFileSystem::new();
    let cache = open(&fs);
    let (a, was_hit) = (file(&cache, "a"), Arc::new(AtomicBool::new(false)));
    fill(&cache, &a, "a", 0..5);
    let offered = cache.tier_for_test().offer(a.key(at(77)), block("a", 77));
    assert!(offered);
    fs.interrupt(Operation::Write, CACHE, {
        let (was_hit, cache) = (was_hit.clone(), cache.clone());
        move || {
            a.retire();
            while cache.leave_step() {}
            was_hit.store(true, Ordering::Relaxed);
        }
    });
    cache.settle();
    assert!(was_hit.load(Ordering::Relaxed), "the file went during a write");
    assert_eq!(tier(&cache).blocks_count, 0);
}

// ---- restarts ----

/// Runs a life that leaves blocks of "a" and "b" behind, and ends it.
fn one_life(fs: &SimFileSystem) -> u64 {
    let cache = open(fs);
    let (a, b) = (file(&cache, "a"), file(&cache, "b"));
    fill(&cache, &a, "a", 0..500);
    fill(&cache, &b, "b", 0..500);
    cache.close_file_tier(|| true);
    tier(&cache).blocks_count
}

#[test]
fn goes_on_after_an_orderly_end() {
    let fs = SimFileSystem::new();
    let left = one_life(&fs);
    assert!(left > 900, "what was in memory was written, too: {left}");
    let cache = open(&fs);
    assert!(!fs.exists(INDEX.as_ref()).unwrap(), "a crash from here on finds nothing");
    assert_eq!((tier(&cache).restored_count, tier(&cache).blocks_count), (left, left));
    let changed = FileIdentity { name: "a".into(), len: 2, stamp: 1 };
    let changed = cache.open_file(changed, Path::new("/data/a"));
    assert_eq!(read(&changed, "a", 0..500), 0, "another file of that name");
    let (a, b) = (file(&cache, "a"), file(&cache, "b"));
    assert_eq!((read(&a, "a", 0..500) + read(&b, "b", 0..500)) as u64, left);
    // And it still goes round.
    fill(&cache, &file(&cache, "c"), "c", 0..4000);
    assert!(read(&a, "a", 0..500) < 500 && tier(&cache).damaged_count == 0);
}

#[test]
fn without_a_place_for_the_index_it_begins_empty() {
    let fs = SimFileSystem::new();
    let forgetful = FileTierOptions { index_path: None, ..options(8 << 20) };
    let cache = open_with(&fs, forgetful.clone());
    fill(&cache, &file(&cache, "a"), "a", 0..600);
    cache.close_file_tier(|| true);
    drop(cache);
    let cache = open_with(&fs, forgetful);
    assert_eq!((tier(&cache).blocks_count, read(&file(&cache, "a"), "a", 0..600)), (0, 0));
}

#[test]
fn an_index_that_does_not_fit_is_dropped() {
    type Spoil = fn(&SimFileSystem);
    let spoil: [(&str, Spoil); 6] = [
        ("garbage", |fs| fs.replace(INDEX.as_ref(), &[0xa5; 5000]).unwrap()),
        ("empty", |fs| fs.replace(INDEX.as_ref(), b"").unwrap()),
        ("a bit", |fs| {
            let mut bytes = fs.read(INDEX.as_ref()).unwrap();
            bytes[100] ^= 4;
            fs.replace(INDEX.as_ref(), &bytes).unwrap();
        }),
        ("no cache file", |fs| fs.remove_file(CACHE.as_ref()).unwrap()),
        ("a short cache file", |fs| drop(fs.open_update(CACHE.as_ref(), 1 << 20).unwrap())),
        ("an old index", |fs| {
            let old = fs.read(INDEX.as_ref()).unwrap();
            drop(open(fs)); // the cache file is taken, and left without an orderly end
            fs.replace(INDEX.as_ref(), &old).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        let fs = SimFileSystem::new();
        one_life(&fs);
        spoil(&fs);
        let cache = open(&fs);
        assert!(tier(&cache).is_on, "{what}");
        assert_eq!((tier(&cache).restored_count, read(&file(&cache, "a"), "a", 0..500)), (0, 0), "{what}");
        assert!(!fs.exists(INDEX.as_ref()).unwrap(), "{what}");
        fill(&cache, &file(&cache, "a"), "a", 0..600);
        assert!(tier(&cache).blocks_count > 100, "{what}");
    }
    let fs = SimFileSystem::new();
    one_life(&fs);
    let cache = open_with(&fs, options(16 << 20));
    assert_eq!(tier(&cache).restored_count, 0, "another size");
}

/// Two lives, and death at each point where something becomes durable. What a third life finds in the cache is right,
/// whatever became of pages that were not synced; and after an end that was not orderly it finds nothing.
#[test]
fn a_crash_at_any_point_leaves_nothing_wrong() {
    let script = |fs: &SimFileSystem| {
        one_life(fs);
        let cache = open(fs);
        fill(&cache, &file(&cache, "a"), "a", 0..500);
        fill(&cache, &file(&cache, "c"), "c", 0..1500);
        cache.close_file_tier(|| true);
    };
    let fs = SimFileSystem::new();
    script(&fs);
    let points = fs.sync_points();
    assert!(points > 8, "{points}");
    let mut restored = 0;
    for point in 1..=points + 1 {
        for (mode, seed) in
            [(CrashMode::Drop, 0), (CrashMode::Keep, 0), (CrashMode::Torn, 1), (CrashMode::Torn, 2)]
        {
            let fs = SimFileSystem::new();
            fs.fail_at(point);
            script(&fs);
            let fs = fs.crash(mode, seed);
            let cache = open(&fs);
            let stats = tier(&cache);
            assert!(stats.is_on, "{point} {mode:?}");
            restored += u64::from(stats.restored_count > 0);
            for name in ["a", "b", "c"] {
                read(&file(&cache, name), name, 0..1500);
            }
            assert_eq!(
                tier(&cache).damaged_count,
                0,
                "point {point} {mode:?} {seed}: an index of another state"
            );
        }
    }
    assert!(restored >= 4, "an orderly end is one of them");
}

// ---- damage and errors ----

#[test]
fn a_damaged_record_is_a_miss_and_is_forgotten() {
    let fs = SimFileSystem::new();
    let cache = open(&fs);
    let a = file(&cache, "a");
    fill(&cache, &a, "a", 0..700);
    let in_file: Vec<u64> = (0..700).filter(|offset| !a.is_in_memory(at(*offset))).collect();
    let disk = fs.open_update(CACHE.as_ref(), fs.open(CACHE.as_ref()).unwrap().len().unwrap()).unwrap();
    let slots: Vec<Slot> = {
        let tier = cache.tier_for_test();
        in_file
            .iter()
            .map(|offset| {
                tier.index.get(&BlockKey { file: a.number_for_test(), offset: at(*offset) }).unwrap()
            })
            .collect()
    };
    for (number, slot) in slots.iter().enumerate().take(200) {
        let position = slot.position + (number as u64 * 7919) % u64::from(slot.len);
        let mut byte = [0];
        disk.read_exact_at(&mut byte, position).unwrap();
        disk.write_all_at(&[byte[0] ^ (1 << (number % 8))], position).unwrap();
    }
    let before = tier(&cache).blocks_count;
    for offset in &in_file[..200] {
        assert!(find(&a, *offset).is_none(), "{offset}");
    }
    let stats = tier(&cache);
    assert_eq!((stats.damaged_count, stats.blocks_count, stats.is_on), (200, before - 200, true));
    assert_eq!(
        in_file[200..].iter().filter(|offset| find(&a, **offset).is_some()).count(),
        in_file.len() - 200
    );
}

#[test]
fn an_error_of_the_disk_turns_the_tier_off_and_nothing_else() {
    for (operation, no_space) in [
        (Operation::Write, false),
        (Operation::Write, true),
        (Operation::Read, false),
        (Operation::Sync, false),
    ] {
        let fs = SimFileSystem::new();
        let cache = open(&fs);
        let a = file(&cache, "a");
        fill(&cache, &a, "a", 0..500);
        let fault = Fault::new(operation, "cache");
        fs.inject(if no_space { fault.no_space() } else { fault });
        fill(&cache, &a, "a", 500..700);
        read(&a, "a", 0..700);
        if operation == Operation::Sync {
            cache.close_file_tier(|| true);
            assert!(
                !fs.exists(INDEX.as_ref()).unwrap(),
                "no index of a file of which nobody knows what it holds"
            );
            continue;
        }
        let stats = tier(&cache);
        assert!(!stats.is_on && stats.failures_count >= 1, "{operation:?} {stats:?}");
        let reason = cache.file_tier_failure().unwrap();
        assert!(reason.contains(CACHE), "{reason}");
        cache.settle();
        let stats = tier(&cache);
        assert_eq!((stats.blocks_count, stats.index_bytes, stats.queued_bytes), (0, 0, 0));
        fill(&cache, &a, "a", 0..700);
        assert_eq!(read(&a, "a", 0..700) as u64, cache.stats().blocks_count);
        cache.close_file_tier(|| true);
        assert!(!fs.exists(INDEX.as_ref()).unwrap());
    }
}

#[test]
fn a_file_that_cannot_be_used_leaves_a_cache_without_the_tier() {
    let fs = SimFileSystem::new();
    let first = open(&fs);
    let second = open(&fs);
    assert!(second.file_tier_failure().unwrap().contains(CACHE), "it is somebody else's");
    assert_eq!((tier(&second).is_on, tier(&second).failures_count), (false, 1));
    let a = file(&second, "a");
    fill(&second, &a, "a", 0..700);
    assert!(read(&a, "a", 0..700) > 200);
    drop((a, first));
    for operation in [Operation::Open, Operation::Write, Operation::Sync, Operation::SyncDir] {
        let fs = SimFileSystem::new();
        one_life(&fs);
        fs.inject(Fault::new(operation, "ssd"));
        let cache = open(&fs);
        // An index that cannot be looked at, or a file, is no reason to do without the tier.
        if operation != Operation::Open {
            assert!(cache.file_tier_failure().is_some(), "{operation:?}");
        }
        drop(cache);
        let cache = open(&fs);
        read(&file(&cache, "a"), "a", 0..500);
        assert_eq!((tier(&cache).is_on, tier(&cache).damaged_count), (true, 0), "{operation:?}");
    }
}
