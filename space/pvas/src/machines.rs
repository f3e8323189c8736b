//! A space over several machines, as its owner on one of them sees it: the IDs of the others are
//! domains whose tasks have their pages elsewhere, and an *agent* brings and takes those, page by
//! page, of their memory and of ours. Here is what the agent must be told, and when; how pages
//! travel it knows itself (`memory/machines`).

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nagaya_gate::abi::{Ask, PUBLISHED_BLOCK, ask, slot_state};
use rustix::thread::futex;

use crate::control::Control;
use crate::domain::Domains;
use crate::error::Error;
use crate::space::Space;
use crate::this::ThisTask;

/// What stands in a slot for the PID of a task of another machine: no process has it.
pub const FAR_PID: u32 = i32::MAX as u32;

/// Who brings pages, as it is told what becomes of tasks of this machine. Each call returns when
/// the other machines have done what it takes.
pub trait Agent: Send + Sync {
    /// Nobody on other machines finds the task any more.
    fn ended(&self, id: u32);
    /// Its memory reads as zeros, and no other machine has anything of it. Nothing is mapped in
    /// its segment but the export area.
    fn cleared(&self, id: u32);
    /// Memory has been mapped in a segment whose task is about to begin.
    fn loaded(&self, id: u32);
}

/// How long who waits sleeps before it looks again, and how often for its turn.
const NAP: futex::Timespec = futex::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
const TRIES_MAX: u32 = 100;

static AGENT: OnceLock<Arc<dyn Agent>> = OnceLock::new();

/// The agent of the space, if it has one.
pub(crate) fn agent(control: &Control) -> Option<&'static dyn Agent> {
    match control.space().agent_tid.load(Ordering::Acquire) {
        0 => None,
        _ => AGENT.get().map(|agent| &**agent),
    }
}

/// What an agent works on.
#[derive(Debug)]
pub struct Shared {
    /// The memory of all segments: its offset is the address less the space's base.
    pub file: OwnedFd,
    /// Where segments of other machines are mapped.
    pub views: Vec<Range<usize>>,
}

/// A task maps and unmaps nothing as long as there is this.
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

impl Space {
    /// Makes this the machine `me` of a space whose IDs are divided so among machines. Nobody has
    /// had any of them yet, and no domain was made. Until there is an [agent](Self::set_agent)
    /// nobody may use memory of the others.
    pub fn divide(&self, me: u32, ids: &[Range<u32>]) -> Result<Shared, Error> {
        self.check_owner()?;
        let (control, layout) = (self.control(), self.layout());
        if ids.iter().any(|ids| ids.is_empty() || ids.end > layout.tasks_max()) {
            return Err(Error::Invalid("IDs of machines"));
        }
        for (number, ids) in (0..).zip(ids).filter(|(number, _)| *number != me) {
            // Ours is 0 here, as in any space.
            let number = if number == 0 { me } else { number };
            control.give_to_domain(ids.clone(), number).map_err(Error::IdTaken)?;
        }
        control.space().machine.store(me, Ordering::Release);
        let others = (0..).zip(ids).filter(|(number, _)| *number != me).map(|(_, ids)| ids);
        self.with_domains(|domains| domains.map_far(&layout, others.cloned()))
    }

    /// From now on the thread `tid` of this process, which has SIGURG blocked and reads it from a
    /// signalfd, is asked by tasks ([`Control::asks`]), and `agent` is told of their ends. Once a
    /// process.
    pub fn set_agent(&self, tid: u32, agent: Arc<dyn Agent>) -> Result<(), Error> {
        AGENT.set(agent).map_err(|_| Error::Invalid("agent (there is one)"))?;
        self.control().space().agent_tid.store(tid, Ordering::Release);
        Ok(())
    }
}

impl Domains {
    fn map_far(
        &mut self,
        layout: &nagaya_layout::SpaceLayout,
        ids: impl Iterator<Item = Range<u32>>,
    ) -> Result<Shared, Error> {
        let memory = self.memory();
        let mut views = Vec::new();
        for ids in ids {
            views.push(crate::domain::map_view(layout, memory, ids)?);
        }
        let file = rustix::io::fcntl_dupfd_cloexec(memory.file(), 0);
        let file = file.map_err(|errno| Error::System("dup", errno))?;
        Ok(Shared { file, views })
    }
}

impl ThisTask {
    /// Whether this space is one over several machines.
    pub fn is_over_machines(&self) -> bool {
        self.control.space().agent_tid.load(Ordering::Acquire) != 0
    }

    /// Wakes who sleeps at a futex, if that is in the segment of a task of another machine, whose
    /// kernel knows its sleepers.
    pub fn wake_elsewhere(&self, word: &AtomicU32) {
        let at = std::ptr::from_ref(word).addr() as u64;
        let id = self.control.layout().id_of(at);
        if id.is_none_or(|id| self.control.domain_of(id) == self.control.domain_of(self.id)) {
            return;
        }
        let it = self.control.ask(self.id);
        let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        // As the gate's, but for signals: a handler that wakes somebody waits for no thread of
        // its own, it goes without.
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

    /// What tasks of this machine ask the agent now, by ID.
    pub fn asks(&self) -> impl Iterator<Item = (u32, &Ask)> {
        let asks = (0..self.tasks_high()).map(|id| (id, self.ask(id)));
        asks.filter(|(_, ask)| ask.state.load(Ordering::Acquire) != 0)
    }

    /// Where a task asks.
    pub fn ask(&self, id: u32) -> &Ask {
        assert!(id < self.tasks_max());
        // SAFETY: the table has `tasks_max` entries, all atomics.
        unsafe { &*self.space().asks.add(id as usize) }
    }

    /// What was asked is done.
    pub fn answer(&self, id: u32) {
        let state = &self.ask(id).state;
        state.store(0, Ordering::Release);
        let _ = futex::wake(state, futex::Flags::PRIVATE, 1);
    }

    /// Tells the gate of the file or device in which published blocks lie from now on; so tasks map
    /// and unmap nothing while they are kept [still](Self::keep_still).
    pub fn set_pool(&self, device: u64, inode: u64) {
        let pool = &self.space().pool;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        pool.device.store(u64::from(major) << 32 | u64::from(minor), Ordering::Release);
        pool.inode.store(inode, Ordering::Release);
    }

    /// Keeps a task from mapping and unmapping anything. `me` is the thread that does. None: the
    /// task is just doing that.
    pub fn keep_still(&self, id: u32, me: u32) -> Option<Still<'_>> {
        let it = self.ask(id);
        // Who asks such a thing has the lock, and waits.
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
            // It has died with it.
            Some(holder) if is_gone(holder) && take(holder).is_none() => {
                Some(Still(Some(&it.mappings)))
            }
            Some(_) => None,
        }
    }

    /// Says whether other machines may have pages of a block of [`PUBLISHED_BLOCK`] bytes, counted
    /// from segment 0; whether that is news.
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

    /// A task of another machine lives, the so-manieth with its ID; or has ended.
    pub fn mirror(&self, id: u32, generation: u64, lives: bool) {
        let slot = self.slot(id);
        self.space().tasks_high.fetch_max(id + 1, Ordering::AcqRel);
        if lives {
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
