//! The counts of this rank, from the end of MPI_Init on.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use traffic::{Tally, class};

use crate::mpi::{Mpi, Word, mpi};

/// A persistent request: its size, and the receiver in MPI_COMM_WORLD if it sends a message.
#[derive(Clone, Copy)]
struct Persistent {
    to: Option<c_int>,
    bytes: u64,
}

/// All counts.
#[derive(Default)]
pub struct Counts {
    /// Calls by function and class of sizes.
    pub calls: HashMap<(&'static str, u8), Tally>,
    /// Messages by receiver and class of sizes. The receiver is -1 if it is of another job.
    pub messages: HashMap<(c_int, u8), Tally>,
    /// The ranks in MPI_COMM_WORLD of the ranks of other communicators.
    ranks: HashMap<Word, Vec<c_int>>,
    /// Persistent requests.
    persistent: HashMap<Word, Persistent>,
}

static STARTED: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// A function of MPI runs in this thread. Calls that it makes are the MPI's own.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Returns the counts.
pub fn counts() -> MutexGuard<'static, Counts> {
    static COUNTS: OnceLock<Mutex<Counts>> = OnceLock::new();
    COUNTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to count: MPI_Init has returned.
pub fn start() {
    STARTED.get_or_init(Instant::now);
}

/// Returns the time since MPI_Init, in nanoseconds.
pub fn elapsed_ns() -> u64 {
    STARTED.get().map_or(0, |start| start.elapsed().as_nanos() as u64)
}

/// The outermost call of a function of MPI in this thread.
pub struct Outermost(Option<Instant>);

impl Outermost {
    /// Begins a call. `None` if this thread is in another.
    pub fn begin() -> Option<Self> {
        if IS_INSIDE.replace(true) {
            return None;
        }
        Some(Self(STARTED.get().map(|_| Instant::now())))
    }

    /// Ends the time of the call. `None` if MPI_Init had not returned yet.
    pub fn time_ns(&self) -> Option<u64> {
        Some(self.0?.elapsed().as_nanos() as u64)
    }
}

impl Drop for Outermost {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

impl Counts {
    /// Counts a call. A call without a size is in class 0.
    pub fn call(&mut self, function: &'static str, bytes: u64, time_ns: u64) {
        let tally = self.calls.entry((function, class(bytes))).or_default();
        tally.add(Tally { count: 1, bytes, time_ns });
    }

    /// Counts a message to a rank of a communicator. Messages to MPI_PROC_NULL are none.
    pub fn message(&mut self, mpi: &Mpi, to: c_int, comm: Word, bytes: u64) {
        if let Some(to) = self.receiver(mpi, to, comm) {
            self.sent(to, bytes);
        }
    }

    fn sent(&mut self, to: c_int, bytes: u64) {
        let tally = self.messages.entry((to, class(bytes))).or_default();
        tally.add(Tally { count: 1, bytes, time_ns: 0 });
    }

    /// Returns the receiver's rank in MPI_COMM_WORLD.
    fn receiver(&mut self, mpi: &Mpi, to: c_int, comm: Word) -> Option<c_int> {
        let index = usize::try_from(to).ok()?;
        if mpi.is_world(comm) {
            return Some(to);
        }
        let ranks = self.ranks.entry(mpi.handle(comm)).or_insert_with(|| mpi.world_ranks(comm));
        Some(ranks.get(index).copied().unwrap_or(-1))
    }

    /// Forgets a communicator: its handle may name another one later.
    pub fn forget(&mut self, comm: Word) {
        self.ranks.remove(&comm);
    }

    /// Keeps the size of a new persistent request that sends no message to one rank.
    pub fn keep(&mut self, request: Word, bytes: u64) {
        self.persistent.insert(request, Persistent { to: None, bytes });
    }

    /// Keeps the message of a new persistent request.
    pub fn keep_message(&mut self, mpi: &Mpi, request: Word, to: c_int, comm: Word, bytes: u64) {
        if let to @ Some(_) = self.receiver(mpi, to, comm) {
            self.persistent.insert(request, Persistent { to, bytes });
        }
    }

    /// Counts the message of a persistent request that was started. Returns the request's size.
    pub fn started(&mut self, request: Word) -> u64 {
        let Some(&Persistent { to, bytes }) = self.persistent.get(&request) else { return 0 };
        if let Some(to) = to {
            self.sent(to, bytes);
        }
        bytes
    }

    /// Forgets a request that was freed.
    pub fn freed(&mut self, request: Word) {
        self.persistent.remove(&request);
    }
}

/// Returns the MPI, for the counts of a call that has succeeded.
pub fn of_success(result: c_int) -> Option<&'static Mpi> {
    if result == crate::mpi::SUCCESS { mpi() } else { None }
}
