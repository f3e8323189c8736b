//! The requester's side: the way to a delegatee, requests, and waiting for their answers.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use control::hold::{Attempt, Hold};
use control::{Identity, ThisTask};
use rustix::io::Errno;
use sync::futex;
use sync::ring::{Buffer, Kind, SendError, Sender, rouse};
use sync::wait::{self, DOUBT, Naps, WaitPolicy};

use crate::error::Error;
use crate::passed::Passing;
use crate::queue::{self, Envelope, NAME, PAYLOAD_MAX, Queue};
use crate::record::Record;
use crate::task;

/// The part of a queue's lines that the requests of one way, sent and not waited for, may
/// take.
const SHARE: u32 = 4;

/// How long the first sleep for room lasts at most.
const NAP: Duration = Duration::from_micros(50);

thread_local! {
    static POLICY: RefCell<WaitPolicy> = RefCell::default();
}

/// The way to a delegatee. Any thread may use it.
#[derive(Debug)]
pub struct Way {
    task: ThisTask,
    /// Who we are.
    us: Identity,
    /// The delegatee.
    whom: Identity,
    /// In its memory: only while we hold it.
    queue: Queue,
    lines: u32,
    /// Requests that were submitted and not waited for.
    in_flight: AtomicU32,
    /// By which it gets descriptors of ours, once one has been passed.
    passing: Mutex<Option<Passing>>,
}

impl Way {
    /// The way to the task with this ID; waits so long until it serves requests, without
    /// limit if `None`.
    pub fn find(id: u32, timeout: Option<Duration>) -> Result<Self, Error> {
        let task = task::this()?;
        if id >= task.control.tasks_max() {
            return Err(Error::Invalid("the delegatee's ID"));
        }
        let us = task.control.identity(task.id).ok_or(Error::NotATask)?;
        let found = control::export::import(&task.control, id, NAME, timeout);
        let ended = Error::NoTask(id);
        found.map_err(|error| match error {
            control::Error::NoName if task.control.identity(id).is_some() => Error::NoDelegatee(id),
            control::Error::NoName | control::Error::TaskEnded(_) => ended,
            control::Error::TimedOut => Error::TimedOut,
            other => Error::System(other.errno()),
        })?;
        let whom = task.control.identity(id).ok_or(ended)?;
        let held = hold(&task, whom)?;
        // Once more: what we have found may have been that of a task that has ended since.
        let found = control::export::import(&task.control, id, NAME, Some(Duration::ZERO));
        let (address, bytes) = found.map_err(|_| Error::NoDelegatee(id))?;
        let segment = task.control.layout().segment(id).ok_or(ended)?;
        let end = address.checked_add(bytes);
        if address < segment.start() || end.is_none_or(|end| end > segment.end()) {
            return Err(Error::NoDelegatee(id));
        }
        // SAFETY: we hold the task, and it exports this.
        let queue = unsafe { Queue::find(address, bytes) }.ok_or(Error::NoDelegatee(id))?;
        let lines = queue.ring.lines();
        drop(held);
        Ok(Self {
            task,
            us,
            whom,
            queue,
            lines,
            in_flight: AtomicU32::new(0),
            passing: Mutex::default(),
        })
    }

    /// The way to the node server's delegatee, if the job has one: the task with the last ID
    /// ([`control::Control::tasks_max`]).
    pub fn find_server(timeout: Option<Duration>) -> Result<Self, Error> {
        let control = task::this()?.control;
        let id = control.tasks_max() - 1;
        control.identity(id).ok_or(Error::NoServer)?;
        Self::find(id, timeout)
    }

    /// Passes a descriptor of ours to the delegatee: the number by which requests name it. It is
    /// closed there by [`close_passed`](Self::close_passed), with this way, or when we end. Error:
    /// it takes none.
    pub fn pass(&self, descriptor: BorrowedFd<'_>) -> Result<i32, Error> {
        self.with_passing(|passing| passing.pass(descriptor))
    }

    /// Closes a descriptor that was passed this way. Error: EBADF.
    pub fn close_passed(&self, number: i32) -> Result<(), Error> {
        self.with_passing(|passing| passing.close(number)).map(drop)
    }

    fn with_passing(&self, ask: impl FnOnce(&mut Passing) -> Option<i32>) -> Result<i32, Error> {
        task::this()?;
        let mut passing = self.passing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if passing.is_none() {
            let held = self.hold_open()?;
            let socket = self.queue.head().socket.load(Acquire);
            drop(held);
            if socket == 0 {
                return Err(Error::TakesNone);
            }
            let pid = self.task.control.slot(self.whom.id).pid.load(SeqCst);
            *passing = Some(Passing::connect(socket, pid)?);
        }
        match passing.as_mut().and_then(ask) {
            Some(number @ 0..) => Ok(number),
            Some(errno) => Err(Error::System(Errno::from_raw_os_error(-errno))),
            None => {
                *passing = None;
                Err(Error::Died(self.whom.id))
            }
        }
    }

    /// The delegatee's ID.
    pub fn id(&self) -> u32 {
        self.whom.id
    }

    /// Asks, and waits for the answer. The result is not negative.
    #[inline]
    pub fn call(&self, operation: u32, payload: &[u8]) -> Result<i64, Error> {
        let record = Record::default();
        self.send(&record, operation, payload, None)?;
        // The record must stay until then; without a limit there is an answer.
        let answer = self.wait(&record, None).unwrap_or(Err(Error::Died(self.whom.id)));
        answer.and_then(result)
    }

    /// Asks; waits for room in the queue until the given time.
    pub fn submit(
        self: &Arc<Self>,
        operation: u32,
        payload: &[u8],
        until: Option<Instant>,
    ) -> Result<Request, Error> {
        // Counted first: threads that submit at once share what there is.
        if self.in_flight.fetch_add(1, Relaxed) >= self.lines / SHARE {
            self.in_flight.fetch_sub(1, Relaxed);
            return Err(Error::Full);
        }
        let record = Box::<Record>::default();
        match self.send(&record, operation, payload, until) {
            Ok(()) => Ok(Request { record: Some(record), way: self.clone() }),
            Err(error) => {
                self.in_flight.fetch_sub(1, Relaxed);
                Err(error)
            }
        }
    }

    /// Puts a request into the queue.
    #[inline]
    fn send(
        &self,
        record: &Record,
        operation: u32,
        payload: &[u8],
        until: Option<Instant>,
    ) -> Result<(), Error> {
        task::this()?;
        if payload.len() > PAYLOAD_MAX {
            return Err(Error::TooLong(PAYLOAD_MAX));
        }
        let address = std::ptr::from_ref(record) as u64;
        let generation = self.us.generation;
        let envelope = Envelope { record: address, operation, generation }.bytes();
        let parts: [&[u8]; 2] = [&envelope, payload];
        let mut sender = Sender::new(queue::ticket(self.us), self.us.id);
        let mut naps = Naps::new(NAP, DOUBT);
        loop {
            let held = self.hold_open()?;
            let ring = &self.queue.ring;
            match sender.send(ring, Kind::Inline, &parts) {
                Ok(asleep) => {
                    if asleep {
                        self.rouse();
                    }
                    return Ok(());
                }
                Err(SendError::TooLong) => return Err(Error::TooLong(PAYLOAD_MAX)),
                Err(SendError::Full) => {}
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Error::Full);
            }
            let head = sender.wait_for_room(ring);
            match sender.send(ring, Kind::Inline, &parts) {
                Ok(asleep) => {
                    if asleep {
                        self.rouse();
                    }
                    return Ok(());
                }
                Err(_) if head & 1 != 0 => self.rouse(), // it may have lines to give back
                Err(_) => {}
            }
            drop(held);
            // Without the hold: the kernel looks at the word, and says if it is not there.
            futex::sleep(ring.head(), head, Some(wait::earlier(until, naps.next_nap())));
        }
    }

    /// Holds the delegatee, if it lives and serves requests.
    #[inline]
    fn hold_open(&self) -> Result<Hold, Error> {
        let held = hold(&self.task, self.whom)?;
        match self.queue.head().closed.load(Acquire) {
            0 => Ok(held),
            _ => Err(Error::NoDelegatee(self.whom.id)),
        }
    }

    /// Wakes the delegatee, which we hold.
    #[cold]
    fn rouse(&self) {
        rouse(&self.queue.ring);
        futex::wake(self.queue.ring.head());
    }

    /// The answer, if it comes in time; the delegatee's end is one.
    #[inline]
    fn wait(&self, record: &Record, until: Option<Instant>) -> Option<Result<i64, Error>> {
        let looked = POLICY.with_borrow_mut(|policy| policy.poll(|| record.answer()));
        if let Some(answer) = looked {
            return Some(Ok(answer));
        }
        loop {
            if until.is_some_and(|until| Instant::now() >= until) {
                return self.test(record);
            }
            record.ticket.sleep(Some(wait::earlier(until, DOUBT)));
            if let Some(answer) = self.test(record) {
                return Some(answer);
            }
        }
    }

    /// The answer, if it is there. That the delegatee has ended is seen before the answer is
    /// looked for, so its last one is not lost.
    #[inline]
    fn test(&self, record: &Record) -> Option<Result<i64, Error>> {
        let lives = self.task.control.is_living(self.whom);
        match record.answer() {
            Some(answer) => Some(Ok(answer)),
            None if lives => None,
            None => Some(Err(Error::Died(self.whom.id))),
        }
    }
}

/// Holds a delegatee. Error: it has ended.
#[inline]
fn hold(task: &ThisTask, whom: Identity) -> Result<Hold, Error> {
    loop {
        match task.hold(whom, queue::SEND) {
            Ok(held) => return Ok(held),
            Err(Attempt::Gone) => return Err(Error::NoTask(whom.id)),
            Err(_) => rustix::thread::sched_yield(), // other threads of ours are sending
        }
    }
}

/// What an answer means.
fn result(answer: i64) -> Result<i64, Error> {
    match answer {
        0.. => Ok(answer),
        -4095..0 if answer == -i64::from(libc::ECANCELED) => Err(Error::Cancelled),
        -4095..0 => Err(Error::System(Errno::from_raw_os_error(-answer as i32))),
        _ => Err(Error::System(Errno::IO)), // no errno
    }
}

/// A request that was submitted.
#[derive(Debug)]
pub struct Request {
    /// None once the answer has been taken.
    record: Option<Box<Record>>,
    way: Arc<Way>,
}

impl Request {
    /// The answer, if it is there, once. Does not wait.
    pub fn test(&mut self) -> Option<Result<i64, Error>> {
        let record = self.record.as_deref()?;
        let answer = self.way.test(record)?;
        Some(self.end(answer))
    }

    /// The answer, once; waits for it until the given time.
    pub fn wait(&mut self, until: Option<Instant>) -> Option<Result<i64, Error>> {
        let record = self.record.as_deref()?;
        let answer = self.way.wait(record, until)?;
        Some(self.end(answer))
    }

    /// Asks that it be cancelled: if it has not been begun, its answer is
    /// [`Error::Cancelled`]; an operation that has been begun may end early, or not.
    pub fn cancel(&self) {
        let Some(record) = self.record.as_deref() else { return };
        if record.cancel.swap(1, AcqRel) != 0 {
            return;
        }
        // If it has ended, that is the answer.
        if let Ok(_held) = hold(&self.way.task, self.way.whom) {
            self.way.queue.head().cancels.fetch_add(1, AcqRel);
        }
    }

    /// Answered: nobody touches the record any more.
    fn end(&mut self, answer: Result<i64, Error>) -> Result<i64, Error> {
        let record = self.record.take();
        self.way.in_flight.fetch_sub(1, Relaxed);
        if record.is_some_and(|record| record.cancel.load(Relaxed) != 0)
            && let Ok(_held) = hold(&self.way.task, self.way.whom)
        {
            self.way.queue.head().cancels.fetch_sub(1, AcqRel);
        }
        answer.and_then(result)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // The delegatee is going to write into it.
        if let Some(record) = self.record.take() {
            self.way.in_flight.fetch_sub(1, Relaxed);
            Box::leak(record);
        }
    }
}
