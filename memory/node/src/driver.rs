//! The event loop of an engine. One turn handles messages of other nodes, requests of this node's
//! threads, page faults and timers, in this order.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use coherence::message::NodeId;
use net::error::FabricError;
use net::mesh::{Gone, Mesh, Received};
use pager::{Fault, PagerError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sync::clock;
use sync::wait::WaitPolicy;

use crate::memory::Memory;

/// Maximum number of messages that one turn handles before it checks requests and faults.
const MESSAGES_PER_TURN: usize = 64;
/// Maximum number of turns in a row without a look at faults and timers, while no thread can fault.
/// Such a look takes longer than one at messages and requests.
const GLANCES_MAX: u32 = 8;
/// Maximum number of wake-up descriptors of a user.
const WAKERS_MAX: usize = u32::BITS as usize;

/// The protocol-independent part of an engine: memory, network and clock.
pub struct Engine<M> {
    /// The memory whose pages the engine provides.
    pub memory: M,
    /// The connections to other nodes. `None` if there is only one node.
    pub mesh: Option<Mesh>,
    /// Counts of sent messages since the engine started.
    pub traffic: Traffic,
    started: Instant,
    faults: Vec<Fault>,
    /// True if the last sleep ended by its time limit.
    slept_out: Cell<bool>,
    /// Number of turns that looked for messages and requests only, since the last full one without
    /// an event; or [`GLANCES_MAX`], if the next one must be full.
    glances: u32,
}

/// Counts of messages sent to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of headers and bodies.
    pub bytes: u64,
    /// Bytes of bodies only.
    pub body_bytes: u64,
}

impl<M: Memory> Engine<M> {
    /// Creates an engine whose clock starts now.
    pub fn new(memory: M, mesh: Option<Mesh>) -> Self {
        let (traffic, faults, slept_out) = (Traffic::default(), Vec::new(), Cell::new(false));
        Self { memory, mesh, traffic, started: clock::now(), faults, slept_out, glances: 0 }
    }

    /// Returns the nanoseconds since the engine started.
    pub fn now(&self) -> u64 {
        clock::elapsed(self.started).as_nanos() as u64
    }

    /// Converts a time of the engine's clock to an [`Instant`].
    pub fn instant(&self, now_ns: u64) -> Instant {
        self.started + Duration::from_nanos(now_ns)
    }

    /// Sends a message to a node and returns the number of bytes sent. A failed send returns 0. The
    /// mesh reports the loss of that node separately.
    ///
    /// # Panics
    /// The engine has no connections.
    pub fn send(&mut self, to: NodeId, header: &[u8], body: Vec<u8>) -> u64 {
        let mesh = self.mesh.as_mut().expect("there is another node");
        let body_bytes = body.len() as u64;
        let bytes = mesh.send(to, header, body).unwrap_or(0);
        self.traffic.messages += 1;
        self.traffic.bytes += bytes;
        self.traffic.body_bytes += body_bytes;
        bytes
    }

    /// Prepares the network to wake a sleeping engine. Returns true if there is nothing to receive.
    pub fn arm(&mut self) -> Result<bool, FabricError> {
        self.mesh.as_mut().map_or(Ok(true), Mesh::may_sleep)
    }

    /// Sleeps until a thread faults, a message arrives, `until` passes, or one of `wakers` is
    /// readable. Returns a bit mask of the readable wakers. Call [`arm`](Self::arm) first, and
    /// sleep only if it returned true.
    ///
    /// # Panics
    /// There are more than 32 wakers.
    pub fn sleep(&self, wakers: &[BorrowedFd<'_>], until: Option<Instant>) -> u32 {
        assert!(wakers.len() <= WAKERS_MAX, "a bit for each");
        let left = until.map(|until| until.saturating_duration_since(clock::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let own = [Some(self.memory.descriptor()), self.mesh.as_ref().map(Mesh::descriptor)];
        let all = wakers.iter().copied().chain(own.into_iter().flatten());
        let mut fds: Vec<PollFd<'_>> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A signal may interrupt `poll`. The caller then polls all sources again.
        self.set_slept_out(poll(&mut fds, left.as_ref()) == Ok(0));
        let is_ready = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        (0..wakers.len()).filter(|&at| is_ready(&fds[at])).fold(0, |bits, at| bits | 1 << at)
    }

    /// Notes whether the last sleep ended by its time limit. The next turn then checks that the
    /// network had no work.
    pub fn set_slept_out(&self, slept_out: bool) {
        self.slept_out.set(slept_out);
    }
}

/// A user of the engine. The required methods handle events; the provided methods form the event
/// loop.
pub trait Driver {
    /// The memory that the engine serves.
    type Memory: Memory;

    /// Returns the engine.
    fn engine(&self) -> &Engine<Self::Memory>;

    /// Returns the engine.
    fn engine_mut(&mut self) -> &mut Engine<Self::Memory>;

    /// Handles a message from another node.
    fn received(&mut self, message: Received);

    /// Handles the loss of a node. `why` completes the sentence "NODE is lost: ".
    fn node_lost(&mut self, node: NodeId, why: &str);

    /// Handles the end of a connection as the loss of its node.
    fn disconnected(&mut self, gone: Gone) {
        match gone {
            Gone::Left(node) => self.node_lost(node, "it has left"),
            Gone::Lost(node, why) => self.node_lost(node, &why),
        }
    }

    /// Handles a node that has sent nothing for `time` as lost.
    fn silent(&mut self, node: NodeId, time: Duration) {
        self.node_lost(node, &format!("it has not answered for {:.1} s", time.as_secs_f64()));
    }

    /// Handles a page fault of a thread.
    fn faulted(&mut self, fault: &Fault);

    /// Handles requests of this node's threads. Returns true if there were any.
    fn take_requests(&mut self) -> bool;

    /// Handles expired timers and deferred work. Returns true if there was any.
    fn tend(&mut self) -> bool;

    /// Handles an error of the memory or the network. The engine cannot continue after it.
    fn failed(&mut self, error: &dyn std::fmt::Display);

    /// Runs after each turn that handled an event.
    fn handled(&mut self) {}

    /// Returns true if the driver needs no more messages in this turn.
    fn is_answered(&self) -> bool {
        false
    }

    /// Returns true if a thread may fault at any time. Otherwise most turns of a spin look for
    /// messages and requests only.
    fn expects_faults(&self) -> bool {
        true
    }

    /// Returns the nanoseconds since the engine started.
    fn now(&self) -> u64 {
        self.engine().now()
    }

    /// Runs one turn: handles all events that have arrived. Returns true if there were any.
    fn turn(&mut self) -> bool {
        let mut found = false;
        let engine = self.engine_mut();
        if engine.slept_out.take()
            && let Some(mesh) = &mut engine.mesh
        {
            mesh.slept_out();
        }
        for _ in 0..MESSAGES_PER_TURN {
            if self.is_answered() {
                self.engine_mut().glances = GLANCES_MAX;
                return true;
            }
            let Some(message) = self.engine_mut().mesh.as_mut().and_then(Mesh::receive) else {
                break;
            };
            found = true;
            match message {
                Ok(message) => self.received(message),
                Err(gone) => self.disconnected(gone),
            }
        }
        found |= self.take_requests();
        let glances = self.engine().glances;
        if !found && glances < GLANCES_MAX && !self.expects_faults() {
            self.engine_mut().glances = glances + 1;
            return false;
        }
        found |= self.take_faults();
        found |= self.tend();
        // An event may leave work for the next turn.
        self.engine_mut().glances = if found { GLANCES_MAX } else { 0 };
        let beat = self.engine_mut().mesh.as_mut().and_then(|mesh| mesh.beat(clock::now()));
        if let Some((node, time)) = beat {
            self.silent(node, time);
        }
        if found {
            self.handled();
        }
        found
    }

    /// Handles pending page faults. Returns true if there were any.
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

/// A driver that runs on a dedicated thread.
pub trait Server: Driver {
    /// Returns true if the loop should end.
    fn is_over(&self) -> bool;

    /// Returns true if a processor is free, so that polling delays no other thread.
    fn may_poll(&self) -> bool;

    /// Pauses between two polls, besides the pause of the wait policy.
    fn pause(&self) {}

    /// Runs after a turn that handled an event. Returns true if nothing is left to do but wait: if
    /// the engine must not poll, it then sleeps without another turn.
    fn is_settled(&mut self) -> bool {
        false
    }

    /// Returns the descriptors that wake the engine, besides those of the memory and the network.
    fn wakers(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns the time of the next timer.
    fn deadline(&self) -> Option<Instant>;

    /// Announces to this node's threads that the engine will sleep and needs a wake-up. Returns
    /// true if no request arrived before the announcement.
    fn announce_sleep(&mut self) -> bool {
        true
    }

    /// Runs after a sleep. `ready` has a bit for each readable waker.
    fn awake(&mut self, _ready: u32) {}

    /// Runs the event loop until [`is_over`](Self::is_over) returns true.
    fn serve(&mut self) {
        let mut wait_policy = WaitPolicy::for_nodes();
        while self.work(&mut wait_policy) {
            let ready = self.sleep();
            self.wake_up(ready);
        }
    }

    /// Runs turns until nothing is left to do but wait. Returns true if the engine may sleep now,
    /// and false if [`is_over`](Self::is_over) returns true. Call [`wake_up`](Self::wake_up) after
    /// the sleep.
    fn work(&mut self, wait_policy: &mut WaitPolicy) -> bool {
        while !self.is_over() {
            if self.turn() {
                wait_policy.found();
                // Threads that have just been resumed may need this processor: a further turn would
                // delay them.
                if !self.is_settled() || self.may_poll() {
                    continue;
                }
            } else if wait_policy.looks_again(self.may_poll()) {
                self.pause();
                continue;
            }
            if self.may_sleep() {
                return true;
            }
        }
        false
    }

    /// Prepares a sleep: from now on all events wake the engine. Returns false, and withdraws that,
    /// if one has arrived.
    fn may_sleep(&mut self) -> bool {
        if !self.announce_sleep() {
            return false;
        }
        match self.engine_mut().arm() {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => self.failed(&error),
        }
        self.wake_up(0);
        false
    }

    /// Ends a sleep. `ready` has a bit for each readable waker.
    fn wake_up(&mut self, ready: u32) {
        self.awake(ready);
        // A waker has been read: what it announces may be in no message or request.
        self.engine_mut().glances = GLANCES_MAX;
    }

    /// Returns the time at which a sleep must end: the next timer's, or the network's.
    fn sleep_deadline(&self) -> Option<Instant> {
        let network = self.engine().mesh.as_ref().and_then(Mesh::deadline);
        self.deadline().into_iter().chain(network).min()
    }

    /// Sleeps until an event arrives or the next timer expires.
    fn sleep(&self) -> u32 {
        self.engine().sleep(&self.wakers(), self.sleep_deadline())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, OwnedFd};

    use pager::Access;
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Memory without pages.
    struct Nothing(OwnedFd);

    type Done = Result<(), PagerError>;
    type Pages = std::ops::Range<coherence::message::Page>;

    impl Memory for Nothing {
        fn descriptor(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
        fn faults(&mut self, _: &mut Vec<Fault>) -> Done {
            Ok(())
        }
        fn can_allow_read(&self) -> bool {
            true
        }
        fn page_bytes(&self) -> usize {
            4096
        }
        fn allow(&mut self, _: Pages, _: Access) -> Done {
            Ok(())
        }
        fn bring(&mut self, _: Pages, _: Option<&[u8]>, _: Access) -> Done {
            Ok(())
        }
        fn fill(&mut self, _: coherence::message::Page, _: Option<&[u8]>) -> Done {
            Ok(())
        }
        fn protect(&mut self, _: Pages) -> Done {
            Ok(())
        }
        fn forbid(&mut self, _: Pages) -> Done {
            Ok(())
        }
        fn discard(&mut self, _: Pages) -> Done {
            Ok(())
        }
        fn free(&mut self, _: Pages) -> Done {
            Ok(())
        }
        fn retry(&mut self, _: coherence::message::Page) -> Done {
            Ok(())
        }
        fn append(&self, _: Pages, _: &mut Vec<u8>) -> Done {
            Ok(())
        }
    }

    /// A server whose threads all wait. It ends when its waker says so.
    struct Waiting {
        engine: Engine<Nothing>,
        waker: OwnedFd,
        /// The waker has been read, and what it announces has been found.
        announced: [bool; 2],
    }

    impl Driver for Waiting {
        type Memory = Nothing;
        fn engine(&self) -> &Engine<Nothing> {
            &self.engine
        }
        fn engine_mut(&mut self) -> &mut Engine<Nothing> {
            &mut self.engine
        }
        fn received(&mut self, _: Received) {}
        fn node_lost(&mut self, _: NodeId, _: &str) {}
        fn faulted(&mut self, _: &Fault) {}
        fn take_requests(&mut self) -> bool {
            false
        }
        fn tend(&mut self) -> bool {
            let is_new = self.announced[0] && !self.announced[1];
            self.announced[1] |= is_new;
            is_new
        }
        fn failed(&mut self, error: &dyn std::fmt::Display) {
            panic!("{error}");
        }
        fn expects_faults(&self) -> bool {
            false
        }
    }

    impl Server for Waiting {
        fn is_over(&self) -> bool {
            self.announced[1]
        }
        fn may_poll(&self) -> bool {
            false
        }
        fn wakers(&self) -> Vec<BorrowedFd<'_>> {
            vec![self.waker.as_fd()]
        }
        fn deadline(&self) -> Option<Instant> {
            None
        }
        fn awake(&mut self, ready: u32) {
            if ready != 0 {
                rustix::io::read(&self.waker, &mut [0; 8]).expect("a ring");
                self.announced[0] = true;
            }
        }
    }

    #[test]
    fn what_a_waker_announces_is_found_before_the_next_sleep() {
        let new = || eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let waker = new();
        let ring = waker.try_clone().expect("a descriptor");
        let engine = Engine::new(Nothing(new()), None);
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            Waiting { engine, waker, announced: [false; 2] }.serve();
            let _ = ended.send(());
        });
        std::thread::sleep(Duration::from_millis(50));
        rustix::io::write(&ring, &1u64.to_ne_bytes()).expect("a counter");
        end.recv_timeout(Duration::from_secs(20)).expect("it sleeps although it was woken");
    }
}
