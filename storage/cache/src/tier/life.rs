//! How a file tier begins and ends, and what it leaves for the next life of the process.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use halcyon_env::{FileSystem, Mutex, invariant};

use super::index::Index;
use super::queue::Queue;
use super::saved::{self, Bond, Saved, SavedFile};
use super::space::{Layout, Space};
use super::{Counters, FileTier, FileTierOptions, INDEX_SHARE};
use crate::files::Registry;
use crate::{Block, BlockKey, BlockOffset};

impl FileTier {
    /// Takes the cache file, with what an earlier life left in it if that is sound. `memory_bytes` is what the whole
    /// cache may take. *Blocking*. After an error nothing is there that would be believed later.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        options: FileTierOptions,
        memory_bytes: u64,
        registry: Arc<Registry>,
    ) -> io::Result<FileTier> {
        let layout = Layout::of(options.size_bytes);
        let dir = parent(&options.path);
        fs.create_dir_all(dir)?;
        let lock = fs.lock(&options.path)?;
        let saved = options.index_path.as_ref();
        let saved = saved.and_then(|path| read_saved(&*fs, path, &options.path, layout, memory_bytes));
        let bond = Bond { stamp: halcyon_env::random_bytes(), layout };
        let file = fs.open_update(&options.path, layout.file_len())?;
        // From here on no index fits the file: not the one that was just read, nor an older one.
        file.write_all_at(&bond.header(), 0)?;
        file.sync()?;
        fs.sync_dir(dir)?;
        if let Some(path) = &options.index_path
            && fs.exists(path)?
        {
            fs.remove_file(path)?;
            fs.sync_dir(parent(path))?;
        }
        let tier = FileTier {
            index: Index::new(layout, registry.clone()),
            queue: Queue::new(options.queue_blocks_max),
            memory_bytes: AtomicU64::new(memory_bytes),
            space: Mutex::new(Space::new(layout)),
            is_on: AtomicBool::new(true),
            failure: Mutex::new(None),
            cleared: AtomicUsize::new(0),
            counters: Counters::default(),
            _lock: lock,
            fs,
            options,
            bond,
            file,
            registry,
        };
        if let Some(saved) = saved {
            tier.restore(saved);
        }
        Ok(tier)
    }

    fn restore(&self, saved: Saved) {
        let mut blocks: Vec<Vec<BlockKey>> = vec![Vec::new(); self.bond.layout.segments_count as usize];
        for SavedFile { identity, path, blocks: slots } in saved.files {
            let file = self.registry.files.remember(identity, &path);
            for (offset, slot) in slots {
                let key = BlockKey { file: file.number, offset };
                self.index.add(key, slot);
                blocks[self.index.segment(slot) as usize].push(key);
            }
            self.registry.forget_unused(file.number);
        }
        let segments =
            saved.segments.iter().map(|segment| (*segment, std::mem::take(&mut blocks[*segment as usize])));
        *self.space.lock() = Space::restore(self.bond.layout, segments.collect());
        self.counters.restored.store(self.index.count(), Ordering::Relaxed);
        tracing::info!(
            blocks = self.index.count(),
            "the file tier of the block cache goes on where it ended"
        );
    }

    /// Keeps the index for the next life, if that is wanted, after `last` blocks were written too. The tier is off
    /// then. *Blocking*.
    pub fn save(&self, last: impl Iterator<Item = (BlockKey, Arc<Block>)>) {
        let Some(path) = &self.options.index_path else { return };
        while self.write_one() {}
        last.for_each(|(key, block)| self.write_or_turn_off(key, &block));
        let space = self.space.lock();
        if !self.is_on.swap(false, Ordering::AcqRel) {
            return;
        }
        let files = self.registry.files.all().into_iter().filter_map(|(file, path)| {
            let slot = |offset: BlockOffset| {
                self.index.get(&BlockKey { file: file.number, offset }).map(|slot| (offset, slot))
            };
            let blocks: Vec<_> =
                self.registry.in_file.offsets(file.number).into_iter().filter_map(slot).collect();
            (!blocks.is_empty()).then(|| SavedFile { identity: file.identity.clone(), path, blocks })
        });
        let saved = Saved { bond: self.bond, segments: space.in_use(), files: files.collect() };
        let encoded = saved.encode();
        invariant!(
            Saved::parse(&encoded)
                .is_some_and(|read| read.segments == saved.segments && read.files.len() == saved.files.len()),
            "the next life takes what this one leaves: {} segments, {} files",
            saved.segments.len(),
            saved.files.len()
        );
        let written = self.file.sync().and_then(|()| self.fs.replace(path, &encoded));
        match written {
            Ok(()) => tracing::info!(blocks = self.index.count(), "the index of the block cache is kept"),
            Err(error) => tracing::warn!(%error, "the index of the block cache is not kept"),
        }
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The index that belongs to the cache file as it is, if there is one.
fn read_saved(
    fs: &dyn FileSystem,
    path: &Path,
    file: &Path,
    layout: Layout,
    memory_bytes: u64,
) -> Option<Saved> {
    if let Ok(false) = fs.exists(path) {
        return None;
    }
    let dropped = |reason: &str| {
        tracing::warn!(path = %path.display(), reason, "the index of the block cache is dropped");
        None
    };
    // What a file says of a block is shorter than what it takes in memory.
    match fs.open(path).and_then(|file| file.len()) {
        Ok(len) if len <= (memory_bytes / INDEX_SHARE).max(1 << 20) => {}
        Ok(_) => return dropped("it is too large for the memory"),
        Err(_) => return dropped("it cannot be read"),
    }
    let Ok(bytes) = fs.read(path) else { return dropped("it cannot be read") };
    let Some(saved) = Saved::parse(&bytes) else { return dropped("it is damaged, or of another version") };
    let mut header = [0; saved::HEADER_LEN];
    let found = fs.open(file).and_then(|file| file.read_exact_at(&mut header, 0).and_then(|()| file.len()));
    match found {
        Ok(len) if len >= layout.file_len() => {}
        _ => return dropped("the cache file is not there, or too short"),
    }
    if saved.bond.layout != layout {
        return dropped("it is of a cache file of another size");
    }
    if Bond::parse_header(&header) != Some(saved.bond) {
        return dropped("it is of another cache file");
    }
    Some(saved)
}
