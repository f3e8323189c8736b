//! The request table: each task of a node has a slot for its request to the agent.
//!
//! A task posts a request and rings the doorbell. The agent takes the request, and answers later. A
//! task that waits spins for a moment, then sleeps in futex(2). The agent sleeps in epoll(7), where
//! the doorbell wakes it. A task that drives the agent itself need not ring.
//!
//! Tasks of one address space have their own copies of this code, and share only the table. So it
//! holds plain numbers, and addresses of the common space.

use std::cell::UnsafeCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::futex;
use sync::wait::WaitPolicy;

use crate::error::DsmError;
use crate::ledger::Allocation;

/// Maximum length of an error text in bytes.
const REASON_BYTES_MAX: usize = 240;

/// Time limit for other tasks to stop using the table after their last answers.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// A request. Sizes are in bytes, and tasks are ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, u32)]
pub enum Request {
    /// Start when all nodes are connected.
    Join,
    /// Allocate shared memory. Answer: its address.
    Allocate {
        /// The allocation.
        allocation: Allocation,
        /// The address of the program's call, or 0 if it is unknown or not needed.
        caller: usize,
    },
    /// Acquire this lock.
    Acquire(u32),
    /// Release this lock.
    Release(u32),
    /// Wait at the barrier.
    Barrier,
    /// Wait for all tasks, without the barrier's effect on memory.
    Meet,
    /// Set this condition variable.
    Set(u32),
    /// Reset this condition variable.
    Reset(u32),
    /// Wait until this condition variable is set.
    Wait(u32),
    /// Set an option on all nodes.
    Configure {
        /// The option.
        option: Setting,
        /// Its value.
        on: bool,
    },
    /// Send a message, which is copied.
    Send {
        /// The receiver.
        to: u32,
        /// The tag of the message.
        tag: i32,
        /// The address of the text, in the task's private memory.
        at: usize,
        /// The length of the text.
        bytes: usize,
    },
    /// Receive a message. Answer: its address, which is valid until the task's next request, and
    /// its length.
    Receive {
        /// The sender; negative: any.
        from: i64,
        /// The tag; [`ANY_TAG`]: any that is not negative.
        tag: i32,
    },
    /// Write counts to an address. Answer: 1 if there are any, 0 if not.
    Count {
        /// The object whose events were counted.
        what: Counted,
        /// The address.
        to: usize,
    },
    /// Reset all counts.
    ResetCounts,
    /// Write the report, if the settings enable it.
    Report,
    /// Leave, when all tasks do.
    Leave,
    /// Leave, at the end of a process that has not requested it before.
    Exit,
    /// End the job.
    Abort {
        /// Its exit status.
        status: u8,
        /// The address of the line that gives the cause.
        at: usize,
        /// The length of the line.
        bytes: usize,
    },
}

/// Any tag, in [`Request::Receive`].
pub const ANY_TAG: i32 = i32::MIN;

/// An option of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Setting {
    /// Homes migrate.
    Migrate,
    /// Pages without copies on other nodes are written without write notices.
    Alone,
}

/// An object whose events are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, u32)]
pub enum Counted {
    /// The node: a [`report::Totals`](crate::report::Totals).
    Node,
    /// The page at this address: a [`report::OfPage`](crate::report::OfPage).
    Page(usize),
    /// A lock: a [`report::OfLock`](crate::report::OfLock).
    Lock(u32),
    /// Rides, by the index of their carrier in
    /// [`Carrier::ALL`](coherence::ride::Carrier::ALL): [`report::RideCounts`](
    /// crate::report::RideCounts).
    Rides(u32),
}

/// States of a slot: no request; posted; taken by the agent; answered.
const FREE: u32 = 0;
const POSTED: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;

/// The slot of a task.
#[repr(C, align(128))]
pub struct Slot {
    state: AtomicU32,
    /// The task sleeps and needs a wake-up.
    sleeps: AtomicU32,
    /// Belongs to the task while the slot is free or answered, and to the agent while it is posted
    /// or taken.
    content: UnsafeCell<Content>,
}

#[repr(C)]
struct Content {
    request: Request,
    answer: [u64; 2],
    is_refused: bool,
    reason_bytes: usize,
    reason: [u8; REASON_BYTES_MAX],
}

// SAFETY: the state gives the content to one thread at a time: the task or the agent.
unsafe impl Sync for Slot {}

/// The request table of a node.
#[repr(C)]
pub struct RequestTable {
    /// The agent sleeps and needs a ring of the doorbell.
    sleeps: AtomicU32,
    /// Number of tasks that no longer use the table.
    gone: AtomicU32,
    slots: Vec<Slot>,
}

impl RequestTable {
    /// Creates a table for this number of tasks. It lives until the end of the process.
    pub fn new(tasks: usize) -> &'static Self {
        let slot = || Slot {
            state: AtomicU32::new(FREE),
            sleeps: AtomicU32::new(0),
            content: UnsafeCell::new(Content {
                request: Request::Join,
                answer: [0; 2],
                is_refused: false,
                reason_bytes: 0,
                reason: [0; REASON_BYTES_MAX],
            }),
        };
        let slots = (0..tasks).map(|_| slot()).collect();
        Box::leak(Box::new(Self { sleeps: AtomicU32::new(0), gone: AtomicU32::new(0), slots }))
    }

    /// Called by the agent: takes a posted request of any task.
    pub fn take(&self) -> Option<(u32, Request)> {
        let at = self.slots.iter().position(|slot| slot.state.load(Ordering::Acquire) == POSTED)?;
        let slot = &self.slots[at];
        slot.state.store(TAKEN, Ordering::Relaxed);
        // SAFETY: the slot was posted, so its content belongs to the agent.
        Some((at as u32, unsafe { (*slot.content.get()).request }))
    }

    /// Called by the agent: answers a request that it has taken. An error text may be cut.
    pub fn answer(&self, task: u32, answer: Result<[u64; 2], &str>) {
        let slot = &self.slots[task as usize];
        assert_eq!(slot.state.load(Ordering::Relaxed), TAKEN, "task {task} has no open request");
        // SAFETY: the slot is taken, so its content belongs to the agent.
        let content = unsafe { &mut *slot.content.get() };
        content.is_refused = answer.is_err();
        match answer {
            Ok(answer) => content.answer = answer,
            Err(reason) => {
                let bytes = reason.len().min(REASON_BYTES_MAX);
                content.reason_bytes = bytes;
                content.reason[..bytes].copy_from_slice(&reason.as_bytes()[..bytes]);
            }
        }
        slot.state.store(ANSWERED, Ordering::SeqCst);
        if slot.sleeps.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&slot.state, futex::Flags::PRIVATE, 1);
        }
    }

    /// Called by the agent before it sleeps. Returns false if a request was posted: it must not
    /// sleep then.
    pub fn may_sleep(&self) -> bool {
        self.sleeps.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let posted = |slot: &Slot| slot.state.load(Ordering::SeqCst) == POSTED;
        let may = !self.slots.iter().any(posted);
        if !may {
            self.awake();
        }
        may
    }

    /// Called by the agent after it has slept.
    pub fn awake(&self) {
        self.sleeps.store(0, Ordering::Relaxed);
    }

    /// Called by a task: its last use of the table.
    pub fn leave(&self) {
        self.gone.fetch_add(1, Ordering::Release);
    }

    /// Called by the task whose memory holds the table: waits until all tasks have left, up to a
    /// time limit, since one may have been killed.
    pub fn wait_for_others(&self) {
        let begin = Instant::now();
        while (self.gone.load(Ordering::Acquire) as usize) < self.slots.len()
            && begin.elapsed() < LEAVE_MAX
        {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Called by a task: posts a request, and waits for the answer.
    pub fn ask(
        &self,
        task: u32,
        request: Request,
        doorbell: &Doorbell,
        wait_policy: &mut Option<WaitPolicy>,
    ) -> Result<[u64; 2], DsmError> {
        self.post(task, request);
        self.wait(task, doorbell, wait_policy);
        self.answer_to(task)
    }

    /// Called by a task: posts a request. The doorbell does not ring.
    pub fn post(&self, task: u32, request: Request) {
        let slot = &self.slots[task as usize];
        assert_eq!(slot.state.load(Ordering::Relaxed), FREE, "one request at a time");
        // SAFETY: the slot is free, so its content belongs to the task.
        unsafe { (*slot.content.get()).request = request };
        slot.state.store(POSTED, Ordering::SeqCst);
    }

    /// Called by a task: wakes the agent if it sleeps, and waits for the answer.
    pub fn wait(&self, task: u32, doorbell: &Doorbell, wait_policy: &mut Option<WaitPolicy>) {
        if self.sleeps.swap(0, Ordering::SeqCst) != 0 {
            doorbell.ring();
        }
        self.slots[task as usize].wait(wait_policy);
    }

    /// Returns true if the request of a task is answered.
    pub fn is_answered(&self, task: u32) -> bool {
        self.slots[task as usize].state.load(Ordering::Acquire) == ANSWERED
    }

    /// Called by a task: takes the answer.
    ///
    /// # Panics
    /// The request is not answered yet.
    pub fn answer_to(&self, task: u32) -> Result<[u64; 2], DsmError> {
        assert!(self.is_answered(task), "task {task} has no answer yet");
        let slot = &self.slots[task as usize];
        // SAFETY: the slot is answered, so its content belongs to the task.
        let content = unsafe { &*slot.content.get() };
        let answer = match content.is_refused {
            false => Ok(content.answer),
            true => Err(DsmError::Argument(
                String::from_utf8_lossy(&content.reason[..content.reason_bytes]).into_owned(),
            )),
        };
        slot.state.store(FREE, Ordering::Relaxed);
        answer
    }
}

impl Slot {
    fn wait(&self, wait_policy: &mut Option<WaitPolicy>) {
        let answered = || self.state.load(Ordering::SeqCst) == ANSWERED;
        if let Some(wait_policy) = wait_policy {
            wait_policy.poll(|| answered().then_some(()));
        }
        while !answered() {
            self.sleeps.store(1, Ordering::SeqCst);
            let state = self.state.load(Ordering::SeqCst);
            if state != ANSWERED {
                // A signal may interrupt the wait; the loop checks the state.
                let _ = futex::wait(&self.state, futex::Flags::PRIVATE, state, None);
            }
        }
        self.sleeps.store(0, Ordering::Relaxed);
        if let Some(wait_policy) = wait_policy {
            wait_policy.found();
        }
    }
}

/// The doorbell: an eventfd(2) by which tasks wake the agent.
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// Creates a doorbell.
    pub fn new() -> Result<Self, DsmError> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|why| DsmError::System(format!("cannot make an eventfd: {why}")))
    }

    /// Returns the doorbell of a descriptor, which another process may have created.
    pub fn of(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Wakes the thread that polls it.
    pub fn ring(&self) {
        // A full counter wakes the reader as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Duplicates it for another thread.
    pub fn duplicate(&self) -> Result<Self, DsmError> {
        self.0
            .try_clone()
            .map(Self)
            .map_err(|why| DsmError::System(format!("cannot duplicate an eventfd: {why}")))
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_spin_or_sleep_get_their_answers() {
        let table = RequestTable::new(3);
        let doorbell = Doorbell::new().unwrap();
        const ROUNDS: u32 = 2000;
        std::thread::scope(|scope| {
            for task in 0..3u32 {
                let doorbell = doorbell.duplicate().unwrap();
                scope.spawn(move || {
                    let mut wait_policy = (task == 0).then(WaitPolicy::default);
                    for round in 0..ROUNDS {
                        let answer =
                            table.ask(task, Request::Acquire(round), &doorbell, &mut wait_policy);
                        match round % 10 {
                            9 => assert_eq!(answer.unwrap_err().to_string(), "no"),
                            _ => assert_eq!(answer, Ok([round.into(), task.into()])),
                        }
                    }
                });
            }
            let mut answered = 0;
            while answered < 3 * ROUNDS {
                let Some((task, Request::Acquire(round))) = table.take() else {
                    if table.may_sleep() {
                        use rustix::event::{PollFd, PollFlags, Timespec, poll};
                        let mut fds = [PollFd::new(&doorbell, PollFlags::IN)];
                        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
                        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "no ring");
                        table.awake();
                        rustix::io::read(&doorbell.0, &mut [0; 8]).expect("a ring");
                    }
                    continue;
                };
                match round % 10 {
                    9 => table.answer(task, Err("no")),
                    _ => table.answer(task, Ok([round.into(), task.into()])),
                }
                answered += 1;
            }
        });
    }
}
