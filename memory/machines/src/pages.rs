//! Carries out what the protocol wants done with pages.

use coherence::message::Page;
use coherence::sequential::Action;
use coherence::sequential::message::{Body, Header, Pages};
use pager::shared::PAGE;
use pager::{Access, PagerError};

use crate::agent::{Agent, HOLD};
use crate::frame::Frame;

impl Agent {
    /// Carries out all of these; `came` are the pages of the message that they come of.
    pub(super) fn carry_out(
        &mut self,
        actions: &[Action],
        came: Option<Pages<'_>>,
    ) -> Result<(), PagerError> {
        for action in actions {
            match action {
                Action::Fill(page, place) => {
                    let bytes = came.expect("what is filled has come").get(*place);
                    self.shared.write(*page, bytes.unwrap_or(&[0; PAGE as usize]))?;
                }
                Action::MapRead(page) => {
                    self.lets_go(*page);
                    match self.shared.can_allow_read() {
                        true => self.shared.allow(*page, Access::Read)?,
                        // Who wants to read says that they want to write: see `stopped`.
                        false => self.shared.wake(*page..*page + 1)?,
                    }
                }
                Action::MapWrite(page) => {
                    self.lets_go(*page);
                    self.shared.allow(*page, Access::Write)?;
                }
                Action::Protect(page) => self.shared.protect(*page)?,
                Action::Unmap(page) => self.shared.forbid(*page)?,
                Action::Wake(page) => self.shared.wake(*page..*page + 1)?,
                Action::Hold(page) => self.hold(*page),
                Action::Send(header, body) => self.send_page(header, body)?,
                // The mesh tells of losses.
                Action::Lost(..) | Action::Gone(_) => {}
            }
        }
        self.send_letters();
        Ok(())
    }

    fn send_page(&mut self, header: &Header, body: &Body) -> Result<(), PagerError> {
        if body.is_letter() {
            let letter = body.letter(header);
            match self.letters.iter_mut().find(|(to, _)| *to == header.to) {
                Some((_, letters)) => letters.extend(letter),
                None => self.letters.push((header.to, letter)),
            }
            return Ok(());
        }
        self.send_letters();
        let shared = &self.shared;
        let body =
            body.try_bytes(|pages, bytes| {
                let from = bytes.len();
                bytes.resize(from + ((pages.end - pages.start) * PAGE) as usize, 0);
                shared.copy(pages, &mut bytes[from..])
            })?;
        self.tell_in_time();
        self.send(header.to, Frame::Page(*header), body);
        Ok(())
    }

    /// Says what waits to be said.
    fn send_letters(&mut self) {
        for (to, body) in std::mem::take(&mut self.letters) {
            self.send(to, Frame::Letters, body);
        }
    }

    /// Tasks go on with a page: it stays for a while.
    fn lets_go(&mut self, page: Page) {
        let now = self.now();
        while self.let_go.front().is_some_and(|(since, _)| since + HOLD < now) {
            self.let_go.pop_front();
        }
        self.let_go.push_back((now, page));
    }

    fn hold(&mut self, page: Page) {
        let now = self.now();
        let since = self.let_go.iter().rev().find(|(_, it)| *it == page);
        let until = since.map_or(now, |(since, _)| since + HOLD);
        let at = self.holds.partition_point(|(other, _)| *other <= until);
        self.holds.insert(at, (until, page));
    }
}
