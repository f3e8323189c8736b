//! The sending end of a ring, and waits for room.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use crate::arrived::Arrived;
use crate::inbox::Inbox;
use sync::futex;
use sync::mapped::Mapped;
use sync::ring::{Buffer, Kind, SendError, Sender, rouse};
use sync::wait::{self, DOUBT, Naps, WaitPolicy};

/// The reason why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is longer than the ring.
    TooLong,
    /// There was no room until the given time.
    TimedOut,
    /// The receiver has ended.
    Dead,
}

/// The work of a sender while it waits for room. Without it, two members that send to each other
/// could wait for ever.
pub(crate) struct Meanwhile<'a> {
    /// The sender's own receive buffer.
    pub inbox: &'a mut Inbox,
    /// See [`Inbox::receive`].
    pub is_dead: &'a dyn Fn(u32) -> bool,
    /// Takes each message that arrives.
    pub take: &'a mut dyn FnMut(Arrived<'_>),
}

impl Meanwhile<'_> {
    /// Takes all messages that have arrived.
    pub fn take_all(&mut self) {
        // The next call to receive reports a corrupt ring.
        while let Ok(Some(arrived)) = self.inbox.try_receive(self.is_dead) {
            (self.take)(arrived);
        }
    }

    /// Sleeps until the word is no longer as expected, or until a message arrives.
    pub fn nap(&mut self, word: (&AtomicU32, u32), until: Instant) {
        if let Some((ours, _)) = self.inbox.about_to_sleep(self.is_dead) {
            futex::sleep_on_either([word, (self.inbox.head(), ours)], until);
        }
        self.inbox.awake();
    }
}

/// The sending end of one receiver's ring.
#[derive(Debug)]
pub struct Outbox {
    ring: Mapped,
    sender: Sender,
    policy: WaitPolicy,
}

impl Outbox {
    /// Returns the sending end for the sender with this
    /// [`ticket`](crate::member::Members::ticket). Its messages name `source` as their sender.
    pub fn new(ring: Mapped, ticket: u32, source: u32) -> Self {
        Self { ring, sender: Sender::new(ticket, source), policy: WaitPolicy::default() }
    }

    /// Sends the concatenation of `parts` if there is room. Wakes the receiver.
    #[inline]
    pub fn try_send(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), SendError> {
        let asleep = self.sender.send(&self.ring, kind, parts)?;
        if asleep {
            self.rouse();
        }
        Ok(())
    }

    #[cold]
    fn rouse(&self) {
        rouse(&self.ring);
        futex::wake(self.ring.head());
    }

    /// Sends, and waits for room. Calls `lives` from time to time, and fails if it returns false.
    #[inline]
    pub fn send(
        &mut self,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        lives: impl FnMut() -> bool,
    ) -> Result<(), Refused> {
        match self.try_send(kind, parts) {
            Ok(()) => Ok(()),
            Err(SendError::TooLong) => Err(Refused::TooLong),
            Err(SendError::Full) => self.send_when_free(kind, parts, until, lives, None),
        }
    }

    #[cold]
    pub(crate) fn send_when_free(
        &mut self,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        mut lives: impl FnMut() -> bool,
        mut meanwhile: Option<Meanwhile<'_>>,
    ) -> Result<(), Refused> {
        let mut naps = Naps::new(Duration::from_micros(50), DOUBT);
        loop {
            let (sender, ring) = (&mut self.sender, &self.ring);
            let sent = self.policy.poll(|| {
                if let Some(meanwhile) = &mut meanwhile {
                    meanwhile.take_all();
                }
                match sender.send(ring, kind, parts) {
                    Err(SendError::Full) => None,
                    other => Some(other),
                }
            });
            let sent = sent.unwrap_or_else(|| {
                let head = sender.wait_for_room(ring);
                let sent = sender.send(ring, kind, parts);
                if sent == Err(SendError::Full) {
                    // The ring may hold skipped lines only: then the receiver must see them.
                    if head & 1 != 0 {
                        rouse(ring);
                        futex::wake(ring.head());
                    }
                    let end = wait::earlier(until, naps.next_nap());
                    match &mut meanwhile {
                        Some(meanwhile) => meanwhile.nap((ring.head(), head), end),
                        None => futex::sleep(ring.head(), head, Some(end)),
                    }
                }
                sent
            });
            match sent {
                Ok(asleep) => {
                    if asleep {
                        self.rouse();
                    }
                    return Ok(());
                }
                Err(SendError::TooLong) => return Err(Refused::TooLong),
                Err(SendError::Full) => {}
            }
            if !lives() {
                return Err(Refused::Dead);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Refused::TimedOut);
            }
        }
    }
}
