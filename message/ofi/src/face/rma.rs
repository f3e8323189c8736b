//! Remote memory: fi_read, fi_write and similar calls. The caller copies, at once. The target gets
//! a message only for remote completion data.

use std::ffi::c_void;

use libc::{iovec, size_t, ssize_t};
use sync::ring::{self, Reserved, Sender, lines_of};

use crate::abi::{self, Context, Desc, Descs, Ep, RmaIov};
use crate::engine::completion::Completion;
use crate::engine::copy::{self, Direction};
use crate::engine::counts::Counts;
use crate::engine::port::Peer;
use crate::engine::remote::HeldTask;
use crate::engine::space::{Here, ticket};
use crate::engine::state::State;
use crate::face::args::{list, part};
use crate::face::endpoint_object::{self, EndpointObject};
use crate::protocol::parts::{PARTS, Part, Parts};
use crate::protocol::wire::{EAGER_MAX, ENVELOPE_BYTES, Envelope, Kind};

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

/// A call.
struct Access<'a> {
    direction: Direction,
    parts: &'a [iovec],
    to: u64,
    remote: &'a [RmaIov],
    data: Option<u64>,
    context: Context,
    /// `None`: the endpoint's flags apply.
    flags: Option<u64>,
    /// The operation reports no completion.
    injected: bool,
}

/// A peer, held while its memory is accessed.
pub struct Reached {
    /// The peer.
    pub peer: Peer,
    source: u32,
    held: HeldTask,
}

impl Reached {
    /// Holds the peer at this address.
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
        let held = core.here.hold(peer.task).ok_or(abi::ECONNRESET)?;
        if !peer.is_open() {
            return Err(abi::ECONNRESET);
        }
        Ok(Self { peer, source, held })
    }

    /// Counts an access in the counter of the target's endpoint, and in those of the regions, whose
    /// addresses are `regions`.
    pub fn count(&self, here: &Here, was_read: bool, regions: &[u64]) {
        let of_endpoint = self.peer.head().remote_counts(here, &self.held, was_read);
        let of_regions = regions.iter().filter_map(|&at| self.held.object::<Counts>(here, at));
        let mut counted = false;
        for counts in of_endpoint.into_iter().chain(of_regions) {
            counts.count(false);
            counted = true;
        }
        if counted {
            self.peer.ring_doorbell();
        }
    }

    /// Reserves room in the target's ring for a notice with data. Error: EAGAIN.
    pub fn reserve(&self, here: &Here) -> Result<Notice<'_>, i32> {
        let mut sender = Sender::new(ticket(here.us), self.source);
        let reserved = sender.reserve(&self.peer.ring, lines_of(ENVELOPE_BYTES));
        let reserved = reserved.map_err(|_| abi::EAGAIN)?;
        Ok(Notice { peer: &self.peer, sender, reserved, envelope: [0; ENVELOPE_BYTES] })
    }

    /// Reports the completion. `wanted` is the call's flags; the outer `None`: no completion.
    pub fn complete(
        self,
        object: &EndpointObject,
        direction: Direction,
        flags: u64,
        context: Context,
        wanted: Option<Option<u64>>,
        error: i32,
    ) -> Result<(), i32> {
        drop(self);
        let mut state = object.core.lock();
        let State { endpoints, queues, .. } = &mut *state;
        let endpoint = endpoints.get_mut(object.number).ok_or(abi::EINVAL)?;
        let binding = if direction == Direction::Pull { &endpoint.read } else { &endpoint.write };
        let asked = |flags: Option<u64>| binding.wants(flags.unwrap_or(endpoint.send_flags));
        let wanted = wanted.is_some_and(asked);
        let context = context as usize;
        binding.complete(
            queues,
            Completion { context, flags, error, ..Default::default() },
            wanted,
        );
        Ok(())
    }
}

/// A notice with data for the target's queue, in reserved room. It is sent when this is dropped.
/// The target drops a notice that was not set.
pub struct Notice<'a> {
    peer: &'a Peer,
    sender: Sender,
    reserved: Reserved,
    envelope: [u8; ENVELOPE_BYTES],
}

impl Notice<'_> {
    /// Sets the notice: `bytes` bytes were written or changed.
    pub fn set(&mut self, kind: Kind, bytes: u64, data: u64) {
        self.envelope = Envelope::of(kind, bytes, Some(data)).bytes();
    }
}

impl Drop for Notice<'_> {
    fn drop(&mut self) {
        let Self { peer, sender, reserved, envelope } = self;
        sender.fill(&peer.ring, reserved, ring::Kind::Inline, &[envelope]);
        peer.ring_doorbell();
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
        let access =
            if self.direction == Direction::Pull { abi::REMOTE_READ } else { abi::REMOTE_WRITE };
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
        let copied =
            copy::copy(here, peer.task, peer.is_far, self.direction, ours.list(), theirs, bytes);
        let error = copied.err().map_or(0, rustix::io::Errno::raw_os_error);
        if error == 0 {
            // Without room the program repeats the whole call. A retry here would block other
            // messages.
            if let Some(data) = self.data {
                reached.reserve(here)?.set(Kind::Written, bytes, data);
            }
            reached.count(here, self.direction == Direction::Pull, &counts[..self.remote.len()]);
        }
        let flags =
            abi::RMA | if self.direction == Direction::Pull { abi::READ } else { abi::WRITE };
        let wanted = if self.injected { None } else { Some(self.flags) };
        reached.complete(object, self.direction, flags, self.context, wanted, error)
    }
}

/// # Safety
/// As fi_rma(3) asks for: the endpoint is open, and the buffers stay until the completion.
unsafe fn run(ep: Ep, access: &Access<'_>) -> ssize_t {
    // SAFETY: this function's contract.
    let object = unsafe { endpoint_object::of(ep) };
    access.run(object).map_or_else(|error| -(error as ssize_t), |()| 0)
}

fn length(parts: &[iovec]) -> usize {
    parts.iter().map(|part| part.iov_len).sum()
}

/// Accesses one range of the target's memory.
///
/// # Safety
/// As fi_rma(3) asks for: the endpoint is open, and the buffers stay until the completion.
unsafe fn one(
    ep: Ep,
    direction: Direction,
    parts: &[iovec],
    to: u64,
    (addr, key): (u64, u64),
    data: Option<u64>,
    context: Option<Context>,
) -> ssize_t {
    let remote = &[RmaIov { addr, len: length(parts), key }];
    let injected = context.is_none();
    let context = context.unwrap_or(std::ptr::null_mut());
    // SAFETY: this function's contract.
    unsafe {
        run(ep, &Access { direction, parts, to, remote, data, context, flags: None, injected })
    }
}

/// # Safety
/// As fi_rma(3) asks for: the endpoint is open, and the buffers stay until the completion.
unsafe fn message(
    ep: Ep,
    direction: Direction,
    message: *const abi::MsgRma,
    flags: u64,
) -> ssize_t {
    // SAFETY: this function's contract.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let parts = list(message.msg_iov, message.iov_count);
        let remote = list(message.rma_iov, message.rma_iov_count);
        let data = (flags & abi::REMOTE_CQ_DATA != 0).then_some(message.data);
        let (to, context) = (message.addr, message.context);
        let flags = Some(flags);
        run(ep, &Access { direction, parts, to, remote, data, context, flags, injected: false })
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
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { one(ep, Direction::Pull, parts, to, (address, key), None, Some(context)) }
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
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { one(ep, Direction::Pull, list(parts, count), to, (address, key), None, Some(context)) }
}

unsafe extern "C" fn readmsg(ep: Ep, msg: *const abi::MsgRma, flags: u64) -> ssize_t {
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { message(ep, Direction::Pull, msg, flags) }
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
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { one(ep, Direction::Push, parts, to, (address, key), None, Some(context)) }
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
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { one(ep, Direction::Push, list(parts, count), to, (address, key), None, Some(context)) }
}

unsafe extern "C" fn writemsg(ep: Ep, msg: *const abi::MsgRma, flags: u64) -> ssize_t {
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { message(ep, Direction::Push, msg, flags) }
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
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { one(ep, Direction::Push, parts, to, (address, key), None, None) }
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
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { one(ep, Direction::Push, parts, to, (address, key), Some(data), Some(context)) }
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
    // SAFETY: fi_rma(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { one(ep, Direction::Push, parts, to, (address, key), Some(data), None) }
}
