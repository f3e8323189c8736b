//! Tasks of other hosts. Messages to them go through the daemons until a direct route exists: the
//! daemons pass on the fabric addresses, and both tasks connect. From then on messages go from
//! task to task. Sequence numbers keep them in order when the route changes.
//!
//! The fabric is opened at the first use, since UCX takes time and memory. A waiting task still
//! sleeps on its receive buffer; a thread polls the fabric's descriptor and wakes it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fcp::bell::Bell;
use net::event::{Event, Peer, SendId, Sending};
use net::fabric::Fabric;
use net::secret::Secret;
use net::wire::USER_HEADER_BYTES_MAX;
use pvm::tid::Tid;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sync::wait::WaitPolicy;

/// Most bytes of messages in flight. A sender that exceeds them waits.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// Time limit at a task's end for the delivery of its messages.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The route of messages to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// Through the daemons; the request with this number asks them for the task's address.
    Asked(u32),
    /// Through the daemons, until the connection is established.
    Connecting(Peer),
    /// Directly.
    Open(Peer),
    /// Through the daemons, since no direct route is possible.
    None,
}

/// A message of a task: envelope and lengths of fragments, and its data.
#[derive(Debug)]
pub struct Came {
    /// Its sender.
    pub from: Tid,
    /// Envelope and fragment lengths; empty if they precede the data.
    pub head: Vec<u8>,
    /// The data.
    pub data: Vec<u8>,
}

/// The routes to tasks of other hosts.
pub struct Far {
    fabric: Option<Fabric>,
    /// The fabric could not be opened.
    failed: bool,
    routes: HashMap<Tid, Route>,
    /// Number of routes that wait for an address.
    asked: usize,
    /// How its waits spin.
    pub policy: WaitPolicy,
    /// Bytes of each message in flight.
    pending: HashMap<SendId, usize>,
    pending_bytes: usize,
    watcher: Option<Watcher>,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Far").field("routes", &self.routes).finish_non_exhaustive()
    }
}

impl Far {
    /// Returns an empty set.
    pub fn new() -> Far {
        Far {
            fabric: None,
            failed: false,
            routes: HashMap::new(),
            asked: 0,
            policy: WaitPolicy::default(),
            pending: HashMap::new(),
            pending_bytes: 0,
            watcher: None,
        }
    }

    /// Returns true if the fabric needs polling.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.fabric.is_some()
    }

    /// Opens the fabric, and returns this task's address. Returns `None` if the fabric is open
    /// already, or cannot be opened: then all messages go through the daemons.
    pub fn open(&mut self, own: Tid, secret: &[u8; 32], bell: Bell) -> Option<Vec<u8>> {
        if self.fabric.is_some() || self.failed {
            return None;
        }
        let opened = Fabric::new(own.0.into(), &Secret::new(*secret));
        self.failed = true;
        let fabric = opened.ok()?;
        self.watcher = Some(Watcher::new(fabric.descriptor().try_clone_to_owned().ok()?, bell)?);
        self.failed = false;
        let address = fabric.address().to_vec();
        self.fabric = Some(fabric);
        Some(address)
    }

    /// Returns true if the daemons should be asked for the address of this task.
    pub fn is_unknown(&self, tid: Tid) -> bool {
        !self.failed && !self.routes.contains_key(&tid)
    }

    /// Records that the request with this number asks for the address of this task.
    pub fn asked(&mut self, tid: Tid, id: u32) {
        self.routes.insert(tid, Route::Asked(id));
        self.asked += 1;
    }

    /// Returns the tasks whose address was requested, and the numbers of the requests.
    pub fn address_requests(&self) -> Vec<(Tid, u32)> {
        if self.asked == 0 {
            return Vec::new();
        }
        let asked = |(tid, route): (&Tid, &Route)| match route {
            Route::Asked(id) => Some((*tid, *id)),
            _ => None,
        };
        self.routes.iter().filter_map(asked).collect()
    }

    /// Processes the daemons' answer.
    pub fn answered(&mut self, tid: Tid, address: Option<&[u8]>) {
        self.asked = self.asked.saturating_sub(1);
        if matches!(self.routes.get(&tid), Some(Route::Open(_))) {
            return; // it has connected to us meanwhile
        }
        let connect = |fabric: &mut Fabric| fabric.connect(address?).ok();
        let peer = self.fabric.as_mut().and_then(connect);
        self.routes.insert(tid, peer.map_or(Route::None, Route::Connecting));
    }

    /// Sends a message directly. Returns false if there is no direct route.
    pub fn send(&mut self, to: Tid, head: &[&[u8]], data: impl FnOnce() -> Vec<u8>) -> bool {
        let Some(Route::Open(peer)) = self.routes.get(&to) else { return false };
        let Some(fabric) = &mut self.fabric else { return false };
        let head = head.concat();
        let (head, data) = match head.len() <= USER_HEADER_BYTES_MAX {
            true => (head, data()),
            // The head of many fragments exceeds a header, so it goes in the payload.
            false => (Vec::new(), [head, data()].concat()),
        };
        let size = data.len();
        match fabric.send(*peer, &head, data) {
            Ok(Sending::Done) => true,
            Ok(Sending::Pending(id)) => {
                self.pending.insert(id, size);
                self.pending_bytes += size;
                true
            }
            Err(_) => {
                self.routes.insert(to, Route::None);
                false
            }
        }
    }

    /// Returns true if a sender should wait, since too many bytes are in flight.
    pub fn is_full(&self) -> bool {
        self.pending_bytes > PENDING_BYTES_MAX
    }

    /// Returns the next message, if one has arrived.
    #[inline]
    pub fn poll(&mut self) -> Option<Came> {
        loop {
            let event = self.fabric.as_mut()?.poll()?;
            if let Some(came) = self.take(event) {
                return Some(came);
            }
        }
    }

    fn take(&mut self, event: Event) -> Option<Came> {
        let tid = |peer: Peer| u32::try_from(peer.id).map(Tid).ok().filter(|tid| tid.is_task());
        match event {
            Event::Connected(peer) => {
                let tid = tid(peer)?;
                let route = self.routes.entry(tid).or_insert(Route::None);
                if !matches!(route, Route::Open(_)) {
                    *route = Route::Open(peer);
                }
            }
            Event::Message { from, header, payload } => {
                return Some(Came { from: tid(from)?, head: header, data: payload });
            }
            Event::Placed { .. } => {}
            Event::Sent(id) | Event::Unsent(id) => {
                self.pending_bytes -= self.pending.remove(&id).unwrap_or(0);
            }
            Event::Closed(peer) | Event::Lost { peer, .. } => {
                let tid = tid(peer)?;
                match self.routes.get(&tid) {
                    Some(Route::Open(open)) if *open == peer => {
                        self.routes.insert(tid, Route::None);
                    }
                    Some(Route::Connecting(begun)) if *begun == peer => {
                        // It did not answer in time, and may be busy. A later send tries again.
                        self.routes.remove(&tid);
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// Forgets tasks that have ended.
    pub fn forget(&mut self, fits: impl Fn(Tid) -> bool) {
        self.routes.retain(|tid, route| matches!(route, Route::Asked(_)) || !fits(*tid));
    }

    /// Prepares for a sleep. Returns true if the caller may sleep; an event then wakes it.
    pub fn arm(&mut self) -> bool {
        let (Some(fabric), Some(watcher)) = (&mut self.fabric, &self.watcher) else {
            return true;
        };
        let armed = fabric.arm().unwrap_or(false);
        if armed {
            watcher.watch();
        }
        armed
    }

    /// Flushes messages in flight and closes all connections, within a time limit. This includes
    /// connections that are being established: UCX before 1.14 aborts a process whose peer ends
    /// meanwhile (UCX pull request 8175).
    pub fn close(&mut self) {
        let end = Instant::now() + CLOSE_TIMEOUT;
        let Some(fabric) = &mut self.fabric else { return };
        let mut open: Vec<Peer> = Vec::new();
        for route in self.routes.values() {
            if let Route::Open(peer) | Route::Connecting(peer) = route {
                fabric.close(*peer);
                open.push(*peer);
            }
        }
        while !open.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            match fabric.wait(left) {
                Ok(Some(Event::Closed(gone) | Event::Lost { peer: gone, .. })) => {
                    open.retain(|peer| *peer != gone);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.fabric = None;
        self.watcher = None;
        self.routes.clear();
    }

    /// Forgets all connections in a forked child, since they belong to the parent.
    pub fn abandon(mut self) {
        std::mem::forget(self.fabric.take());
        std::mem::forget(self.watcher.take());
    }
}

/// A thread that polls the fabric's descriptor while the task sleeps.
struct Watcher {
    state: Arc<State>,
}

struct State {
    watching: AtomicBool,
    ended: AtomicBool,
    /// Wakes the thread.
    wake: OwnedFd,
}

impl Watcher {
    fn new(descriptor: OwnedFd, bell: Bell) -> Option<Watcher> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC).ok()?;
        let state = Arc::new(State {
            watching: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            wake,
        });
        let shared = state.clone();
        let run = move || shared.run(&descriptor, &bell);
        super::threads::spawn("pvm far", run)?;
        Some(Watcher { state })
    }

    /// Wakes the task once when the descriptor becomes readable.
    fn watch(&self) {
        if !self.state.watching.swap(true, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.state.wake, &1u64.to_ne_bytes());
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.state.wake, &1u64.to_ne_bytes());
    }
}

impl State {
    fn run(&self, descriptor: &OwnedFd, bell: &Bell) {
        loop {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            if !self.watching.load(Ordering::SeqCst) {
                continue;
            }
            let mut fds = [
                PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
            ];
            let _ = poll(&mut fds, None);
            self.watching.store(false, Ordering::SeqCst);
            bell.ring();
        }
    }
}
