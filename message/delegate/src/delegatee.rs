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

/// Operations have numbers below this; the last [`READY_MADE`] are `io`'s.
pub const OPERATIONS: u32 = 256 + READY_MADE;
/// How many operations are ready made.
pub const READY_MADE: u32 = 4;

/// What a delegatee does for a requester. The result is not negative.
pub type Operation = Box<dyn Fn(&Job<'_>) -> Result<i64, Errno> + Send + Sync>;

/// How long to wait for somebody who will not be long.
const NAP: Duration = Duration::from_micros(100);
/// How often to wait for word that a requester has begun: a second or two.
const WAITS_MAX: u32 = 10_000;

/// Room for a request out of the queue, so aligned that its payload is, too. A small one
/// needs no memory of its own.
#[repr(C, align(16))]
#[derive(Debug, Default)]
struct Room {
    small: [u64; 7],
    large: Vec<u64>,
}

impl Room {
    /// Who asks, and what.
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
        // SAFETY: integers, as bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(words))
        };
        arrived.read(0, &mut bytes[..length]);
        (header.source, &bytes[..length])
    }
}

/// A request, while it is worked on. The requester's memory stays as long. Who cannot answer
/// before the operation returns keeps it ([`Job::keep`]).
#[derive(Debug)]
pub struct Job<'a> {
    /// Who asks.
    pub requester: Identity,
    /// What for.
    pub operation: u32,
    /// What it has sent along.
    pub payload: &'a [u8],
    /// Its memory.
    pub memory: Memory,
    pub(crate) record: &'a Record,
    pub(crate) task: ThisTask,
    /// It was kept: somebody else answers it (`kept`).
    pub(crate) handed_on: AtomicBool,
}

impl Job<'_> {
    /// Whether nobody wants the result any more: the requester has cancelled the request, or
    /// has ended.
    pub fn is_cancelled(&self) -> bool {
        self.record.cancel.load(Relaxed) != 0 || !self.task.control.is_living(self.requester)
    }
}

/// A task that serves requests. There is one queue a task, made when it is first opened.
pub struct Delegatee {
    task: ThisTask,
    queue: Queue,
    /// Whose turn it is to take a request out of the queue.
    turn: Turn,
    inbox: UnsafeCell<Inbox>,
    operations: [AtomicPtr<Operation>; OPERATIONS as usize],
}

// SAFETY: the inbox is used by who has the turn.
unsafe impl Sync for Delegatee {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Delegatee {}

impl fmt::Debug for Delegatee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegatee").field("task", &self.task.id).finish_non_exhaustive()
    }
}

static DELEGATEE: OnceLock<Delegatee> = OnceLock::new();

/// The calling task, if it has ever served requests.
#[inline]
pub fn this() -> Result<&'static Delegatee, Error> {
    task::this()?;
    DELEGATEE.get().ok_or(Error::Closed)
}

/// Makes the calling task known as a delegatee. Its queue has room for so many small
/// requests; when it is opened again, as many as the first time. `prepare` comes before others
/// can find it.
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
    let (address, size) = delegatee.queue.place();
    let export = || {
        let known = control::export::export(&task.control, task.id, NAME, address, size);
        known.map_err(|error| Error::System(error.errno()))
    };
    let known = prepare(delegatee).and_then(|()| export());
    known.inspect_err(|_| head.closed.store(1, SeqCst))?;
    Ok(delegatee)
}

impl Delegatee {
    /// What requesters read.
    pub(crate) fn head(&self) -> &Head {
        self.queue.head()
    }

    /// Which task it is.
    pub(crate) fn task(&self) -> ThisTask {
        self.task
    }

    /// Does this for requests of that number from now on; with `None` refuses them.
    pub fn register(&self, number: u32, operation: Option<Operation>) -> Result<(), Error> {
        let place = self.operations.get(number as usize);
        let place = place.ok_or(Error::Invalid("the number of the operation"))?;
        let new = operation.map_or(ptr::null_mut(), |of| Box::into_raw(Box::new(of)));
        // What was there stays in memory: a thread may be in it.
        place.swap(new, AcqRel);
        Ok(())
    }

    /// Serves one request; waits for one until the given time. Whether there was one.
    /// Error: closed, meanwhile or before.
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

    /// Takes a request out of the queue: who asks, and what. The caller has the turn.
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
        // SAFETY: the caller has the turn, and nobody else uses the inbox.
        let inbox = unsafe { &mut *self.inbox.get() };
        let arrived = inbox.receive_while(closed, 0, until, |ticket| self.is_dead(ticket));
        let Some(arrived) = arrived.map_err(|_| Error::Corrupt)? else { return Ok(None) };
        Ok(Some(room.copy(&arrived)))
    }

    /// Whether the task that sends by this ticket has ended (`ticket`).
    fn is_dead(&self, ticket: u32) -> bool {
        let now = self.task.control.identity(ticket >> 16);
        let whom = Identity { id: ticket >> 16, generation: ticket & 0xffff };
        now.is_none_or(|now| queue::ticket(now) != ticket)
            && !self.task.control.is_to_come(whom, 16)
    }

    /// Works on a request, while its requester is held, and answers, unless the request is
    /// kept. What comes of those who have ended, and what no requester sends, is dropped.
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
                // Not for ever: nobody may have begun it.
                Err(Attempt::Gone)
                    if waits < WAITS_MAX && self.task.control.is_to_come(requester, 32) =>
                {
                    waits += 1;
                    std::thread::sleep(NAP);
                }
                Err(Attempt::Gone) => return,
                Err(_) => std::thread::sleep(NAP), // as many threads as there are words
            }
        };
        // SAFETY: the requester, which we hold, keeps its record until we have answered.
        let record = unsafe { &*(record as *const Record) };
        let handed_on = AtomicBool::new(false);
        let task = self.task;
        let job = Job { requester, operation, payload, memory, record, task, handed_on };
        let result = by(&job);
        if !job.handed_on.load(Relaxed) {
            record.give(result);
        }
        drop(hold);
    }

    /// Does what was asked for.
    #[inline]
    fn run(&self, job: &Job<'_>) -> i64 {
        if self.queue.head().cancels.load(Acquire) != 0 && job.is_cancelled() {
            return CANCELLED;
        }
        let operation = self.operations.get(job.operation as usize);
        let operation = operation.map_or(ptr::null_mut(), |place| place.load(Acquire));
        // SAFETY: what was registered stays in memory.
        let result = match unsafe { operation.as_ref() } {
            Some(operation) => operation(job),
            None => Err(Errno::NOSYS),
        };
        result.unwrap_or_else(|errno| -i64::from(errno.raw_os_error()))
    }

    /// Serves no more. Requests that have not been begun are answered, as cancelled; those
    /// that other threads work on go on. Waits for tasks that are just sending.
    pub fn close(&self) -> Result<(), Error> {
        let head = self.queue.head();
        if head.closed.compare_exchange(0, 1, SeqCst, SeqCst).is_err() {
            return Err(Error::Closed);
        }
        let _ = control::export::unexport(&self.task.control, self.task.id, NAME);
        futex::wake(&head.closed);
        self.turn.take(None);
        loop {
            // Who begins to hold us from now on sees that we have closed.
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

    /// Answers all that is in the queue. The caller has the turn.
    fn refuse_all(&self) {
        let mut room = Room::default();
        // SAFETY: as the caller says.
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

/// The answer to a request that was not begun.
pub(crate) const CANCELLED: i64 = -(libc::ECANCELED as i64);
