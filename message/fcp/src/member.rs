//! The members of a window: a table entry each, and who of them lives.
//!
//! A member lives as long as it has the lock of its entry (`ofd`): the kernel drops it at
//! the member's death. Entries of the dead are taken over: the new owner changes the
//! generation, waits until nobody sends to the old one any more (`hold`), clears the
//! receive buffer, and is there. On a device that several machines share, a kernel knows
//! of its own processes only: entries of other machines are left alone.
//!
//! The lock belongs to an open file description. A child that is forked shares it: until
//! the child ends or executes a program, the parent's end is known by its PID alone, and
//! its entry not taken over.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence, fence};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::barrier;
use crate::error::WindowError;
use crate::hold::{self, Peer, Phase, State};
use crate::ofd;
use crate::slot;
use crate::window::{ENTRY_SIZE, MEMBERS_MAX, Window};

/// Words of an entry. State and what is told of the member; then, in a line of their own,
/// its holds: the first for a port, the others for threads: so many of them can send at
/// once, others wait their turn.
const STATE: usize = 0;
const ID_AND_GROUP: usize = 1;
const PID: usize = 2;
const PID_NAMESPACE: usize = 3;
const BUFFER: usize = 4;
const OFFER: usize = 5;
const HOLDS: std::ops::Range<usize> = 8..ENTRY_SIZE / size_of::<u64>();

/// With the PID: the member holds without a fence.
const UNFENCED: u64 = 1 << 32;

/// Bits of a ticket that tell the entry.
const INDEX_BITS: u32 = MEMBERS_MAX.trailing_zeros();

/// How long `join` waits for those who still send to an entry's former owner: they look
/// for its end every 20 ms.
const JOIN_PATIENCE: Duration = Duration::from_secs(1);

/// What a member tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Card {
    /// The program's own number for it: a PVM tid, a rank.
    pub id: u32,
    /// Which of several programs in one window it belongs to.
    pub group: u32,
}

/// A member, as its entry tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Which stay.
    pub peer: Peer,
    /// What it told of itself.
    pub card: Card,
    /// Its PID, in its own namespace.
    pub pid: u32,
    /// Offset of its receive buffer in the window, 0 for none.
    pub buffer: u64,
}

/// Whether a member lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Lives,
    /// It has ended, or left.
    Gone,
    /// It is another machine's, which alone can tell.
    Elsewhere,
}

/// The members of a window.
#[derive(Debug)]
pub struct Members {
    window: Arc<Window>,
    /// A description that never holds a lock, to ask by.
    ask: OwnedFd,
    host: u32,
    pid_namespace: u64,
}

impl Members {
    /// The members of `window`.
    pub fn of(window: Arc<Window>) -> Result<Self, WindowError> {
        let ask = window.memory().reopen()?;
        let pid_namespace = proc::host::pid_namespace();
        Ok(Self { window, ask, host: host(), pid_namespace })
    }

    /// The window.
    pub fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// This machine's number, as entries tell it.
    pub(crate) fn host(&self) -> u32 {
        self.host
    }

    /// The member with entry `index`, if there is one.
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
            // A new owner changes the state before the rest.
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

    /// All members, those that died and were not yet replaced among them.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.window.plan().members).filter_map(|index| self.entry(index))
    }

    /// The member that told this of itself.
    pub fn find(&self, card: Card) -> Option<Peer> {
        let found = |entry: &Entry| entry.card == card && self.life(entry.peer) != Life::Gone;
        self.entries().find(found).map(|entry| entry.peer)
    }

    /// Whether this one has not left its entry, and nobody has taken it since: one load. Who
    /// was killed has, see [`Members::life`].
    #[inline]
    pub fn has_entry(&self, peer: Peer) -> bool {
        peer.index < self.window.plan().members && hold::has_entry(self.state(peer.index), peer)
    }

    /// Whether this one lives.
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
        // The answer is about the owner that had the entry before and after.
        if hold::has_entry(state, peer) { life } else { Life::Gone }
    }

    /// The number by which `peer` claims lines in rings ([`Sender::new`]): its entry, and
    /// 20 bits of its generation, so that a receiver does not wait for a dead sender because
    /// its successor lives.
    ///
    /// [`Sender::new`]: sync::ring::Sender::new
    pub fn ticket(&self, peer: Peer) -> u32 {
        peer.generation << INDEX_BITS | u32::from(peer.index)
    }

    /// Whether the sender with this [`ticket`](Self::ticket) has ended. Who lives elsewhere
    /// has not.
    pub fn is_dead(&self, ticket: u32) -> bool {
        let index = (ticket & ((1 << INDEX_BITS) - 1)) as u16;
        if index >= self.window.plan().members {
            return true;
        }
        let State { generation, .. } = State::parse(self.state(index).load(Acquire));
        let peer = Peer { index, generation };
        self.ticket(peer) != ticket || self.life(peer) == Life::Gone
    }

    /// Whether the owner of an entry, of this machine, lives.
    fn life_here(&self, index: u16) -> Life {
        let at = ofd::MEMBERS + i64::from(index);
        // If the system does not tell, nobody is robbed of an entry.
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

    /// Becomes a member: in entry `index`, or in any. The receive buffer is new.
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
        let until = Instant::now() + JOIN_PATIENCE;
        loop {
            let mut held = false;
            for index in wanted.clone() {
                match self.take(&lock, index, card, unfenced)? {
                    Taken::Ours(generation) => {
                        let peer = Peer { index, generation };
                        let pid = std::process::id();
                        return Ok(Membership { members: self.clone(), peer, lock, pid, unfenced });
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

    fn take(
        &self,
        lock: &OwnedFd,
        index: u16,
        card: Card,
        unfenced: bool,
    ) -> Result<Taken, WindowError> {
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
        // With its lock, what was here is dead, unless a kernel elsewhere has the lock.
        let can = was.phase == Phase::Free || was.host == self.host;
        // Nobody holds, or has on loan, what never was anybody's.
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
        // What the dead held, nobody holds.
        self.holds(index).for_each(hold::release);
        if used && (!self.fence_holders(index) || self.is_held(index)) {
            state.store(taken.next(self.host, Phase::Free).word(), Release);
            ofd::unlock(lock.as_fd(), at, 1);
            return Ok(Taken::Held);
        }
        // SAFETY: nobody holds the entry, and who wants to finds a new generation; the
        // former owner is dead or gone, and we alone have the lock.
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
        // Who takes an entry and did not see us is seen by our holds.
        fence(SeqCst);
        Ok(Taken::Ours(taken.generation))
    }

    /// Gives the system the memory back that members in these entries could lend and do not need
    /// any more, because they have ended, and nobody alive has a loan from them. Entries stay in
    /// the list whose members live, or are still ending, or whose loans are out.
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
            // With its lock, nobody can take the entry meanwhile.
            if ofd::try_lock(lock.as_fd(), at, 1) != Ok(true) {
                return true;
            }
            // One that was killed before it ever lent may have filled a block, too.
            let is_lent = self.borrower(index).is_some();
            if !is_lent {
                self.window.clear_loans(index);
            }
            ofd::unlock(lock.as_fd(), at, 1);
            is_lent
        });
        Ok(())
    }

    /// One who is alive and has a loan from entry `index`.
    fn borrower(&self, index: u16) -> Option<Peer> {
        let slots = 1..=self.window.slots_used(index);
        let slots = slots.filter_map(|number| self.window.slot(index, number));
        let mut borrowers = slots.filter_map(slot::borrower);
        borrowers.find(|peer| self.life(*peer) != Life::Gone)
    }

    /// Makes the fences that members do without between their holds and their looks, for the
    /// new owner of entry `index`. Whether it reached all: not those of another machine.
    fn fence_holders(&self, index: u16) -> bool {
        let here = barrier::everywhere();
        fence(SeqCst);
        (0..self.window.plan().members).all(|by| {
            let unfenced = self.window.entry_word(by, PID).load(SeqCst) & UNFENCED != 0;
            let host = State::parse(self.state(by).load(SeqCst)).host;
            by == index || !unfenced || here && host == self.host || self.is_gone(by)
        })
    }

    /// Whether a living member holds entry `index`.
    fn is_held(&self, index: u16) -> bool {
        (0..self.window.plan().members).any(|by| {
            // A dead one's hold is only a word. The owner of the entry has none yet.
            self.holds(by).any(|word| hold::holds(word, index)) && !self.is_gone(by)
        })
    }

    /// Whether entry `index` has no living owner, nor one that might live elsewhere.
    fn is_gone(&self, index: u16) -> bool {
        let state = State::parse(self.state(index).load(Acquire));
        match state.phase {
            Phase::Free => true,
            _ => state.host == self.host && self.life_here(index) == Life::Gone,
        }
    }

    /// The word by which entry `index` offers messages (`offer`).
    pub(crate) fn offer(&self, index: u16) -> &AtomicU64 {
        self.window.entry_word(index, OFFER)
    }

    /// The PID of the member in entry `index`, if it has one in our namespace.
    pub fn pid(&self, index: u16) -> Option<u32> {
        let entry = self.entry(index)?;
        self.shares_pids_with(index).then_some(entry.pid)
    }

    /// Whether the PID in entry `index` is one of our namespace's.
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

/// What became of an attempt to take an entry.
enum Taken {
    /// It is ours, in this generation.
    Ours(u32),
    /// Somebody still sends to its former owner.
    Held,
    /// He still reads what its former owner has lent.
    Lent(Peer),
    /// It is somebody else's.
    Others,
}

/// A place in the window. Dropping it leaves.
#[derive(Debug)]
pub struct Membership {
    members: Arc<Members>,
    peer: Peer,
    /// The description that has the entry's lock.
    lock: OwnedFd,
    pid: u32,
    /// Others make the fence between a hold and the look at its entry.
    unfenced: bool,
}

impl Membership {
    /// Which stay this is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The members of the window.
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// Holds `peer`, so that its receive buffer stays its own, or nothing if it has gone.
    /// For as long as it takes to send; who waits for room asks [`Members::life`] now and
    /// then, and lets go when the peer has gone.
    pub fn hold(&self, peer: Peer) -> Option<Hold<'_>> {
        if peer.index >= self.members.window.plan().members {
            return None;
        }
        let state = self.members.state(peer.index);
        loop {
            for word in self.members.holds(self.peer.index).skip(1) {
                // On real memory sequentially consistent accesses need no fence.
                match hold::hold(word, state, peer, || ()) {
                    Ok(true) => return Some(Hold { word }),
                    Ok(false) => return None,
                    Err(hold::WordInUse) => {}
                }
            }
            std::thread::yield_now(); // more threads send than there are words
        }
    }

    /// As [`Membership::hold`], and cheaper; one at a time, in all threads.
    #[inline]
    pub(crate) fn hold_alone(&self, peer: Peer) -> Option<Hold<'_>> {
        let state = self.members.state(peer.index);
        let word = self.members.window.entry_word(self.peer.index, HOLDS.start);
        let held = hold::hold_alone(word, state, peer, || {
            if self.unfenced { compiler_fence(SeqCst) } else { fence(SeqCst) }
        });
        held.then_some(Hold { word })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A forked child that drops its copy does not leave for its parent.
        let state = self.members.state(self.peer.index);
        if self.pid != std::process::id() || !hold::has_entry(state, self.peer) {
            return;
        }
        // What nobody has on loan nobody needs; otherwise the entry's next owner sees to it.
        if self.members.borrower(self.peer.index).is_none() {
            self.members.window.clear_loans(self.peer.index);
        }
        let left = State::parse(state.load(Acquire)).next(self.members.host, Phase::Free);
        state.store(left.word(), Release);
        // Now, even if a forked child has the description, too.
        ofd::unlock(self.lock.as_fd(), ofd::MEMBERS + i64::from(self.peer.index), 1);
    }
}

/// While it is there, the peer's receive buffer stays the peer's.
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
