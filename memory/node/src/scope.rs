//! Drives scope consistency ([`coherence::scope`]): passes faults and messages to the protocol, and
//! carries out its actions on pages, twins and diffs. Neighbouring pages change their access
//! together. Locks and barriers are the user's: this module forwards their events and grants.

use std::collections::HashSet;
use std::ops::Range;

use coherence::content::Content;
use coherence::message::{Header, Page};
use coherence::record::Recorder;
use coherence::refusal::Refused;
use coherence::scope::event::{Body, Misuse, Task};
use coherence::scope::{Action, Event, Node};
use pager::{Access, PagerError};

use crate::batch::run_length;
use crate::driver::Driver;
use crate::memory::{Contents, Memory as _};
use crate::twins::{self, Twins};

/// The state of an engine whose pages are scope consistent.
pub struct Scope {
    /// The protocol.
    pub node: Node,
    /// Twins and diffs.
    pub twins: Twins,
    /// Records events and actions, if the user enables it.
    pub recorder: Option<Recorder>,
    /// Pages at which threads are stopped.
    missing: HashSet<Page>,
    actions: Vec<Action>,
}

impl Scope {
    /// Returns the state of a node whose pages have `page_bytes`.
    pub fn new(node: Node, page_bytes: usize, recorder: Option<Recorder>) -> Self {
        let twins = Twins::new(page_bytes);
        Self { node, twins, recorder, missing: HashSet::new(), actions: Vec::new() }
    }

    /// Returns the number of pages at which threads are stopped.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }
}

/// A driver whose pages are scope consistent.
pub trait Scoped: Driver<Memory: Contents> {
    /// Returns its pages.
    fn pages(&self) -> &Scope;

    /// Returns its pages.
    fn pages_mut(&mut self) -> &mut Scope;

    /// Sends a message of the protocol.
    fn send_page_message(&mut self, header: &Header, body: Vec<u8>);

    /// Runs when a task has acquired the lock, or passed the barrier, for which it waited.
    fn granted(&mut self, task: Task);

    /// Handles a message that the protocol has refused. `allocates` is true if that happened during
    /// an allocation, which processes kept messages.
    fn refused(&mut self, refused: &Refused, allocates: bool);

    /// Runs before the protocol handles an event. `body` is that of a message.
    fn before_step(&mut self, _event: &Event, _body: &[u8]) {}

    /// Runs after the protocol has handled an event.
    fn after_step(&mut self) {}

    /// Runs before a message of the protocol is sent.
    fn before_send(&mut self, _header: &Header) {}

    /// Passes an event to the protocol, and carries out its actions. `body` is that of a message.
    /// After an error of the memory it drops the rest, or threads might see a page that was not
    /// filled. Returns the misuse of a task, which changes nothing.
    fn step(&mut self, event: Event, body: &mut Vec<u8>) -> Option<Misuse> {
        let now = self.now();
        self.before_step(&event, body);
        let pages = self.pages_mut();
        let mut actions = std::mem::take(&mut pages.actions);
        assert!(actions.is_empty(), "a step ends before the next one begins");
        if let Some(recorder) = &mut pages.recorder {
            recorder.event(now, &event);
        }
        let allocates = matches!(event, Event::Allocate { .. });
        let result = pages.node.step(event, now, &mut actions);
        if let Some(recorder) = &mut pages.recorder {
            recorder.outcome(&actions, &result);
        }
        self.after_step();
        if let Err(refused) = &result {
            self.refused(refused, allocates);
        }
        let mut misuse = None;
        let mut rest = &actions[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(run_length(rest, access_change));
            rest = later;
            let done = match access_change(&now[0]) {
                Some((first, change)) => {
                    self.change_access(first..first + now.len() as Page, change)
                }
                None => self.carry_out(&now[0], body),
            };
            if let Err(error) = done {
                self.failed(&error);
                break;
            }
            if let Action::Misuse(_, found) = now[0] {
                misuse = Some(found);
            }
        }
        actions.clear();
        self.pages_mut().actions = actions;
        misuse
    }

    /// Requests a page from the protocol, at which a thread is stopped.
    fn resolve(&mut self, page: Page, wants: Access) {
        self.pages_mut().missing.insert(page);
        let event = match self.engine().memory.wanted(wants) {
            Access::Write => Event::Write(page),
            _ => Event::Read(page),
        };
        self.step(event, &mut Vec::new());
    }

    /// Passes a message to the protocol. Returns false if its body is malformed.
    fn receive(&mut self, header: Header, body: &mut Vec<u8>) -> bool {
        match Content::parse(&header, body, self.engine().memory.page_bytes()) {
            Some((content, rides)) => {
                self.step(Event::Message(header, content, rides), body);
                true
            }
            None => false,
        }
    }

    /// Changes the access of threads to neighbouring pages.
    fn change_access(
        &mut self,
        pages: Range<Page>,
        change: AccessChange,
    ) -> Result<(), PagerError> {
        assert!(pages.start < pages.end, "a run has a first page");
        if let AccessChange::Map(_) = change {
            self.pages_mut().missing.retain(|page| !pages.contains(page));
        }
        let memory = &mut self.engine_mut().memory;
        match change {
            AccessChange::Protect => memory.protect(pages),
            AccessChange::Unmap => memory.forbid(pages),
            AccessChange::Map(access) if access == Access::Write || memory.can_allow_read() => {
                memory.allow(pages, access)
            }
            // Threads fault again, and the engine then asks to write: see `resolve`.
            AccessChange::Map(_) => pages.into_iter().try_for_each(|page| memory.retry(page)),
        }
    }

    /// Carries out an action that is not batched by page.
    fn carry_out(&mut self, action: &Action, body: &mut Vec<u8>) -> Result<(), PagerError> {
        match action {
            Action::Fill(page, index) => {
                let bytes = self.engine().memory.page_bytes();
                let bytes = &body[index * bytes..][..bytes];
                self.engine_mut().memory.write(*page, 0, bytes)
            }
            Action::Keep(kept) => {
                self.pages_mut().twins.keep(*kept, std::mem::take(body));
                Ok(())
            }
            Action::FillKept(page, kept, index) => {
                let (memory, scope) = self.memory_and_pages();
                memory.write(*page, 0, scope.twins.kept(*kept, *index))
            }
            Action::Forget(kept) => {
                self.pages_mut().twins.forget(*kept);
                Ok(())
            }
            Action::Twin(page) => {
                let (memory, scope) = self.memory_and_pages();
                scope.twins.twin(memory, *page)
            }
            Action::Wake(page) => {
                self.pages_mut().missing.remove(page);
                self.engine_mut().memory.retry(*page)
            }
            Action::Diff(page, home) => {
                let (memory, scope) = self.memory_and_pages();
                scope.twins.compare(memory, *page, *home);
                Ok(())
            }
            Action::Change => twins::apply_diffs(&mut self.engine_mut().memory, body),
            Action::Send(header, body, rides) => {
                self.before_send(header);
                let diffs = match body {
                    Body::Diffs => self.pages_mut().twins.take_diffs(header.to),
                    _ => Vec::new(),
                };
                let memory = &self.engine().memory;
                let append = |page, bytes: &mut Vec<u8>| twins::append_page(memory, page, bytes);
                let body = body.clone().bytes(rides, diffs, append);
                self.send_page_message(header, body);
                Ok(())
            }
            Action::Grant(task) => {
                self.granted(*task);
                Ok(())
            }
            // `step` returns it.
            Action::Misuse(..) => Ok(()),
            Action::MapRead(_) | Action::MapWrite(_) | Action::Protect(_) | Action::Unmap(_) => {
                unreachable!("{action:?} is carried out in runs")
            }
        }
    }

    /// Returns the memory and the state of its pages.
    fn memory_and_pages(&mut self) -> (&mut Self::Memory, &mut Scope);
}

/// A change of the access to neighbouring pages, made at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// Threads may access the pages, and those that are stopped there resume.
    Map(Access),
    /// Threads may only read the pages.
    Protect,
    /// Threads may not access the pages.
    Unmap,
}

/// Returns the page of an action that changes access, and the change.
fn access_change(action: &Action) -> Option<(Page, AccessChange)> {
    match *action {
        Action::MapRead(page) => Some((page, AccessChange::Map(Access::Read))),
        Action::MapWrite(page) => Some((page, AccessChange::Map(Access::Write))),
        Action::Protect(page) => Some((page, AccessChange::Protect)),
        Action::Unmap(page) => Some((page, AccessChange::Unmap)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_pages_change_access_together() {
        use Action::{MapRead, MapWrite, Protect, Twin};
        let run = |actions: &[Action]| run_length(actions, access_change);
        assert_eq!(run(&[MapRead(3), MapRead(4), MapRead(5), MapRead(7)]), 3);
        assert_eq!(run(&[MapRead(3), MapWrite(4)]), 1);
        assert_eq!(run(&[Protect(3), Twin(4)]), 1);
        assert_eq!(run(&[Twin(3), Twin(4)]), 1);
    }
}
