//! Brings nodes into the processor's cache before a scan comes to them.
//!
//! In a large segment that was filled in random order, the next node is nearly always far away in memory, and
//! its address is only known once the node before it has arrived: walking the bottom level costs one memory
//! latency per cell. The second level is a way out. It cuts the list into blocks of about four nodes, and the
//! blocks ahead can be walked at the same time: each step of the scan moves one walker by one node and asks for
//! that node, and when the walker's turn comes again the node is there. Asking only one node ahead was tried
//! first; it left 70 % of the waiting.

use crate::node::NodeRef;

/// Blocks that are walked at the same time: enough for a node to arrive between two turns.
const BLOCKS: usize = 6;
/// Blocks that may be added when the scan enters one; more than one, to get ahead at the beginning.
const BLOCKS_PER_STEP: usize = 3;

/// The walkers of one scan. Only hints come of it; a walker that strays does no harm.
#[derive(Default)]
pub(crate) struct Lookahead<'a> {
    /// A ring: one node per block ahead.
    walkers: [Option<NodeRef<'a>>; BLOCKS],
    turn: usize,
    /// Where the next block's walker goes.
    newest: usize,
    /// The first node of the farthest block.
    frontier: Option<NodeRef<'a>>,
    /// Blocks between the scan and the frontier.
    blocks_ahead: usize,
}

impl<'a> Lookahead<'a> {
    /// The scan has come to `here`, the neighbour of where it was. After a jump, start with a new `Lookahead`.
    #[inline]
    pub(crate) fn step(&mut self, here: NodeRef<'a>) {
        if here.links().len() > 1 {
            self.enter_block(here);
        }
        let walker = &mut self.walkers[self.turn];
        self.turn = (self.turn + 1) % BLOCKS;
        if let Some(node) = *walker {
            *walker = node.links()[0].load();
            if let Some(next) = *walker {
                next.prefetch();
            }
        }
    }

    fn enter_block(&mut self, here: NodeRef<'a>) {
        match self.blocks_ahead.checked_sub(1) {
            Some(rest) => self.blocks_ahead = rest,
            None => self.frontier = Some(here),
        }
        for _ in 0..BLOCKS_PER_STEP {
            if self.blocks_ahead == BLOCKS {
                break;
            }
            let Some(next) = self.frontier.and_then(|it| it.links()[1].load()) else {
                break;
            };
            next.prefetch();
            self.frontier = Some(next);
            self.blocks_ahead += 1;
            self.walkers[self.newest] = Some(next);
            self.newest = (self.newest + 1) % BLOCKS;
        }
    }
}
