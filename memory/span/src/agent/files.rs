//! Private file mappings that the program cannot write ([`private_files`](crate::private_files)).
//! The origin's kernel has the mapping; other nodes read their own file (see `texts`) or get copies
//! of pages. When the program may write them, they become memory as any other.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use coherence::message::{NodeId, Page};
use coherence::sequential::Event;
use node::driver::Driver as _;
use node::sequential::Replica as _;
use pager::PagerError;
use rustix::mm::ProtFlags;

use super::change::Effect;
use super::state::Agent;
use crate::addresses::PAGE;
use crate::frame::{Frame, Message};
use crate::image::Text;
use crate::mapped::Mapped;
use crate::shared::Overlay;

/// Pages that are read at once when they become memory.
const TOGETHER: Page = 256;

/// Returns what these pages of this process show. A page of a file that has become shorter is an
/// error.
fn shown(pages: &Range<Page>) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; ((pages.end - pages.start) * PAGE) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, pages.start * PAGE)?;
    Ok(bytes)
}

impl Agent {
    /// The program may write these pages from now on: those that show a file become memory.
    pub(super) fn own_files(
        &mut self,
        pages: &Range<Page>,
        protection: u32,
    ) -> Result<(), PagerError> {
        let met: Vec<Range<Page>> = self.files.parts(pages).collect();
        for range in met {
            if self.origin.is_some() {
                self.take_files(&range, protection)?;
                self.set_overlay(range.clone(), Overlay::Text, false);
                self.step(Event::Loaded(range));
            } else {
                self.copies.end(&range);
                self.engine.memory.discard_all(range.clone())?;
                self.set_overlay(range.clone(), Overlay::Text, false);
                // Threads that wait for a copy repeat their access.
                let now = self.now();
                self.waits.all_go_on(range.clone(), now);
                self.with_counts(|seen, now| seen.all_go_on(&range, now));
                self.engine.memory.wake_all(range)?;
            }
        }
        Ok(())
    }

    /// At the origin, before the program starts: moves a part of it to its place.
    pub(super) fn lay_text(&mut self, text: &Text, mapped: Mapped) {
        let range = text.start..text.start + text.bytes.next_multiple_of(PAGE);
        let pages = self.pages_of(&range);
        self.change(Effect::Overlay(Overlay::Text), pages, 0, None);
        // SAFETY: the program does not run yet, and no other node takes part in the change, so it
        // is over.
        if !unsafe { mapped.move_to(text.start) } {
            self.end(1, "no memory for the program's text");
        }
    }

    /// At the origin: gives pages the content that they show. Threads may use them meanwhile.
    fn take_files(&mut self, pages: &Range<Page>, protection: u32) -> Result<(), PagerError> {
        let protection = ProtFlags::from_bits_truncate(protection);
        let mut at = pages.start;
        while at < pages.end {
            let part = at..pages.end.min(at + TOGETHER);
            let bytes = shown(&part).unwrap_or_else(|_| {
                let page_or_zeros =
                    |page| shown(&(page..page + 1)).unwrap_or(vec![0; PAGE as usize]);
                part.clone().flat_map(page_or_zeros).collect()
            });
            self.engine.memory.take(part.clone(), &bytes, protection)?;
            at = part.end;
        }
        Ok(())
    }

    /// At the origin: sends copies of pages that show a private file to a node.
    pub(super) fn send_shown(&mut self, to: NodeId, pages: &Range<Page>) {
        let (first, count) = (pages.start, pages.end - pages.start);
        match shown(pages) {
            Ok(body) => self.send(to, Frame::Word(Message::Copies { first, pages: count }), body),
            // A thread that reads the page at the origin gets the signal for the error.
            Err(_) => {
                let recall = Message::Recall { lease: 0, first, pages: count };
                self.notify(to, recall);
            }
        }
    }
}
