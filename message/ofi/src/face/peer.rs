//! Peers (fi_peer(3)): another provider owns the queue and the receives of our endpoint.
//! libfabric's `lnx` does so to join this provider with one for a network. We report completions to
//! its queue, and ask it for the receive of each arriving message. It keeps unexpected messages
//! until it starts or discards them.
//!
//! We call the owner under the domain's lock. It must not call us back from these calls, except to
//! register memory.

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

/// Versions of libfabric with this interface. Structures of other versions may differ in ways that
/// their sizes do not show.
const VERSIONS: RangeInclusive<u32> = abi::version(2, 3)..=abi::version(2, 6);

/// The name of a peer's fabric. `lnx` recognises the provider for the inside of a node by this
/// name, and takes others for networks.
pub const FABRIC: &CStr = c"shm";

/// Number of operations that a peer has room for, as we report it. `lnx` refuses larger ones.
pub const QUEUE_LENGTH: usize = 1024;

fn refuse(why: &'static str) -> c_int {
    log::write(abi::LOG_WARN, abi::LOG_CORE, || format!("cannot be a peer (FI_PEER): {why}"));
    -abi::EINVAL
}

/// Returns true if the libfabric that has loaded this library has the known interface. Otherwise
/// logs a line.
pub fn is_known() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let known = library::version().is_some_and(|version| VERSIONS.contains(&version));
        if !known {
            refuse("the version of libfabric is not 2.3 to 2.6");
        }
        known
    })
}

/// Checks that structures have the known sizes.
fn agree(sizes: &[(size_t, size_t)]) -> Result<(), c_int> {
    if !is_known() {
        return Err(-abi::EINVAL);
    }
    let same = sizes.iter().all(|(theirs, ours)| theirs == ours);
    if same {
        Ok(())
    } else {
        Err(refuse("the owner's structures are not those of libfabric 2.3 to 2.6"))
    }
}

/// The owner's completion queue.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    queue: NonNull<FidPeerCq>,
    calls: NonNull<OpsCqOwner>,
}

/// A failed completion, with the field that later versions have appended.
#[repr(C)]
struct Failed {
    entry: abi::CqErrEntry,
    source: u64,
}

impl Queue {
    /// Returns the queue that an owner passes to fi_cq_open as its context.
    ///
    /// # Safety
    /// `context` is NULL or the context of fi_cq_open with FI_PEER.
    pub unsafe fn import(context: *mut c_void) -> Result<Self, c_int> {
        // SAFETY: a `fi_peer_cq_context` with the owner's queue and its calls (fi_peer(3)), by this
        // function's contract. Their sizes are checked before other fields are used.
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

// SAFETY: fi_peer(3): the owner's calls may be made from any thread.
unsafe impl Send for Queue {}

impl CompletionOwner for Queue {
    /// Reports a completion. It has no sender, since owners do not use it.
    fn report(&self, done: &Completion) {
        let queue = self.queue.as_ptr();
        // SAFETY: fi_peer(3): the owner keeps its queue and its calls until our queue is closed.
        let calls = unsafe { self.calls.as_ref() };
        let abi::CqTaggedEntry { op_context, flags, len, buf, data, tag } = cq_entry::entry(done);
        let told = match (calls.write, calls.writeerr) {
            (Some(write), _) if done.error == 0 => {
                let source = abi::ADDR_UNSPEC;
                // SAFETY: fi_peer(3): the owner's queue is open.
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
                // SAFETY: fi_peer(3): the owner's queue is open. It copies the entry.
                unsafe { write(queue, (&raw const failed).cast()) }
            }
            _ => -1,
        };
        if told < 0 {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                log::write(abi::LOG_WARN, abi::LOG_CORE, || "a completion is lost".to_owned());
            });
        }
    }
}

/// libfabric's object for the owner's receives.
#[repr(C)]
pub struct SharedReceive {
    fid: abi::FidEp,
    srx: NonNull<FidPeerSrx>,
}

static FID: abi::OpsFid = abi::OpsFid::of(close, None, None);

/// The calls that the owner makes.
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
    // SAFETY: fi_srx_context(3): NULL, or attributes that the caller has filled in.
    if unsafe { attr.as_ref() }.is_none_or(|attr| attr.op_flags & PEER == 0) {
        return -abi::ENOSYS;
    }
    // SAFETY: with FI_PEER, the context is the owner's (fi_peer(3)).
    let srx = match unsafe { import(context) } {
        Ok(srx) => srx,
        Err(error) => return error,
    };
    let fid = abi::Fid { fclass: abi::CLASS_SRX_CTX as size_t, context, ops: &FID };
    // The program posts receives to the owner, so this object has no calls.
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
    // SAFETY: `import` has checked that `srx` is not NULL. fi_peer(3) lets us write both.
    unsafe {
        (*srx.as_ptr()).peer_ops = &OPS;
        endpoint.write(made.cast());
    }
    0
}

/// Returns the receives that an owner passes to fi_srx_context as its context.
///
/// # Safety
/// `context` is NULL or the context of fi_srx_context with FI_PEER.
unsafe fn import(context: *mut c_void) -> Result<NonNull<FidPeerSrx>, c_int> {
    // SAFETY: a `fi_peer_srx_context` with the owner's receives and their calls (fi_peer(3)), by
    // this function's contract. Their sizes are checked before other fields are used.
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
    // SAFETY: `open` has made the object with `Box::into_raw`, and fi_close(3) is called once.
    drop(unsafe { Box::from_raw(fid.cast::<SharedReceive>()) });
    0
}

/// The owner's receives, for one endpoint.
#[derive(Debug, Clone)]
pub struct Receives {
    srx: NonNull<FidPeerSrx>,
    core: Arc<Core>,
    /// The number of the endpoint.
    endpoint: usize,
}

// SAFETY: fi_peer(3): the owner's calls may be made from any thread.
unsafe impl Send for Receives {}

/// The owner's entry for an unexpected message.
pub struct Entry {
    at: NonNull<PeerRxEntry>,
    owner: Receives,
    kind: Kind,
    /// The sender is in no address vector.
    unnamed: bool,
}

/// An unexpected message that the owner keeps.
struct Kept {
    owner: Receives,
    kind: Kind,
    head: Head,
    body: Body,
    unnamed: bool,
}

/// An unexpected message whose sender is in no address vector.
struct Unnamed {
    entry: usize,
    source: u32,
    owner: Receives,
}

static UNNAMED: Mutex<Vec<Unnamed>> = Mutex::new(Vec::new());

impl SharedReceive {
    /// Returns the receives for an endpoint.
    pub fn of(&self, core: &Arc<Core>, endpoint: usize) -> Receives {
        Receives { srx: self.srx, core: core.clone(), endpoint }
    }
}

impl Receives {
    fn calls(&self) -> &OpsSrxOwner {
        // SAFETY: fi_peer(3): the owner keeps its receives and their calls until our endpoints are
        // closed.
        unsafe { &*self.srx.as_ref().owner_ops }
    }

    fn free(&self, entry: NonNull<PeerRxEntry>) {
        if let Some(free) = self.calls().free_entry {
            // SAFETY: the owner has given us the entry, and we do not use it after this call.
            unsafe { free(entry.as_ptr()) };
        }
    }

    /// Returns the address of a sender in the owner's vector.
    fn name(&self, source: u32) -> Option<u64> {
        let state = self.core.lock();
        let vector = state.endpoints.get(self.endpoint)?.vector?;
        state.vectors.get(vector)?.fi_addr(source)
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
            // SAFETY: fi_peer(3): `attr` describes the message, and the owner writes the entry.
            unsafe { get(self.srx.as_ptr(), &raw mut attr, &raw mut entry) }
        });
        match (-found, NonNull::new(entry)) {
            (0, Some(at)) => {
                // SAFETY: the owner has filled the entry in, and leaves it to us until `free`.
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

/// Returns the match of a whole receive of the owner's.
fn taken(entry: &PeerRxEntry, wants: impl Fn(u64) -> bool) -> Match {
    // SAFETY: fi_peer(3): the entry has a list of `count` parts.
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
        // SAFETY: fi_peer(3): the entry is ours to fill in until it is queued.
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
            // SAFETY: `Kept` was put there above, and the owner has refused the entry.
            drop(unsafe { Kept::take(at) });
            owner.free(at);
        }
        is_kept
    }
}

impl Kept {
    /// Takes the message out of an entry.
    ///
    /// # Safety
    /// `keep` of the entry's owner has put the message there, and it was not taken since.
    unsafe fn take(at: NonNull<PeerRxEntry>) -> Self {
        // SAFETY: `keep` has made the pointer with `Box::into_raw`, by this function's
        // contract.
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

/// Starts a message that the owner has kept: it has a receive now.
unsafe extern "C" fn start(entry: *mut PeerRxEntry) -> c_int {
    let Some(at) = NonNull::new(entry) else { return -abi::EINVAL };
    // SAFETY: fi_peer(3): the owner starts or discards each queued entry once.
    let Kept { owner, kind, head, body, .. } = unsafe { Kept::take(at) };
    let mut state = owner.core.lock();
    let State { endpoints, queues, .. } = &mut *state;
    let Some(endpoint) = endpoints.get_mut(owner.endpoint) else { return -abi::EINVAL };
    // SAFETY: the owner has filled the entry in, and leaves it to us until `free`.
    let taken = taken(unsafe { at.as_ref() }, |flags| endpoint.receive.wants(flags));
    deliver(owner.core.here, endpoint, queues, kind, &taken, &head, body);
    owner.free(at);
    owner.core.run_work(state, owner.endpoint);
    0
}

/// Discards a message that the owner has kept. The entry stays the owner's.
unsafe extern "C" fn discard(entry: *mut PeerRxEntry) -> c_int {
    let Some(at) = NonNull::new(entry) else { return -abi::EINVAL };
    // SAFETY: fi_peer(3): the owner starts or discards each queued entry once.
    let Kept { owner, body, .. } = unsafe { Kept::take(at) };
    let mut state = owner.core.lock();
    let Some(endpoint) = state.endpoints.get_mut(owner.endpoint) else { return -abi::EINVAL };
    drop_body(owner.core.here, endpoint, body);
    0
}

/// Lets owners look up senders that were in no address vector, after peers were inserted.
pub fn find_unnamed() {
    let mut owners: Vec<Receives> = Vec::new();
    for unnamed in UNNAMED.lock().expect("no panic while held").iter() {
        if !owners.iter().any(|owner| owner.srx == unnamed.owner.srx) {
            owners.push(unnamed.owner.clone());
        }
    }
    for owner in owners {
        if let Some(for_each) = owner.calls().foreach_unspec_addr {
            // SAFETY: fi_peer(3): the owner's receives are open, and it calls `name_of` during this
            // call.
            unsafe { for_each(owner.srx.as_ptr(), name_of) };
        }
    }
}

/// Returns the address of a message's sender. The owner may ask for messages of other peers, too.
unsafe extern "C" fn name_of(entry: *mut PeerRxEntry) -> u64 {
    let find = || {
        let all = UNNAMED.lock().expect("no panic while held");
        let unnamed = all.iter().find(|unnamed| unnamed.entry == entry as usize)?;
        Some((unnamed.owner.clone(), unnamed.source))
    };
    find().and_then(|(owner, source)| owner.name(source)).unwrap_or(abi::ADDR_UNSPEC)
}
