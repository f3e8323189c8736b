//! Blocks in a [pool](crate::pool), which machines that share memory have. The first lookup of a
//! block moves it to the pool, where every machine maps it when it is first used there. No agent
//! brings its pages any more; agents only tell each other which pages are mapped.
//!
//! A block keeps its address when it moves. Threads that use it meanwhile are stopped by
//! userfaultfd, and resume in the pool. The task maps and unmaps nothing meanwhile: the gate has a
//! lock for that. The agent takes it, unless a thread that waits for the agent holds it.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use coherence::message::{NodeId, Page};
use nagaya_layout::EXPORT_SIZE;
use pager::PagerError;
use pager::shared::PAGE;
use proc::maps::Mapping;
use rustix::mm::ProtFlags;

use crate::agent::Agent;
use crate::blocks::{BLOCK, Bits, block_of, pages_of};
use crate::frame::{Frame, Message};
use crate::pooled::Pooled;
use crate::publish::{copy_page, is_constant};
use crate::sleepers;

impl Agent {
    /// Answers a lookup of a page of this machine. Its block lies in the pool from then on.
    pub(super) fn answer_pooled_lookup(&mut self, from: NodeId, page: Page) {
        let (id, block, control) = (self.id_of(page), block_of(page), self.control);
        let me = self.orders.agent_tid.load(Ordering::Relaxed) as u32;
        let Some(still) = control.keep_still(id, me) else {
            return self.pooled().lookups.push((from, page));
        };
        let mut pages = pages_of(block);
        if !self.runs(id) {
            // The owner of the space maps and unmaps everything else.
            let start = self.segment(id).start;
            let has_export_area = control.slot(id).export_mapped.load(Ordering::Acquire) == 1;
            let end = start + if has_export_area { EXPORT_SIZE / PAGE } else { 0 };
            pages = pages.start.max(start)..pages.end.min(end);
        }
        let mut bits = Bits::default();
        if !pages.is_empty() {
            self.blocks.published.insert(block);
            control.publish(block, true);
            match self.mappings_of(&pages) {
                Ok(mappings) => {
                    self.move_to_pool(pages.clone(), &mappings);
                    bits = self.bits(&pages, &mappings);
                }
                Err(error) => self.fails(&error.to_string()),
            }
            if !bits.is_set(page) {
                self.blocks.refused.insert(page);
            }
        }
        drop(still);
        let chunk = self.pooled().pool.chunk(block).unwrap_or(0);
        self.send(from, Frame::Word(Message::LookupReply { block, chunk }), bits.bytes());
    }

    fn pooled(&mut self) -> &mut Pooled {
        self.pooled.as_mut().expect("there is a pool")
    }

    /// Moves the mappings of these pages of a published block to the pool, unless they are there
    /// already. The task must not map or unmap memory meanwhile.
    pub(super) fn move_to_pool(&mut self, pages: Range<Page>, mappings: &[Mapping]) {
        let block = block_of(pages.start);
        let pool = &mut self.pooled.as_mut().expect("there is a pool").pool;
        let Some(chunk) = pool.take(block) else {
            let line = format!("{} is full: take a larger pool", pool.place());
            return self.fails(&line);
        };
        let mut was_used = false;
        for mapping in mappings {
            let part = self.part(mapping, &pages);
            if self.is_memory(mapping) {
                match self.move_part(part, chunk, mapping) {
                    Ok(was) => was_used |= was,
                    Err(error) => return self.fails(&error.to_string()),
                }
            } else if is_constant(mapping) {
                self.copy_part(part, chunk);
            }
        }
        // No thread sleeps at a futex in unused memory.
        if was_used {
            self.wake_sleepers(pages);
        }
    }

    /// Moves a part of a mapping. Returns true if a task has used it.
    fn move_part(
        &mut self,
        part: Range<Page>,
        chunk: u64,
        mapping: &Mapping,
    ) -> Result<bool, PagerError> {
        let at = |page: Page| (self.control.layout().base() + page * PAGE) as usize;
        let pool = &mut self.pooled.as_mut().expect("there is a pool").pool;
        self.engine.memory.watch(at(part.start)..at(part.end))?;
        self.engine.memory.stop(part.clone())?;
        let held = self.engine.memory.held(part.clone())?;
        let was_used = !held.is_empty();
        let block = part.start - part.start % BLOCK;
        for pages in held {
            let to = pages.start - block..pages.end - block;
            pool.write(chunk, to, |bytes| self.engine.memory.copy(pages, bytes))?;
        }
        let offset = pool.offset(chunk).expect("a chunk that `take` returned lies in the pool")
            + part.start % BLOCK * PAGE;
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, mapping.reads);
        protection.set(ProtFlags::WRITE, mapping.writes);
        protection.set(ProtFlags::EXEC, mapping.executes);
        self.engine.memory.lay(part.clone(), pool.as_fd(), offset, protection)?;
        self.engine.memory.discard(part)?;
        Ok(was_used)
    }

    /// Copies a constant part of a mapping to the pool, for other machines only.
    fn copy_part(&mut self, part: Range<Page>, chunk: u64) {
        let base = self.control.layout().base();
        let mut bytes = [0; PAGE as usize];
        for page in part {
            if copy_page(base + page * PAGE, &mut bytes) {
                let pool = &mut self.pooled().pool;
                let at = page % BLOCK;
                pool.write(chunk, at..at + 1, |to| to.copy_from_slice(&bytes));
            }
        }
    }

    /// Wakes threads that sleep at futexes of pages that have been moved.
    fn wake_sleepers(&mut self, pages: Range<Page>) {
        let control = self.control;
        let announced = self.plan.own_ids().filter(|&id| control.is_announced(id));
        let pids = announced.map(|id| control.slot(id).pid.load(Ordering::Acquire));
        let pids = pids.chain([std::process::id()]);
        let at = |page: Page| control.layout().base() + page * PAGE;
        let (all, offset) = (at(pages.start)..at(pages.end), pages.start * PAGE);
        if let Some(runners) = sleepers::wake(pids, all, self.engine.memory.as_fd(), offset) {
            self.pooled().runners.push((pages.start, runners));
        }
    }

    /// Continues work that had to wait.
    pub(super) fn continue_pooling(&mut self) {
        let Some(pooled) = &mut self.pooled else { return };
        let (now, file) = (Instant::now(), self.engine.memory.as_fd());
        pooled.runners.retain_mut(|(page, runners)| {
            runners.due() > now || sleepers::check_again(runners, file, *page * PAGE)
        });
        for (from, page) in std::mem::take(&mut pooled.lookups) {
            self.answer_pooled_lookup(from, page);
        }
    }

    /// Maps the pages of another machine's block that are mapped there, from its chunk.
    pub(super) fn show_pooled(&mut self, from: NodeId, block: u64, chunk: u64, bits: &Bits) {
        let shown = |it: &Self, page: Page| bits.is_set(page) && !it.pages.closed.contains(page);
        let Some(pooled) = &self.pooled else { return };
        let mut pages = pages_of(block);
        while let Some(first) = pages.find(|&page| shown(self, page)) {
            let end = pages.find(|&page| !shown(self, page)).unwrap_or(pages.end);
            let Some(offset) = pooled.pool.offset(chunk) else {
                return self.protocol_violation(from, "a chunk outside the pool");
            };
            let (offset, all) = (offset + first % BLOCK * PAGE, ProtFlags::READ | ProtFlags::WRITE);
            if let Err(error) = self.engine.memory.lay(first..end, pooled.pool.as_fd(), offset, all)
            {
                return self.fails(&error.to_string());
            }
        }
    }

    /// Hides pages of another machine that lie in the pool: accesses fault again.
    pub(super) fn hide_pooled(&mut self, pages: &Range<Page>) {
        if self.pooled.is_none() {
            return;
        }
        let base = self.control.layout().base();
        let blocks = block_of(pages.start)..=block_of(pages.end - 1);
        let known: Vec<u64> =
            self.blocks.known.keys().copied().filter(|it| blocks.contains(it)).collect();
        for block in known {
            let of = pages_of(block);
            let part = of.start.max(pages.start)..of.end.min(pages.end);
            let at = |page: Page| (base + page * PAGE) as usize;
            let hidden = self.engine.memory.cover(part.clone());
            let hidden =
                hidden.and_then(|()| self.engine.memory.watch(at(part.start)..at(part.end)));
            if let Err(error) = hidden {
                return self.fails(&error.to_string());
            }
        }
    }

    /// Zero-fills pages of this machine in the pool.
    pub(super) fn clear_pooled(&mut self, pages: &Range<Page>) {
        let Some(pooled) = &mut self.pooled else { return };
        for block in self.blocks.published_in(pages) {
            let of = pages_of(block);
            let part = of.start.max(pages.start)..of.end.min(pages.end);
            if let Some(chunk) = pooled.pool.chunk(block) {
                pooled.pool.zero(chunk, part.start - of.start..part.end - of.start);
            }
        }
    }

    /// Removes a block from the pool. Its task has ended, and no other machine maps it.
    pub(super) fn leave_pool(&mut self, block: u64) {
        let Some(pooled) = &self.pooled else { return };
        let covered = self.mappings_of(&pages_of(block)).and_then(|mappings| {
            // The export area is still mapped.
            let mut left = mappings.iter().filter(|it| pooled.has(it));
            left.try_for_each(|it| self.engine.memory.cover(self.part(it, &pages_of(block))))
        });
        match covered {
            Ok(()) => self.pooled().pool.give(block),
            Err(error) => self.fails(&error.to_string()),
        }
    }
}
