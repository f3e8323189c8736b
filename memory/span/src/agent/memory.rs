//! How much memory a node's pages take, and may take. Where it is too much, copies of others'
//! pages go, the oldest first: they can be fetched again. What only this node has cannot go.

use super::Agent;
use crate::addresses::PAGE;

/// Of a node.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Bytes, at most.
    pub limit: Option<u64>,
    /// Bytes that it was, at most.
    pub most: u64,
}

/// So much of the limit is freed at once.
const SHARE: u64 = 16;
/// The newest copies, which threads may be about to use, stay.
const NEWEST: u64 = 64;

impl Agent {
    /// Looks whether pages take too much memory, where somebody wants to know.
    pub(super) fn look_at_memory(&mut self) {
        if self.memory.limit.is_none() && self.seen.is_none() {
            return;
        }
        let bytes = self.region.memory();
        self.memory.most = self.memory.most.max(bytes);
        let Some(limit) = self.memory.limit.filter(|&limit| bytes > limit) else { return };
        let over = (bytes - limit + limit / SHARE).div_ceil(PAGE);
        let (keep, now) = (self.node.copies().saturating_sub(over).max(NEWEST), self.now());
        let mut actions = Vec::new();
        self.node.shrink(keep, now, &mut actions);
        if let Err(error) = self.carry_out(&actions, None) {
            self.end(1, &error.to_string());
        }
        if self.node.copies() <= keep && self.region.memory() > limit {
            let name = &self.names[self.me as usize];
            let line = format!(
                "{name}: pages that only it has take more than --memory {limit}: allow more, or use \
                 more nodes"
            );
            self.end(1, &line);
        }
    }
}
