//! Declined requests. The driver at a page's home may decline a request before the protocol sees
//! it, because that memory does not exist there. The node that requested the page then forgets its
//! request.

use super::event::Action;
use super::node::Node;
use super::page::{PageEvent, State};
use super::table::Entry;
use crate::message::{NodeId, Page};

impl Node {
    /// Returns true if this node has requested `page`, and no other node depends on the request.
    pub fn can_be_declined(&self, page: Page) -> bool {
        let is_alone = |entry: Entry| {
            entry.readers.is_empty()
                && entry.next.is_none()
                && entry.answers.is_empty()
                && entry.invalid_for.is_none()
        };
        self.pages.get(page).is_some_and(|entry| {
            matches!(entry.state, State::Reading | State::Writing) && is_alone(entry)
        })
    }

    /// Handles the answer of `home`, which owns `page`, that it has declined this node's request.
    /// The pages that were requested along with it do not arrive either. Tasks that are stopped at
    /// `page` are not resumed.
    ///
    /// # Panics
    /// [`can_be_declined`](Self::can_be_declined) is false, or `home` is not another node.
    pub fn declined(&mut self, page: Page, home: NodeId, now: u64, actions: &mut Vec<Action>) {
        assert!(self.can_be_declined(page), "page {page} was not requested");
        assert!(home < self.options.nodes && home != self.options.me, "another node declines");
        self.now = now;
        let write = self.state(page) == Some(State::Writing);
        self.apply(page, PageEvent::Declined, None, actions);
        self.pages.of(page).owner = home;
        self.prefetches_arrive(page, home, write, &[], 0, actions);
        assert_eq!(self.owner(page), Some(home), "the next request goes to the home");
    }
}
