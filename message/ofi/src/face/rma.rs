//! Remote memory: fi_read, fi_write and their like. Who asks copies, at once; the target only
//! hears of it if it wants to.

use std::ffi::c_void;

use control::hold::Hold;
use libc::{iovec, size_t, ssize_t};
use sync::ring::{self, Reserved, Sender, lines_of};

use crate::abi::{self, Context, Desc, Descs, Ep, RmaIov};
use crate::engine::completion::Completion;
use crate::engine::copy::{self, Way};
use crate::engine::counts::Counts;
use crate::engine::port::Peer;
use crate::engine::space::{Here, ticket};
use crate::engine::state::State;
use crate::face::args::{list, part};
use crate::face::endpoint_object::{self, EndpointObject};
use crate::protocol::parts::{PARTS, Part, Parts};
use crate::protocol::wire::{EAGER_MAX, ENVELOPE, Envelope, Kind};

/// The calls.
pub static OPS: abi::OpsRma = abi::OpsRma {
    size: size_of::<abi::OpsRma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};

/// What is to be read or written.
struct Access<'a> {
    way: Way,
    parts: &'a [iovec],
    to: u64,
    remote: &'a [RmaIov],
    data: Option<u64>,
    context: Context,
    /// `None`: the endpoint's.
    flags: Option<u64>,
    /// No completion is told.
    injected: bool,
}

/// A peer whose memory is to be reached, held.
pub struct Reached {
    /// The peer.
    pub peer: Peer,
    source: u32,
    _held: Hold,
}

impl Reached {
    /// The one at this address.
    pub fn new(object: &EndpointObject, to: u64) -> Result<Self, i32> {
        Self::reach(object, to).or_else(|error| {
            object.core.lock().seek(object.core.here, object.number, to, error)?;
            Self::reach(object, to)
        })
    }

    fn reach(object: &EndpointObject, to: u64) -> Result<Self, i32> {
        let core = &*object.core;
        let (peer, source) = {
            let mut state = core.lock();
            let endpoint = state.endpoints.get(object.number).ok_or(abi::EINVAL)?;
            if !endpoint.enabled {
                return Err(abi::EOPBADSTATE);
            }
            let source = endpoint.source;
            (state.peer(object.number, to)?, source)
        };
        let held = core.here.hold(peer.whom).ok_or(abi::ECONNRESET)?;
        if !peer.is_open() {
            return Err(abi::ECONNRESET);
        }
        Ok(Self { peer, source, _held: held })
    }

    /// Counts at the target that its memory was read or written, if it wants to know: by its
    /// endpoint, and by the regions' counters, whose addresses these are.
    pub fn count(&self, here: &Here, was_read: bool, regions: &[u64]) {
        let whom = self.peer.whom;
        let of_endpoint = self.peer.head().remote_counts(here, whom, was_read);
        let of_regions = regions.iter().filter_map(|&at| Counts::of(here, whom, at));
        let mut counted = false;
        for counts in of_endpoint.into_iter().chain(of_regions) {
            counts.count(false);
            counted = true;
        }
        if counted {
            self.peer.ring_bell();
        }
    }

    /// Makes sure that data can be told to the target's queue. Error: no room.
    pub fn announce(&self, here: &Here) -> Result<Announced<'_>, i32> {
        let mut sender = Sender::new(ticket(here.us), self.source);
        let reserved = sender.reserve(&self.peer.ring, lines_of(ENVELOPE));
        let reserved = reserved.map_err(|_| abi::EAGAIN)?;
        Ok(Announced { peer: &self.peer, sender, reserved, envelope: [0; ENVELOPE] })
    }

    /// Tells ourselves that it is done. `wanted`: what the call's flags say; `None`: nothing.
    pub fn complete(
        self,
        object: &EndpointObject,
        way: Way,
        flags: u64,
        context: Context,
        wanted: Option<Option<u64>>,
        error: i32,
    ) -> Result<(), i32> {
        drop(self);
        let mut state = object.core.lock();
        let State { endpoints, queues, .. } = &mut *state;
        let endpoint = endpoints.get_mut(object.number).ok_or(abi::EINVAL)?;
        let outlet = if way == Way::Pull { &endpoint.read } else { &endpoint.write };
        let asked = |flags: Option<u64>| outlet.wants(flags.unwrap_or(endpoint.send_flags));
        let wanted = wanted.is_some_and(asked);
        let context = context as usize;
        outlet.complete(queues, Completion { context, flags, error, ..Default::default() }, wanted);
        Ok(())
    }
}

/// Data for the target's queue, for which there is room: sent when dropped. If nothing is told
/// until then, the target drops it.
pub struct Announced<'a> {
    peer: &'a Peer,
    sender: Sender,
    reserved: Reserved,
    envelope: [u8; ENVELOPE],
}

impl Announced<'_> {
    /// So many bytes were written or changed.
    pub fn tell(&mut self, kind: Kind, bytes: u64, data: u64) {
        self.envelope = Envelope::of(kind, bytes, Some(data)).bytes();
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        let Self { peer, sender, reserved, envelope } = self;
        sender.fill(&peer.ring, reserved, ring::Kind::Inline, &[envelope]);
        peer.ring_bell();
    }
}

impl Access<'_> {
    fn run(&self, object: &EndpointObject) -> Result<(), i32> {
        let here = object.core.here;
        let reached = Reached::new(object, self.to)?;
        let peer = &reached.peer;
        let ours = Parts::of(self.parts).ok_or(abi::EINVAL)?;
        let bytes = ours.length();
        if self.injected && bytes > EAGER_MAX as u64 {
            return Err(abi::EMSGSIZE);
        }
        let access = if self.way == Way::Pull { abi::REMOTE_READ } else { abi::REMOTE_WRITE };
        let mut theirs = [Part::default(); PARTS];
        if self.remote.len() > PARTS {
            return Err(abi::EINVAL);
        }
        let mut counts = [0; PARTS];
        for ((part, count), remote) in theirs.iter_mut().zip(&mut counts).zip(self.remote) {
            let length = remote.len as u64;
            let found = peer.regions().look_up(remote.key, remote.addr, length, access)?;
            *part = Part { address: found.address, length };
            *count = found.counts;
        }
        let theirs = &theirs[..self.remote.len()];
        if theirs.iter().map(|part| part.length).sum::<u64>() != bytes {
            return Err(abi::EINVAL);
        }
        let copied = copy::copy(here, peer.whom, peer.is_far, self.way, ours.list(), theirs, bytes);
        let error = copied.err().map_or(0, rustix::io::Errno::raw_os_error);
        if error == 0 {
            // Where there is no room, all is done once more: others' messages shall not wait.
            if let Some(data) = self.data {
                reached.announce(here)?.tell(Kind::Written, bytes, data);
            }
            reached.count(here, self.way == Way::Pull, &counts[..self.remote.len()]);
        }
        let flags = abi::RMA | if self.way == Way::Pull { abi::READ } else { abi::WRITE };
        let wanted = if self.injected { None } else { Some(self.flags) };
        reached.complete(object, self.way, flags, self.context, wanted, error)
    }
}

/// # Safety
/// As libfabric's manual has it.
unsafe fn run(ep: Ep, access: &Access<'_>) -> ssize_t {
    // SAFETY: as the caller says.
    let object = unsafe { endpoint_object::of(ep) };
    access.run(object).map_or_else(|error| -(error as ssize_t), |()| 0)
}

fn length(parts: &[iovec]) -> usize {
    parts.iter().map(|part| part.iov_len).sum()
}

/// An access to one place.
///
/// # Safety
/// As libfabric's manual has it.
unsafe fn one(
    ep: Ep,
    way: Way,
    parts: &[iovec],
    to: u64,
    (addr, key): (u64, u64),
    data: Option<u64>,
    context: Option<Context>,
) -> ssize_t {
    let remote = &[RmaIov { addr, len: length(parts), key }];
    let injected = context.is_none();
    let context = context.unwrap_or(std::ptr::null_mut());
    // SAFETY: as the caller says.
    unsafe { run(ep, &Access { way, parts, to, remote, data, context, flags: None, injected }) }
}

/// # Safety
/// As libfabric's manual has it.
unsafe fn message(ep: Ep, way: Way, message: *const abi::MsgRma, flags: u64) -> ssize_t {
    // SAFETY: as the caller says.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let parts = list(message.msg_iov, message.iov_count);
        let remote = list(message.rma_iov, message.rma_iov_count);
        let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(message.data);
        let (to, context) = (message.addr, message.context);
        let flags = Some(flags);
        run(ep, &Access { way, parts, to, remote, data, context, flags, injected: false })
    }
}

unsafe extern "C" fn read(
    ep: Ep,
    buffer: *mut c_void,
    length: size_t,
    _: Desc,
    to: u64,
    address: u64,
    key: u64,
    context: Context,
) -> ssize_t {
    let parts = &[part(buffer, length)];
    // SAFETY: as libfabric's manual has it.
    unsafe { one(ep, Way::Pull, parts, to, (address, key), None, Some(context)) }
}

unsafe extern "C" fn readv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    to: u64,
    address: u64,
    key: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { one(ep, Way::Pull, list(parts, count), to, (address, key), None, Some(context)) }
}

unsafe extern "C" fn readmsg(ep: Ep, msg: *const abi::MsgRma, flags: u64) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { message(ep, Way::Pull, msg, flags) }
}

unsafe extern "C" fn write(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    to: u64,
    address: u64,
    key: u64,
    context: Context,
) -> ssize_t {
    let parts = &[part(buffer, length)];
    // SAFETY: as libfabric's manual has it.
    unsafe { one(ep, Way::Push, parts, to, (address, key), None, Some(context)) }
}

unsafe extern "C" fn writev(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    to: u64,
    address: u64,
    key: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { one(ep, Way::Push, list(parts, count), to, (address, key), None, Some(context)) }
}

unsafe extern "C" fn writemsg(ep: Ep, msg: *const abi::MsgRma, flags: u64) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
    unsafe { message(ep, Way::Push, msg, flags) }
}

unsafe extern "C" fn inject(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    to: u64,
    address: u64,
    key: u64,
) -> ssize_t {
    let parts = &[part(buffer, length)];
    // SAFETY: as libfabric's manual has it.
    unsafe { one(ep, Way::Push, parts, to, (address, key), None, None) }
}

unsafe extern "C" fn writedata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    data: u64,
    to: u64,
    address: u64,
    key: u64,
    context: Context,
) -> ssize_t {
    let parts = &[part(buffer, length)];
    // SAFETY: as libfabric's manual has it.
    unsafe { one(ep, Way::Push, parts, to, (address, key), Some(data), Some(context)) }
}

unsafe extern "C" fn injectdata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    data: u64,
    to: u64,
    address: u64,
    key: u64,
) -> ssize_t {
    let parts = &[part(buffer, length)];
    // SAFETY: as libfabric's manual has it.
    unsafe { one(ep, Way::Push, parts, to, (address, key), Some(data), None) }
}
