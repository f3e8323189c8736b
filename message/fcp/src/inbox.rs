//! One's own receive buffer of FCP II, with waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use crate::arrived::{Arrived, terms_size};
use crate::bell::Bell;
use crate::member::Membership;
use crate::window::Window;
use sync::futex;
use sync::mapped::Mapped;
use sync::ring::{Buffer, Found, Header, Kind, Message, Receiver};
use sync::wait::{self, DOUBT, WaitPolicy};

/// How long an idle receiver sleeps before it looks by itself: a sender may have been
/// killed between its message and waking us.
const IDLE: Duration = Duration::from_secs(1);

/// Largest number of empty polls between two reads of the clock. A poll takes 4 ns, a read of the
/// clock some 25 ns.
const POLLS_MAX: u32 = 256;

/// The ring holds what no sender writes: some process has overwritten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// One's own receive buffer.
#[derive(Debug)]
pub struct Inbox {
    ring: Mapped,
    receiver: Receiver,
    policy: WaitPolicy,
    polls: Polls,
    /// Somebody has rung, and no wait has ended by it yet.
    rung: Arc<AtomicBool>,
    /// Who takes loans and offers.
    membership: Option<Arc<Membership>>,
}

/// What came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// A message that was all in the ring: it has been copied, and is done with.
    Copied(Header),
    /// Something else, which is still there.
    Other,
}

/// A message that has come, still in the ring.
#[derive(Debug)]
pub(crate) struct InRing<'a> {
    inbox: &'a mut Inbox,
    message: Message,
}

impl InRing<'_> {
    #[inline]
    pub fn header(&self) -> Header {
        self.message.header
    }

    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.inbox.receiver.read(&self.inbox.ring, &self.message, offset, to);
    }

    /// Who takes loans and offers.
    pub fn membership(&self) -> Option<&Arc<Membership>> {
        self.inbox.membership.as_ref()
    }

    /// Done with it.
    #[inline]
    pub fn consume(&mut self) {
        if self.inbox.receiver.consume(&self.inbox.ring, &self.message) {
            futex::wake(self.inbox.ring.head());
        }
    }
}

impl Inbox {
    /// The receiver of a ring that nobody has received from before.
    pub fn new(ring: Mapped) -> Self {
        Self {
            ring,
            receiver: Receiver::default(),
            policy: WaitPolicy::default(),
            polls: Polls::default(),
            rung: Arc::default(),
            membership: None,
        }
    }

    /// Lets the receiver, this member, take loans and offers.
    pub(crate) fn receive_as(&mut self, member: Arc<Membership>) {
        self.membership = Some(member);
    }

    /// What ends the waits of this inbox. Its ring lies in `window`.
    pub(crate) fn bell(&self, window: Arc<Window>) -> Bell {
        Bell::of_ring(self.ring, self.rung.clone(), window)
    }

    /// The next message, if one is there. `is_dead` is as in [`Inbox::receive`]: a receiver
    /// that only polls drops the message of a dead sender, too.
    #[inline]
    pub fn try_receive(
        &mut self,
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<Option<Arrived<'_>>, Corrupt> {
        match self.poll(&is_dead) {
            Found::Message(message) if is_short(&message) => Err(Corrupt),
            Found::Message(message) => Ok(Some(Arrived::by_ring(InRing { inbox: self, message }))),
            Found::Corrupt => Err(Corrupt),
            Found::Nothing | Found::Unfinished(_) => Ok(None),
        }
    }

    /// The next message; waits for one until the given time, or until the bell rings.
    /// `is_dead` tells by the ticket of a sender that takes long to finish its message
    /// whether it has ended: then the message is dropped.
    #[inline]
    pub fn receive(
        &mut self,
        until: Option<Instant>,
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<Option<Arrived<'_>>, Corrupt> {
        let found = self.wait(None, until, &is_dead)?;
        Ok(found.map(|message| Arrived::by_ring(InRing { inbox: self, message })))
    }

    /// As [`Inbox::receive`]. If the message is all in the ring, it is copied to where it is
    /// wanted, as much as there is room for: the shortest way.
    #[inline]
    pub(crate) fn receive_into(
        &mut self,
        to: &mut [u8],
        until: Option<Instant>,
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<Option<First>, Corrupt> {
        let Some(message) = self.wait(None, until, &is_dead)? else { return Ok(None) };
        if message.header.kind != Kind::Inline {
            return Ok(Some(First::Other));
        }
        let fits = to.len().min(message.header.length as usize);
        let mut message = InRing { inbox: self, message };
        message.read(0, &mut to[..fits]);
        message.consume();
        Ok(Some(First::Copied(message.header())))
    }

    /// As [`Inbox::receive`], and waits no longer once the word is not `is` any more. Who
    /// changes it wakes those who sleep on it ([`futex::wake`]).
    pub fn receive_while(
        &mut self,
        word: &AtomicU32,
        is: u32,
        until: Option<Instant>,
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<Option<Arrived<'_>>, Corrupt> {
        let found = self.wait(Some((word, is)), until, &is_dead)?;
        Ok(found.map(|message| Arrived::by_ring(InRing { inbox: self, message })))
    }

    /// The next message, which stays.
    #[inline]
    fn wait(
        &mut self,
        word: Option<(&AtomicU32, u32)>,
        until: Option<Instant>,
        is_dead: &dyn Fn(u32) -> bool,
    ) -> Result<Option<Message>, Corrupt> {
        // Who only asks learns nothing about waiting, and does not look for a while.
        let asks = until.is_some_and(|until| Instant::now() >= until);
        if asks && matches!(self.poll(is_dead), Found::Nothing) {
            self.publish();
            self.rung.store(false, SeqCst);
            return Ok(None);
        }
        loop {
            let (receiver, ring, rung) = (&mut self.receiver, &self.ring, &self.rung);
            let ends =
                || rung.load(Relaxed) || word.is_some_and(|(word, is)| word.load(Acquire) != is);
            let found = self.policy.poll(|| match receiver.look(ring) {
                Found::Nothing => ends().then_some(Found::Nothing),
                found => Some(found),
            });
            match found {
                Some(Found::Message(message)) if is_short(&message) => return Err(Corrupt),
                Some(Found::Message(message)) => return Ok(Some(message)),
                Some(Found::Corrupt) => return Err(Corrupt),
                Some(Found::Nothing | Found::Unfinished(_)) => {
                    self.rung.store(false, SeqCst);
                    return Ok(None);
                }
                None => self.sleep(word, until, is_dead),
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return match self.receiver.look(&self.ring) {
                    Found::Message(message) if !is_short(&message) => Ok(Some(message)),
                    Found::Message(_) | Found::Corrupt => Err(Corrupt),
                    Found::Nothing | Found::Unfinished(_) => Ok(None),
                };
            }
        }
    }

    /// Looks for the next message once. Every [`DOUBT`] an empty poll also passes the gaps of
    /// dead senders and returns consumed lines, as a receiver does before it sleeps.
    #[inline]
    fn poll(&mut self, is_dead: &dyn Fn(u32) -> bool) -> Found {
        let found = self.receiver.look(&self.ring);
        if found == Found::Nothing && self.polls.is_clock_due() {
            return self.poll_closely(is_dead);
        }
        found
    }

    #[cold]
    fn poll_closely(&mut self, is_dead: &dyn Fn(u32) -> bool) -> Found {
        if !self.polls.is_doubt_over(Instant::now()) {
            return Found::Nothing;
        }
        let found = loop {
            match self.receiver.look_closely(&self.ring) {
                Found::Unfinished(ticket) if is_dead(ticket) => {
                    self.receiver.skip_dead(&self.ring, ticket);
                }
                Found::Unfinished(_) => break Found::Nothing,
                found => break found,
            }
        };
        self.publish();
        found
    }

    #[cold]
    fn sleep(
        &mut self,
        word: Option<(&AtomicU32, u32)>,
        until: Option<Instant>,
        is_dead: &dyn Fn(u32) -> bool,
    ) {
        if let Some((head, at_most)) = self.about_to_sleep(is_dead)
            && !self.rung.load(SeqCst)
        {
            let until = wait::earlier(until, at_most);
            match word {
                None => futex::sleep(self.ring.head(), head, Some(until)),
                Some(word) => futex::sleep_on_either([(self.ring.head(), head), word], until),
            }
        }
        self.awake();
    }

    /// The word that senders change when they wake us.
    pub(crate) fn head(&self) -> &std::sync::atomic::AtomicU32 {
        self.ring.head()
    }

    /// Says that we are about to sleep, unless there is something to look at. What to
    /// sleep on, and for how long at most. [`Inbox::awake`] comes afterwards, always.
    pub(crate) fn about_to_sleep(
        &mut self,
        is_dead: impl Fn(u32) -> bool,
    ) -> Option<(u32, Duration)> {
        self.publish();
        let head = self.receiver.about_to_sleep(&self.ring);
        let found = self.receiver.look_closely(&self.ring);
        self.publish(); // the look may have skipped lines; then the head has changed
        match found {
            Found::Nothing => Some((head, IDLE)),
            Found::Unfinished(ticket) if is_dead(ticket) => {
                self.receiver.skip_dead(&self.ring, ticket);
                None
            }
            Found::Unfinished(_) => Some((head, DOUBT)),
            Found::Message(_) | Found::Corrupt => None,
        }
    }

    /// Sleeps no more.
    pub(crate) fn awake(&mut self) {
        self.receiver.awake(&self.ring);
    }

    fn publish(&mut self) {
        if self.receiver.publish(&self.ring) {
            futex::wake(self.ring.head());
        }
    }
}

/// Tells empty polls when to look closely: every [`DOUBT`]. To read the clock takes longer than
/// a poll, so fast polls read it less often than slow ones.
#[derive(Debug)]
struct Polls {
    /// Empty polls until the next look at the clock, and between two looks.
    left: u32,
    between: u32,
    /// Times of the last look at the clock and of the last close look.
    clock: Option<Instant>,
    close: Option<Instant>,
}

impl Default for Polls {
    fn default() -> Self {
        Self { left: 1, between: 1, clock: None, close: None }
    }
}

impl Polls {
    /// Counts an empty poll. Returns whether the clock is to be read.
    #[inline]
    fn is_clock_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Returns whether it is time for a close look.
    fn is_doubt_over(&mut self, now: Instant) -> bool {
        let since = |then: Option<Instant>| then.map(|then| now.duration_since(then));
        // Where polls between two looks at the clock take long, each one reads it.
        self.between = match since(self.clock) {
            Some(time) if time < DOUBT / 16 => (self.between * 2).min(POLLS_MAX),
            _ => 1,
        };
        (self.left, self.clock) = (self.between, Some(now));
        let is_over = since(self.close).is_none_or(|time| time >= DOUBT);
        if is_over {
            self.close = Some(now);
        }
        is_over
    }
}

/// Whether it should say where the rest is, and cannot.
#[inline]
fn is_short(message: &Message) -> bool {
    message.header.length < terms_size(message.header.kind)
}
