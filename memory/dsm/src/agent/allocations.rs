//! Allocations of shared memory, which all tasks make in the same order. Each node compares its
//! allocations with those of its children in the barriers' tree. A node's allocations reach its
//! parent before the node's arrival at the next barrier.

use coherence::message::NodeId;
use coherence::scope::Event;
use coherence::scope::event::Task;
use coherence::scope::homes::Homes;
use coherence::scope::tree::{parent, root};

use node::scope::Scoped as _;

use super::Agent;
use crate::frame::Frame;
use crate::ledger::{Allocation, Difference, LocalAllocation};

/// The rule that error messages give.
const RULE: &str = "all tasks must make the same calls of jia_alloc*, in the same order, between \
                    the same barriers";

impl Agent {
    /// Makes an allocation, or finds the one that another task of this node has made. Returns its
    /// address.
    pub(super) fn allocate(
        &mut self,
        task: Task,
        allocation: Allocation,
        caller: usize,
    ) -> Result<u64, String> {
        let number = self.tasks[task as usize].allocations;
        if let Some(made) = self.allocations.get(number) {
            if made.allocation != allocation {
                return Err(format!(
                    "this task's allocation number {} is {allocation}, and another task's is {}; \
                     {RULE}",
                    number + 1,
                    made.allocation
                ));
            }
            self.tasks[task as usize].allocations += 1;
            return Ok(made.address);
        }
        let Allocation { bytes, block, first } = allocation;
        let page_bytes = self.engine.memory.place().page_bytes as u64;
        let pages = bytes.div_ceil(page_bytes);
        let page = match self.engine.memory.grow(pages) {
            Ok(page) => page,
            // Other nodes may have made it.
            Err(error) => self.end(1, &format!("{bytes} B of shared memory: {error}")),
        };
        let me = self.options.me;
        self.allocated(me, allocation);
        if me != root(self.options.nodes) {
            self.send(parent(me, self.options.nodes), Frame::Allocated(allocation), Vec::new());
        }
        for (pages, homes) in self.homes(pages, block.div_ceil(page_bytes).max(1), first) {
            self.step(Event::Allocate { pages, homes }, &mut Vec::new());
        }
        let address = self.engine.memory.place().start as u64 + page * page_bytes;
        let observer = self.observer.as_mut();
        let caller = observer.and_then(|(observer, _)| observer.place(caller as u64));
        self.allocations.push(LocalAllocation { allocation, address, caller });
        self.tasks[task as usize].allocations += 1;
        Ok(address)
    }

    /// Returns the homes of consecutive pages, whose blocks go to tasks in turns.
    fn homes(&self, pages: u64, block: u64, first: u32) -> Vec<(u64, Homes)> {
        let world = &self.world;
        if world.nodes.len() == world.members.len() {
            return vec![(pages, Homes::Blocks { pages: block, first })];
        }
        let mut parts: Vec<(u64, NodeId)> = Vec::new();
        let mut task = first as usize;
        let mut left = pages;
        while left > 0 {
            let node = world.members[task].node;
            let part = block.min(left);
            match parts.last_mut() {
                Some(last) if last.1 == node => last.0 += part,
                _ => parts.push((part, node)),
            }
            left -= part;
            task = (task + 1) % world.members.len();
        }
        parts.into_iter().map(|(pages, node)| (pages, Homes::At(node))).collect()
    }

    /// Records the next allocation of this node or of a child.
    pub(super) fn allocated(&mut self, node: NodeId, next: Allocation) {
        if let Err(difference) = self.ledger.add(node, next) {
            self.end_for(difference);
        }
    }

    /// Compares the allocations of this node and its children, which are at a barrier.
    pub(super) fn compare_nodes(&mut self) {
        if let Err(difference) = self.ledger.compare() {
            self.end_for(difference);
        }
    }

    fn end_for(&mut self, difference: Difference) -> ! {
        let line = match difference {
            Difference::Kind(number, [one, other]) => {
                let told = [one, other].map(|(node, it)| format!("{it} in {}", self.name(node)));
                format!("allocation number {number} is {}; {RULE}", told.join(", and "))
            }
            Difference::Count([one, other]) => {
                let told = [one, other].map(|(node, it)| format!("{it} in {}", self.name(node)));
                format!("allocations at this barrier: {}; {RULE}", told.join(", and "))
            }
        };
        self.end(1, &line)
    }

    fn name(&self, node: NodeId) -> String {
        self.world.name(node)
    }

    /// Compares the numbers of allocations if all tasks of this node are at a barrier.
    pub(super) fn compare_counts(&mut self) {
        let Some(most) = self.tasks.iter().map(|task| task.allocations).max() else { return };
        let less = self.tasks.iter().position(|task| task.allocations < most);
        if let Some(less) = less
            && self.tasks.iter().all(|task| task.is_at_barrier)
        {
            let count = self.tasks[less].allocations;
            let task = self.world.neighbours()[less];
            let line = format!(
                "allocations at this barrier: {count} of task {task}, and {most} of another task \
                 of its node; {RULE}"
            );
            self.end(1, &line);
        }
    }

    /// Ends the job in a deadlock: another node waits for a page that is not allocated here, and
    /// all tasks here wait for tasks there.
    pub(super) fn check_page_requests(&mut self) {
        if let Some((asker, page)) = self.pages.node.lacks() {
            let line = format!(
                "{} uses page {page} of the shared memory, and {} waits for all tasks, with {} \
                 pages allocated; {RULE}",
                self.name(asker),
                self.name(self.options.me),
                self.pages.node.pages()
            );
            self.end(1, &line);
        }
    }
}
