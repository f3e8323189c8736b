//! Carries out what the protocol wants done: with neighbouring pages at once, in few system
//! calls, whatever came with one message.

use std::mem::discriminant;
use std::ops::Range;

use coherence::message::Page;
use coherence::sequential::Action;
use coherence::sequential::message::{Body, Header, Pages};
use pager::{Access, PagerError};

use super::{Agent, HOLD};
use crate::frame::Frame;

/// Pages that came and are not mapped yet: where each is to be, and its place in the message.
type Filled = Vec<(Page, usize)>;

impl Agent {
    /// Carries out all of these; `came` are the pages of the message that they come of.
    pub(super) fn carry_out(
        &mut self,
        actions: &mut [Action],
        came: Option<Pages<'_>>,
    ) -> Result<(), PagerError> {
        letters_last(actions);
        let mut filled = Filled::new();
        let mut rest = &*actions;
        while let Some(action) = rest.first() {
            let (now, later) = rest.split_at(alike(rest));
            rest = later;
            let of = page_of(action).map(|first| first..first + now.len() as Page);
            match (action, of) {
                (Action::Fill(..), Some(pages)) => {
                    self.forget_texts(pages.clone())?;
                    self.seen(|seen, _| pages.for_each(|page| seen.came(page)));
                    filled.extend(now.iter().filter_map(|action| match *action {
                        Action::Fill(page, place) => Some((page, place)),
                        _ => None,
                    }));
                }
                (Action::MapRead(_), Some(pages)) => {
                    self.lets_go(pages.clone());
                    if self.region.can_allow_read() {
                        self.map(pages.clone(), Access::Read, &mut filled, came)?;
                    } else {
                        // Who wants to read says that they want to write: see `turn`.
                        self.fill(&mut filled, came)?;
                        pages.clone().try_for_each(|page| self.region.wake(page))?;
                    }
                    self.copy_those_asked(pages);
                }
                (Action::MapWrite(_), Some(pages)) => {
                    self.lets_go(pages.clone());
                    self.map(pages.clone(), Access::Write, &mut filled, came)?;
                    self.copy_those_asked(pages);
                }
                (Action::Protect(_), Some(pages)) => {
                    self.fill(&mut filled, came)?;
                    self.region.protect_all(pages)?;
                }
                (Action::Unmap(_), Some(pages)) => {
                    self.fill(&mut filled, came)?;
                    self.unmap(pages)?;
                }
                (action, _) => {
                    self.fill(&mut filled, came)?;
                    self.carry_out_one(action)?;
                }
            }
        }
        self.fill(&mut filled, came)?;
        self.send_letters();
        Ok(())
    }

    fn say_with_others(&mut self, header: &Header, body: &Body) {
        let letter = body.letter(header);
        match self.letters.iter_mut().find(|(to, _)| *to == header.to) {
            Some((_, letters)) => letters.extend(letter),
            None => self.letters.push((header.to, letter)),
        }
    }

    /// Says what waits to be said.
    fn send_letters(&mut self) {
        for (to, body) in std::mem::take(&mut self.letters) {
            self.send(to, Frame::Letters, body);
        }
    }

    fn carry_out_one(&mut self, action: &Action) -> Result<(), PagerError> {
        match action {
            Action::Wake(page) => {
                self.nobody_stops_at(*page, self.now());
                self.region.wake(*page)
            }
            Action::Hold(page) => {
                let now = self.now();
                let since = self.let_go.iter().rev().find(|(_, it)| it == page);
                let until = since.map_or(now, |(since, _)| since + HOLD);
                let at = self.holds.partition_point(|(other, _)| *other <= until);
                self.holds.insert(at, (until, *page));
                Ok(())
            }
            Action::Send(header, body) => {
                if body.is_letter() {
                    self.say_with_others(header, body);
                    return Ok(());
                }
                self.send_letters();
                let region = &self.region;
                let body = body.try_bytes(|pages, bytes| region.read_all(pages, bytes))?;
                self.send(header.to, Frame::Page(*header), body);
                Ok(())
            }
            Action::Lost(node, _) => self.lost(*node, "it holds pages of the program"),
            Action::Gone(_) => Ok(()),
            action => unreachable!("{action:?} is done with neighbours"),
        }
    }

    /// Threads may do that with pages, of which some have just come.
    fn map(
        &mut self,
        pages: Range<Page>,
        access: Access,
        filled: &mut Filled,
        came: Option<Pages<'_>>,
    ) -> Result<(), PagerError> {
        let is_now = |(page, _): &(Page, usize)| pages.contains(page);
        let (now, later): (Filled, Filled) = filled.drain(..).partition(is_now);
        *filled = later;
        let mut next = pages.start;
        for run in now.chunk_by(|one, other| (one.0 + 1, one.1 + 1) == *other) {
            let (mut page, mut place) = run[0];
            self.region.allow_all(next..page, access)?;
            next = page + run.len() as Page;
            while page < next {
                let came = came.expect("what is filled has come");
                let (count, bytes) = came.run(place, (next - page) as usize);
                let end = page + count as Page;
                self.region.bring(page..end, bytes, access)?;
                (page, place) = (end, place + count);
            }
        }
        self.region.allow_all(next..pages.end, access)
    }

    /// What came and stays unmapped is kept.
    fn fill(&mut self, filled: &mut Filled, came: Option<Pages<'_>>) -> Result<(), PagerError> {
        for (page, place) in filled.drain(..) {
            match came.expect("what is filled has come").get(place) {
                Some(bytes) => self.region.write(page, 0, bytes)?,
                None => self.region.discard(page)?,
            }
        }
        Ok(())
    }

    fn unmap(&mut self, pages: Range<Page>) -> Result<(), PagerError> {
        self.forget_texts(pages.clone())?;
        self.gives_up(pages)
    }

    /// Threads go on with pages: those stay for a while.
    fn lets_go(&mut self, pages: Range<Page>) {
        let now = self.now();
        while self.let_go.front().is_some_and(|(since, _)| since + HOLD < now) {
            self.let_go.pop_front();
        }
        for page in pages {
            self.let_go.push_back((now, page));
            self.nobody_stops_at(page, now);
        }
    }

    /// Nobody is stopped at the page any more.
    pub(super) fn nobody_stops_at(&mut self, page: Page, now: u64) {
        self.waits.go_on(page, now);
        self.seen(|seen, now| seen.goes_on(page, now));
    }
}

/// Messages that bring no pages are said last, several as one: but before others.
fn letters_last(actions: &mut [Action]) {
    let brings = |action: &Action| matches!(action, Action::Send(_, body) if !body.is_letter());
    for part in actions.split_inclusive_mut(brings) {
        part.sort_by_key(|action| match action {
            Action::Send(..) if brings(action) => 2,
            Action::Send(..) => 1,
            _ => 0,
        });
    }
}

/// The page of an action that is done with neighbours at once.
fn page_of(action: &Action) -> Option<Page> {
    match *action {
        Action::Fill(page, _)
        | Action::MapRead(page)
        | Action::MapWrite(page)
        | Action::Protect(page)
        | Action::Unmap(page) => Some(page),
        _ => None,
    }
}

/// How many of these, from the first on, do the same with one page after the other.
fn alike(actions: &[Action]) -> usize {
    let goes_on = |pair: &&[Action]| {
        let next = page_of(&pair[0]).map(|page| page + 1);
        next.is_some()
            && next == page_of(&pair[1])
            && discriminant(&pair[0]) == discriminant(&pair[1])
    };
    1 + actions.windows(2).take_while(goes_on).count()
}

#[cfg(test)]
mod tests {
    use coherence::sequential::message::Op;

    use super::*;

    #[test]
    fn what_brings_no_pages_is_said_last_but_before_what_does() {
        use Action::{Fill, Send, Unmap, Wake};
        let header = |page| Header {
            op: Op::Acknowledge,
            from: 0,
            to: 1,
            node: 0,
            page,
            set: 0,
            whole: false,
            hops: 0,
            runs: 0,
        };
        let letter = |page| Send(header(page), Body::Runs(Vec::new()));
        let pages = |page| Send(header(page), Body::Pages { asked: Some(page), rides: Vec::new() });
        let mut actions =
            [letter(1), Unmap(1), letter(2), Unmap(2), pages(3), Unmap(3), letter(4), Wake(5)];
        letters_last(&mut actions);
        let expected =
            [Unmap(1), Unmap(2), letter(1), letter(2), pages(3), Unmap(3), Wake(5), letter(4)];
        assert_eq!(actions, expected);
        letters_last(&mut []);
        letters_last(&mut [Fill(1, 0)]);
    }

    #[test]
    fn what_is_done_alike_with_neighbours_is_done_at_once() {
        use Action::{Fill, MapRead, MapWrite, Wake};
        assert_eq!(alike(&[Fill(3, 0), Fill(4, 7), Fill(5, 1), Fill(7, 2)]), 3);
        assert_eq!(alike(&[MapRead(3), MapWrite(4)]), 1);
        assert_eq!(alike(&[MapRead(3), MapRead(3)]), 1);
        assert_eq!(alike(&[Wake(3), Wake(4)]), 1);
    }
}
