//! Blocks of memory that other machines know. The first question about a block publishes it: from
//! then on its memory is watched, and what is in use of it the protocol knows. What somebody has
//! mapped privately and cannot write (text, constants) is copied to the memory's file, for others
//! only.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use coherence::message::{NodeId, Page};
use coherence::run::Run;
use coherence::sequential::Event;
use coherence::sequential::message::{Content, Header};
use nagaya_gate::abi::PUBLISHED_BLOCK;
use node::sequential::Replica as _;
use pager::PagerError;
use pager::shared::PAGE;
use proc::maps::{self, Mapping};
use rustix::io::Errno;

use crate::agent::Agent;
use crate::frame::{Frame, Word};

/// Pages of a block.
pub const BLOCK: u64 = PUBLISHED_BLOCK / PAGE;
/// A bit a page of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bits([u64; (BLOCK / 64) as usize]);

impl Bits {
    /// As another machine reads them.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut bits = Self::default();
        if bytes.len() != size_of_val(&bits.0) {
            return None;
        }
        for (word, bytes) in bits.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        Some(bits)
    }

    fn set(&mut self, page: Page) {
        let bit = page % BLOCK;
        self.0[(bit / 64) as usize] |= 1 << (bit % 64);
    }
}

/// What is known of blocks.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Ours that others know.
    pub published: BTreeSet<u64>,
    /// Others' of which we know which pages are mapped there: those stay so until they begin
    /// anew, and others may come.
    pub known: HashMap<u64, Bits>,
    /// Pages of ours that somebody has asked for when they were not mapped.
    pub refused: BTreeSet<Page>,
    /// Others' where somebody is stopped, to write or not; of the first page was asked whether it
    /// is mapped.
    pub looking: HashMap<u64, VecDeque<(Page, bool)>>,
}

pub fn block_of(page: Page) -> u64 {
    page / BLOCK
}

pub fn pages_of(block: u64) -> Range<Page> {
    block * BLOCK..(block + 1) * BLOCK
}

pub fn is_set(bits: &Bits, page: Page) -> bool {
    let bit = page % BLOCK;
    bits.0[(bit / 64) as usize] >> (bit % 64) & 1 == 1
}

impl Agent {
    /// Others ask for the pages that a message names.
    pub(super) fn publish_asked(&mut self, header: &Header, content: &Content) {
        let named = content.iter().flat_map(Run::range);
        for page in std::iter::once(header.page).chain(named) {
            if self.is_ours(page) {
                self.publish(block_of(page));
            }
        }
    }

    /// Others know of a block of ours from now on.
    fn publish(&mut self, block: u64) {
        if !self.blocks.published.insert(block) {
            return;
        }
        self.control.publish(block, true);
        self.take_stock(pages_of(block));
    }

    /// Others know nothing any more of a block of ours.
    pub(super) fn unpublish(&mut self, block: u64) {
        self.blocks.published.remove(&block);
        self.control.publish(block, false);
    }

    /// Watches what is mapped of these pages, whose blocks are published, and tells the protocol of
    /// what is in use. What it knows already stays as it is.
    pub(super) fn take_stock(&mut self, pages: Range<Page>) {
        let done = self.mappings_of(&pages).and_then(|mappings| match self.pooled {
            Some(_) => {
                self.move_to_pool(pages, &mappings);
                Ok(())
            }
            None => self.take(pages, &mappings),
        });
        if let Err(error) = done {
            self.fails(&error.to_string());
        }
    }

    pub(super) fn mappings_of(&self, pages: &Range<Page>) -> Result<Vec<Mapping>, PagerError> {
        let at = |page: Page| self.control.layout().base() + page * PAGE;
        let failed = |error: std::io::Error| {
            let why = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            PagerError::System { doing: "read /proc/self/maps", why }
        };
        let wanted = at(pages.start)..at(pages.end);
        let overlaps = |it: &Range<u64>| it.start < wanted.end && wanted.start < it.end;
        let all = maps::own().map_err(failed)?;
        Ok(all.into_iter().filter(|it| overlaps(&it.addresses)).collect())
    }

    /// The part of a mapping in these pages.
    pub(super) fn part(&self, mapping: &Mapping, pages: &Range<Page>) -> Range<Page> {
        let page = |at: u64| at.saturating_sub(self.control.layout().base()) / PAGE;
        page(mapping.addresses.start).max(pages.start)..page(mapping.addresses.end).min(pages.end)
    }

    fn take(&mut self, pages: Range<Page>, mappings: &[Mapping]) -> Result<(), PagerError> {
        let base = self.control.layout().base();
        for mapping in mappings {
            let part = self.part(mapping, &pages);
            if self.is_memory(mapping) {
                let at = |page: Page| (base + page * PAGE) as usize;
                self.engine.memory.watch(at(part.start)..at(part.end))?;
                for held in self.engine.memory.held(part)? {
                    for page in
                        held.filter(|&page| !self.engine.memory.knows(page)).collect::<Vec<_>>()
                    {
                        self.engine.memory.are_used(page..page + 1);
                        self.step(Event::Loaded(page..page + 1));
                    }
                }
            } else if is_constant(mapping) {
                for page in part {
                    let mut bytes = [0; PAGE as usize];
                    if !self.engine.memory.knows(page) && look(base + page * PAGE, &mut bytes) {
                        self.engine.memory.is_apart(page, &bytes)?;
                        self.step(Event::Loaded(page..page + 1));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether it is a task's memory, and not in a pool.
    pub(super) fn is_memory(&self, mapping: &Mapping) -> bool {
        mapping.is_shared && mapping.identity == self.identity
    }

    /// Which of these pages of a block others may use.
    pub(super) fn bits(&self, pages: &Range<Page>, mappings: &[Mapping]) -> Bits {
        let mut bits = Bits::default();
        for mapping in mappings {
            let is_pooled = self.pooled.as_ref().is_some_and(|it| it.has(mapping));
            if mapping.reads && (is_pooled || self.is_memory(mapping)) || is_constant(mapping) {
                self.part(mapping, pages).for_each(|page| bits.set(page));
            }
        }
        bits
    }

    /// Another machine asks whether a page is mapped.
    pub(super) fn look(&mut self, from: NodeId, page: Page) {
        if !self.is_ours(page) {
            return self.nonsense(from, "a page that is not ours");
        }
        if self.pooled.is_some() {
            return self.look_pooled(from, page);
        }
        let block = block_of(page);
        let is_news = !self.blocks.published.contains(&block);
        self.publish(block);
        let pages = pages_of(block);
        let mappings = match self.mappings_of(&pages) {
            Ok(mappings) => mappings,
            Err(error) => return self.fails(&error.to_string()),
        };
        // Constants may have come since.
        if !is_news && let Err(error) = self.take(pages.clone(), &mappings) {
            return self.fails(&error.to_string());
        }
        let bits = self.bits(&pages, &mappings);
        if !is_set(&bits, page) {
            self.blocks.refused.insert(page);
        }
        self.send(from, Frame::Word(Word::Seen { block, chunk: 0 }), bits.bytes());
    }

    /// The answer.
    pub(super) fn seen(&mut self, from: NodeId, block: u64, chunk: u64, body: &[u8]) {
        let is_its = block.checked_mul(BLOCK).and_then(|page| self.home(page)) == Some(from);
        let Some(bits) = Bits::parse(body).filter(|_| is_its) else {
            return self.nonsense(from, "what is mapped elsewhere");
        };
        self.blocks.known.insert(block, bits);
        let known = pages_of(block).filter(|&page| is_set(&bits, page));
        known.for_each(|page| self.pages.node.may_foresee(page..page + 1));
        self.show_pooled(from, block, chunk, &bits);
        let mut waiting = self.blocks.looking.remove(&block).unwrap_or_default();
        let asked = waiting.front().map(|(page, _)| *page);
        // What is not mapped is known of the page that was asked for only.
        waiting.retain(|&(page, writes)| {
            if self.pages.closed.contains(page) {
                // Who is stopped there is let go when it opens.
            } else if is_set(&bits, page) {
                self.wants(page, writes);
            } else if Some(page) == asked {
                self.is_wrong(page);
            } else {
                return true;
            }
            false
        });
        if let Some(&(page, _)) = waiting.front() {
            self.blocks.looking.insert(block, waiting);
            self.ask_for(page);
        }
    }
}

/// What its owner only reads, and others may, too.
pub fn is_constant(mapping: &Mapping) -> bool {
    mapping.reads && !mapping.writes && !mapping.is_shared
}

/// Copies a page of this process, if that can be.
pub fn look(at: u64, to: &mut [u8; PAGE as usize]) -> bool {
    let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let there = libc::iovec { iov_base: at as *mut _, iov_len: to.len() };
    // SAFETY: writes the buffer; what cannot be read is an error.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0) };
    read == to.len() as isize
}
