//! The members of a window: a table entry for each, and which of them live.
//!
//! A member lives as long as it has the lock of its entry (`ofd`); the kernel drops the lock at the
//! member's death. An entry of a dead member is taken over: the new owner changes the generation,
//! waits until nobody sends to the old owner (`hold`), clears the receive buffer, and is present.
//! On a device that several machines share, a kernel knows only its own processes: entries of other
//! machines are not taken over.
//!
//! The lock belongs to an open file description, which a forked child shares. Until that child ends
//! or executes a program, only the parent's PID tells of its death, and its entry is not taken
//! over.

use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, compiler_fence, fence};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use sync::barrier;
use sync::pieces::Exposed;
use sync::wait::Backoff;

use crate::error::WindowError;
use crate::hold::{self, Peer, Phase, State};
use crate::ofd;
use crate::slot;
use crate::window::{EXPOSED, MEMBERS_MAX, Window};

/// Words of an entry: first its state and the member's description; then, in a cache line of their
/// own, the member's holds. The first hold is a port's. The others are for threads: more threads
/// than holds wait for each other. Behind them is the buffer that the member exposes (`together`).
const STATE: usize = 0;
const ID_AND_GROUP: usize = 1;
const PID: usize = 2;
const PID_NAMESPACE: usize = 3;
const BUFFER: usize = 4;
const OFFER: usize = 5;
const HOLDS: std::ops::Range<usize> = 8..EXPOSED / size_of::<u64>();

/// Flag beside the PID: the member holds without a fence.
const UNFENCED: u64 = 1 << 32;

/// Bits of a ticket for the index of the entry.
const INDEX_BITS: u32 = MEMBERS_MAX.trailing_zeros();

/// Longest wait of `join` for senders to an entry's former owner, which check its life every 20 ms.
const JOIN_WAIT: Duration = Duration::from_secs(1);

/// How a member describes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Card {
    /// The program's number for the member: a PVM tid, a rank.
    pub id: u32,
    /// The program that it belongs to, if several use one window.
    pub group: u32,
}

/// The contents of a member's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The member, with its generation.
    pub peer: Peer,
    /// Its description.
    pub card: Card,
    /// Its PID, in its own PID namespace.
    pub pid: u32,
    /// Offset of its ring in the window, or 0.
    pub buffer: u64,
}

/// Whether a member lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It lives.
    Lives,
    /// It has ended, or left.
    Gone,
    /// It is a process of another machine, which alone knows.
    Elsewhere,
}

/// The members of a window.
#[derive(Debug)]
pub struct Members {
    window: Arc<Window>,
    /// A file description that never holds a lock: it queries the locks of others.
    ask: OwnedFd,
    host: u32,
    pid_namespace: u64,
}

impl Members {
    /// Returns the members of `window`.
    pub fn of(window: Arc<Window>) -> Result<Self, WindowError> {
        let ask = window.memory().reopen()?;
        let pid_namespace = proc::host::pid_namespace();
        Ok(Self { window, ask, host: host(), pid_namespace })
    }

    /// Returns the window.
    pub fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// Returns this machine's number, which entries contain.
    pub fn host(&self) -> u32 {
        self.host
    }

    /// Returns the member that has entry `index`, if there is one.
    pub fn entry(&self, index: u16) -> Option<Entry> {
        if index >= self.window.plan().members {
            return None;
        }
        let word = |n| self.window.entry_word(index, n).load(Acquire);
        loop {
            let before = word(STATE);
            let state = State::parse(before);
            if state.phase != Phase::Present {
                return None;
            }
            let (who, pid, buffer) = (word(ID_AND_GROUP), word(PID), word(BUFFER));
            // A new owner changes the state before the other words.
            if word(STATE) == before {
                return Some(Entry {
                    peer: Peer { index, generation: state.generation },
                    card: Card { id: who as u32, group: (who >> 32) as u32 },
                    pid: pid as u32,
                    buffer,
                });
            }
        }
    }

    /// Returns all members, including dead ones whose entries were not taken over.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.window.plan().members).filter_map(|index| self.entry(index))
    }

    /// Returns the living member with this description.
    pub fn find(&self, card: Card) -> Option<Peer> {
        let found = |entry: &Entry| entry.card == card && self.life(entry.peer) != Life::Gone;
        self.entries().find(found).map(|entry| entry.peer)
    }

    /// Returns true if `peer` has its entry: it has not left, and nobody has taken the entry. Costs
    /// one load. A killed member keeps its entry; see [`Members::life`].
    #[inline]
    pub fn has_entry(&self, peer: Peer) -> bool {
        peer.index < self.window.plan().members && hold::has_entry(self.state(peer.index), peer)
    }

    /// Returns whether `peer` lives.
    pub fn life(&self, peer: Peer) -> Life {
        if peer.index >= self.window.plan().members {
            return Life::Gone;
        }
        let state = self.state(peer.index);
        if !hold::has_entry(state, peer) {
            return Life::Gone;
        }
        let host = State::parse(state.load(Acquire)).host;
        let life = if host == self.host { self.life_here(peer.index) } else { Life::Elsewhere };
        // The answer is valid only if the entry had the same owner before and after.
        if hold::has_entry(state, peer) { life } else { Life::Gone }
    }

    /// Returns the number by which `peer` claims lines in rings ([`Sender::new`]): its entry, and
    /// 20 bits of its generation. The generation tells a dead sender from its living successor.
    ///
    /// [`Sender::new`]: sync::ring::Sender::new
    pub fn ticket(&self, peer: Peer) -> u32 {
        peer.generation << INDEX_BITS | u32::from(peer.index)
    }

    /// Returns true if the sender with this [`ticket`](Self::ticket) has ended. A sender on another
    /// machine counts as alive.
    pub fn is_dead(&self, ticket: u32) -> bool {
        let index = (ticket & ((1 << INDEX_BITS) - 1)) as u16;
        if index >= self.window.plan().members {
            return true;
        }
        let State { generation, .. } = State::parse(self.state(index).load(Acquire));
        let peer = Peer { index, generation };
        self.ticket(peer) != ticket || self.life(peer) == Life::Gone
    }

    /// Returns whether the owner of an entry, a process of this machine, lives.
    fn life_here(&self, index: u16) -> Life {
        let at = ofd::MEMBERS + i64::from(index);
        // If the query fails, the owner counts as alive: its entry must not be taken over.
        if !ofd::is_locked(self.ask.as_fd(), at).unwrap_or(true) {
            return Life::Gone;
        }
        let word = |n| self.window.entry_word(index, n).load(Acquire);
        if self.pid_namespace == 0 || word(PID_NAMESPACE) != self.pid_namespace {
            return Life::Lives;
        }
        let pid = i32::try_from(word(PID) as u32).ok().and_then(Pid::from_raw);
        let none = pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH));
        if none { Life::Gone } else { Life::Lives }
    }

    /// Joins as a member, in entry `index` or in any. The receive buffer is empty.
    pub fn join(
        self: &Arc<Self>,
        card: Card,
        index: Option<u16>,
    ) -> Result<Membership, WindowError> {
        let lock = self.window.memory().reopen()?;
        let unfenced = self.window.memory().kind().is_of_one_kernel() && barrier::register();
        let members = self.window.plan().members;
        let full =
            || WindowError::Full { place: self.window.memory().place().to_owned(), index, members };
        let wanted = match index {
            Some(index) if index >= members => return Err(full()),
            Some(index) => index..index + 1,
            None => 0..members,
        };
        let until = Instant::now() + JOIN_WAIT;
        loop {
            let mut held = false;
            for index in wanted.clone() {
                match self.take(&lock, index, card, unfenced)? {
                    Taken::Ours(generation) => {
                        let peer = Peer { index, generation };
                        let pid = std::process::id();
                        let (members, exposes) = (self.clone(), AtomicBool::new(false));
                        return Ok(Membership { members, peer, lock, pid, unfenced, exposes });
                    }
                    Taken::Held => held = true,
                    Taken::Lent(borrower) if wanted.len() == 1 => {
                        let place = self.window.memory().place().to_owned();
                        return Err(WindowError::Lent { place, index, borrower: borrower.index });
                    }
                    Taken::Lent(_) => {}
                    Taken::Others => {}
                }
            }
            if !held || Instant::now() >= until {
                return Err(full());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes entry `index` if it is free or its owner is dead.
    fn take(
        &self,
        lock: &OwnedFd,
        index: u16,
        card: Card,
        unfenced: bool,
    ) -> Result<Taken, WindowError> {
        debug_assert!(index < self.window.plan().members, "no entry {index}");
        let at = ofd::MEMBERS + i64::from(index);
        let ours = ofd::try_lock(lock.as_fd(), at, 1).map_err(|error| WindowError::System {
            doing: "lock a byte of",
            place: self.window.memory().place().to_owned(),
            error,
        })?;
        if !ours {
            return Ok(Taken::Others);
        }
        let state = self.state(index);
        let before = state.load(Acquire);
        let was = State::parse(before);
        // We have the lock, so the old owner is dead, unless it locked in another kernel.
        let can = was.phase == Phase::Free || was.host == self.host;
        // An entry that was never used has no holds and no loans.
        let used = was.generation != 0;
        if can
            && used
            && let Some(borrower) = self.borrower(index)
        {
            ofd::unlock(lock.as_fd(), at, 1);
            return Ok(Taken::Lent(borrower));
        }
        let taken = if can { hold::take(state, before, self.host, || ()) } else { None };
        let Some(taken) = taken else {
            ofd::unlock(lock.as_fd(), at, 1);
            return Ok(Taken::Others);
        };
        // The holds of the dead owner end.
        self.holds(index).for_each(hold::release);
        if used && (!self.fence_holders(index) || self.is_held(index)) {
            state.store(taken.next(self.host, Phase::Free).word(), Release);
            ofd::unlock(lock.as_fd(), at, 1);
            return Ok(Taken::Held);
        }
        // SAFETY: `is_held` found no hold of the entry, and later attempts see the generation that
        // `hold::take` has changed. The former owner is dead or gone, and we have the entry's lock.
        unsafe { self.window.clear_buffer(index) };
        if used {
            self.window.clear_loans(index);
        }
        let buffer = self.window.buffer(index).map_or(0, |(at, _)| at as u64);
        let set = |n, value| self.window.entry_word(index, n).store(value, Release);
        set(ID_AND_GROUP, u64::from(card.group) << 32 | u64::from(card.id));
        set(PID, u64::from(std::process::id()) | if unfenced { UNFENCED } else { 0 });
        set(PID_NAMESPACE, self.pid_namespace);
        set(BUFFER, buffer);
        set(OFFER, 0);
        hold::present(state, taken);
        // Pairs with the fence of a later owner: either it sees us, or our holds see it.
        fence(SeqCst);
        Ok(Taken::Ours(taken.generation))
    }

    /// Returns to the system the lendable memory of members in these entries that have ended,
    /// unless a living member has a loan from them. Keeps in the list the entries whose members
    /// live or are about to end, and those with loans.
    pub fn give_back_of_the_dead(&self, entries: &mut Vec<u16>) -> Result<(), WindowError> {
        if entries.is_empty() {
            return Ok(());
        }
        let lock = self.window.memory().reopen()?;
        entries.retain(|&index| {
            let at = ofd::MEMBERS + i64::from(index);
            let state = State::parse(self.state(index).load(Acquire));
            if state.phase == Phase::Free || state.host != self.host {
                return false;
            }
            // While we have its lock, nobody can take the entry.
            if ofd::try_lock(lock.as_fd(), at, 1) != Ok(true) {
                return true;
            }
            // A member that was killed before its first loan may have filled a block.
            let is_lent = self.borrower(index).is_some();
            if !is_lent {
                self.window.clear_loans(index);
            }
            ofd::unlock(lock.as_fd(), at, 1);
            is_lent
        });
        Ok(())
    }

    /// Returns a living member that has a loan from entry `index`.
    fn borrower(&self, index: u16) -> Option<Peer> {
        let slots = 1..=self.window.slots_used(index);
        let slots = slots.filter_map(|number| self.window.slot(index, number));
        let mut borrowers = slots.filter_map(slot::borrower);
        borrowers.find(|peer| self.life(*peer) != Life::Gone)
    }

    /// Makes, for the new owner of entry `index`, the fences that members omit between the store of
    /// a hold and the load of the state. Returns false if it did not reach all: it cannot reach
    /// another machine.
    fn fence_holders(&self, index: u16) -> bool {
        let here = barrier::everywhere();
        fence(SeqCst);
        (0..self.window.plan().members).all(|by| {
            let unfenced = self.window.entry_word(by, PID).load(SeqCst) & UNFENCED != 0;
            let host = State::parse(self.state(by).load(SeqCst)).host;
            by == index || !unfenced || here && host == self.host || self.is_gone(by)
        })
    }

    /// Returns true if a living member holds entry `index`.
    fn is_held(&self, index: u16) -> bool {
        (0..self.window.plan().members).any(|by| {
            // The hold of a dead member does not count. The new owner has none yet.
            self.holds(by).any(|word| hold::holds(word, index)) && !self.is_gone(by)
        })
    }

    /// Returns true if entry `index` has no owner that lives or may live on another machine.
    fn is_gone(&self, index: u16) -> bool {
        let state = State::parse(self.state(index).load(Acquire));
        match state.phase {
            Phase::Free => true,
            _ => state.host == self.host && self.life_here(index) == Life::Gone,
        }
    }

    /// Returns the word for offers of the member in entry `index` (`offer`).
    pub(crate) fn offer(&self, index: u16) -> &AtomicU64 {
        self.window.entry_word(index, OFFER)
    }

    /// Returns the buffer that the member in entry `index` exposes (`together`).
    pub(crate) fn exposed(&self, index: u16) -> &Exposed {
        self.window.exposed(index)
    }

    /// Returns the PID of the member in entry `index`, if it is of this PID namespace.
    pub fn pid(&self, index: u16) -> Option<u32> {
        let entry = self.entry(index)?;
        self.shares_pids_with(index).then_some(entry.pid)
    }

    /// Returns true if the PID in entry `index` is of this PID namespace.
    pub(crate) fn shares_pids_with(&self, index: u16) -> bool {
        let theirs = self.window.entry_word(index, PID_NAMESPACE).load(Acquire);
        let host = State::parse(self.state(index).load(Acquire)).host;
        self.pid_namespace != 0 && theirs == self.pid_namespace && host == self.host
    }

    #[inline]
    fn state(&self, index: u16) -> &AtomicU64 {
        self.window.entry_word(index, STATE)
    }

    fn holds(&self, index: u16) -> impl Iterator<Item = &AtomicU64> {
        HOLDS.map(move |n| self.window.entry_word(index, n))
    }
}

/// The result of an attempt to take an entry.
enum Taken {
    /// It is ours, in this generation.
    Ours(u32),
    /// A member still sends to the former owner.
    Held,
    /// This member still has a loan from the former owner.
    Lent(Peer),
    /// It has another owner.
    Others,
}

/// A member's ownership of its entry. Dropping it leaves the window.
#[derive(Debug)]
pub struct Membership {
    members: Arc<Members>,
    peer: Peer,
    /// The file description that has the entry's lock.
    lock: OwnedFd,
    pid: u32,
    /// The new owners of entries make the fence between a hold and the load of the state.
    unfenced: bool,
    /// A thread uses the entry's exposed buffer.
    exposes: AtomicBool,
}

impl Membership {
    /// Returns this member, with its generation.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the members of the window.
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Holds `peer`, so that its receive buffer remains its own. `None` if it has gone. A sender
    /// holds the peer only while it sends. While it waits for room, it asks [`Members::life`] from
    /// time to time, and drops the hold when the peer has gone.
    pub fn hold(&self, peer: Peer) -> Option<Hold<'_>> {
        if peer.index >= self.members.window.plan().members {
            return None;
        }
        let state = self.members.state(peer.index);
        let mut backoff = Backoff::default();
        loop {
            for word in self.members.holds(self.peer.index).skip(1) {
                // Sequentially consistent accesses need no fence; only models do.
                match hold::hold(word, state, peer, || ()) {
                    Ok(true) => return Some(Hold { word }),
                    Ok(false) => return None,
                    Err(hold::WordInUse) => {}
                }
            }
            backoff.pause(); // more threads send than there are words
        }
    }

    /// Returns this member's exposed buffer. `None` if another thread uses it, and in a forked
    /// child.
    pub(crate) fn expose(&self) -> Option<Exposing<'_>> {
        let is_free = self.pid == std::process::id() && !self.exposes.swap(true, Acquire);
        is_free.then_some(Exposing(self))
    }

    /// Holds `peer` as [`Membership::hold`] does, at less cost. Only one such hold may exist at a
    /// time, in all threads: a port's.
    #[inline]
    pub fn hold_alone(&self, peer: Peer) -> Option<Hold<'_>> {
        let state = self.members.state(peer.index);
        let word = self.members.window.entry_word(self.peer.index, HOLDS.start);
        let held = hold::hold_alone(word, state, peer, || {
            if self.unfenced { compiler_fence(SeqCst) } else { fence(SeqCst) }
        });
        held.then(|| Hold { word })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A forked child that drops its copy does not end the parent's membership.
        let state = self.members.state(self.peer.index);
        if self.pid != std::process::id() || !hold::has_entry(state, self.peer) {
            return;
        }
        // If a member still has a loan, the entry's next owner clears them.
        if self.members.borrower(self.peer.index).is_none() {
            self.members.window.clear_loans(self.peer.index);
        }
        let left = State::parse(state.load(Acquire)).next(self.members.host, Phase::Free);
        state.store(left.word(), Release);
        // Explicitly, because a forked child may share the description.
        ofd::unlock(self.lock.as_fd(), ofd::MEMBERS + i64::from(self.peer.index), 1);
    }
}

/// The exposed buffer of this member, which one thread uses at a time.
#[derive(Debug)]
pub(crate) struct Exposing<'a>(&'a Membership);

impl Deref for Exposing<'_> {
    type Target = Exposed;
    fn deref(&self) -> &Exposed {
        self.0.members.exposed(self.0.peer.index)
    }
}

impl Drop for Exposing<'_> {
    fn drop(&mut self) {
        self.0.exposes.store(false, Release);
    }
}

/// A hold of a peer. While it exists, the peer's receive buffer remains the peer's.
#[derive(Debug)]
pub struct Hold<'a> {
    word: &'a AtomicU64,
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        hold::release(self.word);
    }
}

/// Returns 24 random bits of this host's boot ID.
fn host() -> u32 {
    // The last digits of a UUID of version 4 are random.
    proc::host::boot_id().unwrap_or_default() as u32 & 0x00ff_ffff
}
