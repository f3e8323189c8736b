//! FCP's calls: ports, messages, and the lock that a port's owner can take.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use fcp_classic::port;
use nagaya_fcp::bell::Bell;
use nagaya_fcp::lock::Lock;
use nagaya_fcp::mail::{Mail, Received};
use nagaya_fcp::member::{Card, Members, Membership};

use crate::alone::{Alone, Turn};
use crate::failure::{Code, Failure, answer, invalid};
use crate::protocol::protocol_of;
use crate::window::Handle as WindowHandle;

/// `FCP_port`.
#[derive(Debug)]
pub struct Handle {
    mail: Alone<Mail>,
    bell: Bell,
}

/// The place of who has this ID, where places are computed.
fn place(members: &Members, id: u32) -> u16 {
    let members = u32::from(members.window().plan().members);
    // A division takes as long as a tenth of the message's way.
    (if id < members { id } else { id % members }) as u16
}

/// When so many seconds are over; never, if they are less than 0.
#[inline]
fn until(seconds: f64) -> Result<Option<Instant>, Failure> {
    if seconds < 0.0 { Ok(None) } else { from_now(seconds) }
}

/// The time that comes in so many seconds. What no clock will ever show is never.
#[inline(never)]
fn from_now(seconds: f64) -> Result<Option<Instant>, Failure> {
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| invalid(format!("{seconds} seconds are no time to wait")))?;
    Ok(Instant::now().checked_add(time))
}

/// What the caller has given as `count` things at `start`, which may be null for none.
///
/// # Safety
/// They are there, and stay during the call.
unsafe fn given<'a, T>(start: *const T, count: usize) -> Result<&'a [T], Failure> {
    match (start.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid("a null pointer with a length")),
        // SAFETY: the caller's, as it says.
        _ => Ok(unsafe { slice::from_raw_parts(start, count) }),
    }
}

/// The port, for this thread.
///
/// # Safety
/// The port is from `FCP_alloc`, not yet freed, or null.
unsafe fn use_port<'a>(port: *const Handle) -> Result<Turn<'a, Mail>, Failure> {
    // SAFETY: the caller's port.
    let port = unsafe { port.as_ref() }.ok_or_else(|| invalid("no port"))?;
    port.mail.turn().ok_or_else(|| Code::Busy.into())
}

/// See `include/fcp.h`.
///
/// # Safety
/// The window is from `VCL_open`, not yet closed; `port` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_alloc(
    window: *const WindowHandle,
    id: u32,
    group: u32,
    protocol: c_int,
    port: *mut *mut Handle,
) -> c_int {
    answer((|| {
        // SAFETY: the caller's window.
        let window = unsafe { window.as_ref() }.ok_or_else(|| invalid("FCP_alloc: no window"))?;
        if port.is_null() {
            return Err(invalid("FCP_alloc: no place for the port"));
        }
        let (members, card) = (&window.members, Card { id, group });
        let protocol = protocol_of(protocol)?;
        let place = (!protocol.is_listed()).then(|| place(members, id));
        let mail = Mail::new(port::join(protocol, members, card, place)?);
        let handle = Handle { bell: mail.bell(), mail: Alone::new(mail) };
        // SAFETY: a place for a pointer.
        unsafe { *port = Box::into_raw(Box::new(handle)) };
        Ok(0)
    })())
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`, not yet freed, or null; nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_free(port: *mut Handle) {
    if !port.is_null() {
        // SAFETY: made by `FCP_alloc`, and freed once.
        drop(unsafe { Box::from_raw(port) });
    }
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`; the message is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_send(
    port: *const Handle,
    to: u32,
    message: *const c_void,
    length: usize,
    seconds: f64,
) -> c_int {
    answer((|| {
        // SAFETY: as the caller says.
        let (mut port, message) = unsafe { (use_port(port)?, given(message.cast(), length)?) };
        let place = place(port.port().members(), to);
        port.send(place, Some(to), message, until(seconds)?)?;
        Ok(0)
    })())
}

/// What `FCP_recv` and `FCP_select` return.
///
/// # Safety
/// `source` is a place for a number, or null.
unsafe fn tell(received: Option<Received>, source: *mut u32) -> Result<i64, Failure> {
    let received = received.ok_or(Code::TimedOut)?;
    if !source.is_null() {
        // SAFETY: a place for a number.
        unsafe { *source = received.source };
    }
    Ok(received.length as i64)
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`; there are as many sources, and as much room, as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_recv(
    port: *const Handle,
    sources: *const u32,
    count: usize,
    message: *mut c_void,
    size: usize,
    source: *mut u32,
    seconds: f64,
) -> i64 {
    answer((|| {
        // SAFETY: as the caller says.
        let (mut port, sources) = unsafe { (use_port(port)?, given(sources, count)?) };
        let to = match (message.is_null(), size) {
            (_, 0) => &mut [][..],
            (true, _) => return Err(invalid("FCP_recv: no room for the message")),
            // SAFETY: as the caller says.
            _ => unsafe { slice::from_raw_parts_mut(message.cast::<u8>(), size) },
        };
        let received = port.receive(to, sources, until(seconds)?)?;
        // SAFETY: as the caller says.
        unsafe { tell(received, source) }
    })())
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`; there are as many sources as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_select(
    port: *const Handle,
    sources: *const u32,
    count: usize,
    source: *mut u32,
    seconds: f64,
) -> i64 {
    answer((|| {
        // SAFETY: as the caller says.
        let (mut port, sources) = unsafe { (use_port(port)?, given(sources, count)?) };
        let received = port.select(sources, until(seconds)?)?;
        // SAFETY: as the caller says.
        unsafe { tell(received, source) }
    })())
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_interrupt(port: *const Handle) -> c_int {
    // SAFETY: the caller's port.
    let port = unsafe { port.as_ref() };
    answer(port.map(|port| port.bell.ring()).map(|()| 0).ok_or_else(|| invalid("no port")))
}

/// A lock, if the word is one of the window's memory, for who has the port.
fn lock_at(membership: &Membership, word: *const AtomicU64) -> Result<Lock<'_>, Failure> {
    let window = membership.members().window();
    let plain = window.plain();
    let start = window.address(plain.start, plain.len()).map_or(0, |start| start.as_ptr().addr());
    let at = word.addr().checked_sub(start).and_then(|at| at.checked_add(plain.start));
    let word = at.and_then(|at| window.word64(at));
    let word = word.ok_or_else(|| invalid("a lock is a word of VCL_memory, of 8 bytes"))?;
    Ok(Lock::at(word))
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VCL_lock(
    port: *const Handle,
    word: *const AtomicU64,
    seconds: f64,
) -> c_int {
    answer((|| {
        // SAFETY: as the caller says.
        let port = unsafe { use_port(port)? };
        let lock = lock_at(port.port().membership(), word)?;
        let guard = lock.lock(port.port().membership(), until(seconds)?).ok_or(Code::TimedOut)?;
        let doubt = guard.in_doubt();
        std::mem::forget(guard); // VCL_unlock lets go
        Ok(doubt.into())
    })())
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VCL_unlock(
    port: *const Handle,
    word: *const AtomicU64,
    doubt: c_int,
) -> c_int {
    answer((|| {
        // SAFETY: as the caller says.
        let port = unsafe { use_port(port)? };
        let guard =
            lock_at(port.port().membership(), word)?.held(port.port().membership(), doubt != 0);
        drop(guard.ok_or_else(|| invalid("VCL_unlock: this port does not have the lock"))?);
        Ok(0)
    })())
}
