//! Threads that drive the engine of their node.
//!
//! A thread that made a request used to wake the agent, and the agent woke it for the answer. Each
//! of these switches takes about as long as a message between two processors. So on nodes other
//! than the origin a thread drives the engine itself until it has its answer, one thread at a time
//! ([`EngineLock`]). The agent's thread sleeps meanwhile, and serves when no thread drives.
//!
//! The agent has no private descriptors there: it has created the threads, and all system calls of
//! the program on descriptors are made at the origin. At the origin the agent alone drives.
//!
//! The engine uses libc, allocates memory and has thread-local variables. A thread that drives it
//! does so as the agent's thread would: with its thread area, which only the holder of the lock
//! uses, and on a stack that belongs to the lock. All signals are blocked, and the kernel catches
//! none of its system calls.
//!
//! A thread handles messages about pages and answers. It leaves all others, such as new threads, to
//! the agent's thread, with all that follow them.

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use net::mesh::{Mesh, Received};
use node::driver::{Driver as _, Server as _};
use rustix::time::{ClockId, clock_gettime};
use sync::clock;
use sync::wait::WaitPolicy;

use super::state::Agent;
use crate::engine_lock::EngineLock;
use crate::frame::{Frame, Message};
use crate::signal::block;
use crate::slot::{Awaited, Slot};
use crate::{kernel_threads, raw};

/// Turns that a thread with its answer spends on events of others, before it leaves them to the
/// agent's thread.
const TURNS: usize = 8;
/// Threads that a thread which drove wakes after that, at most.
const WAKES_MAX: usize = 16;
/// Bytes of the lock's stack.
const STACK_BYTES: usize = 1 << 20;
/// Descriptors of a sleep: wakers, memory, network.
const DESCRIPTORS_MAX: usize = 6;

/// The engine of a node whose threads drive it.
struct Shared {
    lock: EngineLock,
    agent: UnsafeCell<Agent>,
    /// The thread area of the agent's thread.
    area: u64,
    stack_end: usize,
}

// SAFETY: `agent` is used by the holder of `lock` only; so are the thread area and the stack.
unsafe impl Sync for Shared {}
// SAFETY: what the agent has of one thread, such as thread-local variables, follows the lock.
unsafe impl Send for Shared {}

static SHARED: OnceLock<Shared> = OnceLock::new();

/// What the agent's thread waits for.
struct Sleep {
    descriptors: [libc::pollfd; DESCRIPTORS_MAX],
    count: usize,
    wakers: usize,
    left: Option<libc::timespec>,
}

/// The end of such a sleep: a bit for each readable waker, and whether it ended by its time limit.
struct Slept {
    ready: u32,
    is_out: bool,
}

/// By the agent's thread: serves until the program ends, which ends the process.
pub(super) fn serve(agent: Agent) -> ! {
    let table = agent.table;
    kernel_threads::find_instructions();
    let area = kernel_threads::thread_area();
    let stack_end = stack();
    let agent = UnsafeCell::new(agent);
    let shared =
        SHARED.get_or_init(|| Shared { lock: EngineLock::default(), agent, area, stack_end });
    table.set_driver(drive);
    let mut wait_policy = WaitPolicy::for_nodes();
    let mut slept = None;
    loop {
        shared.lock.lock();
        // SAFETY: this thread holds the lock.
        let sleep = unsafe { (*shared.agent.get()).serve_until_idle(&mut wait_policy, slept) };
        // From here on a thread may use this thread's area, so this thread must not.
        shared.lock.unlock();
        slept = Some(sleep.sleep());
    }
}

/// Returns the end of a new stack, with a guard page below it. Without memory for it, the agent
/// cannot serve.
fn stack() -> usize {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the call maps only unused memory; the guard page is part of it.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), STACK_BYTES, protection, flags, -1, 0);
        assert!(start != libc::MAP_FAILED, "no memory for a stack");
        libc::mprotect(start, 4096, libc::PROT_NONE);
        start as usize + STACK_BYTES
    }
}

/// A thread that drives, and words at which it is to wake others after that: one that is woken may
/// preempt it, and would then wait for the lock.
struct Drive<'a> {
    slot: &'a Slot,
    awaited: Awaited,
    wakes: [Option<&'static AtomicU32>; WAKES_MAX],
}

/// By a thread that waits: drives the engine until the thread has what it waits for, or has to
/// sleep. Returns false if another thread drives.
fn drive(slot: &Slot, awaited: Awaited) -> bool {
    let Some(shared) = SHARED.get().filter(|shared| shared.lock.try_lock()) else { return false };
    let mut drive = Drive { slot, awaited, wakes: [None; WAKES_MAX] };
    let mask = block(!0);
    slot.selector.store(0, Relaxed);
    // SAFETY: this thread holds the lock, which gives it the stack and the agent's thread area. It
    // runs no code of the program, and takes no signal, before it has its own area again.
    unsafe {
        let area = kernel_threads::swap_thread_area(shared.area);
        raw::call_on_stack(shared.stack_end, drive_engine, &raw mut drive as usize);
        kernel_threads::swap_thread_area(area);
    }
    slot.selector.store(1, Relaxed);
    shared.lock.unlock();
    drive.wakes.into_iter().flatten().for_each(raw::wake);
    block(mask);
    true
}

/// By a thread that holds the lock, with its stack and thread area.
extern "C" fn drive_engine(drive: usize) {
    let shared = SHARED.get().expect("it is locked");
    // SAFETY: the pointer is that of the caller's `Drive`, which lives until this function returns;
    // this thread holds the lock.
    unsafe { (*shared.agent.get()).drive(&mut *(drive as *mut Drive<'_>)) }
}

impl Agent {
    /// Returns true if threads may drive the engine: not at the origin; and not over a network,
    /// whose descriptor would wake the agent's thread, too.
    pub(super) fn may_be_driven(&self) -> bool {
        self.origin.is_none() && self.engine.mesh.as_ref().is_some_and(Mesh::keeps_messages)
    }

    /// Returns true if the thread that drives may handle this message.
    pub(super) fn suits_threads(message: &Received) -> bool {
        matches!(
            Frame::parse(&message.header),
            Some(
                Frame::Page(_)
                    | Frame::Batch
                    | Frame::Word(
                        Message::Alive
                            | Message::Result { .. }
                            | Message::Answer { .. }
                            | Message::Woken { .. }
                    )
            )
        )
    }

    /// Keeps a message for the agent's thread if a thread drives and may not handle it, or if it
    /// follows such a message. Returns it otherwise.
    pub(super) fn defer(&mut self, message: Received) -> Option<Received> {
        let is_deferred = self.driving.now.is_some()
            && (!self.driving.deferred.is_empty() || !Self::suits_threads(&message));
        if !is_deferred {
            return Some(message);
        }
        self.driving.deferred.push_back(message);
        None
    }

    /// By the agent's thread, after a sleep: serves until nothing is left to do.
    fn serve_until_idle(&mut self, wait_policy: &mut WaitPolicy, slept: Option<Slept>) -> Sleep {
        if let Some(Slept { ready, is_out }) = slept {
            self.engine.set_slept_out(is_out);
            self.wake_up(ready);
        }
        while let Some(message) = self.driving.deferred.pop_front() {
            self.handle(message);
        }
        self.work(wait_policy);
        let until = self.sleep_deadline();
        self.driving.until = until;
        Sleep::new(self, until)
    }

    /// By a thread that waits: drives until it has what it waits for, or should sleep. Leaves later
    /// events to the agent's thread.
    fn drive(&mut self, drive: &mut Drive<'_>) {
        let (slot, awaited) = (drive.slot, drive.awaited);
        let begin = processor_time();
        self.wake_up(0);
        let mut wait_policy = self.driving.wait_policy.take().unwrap_or_else(WaitPolicy::for_nodes);
        self.driving.now = Some((slot.index, Some(awaited)));
        while !self.driving.is_over(self.table) && !self.would_be_preempted() {
            if self.turn() {
                wait_policy.found();
            } else if !wait_policy.looks_again(self.may_poll()) {
                break;
            }
        }
        self.driving.wait_policy = Some(wait_policy);
        let has_got = slot.has_got(awaited);
        if has_got {
            slot.drives.fetch_add(1, Relaxed);
        }
        self.driving.now = Some((slot.index, None));
        let has_left = self.leave_to_agent();
        self.driving.now = None;
        let mut later = self.driving.wakes.drain(..);
        drive.wakes.iter_mut().zip(&mut later).for_each(|(to, word)| *to = Some(word));
        later.for_each(raw::wake);
        let spent = processor_time() - begin;
        self.driving.spent_ns += spent;
        slot.driven_ns.fetch_add(spent, Relaxed);
        let next = self.sleep_deadline();
        let is_earlier = |next: Instant| self.driving.until.is_none_or(|until| next < until);
        // If a processor is free, the agent polls for the others' answers.
        let others_wait = has_got && self.waits.count() > 0 || self.would_be_preempted();
        let agent_polls = others_wait && self.may_poll();
        if !has_left || agent_polls || next.is_some_and(is_earlier) {
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Returns true if a thread that gets its page would need this processor. The kernel wakes it
    /// while this thread holds the lock.
    fn would_be_preempted(&self) -> bool {
        self.waits.are_stopped() && self.processors <= self.threads
    }

    /// Wakes the thread of a slot at a word. A thread that drives does so later.
    pub(super) fn wake_at(&mut self, word: &'static AtomicU32, thread: u32) {
        match self.driving.now {
            // It does not sleep.
            Some((driver, _)) if driver == thread => {}
            Some(_) => self.driving.wakes.push(word),
            None => raw::wake(word),
        }
    }

    /// Returns true if all further events wake the agent's thread. If not, it must be woken.
    fn leave_to_agent(&mut self) -> bool {
        for _ in 0..TURNS {
            if !self.driving.deferred.is_empty() {
                return false;
            }
            if self.is_settled() && self.may_sleep() {
                return true;
            }
            self.turn();
        }
        false
    }
}

/// Returns the processor time of the calling thread, in ns.
fn processor_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Sleep {
    fn new(agent: &Agent, until: Option<Instant>) -> Self {
        use std::os::fd::AsRawFd as _;
        let wakers = agent.wakers();
        let mesh = agent.engine.mesh.as_ref().map(Mesh::descriptor);
        let own = [Some(node::memory::Memory::descriptor(&agent.engine.memory)), mesh];
        let all = wakers.iter().copied().chain(own.into_iter().flatten());
        let (mut descriptors, mut count) =
            ([libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; DESCRIPTORS_MAX], 0);
        for descriptor in all {
            descriptors[count].fd = descriptor.as_raw_fd();
            count += 1;
        }
        let left = until.map(|until| {
            let left = until.saturating_duration_since(clock::now());
            libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        Self { descriptors, count, wakers: wakers.len(), left }
    }

    /// Sleeps without libc.
    fn sleep(mut self) -> Slept {
        let left = self.left.as_ref().map_or(0, |left| std::ptr::from_ref(left) as u64);
        let at = self.descriptors.as_mut_ptr() as u64;
        // SAFETY: both live until the call returns; the kernel changes `revents` only.
        let result =
            unsafe { raw::call(libc::SYS_ppoll as u64, [at, self.count as u64, left, 0, 8, 0]) };
        let is_ready = |at: &usize| self.descriptors[*at].revents & libc::POLLIN != 0;
        let ready = (0..self.wakers).filter(is_ready).fold(0, |bits, at| bits | 1 << at);
        Slept { ready, is_out: result == 0 }
    }
}
