//! Pages that are text of a file: the origin announces them, and other nodes read their own files.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use coherence::message::{NodeId, Page};
use node::driver::Driver as _;
use node::sequential::Replica as _;
use pager::Access;

use super::state::Agent;
use crate::addresses::PAGE;
use crate::frame::{Frame, Message};
use crate::image;
use crate::texts::Name;

/// Of a node that is not the origin.
impl Agent {
    /// The origin announces pages of text.
    pub(super) fn set_text(
        &mut self,
        first: Page,
        pages: u64,
        offset: u64,
        bytes: u64,
        body: &[u8],
    ) {
        let end = first.checked_add(pages).filter(|&end| end <= self.engine.memory.pages());
        match (end, postcard::from_bytes::<Name>(body)) {
            // Before Linux 6.4 a page cannot be given for reading only.
            (Some(end), Ok(name)) if self.engine.memory.can_allow_read() => {
                if !self.texts.insert(first..end, name, offset, bytes) {
                    self.violation(0, "text at an offset that no file has");
                }
            }
            (Some(_), Ok(_)) => {}
            _ => self.violation(0, "text"),
        }
    }

    /// Before anything is done to pages everywhere: they are as the protocol knows them.
    pub(super) fn end_text(&mut self, pages: Range<Page>) {
        for page in self.texts.remove(pages) {
            if let Err(error) = self.engine.memory.discard(page) {
                self.end(1, &error.to_string());
            }
        }
    }

    /// Installs a page for a read, if this node has it in a file.
    pub(super) fn read_text(&mut self, page: Page) -> bool {
        if self.engine.memory.access(page) > Access::None {
            // Another thread wanted it before. If it was not read here, the protocol has it.
            let is_there = self.texts.has(page);
            if is_there {
                self.resumed(page, self.now());
            }
            return is_there && self.engine.memory.wake(page).is_ok();
        }
        let mut done = Ok(());
        let mut all = Vec::new();
        let region = &self.engine.memory;
        let is_wanted = |page| region.access(page) == Access::None;
        if !self.texts.read(page, is_wanted, |page, bytes| all.push((page, bytes.to_vec()))) {
            return false;
        }
        for (page, bytes) in all {
            let region = &mut self.engine.memory;
            done = done
                .and_then(|()| region.write(page, 0, &bytes))
                .and_then(|()| region.allow(page, Access::Read));
            self.resumed(page, self.now());
        }
        if let Err(error) = done {
            self.end(1, &error.to_string());
        }
        true
    }

    /// The protocol brings pages that may have been read, or takes them.
    pub(super) fn forget_texts(&mut self, pages: Range<Page>) -> Result<(), pager::PagerError> {
        pages.into_iter().try_for_each(|page| match self.texts.forget(page) {
            true => self.engine.memory.discard(page),
            false => Ok(()),
        })
    }
}

/// Of the origin.
impl Agent {
    /// A thread has mapped a file for reading, `bytes` of it from `offset` on.
    pub(super) fn mapped_file(
        &mut self,
        thread: u32,
        descriptor: i32,
        start: u64,
        offset: u64,
        bytes: u64,
    ) {
        // The program's descriptors are not the agent's.
        let tid = self.table.slot(thread).tid.load(std::sync::atomic::Ordering::Relaxed);
        let link = PathBuf::from(format!("/proc/self/task/{tid}/fd/{descriptor}"));
        if let (Ok(path), Ok(file)) = (std::fs::read_link(&link), File::open(&link)) {
            self.announce_text(&image::Text { path, start, offset, bytes, mapped: None }, &file);
        }
        self.answer(thread, 0);
    }

    /// Tells the others, if it is a file that they may have.
    pub(super) fn announce_text(&mut self, text: &image::Text, file: &File) {
        let image::Text { path, start, offset, bytes, .. } = text;
        let Some(name) = Name::of(path, file) else { return };
        let range = *start..*start + bytes.next_multiple_of(PAGE);
        let range = self.pages_of(&range);
        let (first, pages) = (range.start, range.end - range.start);
        let message = Message::Text { first, pages, offset: *offset, bytes: *bytes };
        let body = postcard::to_allocvec(&name).expect("it has a length");
        for node in 1..self.names.len() as NodeId {
            self.send(node, Frame::Word(message), body.clone());
        }
    }
}
