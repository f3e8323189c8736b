//! Batching. One system call handles neighbouring pages that need the same action. One batched
//! message carries all messages without pages to the same node.

use std::mem::discriminant;

use coherence::message::{NodeId, Page};
use coherence::sequential::Action;
use coherence::sequential::message::{Body, Header};

/// Returns the length of the first run of `items` that need the same action on consecutive pages.
/// `of` returns the page and the action of an item, or `None` for an item that cannot be batched.
///
/// # Panics
/// `items` is empty.
pub fn run_length<T, K: PartialEq>(items: &[T], of: impl Fn(&T) -> Option<(Page, K)>) -> usize {
    assert!(!items.is_empty(), "a run has a first item");
    let follows = |pair: &&[T]| match (of(&pair[0]), of(&pair[1])) {
        (Some((page, does)), Some((next, same))) => next == page + 1 && does == same,
        _ => false,
    };
    1 + items.windows(2).take_while(follows).count()
}

/// Returns the page of an action that can be batched with the same action on neighbouring pages.
pub fn page_of(action: &Action) -> Option<Page> {
    match *action {
        Action::Fill(page, _)
        | Action::MapRead(page)
        | Action::MapWrite(page)
        | Action::Protect(page)
        | Action::Unmap(page) => Some(page),
        _ => None,
    }
}

/// Returns the length of the first run of actions that can be carried out together.
pub fn actions_alike(actions: &[Action]) -> usize {
    run_length(actions, |action| page_of(action).map(|page| (page, discriminant(action))))
}

/// Moves messages without pages behind other actions, but keeps them before the next message with
/// pages. Messages to the same node can then leave as one batch.
pub fn sort_messages_last(actions: &mut [Action]) {
    let brings = |action: &Action| matches!(action, Action::Send(_, body) if !body.is_letter());
    for part in actions.split_inclusive_mut(brings) {
        part.sort_by_key(|action| match action {
            Action::Send(..) if brings(action) => 2,
            Action::Send(..) => 1,
            _ => 0,
        });
    }
}

/// Batches of messages without pages, by destination.
#[derive(Debug, Default)]
pub struct Outbox {
    batches: Vec<(NodeId, Vec<u8>)>,
}

impl Outbox {
    /// Adds a message without pages to the batch of its destination.
    ///
    /// # Panics
    /// The body carries pages.
    pub fn add(&mut self, header: &Header, body: &Body) {
        assert!(body.is_letter(), "a batched message brings no pages");
        let message = body.encode_for_batch(header);
        match self.batches.iter_mut().find(|(to, _)| *to == header.to) {
            Some((_, batch)) => batch.extend(message),
            None => self.batches.push((header.to, message)),
        }
    }

    /// Takes all batches, in the order of their first messages.
    pub fn take(&mut self) -> Vec<(NodeId, Vec<u8>)> {
        std::mem::take(&mut self.batches)
    }
}

#[cfg(test)]
mod tests {
    use coherence::sequential::message::{Op, parse_batch};

    use super::*;

    fn header(to: NodeId, page: Page) -> Header {
        let (op, set) = (Op::Acknowledge, 0);
        Header { op, from: 0, to, node: 0, page, set, whole: false, hops: 0, runs: 0 }
    }

    #[test]
    fn messages_without_pages_follow_other_actions_and_precede_pages() {
        use Action::{Fill, Send, Unmap, Wake};
        let small = |page| Send(header(1, page), Body::Runs(Vec::new()));
        let pages =
            |page| Send(header(1, page), Body::Pages { asked: Some(page), rides: Vec::new() });
        let mut actions =
            [small(1), Unmap(1), small(2), Unmap(2), pages(3), Unmap(3), small(4), Wake(5)];
        sort_messages_last(&mut actions);
        let expected =
            [Unmap(1), Unmap(2), small(1), small(2), pages(3), Unmap(3), Wake(5), small(4)];
        assert_eq!(actions, expected);
        sort_messages_last(&mut []);
        sort_messages_last(&mut [Fill(1, 0)]);
    }

    #[test]
    fn actions_on_neighbouring_pages_form_a_run() {
        use Action::{Fill, MapRead, MapWrite, Wake};
        assert_eq!(actions_alike(&[Fill(3, 0), Fill(4, 7), Fill(5, 1), Fill(7, 2)]), 3);
        assert_eq!(actions_alike(&[MapRead(3), MapWrite(4)]), 1);
        assert_eq!(actions_alike(&[MapRead(3), MapRead(3)]), 1);
        assert_eq!(actions_alike(&[Wake(3), Wake(4)]), 1);
    }

    #[test]
    fn messages_to_one_node_leave_as_one_batch_in_order() {
        let mut outbox = Outbox::default();
        for (to, page) in [(2, 7), (1, 8), (2, 9)] {
            outbox.add(&header(to, page), &Body::Runs(Vec::new()));
        }
        let sent: Vec<(NodeId, Vec<Page>)> = outbox
            .take()
            .into_iter()
            .map(|(to, bytes)| {
                let messages = parse_batch(&bytes).expect("a batch");
                (to, messages.iter().map(|(header, _)| header.page).collect())
            })
            .collect();
        assert_eq!(sent, [(2, vec![7, 9]), (1, vec![8])]);
        assert!(outbox.take().is_empty());
    }
}
