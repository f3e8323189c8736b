//! A space over several machines, from the point of view of its tasks and its agent. The agent is
//! a thread of the owner that fetches pages of other machines. Tasks send it requests that concern
//! those machines.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nagaya_gate::abi::{Ask, PUBLISHED_BLOCK, ask, slot_state};
use rustix::thread::futex;

use crate::area::{Control, FAR_PID};
use crate::this::ThisTask;

/// Sleep of a waiter before it polls again, and the number of tries for its turn.
const NAP: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const TRIES_MAX: u32 = 100;

/// While it exists, a task maps and unmaps nothing.
#[derive(Debug)]
pub struct Still<'a>(Option<&'a AtomicU32>);

impl Drop for Still<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            lock.store(0, Ordering::Release);
            let _ = futex::wake(lock, futex::Flags::PRIVATE, 1);
        }
    }
}

impl ThisTask {
    /// Returns true if this space extends over several machines.
    pub fn is_over_machines(&self) -> bool {
        self.control.space().agent_tid.load(Ordering::Acquire) != 0
    }

    /// Wakes the sleepers on a futex in the segment of a task of another machine: only the kernel
    /// of that machine knows them.
    pub fn wake_elsewhere(&self, word: &AtomicU32) {
        let at = std::ptr::from_ref(word).addr() as u64;
        let id = self.control.layout().id_of(at);
        if id.is_none_or(|id| self.control.domain_of(id) == self.control.domain_of(self.id)) {
            return;
        }
        let it = self.control.ask(self.id);
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        // As in the gate, but a signal handler does not wait for a thread that it interrupts.
        let mut tries = 0;
        while let Err(holder) = it.lock.compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed)
        {
            if holder == me || tries > TRIES_MAX {
                return;
            }
            tries += 1;
            let _ = futex::wait(&it.lock, futex::Flags::PRIVATE, holder, Some(&NAP));
        }
        it.what.store(ask::WAKE, Ordering::Relaxed);
        it.address.store(at, Ordering::Relaxed);
        it.size.store(size_of::<AtomicU32>() as u64, Ordering::Relaxed);
        it.state.store(1, Ordering::SeqCst);
        let (owner, agent) = (self.control.owner_pid(), &self.control.space().agent_tid);
        // SAFETY: a signal that its receiver reads from a descriptor.
        unsafe {
            libc::syscall(libc::SYS_tgkill, owner, agent.load(Ordering::Acquire), libc::SIGURG);
        }
        while it.state.load(Ordering::Acquire) == 1 {
            let _ = futex::wait(&it.state, futex::Flags::PRIVATE, 1, Some(&NAP));
        }
        it.lock.store(0, Ordering::Release);
        let _ = futex::wake(&it.lock, futex::Flags::PRIVATE, 1);
    }
}

impl Control {
    /// The number by which all machines know the domain of an ID.
    pub fn common_domain_of(&self, id: u32) -> u32 {
        let me = self.space().machine.load(Ordering::Acquire);
        match self.domain_of(id) {
            0 => me,
            number if number == me => 0,
            number => number,
        }
    }

    /// The pending requests of this machine's tasks to the agent, by ID.
    pub fn asks(&self) -> impl Iterator<Item = (u32, &Ask)> {
        let asks = (0..self.tasks_high()).map(|id| (id, self.ask(id)));
        asks.filter(|(_, ask)| ask.state.load(Ordering::Acquire) != 0)
    }

    /// The request of a task.
    pub fn ask(&self, id: u32) -> &Ask {
        assert!(id < self.tasks_max());
        // SAFETY: the table has `tasks_max` entries, all atomics.
        unsafe { &*self.space().asks.add(id as usize) }
    }

    /// Answers the request of a task.
    pub fn answer(&self, id: u32) {
        let state = &self.ask(id).state;
        state.store(0, Ordering::Release);
        let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
    }

    /// Sets the file or device in which published blocks lie from now on. Then tasks map and unmap
    /// nothing while they are kept [still](Self::keep_still).
    pub fn set_pool(&self, device: u64, inode: u64) {
        let pool = &self.space().pool;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        pool.device.store(u64::from(major) << 32 | u64::from(minor), Ordering::Release);
        pool.inode.store(inode, Ordering::Release);
    }

    /// Keeps a task from mapping and unmapping anything, in the name of the thread `me`. Returns
    /// `None` if the task is just doing that.
    pub fn keep_still(&self, id: u32, me: u32) -> Option<Still<'_>> {
        let it = self.ask(id);
        // A task with such a request has the lock, and waits.
        let waits = it.state.load(Ordering::Acquire) != 0;
        if waits && it.what.load(Ordering::Relaxed) != ask::WAKE {
            return Some(Still(None));
        }
        let take = |from| {
            it.mappings.compare_exchange(from, me, Ordering::Acquire, Ordering::Relaxed).err()
        };
        // SAFETY: only asks whether there is such a thread.
        let is_gone = |tid: u32| unsafe {
            libc::syscall(libc::SYS_tkill, tid, 0) != 0
                && rustix::io::Errno::from_io_error(&std::io::Error::last_os_error())
                    == Some(rustix::io::Errno::SRCH)
        };
        match take(0) {
            None => Some(Still(Some(&it.mappings))),
            // The holder has died.
            Some(holder) if is_gone(holder) && take(holder).is_none() => {
                Some(Still(Some(&it.mappings)))
            }
            Some(_) => None,
        }
    }

    /// Sets whether other machines may have pages of a block of [`PUBLISHED_BLOCK`] bytes, counted
    /// from segment 0. Returns whether that has changed.
    pub fn publish(&self, block: u64, published: bool) -> bool {
        assert!(block * PUBLISHED_BLOCK < self.layout().end() - self.layout().base());
        // SAFETY: the bitmap has a bit for each block of the segments.
        let word = unsafe { &*self.space().published.add((block / 64) as usize) };
        let bit = 1 << (block % 64);
        let before = match published {
            true => AtomicU64::fetch_or(word, bit, Ordering::SeqCst),
            false => AtomicU64::fetch_and(word, !bit, Ordering::SeqCst),
        };
        (before & bit != 0) != published
    }

    /// Records that a task of another machine lives, with this generation, or has ended.
    pub fn mirror(&self, id: u32, generation: u64, lives: bool) {
        let slot = self.slot(id);
        self.space().tasks_high.fetch_max(id + 1, Ordering::AcqRel);
        if lives {
            // As at a local start, the slot is taken before its generation counts the task. Else
            // `export::import` would take the task for one that has ended.
            let _ = slot.state.compare_exchange(
                slot_state::FREE,
                slot_state::STARTING,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            slot.generation.store(generation, Ordering::Release);
            slot.export_mapped.store(1, Ordering::Release);
            slot.pid.store(FAR_PID, Ordering::SeqCst);
            slot.state.store(slot_state::RUNNING, Ordering::Release);
        } else {
            slot.pid.store(0, Ordering::SeqCst);
            slot.state.store(slot_state::FREE, Ordering::Release);
        }
        self.announce();
    }
}
