//! Matching: the queue of posted receives, and the queue of unexpected messages. The caller chooses
//! the type of a message's body.
//!
//! A message matches the oldest receive that fits, and a receive matches the oldest message.

use std::collections::VecDeque;

use crate::protocol::parts::{Part, Parts};
use crate::protocol::receive::{Receive, fits};
use crate::protocol::slot_use::SlotUse;

/// With more receives than this, no more are published: the comparison would take too long.
const SEARCH_MAX: usize = 128;

impl Receive {
    fn fits(&self, source: u32, tag: u64) -> bool {
        fits(tag, self.tag, self.ignore) && self.source.is_none_or(|only| only == source)
    }

    /// Returns true if a message can fit both.
    fn overlaps(&self, other: &Self) -> bool {
        let differs = self.source.zip(other.source).is_some_and(|(one, other)| one != other);
        fits(self.tag, other.tag, self.ignore | other.ignore) && !differs
    }

    /// Takes room for a message.
    fn take(&mut self, length: u64) -> Match {
        let mut taken = Match {
            context: self.context,
            buffer: self.buffer,
            completes: self.completes,
            multiple: self.multiple != 0,
            last: true,
        };
        if self.multiple != 0 {
            debug_assert_eq!(self.buffer.list().len(), 1, "a receive of several messages");
            let Part { address, length: room } = self.buffer.first();
            let length = length.min(room);
            taken.buffer = Parts::one(address, length);
            self.buffer = Parts::one(address + length, room - length);
            taken.last = room - length < self.multiple;
        }
        taken
    }
}

/// The part of a receive that one message gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// The context of its completion.
    pub context: usize,
    /// The buffer.
    pub buffer: Parts,
    /// The receive asks for a completion.
    pub completes: bool,
    /// The receive takes several messages.
    pub multiple: bool,
    /// The receive takes no further message.
    pub last: bool,
}

/// The properties of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The sender's source number.
    pub source: u32,
    /// The tag; 0 without tags.
    pub tag: u64,
    /// Data for the completion.
    pub data: Option<u64>,
    /// Number of bytes.
    pub length: u64,
}

/// An unexpected message.
#[derive(Debug)]
struct Message<B> {
    head: Head,
    body: B,
    /// Context of the receive that has claimed it (FI_CLAIM).
    claim: Option<usize>,
}

/// The two queues.
#[derive(Debug)]
pub struct Matching<B> {
    receives: VecDeque<Receive>,
    unexpected: VecDeque<Message<B>>,
}

impl<B> Default for Matching<B> {
    fn default() -> Self {
        Self { receives: VecDeque::new(), unexpected: VecDeque::new() }
    }
}

impl<B> Matching<B> {
    /// Finds the receive for a message. `withdraw` withdraws a published receive. It returns false
    /// if a sender has claimed the receive, which then belongs to another message.
    #[inline]
    pub fn arrive(
        &mut self,
        head: &Head,
        mut withdraw: impl FnMut(SlotUse) -> bool,
    ) -> Option<Match> {
        let fits = |receive: &Receive| {
            receive.fits(head.source, head.tag) && receive.slot_use.is_none_or(&mut withdraw)
        };
        let at = self.receives.iter().position(fits)?;
        let taken = self.receives[at].take(head.length);
        if taken.last {
            self.receives.remove(at);
        }
        Some(taken)
    }

    /// Takes the receive in this slot, which a sender has claimed for a message.
    pub fn take_claimed(&mut self, slot: usize, length: u64) -> Option<(Match, SlotUse)> {
        let is_there =
            |receive: &Receive| receive.slot_use.is_some_and(|slot_use| slot_use.slot() == slot);
        let at = self.receives.iter().position(is_there)?;
        let mut receive = self.receives.remove(at)?;
        debug_assert_eq!(receive.multiple, 0, "only receives of one message are published");
        Some((receive.take(length), receive.slot_use?))
    }

    /// Publishes the receive that was posted last. It stays unpublished if an older receive that is
    /// not published could match one of its messages.
    pub fn publish(&mut self, publish: impl FnOnce(&Receive) -> Option<SlotUse>) {
        if self.receives.len() > SEARCH_MAX {
            return;
        }
        let Some(mut last) = self.receives.pop_back() else { return };
        debug_assert!(last.slot_use.is_none(), "a receive is published once");
        let hides = |older: &Receive| older.slot_use.is_none() && older.overlaps(&last);
        if !self.receives.iter().any(hides) {
            last.slot_use = publish(&last);
        }
        self.receives.push_back(last);
    }

    /// Returns the uses of slots by published receives.
    pub fn published(&self) -> impl Iterator<Item = SlotUse> {
        self.receives.iter().filter_map(|receive| receive.slot_use)
    }

    /// Takes the published receives for which `which` returns true.
    pub fn take_published(&mut self, mut which: impl FnMut(SlotUse) -> bool) -> Vec<Receive> {
        let is_one = |receive: &Receive| receive.slot_use.is_some_and(&mut which);
        let (taken, left) = self.receives.drain(..).partition(is_one);
        self.receives = left;
        taken.into()
    }

    /// Adds an unexpected message.
    pub fn add_unexpected(&mut self, head: Head, body: B) {
        self.unexpected.push_back(Message { head, body, claim: None });
    }

    /// Takes the first message that fits a receive. Without one, queues the receive.
    #[inline]
    pub fn receive(&mut self, receive: &mut Receive) -> Option<(Match, Head, B)> {
        let fits = |message: &Message<B>| {
            message.claim.is_none() && receive.fits(message.head.source, message.head.tag)
        };
        match self.unexpected.iter().position(fits) {
            None => {
                self.receives.push_back(*receive);
                None
            }
            Some(at) => {
                let Message { head, body, .. } = self.unexpected.remove(at)?;
                Some((receive.take(head.length), head, body))
            }
        }
    }

    /// Returns the first message that fits a receive. With `claim`, reserves it for the receive's
    /// context.
    pub fn peek(&mut self, receive: &Receive, claim: bool) -> Option<Head> {
        let mut all = self.unexpected.iter_mut();
        let found = all.find(|message| {
            message.claim.is_none() && receive.fits(message.head.source, message.head.tag)
        })?;
        if claim {
            found.claim = Some(receive.context);
        }
        Some(found.head)
    }

    /// Takes the first message that fits a receive.
    pub fn discard(&mut self, receive: &Receive) -> Option<(Head, B)> {
        let fits = |message: &Message<B>| {
            message.claim.is_none() && receive.fits(message.head.source, message.head.tag)
        };
        let at = self.unexpected.iter().position(fits)?;
        self.unexpected.remove(at).map(|message| (message.head, message.body))
    }

    /// Takes the message that was reserved for this context.
    pub fn claimed(&mut self, context: usize) -> Option<(Head, B)> {
        let at = self.unexpected.iter().position(|message| message.claim == Some(context))?;
        self.unexpected.remove(at).map(|message| (message.head, message.body))
    }

    /// Cancels the oldest receive with this context. `withdraw` as in [`arrive`](Self::arrive).
    pub fn cancel(
        &mut self,
        context: usize,
        mut withdraw: impl FnMut(SlotUse) -> bool,
    ) -> Option<Receive> {
        let is_it = |receive: &Receive| {
            receive.context == context && receive.slot_use.is_none_or(&mut withdraw)
        };
        let at = self.receives.iter().position(is_it)?;
        self.receives.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::protocol::posted::Table;
    use crate::protocol::wire::Kind;

    fn receive(context: usize, source: Option<u32>, tag: u64, ignore: u64) -> Receive {
        let buffer = Parts::one(0x1000, 100);
        let (completes, multiple, slot_use) = (true, 0, None);
        Receive { context, source, tag, ignore, buffer, completes, multiple, slot_use }
    }

    fn head(source: u32, tag: u64, length: u64) -> Head {
        Head { source, tag, data: None, length }
    }

    #[test]
    fn the_oldest_that_fits_is_taken() {
        let mut matching = Matching::<&str>::default();
        for mut posted in
            [receive(1, None, 5, 0), receive(2, Some(7), 5, 0), receive(3, None, 0, !0)]
        {
            assert!(matching.receive(&mut posted).is_none());
        }
        let mut arrive =
            |source, tag| matching.arrive(&head(source, tag, 1), |_| true).map(|m| m.context);
        assert_eq!(arrive(8, 5), Some(1));
        assert_eq!(arrive(8, 5), Some(3));
        assert_eq!(arrive(8, 5), None);
        assert_eq!(arrive(7, 5), Some(2));
        matching.add_unexpected(head(8, 5, 1), "first");
        matching.add_unexpected(head(7, 5, 1), "second");
        matching.add_unexpected(head(8, 6, 1), "third");
        let mut body = |mut posted| matching.receive(&mut posted).map(|(_, _, body)| body);
        assert_eq!(body(receive(4, Some(7), 0, !0)), Some("second"));
        assert_eq!(body(receive(5, None, 6, 0)), Some("third"));
        assert_eq!(body(receive(6, None, 4, 1)), Some("first"));
        assert_eq!(body(receive(7, None, 4, 1)), None);
        assert_eq!(matching.cancel(7, |_| true).map(|receive| receive.context), Some(7));
        assert!(matching.cancel(7, |_| true).is_none());
    }

    #[test]
    fn a_receive_behind_an_older_match_is_not_published() {
        let table = Table::<AtomicU64, 8>::new(AtomicU64::default);
        let mut matching = Matching::<()>::default();
        let mut post = |mut posted: Receive, publishes: bool| {
            assert!(matching.receive(&mut posted).is_none());
            if !publishes {
                return false;
            }
            matching.publish(|receive| table.publish(Kind::Tagged, receive, |_| {}));
            let last = matching.receives.back().expect("it was posted");
            last.slot_use.is_some()
        };
        assert!(post(receive(1, None, 0x50, 0xf), true));
        assert!(post(receive(2, None, 0x50, 0xf), true), "an older one is published");
        post(receive(3, Some(7), 0x60, 0), false);
        assert!(!post(receive(4, None, 0x60, 0), true), "an older one is not");
        assert!(!post(receive(5, Some(7), 0, !0), true));
        assert!(post(receive(6, Some(8), 0x80, 0xf), true), "from another");
        assert!(!post(receive(7, None, 0x60, 0), true), "nor is that one");
        assert!(post(receive(8, Some(8), 0x70, 0), true), "another tag");
        // The oldest receive that fits, by source and by kind.
        let claim = |source, tag| table.claim(Kind::Tagged, source, tag, 9);
        let slot = |source, tag| claim(source, tag).map(|claimed| claimed.slot_use.slot());
        assert_eq!(table.claim(Kind::Plain, 1, 0x5a, 9), None);
        assert_eq!([slot(1, 0x5a), slot(1, 0x50), slot(1, 0x50)], [Some(0), Some(1), None]);
        assert_eq!([slot(7, 0x85), slot(8, 0x85)], [None, Some(2)]);
        // A message that has claimed nothing takes an unclaimed receive, which is withdrawn.
        let mut arrive = |source, tag| {
            let taken = matching.arrive(&head(source, tag, 1), |slot_use| table.withdraw(slot_use));
            taken.map(|taken| taken.context)
        };
        assert_eq!(arrive(1, 0x50), None, "both are claimed");
        assert_eq!(arrive(7, 0x60), Some(3));
        assert_eq!(arrive(8, 0x70), Some(8));
        assert_eq!(claim(8, 0x70), None);
        // The sender's message takes the receive that it has claimed.
        let (taken, slot_use) = matching.take_claimed(1, 1000).expect("it was claimed");
        assert_eq!((taken.context, table.claimed_by(slot_use)), (2, Some(9)));
        table.release(slot_use);
        assert_eq!(matching.take_claimed(1, 1000), None);
        assert!(matching.cancel(1, |slot_use| table.withdraw(slot_use)).is_none());
        assert_eq!(matching.take_published(|_| true).len(), 2);
    }

    #[test]
    fn a_multiple_receive_gives_its_buffer_piece_by_piece() {
        let mut matching = Matching::<()>::default();
        let mut posted = Receive { multiple: 30, ..receive(1, None, 0, !0) };
        assert!(matching.receive(&mut posted).is_none());
        let mut arrive =
            |length| matching.arrive(&head(1, 0, length), |_| true).map(|m| (m.buffer, m.last));
        assert_eq!(arrive(40), Some((Parts::one(0x1000, 40), false)));
        assert_eq!(arrive(0), Some((Parts::one(0x1028, 0), false)));
        assert_eq!(arrive(31), Some((Parts::one(0x1028, 31), true)));
        assert_eq!(arrive(1), None);
    }

    #[test]
    fn a_claimed_message_is_nobody_elses() {
        let mut matching = Matching::<u8>::default();
        let any = |context| receive(context, None, 0, !0);
        assert!(matching.peek(&any(1), true).is_none());
        matching.add_unexpected(head(1, 1, 10), 1);
        matching.add_unexpected(head(1, 2, 20), 2);
        assert_eq!(matching.peek(&any(9), false).map(|head| head.tag), Some(1));
        assert_eq!(matching.peek(&any(9), true).map(|head| head.tag), Some(1));
        assert_eq!(matching.peek(&any(8), false).map(|head| head.tag), Some(2));
        assert_eq!(matching.discard(&any(8)).map(|(_, body)| body), Some(2));
        assert_eq!(matching.receive(&mut any(7)).map(|(_, _, body)| body), None);
        assert!(matching.claimed(8).is_none());
        assert_eq!(matching.claimed(9).map(|(_, body)| body), Some(1));
        assert!(matching.claimed(9).is_none());
    }
}
