//! A channel: the means of a team's collective operations, in one of its PEs.
//!
//! The PEs of a node form a group (crate `outbox`). If a team has PEs on several nodes, the first
//! one of each node is a leader: leaders meet by words that they write into each other's slots.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

use outbox::group::Group;

use crate::atomic::{Op, change};
use crate::collectives::area::{self, SLOTS};
use crate::collectives::waiter::Waiter;
use crate::context;
use crate::fatal::fatal;
use crate::job::{self, Job, Peer};
use crate::remote::operation::Call;
use crate::rma;
use crate::team::Team;
use crate::wait;

/// The PEs of a team on other nodes.
pub struct Far {
    /// The leader of each node, by its number in the team. In ascending order.
    pub leaders: Box<[usize]>,
    /// The node of this PE in that order.
    pub node: usize,
    /// The slot of the team in each PE.
    slots: Box<[usize]>,
    /// Number of meetings of nodes so far.
    meetings: u64,
    /// Number of exchanges of words so far.
    exchanges: u64,
}

/// See the description of this file.
pub struct Channel {
    pub job: &'static Job,
    pub team: &'static Team,
    /// The PEs of this node.
    pub group: Group<Waiter>,
    /// The PEs of this node, in the order of the group.
    pub near: Box<[&'static Peer]>,
    /// If there are other nodes.
    pub far: Option<Far>,
}

/// A channel, and whether a thread uses it.
struct Entry {
    is_used: AtomicBool,
    channel: UnsafeCell<Channel>,
}

/// The channels by the team's slot in this PE.
static CHANNELS: [AtomicPtr<Entry>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];

/// A channel in use by this thread.
pub struct Use(&'static Entry);

impl Deref for Use {
    type Target = Channel;

    #[inline(always)]
    fn deref(&self) -> &Channel {
        // SAFETY: `of` has found the entry unused, and marked it as used.
        unsafe { &*self.0.channel.get() }
    }
}

impl DerefMut for Use {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Channel {
        // SAFETY: `of` has found the entry unused, and marked it as used.
        unsafe { &mut *self.0.channel.get() }
    }
}

impl Drop for Use {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.is_used.store(false, Release);
    }
}

/// Returns the channel of a team. By the standard, one thread at a time uses a team.
#[inline(always)]
pub fn of(f: &str, team: &'static Team) -> Use {
    let entry = CHANNELS[team.slot].load(Acquire);
    if entry.is_null() {
        // The predefined teams have the same slots everywhere.
        return open(f, team, &vec![team.slot; team.n as usize]);
    }
    // SAFETY: `close` removes an entry when nobody uses its team any more.
    enter(f, unsafe { &*entry })
}

#[inline(always)]
fn enter(f: &str, entry: &'static Entry) -> Use {
    // Not an exchange, which would take as long as a short operation: the check finds nearly all
    // wrong programs.
    if entry.is_used.load(Acquire) {
        fatal!(f, "two threads use one team at the same time")
    }
    entry.is_used.store(true, Relaxed);
    Use(entry)
}

/// Creates the channel of a team, given the slot in each of its PEs.
#[cold]
pub fn open(f: &str, team: &'static Team, slots: &[usize]) -> Use {
    let channel = UnsafeCell::new(Channel::new(f, job::get(f), team, slots));
    let new = Box::into_raw(Box::new(Entry { is_used: AtomicBool::new(false), channel }));
    match CHANNELS[team.slot].compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
        // SAFETY: a box that was leaked above.
        Ok(_) => enter(f, unsafe { &*new }),
        Err(other) => {
            // Another thread has used a predefined team for the first time.
            // SAFETY: nobody knows the new entry. The other one is used as in `of`.
            unsafe {
                drop(Box::from_raw(new));
                enter(f, &*other)
            }
        }
    }
}

/// Ends the channel of a team, after the PEs have met for the last time. Its slot is free when all
/// of them have done this.
pub fn close(channel: Use) {
    let slot = channel.team.slot;
    channel.group.leave();
    let others = channel.group.ranks as u32 - 1;
    drop(channel);
    let entry = CHANNELS[slot].swap(ptr::null_mut(), AcqRel);
    // SAFETY: a box of `open`. By the standard no other thread uses a team that ends.
    drop(unsafe { Box::from_raw(entry) });
    area::give(slot, others);
}

/// Returns true if there are more PEs on this node than processors.
fn is_crowded(job: &Job) -> bool {
    // SAFETY: sysconf(3) has no preconditions.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1);
    job.peers.iter().filter(|peer| !peer.is_far()).count() > processors as usize
}

impl Channel {
    fn new(f: &str, job: &'static Job, team: &'static Team, slots: &[usize]) -> Self {
        let pes: Vec<&'static Peer> =
            (0..team.n).map(|pe| &job.peers[team.world(pe).unwrap_or(0) as usize]).collect();
        let numbers: Vec<usize> = (0..pes.len()).filter(|&pe| !pes[pe].is_far()).collect();
        let near: Box<[_]> = numbers.iter().map(|&pe| pes[pe]).collect();
        let rank = numbers.iter().position(|&pe| pe == team.me as usize).unwrap_or(0);
        let outboxes = numbers.iter().map(|&pe| area::outbox(f, job, slots[pe], pes[pe])).collect();
        let waiter = Waiter { job, policy: job.wait_policy() };
        let group = Group::new(rank, outboxes, is_crowded(job), waiter);
        let far = (near.len() < pes.len()).then(|| {
            let mut found: Vec<usize> = Vec::new();
            let mut leaders = Vec::new();
            for (pe, peer) in pes.iter().enumerate() {
                let node = job.node(peer.pe);
                if !found.contains(&node) {
                    found.push(node);
                    leaders.push(pe);
                }
            }
            let node = leaders.iter().position(|&pe| pe == numbers[0]).unwrap_or(0);
            let slots = slots.into();
            Far { leaders: leaders.into(), node, slots, meetings: 0, exchanges: 0 }
        });
        Self { job, team, group, near, far }
    }

    /// Number of PEs of the team.
    pub fn n(&self) -> usize {
        self.team.n as usize
    }

    /// The number of this PE in the team.
    pub fn me(&self) -> usize {
        self.team.me as usize
    }

    /// Returns the number in the world of a PE of the team.
    pub fn world(&self, pe: usize) -> i32 {
        self.team.world(pe as i32).unwrap_or(0)
    }

    /// Returns the address of a symmetric object in a PE of this node, by its rank in the group.
    #[inline(always)]
    pub fn reach(&self, f: &str, rank: usize, object: *const u8, bytes: usize) -> *mut u8 {
        self.job.reach(f, object, bytes, self.near[rank])
    }

    /// Ends the job unless this is a symmetric object.
    #[inline(always)]
    pub fn check(&self, f: &str, object: *const u8, bytes: usize) {
        if bytes > 0 {
            self.reach(f, self.group.rank, object, bytes);
        }
    }

    /// Waits until all PEs of the team have called this.
    #[inline(always)]
    pub fn sync(&mut self, f: &str) {
        let step = self.group.step();
        self.group.publish_nothing(step);
        self.group.meet(step);
        if self.far.is_some() {
            self.sync_nodes(f);
        }
        self.group.finish();
    }

    /// Waits until the PEs of all nodes have called this.
    #[cold]
    fn sync_nodes(&mut self, f: &str) {
        let step = self.group.step();
        if self.group.rank != 0 {
            self.group.await_published(0, step);
            return;
        }
        self.meet_leaders(f);
        self.group.publish_nothing(step);
    }

    /// Waits until all leaders have called this, by a dissemination barrier as in `Job::meet`.
    fn meet_leaders(&mut self, f: &str) {
        let Some(far) = &mut self.far else { return };
        far.meetings += 1;
        let (count, n) = (far.meetings, far.leaders.len());
        let own = area::slot(self.job, self.team.slot);
        let (mut distance, mut round) = (1, 0);
        while distance < n {
            let to = far.leaders[(far.node + distance) % n];
            let word = &area::slot(self.job, far.slots[to]).rounds[round];
            let pe = self.team.world(to as i32).unwrap_or(0);
            let (context, peer) = (context::default(), self.job.peer(f, pe));
            Call { f, job: self.job, context, peer }
                .store(ptr::from_ref(word).cast_mut().cast(), count);
            let here = &own.rounds[round];
            wait::until(self.job, || (here.load(Acquire) >= count).then_some(()));
            (distance, round) = (distance * 2, round + 1);
        }
    }

    /// Returns the words that the PEs of the team pass, in their order.
    pub fn exchange_words(&mut self, f: &str, word: u64) -> Vec<u64> {
        let Some(far) = &mut self.far else {
            let step = self.group.step();
            // SAFETY: a variable of 8 bytes.
            unsafe { self.group.publish_data(step, ptr::from_ref(&word).cast(), 8) };
            self.group.meet(step);
            let read = |rank| self.group.published(rank, step).word();
            let words = (0..self.group.ranks).map(read).collect();
            self.group.finish();
            return words;
        };
        // A PE may write the words of the next exchange before this one has read its own.
        let parity = (far.exchanges % 2) as usize;
        far.exchanges += 1;
        for (to, &slot) in far.slots.iter().enumerate() {
            let object = area::slot_word(self.job, slot, self.team.me as usize, parity);
            let object = ptr::from_ref(object).cast_mut().cast();
            let pe = self.team.world(to as i32).unwrap_or(0);
            change::<u64>(f, context::default(), Op::Set, object, word, pe);
        }
        rma::quiet();
        self.sync(f);
        let read = |pe| area::slot_word(self.job, self.team.slot, pe, parity).load(Acquire);
        (0..self.n()).map(read).collect()
    }
}
