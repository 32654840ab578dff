use bytes::Bytes;
use halcyon_env::sim::SimFileSystem;

use super::*;

/// The block offset of this number.
fn at(offset: u64) -> BlockOffset {
    BlockOffset::new(offset)
}

fn block(len: usize) -> Arc<Block> {
    block_of(BlockKind::Data, len)
}

fn block_of(kind: BlockKind, len: usize) -> Arc<Block> {
    Arc::new(Block::new(kind, Bytes::from(vec![7; len]), Box::new([]), len))
}

fn new(capacity_bytes: u64) -> Arc<BlockCache> {
    Arc::new(BlockCache::new(capacity_bytes))
}

fn file(cache: &Arc<BlockCache>, number: u64) -> CachedFile {
    let identity = FileIdentity { name: number.to_string().into(), len: 1, stamp: 1 };
    cache.open_file(identity, Path::new(&format!("/{number}")))
}

#[test]
fn a_block_comes_back_as_the_same_bytes() {
    let cache = new(1 << 20);
    let file = file(&cache, 1);
    assert!(file.get(at(0), BlockKind::Data).is_none());
    let put = block(100);
    file.insert(at(0), put.clone(), BlockPriority::Normal);
    let got = file.get(at(0), BlockKind::Data).unwrap();
    assert!(Arc::ptr_eq(&put, &got));
    let stats = cache.stats();
    assert_eq!((stats.hits_count, stats.misses_count, stats.blocks_count), (1, 1, 1));
    assert_eq!(stats.used_bytes, put.weight_bytes());
}

#[test]
fn never_holds_more_than_its_capacity_and_readers_keep_what_they_hold() {
    let cache = new(10 << 20);
    let file = file(&cache, 1);
    let held = block(64 << 10);
    file.insert(at(0), held.clone(), BlockPriority::Normal);
    for offset in 1..1000 {
        file.insert(at(offset), block(64 << 10), BlockPriority::Normal);
        assert!(cache.stats().used_bytes <= 10 << 20);
    }
    let stats = cache.stats();
    assert!(stats.blocks_count > 100, "{stats:?}");
    assert_eq!(stats.inserts_count - stats.evictions_count, stats.blocks_count);
    assert_eq!(held.bytes().len(), 64 << 10);
    let tracked = cache.registry.in_memory.count();
    assert_eq!(tracked as u64, stats.blocks_count, "the table of files forgets what was evicted");
}

/// A scan of ten times the cache reads every block once. What was read again before, an index, and blocks of an
/// `IN_MEMORY` family are still there; so they are when the scan reads each block twice in a row.
#[test]
fn a_long_scan_leaves_what_is_dear_or_read_again() {
    for reads_in_a_row in [1, 2] {
        // Four times what has to stay: which part of it a shard gets is left to chance.
        let cache = new(32 << 20);
        let (hot, index, in_memory, cold) =
            (file(&cache, 1), file(&cache, 2), file(&cache, 3), file(&cache, 4));
        for offset in 0..60 {
            hot.insert(at(offset), block(64 << 10), BlockPriority::Normal);
            in_memory.insert(at(offset), block(64 << 10), BlockPriority::High);
            index.insert(at(offset), block_of(BlockKind::LeafIndex, 16 << 10), BlockPriority::High);
        }
        for offset in (0..60).chain(0..60) {
            assert!(hot.get(at(offset), BlockKind::Data).is_some());
        }
        for offset in 0..5000 {
            cold.insert(at(offset), block(64 << 10), BlockPriority::Normal);
            (1..reads_in_a_row).for_each(|_| drop(cold.get(at(offset), BlockKind::Data)));
            if offset % 40 == 0 {
                // Somebody else goes on with his work.
                for offset in 0..60 {
                    drop((hot.get(at(offset), BlockKind::Data), index.get(at(offset), BlockKind::LeafIndex)));
                }
            }
        }
        let left = |file: &CachedFile| (0..60).filter(|offset| file.is_in_memory(at(*offset))).count();
        let left = (left(&hot), left(&index), left(&in_memory));
        assert!(left.0 >= 57 && left.1 >= 57, "{left:?} of 60 each are left after {reads_in_a_row} in a row");
        assert!(left.2 >= 57 || reads_in_a_row > 1, "{left:?} of 60 each are left");
    }
}

#[test]
fn drops_a_file_in_steps_and_only_that() {
    let cache = new(16 << 20);
    let files: Vec<CachedFile> = (0..40).map(|number| file(&cache, number)).collect();
    for file in &files {
        (0..2).for_each(|offset| file.insert(at(offset), block(100), BlockPriority::Normal));
    }
    for offset in 2..1000 {
        files[17].insert(at(offset), block(100), BlockPriority::Normal);
    }
    files[17].evict();
    assert!(files[17].get(at(0), BlockKind::Data).is_some(), "nothing is done on the caller's thread");
    let before = cache.stats().blocks_count;
    assert!(cache.turn(Duration::ZERO));
    let gone = before - cache.stats().blocks_count;
    assert!(gone > 0 && gone <= LEAVING_BLOCKS_MAX as u64, "{gone} in one step");
    cache.settle();
    assert!((0..1000).all(|offset| files[17].get(at(offset), BlockKind::Data).is_none()));
    assert_eq!(cache.stats().blocks_count, 78);
    files[17].insert(at(0), block(100), BlockPriority::Normal);
    assert!(files[17].get(at(0), BlockKind::Data).is_some());
}

#[test]
fn blocks_are_found_by_who_opens_the_file_again() {
    let cache = new(1 << 20);
    file(&cache, 1).insert(at(5), block(100), BlockPriority::Normal);
    assert!(file(&cache, 1).get(at(5), BlockKind::Data).is_some());
    assert!(file(&cache, 2).get(at(5), BlockKind::Data).is_none());
    let (one, clone) = (file(&cache, 1), file(&cache, 1));
    clone.retire();
    cache.settle();
    assert!(one.get(at(5), BlockKind::Data).is_some(), "somebody else has it open");
    drop(clone);
    one.retire();
    cache.settle();
    one.insert(at(5), block(100), BlockPriority::Normal);
    assert!(
        one.get(at(5), BlockKind::Data).is_none() && cache.stats().blocks_count == 0,
        "it is gone for good"
    );
    assert_eq!(cache.registry.in_memory.count(), 0);
    let new = file(&cache, 1);
    new.insert(at(5), block(100), BlockPriority::Normal);
    assert!(
        new.get(at(5), BlockKind::Data).is_some() && one.get(at(5), BlockKind::Data).is_none(),
        "another file of that name"
    );
    drop((one, new));
    assert_eq!(cache.registry.files.count(), 1);
    file(&cache, 1).evict();
    cache.settle();
    assert_eq!(cache.registry.files.count(), 0, "nothing is left to remember");
}

#[test]
fn blocks_of_files_that_are_nowhere_leave() {
    let fs = SimFileSystem::new();
    let cache = new(1 << 20);
    let files: Vec<CachedFile> = (0..10).map(|number| file(&cache, number)).collect();
    for (number, file) in files.iter().enumerate() {
        file.insert(at(0), block(100), BlockPriority::Normal);
        if number % 2 == 0 {
            fs.put_new(Path::new(&format!("/{number}")), b"").unwrap();
        }
    }
    let open = files.into_iter().nth(1);
    let mut next = Some(FileId::ZERO);
    while let Some(after) = next {
        next = cache.sweep(&fs, after, 3);
    }
    cache.settle();
    assert_eq!(cache.stats().blocks_count, 6, "five are on the disk, one is open");
    assert!(
        open.unwrap().get(at(0), BlockKind::Data).is_some()
            && file(&cache, 3).get(at(0), BlockKind::Data).is_none()
    );
}

#[test]
fn shrinks_in_steps_and_grows_at_once() {
    let cache = new(64 << 20);
    let file = file(&cache, 1);
    for offset in 0..900 {
        file.insert(at(offset), block(64 << 10), BlockPriority::Normal);
    }
    let before = cache.stats();
    cache.resize(1 << 20);
    assert_eq!(cache.stats().blocks_count, before.blocks_count, "nothing is done on the caller's thread");
    let mut last = before.used_bytes;
    while cache.turn(Duration::ZERO) {
        let now = cache.stats().used_bytes;
        assert!(last - now <= SHRINK_BYTES_MAX + (1 << 20), "{last} {now}");
        last = now;
    }
    let stats = cache.stats();
    assert!(stats.used_bytes <= 1 << 20 && stats.blocks_count > 0, "{stats:?}");
    assert_eq!(cache.registry.in_memory.count() as u64, stats.blocks_count);
    assert_eq!(stats.evictions_count, before.evictions_count + before.blocks_count - stats.blocks_count);
    cache.resize(8 << 20);
    assert_eq!((cache.stats().capacity_bytes, cache.blocks.capacity()), (8 << 20, 8 << 20));
}

#[test]
fn nothing_fits_a_cache_of_no_bytes() {
    let cache = new(0);
    let file = file(&cache, 1);
    file.insert(at(0), block(10), BlockPriority::High);
    assert!(file.get(at(0), BlockKind::Data).is_none());
    assert_eq!((cache.stats().used_bytes, cache.registry.in_memory.count()), (0, 0));
}

/// Readers, writers, droppers and the thread behind them at once: nothing is lost track of.
#[test]
#[allow(clippy::disallowed_methods)] // threads that do nothing but this
fn many_threads_at_once_leave_the_books_in_order() {
    let cache = new(4 << 20);
    let files: Vec<Arc<CachedFile>> = (0..8).map(|number| Arc::new(file(&cache, number))).collect();
    std::thread::scope(|scope| {
        for start in 0..4u64 {
            let (cache, files) = (&cache, &files);
            scope.spawn(move || {
                for step in 0..3000u64 {
                    let file = &files[((step * 7 + start) % 8) as usize];
                    let offset = (step * 13 + start) % 200;
                    if file.get(at(offset), BlockKind::Data).is_none() {
                        file.insert(at(offset), block(16 << 10), BlockPriority::Normal);
                    }
                    if step % 500 == 0 {
                        file.evict();
                    }
                    if step % 100 == 0 {
                        cache.turn(Duration::ZERO);
                    }
                }
            });
        }
    });
    files[0].retire();
    cache.settle();
    let stats = cache.stats();
    assert!(stats.used_bytes <= 4 << 20 && stats.blocks_count > 0);
    for file in &files {
        file.evict();
    }
    cache.settle();
    assert_eq!(cache.stats().blocks_count, 0, "every block was in the table of files");
    drop(files);
    assert_eq!(cache.registry.files.count(), 0);
}
