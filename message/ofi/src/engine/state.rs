//! The state of a domain: its endpoints, completion queues and address vectors, behind one lock.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use control::Identity;
use sync::doorbell::Doorbell;
use sync::lock::{Held, Lock};
use sync::pieces::Shares;
use sync::wait::{DOUBT, WaitPolicy};

use crate::abi;
use crate::engine::address::Format;
use crate::engine::completion::Completion;
use crate::engine::counts::Counts;
use crate::engine::guarded::{Guard, Guarded};
use crate::engine::log;
use crate::engine::name::Name;
use crate::engine::owner::{CompletionOwner, ReceiveOwner};
use crate::engine::port::{News, Peer, Port};
use crate::engine::regions::Regions;
use crate::engine::remote::HeldTask;
use crate::engine::space::Here;
use crate::engine::transfer::{Body, Transfer, Unfinished};
use crate::engine::vector::Vector;
use crate::protocol::matching::Matching;
use crate::protocol::record::Record;
use crate::protocol::slab::Slab;

/// A domain without its libfabric object.
#[derive(Debug)]
pub struct Core {
    pub here: &'static Here,
    /// The program calls from one thread at a time (FI_THREAD_DOMAIN).
    pub is_serialized: bool,
    /// The format of addresses.
    pub format: Format,
    state: Guarded<State>,
    /// A task was killed while it changed the state.
    broken: AtomicBool,
    /// Wakes threads of this task that wait.
    pub doorbell: Doorbell,
    /// Hints for all endpoints' ports.
    pub news: News,
    /// Memory regions that other tasks may access.
    pub regions: Regions,
    /// One thread at a time registers memory.
    registering: Lock,
}

/// The state behind the lock.
#[derive(Debug, Default)]
pub struct State {
    pub endpoints: Slab<Endpoint>,
    pub queues: Slab<Queue>,
    pub vectors: Slab<Vector>,
}

/// A completion queue.
#[derive(Debug, Default)]
pub struct Queue {
    pub entries: VecDeque<Completion>,
    /// The endpoints that are bound to the queue.
    pub endpoints: Vec<usize>,
    pub news: Arc<News>,
    /// The other provider that owns the queue: it gets the completions instead of `entries`.
    pub owner: Option<Box<dyn CompletionOwner>>,
}

/// The completion queue and the counter that are bound to an endpoint for one kind of operation.
#[derive(Debug, Default)]
pub struct Binding {
    /// The number of the queue.
    pub queue: Option<usize>,
    /// Only operations with FI_COMPLETION report their success (FI_SELECTIVE_COMPLETION).
    pub selective: bool,
    pub counter: Option<Arc<Counts>>,
}

impl Binding {
    /// Counts an operation, and reports its completion. A success is reported only if `wanted`.
    #[inline]
    pub fn complete(&self, queues: &mut Slab<Queue>, completion: Completion, wanted: bool) {
        if let Some(counter) = &self.counter {
            counter.count(completion.error != 0);
        }
        let Some(queue) = self.queue.and_then(|queue| queues.get_mut(queue)) else { return };
        if !wanted && completion.error == 0 {
            return;
        }
        if let Some(owner) = &queue.owner {
            return owner.report(&completion);
        }
        queue.entries.push_back(completion);
        queue.news.entries.store(queue.entries.len(), Relaxed);
    }

    /// Returns true if an operation with these flags reports its success.
    #[inline]
    pub fn wants(&self, flags: u64) -> bool {
        !self.selective || flags & abi::COMPLETION != 0
    }
}

/// A rendezvous message of this endpoint that waits for its receiver.
#[derive(Debug)]
pub struct PendingSend {
    pub record: Box<Record>,
    pub peer: Peer,
    /// The completion; `None` once it was reported.
    pub completion: Option<Completion>,
    pub wanted: bool,
    /// A thread of this task helps to copy the message, which stays until that ends.
    pub is_helped: bool,
    /// The message has ended meanwhile, with this error or 0.
    pub done: Option<i32>,
}

/// A rendezvous message of this endpoint that has claimed its receive. Both sides copy it.
#[derive(Debug)]
pub struct ClaimedSend {
    /// The receiver, which [`Endpoint::last`] or [`Endpoint::holds`] holds.
    pub task: Identity,
    /// The progress of the copy, in the receiver's memory.
    pub shares: Shares<'static>,
    /// The completion, which is reported when all is copied.
    pub completion: Completion,
    pub wanted: bool,
    /// A thread of this task copies. The completion must not be reported before that ends.
    pub is_helped: bool,
}

/// An endpoint.
#[derive(Debug)]
pub struct Endpoint {
    pub port: Port,
    /// The source number of the endpoint's messages.
    pub source: u32,
    pub vector: Option<usize>,
    pub send: Binding,
    pub receive: Binding,
    pub read: Binding,
    pub write: Binding,
    pub plain: Matching<Body>,
    pub tagged: Matching<Body>,
    /// Number of bytes of unexpected messages.
    pub unexpected_bytes: usize,
    /// Rendezvous messages of this endpoint with a record.
    pub pending: Slab<PendingSend>,
    /// Rendezvous messages of this endpoint that have claimed their receives.
    pub claimed_sends: Slab<ClaimedSend>,
    /// Records to be used again.
    #[expect(clippy::vec_box, reason = "they move to `pending`, and peers know their addresses")]
    pub records: Vec<Box<Record>>,
    /// Rendezvous messages to be copied.
    pub transfers: VecDeque<Transfer>,
    /// Rendezvous messages of which the senders still copy a piece.
    pub unfinished: Vec<Unfinished>,
    /// Messages in `pending` that this task may help to copy.
    pub helping: VecDeque<usize>,
    pub send_flags: u64,
    pub receive_flags: u64,
    /// Least room that a receive of several messages has left (FI_OPT_MIN_MULTI_RECV).
    pub min_multiple: u64,
    /// Receives take messages of their source only (FI_DIRECTED_RECV).
    pub directed: bool,
    pub enabled: bool,
    /// The endpoint is enabled, and no other provider owns its receives.
    pub receives: bool,
    /// The other provider that owns the receives.
    pub owner: Option<Box<dyn ReceiveOwner>>,
    /// The endpoint's name, which is registered when the endpoint is enabled.
    pub name: Option<Name>,
    /// The name is registered.
    pub is_named: bool,
    /// The endpoint cannot be enabled without the name (fi_setname).
    pub must_have_name: bool,
    /// The task to which the endpoint has sent last.
    pub last: Option<HeldTask>,
    /// Tasks to which it has sent before, while `claimed_sends` has a message.
    pub holds: Vec<HeldTask>,
}

impl Endpoint {
    /// Holds a task until the endpoint sends to another one. A hold for each message would cost an
    /// atomic exchange each. Returns false if the task has ended, or if all words are in use.
    #[inline]
    pub fn hold_last(&mut self, here: &Here, task: Identity) -> bool {
        let is_last = self.last.as_ref().is_some_and(|last| last.task() == task);
        if is_last && here.is_living(task) {
            return true;
        }
        self.release_last();
        self.last = here.hold_long(task);
        self.last.is_some()
    }

    /// Ends the hold on the last task, once all messages that have claimed receives are complete.
    pub fn release_last(&mut self) {
        let last = self.last.take();
        if !self.claimed_sends.is_empty() {
            self.holds.extend(last);
        }
    }
}

impl State {
    /// Sets the ports that the hints of a queue cover: those of its endpoints.
    pub fn watch(&self, queue: usize) {
        let Some(queue) = self.queues.get(queue) else { return };
        let endpoints = queue.endpoints.iter().filter_map(|&number| self.endpoints.get(number));
        queue.news.watch(endpoints.map(|endpoint| endpoint.port.watch));
    }

    /// Sets the ports that the hints of the domain cover: those of all endpoints.
    pub fn watch_all(&self, news: &News) {
        let endpoints = self.endpoints.numbers().filter_map(|number| self.endpoints.get(number));
        news.watch(endpoints.map(|endpoint| endpoint.port.watch));
    }

    /// Returns the peer at this address of an endpoint's vector.
    pub fn peer(&mut self, endpoint: usize, address: u64) -> Result<Peer, i32> {
        let vector = self.endpoints.get(endpoint).and_then(|endpoint| endpoint.vector);
        peer(&mut self.vectors, vector, address).copied()
    }

    fn vector_of(&mut self, endpoint: usize) -> Result<&mut Vector, i32> {
        let vector = self.endpoints.get(endpoint).and_then(|endpoint| endpoint.vector);
        vector.and_then(|vector| self.vectors.get_mut(vector)).ok_or(abi::ENOAV)
    }

    /// Returns the source number of messages from this address.
    #[inline]
    pub fn source(&mut self, here: &Here, endpoint: usize, address: u64) -> Result<u32, i32> {
        match self.peer(endpoint, address) {
            Ok(peer) => Ok(peer.source),
            Err(_) => self.vector_of(endpoint)?.source(here, address as usize),
        }
    }

    /// Looks up a peer again after an operation to this address has failed with `error`. `Ok`: the
    /// caller tries the operation again. Otherwise the error to return.
    #[cold]
    pub fn seek(
        &mut self,
        here: &Here,
        endpoint: usize,
        address: u64,
        error: i32,
    ) -> Result<(), i32> {
        if error != abi::EINVAL && error != abi::ECONNRESET {
            return Err(error);
        }
        self.vector_of(endpoint)?.seek(here, address as usize, error)
    }
}

/// Returns the peer at this address of a vector.
#[inline]
pub fn peer(
    vectors: &mut Slab<Vector>,
    vector: Option<usize>,
    address: u64,
) -> Result<&mut Peer, i32> {
    let vector = vector.and_then(|vector| vectors.get_mut(vector)).ok_or(abi::ENOAV)?;
    vector.peers.get_mut(address as usize).and_then(Option::as_mut).ok_or(abi::EINVAL)
}

/// The state, while the calling thread has the lock.
pub type Locked<'a> = Guard<'a, State>;

impl Core {
    /// Makes an empty domain. Returns `None` without memory.
    pub fn new(here: &'static Here, is_serialized: bool, format: Format) -> Option<Self> {
        Some(Self {
            here,
            is_serialized,
            format,
            state: Guarded::new(State::default(), is_serialized),
            broken: AtomicBool::new(false),
            doorbell: Doorbell::default(),
            news: News::default(),
            regions: Regions::new()?,
            registering: Lock::default(),
        })
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> Locked<'_> {
        let is_alive = |owner| self.here.is_alive(owner);
        let (locked, in_doubt) = self.state.lock(self.here.owner, is_alive);
        if in_doubt && !self.broken.swap(true, Release) {
            log::write(abi::LOG_WARN, abi::LOG_CORE, || {
                "a task was killed while it changed this endpoint, which is lost".to_owned()
            });
        }
        locked
    }

    /// Wakes other threads of this task that wait. The caller has released the lock.
    #[inline]
    pub fn wake(&self) {
        // Where the program calls from one thread at a time, no other thread waits.
        if !self.is_serialized {
            self.doorbell.ring();
        }
    }

    /// Excludes other threads that register memory.
    pub fn register(&self) -> Held<'_> {
        self.registering.hold(self.here.owner, |owner| self.here.is_alive(owner))
    }

    /// Returns true if the state may be inconsistent.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Acquire)
    }

    /// Waits until `poll` returns something, or until a time: spins first, then sleeps.
    pub fn wait<T>(
        &self,
        until: Option<Instant>,
        mut poll: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        thread_local! {
            static POLICY: RefCell<WaitPolicy> = RefCell::default();
        }
        // `poll` calls the program's functions, which may wait themselves.
        let mut policy = POLICY.take();
        let found = self.wait_by(&mut policy, until, &mut poll);
        POLICY.set(policy);
        found
    }

    fn wait_by<T>(
        &self,
        policy: &mut WaitPolicy,
        until: Option<Instant>,
        poll: &mut impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(found) = policy.poll(&mut *poll) {
                return Some(found);
            }
            let rings = self.doorbell.about_to_sleep();
            if let Some(found) = poll() {
                policy.found();
                return Some(found);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                policy.give_up();
                return None;
            }
            // Each sleep has a limit: a peer may have been killed before it rings.
            self.doorbell.sleep(rings, left.map_or(DOUBT, |left| left.min(DOUBT)));
            self.check_peers();
        }
    }
}
