//! Blocks in a [pool](crate::pool), of machines that share memory. There nobody brings pages: the
//! first question about a block moves it to the pool, where all map it as soon as somebody comes to
//! it. From then on its memory is the processors' affair, and only what is mapped where is still
//! told.
//!
//! What is moved keeps its address. Threads that use it meanwhile are stopped by userfaultfd, and
//! go on in the pool. Of the same task nobody maps or unmaps anything then: the gate has a lock for
//! that, which the agent takes, or knows to be held by who waits for it.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coherence::message::{NodeId, Page};
use nagaya_layout::EXPORT_SIZE;
use pager::PagerError;
use pager::shared::PAGE;
use proc::maps::Mapping;
use rustix::mm::ProtFlags;

use crate::agent::Agent;
use crate::frame::{Frame, Word};
use crate::pool::Pool;
use crate::publish::{BLOCK, Bits, block_of, is_constant, is_set, look, pages_of};
use crate::sleepers::{self, Runners};

/// How long until the agent tries again to move a block of a task that just maps something.
const NAP: Duration = Duration::from_micros(100);

/// What an agent knows of a pool.
#[derive(Debug)]
pub struct Pooled {
    pool: Pool,
    /// Others' questions about pages that could not be moved yet.
    looks: Vec<(NodeId, Page)>,
    /// Threads that may still go to sleep where a block was, and its first page.
    runners: Vec<(Page, Runners)>,
}

impl Pooled {
    pub fn new(pool: Pool) -> Self {
        Self { pool, looks: Vec::new(), runners: Vec::new() }
    }

    /// When something is to be tried again.
    pub fn due(&self) -> Option<Instant> {
        let looks = (!self.looks.is_empty()).then(|| Instant::now() + NAP);
        looks.into_iter().chain(self.runners.iter().map(|(_, it)| it.due())).min()
    }

    /// Whether a mapping is of the pool.
    pub fn has(&self, mapping: &Mapping) -> bool {
        mapping.is_shared && mapping.identity == self.pool.identity
    }
}

impl Agent {
    /// Another machine asks whether a page of ours is mapped: its block is in the pool from now on.
    pub(super) fn look_pooled(&mut self, from: NodeId, page: Page) {
        let (id, block, control) = (self.id_of(page), block_of(page), self.control);
        let me = self.desk.agent.load(Ordering::Relaxed) as u32;
        let Some(still) = control.keep_still(id, me) else {
            return self.pooled().looks.push((from, page));
        };
        let mut pages = pages_of(block);
        if !self.runs(id) {
            // The owner maps and unmaps all else.
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
            if !is_set(&bits, page) {
                self.blocks.refused.insert(page);
            }
        }
        drop(still);
        let chunk = self.pooled().pool.chunk(block).unwrap_or(0);
        self.send(from, Frame::Word(Word::Seen { block, chunk }), bits.bytes());
    }

    fn pooled(&mut self) -> &mut Pooled {
        self.pooled.as_mut().expect("there is a pool")
    }

    /// Moves what is mapped of these pages of a published block, unless it is there already. Of the
    /// task nobody maps or unmaps anything meanwhile.
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
        // Nobody sleeps where nobody has been.
        if was_used {
            self.wake_sleepers(pages);
        }
    }

    /// Whether anybody has used it.
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
        let offset = pool.offset(chunk).expect("it is ours") + part.start % BLOCK * PAGE;
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, mapping.reads);
        protection.set(ProtFlags::WRITE, mapping.writes);
        protection.set(ProtFlags::EXEC, mapping.executes);
        self.engine.memory.lay(part.clone(), pool.as_fd(), offset, protection)?;
        self.engine.memory.discard(part)?;
        Ok(was_used)
    }

    /// What others may only read lies in the pool for them alone.
    fn copy_part(&mut self, part: Range<Page>, chunk: u64) {
        let base = self.control.layout().base();
        let mut bytes = [0; PAGE as usize];
        for page in part {
            if look(base + page * PAGE, &mut bytes) {
                let pool = &mut self.pooled().pool;
                let at = page % BLOCK;
                pool.write(chunk, at..at + 1, |to| to.copy_from_slice(&bytes));
            }
        }
    }

    /// Wakes who sleeps at futexes of pages that have been moved.
    fn wake_sleepers(&mut self, pages: Range<Page>) {
        let control = self.control;
        let ours = self.plan.ids[self.plan.me as usize].clone();
        let ours = ours.filter(|&id| control.is_announced(id));
        let pids = ours.map(|id| control.slot(id).pid.load(Ordering::Acquire));
        let pids = pids.chain([std::process::id()]);
        let at = |page: Page| control.layout().base() + page * PAGE;
        let (all, offset) = (at(pages.start)..at(pages.end), pages.start * PAGE);
        if let Some(runners) = sleepers::wake(pids, all, self.engine.memory.as_fd(), offset) {
            self.pooled().runners.push((pages.start, runners));
        }
    }

    /// Does what had to wait.
    pub(super) fn go_on_pooling(&mut self) {
        let Some(pooled) = &mut self.pooled else { return };
        let (now, file) = (Instant::now(), self.engine.memory.as_fd());
        pooled.runners.retain_mut(|(page, runners)| {
            runners.due() > now || sleepers::again(runners, file, *page * PAGE)
        });
        for (from, page) in std::mem::take(&mut pooled.looks) {
            self.look_pooled(from, page);
        }
    }

    /// Maps what is mapped of another machine's block, in its chunk.
    pub(super) fn show_pooled(&mut self, from: NodeId, block: u64, chunk: u64, bits: &Bits) {
        let shown = |it: &Self, page: Page| is_set(bits, page) && !it.pages.closed.contains(page);
        let Some(pooled) = &self.pooled else { return };
        let mut pages = pages_of(block);
        while let Some(first) = pages.find(|&page| shown(self, page)) {
            let end = pages.find(|&page| !shown(self, page)).unwrap_or(pages.end);
            let Some(offset) = pooled.pool.offset(chunk) else {
                return self.nonsense(from, "a part of the pool that there is not");
            };
            let (offset, all) = (offset + first % BLOCK * PAGE, ProtFlags::READ | ProtFlags::WRITE);
            if let Err(error) = self.engine.memory.lay(first..end, pooled.pool.as_fd(), offset, all)
            {
                return self.fails(&error.to_string());
            }
        }
    }

    /// Nobody here is to use these pages of another machine's as they lie in the pool.
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

    /// These pages of ours hold nothing any more.
    pub(super) fn clear_pooled(&mut self, pages: &Range<Page>) {
        let Some(pooled) = &mut self.pooled else { return };
        let blocks = block_of(pages.start)..=block_of(pages.end - 1);
        for &block in self.blocks.published.range(blocks) {
            let of = pages_of(block);
            let part = of.start.max(pages.start)..of.end.min(pages.end);
            if let Some(chunk) = pooled.pool.chunk(block) {
                pooled.pool.zero(chunk, part.start - of.start..part.end - of.start);
            }
        }
    }

    /// A block of ours, whose task has ended, and which no other machine has, is not in the pool
    /// any more.
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
