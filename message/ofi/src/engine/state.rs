//! What changes in a domain: its endpoints, completion queues and address vectors, behind one
//! lock.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use std::time::{Duration, Instant};

use control::Identity;
use control::hold::{Hold, KEEP};
use sync::doorbell::Doorbell;
use sync::lock::{Held, Lock};
use sync::pieces::Shares;
use sync::wait::{DOUBT, WaitPolicy};

use crate::abi;
use crate::engine::address::Format;
use crate::engine::completion::Completion;
use crate::engine::counts::Counts;
use crate::engine::log;
use crate::engine::name::Name;
use crate::engine::owner::{CompletionOwner, ReceiveOwner};
use crate::engine::port::{Peer, Port, Watch};
use crate::engine::regions::Regions;
use crate::engine::space::Here;
use crate::engine::transfer::{Body, Transfer, Unfinished};
use crate::engine::vector::Vector;
use crate::protocol::matching::Matching;
use crate::protocol::record::Record;
use crate::protocol::slab::Slab;

/// A domain, but for its fid.
#[derive(Debug)]
pub struct Core {
    pub here: &'static Here,
    lock: Lock,
    /// The program's threads take turns in calling us (FI_THREAD_DOMAIN).
    pub in_turns: bool,
    /// How addresses are written.
    pub format: Format,
    state: UnsafeCell<State>,
    /// The state was changed by somebody who was killed meanwhile.
    broken: AtomicBool,
    /// Wakes those of us who wait.
    pub bell: Doorbell,
    /// All endpoints' ports: whether progress would find something.
    pub news: News,
    /// Memory that others may reach.
    pub regions: Regions,
    /// Only one thread at a time registers memory.
    registering: Lock,
}

// SAFETY: the state is reached under the lock only.
unsafe impl Sync for Core {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Core {}

/// All that the lock guards.
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
    /// Endpoints that bring something here.
    pub endpoints: Vec<usize>,
    pub news: Arc<News>,
    /// It is another provider's, who is told in place of `entries`.
    pub owner: Option<Box<dyn CompletionOwner>>,
}

/// What tells without the lock whether a queue is worth a look.
#[derive(Debug, Default)]
pub struct News {
    /// Entries in it.
    pub entries: AtomicUsize,
    /// Its endpoints' ports, the rest null.
    ports: [AtomicPtr<Watch>; PORTS],
    /// There are more.
    more: AtomicBool,
}

/// How many ports a queue looks at without the lock.
const PORTS: usize = 4;

impl News {
    /// Whether something may have come.
    #[inline]
    pub fn any(&self) -> bool {
        if self.entries.load(Relaxed) != 0 || self.more.load(Relaxed) {
            return true;
        }
        let ports = self.ports.iter().map(|port| port.load(Relaxed));
        // SAFETY: ports are never freed.
        ports.take_while(|port| !port.is_null()).any(|port| unsafe { &*port }.any())
    }

    /// Looks at the ports of these endpoints from now on.
    fn watch<'a>(&self, endpoints: impl Iterator<Item = &'a Endpoint>) {
        let mut ports = endpoints.map(|endpoint| std::ptr::from_ref(endpoint.port.watch));
        for place in &self.ports {
            place.store(ports.next().unwrap_or(std::ptr::null()).cast_mut(), Relaxed);
        }
        self.more.store(ports.next().is_some(), Relaxed);
    }
}

/// Where what an endpoint has done is told.
#[derive(Debug, Default)]
pub struct Outlet {
    /// The queue.
    pub queue: Option<usize>,
    /// Only operations that ask for it complete there.
    pub selective: bool,
    pub counter: Option<Arc<Counts>>,
}

impl Outlet {
    /// Tells of it.
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

    /// Whether an operation with these flags completes there.
    #[inline]
    pub fn wants(&self, flags: u64) -> bool {
        !self.selective || flags & abi::COMPLETION != 0
    }
}

/// A large message of ours that somebody is to take.
#[derive(Debug)]
pub struct Sent {
    pub record: Box<Record>,
    pub peer: Peer,
    /// What is told when it is sent; `None`: it was.
    pub completion: Option<Completion>,
    pub wanted: bool,
    /// A thread of ours helps to copy it: it must not go before that is over.
    pub is_helped: bool,
    /// It is done meanwhile, or will never be: the error.
    pub done: Option<i32>,
}

/// A large message of ours whose receive we have claimed, and which we and its receiver copy.
#[derive(Debug)]
pub struct Placing {
    /// The receiver: he is held by [`Endpoint::last`] or [`Endpoint::holds`].
    pub whom: Identity,
    /// How far it is, in the receiver's memory.
    pub shares: Shares<'static>,
    /// What is told when all is copied.
    pub completion: Completion,
    pub wanted: bool,
    /// A thread of ours copies: the message must not be told of before that is over.
    pub is_helped: bool,
}

/// An endpoint.
#[derive(Debug)]
pub struct Endpoint {
    pub port: Port,
    /// What our messages say that they are from.
    pub source: u32,
    pub vector: Option<usize>,
    pub send: Outlet,
    pub receive: Outlet,
    pub read: Outlet,
    pub write: Outlet,
    pub plain: Matching<Body>,
    pub tagged: Matching<Body>,
    /// Bytes of messages that nobody has asked for.
    pub kept: usize,
    /// Large messages of ours.
    pub sent: Slab<Sent>,
    /// Large messages of ours whose receives we have claimed.
    pub placing: Slab<Placing>,
    /// Records that are used again.
    #[expect(clippy::vec_box, reason = "they move on to `sent`, where others know their places")]
    pub records: Vec<Box<Record>>,
    /// Large messages that are to be copied.
    pub transfers: VecDeque<Transfer>,
    /// Large messages of which their senders are still copying a piece.
    pub unfinished: Vec<Unfinished>,
    /// Large messages of ours that we may help to copy, by their numbers.
    pub helping: VecDeque<usize>,
    pub send_flags: u64,
    pub receive_flags: u64,
    /// What a receive of several messages must have left.
    pub min_multiple: u64,
    /// Receives are from whom they say (FI_DIRECTED_RECV).
    pub directed: bool,
    pub enabled: bool,
    /// It is enabled, and receives are its own.
    pub receives: bool,
    /// Receives are another provider's.
    pub owner: Option<Box<dyn ReceiveOwner>>,
    /// The name that it gets when it is enabled, or has.
    pub name: Option<Name>,
    /// It has its name.
    pub is_named: bool,
    /// Without it, it cannot be enabled (fi_setname).
    pub must_have_name: bool,
    /// To whom we have sent last.
    pub last: Option<(Identity, Hold)>,
    /// To whom we have sent before that, while there is something in `placing`.
    pub holds: Vec<(Identity, Hold)>,
}

impl Endpoint {
    /// Whether a task is held from now on until we send to another: to hold one for each message
    /// takes an atomic exchange each. `false`: it has ended, or as many are held as can be.
    #[inline]
    pub fn has_last(&mut self, here: &Here, whom: Identity) -> bool {
        let is_last = self.last.as_ref().is_some_and(|&(last, _)| last == whom);
        if is_last && here.is_living(whom) {
            return true;
        }
        self.let_last_go();
        self.last = here.task.hold(whom, KEEP).ok().map(|hold| (whom, hold));
        self.last.is_some()
    }

    /// Holds him no longer than until all is told whose receives we have claimed.
    pub fn let_last_go(&mut self) {
        let last = self.last.take();
        if !self.placing.is_empty() {
            self.holds.extend(last);
        }
    }
}

impl State {
    /// Says which ports a queue looks at: those of its endpoints.
    pub fn watch(&self, queue: usize) {
        let Some(queue) = self.queues.get(queue) else { return };
        let endpoints = queue.endpoints.iter().filter_map(|&number| self.endpoints.get(number));
        queue.news.watch(endpoints);
    }

    /// Says which ports the whole domain looks at: those of all endpoints.
    pub fn watch_all(&self, news: &News) {
        news.watch(self.endpoints.numbers().filter_map(|number| self.endpoints.get(number)));
    }

    /// Where messages of this endpoint to this address go.
    pub fn peer(&mut self, endpoint: usize, address: u64) -> Result<Peer, i32> {
        let vector = self.endpoints.get(endpoint).and_then(|endpoint| endpoint.vector);
        peer(&mut self.vectors, vector, address).copied()
    }

    fn vector_of(&mut self, endpoint: usize) -> Result<&mut Vector, i32> {
        let vector = self.endpoints.get(endpoint).and_then(|endpoint| endpoint.vector);
        vector.and_then(|vector| self.vectors.get_mut(vector)).ok_or(abi::ENOAV)
    }

    /// What messages from this address to this endpoint say that they are from.
    #[inline]
    pub fn source(&mut self, here: &Here, endpoint: usize, address: u64) -> Result<u32, i32> {
        match self.peer(endpoint, address) {
            Ok(peer) => Ok(peer.source),
            Err(_) => self.vector_of(endpoint)?.source(here, address as usize),
        }
    }

    /// After an operation to this address has failed: `Ok` if it is worth another try, because the
    /// peer is found by name; otherwise the error.
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

/// Where messages to this address go, by this vector.
#[inline]
pub fn peer(
    vectors: &mut Slab<Vector>,
    vector: Option<usize>,
    address: u64,
) -> Result<&mut Peer, i32> {
    let vector = vector.and_then(|vector| vectors.get_mut(vector)).ok_or(abi::ENOAV)?;
    vector.peers.get_mut(address as usize).and_then(Option::as_mut).ok_or(abi::EINVAL)
}

/// The state, while we have the lock.
#[derive(Debug)]
pub struct Locked<'a>(&'a Core);

impl Deref for Locked<'_> {
    type Target = State;
    #[inline]
    fn deref(&self) -> &State {
        // SAFETY: we have the lock.
        unsafe { &*self.0.state.get() }
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: we have the lock.
        unsafe { &mut *self.0.state.get() }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.0.in_turns {
            true => self.0.lock.give_alone(self.0.here.owner),
            false => self.0.lock.give(self.0.here.owner, false),
        }
    }
}

impl Core {
    /// An empty domain. `None` without memory.
    pub fn new(here: &'static Here, in_turns: bool, format: Format) -> Option<Self> {
        Some(Self {
            here,
            lock: Lock::default(),
            in_turns,
            format,
            state: UnsafeCell::default(),
            broken: AtomicBool::new(false),
            bell: Doorbell::default(),
            news: News::default(),
            regions: Regions::new()?,
            registering: Lock::default(),
        })
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> Locked<'_> {
        let (owner, is_alive) = (self.here.owner, |owner| self.here.is_alive(owner));
        let in_doubt = match self.in_turns {
            true => self.lock.take_alone(owner, is_alive),
            false => self.lock.take(owner, is_alive),
        };
        if in_doubt && !self.broken.swap(true, Release) {
            log::say(abi::LOG_WARN, abi::LOG_CORE, || {
                "a task was killed while it worked in our endpoint, which is lost".to_owned()
            });
        }
        Locked(self)
    }

    /// Wakes other threads of ours that wait, after the lock was given back.
    #[inline]
    pub fn ring(&self) {
        // Where threads take turns, none of them waits now.
        if !self.in_turns {
            self.bell.ring();
        }
    }

    /// Has others wait who would register memory.
    pub fn register(&self) -> Held<'_> {
        self.registering.hold(self.here.owner, |owner| self.here.is_alive(owner))
    }

    /// Whether the state can be relied upon.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Acquire)
    }

    /// Waits until `look` finds something, or for so long: looks for a while, then sleeps.
    pub fn wait<T>(
        &self,
        until: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let looked = WaitPolicy::default().poll(&mut look);
        if looked.is_some() {
            return looked;
        }
        loop {
            let rings = self.bell.about_to_sleep();
            if let Some(found) = look() {
                return Some(found);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            // Not for ever: who should ring may have been killed before.
            self.bell.sleep(rings, left.map_or(DOUBT, |left| left.min(DOUBT)));
            self.tend();
        }
    }
}
