//! The agent of a node: a thread of the node's first PE.
//!
//! It serves the requests of PEs of other nodes. Each request names a PE of this node and a range
//! of its symmetric memory, and the agent checks both before it touches the memory. After a change
//! it wakes the PE's threads that wait for one.
//!
//! A thread of the first PE that waits drives the agent meanwhile ([`driver`]): it takes the
//! agent's events itself.
//!
//! It also watches: the PEs of its node by their processes, and the other nodes by a connection to
//! each of their agents. If a PE ends without `shmem_finalize`, its own agent reports that; if it
//! is the first of its node, the agent of the first remaining node does. The others end when they
//! are told, and report the loss themselves only if they are not.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use net::event::{Event, Peer};
use net::fabric::Fabric;
use net::payload::Payload;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use shmem_wire::message::{Action, Area, Op, Outcome, PART_BYTES, Place, Range, Reply, Request};
use sync::futex;
use sync::wait::WaitPolicy;

use crate::block::Block;
use crate::ending;
use crate::fatal::fatal;
use crate::job::{self, Job};
use crate::remote::driver::{self, Drive, Parking};
use crate::remote::far::{ENDERS, Far, LEAVES, LEFT, PES};
use crate::word::Word;

/// Time for the agent that should report a loss to do so, before others do.
const REPORT_AFTER: Duration = Duration::from_millis(700);
/// Time for a request to end to arrive, which is not sent by the connection that is lost.
const REPORT_FIRST_AFTER: Duration = Duration::from_millis(50);
/// Time limit and pause for calls of other agents.
const CONNECT_MAX: Duration = Duration::from_secs(30);
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Time after which the agent's thread looks whether others still drive the agent. If they do not,
/// a message has waited for at most that long.
const PARK: Duration = Duration::from_micros(200);
/// Most events from one look of a waiting thread at its own event to the next.
const EVENTS_MAX: u32 = 16;
/// Polls from one look at the clock to the next.
const POLLS: u32 = 16;
/// The name of the agent in messages, in place of a function's.
const NAME: &str = "network";

/// The agent.
struct Agent {
    job: &'static Job,
    far: &'static Far,
    fabric: Fabric,
    /// The PEs of other nodes that are connected, and the numbers of their last requests.
    clients: HashMap<Peer, u64>,
    agents: Vec<Neighbour>,
    /// The keys of parts of areas, by PE. A key is empty if the network cannot read and write the
    /// part.
    keys: HashMap<(u32, Place), Vec<u8>>,
    /// The loss that is reported at that time, if the job has not ended before.
    loss: Option<(Instant, String)>,
    /// The connections to other agents are closed.
    is_closing: bool,
    since: Instant,
}

/// The thread of the agent.
struct Watch {
    job: &'static Job,
    far: &'static Far,
    agent: &'static Mutex<Agent>,
    /// The processes of the other PEs of this node.
    processes: Vec<(usize, OwnedFd)>,
    policy: WaitPolicy,
    parking: Parking,
}

/// The connection to the agent of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Neighbour {
    /// It is this node, or will call.
    Absent,
    /// It is called at that time.
    Due(Instant),
    Calling(Peer),
    Open(Peer),
    Closed,
}

/// Starts the agent if this PE is the first of its node.
pub fn start(job: &'static Job) -> Result<(), String> {
    let Some(far) = job.far.as_deref() else { return Ok(()) };
    let fabric = far.agent.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut fabric) = fabric else { return Ok(()) };
    // SAFETY: `early` returns symmetric memory of a PE of this node. By the standard's rules nobody
    // uses it until the put is complete.
    unsafe { fabric.place_with(Box::new(early)) };
    let others = (0..far.nodes.n()).map(|node| match node < far.node {
        true => Neighbour::Due(Instant::now()),
        false => Neighbour::Absent,
    });
    let agent = Agent {
        job,
        far,
        fabric,
        clients: HashMap::new(),
        agents: others.collect(),
        keys: HashMap::new(),
        loss: None,
        is_closing: false,
        since: Instant::now(),
    };
    // It lives as long as its thread, which ends with the process.
    let agent: &'static Mutex<Agent> = Box::leak(Box::new(Mutex::new(agent)));
    driver::install(agent, &far.wakes_agent);
    let (policy, parking) = (WaitPolicy::for_nodes(), Parking::default());
    let watch = Watch { job, far, agent, processes: processes(job), policy, parking };
    let builder = std::thread::Builder::new().name("nagaya-shmem-net".to_owned());
    let started = ending::blocked(|| builder.spawn(move || watch.run()));
    started.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Opens the processes of the other PEs of this node. A PE whose process cannot be opened is not
/// watched, except by the launcher.
fn processes(job: &Job) -> Vec<(usize, OwnedFd)> {
    let others = job.peers.iter().filter(|peer| !peer.is_far() && peer.pe != job.me);
    let open = |pe, task: Option<control::Identity>| {
        let pid = job.task?.control.slot(task?.id).pid.load(Acquire);
        let pid = Pid::from_raw(pid.cast_signed())?;
        Some((pe, pidfd_open(pid, PidfdFlags::empty()).ok()?))
    };
    others.filter_map(|peer| open(peer.pe, peer.task)).collect()
}

/// Returns the place of a put that may take effect early.
fn early(from: Peer, header: &[u8], bytes: usize) -> Option<NonNull<u8>> {
    let job = job::try_get()?;
    pe_of(job, from)?;
    let request = Request::parse(header, bytes)?;
    request.early()?;
    let [data, signal] = request.ranges(bytes as u64)?;
    if let Some(signal) = signal {
        memory(job, request.pe, signal)?;
    }
    memory(job, request.pe, data?)
}

/// Returns the number of the PE of another node that has this fabric.
fn pe_of(job: &Job, peer: Peer) -> Option<usize> {
    let pe = usize::try_from(peer.id.checked_sub(PES)?).ok()?;
    job.peers.get(pe).filter(|peer| peer.is_far()).map(|peer| peer.pe)
}

/// Returns the start and the bytes of an area of a PE, if the PE is of this node.
fn extent(job: &Job, pe: u32, area: Area) -> Option<(usize, usize)> {
    let peer = job.peers.get(pe as usize).filter(|peer| !peer.is_far())?;
    Some(match area {
        Area::Heap => (peer.starts[0], job.heap.bytes),
        Area::Data => (peer.starts[1], peer.block.facts.0.data.bytes as usize),
        Area::Block => (std::ptr::from_ref(peer.block).addr(), size_of::<Block>()),
    })
}

/// Returns the address of a range of a PE's memory, if the PE is of this node and has the range.
fn memory(job: &Job, pe: u32, range: Range) -> Option<NonNull<u8>> {
    let (start, bytes) = extent(job, pe, range.start.area)?;
    let at = range.fits(bytes as u64).then(|| start + range.start.offset as usize)?;
    NonNull::new(std::ptr::with_exposed_provenance_mut(at))
}

/// Writes bytes that another PE may poll: a word is written by one store.
unsafe fn store(at: *mut u8, bytes: &[u8]) {
    let is_word = at.addr().is_multiple_of(bytes.len().max(1));
    // SAFETY: the caller guarantees room for the bytes at `at`, which is aligned as checked.
    unsafe {
        match *bytes {
            [a] => (*at.cast::<AtomicU8>()).store(a, Release),
            [a, b] if is_word => {
                (*at.cast::<AtomicU16>()).store(u16::from_ne_bytes([a, b]), Release);
            }
            _ if is_word && bytes.len() == 4 => {
                let word = u32::from_ne_bytes(bytes.try_into().expect("4 bytes"));
                (*at.cast::<AtomicU32>()).store(word, Release);
            }
            _ if is_word && bytes.len() == 8 => {
                let word = u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
                (*at.cast::<AtomicU64>()).store(word, Release);
            }
            _ => std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()),
        }
    }
}

/// Performs an atomic operation. Returns the former value.
unsafe fn perform(at: *mut u8, word: u8, op: Op, value: u64, compare: u64) -> u64 {
    // SAFETY: this function has the contract of the called ones.
    unsafe {
        match word {
            4 => u32::perform(at, op, value as u32, compare as u32).into(),
            _ => u64::perform(at, op, value, compare),
        }
    }
}

fn locked(agent: &Mutex<Agent>) -> MutexGuard<'_, Agent> {
    agent.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    fn run(mut self) -> ! {
        net::slice::shorten();
        loop {
            while self.parking.is_driven() && self.park() {}
            let mut has_events = false;
            for _ in 0..POLLS {
                has_events |= locked(self.agent).take_events();
                std::hint::spin_loop();
            }
            locked(self.agent).tend();
            if has_events {
                self.policy.found();
            } else if self.policy.must_sleep() {
                self.sleep();
            }
        }
    }

    /// Sleeps while others drive the agent. They do not wake this thread when they have found their
    /// event, since the next wait probably follows soon: this thread looks after a while. Returns
    /// false if a thread that drove has gone to sleep.
    fn park(&mut self) -> bool {
        self.parking.begin();
        self.sleep_until(Instant::now() + PARK, None);
        let may_park = self.parking.end();
        if let Ok(mut agent) = self.agent.try_lock() {
            agent.tend();
        }
        may_park
    }

    /// Sleeps until there may be something to do.
    fn sleep(&mut self) {
        let mut agent = locked(self.agent);
        match agent.fabric.arm() {
            Ok(true) => {}
            Ok(false) => return,
            Err(why) => fatal!(NAME, "the network: {why}"),
        }
        // SAFETY: the fabric lives as long as the process, and so does its descriptor.
        let descriptor = unsafe { BorrowedFd::borrow_raw(agent.fabric.descriptor().as_raw_fd()) };
        let due = agent.agents.iter().filter_map(|agent| match agent {
            Neighbour::Due(at) => Some(*at),
            _ => None,
        });
        let due = due.chain(agent.fabric.deadline()).chain(agent.loss.as_ref().map(|loss| loss.0));
        let until = due.fold(Instant::now() + SLEEP_MAX, Instant::min);
        drop(agent);
        self.sleep_until(until, Some(descriptor));
    }

    /// Sleeps until then, or until the agent is woken, a process ends, or the descriptor has
    /// something.
    fn sleep_until(&mut self, until: Instant, descriptor: Option<BorrowedFd<'_>>) {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        let mut fds = vec![PollFd::new(&self.far.wakes_agent, PollFlags::IN)];
        fds.extend(self.processes.iter().map(|(_, process)| PollFd::new(process, PollFlags::IN)));
        let n = fds.len();
        fds.extend(descriptor.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
        let _ = poll(&mut fds, left.as_ref());
        let has_ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if has_ended[0] {
            let _ = rustix::io::read(&self.far.wakes_agent, &mut [0; 8]);
        }
        let mut ended = has_ended[1..n].iter();
        let mut pes = Vec::new();
        self.processes.retain(|(pe, _)| {
            let has_ended = ended.next() == Some(&true);
            pes.extend(has_ended.then_some(*pe));
            !has_ended
        });
        for pe in pes {
            let is_finalized = self.job.peers[pe].block.finalized.0.load(Acquire) != 0;
            if !is_finalized && !is_ending(self.far) {
                fatal!(NAME, "PE {pe} has ended without shmem_finalize");
            }
        }
    }
}

/// The job ends, or this node has left it.
fn is_ending(far: &Far) -> bool {
    ending::is_ending() || far.ending.load(Acquire) != 0
}

impl Drive for Agent {
    fn take_events(&mut self) -> bool {
        for taken in 0..EVENTS_MAX {
            let Some(event) = self.fabric.poll() else { return taken > 0 };
            self.take(event);
        }
        true
    }

    fn arm(&mut self) -> bool {
        // The agent's thread reports an error.
        !matches!(self.fabric.arm(), Ok(false))
    }
}

impl Agent {
    fn is_ending(&self) -> bool {
        is_ending(self.far)
    }

    /// Does what is due.
    fn tend(&mut self) {
        if let Some((at, _)) = &self.loss
            && Instant::now() >= *at
            && let Some((_, line)) = self.loss.take()
            && !self.is_ending()
        {
            fatal!(NAME, "{line}");
        }
        for node in 0..self.far.node {
            if let Neighbour::Due(at) = self.agents[node]
                && Instant::now() >= at
            {
                self.agents[node] = match self.fabric.connect(&self.far.addresses[node]) {
                    Ok(peer) => Neighbour::Calling(peer),
                    Err(why) => fatal!(NAME, "{}: {why}", self.far.names[node]),
                };
            }
        }
        if self.far.ending.load(Acquire) == LEAVES {
            self.leave();
        }
    }

    /// Closes the connections to other agents once all PEs of other nodes have closed theirs.
    fn leave(&mut self) {
        if !self.clients.is_empty() {
            return;
        }
        if !self.is_closing {
            self.is_closing = true;
            for agent in &mut self.agents {
                match *agent {
                    Neighbour::Open(peer) | Neighbour::Calling(peer) => self.fabric.close(peer),
                    _ => *agent = Neighbour::Closed,
                }
            }
        }
        let is_closed =
            |agent: &Neighbour| !matches!(agent, Neighbour::Open(_) | Neighbour::Calling(_));
        if self.agents.iter().all(is_closed) {
            self.far.ending.store(LEFT, Release);
            futex::wake(&self.far.ending);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Message { from, header, payload } => {
                self.request(from, &header, Some(&payload), payload.len())
            }
            Event::Placed { from, header, bytes, .. } => self.request(from, &header, None, bytes),
            Event::Connected(peer) => self.connected(peer),
            Event::Closed(peer) => self.closed(peer),
            Event::Lost { peer, why } => self.lost(peer, &why),
            Event::Sent(_) | Event::Unsent(_) => {}
        }
    }

    fn connected(&mut self, peer: Peer) {
        if pe_of(self.job, peer).is_some() {
            self.clients.insert(peer, 0);
        } else if let Some(agent) = self.agent_of(peer) {
            *agent = Neighbour::Open(peer);
        } else if peer.id < ENDERS {
            self.fabric.abandon(peer);
        }
    }

    fn agent_of(&mut self, peer: Peer) -> Option<&mut Neighbour> {
        let node = usize::try_from(peer.id).ok().filter(|node| *node != self.far.node)?;
        self.agents.get_mut(node)
    }

    fn closed(&mut self, peer: Peer) {
        self.clients.remove(&peer);
        if let Some(agent) = self.agent_of(peer) {
            *agent = Neighbour::Closed;
        }
    }

    fn lost(&mut self, peer: Peer, why: &str) {
        if self.clients.remove(&peer).is_some() {
            let pe = peer.id - PES;
            let line =
                format!("PE {pe} has ended without shmem_finalize, or its node is lost: {why}");
            self.report_later(REPORT_AFTER, line);
            return;
        }
        let (is_early, is_ending) = (self.since.elapsed() < CONNECT_MAX, self.is_ending());
        let Some(agent) = self.agent_of(peer) else { return };
        let before = *agent;
        *agent = Neighbour::Closed;
        match before {
            Neighbour::Calling(_) if is_ending => {}
            // On a busy machine the agent may not have answered in time.
            Neighbour::Calling(_) if is_early => {
                *agent = Neighbour::Due(Instant::now() + CONNECT_PAUSE);
            }
            Neighbour::Calling(it) | Neighbour::Open(it) if it == peer => {
                let node = peer.id as usize;
                let first = (0..).find(|&other| other != node);
                let pause =
                    if first == Some(self.far.node) { REPORT_FIRST_AFTER } else { REPORT_AFTER };
                let pe = self.far.nodes.first(node);
                let line =
                    format!("PE {pe} of {} has ended without shmem_finalize", self.far.names[node]);
                self.report_later(pause, format!("{line}, or the node is lost: {why}"));
            }
            _ => {}
        }
    }

    /// Ends the job after a pause, unless it has ended before.
    fn report_later(&mut self, pause: Duration, line: String) {
        let at = Instant::now() + pause;
        if self.loss.as_ref().is_none_or(|loss| at < loss.0) {
            self.loss = Some((at, line));
        }
    }

    /// Serves a request. A payload that is none is in its place.
    fn request(&mut self, from: Peer, header: &[u8], payload: Option<&[u8]>, bytes: usize) {
        let request = Request::parse(header, bytes);
        if let Some(Request { action: Action::End { status }, .. }) = request
            && from.id >= ENDERS
        {
            return end_node(self.job, status);
        }
        let (job, next) = (self.job, self.clients.get(&from).map(|last| last + 1));
        let served = request.filter(|it| Some(it.sequence) == next).and_then(|request| {
            self.clients.insert(from, request.sequence);
            match request.action {
                Action::Register { at } => self.register(&request, at),
                _ => serve(job, &request, payload),
            }
        });
        let Some(reply) = served else {
            if self.clients.contains_key(&from) && !self.is_ending() {
                let pe = from.id - PES;
                fatal!(NAME, "PE {pe} violates the protocol between nodes");
            }
            return self.fabric.abandon(from);
        };
        if let Some((reply, payload)) = reply {
            // If the PE is gone, that is reported as an event.
            let _ = self.fabric.send(from, &reply.header(), payload);
        }
    }
}

impl Agent {
    /// Replies with the key of a part of a PE's memory, which is registered at the first request.
    fn register(&mut self, request: &Request, at: Place) -> Option<Replied> {
        let (_, bytes) = extent(self.job, request.pe, at.area)?;
        let bytes = (bytes as u64).checked_sub(at.offset)?.min(PART_BYTES);
        let start = memory(self.job, request.pe, Range { start: at, bytes })?;
        let key = self.keys.entry((request.pe, at)).or_insert_with(|| {
            // SAFETY: the memory stays mapped until the process ends: the first PE of a node holds
            // the memory of all. By the standard's rules programs order their accesses.
            let key = unsafe { self.fabric.register(start, bytes as usize) };
            key.filter(|_| bytes > 0).unwrap_or_default()
        });
        let reply = Reply { sequence: request.sequence, result: Outcome::Data };
        Some(Some((reply, key[..].into())))
    }
}

/// Ends the PEs of this node.
fn end_node(job: &Job, status: u8) {
    // This process ends last: its end would be seen as a loss.
    ending::end_neighbours(job, c_int::from(status));
    ending::request_exit(job.block(), status.into());
}

/// A reply and its payload, if the request has one.
type Replied = Option<(Reply, Payload)>;

/// Serves a request on memory of this node. None if it violates the protocol.
fn serve(job: &Job, request: &Request, payload: Option<&[u8]>) -> Option<Replied> {
    let bytes = payload.map_or(0, <[u8]>::len) as u64;
    let sequence = request.sequence;
    let (result, data) = match request.action {
        Action::Flush => (Outcome::Flushed, Payload::EMPTY),
        Action::Register { .. } | Action::End { .. } => return None,
        // A payload in its place was checked before it came.
        Action::Put { .. } | Action::PutSignal { .. } if payload.is_none() => {
            signal(job, request)?;
            return Some(None);
        }
        action => {
            let [range, _] = request.ranges(bytes)?;
            let range = range?;
            let at = memory(job, request.pe, range)?.as_ptr();
            // SAFETY: `memory` has checked the range of this action in symmetric memory of a PE,
            // which stays mapped: the first PE of a node holds the memory of all.
            match unsafe { act(action, at, range, payload.unwrap_or_default())? } {
                Some(reply) => reply,
                None => {
                    signal(job, request)?;
                    return Some(None);
                }
            }
        }
    };
    if let Action::Atomic { op, .. } = request.action
        && op != Op::Fetch
    {
        job.peers[request.pe as usize].wake();
    }
    Some(Some((Reply { sequence, result }, data)))
}

/// Updates the signal of a request, if it has one, and wakes the PE.
fn signal(job: &Job, request: &Request) -> Option<()> {
    if let Action::PutSignal { signal, .. } = request.action {
        let at = memory(job, request.pe, Range { start: signal.at, bytes: 8 })?.as_ptr();
        fence(Release);
        // SAFETY: `memory` has checked the word, and the message's parser its alignment.
        unsafe { u64::perform(at, signal.op, signal.value, 0) };
    }
    job.peers.get(request.pe as usize)?.wake();
    Some(())
}

/// Carries out an action on a range of memory at `at`. Returns the reply, if it has one.
///
/// # Safety
/// The range of this action is symmetric memory.
unsafe fn act(
    action: Action,
    at: *mut u8,
    range: Range,
    payload: &[u8],
) -> Option<Option<(Outcome, Payload)>> {
    // SAFETY: all accesses are in the range. Programs whose accesses conflict break the standard's
    // rules; they get any of the values.
    unsafe {
        match action {
            Action::Put { .. } | Action::PutSignal { .. } => {
                store(at, payload);
                Some(None)
            }
            Action::Scatter { element, stride, .. } => {
                for (n, bytes) in payload.chunks_exact(element as usize).enumerate() {
                    store(at.add(n * stride as usize), bytes);
                }
                Some(None)
            }
            Action::Get { .. } => {
                let data = Payload::borrowed(at, range.bytes as usize);
                Some(Some((Outcome::Data, data)))
            }
            Action::Gather { element, stride, n, .. } => {
                let mut packed = Vec::with_capacity((n * element) as usize);
                for n in 0..n as usize {
                    let from = at.add(n * stride as usize);
                    packed.extend_from_slice(std::slice::from_raw_parts(from, element as usize));
                }
                Some(Some((Outcome::Data, packed.into())))
            }
            Action::Atomic { word, op, value, compare, replies, .. } => {
                if !at.addr().is_multiple_of(word.into()) {
                    return None;
                }
                let former = perform(at, word, op, value, compare);
                Some(replies.then_some((Outcome::Word(former), Payload::EMPTY)))
            }
            Action::Flush | Action::Register { .. } | Action::End { .. } => None,
        }
    }
}
