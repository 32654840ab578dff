//! Blocks that have left memory and wait for their place in the cache file.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use halcyon_env::{Mutex, invariant};

use crate::{Block, BlockKey};

/// *Thread safety*: from any thread. *Invariants*: what waits is found by its key until it is taken off.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    blocks_max: usize,
}

#[derive(Default)]
struct Waiting {
    order: VecDeque<BlockKey>,
    blocks: HashMap<BlockKey, Arc<Block>>,
    bytes: u64,
}

impl Queue {
    pub fn new(blocks_max: usize) -> Queue {
        Queue { waiting: Mutex::default(), blocks_max }
    }

    /// False if there is no room: so many bytes may wait.
    pub fn push(&self, key: BlockKey, block: Arc<Block>, bytes_max: u64) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.blocks.contains_key(&key) {
            return true;
        }
        let bytes = waiting.bytes + block.weight_bytes();
        if waiting.order.len() >= self.blocks_max || bytes > bytes_max {
            return false;
        }
        waiting.bytes = bytes;
        waiting.order.push_back(key);
        waiting.blocks.insert(key, block);
        assert!(
            waiting.order.len() == waiting.blocks.len() && waiting.bytes <= bytes_max,
            "each block waits once and within the limit: {} blocks, {} of {bytes_max} bytes",
            waiting.order.len(),
            waiting.bytes
        );
        true
    }

    pub fn get(&self, key: &BlockKey) -> Option<Arc<Block>> {
        self.waiting.lock().blocks.get(key).cloned()
    }

    /// Who waits longest; stays in the queue.
    pub fn front(&self) -> Option<(BlockKey, Arc<Block>)> {
        let waiting = self.waiting.lock();
        let key = *waiting.order.front()?;
        Some((key, waiting.blocks[&key].clone()))
    }

    /// Takes the one off that `front` gave.
    pub fn pop(&self, key: &BlockKey) {
        let mut waiting = self.waiting.lock();
        if waiting.order.front() == Some(key) {
            waiting.order.pop_front();
            let block = waiting.blocks.remove(key).expect("what is in the order is found by its key");
            let bytes = waiting.bytes.checked_sub(block.weight_bytes());
            waiting.bytes = bytes.expect("a block leaves with the weight that it came with");
            let is_even = waiting.order.len() == waiting.blocks.len();
            invariant!(
                waiting.bytes == waiting.blocks.values().map(|block| block.weight_bytes()).sum::<u64>(),
                "the bytes that wait are those of the blocks that wait: {}",
                waiting.bytes
            );
            assert!(
                is_even && waiting.order.is_empty() == (waiting.bytes == 0),
                "order, blocks and bytes agree"
            );
        }
    }

    pub fn clear(&self) {
        let taken = std::mem::take(&mut *self.waiting.lock());
        drop(taken); // outside the lock
    }

    pub fn held_bytes(&self) -> u64 {
        self.waiting.lock().bytes
    }
}
