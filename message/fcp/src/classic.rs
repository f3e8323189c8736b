//! FCP and FCP plus, the paper's first protocols, on today's windows: members find each
//! other's buffers by ID and group in a table (`listed`), and change them under a lock
//! (`locked`).
//!
//! FCP looks the receiver up for every message, since many users' programs come and go.
//! FCP plus has the machine to itself, and remembers what it has found. Both can be used
//! at once in one window. What is ours: the lock survives its holder, who takes a dead
//! member's entry waits for those who still send to it, and waiting ends in a futex.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::WindowError;
use crate::fork;
use crate::hold::Peer;
use crate::listed::{Area, Table};
use crate::lock::{Guard, Lock};
use crate::locked::{HEADER, Head, LENGTH_MAX, NotPut, Queue, Words};
use crate::mail::Received;
use crate::member::{Card, Life, Members, Membership};
use crate::port::{Broken, Refused};
use crate::wait::{self, Patience};

/// How long an idle receiver sleeps before it looks by itself.
const IDLE: Duration = Duration::from_secs(1);

/// A member that sends and receives by FCP or FCP plus.
#[derive(Debug)]
pub struct Classic {
    membership: Arc<Membership>,
    card: Card,
    own: Area,
    /// FCP plus: where whom was found.
    cache: Option<HashMap<u32, u16>>,
    /// Where the last receiver was found.
    last: u16,
    /// Whose stay each entry was when it was last looked at.
    peers: Vec<Option<Peer>>,
    kept: VecDeque<(u32, Vec<u8>)>,
    partial: HashMap<u32, Vec<u8>>,
    patience: Patience,
    forks: u32,
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
        Queue(&own).own(card.id, own.words);
        Table(window).enter(index, members.host(), card.id, card.group);
        Ok(Self {
            membership,
            card,
            own,
            cache: cached.then(HashMap::new),
            last: 0,
            peers: vec![None; window.plan().members.into()],
            kept: VecDeque::new(),
            partial: HashMap::new(),
            patience: Patience::default(),
            forks: fork::watch(),
        })
    }

    /// The place in the window.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Sends to the member of our group that has this ID; waits for room until the given
    /// time.
    pub fn send(&mut self, id: u32, bytes: &[u8], until: Option<Instant>) -> Result<(), Refused> {
        if fork::happened_since(self.forks) {
            return Err(Refused::Forked);
        }
        let most = (self.own.words / 4 * 4).min(LENGTH_MAX) as usize;
        let mut rest = bytes;
        loop {
            let (part, behind) = rest.split_at(rest.len().min(most));
            let ends = [rest.len() == bytes.len(), behind.is_empty()];
            let Card { id: source, group } = self.card;
            let head = Head { length: part.len() as u32, source, group, ends };
            // If the time is over in between, the receiver forgets what it has.
            self.put(id, head, part, until)?;
            rest = behind;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn put(
        &mut self,
        id: u32,
        head: Head,
        part: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Refused> {
        let mut nap = Duration::from_micros(20);
        loop {
            let peer = self.find(id)?;
            let membership = self.membership.clone();
            let Some(hold) = membership.hold_alone(peer) else {
                self.forget(id, peer);
                continue;
            };
            let window = membership.members().window();
            let area = Table(window).area(peer.index).expect("all members have buffers");
            let guard = lock(&membership, &area);
            let put = Queue(&area).put(id, head, part);
            drop(guard);
            drop(hold);
            match put {
                Ok(sleeps) => {
                    if sleeps {
                        wait::wake(messages(&area));
                    }
                    return Ok(());
                }
                Err(NotPut::Gone) => self.forget(id, peer),
                Err(NotPut::Full) => {
                    if membership.members().life(peer) == Life::Gone {
                        return Err(Refused::Dead);
                    }
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return Err(Refused::Full);
                    }
                    // The other may wait for room, too: with us.
                    if !self.keep_next().map_err(|_| Refused::Full)? {
                        std::thread::sleep(nap);
                        nap = (nap * 2).min(Duration::from_millis(1));
                    }
                }
            }
        }
    }

    /// The member with this ID, as the table lists it.
    fn find(&mut self, id: u32) -> Result<Peer, Refused> {
        let members = self.membership.members();
        let known = self.cache.as_ref().and_then(|cache| cache.get(&id).copied());
        let index = match known {
            Some(index) => index,
            None => {
                let table = Table(members.window());
                table.find(id, self.card.group, self.last).ok_or(Refused::Gone)?
            }
        };
        self.last = index;
        if let Some(cache) = &mut self.cache {
            cache.insert(id, index);
        }
        if let Some(peer) = self.peers[usize::from(index)] {
            return Ok(peer);
        }
        let entry = members.entry(index).ok_or(Refused::Gone)?;
        if members.life(entry.peer) == Life::Gone {
            return Err(Refused::Dead);
        }
        self.peers[usize::from(index)] = Some(entry.peer);
        Ok(entry.peer)
    }

    /// What was known of a member is old.
    fn forget(&mut self, id: u32, peer: Peer) {
        self.peers[usize::from(peer.index)] = None;
        if let Some(cache) = &mut self.cache {
            cache.remove(&id);
        }
    }

    /// Receives the next message into `to`, from anybody or from one of `sources`; waits
    /// until the given time. What there is no room for is lost.
    pub fn receive(
        &mut self,
        to: &mut [u8],
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<Received>, Broken> {
        let Some(at) = self.wait_for(sources, until)? else { return Ok(None) };
        let (source, bytes) = self.kept.remove(at).expect("just found");
        let fits = bytes.len().min(to.len());
        to[..fits].copy_from_slice(&bytes[..fits]);
        Ok(Some(Received { source, length: bytes.len() }))
    }

    /// Who sent the next message, from anybody or from one of `sources`, and how long it
    /// is; it stays. Waits until the given time.
    pub fn select(
        &mut self,
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<Received>, Broken> {
        let found = self.wait_for(sources, until)?.map(|at| &self.kept[at]);
        Ok(found.map(|(source, bytes)| Received { source: *source, length: bytes.len() }))
    }

    /// Which of the kept messages is the next that is wanted; waits for one.
    fn wait_for(
        &mut self,
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<usize>, Broken> {
        if fork::happened_since(self.forks) {
            return Err(Broken::Forked);
        }
        let is_wanted = |source: u32| sources.is_empty() || sources.contains(&source);
        loop {
            if let Some(at) = self.kept.iter().position(|kept| is_wanted(kept.0)) {
                return Ok(Some(at));
            }
            let own = self.own;
            let queue = Queue(&own);
            let came = self.patience.look(|| queue.has_next().then_some(()));
            if came.is_some() {
                self.keep_next()?;
                continue;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
            let guard = lock(&self.membership, &own);
            let sleeps = queue.sleep();
            drop(guard);
            if let Some((word, is)) = sleeps {
                wait::sleep(word, is, Some(wait::earlier(until, IDLE)));
            }
        }
    }

    /// Keeps the next message that has come. Whether there was one.
    fn keep_next(&mut self) -> Result<bool, Broken> {
        let queue = Queue(&self.own);
        if !queue.has_next() {
            return Ok(false);
        }
        let guard = lock(&self.membership, &self.own);
        let Some(head) = queue.next() else { return Ok(false) };
        if head.length / 4 > self.own.words - HEADER {
            return Err(Broken::Corrupt);
        }
        let mut bytes = vec![0; head.length as usize];
        let taken = queue.take(head, &mut bytes);
        drop(guard);
        if !taken {
            return Err(Broken::Corrupt);
        }
        let [first, last] = head.ends;
        let begun = self.partial.remove(&head.source).filter(|_| !first);
        let whole = match begun {
            Some(mut begun) => {
                begun.append(&mut bytes);
                begun
            }
            None if first => bytes,
            None => return Ok(true), // its beginning is lost: forged
        };
        match last {
            true => self.kept.push_back((head.source, whole)),
            false => drop(self.partial.insert(head.source, whole)),
        }
        Ok(true)
    }
}

impl Drop for Classic {
    fn drop(&mut self) {
        if !fork::happened_since(self.forks) {
            Table(self.membership.members().window()).remove(self.membership.peer().index);
        }
    }
}

/// Takes the lock of a buffer; what a dead holder left half done is repaired.
fn lock<'a>(membership: &'a Membership, area: &'a Area) -> Guard<'a> {
    let mut guard = Lock::at(area.lock()).lock(membership, None).expect("no time limit");
    if guard.in_doubt() {
        Queue(area).repair();
        guard.settle();
    }
    guard
}

fn messages(area: &Area) -> &std::sync::atomic::AtomicU32 {
    Queue::<Area>::messages(area)
}
