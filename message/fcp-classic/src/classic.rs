//! The endpoint of FCP and FCP plus, on today's windows. A sender finds the receiver's buffer by
//! ID and group in a table, and changes it under a lock.
//!
//! FCP looks the receiver up for each message, because the programs of many users come and go. FCP
//! plus has the machine to itself, and caches what it found. Both can be used in one window at the
//! same time. Three things are not in the paper: the lock survives its holder, the new owner of an
//! entry waits until nobody sends to the old one, and a wait ends in a futex.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::time::{Duration, Instant};

use fcp::arrived::{Arrived, Pending};
use fcp::bell::{Bell, Sleeper};
use fcp::endpoint::Endpoint;
use fcp::error::{Broken, Refused, WindowError};
use fcp::fork;
use fcp::hold::Peer;
use fcp::lock::{Guard, Lock};
use fcp::member::{Card, Life, Members, Membership};
use fcp::protocol::Protocol;
use sync::futex;
use sync::ring::{Header, Kind};
use sync::wait::{self, DOUBT, Naps, WaitPolicy};

use crate::buffer::Buffer;
use crate::directory::Directory;
use crate::queue::{ASLEEP, Corrupt, Head, Message, NotPut, Queue, Words};
use crate::table::Table;

/// Longest sleep of an idle receiver: a sender may be killed between its message and the wake-up.
const IDLE: Duration = Duration::from_secs(1);
/// Longest wait of [`Endpoint::try_send`] for a buffer's lock: its holder may have been stopped.
const LOCK_WAIT: Duration = Duration::from_millis(1);

/// A member that sends and receives by FCP or FCP plus.
#[derive(Debug)]
pub(crate) struct Classic {
    protocol: Protocol,
    membership: Arc<Membership>,
    card: Card,
    own: Buffer,
    /// The message that was received last, until it is consumed.
    pending: Option<Message>,
    directory: Directory,
    /// For waits for a message.
    policy: WaitPolicy,
    /// For waits for room.
    room: WaitPolicy,
    rung: Arc<AtomicBool>,
    forks: u32,
}

/// The result of an attempt to send.
enum Put {
    Done,
    /// This member's buffer had no room when its head had this value.
    Full(Peer, Buffer, u32),
}

impl Classic {
    /// Joins the window, and lists the receive buffer.
    pub fn join(
        protocol: Protocol,
        members: &Arc<Members>,
        card: Card,
        index: Option<u16>,
    ) -> Result<Self, WindowError> {
        debug_assert!(protocol.is_listed());
        let window = members.window();
        let no_room = || WindowError::NoMessages { place: window.memory().place().to_owned() };
        Buffer::of(window, 0).ok_or_else(no_room)?;
        let membership = Arc::new(members.join(card, index)?);
        let index = membership.peer().index;
        let own = Buffer::of(window, index).ok_or_else(no_room)?;
        Queue(&own).own(card.id);
        Table(window).enter(index, members.host(), card.id, card.group);
        let caches = protocol == Protocol::FcpPlus;
        Ok(Self {
            protocol,
            membership,
            card,
            own,
            pending: None,
            directory: Directory::new(card.group, window.plan().members, caches),
            policy: WaitPolicy::default(),
            room: WaitPolicy::default(),
            rung: Arc::default(),
            forks: fork::watch(),
        })
    }

    /// Returns the ID by which the member in entry `to` is found, unless the caller gives it.
    fn id_of(&self, to: u16, id: Option<u32>) -> Result<u32, Refused> {
        let entry = || self.membership.members().entry(to);
        id.or_else(|| Some(entry()?.card.id)).ok_or(Refused::Gone)
    }

    /// Sleeps until there is room, or until a message arrives for this member.
    fn nap(&mut self, (peer, buffer, head): (Peer, Buffer, u32), until: Instant) {
        let membership = &*self.membership;
        let waits = {
            let Some(_hold) = membership.hold_alone(peer) else { return };
            let Some(_guard) = lock(membership, &buffer, None) else { return };
            Queue(&buffer).wait_for_room(head)
        };
        if waits && let Some(ours) = self.about_to_sleep() {
            futex::sleep_on_either([(Queue::room(&buffer), head), ours], until);
        }
    }

    /// Puts a message into the buffer of the receiver `id`. Waits for the buffer's lock for
    /// `at_most`.
    fn put(
        &mut self,
        id: u32,
        kind: Kind,
        parts: &[&[u8]],
        at_most: Option<Duration>,
    ) -> Result<Put, Refused> {
        if fork::happened_since(self.forks) {
            return Err(Refused::Forked);
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).map_err(|_| Refused::TooLong)?;
        let Self { membership, directory, card, .. } = self;
        let head = Head { length, source: card.id, group: card.group, kind };
        loop {
            let (peer, buffer) = directory.find(membership, id)?;
            let Some(hold) = membership.hold_alone(peer) else {
                directory.forget(id, peer);
                continue;
            };
            let seen = Queue::room(&buffer).load(Acquire);
            let Some(guard) = lock(membership, &buffer, at_most) else {
                return Ok(Put::Full(peer, buffer, seen));
            };
            let put = Queue(&buffer).put(id, head, parts);
            drop(guard);
            drop(hold);
            match put {
                Ok(sleeps) => {
                    if sleeps {
                        futex::wake(Queue::messages(&buffer));
                    }
                    return Ok(Put::Done);
                }
                Err(NotPut::Gone) => directory.forget(id, peer),
                Err(NotPut::TooLong) => return Err(Refused::TooLong),
                Err(NotPut::Full) => return Ok(Put::Full(peer, buffer, seen)),
            }
        }
    }

    fn next(&mut self) -> Result<Option<Arrived<'_>>, Broken> {
        match Queue(&self.own).next() {
            Ok(None) => Ok(None),
            Ok(Some(message)) => Ok(Some(self.arrived(message))),
            Err(Corrupt) => Err(Broken::Corrupt),
        }
    }

    fn arrived(&mut self, message: Message) -> Arrived<'_> {
        self.pending = Some(message);
        Arrived::pending(self)
    }

    fn message(&self) -> &Message {
        self.pending.as_ref().expect("a message was received")
    }

    /// Announces that this member sleeps, unless there is a message. Returns the word on which it
    /// sleeps, and its value.
    fn about_to_sleep(&self) -> Option<(&AtomicU32, u32)> {
        let guard = lock(&self.membership, &self.own, None);
        let sleeps = Queue(&self.own).sleep();
        drop(guard);
        fence(SeqCst); // against `Bell::ring`, which sets its flag, then looks for a sleeper
        sleeps.then_some((Queue::messages(&self.own), ASLEEP))
    }
}

impl Endpoint for Classic {
    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    fn capacity(&self) -> usize {
        self.own.words() as usize * size_of::<u32>()
    }

    fn bell(&self) -> Bell {
        let window = self.membership.members().window().clone();
        Bell::new(Asleep(self.own), self.rung.clone(), window)
    }

    fn try_send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
    ) -> Result<(), Refused> {
        let id = self.id_of(to, id)?;
        match self.put(id, kind, parts, Some(LOCK_WAIT))? {
            Put::Done => Ok(()),
            Put::Full(..) => Err(Refused::Full),
        }
    }

    fn send(
        &mut self,
        to: u16,
        id: Option<u32>,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        meanwhile: &mut dyn FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let id = self.id_of(to, id)?;
        let mut naps = Naps::new(Duration::from_micros(50), DOUBT);
        loop {
            let (peer, buffer, head) = match self.put(id, kind, parts, None)? {
                Put::Done => return Ok(()),
                Put::Full(peer, buffer, head) => (peer, buffer, head),
            };
            let has_room = || Queue::room(&buffer).load(Acquire) != head;
            let mut room = self.room.clone();
            let came = room.poll(|| {
                // The receiver may wait for room in our buffer.
                let mut took = false;
                // The next call to receive reports a corrupt buffer.
                while let Ok(Some(arrived)) = self.next() {
                    meanwhile(arrived);
                    took = true;
                }
                (took || has_room()).then_some(())
            });
            self.room = room;
            if came.is_some() {
                continue;
            }
            self.nap((peer, buffer, head), wait::earlier(until, naps.next_nap()));
            if self.membership.members().life(peer) == Life::Gone {
                return Err(Refused::Dead);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Refused::Full);
            }
        }
    }

    fn try_receive(&mut self) -> Result<Option<Arrived<'_>>, Broken> {
        if fork::happened_since(self.forks) {
            return Err(Broken::Forked);
        }
        self.next()
    }

    fn receive(
        &mut self,
        word: Option<(&AtomicU32, u32)>,
        until: Option<Instant>,
    ) -> Result<Option<Arrived<'_>>, Broken> {
        if fork::happened_since(self.forks) {
            return Err(Broken::Forked);
        }
        loop {
            let (queue, rung) = (Queue(&self.own), &self.rung);
            let ends =
                || rung.load(Relaxed) || word.is_some_and(|(word, is)| word.load(Acquire) != is);
            let found = self.policy.poll(|| match queue.next() {
                Ok(None) => ends().then_some(Ok(None)),
                found => Some(found),
            });
            match found {
                Some(Ok(Some(message))) => return Ok(Some(self.arrived(message))),
                Some(Ok(None)) => {
                    self.rung.store(false, SeqCst);
                    return Ok(None);
                }
                Some(Err(Corrupt)) => return Err(Broken::Corrupt),
                None => {}
            }
            if let Some((ours, is)) = self.about_to_sleep()
                && !self.rung.load(SeqCst)
            {
                let until = wait::earlier(until, IDLE);
                match word {
                    None => futex::sleep(ours, is, Some(until)),
                    Some(word) => futex::sleep_on_either([(ours, is), word], until),
                }
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                self.policy.give_up();
                return self.next();
            }
        }
    }
}

impl Pending for Classic {
    fn header(&self) -> Header {
        let Head { length, source, kind, .. } = self.message().head;
        Header { kind, length, source }
    }

    fn read(&self, offset: usize, to: &mut [u8]) {
        Queue(&self.own).read(self.message(), offset, to);
    }

    fn consume(&mut self) {
        let message = self.pending.take().expect("a message was received");
        let guard = lock(&self.membership, &self.own, None).expect("no time limit");
        let wake = Queue(&self.own).take(&message);
        drop(guard);
        if wake {
            futex::wake(Queue::room(&self.own));
        }
    }
}

impl Drop for Classic {
    fn drop(&mut self) {
        if !fork::happened_since(self.forks) {
            Table(self.membership.members().window()).remove(self.membership.peer().index);
        }
    }
}

/// A receiver that may sleep on its buffer.
#[derive(Debug)]
struct Asleep(Buffer);

impl Sleeper for Asleep {
    fn wake(&self) {
        // Without the lock, whose holder may have been stopped: this changes the word only while
        // the receiver sleeps and the buffer is empty, as a sender may.
        let messages = Queue::messages(&self.0);
        if messages.compare_exchange(ASLEEP, 0, SeqCst, Relaxed).is_ok() {
            futex::wake(messages);
        }
    }
}

/// Takes the lock of a buffer, and repairs the queue if a holder died. Returns nothing if the lock
/// is not free within `at_most`.
fn lock<'a>(
    membership: &'a Membership,
    buffer: &'a Buffer,
    at_most: Option<Duration>,
) -> Option<Guard<'a>> {
    let word = Lock::at(buffer.lock());
    let at_once = word.try_lock(membership);
    let taken = || word.lock(membership, at_most.map(|at_most| Instant::now() + at_most));
    let mut guard = at_once.or_else(taken)?;
    if guard.in_doubt() {
        Queue(buffer).repair();
        guard.settle();
        futex::wake(Queue::messages(buffer));
        futex::wake(Queue::room(buffer));
    }
    Some(guard)
}
