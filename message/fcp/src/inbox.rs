//! The receive buffer of a port with FCP II, and waits for messages.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use crate::arrived::{Arrived, terms_size};
use crate::bell::{Bell, RingSleeper};
use crate::member::Membership;
use crate::ring_end::{InRing, RingEnd};
use crate::window::Window;
use sync::futex;
use sync::mapped::Mapped;
use sync::ring::{Buffer, Found, Header, Kind, Message, Receiver};
use sync::wait::{self, DOUBT, WaitPolicy};

/// Longest sleep of an idle receiver: a sender may be killed between its message and the wake-up.
const IDLE: Duration = Duration::from_secs(1);

/// Largest number of empty polls between two reads of the clock. A poll takes 4 ns, a read of the
/// clock some 25 ns.
const POLLS_MAX: u32 = 256;

/// The ring holds data that no sender writes: a process has overwritten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// A receive buffer.
#[derive(Debug)]
pub struct Inbox {
    end: RingEnd,
    policy: WaitPolicy,
    polls: Polls,
    /// The bell has rung, and no wait has ended by it yet.
    rung: Arc<AtomicBool>,
}

/// The next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// The message was all in the ring. It was copied and removed.
    Copied(Header),
    /// The message is of another kind. It remains in the ring.
    Other,
}

impl Inbox {
    /// Returns the receiver of a ring from which nobody has received before.
    pub fn new(ring: Mapped) -> Self {
        Self {
            end: RingEnd { ring, receiver: Receiver::default(), member: None },
            policy: WaitPolicy::default(),
            polls: Polls::default(),
            rung: Arc::default(),
        }
    }

    /// Lets the receiver take loans and offers as this member.
    pub(crate) fn receive_as(&mut self, member: Arc<Membership>) {
        self.end.member = Some(member);
    }

    /// Returns the bell that ends the waits of this inbox. Its ring lies in `window`.
    pub(crate) fn bell(&self, window: Arc<Window>) -> Bell {
        Bell::new(RingSleeper(self.end.ring), self.rung.clone(), window)
    }

    /// Returns the next message, if there is one. `is_dead` is as in [`Inbox::receive`]: a receiver
    /// that only polls drops the message of a dead sender, too.
    #[inline]
    pub fn try_receive(
        &mut self,
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<Option<Arrived<'_>>, Corrupt> {
        match self.poll(&is_dead) {
            Found::Message(message) if is_short(&message) => Err(Corrupt),
            Found::Message(message) => Ok(Some(self.arrived(message))),
            Found::Corrupt => Err(Corrupt),
            Found::Nothing | Found::Unfinished(_) => Ok(None),
        }
    }

    /// Returns the next message. Waits until `until`, or until the bell rings. `is_dead` gets the
    /// ticket of a sender that takes long to finish its message, and returns true if that sender
    /// has ended: then the message is dropped.
    #[inline]
    pub fn receive(
        &mut self,
        until: Option<Instant>,
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<Option<Arrived<'_>>, Corrupt> {
        match self.wait(None, until, &is_dead)? {
            Some(message) => Ok(Some(self.arrived(message))),
            None => Ok(None),
        }
    }

    /// Receives as [`Inbox::receive`] does. Copies the message if it is all in the ring, as much as
    /// `to` holds: the fastest way to receive.
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
        let mut message = InRing { end: &mut self.end, message };
        message.read(0, &mut to[..fits]);
        message.consume();
        Ok(Some(First::Copied(message.header())))
    }

    /// Receives as [`Inbox::receive`] does, and stops waiting when the word no longer has the value
    /// `is`. The caller that changes it wakes its sleepers ([`futex::wake`]).
    pub fn receive_while(
        &mut self,
        word: &AtomicU32,
        is: u32,
        until: Option<Instant>,
        is_dead: impl Fn(u32) -> bool,
    ) -> Result<Option<Arrived<'_>>, Corrupt> {
        match self.wait(Some((word, is)), until, &is_dead)? {
            Some(message) => Ok(Some(self.arrived(message))),
            None => Ok(None),
        }
    }

    #[inline]
    fn arrived(&mut self, message: Message) -> Arrived<'_> {
        Arrived::in_ring(InRing { end: &mut self.end, message })
    }

    /// Waits for the next message, which remains in the ring.
    #[inline]
    fn wait(
        &mut self,
        word: Option<(&AtomicU32, u32)>,
        until: Option<Instant>,
        is_dead: &dyn Fn(u32) -> bool,
    ) -> Result<Option<Message>, Corrupt> {
        // A call that does not wait neither spins nor teaches the wait policy.
        let asks = until.is_some_and(|until| Instant::now() >= until);
        if asks && matches!(self.poll(is_dead), Found::Nothing) {
            self.publish();
            self.rung.store(false, SeqCst);
            return Ok(None);
        }
        loop {
            let RingEnd { receiver, ring, .. } = &mut self.end;
            let (ring, rung) = (&*ring, &self.rung);
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
                self.policy.give_up();
                return match self.end.receiver.look(&self.end.ring) {
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
        let found = self.end.receiver.look(&self.end.ring);
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
            match self.end.receiver.look_closely(&self.end.ring) {
                Found::Unfinished(ticket) if is_dead(ticket) => {
                    self.end.receiver.skip_dead(&self.end.ring, ticket);
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
                None => futex::sleep(self.head(), head, Some(until)),
                Some(word) => futex::sleep_on_either([(self.head(), head), word], until),
            }
        }
        self.awake();
    }

    /// Returns the word that senders change when they wake the receiver.
    pub(crate) fn head(&self) -> &AtomicU32 {
        self.end.ring.head()
    }

    /// Announces that the receiver sleeps, unless the ring has something for it. Returns the value
    /// of the head on which it sleeps, and the longest sleep. The caller calls [`Inbox::awake`]
    /// afterwards in any case.
    pub(crate) fn about_to_sleep(
        &mut self,
        is_dead: impl Fn(u32) -> bool,
    ) -> Option<(u32, Duration)> {
        self.publish();
        let RingEnd { receiver, ring, .. } = &mut self.end;
        let head = receiver.about_to_sleep(ring);
        let found = receiver.look_closely(ring);
        self.publish(); // `look_closely` may have skipped lines; then the head has changed
        match found {
            Found::Nothing => Some((head, IDLE)),
            Found::Unfinished(ticket) if is_dead(ticket) => {
                self.end.receiver.skip_dead(&self.end.ring, ticket);
                None
            }
            Found::Unfinished(_) => Some((head, DOUBT)),
            Found::Message(_) | Found::Corrupt => None,
        }
    }

    /// Announces that the receiver is awake.
    pub(crate) fn awake(&mut self) {
        self.end.receiver.awake(&self.end.ring);
    }

    fn publish(&mut self) {
        if self.end.receiver.publish(&self.end.ring) {
            futex::wake(self.head());
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

/// Returns true if the message is too short for the terms that its kind requires.
#[inline]
fn is_short(message: &Message) -> bool {
    message.header.length < terms_size(message.header.kind)
}
