//! The two ends of a receive buffer, with waiting: [`Outbox`] sends into somebody's ring,
//! [`Inbox`] receives from one's own.

use std::time::{Duration, Instant};

use crate::mapped::Mapped;
use crate::ring::{Buffer, Found, Header, Kind, Message, Receiver, SendError, Sender, rouse};
use crate::wait::{self, Patience};

/// How long to sleep before asking whether somebody who is late still lives.
const DOUBT: Duration = Duration::from_millis(20);
/// How long an idle receiver sleeps before it looks by itself: a sender may have been
/// killed between its message and waking us.
const IDLE: Duration = Duration::from_secs(1);

/// The ring holds what no sender writes: some process has overwritten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Longer than the ring.
    TooLong,
    /// No room until the given time.
    TimedOut,
    /// The receiver has ended.
    Dead,
}

/// The way to one receiver.
#[derive(Debug)]
pub struct Outbox {
    ring: Mapped,
    sender: Sender,
    patience: Patience,
}

impl Outbox {
    /// Sends as `member`, whose messages say that they are from `source`.
    pub fn new(ring: Mapped, member: u16, source: u32) -> Self {
        Self { ring, sender: Sender::new(member, source), patience: Patience::default() }
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
        wait::wake(self.ring.head());
    }

    /// Sends; waits for room. Before each sleep it calls `meanwhile`, which takes what has
    /// come for ourselves (two who send to each other would else wait for ever) and says
    /// whether the receiver still lives.
    #[inline]
    pub fn send(
        &mut self,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        meanwhile: impl FnMut() -> bool,
    ) -> Result<(), Refused> {
        match self.try_send(kind, parts) {
            Ok(()) => Ok(()),
            Err(SendError::TooLong) => Err(Refused::TooLong),
            Err(SendError::Full) => self.send_when_free(kind, parts, until, meanwhile),
        }
    }

    #[cold]
    fn send_when_free(
        &mut self,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        mut meanwhile: impl FnMut() -> bool,
    ) -> Result<(), Refused> {
        let mut nap = Duration::from_micros(50);
        loop {
            let sender = &mut self.sender;
            let ring = &self.ring;
            let sent = self.patience.look(|| match sender.send(ring, kind, parts) {
                Err(SendError::Full) => None,
                other => Some(other),
            });
            let sent = sent.unwrap_or_else(|| {
                let head = sender.wait_for_room(ring);
                let sent = sender.send(ring, kind, parts);
                if sent == Err(SendError::Full) {
                    // Lines that were skipped may be all there is for the receiver.
                    if head & 1 != 0 {
                        rouse(ring);
                        wait::wake(ring.head());
                    }
                    let end = Instant::now() + nap;
                    wait::sleep(ring.head(), head, Some(until.map_or(end, |u| u.min(end))));
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
            nap = (nap * 2).min(DOUBT);
            if !meanwhile() {
                return Err(Refused::Dead);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Refused::TimedOut);
            }
        }
    }
}

/// One's own receive buffer.
#[derive(Debug)]
pub struct Inbox {
    ring: Mapped,
    receiver: Receiver,
    patience: Patience,
}

/// A message that has come, still in the ring.
#[derive(Debug)]
pub struct Arrived<'a> {
    inbox: &'a mut Inbox,
    message: Message,
}

impl Arrived<'_> {
    /// Its header.
    pub fn header(&self) -> Header {
        self.message.header
    }

    /// Copies part of its payload.
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.inbox.receiver.read(&self.inbox.ring, &self.message, offset, to);
    }
}

impl Drop for Arrived<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.inbox.receiver.consume(&self.inbox.ring, &self.message) {
            wait::wake(self.inbox.ring.head());
        }
    }
}

impl Inbox {
    /// The receiver of a ring that nobody has received from before.
    pub fn new(ring: Mapped) -> Self {
        Self { ring, receiver: Receiver::default(), patience: Patience::default() }
    }

    /// The next message, if one is there.
    #[inline]
    pub fn try_receive(&mut self) -> Result<Option<Arrived<'_>>, Corrupt> {
        match self.receiver.look(&self.ring) {
            Found::Message(message) => Ok(Some(Arrived { inbox: self, message })),
            Found::Corrupt => Err(Corrupt),
            Found::Nothing | Found::Unfinished(_) => Ok(None),
        }
    }

    /// The next message; waits for one. `is_dead` tells of a member that takes long to
    /// finish its message whether it has ended: then the message is dropped.
    pub fn receive(
        &mut self,
        until: Option<Instant>,
        is_dead: impl Fn(u16) -> bool,
    ) -> Result<Option<Arrived<'_>>, Corrupt> {
        loop {
            let (receiver, ring) = (&mut self.receiver, &self.ring);
            let found = self.patience.look(|| match receiver.look(ring) {
                Found::Nothing => None,
                found => Some(found),
            });
            match found.unwrap_or_else(|| Self::nap(receiver, ring, until, &is_dead)) {
                Found::Message(message) => return Ok(Some(Arrived { inbox: self, message })),
                Found::Corrupt => return Err(Corrupt),
                Found::Nothing | Found::Unfinished(_) => {}
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return self.try_receive();
            }
        }
    }

    /// Sleeps until there might be something, unless there is.
    fn nap(
        receiver: &mut Receiver,
        ring: &Mapped,
        until: Option<Instant>,
        is_dead: impl Fn(u16) -> bool,
    ) -> Found {
        let publish = |receiver: &mut Receiver| {
            if receiver.publish(ring) {
                wait::wake(ring.head());
            }
        };
        let at_most = |time| until.map_or(Instant::now() + time, |u| u.min(Instant::now() + time));
        publish(receiver);
        let head = receiver.about_to_sleep(ring);
        let found = receiver.look_closely(ring);
        publish(receiver); // the look may have skipped lines; then the head has changed
        match found {
            Found::Nothing => wait::sleep(ring.head(), head, Some(at_most(IDLE))),
            Found::Unfinished(member) if is_dead(member) => receiver.skip_dead(ring, member),
            Found::Unfinished(_) => wait::sleep(ring.head(), head, Some(at_most(DOUBT))),
            Found::Message(_) | Found::Corrupt => {}
        }
        receiver.awake(ring);
        found
    }
}
