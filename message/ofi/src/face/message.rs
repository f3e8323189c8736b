//! Messages: fi_send, fi_tsend, fi_recv, fi_trecv and similar calls.

use std::ffi::c_void;

use libc::{iovec, size_t, ssize_t};

use crate::abi::{self, Context, Desc, Descs, Ep};
use crate::face::args::{answer, list, part};
use crate::face::endpoint_object;
use crate::face::receive::Receiving;
use crate::face::send::{DEFAULTS, Sending};
use crate::protocol::wire::Kind;

/// The calls for messages without tags.
pub static PLAIN: abi::OpsMsg = abi::OpsMsg {
    size: size_of::<abi::OpsMsg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

/// The calls for messages with tags.
pub static TAGGED: abi::OpsTagged = abi::OpsTagged {
    size: size_of::<abi::OpsTagged>(),
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: Some(tsend),
    sendv: Some(tsendv),
    sendmsg: Some(tsendmsg),
    inject: Some(tinject),
    senddata: Some(tsenddata),
    injectdata: Some(tinjectdata),
};

/// # Safety
/// As fi_msg(3) asks for: the endpoint is open, and the buffers stay until the completion.
#[inline]
unsafe fn do_send(ep: Ep, sending: &Sending<'_>) -> ssize_t {
    // SAFETY: this function's contract.
    unsafe {
        match sending.send(endpoint_object::of(ep)) {
            Ok(()) => 0,
            Err(error) => sending.send_again(endpoint_object::of(ep), error),
        }
    }
}

/// # Safety
/// As fi_msg(3) asks for: the endpoint is open, and the buffers stay until the completion.
#[inline]
unsafe fn do_receive(ep: Ep, receiving: &Receiving<'_>) -> ssize_t {
    // SAFETY: this function's contract.
    answer(receiving.post(unsafe { endpoint_object::of(ep) }))
}

/// Returns the data of a message, if its flags have FI_REMOTE_CQ_DATA.
fn data_of(flags: u64, data: u64) -> Option<u64> {
    (flags & abi::REMOTE_CQ_DATA != 0).then_some(data)
}

unsafe extern "C" fn recv(
    ep: Ep,
    buffer: *mut c_void,
    length: size_t,
    _: Desc,
    from: u64,
    context: Context,
) -> ssize_t {
    let (kind, parts, flags) = (Kind::Plain, &[part(buffer, length)], DEFAULTS);
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_receive(ep, &Receiving { kind, parts, from, tag: 0, ignore: 0, context, flags }) }
}

unsafe extern "C" fn recvv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    from: u64,
    context: Context,
) -> ssize_t {
    let (kind, flags) = (Kind::Plain, DEFAULTS);
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe {
        let parts = list(parts, count);
        do_receive(ep, &Receiving { kind, parts, from, tag: 0, ignore: 0, context, flags })
    }
}

unsafe extern "C" fn recvmsg(ep: Ep, message: *const abi::Msg, flags: u64) -> ssize_t {
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let (from, context) = (message.addr, message.context);
        let parts = list(message.msg_iov, message.iov_count);
        let kind = Kind::Plain;
        do_receive(ep, &Receiving { kind, parts, from, tag: 0, ignore: 0, context, flags })
    }
}

unsafe extern "C" fn trecv(
    ep: Ep,
    buffer: *mut c_void,
    length: size_t,
    _: Desc,
    from: u64,
    tag: u64,
    ignore: u64,
    context: Context,
) -> ssize_t {
    let (kind, parts, flags) = (Kind::Tagged, &[part(buffer, length)], DEFAULTS);
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_receive(ep, &Receiving { kind, parts, from, tag, ignore, context, flags }) }
}

unsafe extern "C" fn trecvv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    from: u64,
    tag: u64,
    ignore: u64,
    context: Context,
) -> ssize_t {
    let (kind, flags) = (Kind::Tagged, DEFAULTS);
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe {
        let parts = list(parts, count);
        do_receive(ep, &Receiving { kind, parts, from, tag, ignore, context, flags })
    }
}

unsafe extern "C" fn trecvmsg(ep: Ep, message: *const abi::MsgTagged, flags: u64) -> ssize_t {
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let (from, context) = (message.addr, message.context);
        let (tag, ignore) = (message.tag, message.ignore);
        let parts = list(message.msg_iov, message.iov_count);
        let kind = Kind::Tagged;
        do_receive(ep, &Receiving { kind, parts, from, tag, ignore, context, flags })
    }
}

/// Returns the call that sends a message of one part.
fn one<'a>(
    kind: Kind,
    parts: &'a [iovec],
    to: u64,
    tag: u64,
    data: Option<u64>,
    context: Context,
) -> Sending<'a> {
    Sending { kind, parts, to, tag, data, context, flags: DEFAULTS, injected: false }
}

/// Returns the call that injects a message.
fn injected(kind: Kind, parts: &[iovec], to: u64, tag: u64, data: Option<u64>) -> Sending<'_> {
    let (context, flags) = (std::ptr::null_mut(), 0);
    Sending { kind, parts, to, tag, data, context, flags, injected: true }
}

unsafe extern "C" fn send(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    to: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &one(Kind::Plain, &[part(buffer, length)], to, 0, None, context)) }
}

unsafe extern "C" fn sendv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    to: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &one(Kind::Plain, list(parts, count), to, 0, None, context)) }
}

unsafe extern "C" fn sendmsg(ep: Ep, message: *const abi::Msg, flags: u64) -> ssize_t {
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let parts = list(message.msg_iov, message.iov_count);
        let data = data_of(flags, message.data);
        let (kind, to, context) = (Kind::Plain, message.addr, message.context);
        do_send(ep, &Sending { flags, ..one(kind, parts, to, 0, data, context) })
    }
}

unsafe extern "C" fn inject(ep: Ep, buffer: *const c_void, length: size_t, to: u64) -> ssize_t {
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &injected(Kind::Plain, &[part(buffer, length)], to, 0, None)) }
}

unsafe extern "C" fn senddata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    data: u64,
    to: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &one(Kind::Plain, &[part(buffer, length)], to, 0, Some(data), context)) }
}

unsafe extern "C" fn injectdata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    data: u64,
    to: u64,
) -> ssize_t {
    // SAFETY: fi_msg(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &injected(Kind::Plain, &[part(buffer, length)], to, 0, Some(data))) }
}

unsafe extern "C" fn tsend(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    to: u64,
    tag: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &one(Kind::Tagged, &[part(buffer, length)], to, tag, None, context)) }
}

unsafe extern "C" fn tsendv(
    ep: Ep,
    parts: *const iovec,
    _: Descs,
    count: size_t,
    to: u64,
    tag: u64,
    context: Context,
) -> ssize_t {
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &one(Kind::Tagged, list(parts, count), to, tag, None, context)) }
}

unsafe extern "C" fn tsendmsg(ep: Ep, message: *const abi::MsgTagged, flags: u64) -> ssize_t {
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let parts = list(message.msg_iov, message.iov_count);
        let data = data_of(flags, message.data);
        let (kind, to, context) = (Kind::Tagged, message.addr, message.context);
        do_send(ep, &Sending { flags, ..one(kind, parts, to, message.tag, data, context) })
    }
}

unsafe extern "C" fn tinject(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    to: u64,
    tag: u64,
) -> ssize_t {
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &injected(Kind::Tagged, &[part(buffer, length)], to, tag, None)) }
}

unsafe extern "C" fn tsenddata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    _: Desc,
    data: u64,
    to: u64,
    tag: u64,
    context: Context,
) -> ssize_t {
    let parts = &[part(buffer, length)];
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &one(Kind::Tagged, parts, to, tag, Some(data), context)) }
}

unsafe extern "C" fn tinjectdata(
    ep: Ep,
    buffer: *const c_void,
    length: size_t,
    data: u64,
    to: u64,
    tag: u64,
) -> ssize_t {
    // SAFETY: fi_tagged(3): the endpoint is open, and the buffers stay until the completion.
    unsafe { do_send(ep, &injected(Kind::Tagged, &[part(buffer, length)], to, tag, Some(data))) }
}
