//! A port of FCP or FCP plus, the paper's first protocols, on today's windows: members find
//! each other's buffers by ID and group in a table (`listed`), and change them under a lock
//! (`locked`).
//!
//! FCP looks the receiver up for every message, since many users' programs come and go.
//! FCP plus has the machine to itself, and remembers what it has found. Both can be used
//! at once in one window. What is ours: the lock survives its holder, who takes a dead
//! member's entry waits for those who still send to it, and waiting ends in a futex.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::time::{Duration, Instant};

use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::error::WindowError;
use crate::fork;
use crate::hold::Peer;
use crate::listed::{Area, Table};
use crate::lock::{Guard, Lock};
use crate::locked::{ASLEEP, Corrupt, Head, Message, NotPut, Queue, Words};
use crate::member::{Card, Life, Members, Membership};
use crate::port::{Broken, Refused};
use crate::window::Window;
use sync::futex;
use sync::ring::Kind;
use sync::wait::{self, DOUBT, Naps, WaitPolicy};

/// How long an idle receiver sleeps before it looks by itself.
const IDLE: Duration = Duration::from_secs(1);
/// How long who does not want to wait waits for a buffer's lock: its holder may have been
/// stopped.
const LOCK_MAX: Duration = Duration::from_millis(1);

/// A member that sends and receives by FCP or FCP plus.
#[derive(Debug)]
pub(crate) struct Classic {
    membership: Arc<Membership>,
    card: Card,
    own: Area,
    directory: Directory,
    policy: WaitPolicy,
    /// Of waits for room.
    room: WaitPolicy,
    rung: Arc<AtomicBool>,
    forks: u32,
}

/// A message that has come, in the buffer.
#[derive(Debug)]
pub(crate) struct Letter<'a> {
    port: &'a mut Classic,
    message: Message,
}

impl Letter<'_> {
    pub fn head(&self) -> Head {
        self.message.head
    }

    pub fn read(&self, offset: usize, to: &mut [u8]) {
        Queue(&self.port.own).read(&self.message, offset, to);
    }

    /// Done with it.
    pub fn consume(&mut self) {
        let own = &self.port.own;
        let guard = lock(&self.port.membership, own, None).expect("no time limit");
        let wake = Queue(own).take(&self.message);
        drop(guard);
        if wake {
            futex::wake(Queue::room(own));
        }
    }
}

/// What became of an attempt to send.
enum Put {
    Done,
    /// No room in this one's buffer, when its head was this.
    Full(Peer, Area, u32),
}

impl Classic {
    /// Becomes a member, and lists its buffer. With `cached`, FCP plus.
    pub fn join(
        members: &Arc<Members>,
        card: Card,
        index: Option<u16>,
        cached: bool,
    ) -> Result<Self, WindowError> {
        let window = members.window();
        let no_room = || WindowError::NoMessages { place: window.memory().place().to_owned() };
        if !window.plan().listed {
            return Err(no_room());
        }
        Table(window).area(0).ok_or_else(no_room)?;
        let membership = Arc::new(members.join(card, index)?);
        let index = membership.peer().index;
        let own = Table(window).area(index).ok_or_else(no_room)?;
        Queue(&own).own(card.id);
        Table(window).enter(index, members.host(), card.id, card.group);
        let directory = Directory {
            group: card.group,
            cache: cached.then(HashMap::new),
            last: 0,
            peers: vec![None; window.plan().members.into()],
        };
        Ok(Self {
            membership,
            card,
            own,
            directory,
            policy: WaitPolicy::default(),
            room: WaitPolicy::default(),
            rung: Arc::default(),
            forks: fork::watch(),
        })
    }

    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// The ID of the member in this entry.
    pub fn id_of(&self, entry: u16) -> Option<u32> {
        self.membership.members().entry(entry).map(|entry| entry.card.id)
    }

    /// Bytes of a receive buffer.
    pub fn capacity(&self) -> usize {
        self.own.words() as usize * size_of::<u32>()
    }

    pub fn bell(&self, window: Arc<Window>) -> Bell {
        Bell::of_queue(self.own, self.rung.clone(), window)
    }

    pub fn try_send(&mut self, id: u32, kind: Kind, parts: &[&[u8]]) -> Result<(), Refused> {
        match self.put(id, kind, parts, Some(LOCK_MAX))? {
            Put::Done => Ok(()),
            Put::Full(..) => Err(Refused::Full),
        }
    }

    pub fn send(
        &mut self,
        id: u32,
        kind: Kind,
        parts: &[&[u8]],
        until: Option<Instant>,
        mut meanwhile: impl FnMut(Arrived<'_>),
    ) -> Result<(), Refused> {
        let mut naps = Naps::new(Duration::from_micros(50), DOUBT);
        loop {
            let (peer, area, head) = match self.put(id, kind, parts, None)? {
                Put::Done => return Ok(()),
                Put::Full(peer, area, head) => (peer, area, head),
            };
            let has_room = || Queue::room(&area).load(Acquire) != head;
            let mut room = self.room.clone();
            let came = room.poll(|| {
                // The other may wait for room, too: with us.
                let mut took = false;
                // What is corrupt is told to who receives.
                while let Ok(Some(letter)) = self.next() {
                    meanwhile(Arrived::by_classic(letter));
                    took = true;
                }
                (took || has_room()).then_some(())
            });
            self.room = room;
            if came.is_some() {
                continue;
            }
            self.nap((peer, area, head), wait::earlier(until, naps.next_nap()));
            if self.membership.members().life(peer) == Life::Gone {
                return Err(Refused::Dead);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Refused::Full);
            }
        }
    }

    /// Sleeps until there is room, or something comes for ourselves.
    fn nap(&mut self, (peer, area, head): (Peer, Area, u32), until: Instant) {
        let membership = &*self.membership;
        let waits = {
            let Some(_hold) = membership.hold_alone(peer) else { return };
            let Some(_guard) = lock(membership, &area, None) else { return };
            Queue(&area).wait_for_room(head)
        };
        if waits && let Some(ours) = self.about_to_sleep() {
            futex::sleep_on_either([(Queue::room(&area), head), ours], until);
        }
    }

    /// Puts a message into its receiver's buffer, whose lock it waits for so long at most.
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
            let (peer, area) = directory.find(membership, id)?;
            let Some(hold) = membership.hold_alone(peer) else {
                directory.forget(id, peer);
                continue;
            };
            let seen = Queue::room(&area).load(Acquire);
            let Some(guard) = lock(membership, &area, at_most) else {
                return Ok(Put::Full(peer, area, seen));
            };
            let put = Queue(&area).put(id, head, parts);
            drop(guard);
            drop(hold);
            match put {
                Ok(sleeps) => {
                    if sleeps {
                        futex::wake(Queue::messages(&area));
                    }
                    return Ok(Put::Done);
                }
                Err(NotPut::Gone) => directory.forget(id, peer),
                Err(NotPut::TooLong) => return Err(Refused::TooLong),
                Err(NotPut::Full) => return Ok(Put::Full(peer, area, seen)),
            }
        }
    }

    pub fn try_receive(&mut self) -> Result<Option<Letter<'_>>, Broken> {
        if fork::happened_since(self.forks) {
            return Err(Broken::Forked);
        }
        Ok(self.next()?)
    }

    fn next(&mut self) -> Result<Option<Letter<'_>>, Corrupt> {
        let next = Queue(&self.own).next()?;
        Ok(next.map(|message| Letter { port: self, message }))
    }

    /// The next message; waits for one until the given time, until the bell rings, or until
    /// the word is not as given.
    pub fn receive(
        &mut self,
        word: Option<(&AtomicU32, u32)>,
        until: Option<Instant>,
    ) -> Result<Option<Letter<'_>>, Broken> {
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
                Some(Ok(Some(message))) => return Ok(Some(Letter { port: self, message })),
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
                return Ok(self.next()?);
            }
        }
    }

    /// Says that we sleep, unless there is a message. On what, and what it then is.
    fn about_to_sleep(&self) -> Option<(&AtomicU32, u32)> {
        let guard = lock(&self.membership, &self.own, None);
        let sleeps = Queue(&self.own).sleep();
        drop(guard);
        fence(SeqCst); // who rings looks whether we sleep
        sleeps.then_some((Queue::messages(&self.own), ASLEEP))
    }
}

impl From<Corrupt> for Broken {
    fn from(_: Corrupt) -> Self {
        Self::Corrupt
    }
}

impl Drop for Classic {
    fn drop(&mut self) {
        if !fork::happened_since(self.forks) {
            Table(self.membership.members().window()).remove(self.membership.peer().index);
        }
    }
}

/// Where members are found.
#[derive(Debug)]
struct Directory {
    group: u32,
    /// FCP plus: where whom was found.
    cache: Option<HashMap<u32, u16>>,
    /// Where the last receiver was found.
    last: u16,
    /// Whose stay each entry was when it was last looked at, and its buffer.
    peers: Vec<Option<(Peer, Area)>>,
}

impl Directory {
    /// The member with this ID, as the table lists it.
    fn find(&mut self, membership: &Membership, id: u32) -> Result<(Peer, Area), Refused> {
        let members = membership.members();
        let table = Table(members.window());
        let known = self.cache.as_ref().and_then(|cache| cache.get(&id).copied());
        let index = match known {
            Some(index) => index,
            None => table.find(id, self.group, self.last).ok_or(Refused::Gone)?,
        };
        self.last = index;
        if let Some(cache) = &mut self.cache
            && known.is_none()
        {
            cache.insert(id, index);
        }
        if let Some(found) = self.peers[usize::from(index)] {
            return Ok(found);
        }
        let entry = members.entry(index).ok_or(Refused::Gone)?;
        if members.life(entry.peer) == Life::Gone {
            return Err(Refused::Dead);
        }
        let found = (entry.peer, table.area(index).expect("all members have buffers"));
        self.peers[usize::from(index)] = Some(found);
        Ok(found)
    }

    /// What was known of a member is old.
    fn forget(&mut self, id: u32, peer: Peer) {
        self.peers[usize::from(peer.index)] = None;
        if let Some(cache) = &mut self.cache {
            cache.remove(&id);
        }
    }
}

/// Takes the lock of a buffer; what a dead holder left half done is repaired. Nothing if
/// that takes longer than `at_most`.
fn lock<'a>(
    membership: &'a Membership,
    area: &'a Area,
    at_most: Option<Duration>,
) -> Option<Guard<'a>> {
    let word = Lock::at(area.lock());
    let at_once = word.try_lock(membership);
    let taken = || word.lock(membership, at_most.map(|at_most| Instant::now() + at_most));
    let mut guard = at_once.or_else(taken)?;
    if guard.in_doubt() {
        Queue(area).repair();
        guard.settle();
        futex::wake(Queue::messages(area));
        futex::wake(Queue::room(area));
    }
    Some(guard)
}
