//! FCP's calls: ports, messages, and the lock that a port's owner can take.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use way::classic::Classic;
use way::inbox::Bell;
use way::lock::Lock;
use way::mail::{Mail, Received};
use way::member::{Card, Membership};
use way::port::Port;

use crate::failure::{Code, Failure, answer, invalid};
use crate::window::Handle as WindowHandle;

/// `enum FCP_protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Listed,
    Cached,
    Computed,
}

impl Protocol {
    /// As C has it; 0 is the default.
    pub fn parse(number: c_int) -> Result<Self, Failure> {
        match number {
            1 => Ok(Self::Listed),
            2 => Ok(Self::Cached),
            0 | 3 => Ok(Self::Computed),
            _ => Err(invalid(format!("{number} is no FCP_protocol"))),
        }
    }
}

/// `FCP_port`.
#[derive(Debug)]
pub struct Handle {
    endpoint: Mutex<Endpoint>,
    bell: Option<Bell>,
}

/// One interface, three protocols.
#[derive(Debug)]
enum Endpoint {
    /// FCP II, and into how many places IDs are folded.
    Computed(Mail, u32),
    /// FCP and FCP plus.
    Listed(Classic),
}

impl Endpoint {
    fn membership(&self) -> &Membership {
        match self {
            Self::Computed(mail, _) => mail.port().membership(),
            Self::Listed(classic) => classic.membership(),
        }
    }

    fn send(&mut self, to: u32, bytes: &[u8], until: Option<Instant>) -> Result<(), Failure> {
        let sent = match self {
            Self::Computed(mail, places) => {
                mail.send((to % *places) as u16, Some(to), bytes, until)
            }
            Self::Listed(classic) => classic.send(to, bytes, until),
        };
        sent.map_err(Failure::from)
    }

    fn receive(
        &mut self,
        to: &mut [u8],
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<Received>, Failure> {
        Ok(match self {
            Self::Computed(mail, _) => mail.receive(to, sources, until)?,
            Self::Listed(classic) => classic.receive(to, sources, until)?,
        })
    }

    fn select(
        &mut self,
        sources: &[u32],
        until: Option<Instant>,
    ) -> Result<Option<Received>, Failure> {
        Ok(match self {
            Self::Computed(mail, _) => mail.select(sources, until)?,
            Self::Listed(classic) => classic.select(sources, until)?,
        })
    }
}

/// When so many seconds are over; never, if they are less than 0.
fn until(seconds: f64) -> Result<Option<Instant>, Failure> {
    if seconds < 0.0 {
        return Ok(None);
    }
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| invalid(format!("{seconds} seconds are no time to wait")))?;
    // What no clock will ever show is never.
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
unsafe fn use_port<'a>(port: *const Handle) -> Result<MutexGuard<'a, Endpoint>, Failure> {
    // SAFETY: the caller's port.
    let port = unsafe { port.as_ref() }.ok_or_else(|| invalid("no port"))?;
    match port.endpoint.try_lock() {
        Ok(endpoint) => Ok(endpoint),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Code::Busy.into()),
    }
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
        let protocol = Protocol::parse(protocol)?;
        let endpoint = match protocol {
            Protocol::Computed => {
                let places = members.window().plan().members;
                let place = (id % u32::from(places)) as u16;
                Endpoint::Computed(
                    Mail::new(Port::join(members, card, Some(place))?),
                    places.into(),
                )
            }
            listed => {
                Endpoint::Listed(Classic::join(members, card, None, listed == Protocol::Cached)?)
            }
        };
        let bell = match &endpoint {
            Endpoint::Computed(mail, _) => Some(mail.bell()),
            Endpoint::Listed(_) => None,
        };
        let handle = Handle { endpoint: Mutex::new(endpoint), bell };
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
        port.send(to, message, until(seconds)?).map(|()| 0)
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
    let bell = unsafe { port.as_ref() }.and_then(|port| port.bell.as_ref());
    answer(
        bell.map(|bell| bell.ring())
            .map(|()| 0)
            .ok_or_else(|| invalid("FCP_interrupt: no port of FCP_PROTOCOL_II")),
    )
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
        let lock = lock_at(port.membership(), word)?;
        let guard = lock.lock(port.membership(), until(seconds)?).ok_or(Code::TimedOut)?;
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
        let guard = lock_at(port.membership(), word)?.held(port.membership(), doubt != 0);
        drop(guard.ok_or_else(|| invalid("VCL_unlock: this port does not have the lock"))?);
        Ok(0)
    })())
}
