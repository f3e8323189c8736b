//! The desk, where a node's tasks ask the agent: a seat each, in memory that both see.
//!
//! A task fills in its request and rings; the agent takes it, and answers when it can. Who
//! waits looks for a moment, then sleeps in futex(2); the agent sleeps in epoll(7), where the
//! bell wakes it. A task that drives the agent itself need not ring. Tasks of one address space
//! have their own copies of this code, and nothing else in common than the desk: it holds plain
//! numbers, and addresses of the common space.

use std::cell::UnsafeCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::futex;
use sync::wait::WaitPolicy;

use crate::error::DsmError;
use crate::ledger::Allocation;

/// Bytes that the reason of a refusal may have.
const REASON_BYTES_MAX: usize = 240;

/// What a task may take from its last answer to its leave.
const GO_MAX: Duration = Duration::from_secs(5);

/// What a task wants. Sizes are in bytes; tasks are ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, u32)]
pub enum Request {
    /// To begin, once all nodes are there.
    Join,
    /// Memory. Answer: its address.
    Allocate {
        /// Which.
        allocation: Allocation,
        /// Where the program asks for it, if that is wanted and known; else 0.
        caller: usize,
    },
    /// The lock.
    Acquire(u32),
    /// To give it back.
    Release(u32),
    /// The barrier.
    Barrier,
    /// To wait for all tasks.
    Meet,
    /// To set a condition variable.
    Set(u32),
    /// To reset it.
    Reset(u32),
    /// To wait until it is set.
    Wait(u32),
    /// Options for all nodes.
    Configure {
        /// Which; see [`Setting`].
        option: Setting,
        /// Its value.
        on: bool,
    },
    /// To send a letter, which is copied.
    Send {
        /// To this task.
        to: u32,
        /// About this.
        tag: i32,
        /// Where it lies: not in shared memory.
        at: usize,
        /// Its length.
        bytes: usize,
    },
    /// To receive a letter. Answer: where it lies, until the next request, and its length.
    Receive {
        /// From this task; negative: from any.
        from: i64,
        /// About this; the smallest number: about anything.
        tag: i32,
    },
    /// Numbers, written to an address. Answer: whether there are any.
    Count {
        /// Of what.
        what: Counted,
        /// Where they go.
        to: usize,
    },
    /// To count anew.
    CountAnew,
    /// To print what was counted, if the settings want that.
    Report,
    /// To leave, when all tasks want to.
    Leave,
    /// The same, at the end of a process that has not asked to leave before.
    Exit,
    /// The end of the job.
    Abort {
        /// Its exit status.
        status: u8,
        /// Where the line is that says why.
        at: usize,
        /// Its length.
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
    /// What nobody else has is written without notice.
    Alone,
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, u32)]
pub enum Counted {
    /// All of the node: a [`report::Totals`](crate::report::Totals).
    Node,
    /// The page at this address: a [`report::OfPage`](crate::report::OfPage).
    Page(usize),
    /// A lock: a [`report::OfLock`](crate::report::OfLock).
    Lock(u32),
    /// Rides on what carries them, by its number in
    /// [`Carrier::ALL`](coherence::ride::Carrier::ALL): [`report::RideCounts`](
    /// crate::report::RideCounts).
    Rides(u32),
}

/// How far a seat's request is.
const FREE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const ANSWERED: u32 = 3;

/// One task's.
#[repr(C, align(128))]
pub struct Seat {
    state: AtomicU32,
    /// The task sleeps, and wants to be woken.
    sleeps: AtomicU32,
    /// The task's while it is free or answered; the agent's while it is asked or taken.
    paper: UnsafeCell<Paper>,
}

#[repr(C)]
struct Paper {
    request: Request,
    answer: [u64; 2],
    is_refused: bool,
    reason_bytes: usize,
    reason: [u8; REASON_BYTES_MAX],
}

// SAFETY: the state says whose the paper is.
unsafe impl Sync for Seat {}

/// All of a node's.
#[repr(C)]
pub struct Desk {
    /// The agent sleeps, and wants the bell to be rung.
    sleeps: AtomicU32,
    /// How many tasks will not look at it any more.
    gone: AtomicU32,
    seats: Vec<Seat>,
}

impl Desk {
    /// For so many tasks; never freed, but gone with the process whose memory it is in.
    pub fn new(tasks: usize) -> &'static Self {
        let seat = || Seat {
            state: AtomicU32::new(FREE),
            sleeps: AtomicU32::new(0),
            paper: UnsafeCell::new(Paper {
                request: Request::Join,
                answer: [0; 2],
                is_refused: false,
                reason_bytes: 0,
                reason: [0; REASON_BYTES_MAX],
            }),
        };
        let seats = (0..tasks).map(|_| seat()).collect();
        Box::leak(Box::new(Self { sleeps: AtomicU32::new(0), gone: AtomicU32::new(0), seats }))
    }

    /// To the agent: a request that it has not taken yet, of any task.
    pub fn take(&self) -> Option<(u32, Request)> {
        let at = self.seats.iter().position(|seat| seat.state.load(Ordering::Acquire) == ASKED)?;
        let seat = &self.seats[at];
        seat.state.store(TAKEN, Ordering::Relaxed);
        // SAFETY: asked, so it is ours.
        Some((at as u32, unsafe { (*seat.paper.get()).request }))
    }

    /// To the agent: answers a request that it has taken.
    pub fn answer(&self, task: u32, answer: Result<[u64; 2], &str>) {
        let seat = &self.seats[task as usize];
        assert_eq!(seat.state.load(Ordering::Relaxed), TAKEN, "task {task} did not ask");
        // SAFETY: taken, so it is ours.
        let paper = unsafe { &mut *seat.paper.get() };
        paper.is_refused = answer.is_err();
        match answer {
            Ok(answer) => paper.answer = answer,
            Err(reason) => {
                let bytes = reason.len().min(REASON_BYTES_MAX);
                paper.reason_bytes = bytes;
                paper.reason[..bytes].copy_from_slice(&reason.as_bytes()[..bytes]);
            }
        }
        seat.state.store(ANSWERED, Ordering::SeqCst);
        if seat.sleeps.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&seat.state, futex::Flags::PRIVATE, 1);
        }
    }

    /// To the agent: it is about to sleep. If not, somebody has asked.
    pub fn may_sleep(&self) -> bool {
        self.sleeps.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let asked = |seat: &Seat| seat.state.load(Ordering::SeqCst) == ASKED;
        let may = !self.seats.iter().any(asked);
        if !may {
            self.wakes();
        }
        may
    }

    /// To the agent: it is awake.
    pub fn wakes(&self) {
        self.sleeps.store(0, Ordering::Relaxed);
    }

    /// To a task: the last that it does with the desk.
    pub fn go(&self) {
        self.gone.fetch_add(1, Ordering::Release);
    }

    /// To the task whose memory it is in: waits until all have gone, but not for ever, since
    /// one may have been killed.
    pub fn wait_for_others(&self) {
        let begin = Instant::now();
        while (self.gone.load(Ordering::Acquire) as usize) < self.seats.len()
            && begin.elapsed() < GO_MAX
        {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// To a task: asks, and waits for the answer.
    pub fn ask(
        &self,
        task: u32,
        request: Request,
        bell: &Bell,
        wait_policy: &mut Option<WaitPolicy>,
    ) -> Result<[u64; 2], DsmError> {
        self.put(task, request);
        self.wait(task, bell, wait_policy);
        self.answer_to(task)
    }

    /// To a task: puts its request there. Nobody hears of it, but who looks.
    pub fn put(&self, task: u32, request: Request) {
        let seat = &self.seats[task as usize];
        assert_eq!(seat.state.load(Ordering::Relaxed), FREE, "one request at a time");
        // SAFETY: free, so it is ours.
        unsafe { (*seat.paper.get()).request = request };
        seat.state.store(ASKED, Ordering::SeqCst);
    }

    /// To a task: wakes the agent if it sleeps, and waits for the answer.
    pub fn wait(&self, task: u32, bell: &Bell, wait_policy: &mut Option<WaitPolicy>) {
        if self.sleeps.swap(0, Ordering::SeqCst) != 0 {
            bell.ring();
        }
        self.seats[task as usize].wait(wait_policy);
    }

    /// Whether a task has its answer.
    pub fn is_answered(&self, task: u32) -> bool {
        self.seats[task as usize].state.load(Ordering::Acquire) == ANSWERED
    }

    /// To a task: the answer, once it is there.
    pub fn answer_to(&self, task: u32) -> Result<[u64; 2], DsmError> {
        assert!(self.is_answered(task), "task {task} has no answer yet");
        let seat = &self.seats[task as usize];
        // SAFETY: answered, so it is ours.
        let paper = unsafe { &*seat.paper.get() };
        let answer = match paper.is_refused {
            false => Ok(paper.answer),
            true => Err(DsmError::Argument(
                String::from_utf8_lossy(&paper.reason[..paper.reason_bytes]).into_owned(),
            )),
        };
        seat.state.store(FREE, Ordering::Relaxed);
        answer
    }
}

impl Seat {
    fn wait(&self, wait_policy: &mut Option<WaitPolicy>) {
        let begin = Instant::now();
        let answered = || self.state.load(Ordering::SeqCst) == ANSWERED;
        if let Some(wait_policy) = wait_policy {
            while !answered() && wait_policy.spins(begin.elapsed()) {
                std::hint::spin_loop();
            }
        }
        let mut waited = begin.elapsed();
        while !answered() {
            self.sleeps.store(1, Ordering::SeqCst);
            let state = self.state.load(Ordering::SeqCst);
            if state != ANSWERED {
                // Interrupted or not, we look again.
                let _ = futex::wait(&self.state, futex::Flags::PRIVATE, state, None);
            }
            waited = begin.elapsed();
        }
        self.sleeps.store(0, Ordering::Relaxed);
        if let Some(wait_policy) = wait_policy {
            wait_policy.learn(true, waited);
        }
    }
}

/// What tasks wake the agent by.
pub struct Bell(OwnedFd);

impl Bell {
    /// A new one.
    pub fn new() -> Result<Self, DsmError> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|why| DsmError::System(format!("cannot make an eventfd: {why}")))
    }

    /// The same, for another thread or process.
    pub fn of(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Wakes whoever polls it.
    pub fn ring(&self) {
        // Full is loud enough.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// The same for another thread.
    pub fn again(&self) -> Result<Self, DsmError> {
        self.0
            .try_clone()
            .map(Self)
            .map_err(|why| DsmError::System(format!("cannot duplicate an eventfd: {why}")))
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_answered_whether_they_look_or_sleep() {
        let desk = Desk::new(3);
        let bell = Bell::new().unwrap();
        const ROUNDS: u32 = 2000;
        std::thread::scope(|scope| {
            for task in 0..3u32 {
                let bell = bell.again().unwrap();
                scope.spawn(move || {
                    let mut wait_policy = (task == 0).then(WaitPolicy::default);
                    for round in 0..ROUNDS {
                        let answer =
                            desk.ask(task, Request::Acquire(round), &bell, &mut wait_policy);
                        match round % 10 {
                            9 => assert_eq!(answer.unwrap_err().to_string(), "no"),
                            _ => assert_eq!(answer, Ok([round.into(), task.into()])),
                        }
                    }
                });
            }
            let mut answered = 0;
            while answered < 3 * ROUNDS {
                let Some((task, Request::Acquire(round))) = desk.take() else {
                    if desk.may_sleep() {
                        use rustix::event::{PollFd, PollFlags, Timespec, poll};
                        let mut fds = [PollFd::new(&bell, PollFlags::IN)];
                        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
                        assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "nobody rings");
                        desk.wakes();
                        rustix::io::read(&bell.0, &mut [0; 8]).expect("it was rung");
                    }
                    continue;
                };
                match round % 10 {
                    9 => desk.answer(task, Err("no")),
                    _ => desk.answer(task, Ok([round.into(), task.into()])),
                }
                answered += 1;
            }
        });
    }
}
