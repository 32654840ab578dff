//! What the memory tier's policy pushes out, and how it weighs blocks.

use std::sync::Arc;

use halcyon_env::Mutex;
use quick_cache::{Lifecycle, Weighter};

use crate::Block;
use crate::cache::BlockKey;

#[derive(Clone)]
pub(crate) struct WeightInBytes;

impl Weighter<BlockKey, Arc<Block>> for WeightInBytes {
    #[inline]
    fn weight(&self, _key: &BlockKey, block: &Arc<Block>) -> u64 {
        block.weight_bytes()
    }
}

pub(crate) type KeyedBlock = (BlockKey, Arc<Block>);

/// Collects what is pushed out, so that it is freed and counted after the shard's lock is released: by an insert in
/// what the insert brings along, by a change of the capacity in one place for all.
#[derive(Clone, Default)]
pub(crate) struct CollectEvicted {
    unasked: Arc<Mutex<Vec<KeyedBlock>>>,
}

impl CollectEvicted {
    pub fn take(&self) -> Vec<KeyedBlock> {
        std::mem::take(&mut self.unasked.lock())
    }
}

#[derive(Default)]
pub(crate) struct Evicted {
    blocks: Vec<KeyedBlock>,
    /// Somebody looks into `blocks` afterwards.
    is_wanted: bool,
}

impl Evicted {
    pub fn wanted() -> Evicted {
        Evicted { blocks: Vec::new(), is_wanted: true }
    }

    pub fn take(self) -> Vec<KeyedBlock> {
        self.blocks
    }
}

impl Lifecycle<BlockKey, Arc<Block>> for CollectEvicted {
    type RequestState = Evicted;

    fn on_evict(&self, state: &mut Evicted, key: BlockKey, block: Arc<Block>) {
        if state.is_wanted {
            state.blocks.push((key, block));
        } else {
            self.unasked.lock().push((key, block));
        }
    }
}
