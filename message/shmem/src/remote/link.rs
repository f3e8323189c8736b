//! This PE's connections to the agents of other nodes.
//!
//! Threads of a PE share the fabric under a lock. A thread that waits holds the lock only while it
//! takes events, and sleeps on the fabric's descriptor without it. Another thread may then take the
//! event for which it waits, so whoever takes events wakes the sleepers.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use net::error::FabricError;
use net::event::{Event, Peer, SendId, Sending};
use net::fabric::Fabric;
use net::one_sided::Region;
use net::payload::Payload;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use shmem_wire::flow::Flow;
use shmem_wire::message::{Action, Outcome, Place, Reply, Request};
use sync::wait::WaitPolicy;

use crate::fatal::fatal;
use crate::remote::driver::Driver;

/// Size from which on a put is one-sided, or received directly into its target. Smaller payloads
/// arrive together with their headers.
pub(super) const EARLY_MIN: usize = 8 << 10;
/// Size from which on a put waits for the completion of operations before a fence, so that it can
/// be one-sided, or received directly into its target. That takes less time than the other copy.
pub(super) const FLUSH_MIN: usize = 256 << 10;
/// Time limit for the first connection to an agent, and the pause between attempts.
const CONNECT_MAX: Duration = Duration::from_secs(30);
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// Time limit for the end of all connections.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Longest sleep: an upper bound if a wake-up was taken by another thread.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Polls from one look at the clock to the next.
const POLLS: u32 = 16;
/// Time for agents to report the loss of a node before this PE does.
const REPORT_AFTER: Duration = Duration::from_secs(2);

/// The use of a reply.
#[derive(Debug)]
pub enum Use {
    /// Data for this address, of this length.
    Bytes(*mut u8, usize),
    /// Elements.
    Elements {
        /// The place of the first one.
        to: *mut u8,
        /// Bytes of an element.
        element: usize,
        /// Bytes from one to the next.
        stride: usize,
        /// Their number.
        n: usize,
    },
    /// A word of 4 or 8 bytes for this address.
    Word(*mut u8, u8),
    /// The key of a part of an area of this PE.
    Key(usize, Place),
    /// None: the completion of earlier requests.
    Nothing,
}

// SAFETY: memory of the program, which no thread is bound to.
unsafe impl Send for Use {}

pub(super) type Flows = Vec<Flow<Use>>;

/// The connections of this PE.
pub struct Link {
    pub(super) inner: Mutex<Inner>,
    /// The operations on each node. Locked after `inner`, never before.
    pub(super) flows: Arc<Mutex<Flows>>,
    /// Wakes threads that sleep. It counts as a semaphore.
    wakes: OwnedFd,
    sleepers: AtomicU64,
}

pub(super) struct Inner {
    pub(super) fabric: Fabric,
    pub(super) connections: Vec<Connection>,
    pub(super) names: Vec<String>,
    /// Messages and one-sided operations whose memory is still needed.
    pub(super) unsent: HashSet<SendId>,
    policy: WaitPolicy,
    /// The reason why the job cannot continue.
    pub(super) failure: Option<String>,
}

/// The connection to an agent.
pub(super) struct Connection {
    address: Vec<u8>,
    pub(super) state: State,
    /// The network reads and writes memory of the node.
    pub(super) is_one_sided: bool,
    /// Parts of areas of the node's PEs. None if the network cannot read and write the part.
    pub(super) regions: HashMap<(usize, Place), Option<Region>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// There is none. It may be called from this time on.
    Absent(Option<Instant>),
    Calling(Peer),
    Open(Peer),
    /// It has ended in order.
    Closed,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Returns the connections to these agents, of which none stands yet.
    pub fn new(
        mut fabric: Fabric,
        addresses: &[Vec<u8>],
        names: &[String],
    ) -> Result<Self, FabricError> {
        fabric.stop_listening();
        let flows: Flows = addresses.iter().map(|_| Flow::default()).collect();
        let flows = Arc::new(Mutex::new(flows));
        let places = Arc::clone(&flows);
        let place = move |from: Peer, header: &[u8], bytes: usize| {
            let reply = Reply::parse(header, bytes)?;
            let flows = locked(&places);
            match flows.get(usize::try_from(from.id).ok()?)?.expected(reply.sequence)? {
                Use::Bytes(to, length) if *length == bytes => NonNull::new(*to),
                _ => None,
            }
        };
        // SAFETY: the memory of a get belongs to this library until the reply has come, by the
        // standard's rules, and is as long as the payload.
        unsafe { fabric.place_with(Box::new(place)) };
        let wakes =
            eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let wakes =
            wakes.map_err(|errno| FabricError::System { doing: "make an eventfd", errno })?;
        let absent = |address: &Vec<u8>| Connection {
            address: address.clone(),
            state: State::Absent(None),
            is_one_sided: false,
            regions: HashMap::new(),
        };
        let inner = Inner {
            fabric,
            connections: addresses.iter().map(absent).collect(),
            names: names.to_vec(),
            unsent: HashSet::new(),
            policy: WaitPolicy::for_nodes(),
            failure: None,
        };
        Ok(Self { inner: Mutex::new(inner), flows, wakes, sleepers: AtomicU64::new(0) })
    }

    /// Sends a request with a payload. Returns its number once the payload is no longer needed.
    pub fn send(&self, f: &str, node: usize, pe: usize, action: Action, payload: Payload) -> u64 {
        let inner = self.connect(f, node);
        let sequence = locked(&self.flows)[node].issue();
        self.transmit(f, inner, node, Request { pe: pe as u32, sequence, action }, payload);
        sequence
    }

    /// Sends a put. `action` returns it, given whether it may take effect early.
    pub fn put(
        &self,
        f: &str,
        node: usize,
        pe: usize,
        payload: Payload,
        action: impl FnOnce(bool) -> Action,
    ) -> u64 {
        let bytes = payload.extent().1;
        let may_be_early = || locked(&self.flows)[node].may_be_early();
        if bytes >= FLUSH_MIN && !may_be_early() {
            let last = locked(&self.flows)[node].last();
            self.complete(f, node, last);
        }
        let inner = self.connect(f, node);
        let is_early = bytes >= EARLY_MIN && may_be_early();
        let sequence = locked(&self.flows)[node].issue();
        let request = Request { pe: pe as u32, sequence, action: action(is_early) };
        self.transmit(f, inner, node, request, payload);
        sequence
    }

    /// Sends a request whose reply is for `use_`. Returns its number.
    pub fn ask(&self, f: &str, node: usize, pe: usize, action: Action, use_: Use) -> u64 {
        let mut inner = self.connect(f, node);
        if locked(&self.flows)[node].is_full() {
            inner = self.wait(f, inner, |_| !locked(&self.flows)[node].is_full());
        }
        let sequence = locked(&self.flows)[node].ask(use_);
        let request = Request { pe: pe as u32, sequence, action };
        self.transmit(f, inner, node, request, Payload::EMPTY);
        sequence
    }

    /// Waits until the requests to a node up to this one are complete.
    pub fn wait_for(&self, f: &str, node: usize, sequence: u64) {
        let is_over = |_: &mut Inner| locked(&self.flows)[node].is_complete(sequence);
        drop(self.wait(f, locked(&self.inner), is_over));
    }

    /// Completes the requests to a node up to this one.
    pub fn complete(&self, f: &str, node: usize, sequence: u64) {
        let needs_flush = {
            let flow = &locked(&self.flows)[node];
            if flow.is_complete(sequence) {
                return;
            }
            flow.needs_flush(sequence)
        };
        if needs_flush {
            self.ask(f, node, 0, Action::Flush, Use::Nothing);
        }
        self.wait_for(f, node, sequence);
    }

    /// Orders the requests so far before all later ones, for each node.
    pub fn fence(&self) {
        locked(&self.flows).iter_mut().for_each(Flow::fence);
    }

    /// Takes the events that are there, if replies are to come or UCX may hold parts of messages,
    /// and no other thread does so.
    pub fn nudge(&self) {
        let is_waiting = locked(&self.flows).iter().any(Flow::is_waiting);
        if let Ok(mut inner) = self.inner.try_lock()
            && (is_waiting || inner.fabric.has_ucx())
        {
            self.take_events(&mut inner);
        }
    }

    /// Closes all connections, after all that was sent. Waits until the agents have answered.
    pub fn close(&self) {
        let until = Instant::now() + CLOSE_MAX;
        let mut inner = locked(&self.inner);
        let inner = &mut *inner;
        for connection in &inner.connections {
            if let State::Open(peer) | State::Calling(peer) = connection.state {
                inner.fabric.close(peer);
            }
        }
        let is_closed = |it: &Connection| !matches!(it.state, State::Open(_) | State::Calling(_));
        while !inner.connections.iter().all(is_closed) && Instant::now() < until {
            self.take_events(inner);
            let _ = inner.fabric.sleep(Instant::now() + CONNECT_PAUSE);
        }
    }

    /// Returns the lock once the connection to a node stands and may be used for the next
    /// operation.
    pub(super) fn connect(&self, f: &str, node: usize) -> MutexGuard<'_, Inner> {
        let inner = locked(&self.inner);
        if !matches!(inner.connections[node].state, State::Open(_)) {
            return self.connect_first(f, node, inner);
        }
        if inner.connections[node].is_one_sided && locked(&self.flows)[node].must_settle() {
            return self.settle(f, inner, node);
        }
        inner
    }

    #[cold]
    fn connect_first<'a>(
        &'a self,
        f: &str,
        node: usize,
        inner: MutexGuard<'a, Inner>,
    ) -> MutexGuard<'a, Inner> {
        let until = Instant::now() + CONNECT_MAX;
        let is_open = move |inner: &mut Inner| {
            let Inner { fabric, connections, names, failure, .. } = inner;
            let connection = &mut connections[node];
            match connection.state {
                State::Open(_) => return true,
                State::Calling(_) => {}
                State::Closed => *failure = Some(format!("{} has left the job", names[node])),
                State::Absent(Some(after)) if Instant::now() < after => {}
                State::Absent(Some(_)) if Instant::now() > until => {
                    *failure = Some(format!("{} does not answer", names[node]));
                }
                State::Absent(_) => match fabric.connect(&connection.address) {
                    Ok(peer) => connection.state = State::Calling(peer),
                    Err(why) => *failure = Some(format!("{}: {why}", names[node])),
                },
            }
            false
        };
        self.wait(f, inner, is_open)
    }

    /// Sends a request on a connection that stands. Waits until its payload is not needed, and
    /// until the transport has all of it: this PE may wait for memory next, and the rest would
    /// leave only with its next operation.
    fn transmit<'a>(
        &'a self,
        f: &str,
        mut inner: MutexGuard<'a, Inner>,
        node: usize,
        request: Request,
        payload: Payload,
    ) {
        let State::Open(peer) = inner.connections[node].state else {
            unreachable!("`connect` returns when the connection stands")
        };
        let sent = inner.fabric.send(peer, &request.header(), payload);
        let inner = self.finish(f, inner, node, sent);
        if inner.fabric.has_unsent() {
            drop(self.wait(f, inner, |inner| !inner.fabric.has_unsent()));
        }
    }

    /// Waits until the memory of a message or of a one-sided operation is no longer needed.
    pub(super) fn finish<'a>(
        &'a self,
        f: &str,
        mut inner: MutexGuard<'a, Inner>,
        node: usize,
        started: Result<Sending, FabricError>,
    ) -> MutexGuard<'a, Inner> {
        match started {
            Ok(Sending::Done) => inner,
            Ok(Sending::Pending(id)) => {
                inner.unsent.insert(id);
                self.wait(f, inner, |inner| !inner.unsent.contains(&id))
            }
            Err(why) => {
                inner.failure = Some(format!("{}: {why}", inner.names[node]));
                self.wait(f, inner, |_| false)
            }
        }
    }

    /// Waits until `is_over` returns true. It is called after each event.
    pub(super) fn wait<'a>(
        &'a self,
        f: &str,
        mut inner: MutexGuard<'a, Inner>,
        mut is_over: impl FnMut(&mut Inner) -> bool,
    ) -> MutexGuard<'a, Inner> {
        let mut driver = Driver::default();
        loop {
            for _ in 0..POLLS {
                let has_events = self.take_events(&mut inner);
                if is_over(&mut inner) {
                    inner.policy.found();
                    return inner;
                }
                if let Some(failure) = inner.failure.take() {
                    drop(inner);
                    drop(driver);
                    fail(f, &failure);
                }
                if !has_events {
                    drop(inner);
                    driver.drive();
                    inner = locked(&self.inner);
                }
            }
            let must_sleep = inner.policy.must_sleep();
            if must_sleep {
                drop(inner);
                driver.rest();
                inner = locked(&self.inner);
                // Another thread may have taken the event meanwhile.
                if is_over(&mut inner) {
                    return inner;
                }
            }
            // Other threads of this PE may want to send.
            inner = if must_sleep { self.sleep(inner) } else { self.yield_lock(inner) };
        }
    }

    fn yield_lock<'a>(&'a self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        drop(inner);
        locked(&self.inner)
    }

    /// Sleeps until there may be an event, without the lock.
    fn sleep<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        match inner.fabric.arm() {
            Ok(true) => {}
            Ok(false) => return inner,
            Err(why) => {
                inner.failure = Some(format!("the network: {why}"));
                return inner;
            }
        }
        let at_most = Instant::now() + SLEEP_MAX;
        let until = inner.fabric.deadline().map_or(at_most, |deadline| deadline.min(at_most));
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        // SAFETY: the fabric lives as long as the link, and so does its descriptor.
        let descriptor = unsafe { BorrowedFd::borrow_raw(inner.fabric.descriptor().as_raw_fd()) };
        self.sleepers.fetch_add(1, SeqCst);
        drop(inner);
        let mut fds = [
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
            PollFd::new(&self.wakes, PollFlags::IN),
        ];
        let _ = poll(&mut fds, left.as_ref());
        self.sleepers.fetch_sub(1, SeqCst);
        if !fds[1].revents().is_empty() {
            let _ = rustix::io::read(&self.wakes, &mut [0; 8]);
        }
        locked(&self.inner)
    }

    /// Takes the events that are there. Returns true if there were any.
    fn take_events(&self, inner: &mut Inner) -> bool {
        let mut has_events = false;
        while let Some(event) = inner.fabric.poll() {
            has_events = true;
            if let Err(failure) = inner.take(event, &self.flows) {
                inner.failure.get_or_insert(failure);
            }
        }
        let sleepers = self.sleepers.load(SeqCst);
        if has_events && sleepers > 0 {
            let _ = rustix::io::write(&self.wakes, &sleepers.to_ne_bytes());
        }
        has_events
    }
}

impl Inner {
    /// Handles an event. The error is the reason why the job cannot continue.
    fn take(&mut self, event: Event, flows: &Mutex<Flows>) -> Result<(), String> {
        match event {
            Event::Message { from, header, payload } => {
                let node = self.node_of(from).ok_or("a stranger has called")?;
                let taken = take_reply(&mut locked(flows)[node], &header, Some(&payload));
                if let Some(part) = taken.ok_or_else(|| self.violation(node))? {
                    let region = self.fabric.import(from, &payload);
                    self.connections[node].regions.insert(part, region);
                }
                Ok(())
            }
            Event::Placed { from, header, bytes, .. } => {
                let node = self.node_of(from).ok_or("a stranger has called")?;
                let mut flows = locked(flows);
                let reply = Reply::parse(&header, bytes);
                let use_ = reply.and_then(|reply| flows[node].reply(reply.sequence));
                use_.map(drop).ok_or_else(|| self.violation(node))
            }
            Event::Sent(id) => {
                self.unsent.remove(&id);
                Ok(())
            }
            // `Lost` follows.
            Event::Unsent(_) => Ok(()),
            Event::Connected(peer) => {
                if let Some(node) = self.node_of(peer) {
                    self.connections[node].state = State::Open(peer);
                    self.connections[node].is_one_sided = self.fabric.reads_memory_of(peer);
                }
                Ok(())
            }
            Event::Closed(peer) => {
                if let Some(node) = self.node_of(peer) {
                    self.connections[node].state = State::Closed;
                }
                Ok(())
            }
            Event::Lost { peer, why } => self.lost(peer, &why),
        }
    }

    fn lost(&mut self, peer: Peer, why: &str) -> Result<(), String> {
        let Some(node) = self.node_of(peer) else { return Ok(()) };
        let before = self.connections[node].state;
        self.connections[node].state = State::Absent(Some(Instant::now() + CONNECT_PAUSE));
        match before {
            // On a busy machine the agent may not have answered in time.
            State::Calling(_) => Ok(()),
            _ => Err(format!("{} is lost: {why}", self.names[node])),
        }
    }

    /// Returns the node of an agent to which this PE has called.
    fn node_of(&self, peer: Peer) -> Option<usize> {
        let node = usize::try_from(peer.id).ok()?;
        let state = self.connections.get(node)?.state;
        matches!(state, State::Calling(it) | State::Open(it) if it == peer).then_some(node)
    }

    fn violation(&self, node: usize) -> String {
        format!("{} violates the protocol between nodes", self.names[node])
    }
}

/// Takes a reply with its payload. Returns the part of memory if the payload is its key. None if
/// it violates the protocol.
fn take_reply(
    flow: &mut Flow<Use>,
    header: &[u8],
    payload: Option<&[u8]>,
) -> Option<Option<(usize, Place)>> {
    let payload = payload.unwrap_or_default();
    let reply = Reply::parse(header, payload.len())?;
    // SAFETY: the program's memory for this result, which it does not use until the reply has come.
    // `Pending::Bytes` and `Elements` have the length that is compared here.
    unsafe {
        match (flow.reply(reply.sequence)?, reply.result) {
            (Use::Bytes(to, bytes), Outcome::Data) if bytes == payload.len() => {
                std::ptr::copy_nonoverlapping(payload.as_ptr(), to, bytes);
            }
            (Use::Elements { to, element, stride, n }, Outcome::Data)
                if payload.len() == n * element =>
            {
                for (at, bytes) in payload.chunks_exact(element).enumerate() {
                    let to = to.wrapping_add(at * stride);
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, element);
                }
            }
            (Use::Word(to, 8), Outcome::Word(value)) => to.cast::<u64>().write_unaligned(value),
            (Use::Word(to, 4), Outcome::Word(value)) => {
                to.cast::<u32>().write_unaligned(u32::try_from(value).ok()?);
            }
            (Use::Key(pe, at), Outcome::Data) => return Some(Some((pe, at))),
            (Use::Nothing, Outcome::Flushed) => {}
            _ => return None,
        }
    }
    Some(None)
}

/// Ends the job: a node is gone. Usually an agent has reported that before.
#[cold]
fn fail(f: &str, failure: &str) -> ! {
    std::thread::sleep(REPORT_AFTER);
    fatal!(f, "{failure}")
}
