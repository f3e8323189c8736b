//! Buffered sends: a message of 3 to 64 KiB to a rank that computes does not wait for it.
//!
//! MPIs begin to wait for the receiver at 1 to 16 KB: it reads the message from the sender's
//! memory when it calls the MPI the next time. MPI's standard lets MPI_Send buffer the message
//! instead. So if sends to a peer have been late, the library copies the message, starts a send of
//! the copy, and returns. The receiver finds the message as before, and reads the copy, for which
//! it does not need the sender. MPI_Isend returns a request that is done (that of a message to
//! MPI_PROC_NULL).
//!
//! Only messages to tasks of this space are buffered: between nodes the MPI may need the sender
//! once more. If all buffers are in use, sends wait as without this library. MPI_Finalize waits for
//! the started ones.

use std::ffi::c_int;
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use sync::copy::{copy, copy_slice};

use crate::abi::{Handle, SUCCESS};
use crate::late::Lateness;
use crate::mpi::Mpi;
use crate::registry;
use crate::wait::ticks;

/// Sizes of messages that may be buffered, in bytes.
pub const SIZES: RangeInclusive<u64> = 3 << 10..=64 << 10;
/// Limits of all buffers of a rank.
const BUFFERS_MAX: usize = 64;
const BYTES_MAX: usize = 2 << 20;
/// Number of buffers in use that are tested for each message.
const TESTS: usize = 4;
/// Peers whose lateness is known.
const PEERS_MAX: usize = 64;

/// The arguments of a send.
#[derive(Clone, Copy)]
pub struct Message {
    pub from: *const u8,
    pub count: c_int,
    pub kind: Handle,
    pub to: c_int,
    pub tag: c_int,
    pub comm: Handle,
}

/// A copy of a message, and the request of its send.
struct Buffer {
    bytes: Vec<u8>,
    /// 0 if no send uses it.
    request: Handle,
}

/// A peer, and the lateness of sends to it.
struct Peer {
    comm: Handle,
    to: c_int,
    lateness: Lateness,
}

struct State {
    buffers: Vec<Buffer>,
    /// The buffer to test first.
    next: usize,
    peers: Vec<Peer>,
    /// The peer to forget first.
    oldest: usize,
    /// The last started send that is not buffered: its request, receiver and size.
    watched: Option<(Handle, Message, u64)>,
}

// SAFETY: the address in `watched` is never read through.
unsafe impl Send for State {}

static STATE: Mutex<State> =
    Mutex::new(State { buffers: Vec::new(), next: 0, peers: Vec::new(), oldest: 0, watched: None });

/// Number of peers to which messages are buffered.
static LATE_PEERS: AtomicUsize = AtomicUsize::new(0);
/// The request in `watched`.
static WATCHED: AtomicUsize = AtomicUsize::new(0);

/// Returns the state; `None` while another thread uses it. Then sends are not buffered.
fn state() -> Option<MutexGuard<'static, State>> {
    STATE.try_lock().ok()
}

/// Returns the time in ticks from which a send of this size is late: many times a copy, so that it
/// waits neither for a cache line nor for the receiver's own copy.
fn late_after(bytes: u64) -> u64 {
    /// Size of the measured copy, and the factor.
    const MEASURED: usize = 16 << 10;
    const TIMES: u64 = 8;
    static COPY: OnceLock<u64> = OnceLock::new();
    let copy = *COPY.get_or_init(|| {
        let (from, mut to) = (vec![1_u8; MEASURED], vec![0_u8; MEASURED]);
        let time = |_| {
            let begin = ticks();
            copy_slice(black_box(&from), black_box(&mut to));
            ticks().wrapping_sub(begin)
        };
        (0..5).map(time).min().unwrap_or(0)
    });
    TIMES * (copy + copy * bytes / MEASURED as u64)
}

/// Buffers a message to a peer that is usually late. Returns the result of the send; `None` if it
/// was not buffered.
///
/// # Safety
/// The arguments are those of MPI_Send.
#[inline]
pub unsafe fn send(mpi: &Mpi, message: &Message, bytes: u64) -> Option<c_int> {
    if LATE_PEERS.load(Relaxed) == 0 {
        return None;
    }
    // SAFETY: this function has the same contract.
    unsafe { send_buffered(mpi, message, bytes) }
}

/// # Safety
/// As of `send`.
#[cold]
unsafe fn send_buffered(mpi: &Mpi, message: &Message, bytes: u64) -> Option<c_int> {
    // The given size is a guess, and elements of other types have gaps.
    let size = mpi.types.named(mpi.handle(message.kind))?.size;
    let size = size.checked_mul(message.count.try_into().ok()?)?;
    if size as u64 != bytes {
        return None;
    }
    let mut state = state()?;
    if !state.peer(mpi, message)?.lateness.is_buffered() {
        return None;
    }
    let buffer = state.buffer(mpi, size.next_power_of_two())?;
    // SAFETY: the caller's message has this size, and the buffer has room for it. MPI passes the
    // request into a variable, and does not change the buffer.
    unsafe {
        copy(message.from, buffer.bytes.as_mut_ptr(), size);
        let Message { count, kind, to, tag, comm, .. } = *message;
        let from = buffer.bytes.as_ptr();
        let mut request: Handle = 0;
        let code = (mpi.isend)(from, count, kind, to, tag, comm, &mut request);
        if code == SUCCESS {
            buffer.request = request;
        }
        Some(code)
    }
}

/// Starts a send as `send`, and writes a request that is done.
///
/// # Safety
/// As of `send`; `request` is an argument of MPI_Isend.
#[inline]
pub unsafe fn start(
    mpi: &Mpi,
    message: &Message,
    bytes: u64,
    request: *mut Handle,
) -> Option<c_int> {
    // SAFETY: this function has the same contract.
    let code = unsafe { send(mpi, message, bytes) }?;
    if code != SUCCESS {
        return Some(code);
    }
    let Message { from, kind, tag, comm, .. } = *message;
    // SAFETY: nothing is sent. The request is the caller's variable.
    Some(unsafe { (mpi.isend)(from, 0, kind, mpi.proc_null(), tag, comm, request) })
}

/// Notes that a send of this size has ended, which was not buffered and took so many ticks.
#[inline]
pub fn ended(mpi: &Mpi, message: &Message, bytes: u64, ticks: u64) {
    let is_late = ticks > late_after(bytes);
    if is_late || LATE_PEERS.load(Relaxed) != 0 {
        note(mpi, message, is_late);
    }
}

#[cold]
fn note(mpi: &Mpi, message: &Message, is_late: bool) {
    let Some(mut state) = state() else { return };
    // Messages to other ranks are not buffered. The handle of a known peer's communicator may have
    // become that of another one.
    let is_late = is_late && registry::is_task(mpi, message.comm, message.to);
    if is_late && state.peer(mpi, message).is_none() {
        state.add(mpi, message);
    }
    let Some(peer) = state.peer(mpi, message) else { return };
    let before = peer.lateness.is_on();
    peer.lateness.record(is_late);
    match (before, peer.lateness.is_on()) {
        (false, true) => LATE_PEERS.fetch_add(1, Relaxed),
        (true, false) => LATE_PEERS.fetch_sub(1, Relaxed),
        _ => 0,
    };
}

/// Notes the start of a send that is not buffered. Its request comes to MPI_Wait.
#[inline]
pub fn watch(request: Handle, message: &Message, bytes: u64) {
    let Some(mut state) = state() else { return };
    state.watched = Some((request, *message, bytes));
    WATCHED.store(request, Relaxed);
}

/// Returns true if this request is that of the last such send.
#[inline]
pub fn is_watched(request: Handle) -> bool {
    request != 0 && request == WATCHED.load(Relaxed)
}

/// Notes that the wait for the last such send took so many ticks.
#[cold]
pub fn waited(mpi: &Mpi, ticks: u64) {
    WATCHED.store(0, Relaxed);
    let watched = state().and_then(|mut state| state.watched.take());
    if let Some((_, message, bytes)) = watched {
        ended(mpi, &message, bytes, ticks);
    }
}

/// Waits for all buffered sends.
pub fn finish(mpi: &Mpi) {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    for buffer in std::mem::take(&mut state.buffers).iter_mut().filter(|it| it.request != 0) {
        // SAFETY: the request is active, and the status is MPI_STATUS_IGNORE.
        unsafe { (mpi.wait)(&mut buffer.request, mpi.status_ignore()) };
    }
}

impl State {
    fn peer(&mut self, mpi: &Mpi, message: &Message) -> Option<&mut Peer> {
        let comm = mpi.handle(message.comm);
        self.peers.iter_mut().find(|peer| peer.comm == comm && peer.to == message.to)
    }

    fn add(&mut self, mpi: &Mpi, message: &Message) {
        let lateness = Lateness::default();
        let peer = Peer { comm: mpi.handle(message.comm), to: message.to, lateness };
        if self.peers.len() < PEERS_MAX {
            self.peers.push(peer);
            return;
        }
        if self.peers[self.oldest].lateness.is_on() {
            LATE_PEERS.fetch_sub(1, Relaxed);
        }
        self.peers[self.oldest] = peer;
        self.oldest = (self.oldest + 1) % PEERS_MAX;
    }

    /// Returns a buffer of this size that no send uses.
    fn buffer(&mut self, mpi: &Mpi, size: usize) -> Option<&mut Buffer> {
        for _ in 0..TESTS.min(self.buffers.len()) {
            let number = self.next;
            self.next = (number + 1) % self.buffers.len();
            if self.buffers[number].is_free(mpi) {
                let others = self.bytes() - self.buffers[number].bytes.len();
                let buffer = &mut self.buffers[number];
                return buffer.grow(size, BYTES_MAX.saturating_sub(others)).then_some(buffer);
            }
        }
        if self.buffers.len() == BUFFERS_MAX {
            return None;
        }
        let left = BYTES_MAX.saturating_sub(self.bytes());
        let mut buffer = Buffer { bytes: Vec::new(), request: 0 };
        if !buffer.grow(size, left) {
            return None;
        }
        self.buffers.push(buffer);
        self.buffers.last_mut()
    }

    /// Returns the size of all buffers.
    fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.bytes.len()).sum()
    }
}

impl Buffer {
    /// Makes the buffer at least this large. Returns false if that exceeds the limit.
    fn grow(&mut self, size: usize, limit: usize) -> bool {
        if self.bytes.len() < size && size <= limit {
            self.bytes = vec![0; size];
        }
        self.bytes.len() >= size
    }

    /// Returns true if no send uses the buffer any more.
    fn is_free(&mut self, mpi: &Mpi) -> bool {
        if self.request == 0 {
            return true;
        }
        let mut is_done: c_int = 0;
        // SAFETY: the request is active, and the status is MPI_STATUS_IGNORE.
        let code = unsafe { (mpi.test)(&mut self.request, &mut is_done, mpi.status_ignore()) };
        if code != SUCCESS || is_done != 0 {
            self.request = 0;
        }
        self.request == 0
    }
}
