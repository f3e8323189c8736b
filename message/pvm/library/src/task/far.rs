//! Tasks of other hosts. Messages to them go through the daemons until there is a direct
//! way: the daemons say where the other task is on the fabric, and both connect. From then on
//! messages go from task to task; their numbers keep them in order when the way changes.
//!
//! The fabric is opened when first it is needed, for UCX takes its time and memory. A task
//! that waits sleeps on its receive buffer as ever; a thread watches the fabric's descriptor
//! and rings.

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

/// Most bytes of messages that wait to be sent. Who sends more waits with them.
const PENDING_MAX: usize = 64 << 20;
/// How long the end of a task waits for what it has sent.
const FAREWELL: Duration = Duration::from_secs(5);

/// How messages go to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through the daemons; they were asked by this number where the task is.
    Asked(u32),
    /// Through the daemons, until the connection stands.
    Connecting(Peer),
    /// Directly.
    Open(Peer),
    /// Through the daemons: there is no other.
    None,
}

/// A message of a task: envelope and lengths of fragments, and its data.
#[derive(Debug)]
pub struct Came {
    /// Who has sent it.
    pub from: Tid,
    /// Envelope and lengths, or nothing if they are in front of the data.
    pub head: Vec<u8>,
    /// The rest.
    pub data: Vec<u8>,
}

/// The ways to tasks of other hosts.
pub struct Far {
    fabric: Option<Fabric>,
    /// Why there is no fabric, once that is known.
    failed: bool,
    ways: HashMap<Tid, Way>,
    /// How many of them are asked for.
    asked: usize,
    /// How often a wait polls before it sleeps.
    pub policy: WaitPolicy,
    /// Lengths of what waits to be sent.
    pending: HashMap<SendId, usize>,
    pending_bytes: usize,
    watcher: Option<Watcher>,
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Far").field("ways", &self.ways).finish_non_exhaustive()
    }
}

impl Far {
    /// No ways yet.
    pub fn new() -> Far {
        Far {
            fabric: None,
            failed: false,
            ways: HashMap::new(),
            asked: 0,
            policy: WaitPolicy::for_network(),
            pending: HashMap::new(),
            pending_bytes: 0,
            watcher: None,
        }
    }

    /// Whether there is something to look after.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.fabric.is_some()
    }

    /// Opens the fabric, and says where others find this task. Nothing if that was done, or
    /// cannot be: then all goes through the daemons.
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

    /// Whether the daemons should be asked where this task is.
    pub fn is_unknown(&self, tid: Tid) -> bool {
        !self.failed && !self.ways.contains_key(&tid)
    }

    /// The daemons were asked where this task is, by this number.
    pub fn asked(&mut self, tid: Tid, id: u32) {
        self.ways.insert(tid, Way::Asked(id));
        self.asked += 1;
    }

    /// Who was asked for, by which number. Mostly nobody.
    pub fn questions(&self) -> Vec<(Tid, u32)> {
        if self.asked == 0 {
            return Vec::new();
        }
        let asked = |(tid, way): (&Tid, &Way)| match way {
            Way::Asked(id) => Some((*tid, *id)),
            _ => None,
        };
        self.ways.iter().filter_map(asked).collect()
    }

    /// The daemons have answered.
    pub fn answered(&mut self, tid: Tid, address: Option<&[u8]>) {
        self.asked = self.asked.saturating_sub(1);
        if matches!(self.ways.get(&tid), Some(Way::Open(_))) {
            return; // it has connected to us meanwhile
        }
        let connect = |fabric: &mut Fabric| fabric.connect(address?).ok();
        let peer = self.fabric.as_mut().and_then(connect);
        self.ways.insert(tid, peer.map_or(Way::None, Way::Connecting));
    }

    /// Sends directly, if there is a way. `table` are lengths of fragments. Whether it went.
    pub fn send(&mut self, to: Tid, head: &[&[u8]], data: impl FnOnce() -> Vec<u8>) -> bool {
        let Some(Way::Open(peer)) = self.ways.get(&to) else { return false };
        let Some(fabric) = &mut self.fabric else { return false };
        let head = head.concat();
        let (head, data) = match head.len() <= USER_HEADER_BYTES_MAX {
            true => (head, data()),
            // Many fragments: all of it is payload.
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
                self.ways.insert(to, Way::None);
                false
            }
        }
    }

    /// Whether so much waits to be sent that one should wait, too.
    pub fn is_full(&self) -> bool {
        self.pending_bytes > PENDING_MAX
    }

    /// The next message, if one has come.
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
                let way = self.ways.entry(tid).or_insert(Way::None);
                if !matches!(way, Way::Open(_)) {
                    *way = Way::Open(peer);
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
                match self.ways.get(&tid) {
                    Some(Way::Open(open)) if *open == peer => {
                        self.ways.insert(tid, Way::None);
                    }
                    Some(Way::Connecting(begun)) if *begun == peer => {
                        // It did not answer in time: it may be busy. Asked again, later.
                        self.ways.remove(&tid);
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// There is no such task any more.
    pub fn forget(&mut self, fits: impl Fn(Tid) -> bool) {
        self.ways.retain(|tid, way| matches!(way, Way::Asked(_)) || !fits(*tid));
    }

    /// Before one sleeps: whether one may. The bell then rings when something comes.
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

    /// Sends what waits, and takes leave of the others, for a while at most. Also of those to
    /// whom a way has only begun: UCX before 1.14 aborts a process whose peer ends in the middle
    /// of that (its pull request 8175).
    pub fn close(&mut self) {
        let end = Instant::now() + FAREWELL;
        let Some(fabric) = &mut self.fabric else { return };
        let mut open: Vec<Peer> = Vec::new();
        for way in self.ways.values() {
            if let Way::Open(peer) | Way::Connecting(peer) = way {
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
        self.ways.clear();
    }

    /// Forgets all in a forked child, whose parent's connections these are.
    pub fn abandon(mut self) {
        std::mem::forget(self.fabric.take());
        std::mem::forget(self.watcher.take());
    }
}

/// A thread that waits on the fabric's descriptor while the task sleeps.
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

    /// Rings when the descriptor is readable, once.
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
