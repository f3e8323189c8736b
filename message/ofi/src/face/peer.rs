//! Peers (fi_peer(3)): a provider that joins several into one endpoint, as libfabric's `lnx`
//! joins us to a network's, owns the queue and the receives of all of them. We tell its queue
//! what is done, ask it for the receive of each message that comes, and leave with it those that
//! nobody has asked for, until it starts or discards them.
//!
//! The owner must not call us back from its calls, but for memory that it registers: we make them
//! under the domain's lock.

use std::ffi::{CStr, c_int, c_void};
use std::ops::RangeInclusive;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, Once, OnceLock};

use libc::size_t;

use crate::abi;
use crate::abi::peer::{
    FidPeerCq, FidPeerSrx, OpsCqOwner, OpsSrxOwner, OpsSrxPeer, PEER, PeerCqContext, PeerMatchAttr,
    PeerRxEntry, PeerSrxContext,
};
use crate::engine::completion::Completion;
use crate::engine::deliver::{deliver, drop_body};
use crate::engine::library;
use crate::engine::log;
use crate::engine::owner::{self, CompletionOwner, Got, ReceiveOwner};
use crate::engine::state::{Core, State};
use crate::engine::transfer::Body;
use crate::face::args::list;
use crate::face::cq_entry;
use crate::protocol::matching::{Head, Match};
use crate::protocol::parts::Parts;
use crate::protocol::wire::Kind;

/// Whose interface this is: versions of libfabric, in which nothing else tells of changes.
const VERSIONS: RangeInclusive<u32> = abi::version(2, 3)..=abi::version(2, 6);

/// What the fabric of a peer is called: `lnx` asks by this name who serves the inside of a node,
/// and takes whoever is called otherwise for a network.
pub const FABRIC: &CStr = c"shm";

/// Operations that a peer says it has room for: `lnx` refuses those who claim more.
pub const QUEUE: usize = 1024;

fn refuse(why: &'static str) -> c_int {
    log::say(abi::LOG_WARN, abi::LOG_CORE, || format!("cannot be a peer (FI_PEER): {why}"));
    -abi::EINVAL
}

/// Whether the libfabric that has loaded us has the interface that we know. If not, a line.
pub fn is_known() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let known = library::version().is_some_and(|version| VERSIONS.contains(&version));
        if !known {
            refuse("libfabric is none of 2.3 to 2.6");
        }
        known
    })
}

/// Makes sure that structures are as long as we know them.
fn agree(sizes: &[(size_t, size_t)]) -> Result<(), c_int> {
    if !is_known() {
        return Err(-abi::EINVAL);
    }
    let same = sizes.iter().all(|(theirs, ours)| theirs == ours);
    if same { Ok(()) } else { Err(refuse("its structures are not those of libfabric 2.3 to 2.6")) }
}

/// The owner's queue.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    queue: NonNull<FidPeerCq>,
    calls: NonNull<OpsCqOwner>,
}

/// A completion that has failed, with what libfabric has appended.
#[repr(C)]
struct Failed {
    entry: abi::CqErrEntry,
    source: u64,
}

impl Queue {
    /// The queue that an owner passes to fi_cq_open as its context.
    ///
    /// # Safety
    /// It does so.
    pub unsafe fn import(context: *mut c_void) -> Result<Self, c_int> {
        // SAFETY: as the caller says.
        unsafe {
            let context = context.cast::<PeerCqContext>().as_ref().ok_or(-abi::EINVAL)?;
            agree(&[(context.size, size_of::<PeerCqContext>())])?;
            let queue = NonNull::new(context.cq).ok_or(-abi::EINVAL)?;
            let calls = NonNull::new(queue.as_ref().owner_ops.cast_mut()).ok_or(-abi::EINVAL)?;
            agree(&[(calls.as_ref().size, size_of::<OpsCqOwner>())])?;
            Ok(Self { queue, calls })
        }
    }
}

// SAFETY: the calls of an owner do not belong to a thread.
unsafe impl Send for Queue {}

impl CompletionOwner for Queue {
    /// Reports a completion without its sender, which no owner could use.
    fn report(&self, done: &Completion) {
        let queue = self.queue.as_ptr();
        // SAFETY: an owner's queue stays until ours is closed.
        let calls = unsafe { self.calls.as_ref() };
        let abi::CqTaggedEntry { op_context, flags, len, buf, data, tag } = cq_entry::entry(done);
        let told = match (calls.write, calls.writeerr) {
            (Some(write), _) if done.error == 0 => {
                let source = abi::ADDR_UNSPEC;
                // SAFETY: as above.
                unsafe { write(queue, op_context, flags, len, buf, data, tag, source) }
            }
            (_, Some(write)) => {
                let (err, olen) = (done.error, done.overflow as size_t);
                let entry = abi::CqErrEntry {
                    op_context,
                    flags,
                    len,
                    buf,
                    data,
                    tag,
                    olen,
                    err,
                    prov_errno: err,
                    err_data: ptr::null_mut(),
                    err_data_size: 0,
                };
                let failed = Failed { entry, source: abi::ADDR_UNSPEC };
                // SAFETY: as above; it is copied.
                unsafe { write(queue, (&raw const failed).cast()) }
            }
            _ => -1,
        };
        if told < 0 {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                log::say(abi::LOG_WARN, abi::LOG_CORE, || "a completion is lost".to_owned());
            });
        }
    }
}

/// The owner's receives, as libfabric's object.
#[repr(C)]
pub struct SharedReceive {
    fid: abi::FidEp,
    srx: NonNull<FidPeerSrx>,
}

static FID: abi::OpsFid = abi::OpsFid::of(close, None, None);

/// What the owner asks of us.
static OPS: OpsSrxPeer = OpsSrxPeer {
    size: size_of::<OpsSrxPeer>(),
    start_msg: Some(start),
    start_tag: Some(start),
    discard_msg: Some(discard),
    discard_tag: Some(discard),
};

/// fi_srx_context(3), for peers only.
pub unsafe extern "C" fn open(
    _: *mut abi::FidDomain,
    attr: *mut abi::RxAttr,
    endpoint: *mut *mut abi::FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's, if there is one.
    if unsafe { attr.as_ref() }.is_none_or(|attr| attr.op_flags & PEER == 0) {
        return -abi::ENOSYS;
    }
    // SAFETY: with this flag an owner passes its receives as the context.
    let srx = match unsafe { import(context) } {
        Ok(srx) => srx,
        Err(error) => return error,
    };
    let fid = abi::Fid { fclass: abi::CLASS_SRX_CTX as size_t, context, ops: &FID };
    // Nobody receives here but the owner, who does not ask us.
    let fid = abi::FidEp {
        fid,
        ops: ptr::null(),
        cm: ptr::null(),
        msg: ptr::null(),
        rma: ptr::null(),
        tagged: ptr::null(),
        atomic: ptr::null(),
        collective: ptr::null(),
    };
    let made = Box::into_raw(Box::new(SharedReceive { fid, srx }));
    // SAFETY: the owner's, who waits for both.
    unsafe {
        (*srx.as_ptr()).peer_ops = &OPS;
        endpoint.write(made.cast());
    }
    0
}

/// # Safety
/// The context is an owner's.
unsafe fn import(context: *mut c_void) -> Result<NonNull<FidPeerSrx>, c_int> {
    // SAFETY: as the caller says.
    unsafe {
        let context = context.cast::<PeerSrxContext>().as_ref().ok_or(-abi::EINVAL)?;
        agree(&[(context.size, size_of::<PeerSrxContext>())])?;
        let srx = NonNull::new(context.srx).ok_or(-abi::EINVAL)?;
        let calls = srx.as_ref().owner_ops.as_ref().ok_or(-abi::EINVAL)?;
        agree(&[(calls.size, size_of::<OpsSrxOwner>())])?;
        let gets = calls.get_msg.is_some() && calls.get_tag.is_some();
        let queues = calls.queue_msg.is_some() && calls.queue_tag.is_some();
        let frees = calls.free_entry.is_some();
        if gets && queues && frees { Ok(srx) } else { Err(-abi::EINVAL) }
    }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: made by `open`, and closed once.
    drop(unsafe { Box::from_raw(fid.cast::<SharedReceive>()) });
    0
}

/// The owner's receives, as an endpoint knows them.
#[derive(Debug, Clone)]
pub struct Receives {
    srx: NonNull<FidPeerSrx>,
    core: Arc<Core>,
    /// The endpoint's number.
    endpoint: usize,
}

// SAFETY: owners' calls are not a thread's.
unsafe impl Send for Receives {}

/// A receive of the owner's that is still to come, for a message that is here.
pub struct Entry {
    at: NonNull<PeerRxEntry>,
    owner: Receives,
    kind: Kind,
    /// Who has sent it is in no vector.
    unnamed: bool,
}

/// A message that the owner keeps.
struct Kept {
    owner: Receives,
    kind: Kind,
    head: Head,
    body: Body,
    unnamed: bool,
}

/// One of those that owners keep, whose sender was in no vector.
struct Unnamed {
    entry: usize,
    source: u32,
    owner: Receives,
}

static UNNAMED: Mutex<Vec<Unnamed>> = Mutex::new(Vec::new());

impl SharedReceive {
    /// For an endpoint.
    pub fn of(&self, core: &Arc<Core>, endpoint: usize) -> Receives {
        Receives { srx: self.srx, core: core.clone(), endpoint }
    }
}

impl Receives {
    fn calls(&self) -> &OpsSrxOwner {
        // SAFETY: an owner's receives stay until its endpoints are closed.
        unsafe { &*self.srx.as_ref().owner_ops }
    }

    fn free(&self, entry: NonNull<PeerRxEntry>) {
        if let Some(free) = self.calls().free_entry {
            // SAFETY: the entry is the owner's, and nobody looks at it any more.
            unsafe { free(entry.as_ptr()) };
        }
    }

    /// What the owner calls this sender.
    fn name(&self, source: u32) -> Option<u64> {
        let state = self.core.lock();
        let vector = state.endpoints.get(self.endpoint)?.vector?;
        state.vectors.get(vector)?.name(source)
    }
}

impl ReceiveOwner for Receives {
    fn get(&self, kind: Kind, head: &Head, name: Option<u64>, wants: &dyn Fn(u64) -> bool) -> Got {
        let addr = name.unwrap_or(abi::ADDR_UNSPEC);
        let mut attr = PeerMatchAttr { addr, msg_size: head.length as size_t, tag: head.tag };
        let calls = self.calls();
        let get = if kind == Kind::Plain { calls.get_msg } else { calls.get_tag };
        let mut entry = ptr::null_mut();
        let found = get.map_or(-abi::ENOSYS, |get| {
            // SAFETY: as fi_peer(3) has it.
            unsafe { get(self.srx.as_ptr(), &raw mut attr, &raw mut entry) }
        });
        match (-found, NonNull::new(entry)) {
            (0, Some(at)) => {
                // SAFETY: the owner has filled it in, and it is ours until we free it.
                let taken = taken(unsafe { at.as_ref() }, wants);
                self.free(at);
                Got::Receive(taken)
            }
            (abi::ENOENT, Some(at)) => {
                let (owner, unnamed) = (self.clone(), name.is_none());
                Got::Entry(Box::new(Entry { at, owner, kind, unnamed }))
            }
            (abi::ENOSYS, _) => Got::Refusal,
            _ => Got::Nothing,
        }
    }

    fn close(&self) {
        let is_ours = |owner: &Self| owner.srx == self.srx;
        UNNAMED.lock().expect("no panic while held").retain(|unnamed| !is_ours(&unnamed.owner));
    }
}

/// What of the owner's receive a message gets: all.
fn taken(entry: &PeerRxEntry, wants: impl Fn(u64) -> bool) -> Match {
    // SAFETY: the owner says that there are so many.
    let parts = unsafe { list(entry.iov.cast_const(), entry.count) };
    Match {
        context: entry.context as usize,
        buffer: Parts::of(parts).unwrap_or_default(),
        completes: wants(entry.flags),
        multiple: false,
        last: true,
    }
}

impl owner::Entry for Entry {
    fn free(self: Box<Self>) {
        self.owner.free(self.at);
    }

    fn keep(self: Box<Self>, head: Head, body: Body) -> bool {
        let Self { at, owner, kind, unnamed } = *self;
        let calls = owner.calls();
        let queue = if kind == Kind::Plain { calls.queue_msg } else { calls.queue_tag };
        if unnamed {
            let entry = at.as_ptr() as usize;
            let source = head.source;
            let owner = owner.clone();
            UNNAMED.lock().expect("no panic while held").push(Unnamed { entry, source, owner });
        }
        let kept = Kept { owner: owner.clone(), kind, head, body, unnamed };
        // SAFETY: ours to fill in until it is queued.
        let queued = unsafe {
            let entry = &mut *at.as_ptr();
            entry.peer_context = Box::into_raw(Box::new(kept)).cast();
            if let Some(data) = head.data {
                entry.flags |= abi::REMOTE_CQ_DATA;
                entry.cq_data = data;
            }
            queue.map(|queue| queue(at.as_ptr()))
        };
        let is_kept = queued == Some(0);
        if !is_kept {
            // SAFETY: put there above, and nobody else has seen it.
            drop(unsafe { Kept::take(at) });
            owner.free(at);
        }
        is_kept
    }
}

impl Kept {
    /// # Safety
    /// The entry has been through [`Entry::keep`], and not through this since.
    unsafe fn take(at: NonNull<PeerRxEntry>) -> Self {
        // SAFETY: as the caller says.
        let kept = unsafe {
            let context = ptr::replace(&raw mut (*at.as_ptr()).peer_context, ptr::null_mut());
            *Box::from_raw(context.cast::<Self>())
        };
        if kept.unnamed {
            let entry = at.as_ptr() as usize;
            UNNAMED.lock().expect("no panic while held").retain(|other| other.entry != entry);
        }
        kept
    }
}

/// A receive has found a message that the owner has kept.
unsafe extern "C" fn start(entry: *mut PeerRxEntry) -> c_int {
    let Some(at) = NonNull::new(entry) else { return -abi::EINVAL };
    // SAFETY: the owner passes what it was given, once.
    let Kept { owner, kind, head, body, .. } = unsafe { Kept::take(at) };
    let mut state = owner.core.lock();
    let State { endpoints, queues, .. } = &mut *state;
    let Some(endpoint) = endpoints.get_mut(owner.endpoint) else { return -abi::EINVAL };
    // SAFETY: the owner has filled it in, and it is ours until we free it.
    let taken = taken(unsafe { at.as_ref() }, |flags| endpoint.receive.wants(flags));
    deliver(owner.core.here, endpoint, queues, kind, &taken, &head, body);
    owner.free(at);
    state.work_off(&owner.core, owner.endpoint);
    0
}

/// Nobody wants a message that the owner has kept. The entry stays the owner's.
unsafe extern "C" fn discard(entry: *mut PeerRxEntry) -> c_int {
    let Some(at) = NonNull::new(entry) else { return -abi::EINVAL };
    // SAFETY: the owner passes what it was given, once.
    let Kept { owner, body, .. } = unsafe { Kept::take(at) };
    let mut state = owner.core.lock();
    let Some(endpoint) = state.endpoints.get_mut(owner.endpoint) else { return -abi::EINVAL };
    drop_body(owner.core.here, endpoint, body);
    0
}

/// There are new peers in a vector: owners look again at the messages whose senders were unknown.
pub fn look_again() {
    let mut owners: Vec<Receives> = Vec::new();
    for unnamed in UNNAMED.lock().expect("no panic while held").iter() {
        if !owners.iter().any(|owner| owner.srx == unnamed.owner.srx) {
            owners.push(unnamed.owner.clone());
        }
    }
    for owner in owners {
        if let Some(for_each) = owner.calls().foreach_unspec_addr {
            // SAFETY: as fi_peer(3) has it.
            unsafe { for_each(owner.srx.as_ptr(), name_of) };
        }
    }
}

/// What the sender of a message is called now. The owner may ask for messages of other peers'.
unsafe extern "C" fn name_of(entry: *mut PeerRxEntry) -> u64 {
    let find = || {
        let all = UNNAMED.lock().expect("no panic while held");
        let unnamed = all.iter().find(|unnamed| unnamed.entry == entry as usize)?;
        Some((unnamed.owner.clone(), unnamed.source))
    };
    find().and_then(|(owner, source)| owner.name(source)).unwrap_or(abi::ADDR_UNSPEC)
}
