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

/// Returns the entry of the member with this ID, in windows where the ID determines it.
fn place(members: &Members, id: u32) -> u16 {
    let members = u32::from(members.window().plan().members);
    // A division would take a tenth of the time of a message.
    (if id < members { id } else { id % members }) as u16
}

/// Returns the time in `seconds` seconds; `None`, without limit, if that is negative.
#[inline]
fn until(seconds: f64) -> Result<Option<Instant>, Failure> {
    if seconds < 0.0 { Ok(None) } else { from_now(seconds) }
}

/// Returns the time in `seconds` seconds; `None` if no clock can represent it.
#[inline(never)]
fn from_now(seconds: f64) -> Result<Option<Instant>, Failure> {
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| invalid(format!("{seconds} seconds is not a time to wait")))?;
    Ok(Instant::now().checked_add(time))
}

/// Returns the caller's `count` elements at `start`, which may be null if `count` is 0.
///
/// # Safety
/// If `start` is not null, `count` elements lie there and do not change during the call.
unsafe fn given<'a, T>(start: *const T, count: usize) -> Result<&'a [T], Failure> {
    match (start.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid("a null pointer with a length")),
        // SAFETY: not null, and the caller guarantees `count` elements.
        _ => Ok(unsafe { slice::from_raw_parts(start, count) }),
    }
}

/// Returns the port for use by this thread.
///
/// # Safety
/// The port is from `FCP_alloc`, not yet freed, or null.
unsafe fn use_port<'a>(port: *const Handle) -> Result<Turn<'a, Mail>, Failure> {
    // SAFETY: null, or a live port by this function's contract.
    let port = unsafe { port.as_ref() }.ok_or_else(|| invalid("no port"))?;
    port.mail.turn().ok_or_else(|| Code::Busy.into())
}

/// See `include/fcp.h`.
///
/// # Safety
/// The window is from `VCL_open` and not yet closed, or null. `port` is null, or a pointer can be
/// written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_alloc(
    window: *const WindowHandle,
    id: u32,
    group: u32,
    protocol: c_int,
    port: *mut *mut Handle,
) -> c_int {
    answer((|| {
        // SAFETY: null, or a live window by this function's contract.
        let window = unsafe { window.as_ref() }.ok_or_else(|| invalid("FCP_alloc: no window"))?;
        if port.is_null() {
            return Err(invalid("FCP_alloc: no place for the port"));
        }
        let (members, card) = (&window.members, Card { id, group });
        let protocol = protocol_of(protocol)?;
        let place = (!protocol.is_listed()).then(|| place(members, id));
        let mail = Mail::new(port::join(protocol, members, card, place)?);
        let handle = Handle { bell: mail.bell(), mail: Alone::new(mail) };
        // SAFETY: not null, so by this function's contract a pointer can be written there.
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
        // SAFETY: from `Box::into_raw` in `FCP_alloc`, and the caller frees it once.
        drop(unsafe { Box::from_raw(port) });
    }
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc` and not yet freed, or null; `length` bytes can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_send(
    port: *const Handle,
    to: u32,
    message: *const c_void,
    length: usize,
    seconds: f64,
) -> c_int {
    answer((|| {
        // SAFETY: by this function's contract.
        let (mut port, message) = unsafe { (use_port(port)?, given(message.cast(), length)?) };
        let place = place(port.port().members(), to);
        port.send(place, Some(to), message, until(seconds)?)?;
        Ok(0)
    })())
}

/// Returns the result of `FCP_recv` and `FCP_select`, and stores the sender.
///
/// # Safety
/// `source` is null, or a number can be written there.
unsafe fn store(received: Option<Received>, source: *mut u32) -> Result<i64, Failure> {
    let received = received.ok_or(Code::TimedOut)?;
    if !source.is_null() {
        // SAFETY: not null, so by this function's contract a number can be written there.
        unsafe { *source = received.source };
    }
    Ok(received.length as i64)
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`; `count` sources can be read, and `size` bytes written.
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
        // SAFETY: by this function's contract.
        let (mut port, sources) = unsafe { (use_port(port)?, given(sources, count)?) };
        let to = match (message.is_null(), size) {
            (_, 0) => &mut [][..],
            (true, _) => return Err(invalid("FCP_recv: no room for the message")),
            // SAFETY: not null, and the caller guarantees `size` bytes.
            _ => unsafe { slice::from_raw_parts_mut(message.cast::<u8>(), size) },
        };
        let received = port.receive(to, sources, until(seconds)?)?;
        // SAFETY: by this function's contract.
        unsafe { store(received, source) }
    })())
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`; `count` sources can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_select(
    port: *const Handle,
    sources: *const u32,
    count: usize,
    source: *mut u32,
    seconds: f64,
) -> i64 {
    answer((|| {
        // SAFETY: by this function's contract.
        let (mut port, sources) = unsafe { (use_port(port)?, given(sources, count)?) };
        let received = port.select(sources, until(seconds)?)?;
        // SAFETY: by this function's contract.
        unsafe { store(received, source) }
    })())
}

/// See `include/fcp.h`.
///
/// # Safety
/// The port is from `FCP_alloc`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FCP_interrupt(port: *const Handle) -> c_int {
    // SAFETY: null, or a live port by this function's contract.
    let port = unsafe { port.as_ref() };
    answer(port.map(|port| port.bell.ring()).map(|()| 0).ok_or_else(|| invalid("no port")))
}

/// Returns the lock at `word`, if that is a word of the window's plain memory.
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
        // SAFETY: by this function's contract.
        let port = unsafe { use_port(port)? };
        let lock = lock_at(port.port().membership(), word)?;
        let guard = lock.lock(port.port().membership(), until(seconds)?).ok_or(Code::TimedOut)?;
        let doubt = guard.in_doubt();
        std::mem::forget(guard); // VCL_unlock releases the lock
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
        // SAFETY: by this function's contract.
        let port = unsafe { use_port(port)? };
        let guard =
            lock_at(port.port().membership(), word)?.held(port.port().membership(), doubt != 0);
        drop(guard.ok_or_else(|| invalid("VCL_unlock: this port does not have the lock"))?);
        Ok(0)
    })())
}
