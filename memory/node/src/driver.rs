//! The event loop of an engine: messages of other nodes, requests of this node's threads, faults,
//! and what happens by time alone. Each is handled before the next is looked at.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use coherence::message::NodeId;
use net::error::FabricError;
use net::mesh::{Gone, Mesh, Said};
use pager::{Fault, PagerError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sync::wait::WaitPolicy;

use crate::memory::Memory;

/// Messages that one turn takes before it looks at threads.
const MESSAGES_PER_TURN: usize = 64;
/// Descriptors of a user that wake its engine, at most.
const WAKERS_MAX: usize = u32::BITS as usize;

/// What an engine has, whatever its protocol: memory, a network, a clock.
pub struct Engine<M> {
    /// The memory that it serves.
    pub memory: M,
    /// The connections to other nodes, if there are any.
    pub mesh: Option<Mesh>,
    /// What was sent since the engine started.
    pub traffic: Traffic,
    started: Instant,
    faults: Vec<Fault>,
}

/// Messages to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes of their headers and bodies.
    pub bytes: u64,
    /// Bytes of their bodies alone.
    pub body_bytes: u64,
}

impl<M: Memory> Engine<M> {
    /// Makes an engine whose clock starts now.
    pub fn new(memory: M, mesh: Option<Mesh>) -> Self {
        let (traffic, faults) = (Traffic::default(), Vec::new());
        Self { memory, mesh, traffic, started: Instant::now(), faults }
    }

    /// Returns the nanoseconds since the engine started.
    pub fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Returns the moment at which the engine's clock says so.
    pub fn instant(&self, now_ns: u64) -> Instant {
        self.started + Duration::from_nanos(now_ns)
    }

    /// Sends to a node. If that fails, the loss of the node is reported, or will be. Returns the
    /// bytes that were sent.
    ///
    /// # Panics
    /// There is no other node.
    pub fn send(&mut self, to: NodeId, header: &[u8], body: Vec<u8>) -> u64 {
        let mesh = self.mesh.as_mut().expect("there is another node");
        let body_bytes = body.len() as u64;
        let bytes = mesh.send(to, header, body).unwrap_or(0);
        self.traffic.messages += 1;
        self.traffic.bytes += bytes;
        self.traffic.body_bytes += body_bytes;
        bytes
    }

    /// Prepares the network to wake a sleeper. Returns whether there is nothing to receive.
    pub fn arm(&mut self) -> Result<bool, FabricError> {
        self.mesh.as_mut().map_or(Ok(true), Mesh::may_sleep)
    }

    /// Sleeps until a thread is stopped, a message arrives, `until`, or one of `wakers` is
    /// readable; [`arm`](Self::arm) has allowed it. Returns a bit for each readable waker.
    ///
    /// # Panics
    /// There are more than 32 wakers.
    pub fn sleep(&self, wakers: &[BorrowedFd<'_>], until: Option<Instant>) -> u32 {
        assert!(wakers.len() <= WAKERS_MAX, "a bit for each");
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let own = [Some(self.memory.descriptor()), self.mesh.as_ref().map(Mesh::descriptor)];
        let all = wakers.iter().copied().chain(own.into_iter().flatten());
        let mut fds: Vec<PollFd<'_>> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // After a signal the engine looks again, too.
        let _ = poll(&mut fds, left.as_ref());
        let is_ready = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        (0..wakers.len()).filter(|&at| is_ready(&fds[at])).fold(0, |bits, at| bits | 1 << at)
    }
}

/// A user of the engine: it handles what happens, and the provided methods are the loop.
pub trait Driver {
    /// The memory that it serves.
    type Memory: Memory;

    /// Returns its engine.
    fn engine(&self) -> &Engine<Self::Memory>;

    /// Returns its engine.
    fn engine_mut(&mut self) -> &mut Engine<Self::Memory>;

    /// Handles a message.
    fn received(&mut self, message: Said);

    /// Handles the loss of a node; `why` completes "NODE is lost: ".
    fn node_lost(&mut self, node: NodeId, why: &str);

    /// Handles the end of a connection: the loss of the node.
    fn disconnected(&mut self, gone: Gone) {
        match gone {
            Gone::Left(node) => self.node_lost(node, "it has left"),
            Gone::Lost(node, why) => self.node_lost(node, &why),
        }
    }

    /// Handles a node that has sent nothing for `time`: its loss.
    fn silent(&mut self, node: NodeId, time: Duration) {
        self.node_lost(node, &format!("it has not answered for {:.1} s", time.as_secs_f64()));
    }

    /// Handles a thread that was stopped at a page.
    fn faulted(&mut self, fault: &Fault);

    /// Handles requests of this node's threads. Returns whether there were any.
    fn take_requests(&mut self) -> bool;

    /// Does what happens by time alone, or what was left to do. Returns whether there was any.
    fn tend(&mut self) -> bool;

    /// Handles an error of the memory or the network: the engine cannot go on.
    fn failed(&mut self, error: &dyn std::fmt::Display);

    /// Follows a turn in which something was found.
    fn handled(&mut self) {}

    /// Returns whether the present turn has reached its goal early.
    fn is_answered(&self) -> bool {
        false
    }

    /// Returns the nanoseconds since the engine started.
    fn now(&self) -> u64 {
        self.engine().now()
    }

    /// Handles everything that has arrived. Returns whether anything had.
    fn turn(&mut self) -> bool {
        let mut found = false;
        for _ in 0..MESSAGES_PER_TURN {
            if self.is_answered() {
                return true;
            }
            let Some(message) = self.engine_mut().mesh.as_mut().and_then(Mesh::hear) else { break };
            found = true;
            match message {
                Ok(message) => self.received(message),
                Err(gone) => self.disconnected(gone),
            }
        }
        found |= self.take_requests();
        found |= self.take_faults();
        found |= self.tend();
        let beat = self.engine_mut().mesh.as_mut().and_then(|mesh| mesh.beat(Instant::now()));
        if let Some((node, time)) = beat {
            self.silent(node, time);
        }
        if found {
            self.handled();
        }
        found
    }

    /// Handles threads that were stopped. Returns whether there were any.
    fn take_faults(&mut self) -> bool {
        let engine = self.engine_mut();
        let mut faults = std::mem::take(&mut engine.faults);
        let read: Result<(), PagerError> = engine.memory.faults(&mut faults);
        if let Err(error) = read {
            self.failed(&error);
        }
        let found = !faults.is_empty();
        faults.drain(..).for_each(|fault| self.faulted(&fault));
        self.engine_mut().faults = faults;
        found
    }
}

/// A driver with a thread of its own.
pub trait Server: Driver {
    /// Returns whether it has served long enough.
    fn is_over(&self) -> bool;

    /// Returns whether there is a processor on which the thread can poll and delay nobody.
    fn may_poll(&self) -> bool;

    /// Waits for a moment between two polls.
    fn pause(&self) {
        std::hint::spin_loop();
    }

    /// Returns the descriptors that wake it, besides those of memory and network.
    fn wakers(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns when it has something to do, even if nothing arrives.
    fn deadline(&self) -> Option<Instant>;

    /// Asks threads to wake a sleeper. Returns whether they have not asked for anything meanwhile.
    fn announce_sleep(&mut self) -> bool {
        true
    }

    /// It does not sleep any more; `ready` has a bit for each of its wakers that is readable.
    fn awake(&mut self, _ready: u32) {}

    /// Serves until [`is_over`](Self::is_over).
    fn serve(&mut self) {
        let mut wait_policy = WaitPolicy::default();
        let mut idle_since = Instant::now();
        while !self.is_over() {
            if self.turn() {
                wait_policy.learn(true, idle_since.elapsed());
                idle_since = Instant::now();
            } else if self.may_poll() && wait_policy.spins(idle_since.elapsed()) {
                self.pause();
            } else if self.announce_sleep() {
                let ready = match self.engine_mut().arm() {
                    Ok(true) => self.sleep(),
                    Ok(false) => 0,
                    Err(error) => {
                        self.failed(&error);
                        0
                    }
                };
                self.awake(ready);
            }
        }
    }

    /// Sleeps until something arrives, or the deadline.
    fn sleep(&self) -> u32 {
        let network = self.engine().mesh.as_ref().and_then(Mesh::deadline);
        let until = self.deadline().into_iter().chain(network).min();
        self.engine().sleep(&self.wakers(), until)
    }
}
