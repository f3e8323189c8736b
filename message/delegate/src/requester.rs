//! The requester's side: the route to a delegatee, requests, and waits for their answers.

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
use sync::wait::{self, Backoff, DOUBT, Naps, WaitPolicy};

use crate::error::Error;
use crate::passed::Connection;
use crate::queue::{self, Envelope, NAME, PAYLOAD_MAX, Queue};
use crate::record::Record;
use crate::task;

/// The submitted requests of one route may take the queue's lines divided by this.
const SHARE: u32 = 4;

/// Longest duration of the first sleep for room.
const NAP: Duration = Duration::from_micros(50);

thread_local! {
    static POLICY: RefCell<WaitPolicy> = RefCell::default();
}

/// The route to a delegatee. Any thread may use it.
#[derive(Debug)]
pub struct Route {
    task: ThisTask,
    /// The calling task.
    us: Identity,
    /// The delegatee.
    delegatee: Identity,
    /// The queue in the delegatee's memory. It is accessed only while the delegatee is held.
    queue: Queue,
    lines: u32,
    /// Number of submitted requests whose answers were not taken.
    in_flight: AtomicU32,
    /// The connection for descriptors, made when the first one is passed.
    connection: Mutex<Option<Connection>>,
}

impl Route {
    /// Returns the route to the task with this ID. Waits for `timeout` until it serves requests;
    /// `None` is without limit.
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
        let delegatee = task.control.identity(id).ok_or(ended)?;
        let held = hold(&task, delegatee)?;
        // Again, under the hold: the first result may be that of an earlier task with this ID.
        let found = control::export::import(&task.control, id, NAME, Some(Duration::ZERO));
        let (address, bytes) = found.map_err(|_| Error::NoDelegatee(id))?;
        let segment = task.control.layout().segment(id).ok_or(ended)?;
        let end = address.checked_add(bytes);
        if address < segment.start() || end.is_none_or(|end| end > segment.end()) {
            return Err(Error::NoDelegatee(id));
        }
        // SAFETY: the task is held and exports this memory, whose bounds were checked against its
        // segment above.
        let queue = unsafe { Queue::find(address, bytes) }.ok_or(Error::NoDelegatee(id))?;
        let lines = queue.ring.lines();
        drop(held);
        Ok(Self {
            task,
            us,
            delegatee,
            queue,
            lines,
            in_flight: AtomicU32::new(0),
            connection: Mutex::default(),
        })
    }

    /// Returns the route to the node server's delegatee, if the job has one: the task with the last
    /// ID ([`control::Control::tasks_max`]).
    pub fn find_server(timeout: Option<Duration>) -> Result<Self, Error> {
        let control = task::this()?.control;
        let id = control.tasks_max() - 1;
        control.identity(id).ok_or(Error::NoServer)?;
        Self::find(id, timeout)
    }

    /// Passes a descriptor to the delegatee. Returns the number by which requests name it. The
    /// delegatee closes it after [`close_passed`](Self::close_passed), after this route is dropped,
    /// or when the calling task ends. Error: the delegatee takes no descriptors.
    pub fn pass(&self, descriptor: BorrowedFd<'_>) -> Result<i32, Error> {
        self.with_connection(|connection| connection.pass(descriptor))
    }

    /// Closes a descriptor that was passed on this route. Error: EBADF.
    pub fn close_passed(&self, number: i32) -> Result<(), Error> {
        self.with_connection(|connection| connection.close(number)).map(drop)
    }

    fn with_connection(
        &self,
        ask: impl FnOnce(&mut Connection) -> Option<i32>,
    ) -> Result<i32, Error> {
        task::this()?;
        let mut connection =
            self.connection.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if connection.is_none() {
            let held = self.hold_open()?;
            let socket = self.queue.head().socket.load(Acquire);
            drop(held);
            if socket == 0 {
                return Err(Error::TakesNone);
            }
            let pid = self.task.control.slot(self.delegatee.id).pid.load(SeqCst);
            *connection = Some(Connection::connect(socket, pid)?);
        }
        match connection.as_mut().and_then(ask) {
            Some(number @ 0..) => Ok(number),
            Some(errno) => Err(Error::System(Errno::from_raw_os_error(-errno))),
            None => {
                *connection = None;
                Err(Error::Died(self.delegatee.id))
            }
        }
    }

    /// Returns the delegatee's ID.
    pub fn id(&self) -> u32 {
        self.delegatee.id
    }

    /// Sends a request, and waits for the answer. The result is not negative.
    #[inline]
    pub fn call(&self, operation: u32, payload: &[u8]) -> Result<i64, Error> {
        let record = Record::default();
        self.send(&record, operation, payload, None)?;
        // The record must live until the answer is there. Without a limit, there is always one.
        let answer = self.wait(&record, None).unwrap_or(Err(Error::Died(self.delegatee.id)));
        answer.and_then(result)
    }

    /// Sends a request without waiting for the answer. Waits for room in the queue until `until`.
    pub fn submit(
        self: &Arc<Self>,
        operation: u32,
        payload: &[u8],
        until: Option<Instant>,
    ) -> Result<Request, Error> {
        // Counted first: threads that submit at the same time share the limit.
        if self.in_flight.fetch_add(1, Relaxed) >= self.lines / SHARE {
            self.in_flight.fetch_sub(1, Relaxed);
            return Err(Error::Full);
        }
        let record = Box::<Record>::default();
        match self.send(&record, operation, payload, until) {
            Ok(()) => Ok(Request { record: Some(record), route: self.clone() }),
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
                Err(_) if head & 1 != 0 => self.rouse(), // it may have consumed lines to return
                Err(_) => {}
            }
            drop(held);
            // Without the hold: the kernel reads the word, and returns an error if it is unmapped.
            futex::sleep(ring.head(), head, Some(wait::earlier(until, naps.next_nap())));
        }
    }

    /// Holds the delegatee if it lives and serves requests.
    #[inline]
    fn hold_open(&self) -> Result<Hold, Error> {
        let held = hold(&self.task, self.delegatee)?;
        match self.queue.head().closed.load(Acquire) {
            0 => Ok(held),
            _ => Err(Error::NoDelegatee(self.delegatee.id)),
        }
    }

    /// Wakes the delegatee. The caller holds it.
    #[cold]
    fn rouse(&self) {
        rouse(&self.queue.ring);
        futex::wake(self.queue.ring.head());
    }

    /// Returns the answer if it arrives before `until`. The delegatee's death is an answer.
    #[inline]
    fn wait(&self, record: &Record, until: Option<Instant>) -> Option<Result<i64, Error>> {
        let polled = POLICY.with_borrow_mut(|policy| policy.poll(|| record.answer()));
        if let Some(answer) = polled {
            return Some(Ok(answer));
        }
        loop {
            if until.is_some_and(|until| Instant::now() >= until) {
                POLICY.with_borrow_mut(WaitPolicy::give_up);
                return self.test(record);
            }
            record.ticket.sleep(Some(wait::earlier(until, DOUBT)));
            if let Some(answer) = self.test(record) {
                POLICY.with_borrow_mut(WaitPolicy::found);
                return Some(answer);
            }
        }
    }

    /// Returns the answer, if it is there. Checks the delegatee's life before it looks for the
    /// answer, so that the last answer of a dead delegatee is not lost.
    #[inline]
    fn test(&self, record: &Record) -> Option<Result<i64, Error>> {
        let lives = self.task.control.is_living(self.delegatee);
        match record.answer() {
            Some(answer) => Some(Ok(answer)),
            None if lives => None,
            None => Some(Err(Error::Died(self.delegatee.id))),
        }
    }
}

/// Holds the delegatee. Error: it has ended.
#[inline]
fn hold(task: &ThisTask, delegatee: Identity) -> Result<Hold, Error> {
    let mut backoff = Backoff::default();
    loop {
        match task.hold(delegatee, queue::SEND) {
            Ok(held) => return Ok(held),
            Err(Attempt::Gone) => return Err(Error::NoTask(delegatee.id)),
            Err(_) => backoff.pause(), // other threads of this task are sending
        }
    }
}

/// Converts an answer.
fn result(answer: i64) -> Result<i64, Error> {
    match answer {
        0.. => Ok(answer),
        -4095..0 if answer == -i64::from(libc::ECANCELED) => Err(Error::Cancelled),
        -4095..0 => Err(Error::System(Errno::from_raw_os_error(-answer as i32))),
        _ => Err(Error::System(Errno::IO)), // not an errno
    }
}

/// A submitted request.
#[derive(Debug)]
pub struct Request {
    /// `None` after the answer was taken.
    record: Option<Box<Record>>,
    route: Arc<Route>,
}

impl Request {
    /// Returns the answer if it is there, once. Does not wait.
    pub fn test(&mut self) -> Option<Result<i64, Error>> {
        let record = self.record.as_deref()?;
        let answer = self.route.test(record)?;
        Some(self.end(answer))
    }

    /// Returns the answer, once. Waits for it until `until`.
    pub fn wait(&mut self, until: Option<Instant>) -> Option<Result<i64, Error>> {
        let record = self.record.as_deref()?;
        let answer = self.route.wait(record, until)?;
        Some(self.end(answer))
    }

    /// Cancels the request. If it has not started, its answer is [`Error::Cancelled`]. An operation
    /// that has started may end early.
    pub fn cancel(&self) {
        let Some(record) = self.record.as_deref() else { return };
        if record.cancel.swap(1, AcqRel) != 0 {
            return;
        }
        // If the delegatee has ended, its death is the answer.
        if let Ok(_held) = hold(&self.route.task, self.route.delegatee) {
            self.route.queue.head().cancels.fetch_add(1, AcqRel);
        }
    }

    /// Finishes an answered request: the delegatee no longer accesses the record.
    fn end(&mut self, answer: Result<i64, Error>) -> Result<i64, Error> {
        let record = self.record.take();
        self.route.in_flight.fetch_sub(1, Relaxed);
        if record.is_some_and(|record| record.cancel.load(Relaxed) != 0)
            && let Ok(_held) = hold(&self.route.task, self.route.delegatee)
        {
            self.route.queue.head().cancels.fetch_sub(1, AcqRel);
        }
        answer.and_then(result)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // The delegatee will write into it.
        if let Some(record) = self.record.take() {
            self.route.in_flight.fetch_sub(1, Relaxed);
            Box::leak(record);
        }
    }
}
