//! Publishing. When another machine first looks up a page of a block, the block is published: its
//! memory is watched from then on, and the protocol learns which pages are in use.
//!
//! Private mappings that their task cannot write (text, constants) are copied to the memory's
//! file, for other machines only.

use std::ops::Range;

use coherence::message::{NodeId, Page};
use coherence::run::Run;
use coherence::sequential::Event;
use coherence::sequential::message::{Content, Header, Op, parse_batch};
use node::sequential::Replica as _;
use pager::PagerError;
use pager::shared::PAGE;
use proc::maps::{self, Mapping};
use rustix::io::Errno;

use crate::agent::Agent;
use crate::blocks::{BLOCK, Bits, Lookup, block_of, pages_of};
use crate::frame::{Frame, Message};

impl Agent {
    /// Publishes the blocks of the pages that a request names.
    pub(super) fn publish_asked(&mut self, header: &Header, content: &Content) {
        let named = content.iter().flat_map(Run::range);
        for page in std::iter::once(header.page).chain(named) {
            if self.is_own(page) {
                self.publish(block_of(page));
            }
        }
    }

    /// Publishes a block of this machine.
    fn publish(&mut self, block: u64) {
        if !self.blocks.published.insert(block) {
            return;
        }
        self.control.publish(block, true);
        self.scan(pages_of(block));
    }

    /// Ends the publication of a block: no other machine knows it any more.
    pub(super) fn unpublish(&mut self, block: u64) {
        self.blocks.published.remove(&block);
        self.control.publish(block, false);
    }

    /// Scans the mappings of pages whose block is published: watches them, and tells the protocol
    /// which pages are in use. Nothing changes for pages that it knows already.
    pub(super) fn scan(&mut self, pages: Range<Page>) {
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

    /// Returns the mappings that overlap these pages.
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

    /// Returns the part of a mapping that lies in these pages.
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
                    if !self.engine.memory.knows(page) && copy_page(base + page * PAGE, &mut bytes)
                    {
                        self.engine.memory.is_apart(page, &bytes)?;
                        self.step(Event::Loaded(page..page + 1));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if a mapping is memory of a task, outside a pool.
    pub(super) fn is_memory(&self, mapping: &Mapping) -> bool {
        mapping.is_shared && mapping.identity == self.identity
    }

    /// Returns the pages, of one block, that other machines may use.
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

    /// Answers a lookup of a page. Hands `request`, the protocol's request for the page, to the
    /// protocol if the page is mapped, and drops it otherwise.
    pub(super) fn answer_lookup(&mut self, from: NodeId, page: Page, request: &[u8]) {
        if !self.is_own(page) {
            return self.protocol_violation(from, "a lookup of a page of another machine");
        }
        if !request.is_empty() && (self.pooled.is_some() || !is_request_for(page, from, request)) {
            return self.protocol_violation(from, "a lookup with another request");
        }
        if self.pooled.is_some() {
            return self.answer_pooled_lookup(from, page);
        }
        let block = block_of(page);
        let is_new = !self.blocks.published.contains(&block);
        self.publish(block);
        let pages = pages_of(block);
        let mappings = match self.mappings_of(&pages) {
            Ok(mappings) => mappings,
            Err(error) => return self.fails(&error.to_string()),
        };
        // Constants may have been mapped since the block was published.
        if !is_new && let Err(error) = self.take(pages.clone(), &mappings) {
            return self.fails(&error.to_string());
        }
        let bits = self.bits(&pages, &mappings);
        self.send(from, Frame::Word(Message::LookupReply { block, chunk: 0 }), bits.bytes());
        if !bits.is_set(page) {
            self.blocks.refused.insert(page);
        } else if !request.is_empty() {
            self.receive_batch(from, request);
        }
    }

    /// Takes the answer to a lookup.
    pub(super) fn looked_up(&mut self, from: NodeId, block: u64, chunk: u64, body: &[u8]) {
        let is_its = block.checked_mul(BLOCK).and_then(|page| self.home(page)) == Some(from);
        let Some(bits) = Bits::parse(body).filter(|_| is_its) else {
            return self.protocol_violation(from, "a lookup reply for another machine's block");
        };
        let Some(lookup) = self.blocks.lookups.remove(&block) else {
            return self.protocol_violation(from, "a lookup reply that was not asked for");
        };
        let Lookup { page, carries_request, mut waiting } = lookup;
        let is_mapped = bits.is_set(page);
        if carries_request && !is_mapped && !self.pages.node.can_be_declined(page) {
            return self.protocol_violation(from, "a refusal of a page that was not requested");
        }
        self.blocks.known.insert(block, bits);
        let known = pages_of(block).filter(|&page| bits.is_set(page));
        known.for_each(|page| self.pages.node.allow_prediction(page..page + 1));
        self.show_pooled(from, block, chunk, &bits);
        if carries_request && !is_mapped {
            self.declined(page, from);
        }
        // Threads that are stopped at a closed page resume when it opens.
        if !self.pages.closed.contains(page) {
            match is_mapped {
                true if self.pooled.is_some() => self.request(page, false),
                // The protocol has the request already.
                true => {}
                false => self.close_unmapped(page),
            }
        }
        waiting.retain(|&(page, writes)| {
            let is_closed = self.pages.closed.contains(page);
            let is_mapped = bits.is_set(page);
            if is_mapped && !is_closed {
                self.request(page, writes);
            }
            !is_mapped && !is_closed
        });
        // The home reports later mappings only for pages that were looked up themselves.
        if let Some((page, writes)) = waiting.pop_front() {
            self.look_up(page, writes, waiting);
        }
    }
}

/// Returns true if `request` is one request of `from` for `page`.
fn is_request_for(page: Page, from: NodeId, request: &[u8]) -> bool {
    let is_it = |header: &Header| {
        let asks = matches!(header.op, Op::AskRead | Op::AskWrite);
        asks && header.page == page && header.node == from
    };
    parse_batch(request).is_some_and(|all| matches!(&all[..], [(header, _)] if is_it(header)))
}

/// Returns true if the owner of a mapping only reads it: other machines may read it, too.
pub fn is_constant(mapping: &Mapping) -> bool {
    mapping.reads && !mapping.writes && !mapping.is_shared
}

/// Copies a page of this process. Returns false if it cannot be read.
pub fn copy_page(at: u64, to: &mut [u8; PAGE as usize]) -> bool {
    let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let there = libc::iovec { iov_base: at as *mut _, iov_len: to.len() };
    // SAFETY: the kernel writes at most `to.len()` bytes to `to`, which is borrowed exclusively.
    // It checks the address `at` itself and returns an error if no page is there.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0) };
    read == to.len() as isize
}

#[cfg(test)]
mod tests {
    use super::*;
    use coherence::sequential::message::Body;

    #[test]
    fn a_lookup_carries_one_request_for_its_page() {
        let request = |op, page, node| {
            let header =
                Header { op, from: 1, to: 0, node, page, set: 0, whole: false, hops: 0, runs: 0 };
            Body::Runs(Vec::new()).encode_for_batch(&header)
        };
        let good = request(Op::AskWrite, 7, 1);
        assert!(is_request_for(7, 1, &good));
        assert!(is_request_for(7, 1, &request(Op::AskRead, 7, 1)));
        assert!(!is_request_for(8, 1, &good), "another page");
        assert!(!is_request_for(7, 2, &good), "another machine");
        assert!(!is_request_for(7, 1, &request(Op::Acknowledge, 7, 1)), "another message");
        assert!(!is_request_for(7, 1, &[&good[..], &good[..]].concat()), "two requests");
        assert!(!is_request_for(7, 1, &good[1..]));
    }
}
