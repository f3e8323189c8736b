//! The delegatee's side: its operations, and the threads that serve requests.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::time::{Duration, Instant};

use control::hold::Attempt;
use control::{Identity, ThisTask};
use fcp::arrived::Arrived;
use fcp::inbox::Inbox;
use rustix::io::Errno;
use sync::futex;
use sync::ring::LINES_MAX;

use crate::error::Error;
use crate::memory::Memory;
use crate::queue::{self, ENVELOPE_SIZE, Envelope, Head, NAME, Queue};
use crate::record::Record;
use crate::task;
use crate::turn::Turn;

/// Operations have numbers below this. The last [`READY_MADE`] numbers are `io`'s.
pub const OPERATIONS: u32 = 256 + READY_MADE;
/// Number of ready-made operations.
pub const READY_MADE: u32 = 4;

/// An operation that a delegatee performs for a requester. The result is not negative.
pub type Operation = Box<dyn Fn(&Job<'_>) -> Result<i64, Errno> + Send + Sync>;

/// Sleep between two looks at a task that will be ready soon.
const NAP: Duration = Duration::from_micros(100);
/// Number of naps until an unannounced requester counts as dead: a second or two.
const WAITS_MAX: u32 = 10_000;

/// A buffer for one request, aligned so that its payload is aligned, too. A small request needs no
/// allocation.
#[repr(C, align(16))]
#[derive(Debug, Default)]
struct Room {
    small: [u64; 7],
    large: Vec<u64>,
}

impl Room {
    /// Copies a request. Returns the requester's ID and the message.
    #[inline]
    fn copy(&mut self, arrived: &Arrived<'_>) -> (u32, &[u8]) {
        let header = arrived.header();
        let length = header.length as usize;
        let words = match length <= size_of_val(&self.small) {
            true => &mut self.small[..],
            false => {
                self.large.resize(length.div_ceil(size_of::<u64>()), 0);
                &mut self.large[..]
            }
        };
        // SAFETY: the bytes of `words`, which are integers, so all byte patterns are valid.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words))
        };
        arrived.read(0, &mut bytes[..length]);
        (header.source, &bytes[..length])
    }
}

/// A request in progress. The requester's memory remains mapped as long. An operation that cannot
/// answer before it returns defers the request ([`Job::keep`]).
#[derive(Debug)]
pub struct Job<'a> {
    /// The requester.
    pub requester: Identity,
    /// Number of the operation.
    pub operation: u32,
    /// The request's payload.
    pub payload: &'a [u8],
    /// The requester's memory.
    pub memory: Memory,
    pub(crate) record: &'a Record,
    pub(crate) task: ThisTask,
    /// The request was deferred, and is answered later (`kept`).
    pub(crate) is_deferred: AtomicBool,
}

impl Job<'_> {
    /// Returns true if nobody needs the result: the requester has cancelled the request or ended.
    pub fn is_cancelled(&self) -> bool {
        self.record.cancel.load(Relaxed) != 0 || !self.task.control.is_living(self.requester)
    }
}

/// A task that serves requests. It has one queue, which is made when it is first opened.
pub struct Delegatee {
    task: ThisTask,
    queue: Queue,
    /// The turn of the thread that takes a request out of the queue.
    turn: Turn,
    inbox: UnsafeCell<Inbox>,
    operations: [AtomicPtr<Operation>; OPERATIONS as usize],
}

// SAFETY: only the thread that has the turn uses the inbox; all other fields are `Sync`.
unsafe impl Sync for Delegatee {}
// SAFETY: no field depends on the thread that made it.
unsafe impl Send for Delegatee {}

impl fmt::Debug for Delegatee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegatee").field("task", &self.task.id).finish_non_exhaustive()
    }
}

static DELEGATEE: OnceLock<Delegatee> = OnceLock::new();

/// Returns the calling task's delegatee, if it was ever opened.
#[inline]
pub fn this() -> Result<&'static Delegatee, Error> {
    task::this()?;
    DELEGATEE.get().ok_or(Error::Closed)
}

/// Makes the calling task a delegatee. Its queue has room for `requests` small requests; a queue
/// that is opened again keeps its first size. `prepare` runs before others can find the delegatee.
pub fn open(
    requests: u32,
    prepare: impl FnOnce(&Delegatee) -> Result<(), Error>,
) -> Result<&'static Delegatee, Error> {
    let task = task::this()?;
    let lines = requests.checked_next_power_of_two().unwrap_or(u32::MAX).max(16);
    if requests == 0 || lines > LINES_MAX {
        return Err(Error::Invalid("the number of requests"));
    }
    let delegatee = match DELEGATEE.get() {
        Some(delegatee) => delegatee,
        None => {
            let queue = Queue::make(lines)?;
            queue.head().closed.store(1, SeqCst);
            let made = Delegatee {
                task,
                queue,
                turn: Turn::default(),
                inbox: UnsafeCell::new(Inbox::new(queue.ring)),
                operations: [const { AtomicPtr::new(ptr::null_mut()) }; OPERATIONS as usize],
            };
            DELEGATEE.get_or_init(|| made)
        }
    };
    let head = delegatee.queue.head();
    if head.closed.compare_exchange(1, 0, SeqCst, SeqCst).is_err() {
        return Err(Error::Open);
    }
    let (address, size) = delegatee.queue.location();
    let export = || {
        let exported = control::export::export(&task.control, task.id, NAME, address, size);
        exported.map_err(|error| Error::System(error.errno()))
    };
    let opened = prepare(delegatee).and_then(|()| export());
    opened.inspect_err(|_| head.closed.store(1, SeqCst))?;
    Ok(delegatee)
}

impl Delegatee {
    /// Returns the head of the queue.
    pub(crate) fn head(&self) -> &Head {
        self.queue.head()
    }

    /// Returns the task.
    pub(crate) fn task(&self) -> ThisTask {
        self.task
    }

    /// Registers the operation for requests with this number. With `None`, they are refused.
    pub fn register(&self, number: u32, operation: Option<Operation>) -> Result<(), Error> {
        let operations = self.operations.get(number as usize);
        let registered = operations.ok_or(Error::Invalid("the number of the operation"))?;
        let new = operation.map_or(ptr::null_mut(), |of| Box::into_raw(Box::new(of)));
        // The old operation is never freed: a thread may be executing it.
        registered.swap(new, AcqRel);
        Ok(())
    }

    /// Serves one request, and waits for it until `until`. Returns false if there was none. Error:
    /// the delegatee is closed.
    pub fn serve(&self, until: Option<Instant>) -> Result<bool, Error> {
        if !self.turn.take(until) {
            return Ok(false);
        }
        let mut room = Room::default();
        let taken = self.take(&mut room, until);
        self.turn.give();
        let Some((requester, message)) = taken? else {
            return match self.queue.head().closed.load(Acquire) {
                0 => Ok(false),
                _ => Err(Error::Closed),
            };
        };
        self.work(requester, message, |job| self.run(job));
        Ok(true)
    }

    /// Takes a request out of the queue. Returns the requester's ID and the message. The caller has
    /// the turn.
    #[inline]
    fn take<'a>(
        &self,
        room: &'a mut Room,
        until: Option<Instant>,
    ) -> Result<Option<(u32, &'a [u8])>, Error> {
        let closed = &self.queue.head().closed;
        if closed.load(Acquire) != 0 {
            return Err(Error::Closed);
        }
        // SAFETY: the caller has the turn, so no other thread uses the inbox.
        let inbox = unsafe { &mut *self.inbox.get() };
        let arrived = inbox.receive_while(closed, 0, until, |ticket| self.is_dead(ticket));
        let Some(arrived) = arrived.map_err(|_| Error::Corrupt)? else { return Ok(None) };
        Ok(Some(room.copy(&arrived)))
    }

    /// Returns true if the sender with this ticket has ended (`queue::ticket`).
    fn is_dead(&self, ticket: u32) -> bool {
        let now = self.task.control.identity(ticket >> 16);
        let sender = Identity { id: ticket >> 16, generation: ticket & 0xffff };
        now.is_none_or(|now| queue::ticket(now) != ticket)
            && !self.task.control.is_to_come(sender, 16)
    }

    /// Performs a request while its requester is held, and answers unless the request is deferred.
    /// Drops requests of tasks that have ended, and invalid messages.
    #[inline]
    fn work(&self, requester: u32, message: &[u8], by: impl FnOnce(&Job<'_>) -> i64) {
        let Some((envelope, payload)) = message.split_first_chunk::<ENVELOPE_SIZE>() else {
            return;
        };
        let Envelope { record, operation, generation } = Envelope::parse(*envelope);
        let Some(memory) = Memory::of(&self.task, requester) else { return };
        let aligned = record.is_multiple_of(align_of::<Record>() as u64);
        if !aligned || !memory.has(record, size_of::<Record>() as u64) {
            return;
        }
        let requester = Identity { id: requester, generation };
        let mut waits = 0;
        let hold = loop {
            match self.task.hold(requester, queue::SERVE) {
                Ok(hold) => break hold,
                // Not for ever: that task may never start.
                Err(Attempt::Gone)
                    if waits < WAITS_MAX && self.task.control.is_to_come(requester, 32) =>
                {
                    waits += 1;
                    std::thread::sleep(NAP);
                }
                Err(Attempt::Gone) => return,
                Err(_) => std::thread::sleep(NAP), // other threads use all hold words
            }
        };
        // SAFETY: `memory.has` and `aligned` have checked the address. The requester is held, so
        // its segment remains mapped, and it keeps the record until it has the answer.
        let record = unsafe { &*(record as *const Record) };
        let is_deferred = AtomicBool::new(false);
        let task = self.task;
        let job = Job { requester, operation, payload, memory, record, task, is_deferred };
        let result = by(&job);
        if !job.is_deferred.load(Relaxed) {
            record.give(result);
        }
        drop(hold);
    }

    /// Runs the registered operation.
    #[inline]
    fn run(&self, job: &Job<'_>) -> i64 {
        if self.queue.head().cancels.load(Acquire) != 0 && job.is_cancelled() {
            return CANCELLED;
        }
        let operation = self.operations.get(job.operation as usize);
        let operation = operation.map_or(ptr::null_mut(), |registered| registered.load(Acquire));
        // SAFETY: null, or from `Box::into_raw` in `register`, which never frees an operation.
        let result = match unsafe { operation.as_ref() } {
            Some(operation) => operation(job),
            None => Err(Errno::NOSYS),
        };
        result.unwrap_or_else(|errno| -i64::from(errno.raw_os_error()))
    }

    /// Closes the queue. Answers waiting requests as cancelled; other threads finish theirs. Waits
    /// for tasks that are just sending.
    pub fn close(&self) -> Result<(), Error> {
        let head = self.queue.head();
        if head.closed.compare_exchange(0, 1, SeqCst, SeqCst).is_err() {
            return Err(Error::Closed);
        }
        let _ = control::export::unexport(&self.task.control, self.task.id, NAME);
        futex::wake(&head.closed);
        self.turn.take(None);
        loop {
            // A task that holds us from now on sees that the queue is closed.
            let sending = self.task.is_held(queue::SEND);
            self.refuse_all();
            if !sending {
                break;
            }
            std::thread::sleep(NAP);
        }
        self.turn.give();
        Ok(())
    }

    /// Answers all requests in the queue as cancelled. The caller has the turn.
    fn refuse_all(&self) {
        let mut room = Room::default();
        // SAFETY: the caller has the turn, so no other thread uses the inbox.
        let inbox = unsafe { &mut *self.inbox.get() };
        while let Ok(Some(arrived)) =
            inbox.receive(Some(Instant::now()), |ticket| self.is_dead(ticket))
        {
            let (requester, message) = room.copy(&arrived);
            drop(arrived);
            self.work(requester, message, |_| CANCELLED);
        }
    }
}

/// The answer to a request that was not started.
pub(crate) const CANCELLED: i64 = -(libc::ECANCELED as i64);
