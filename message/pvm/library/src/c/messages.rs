//! Sending and receiving.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use pvm::constants::*;
use pvm::error::Error;
use pvm::event::{Event, Id, Record};
use pvm::items::{Kind, Source, Target};
use pvm::tid::Tid;

use super::library::{Library, call, quietly};
use super::state::{Code, Matcher, State};
use super::tracing::{self, Traced, traced};
use super::{notify, options};

/// The destination that pvm_send takes for a trace event packed by the program (`pvmtev.h`).
const TRACE_TID: c_int = -1111;
const TRACE_TAG: c_int = -2222;

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_send(tid: c_int, tag: c_int) -> c_int {
    let called = traced("pvm_send", Event::SEND).with_state(|record, state| {
        let length = state.length_to_send();
        record.int(Id::MNB, length).int(Id::DST, tid).int(Id::MC, tag);
        record.int(Id::MCX, state.task.context);
    });
    call(called, |library| send(library, tid, tag).map(|()| 0))
}

impl State {
    /// Returns the bytes of the active send buffer, for traces.
    fn length_to_send(&mut self) -> c_int {
        let id = self.task.buffers.getsbuf();
        self.task.buffers.info(id).map_or(-1, |info| info.length)
    }
}

#[inline]
fn send(library: &Library, tid: c_int, tag: c_int) -> Result<(), Code> {
    library.enroll()?;
    library.with(|state| {
        let to = Tid(tid as u32);
        if !(to.is_task() && tag >= 0) {
            if (tid, tag) == (TRACE_TID, TRACE_TAG) {
                return send_event(state);
            }
            if !state.options.reserved {
                return Err(Error::BadParam);
            }
        }
        let id = state.task.buffers.getsbuf();
        if id == 0 {
            return Err(Error::NoBuf);
        }
        if state.task.route == PvmRouteDirect {
            notify::route_to(state, to)?;
        }
        state.task.send(id, to, tag)
    })?;
    library.run_handlers()
}

/// Sends the program's own trace event to the tracer, if it is traced.
#[cold]
fn send_event(state: &mut State) -> Result<(), Error> {
    let Some(sink) = options::trace_sink(state) else { return Ok(()) };
    let id = state.task.buffers.getsbuf();
    state.task.buffers.end_event()?;
    let context = state.set_context(sink.context);
    let sent = state.task.send(id, Tid(sink.tid as u32), sink.tag);
    state.set_context(context);
    sent
}

/// See `pvm3.h`.
///
/// # Safety
/// `tids` is null or has `count` tids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_mcast(tids: *const c_int, count: c_int, tag: c_int) -> c_int {
    let called = traced("pvm_mcast", Event::MCAST).with_state(|record, state| {
        let length = state.length_to_send();
        record.int(Id::MNB, length).int(Id::MC, tag).int(Id::MCX, state.task.context);
        // SAFETY: `tids` is null or has `count` tids, required of the caller.
        record.ints(Id::MDL, unsafe { tracing::numbers(tids, count) });
    });
    call(called, |library| {
        library.enroll()?;
        let reserved = library.with(|state| match state.task.buffers.getsbuf() {
            0 => Err(Error::NoBuf),
            _ => Ok(state.options.reserved),
        })?;
        if count < 0 || (count > 0 && tids.is_null()) || (!reserved && tag < 0) {
            return Err(Error::BadParam.into());
        }
        let tids = match count {
            0 => &[],
            // SAFETY: `tids` is null or has `count` tids, required of the caller. Null is handled
            // separately.
            _ => unsafe { std::slice::from_raw_parts(tids, count as usize) },
        };
        if !reserved && tids.iter().any(|tid| !Tid(*tid as u32).is_task()) {
            return Err(Error::BadParam.into());
        }
        multicast(library, tids, tag)?;
        Ok(0)
    })
}

/// Sends the active send buffer to each of these tasks once, except this one.
pub fn multicast(library: &Library, tids: &[c_int], tag: c_int) -> Result<(), Code> {
    let mut to: Vec<Tid> = tids.iter().map(|tid| Tid(*tid as u32)).collect();
    to.sort_unstable();
    to.dedup();
    library.with(|state| {
        let own = state.task.tid();
        to.retain(|tid| Some(*tid) != own);
        let id = state.task.buffers.getsbuf();
        state.task.multicast(id, &to, tag)
    })?;
    library.run_handlers()
}

/// The time that a call waits for a message.
#[derive(Clone, Copy)]
enum Until {
    Ever,
    Looked,
    Time(Instant),
}

/// The message that a call waits for: sender, tag, and time.
#[derive(Clone, Copy)]
struct Wanted {
    tid: c_int,
    tag: c_int,
    until: Until,
}

/// Returns the buffer of the first matching message, and removes it from the queue.
#[inline]
fn find(library: &Library, wanted: Wanted, take: bool) -> Result<Option<c_int>, Code> {
    let id = loop {
        let matcher = library.with(|state| Ok(state.matcher))?;
        let found = match matcher {
            None => find_by_default(library, wanted)?,
            Some(matcher) => find_by(library, wanted, matcher)?,
        };
        let Some(id) = found else { return Ok(None) };
        if !library.with(|state| state.task.drop_lost(id))? {
            break id;
        }
    };
    library.with(|state| {
        let (intake, buffers) = state.task.inside()?;
        let message = buffers.message(id)?;
        message.rewind();
        if take {
            message.waits = false;
            match intake.arrived.front() {
                Some(first) if *first == id => drop(intake.arrived.pop_front()),
                _ => intake.arrived.retain(|arrived| *arrived != id),
            }
            buffers.setrbuf(id)?;
        }
        Ok(())
    })?;
    Ok(Some(id))
}

/// Waits for further messages. Returns false when the time has passed.
#[inline]
fn wait(library: &Library, until: &mut Until) -> Result<bool, Code> {
    match *until {
        Until::Ever => library.wait(None)?,
        Until::Looked => return Ok(false),
        Until::Time(time) => {
            if Instant::now() >= time {
                *until = Until::Looked;
                while library.take_in()? {}
            } else {
                library.wait(Some(time))?;
            }
        }
    }
    Ok(true)
}

#[inline]
fn find_by_default(library: &Library, mut wanted: Wanted) -> Result<Option<c_int>, Code> {
    if matches!(wanted.until, Until::Looked) {
        let Wanted { tid, tag, .. } = wanted;
        if let Some(id) = library.with(|state| state.first_that_fits(tid, tag))? {
            return Ok(Some(id));
        }
        while library.take_in()? {}
    }
    loop {
        let Wanted { tid, tag, .. } = wanted;
        if let Some(id) = library.with(|state| state.first_that_fits(tid, tag))? {
            return Ok(Some(id));
        }
        if !wait(library, &mut wanted.until)? {
            return Ok(None);
        }
    }
}

impl State {
    #[inline]
    fn first_that_fits(&mut self, tid: c_int, tag: c_int) -> Result<Option<c_int>, Error> {
        let context = self.task.context;
        let (intake, buffers) = self.task.inside()?;
        for id in &intake.arrived {
            let header = &buffers.message(*id)?.header;
            if (tid == -1 || tid == header.source)
                && (tag == -1 || tag == header.tag)
                && (context == -1 || context == header.context)
            {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }
}

/// Finds a message by the program's matching function. Its result 1 selects the message at once;
/// otherwise the largest positive result wins. A negative result is an error.
fn find_by(library: &Library, mut wanted: Wanted, matcher: Matcher) -> Result<Option<c_int>, Code> {
    let mut best: Option<(c_int, c_int)> = None;
    let mut at = 0;
    let mut looked = false;
    loop {
        let next = library.with(|state| Ok(state.task.intake()?.arrived.get(at).copied()))?;
        if let Some(id) = next {
            // SAFETY: the program registered `matcher` by pvm_recvf for these arguments.
            match unsafe { matcher(id, wanted.tid, wanted.tag) } {
                code if code < 0 => return Err(Code(code)),
                1 => return Ok(Some(id)),
                fit if fit > best.map_or(0, |(fit, _)| fit) => best = Some((fit, id)),
                _ => {}
            }
            at += 1;
            continue;
        }
        if let Some((_, id)) = best {
            return Ok(Some(id));
        }
        if matches!(wanted.until, Until::Looked) && !looked {
            while library.take_in()? {}
        } else if !wait(library, &mut wanted.until)? {
            return Ok(None);
        }
        looked = matches!(wanted.until, Until::Looked);
    }
}

/// Returns the description of a call that receives from `tid` with `tag`, for traces.
fn receives(
    name: &'static str,
    event: Event,
    (tid, tag): (c_int, c_int),
) -> Traced<'static, impl tracing::Entry, impl tracing::Exit> {
    let called = traced(name, event).with_state(move |record, state| {
        record.int(Id::RST, tid).int(Id::RMC, tag).int(Id::RCX, state.task.context);
    });
    called.tells(|record, state, id| {
        record.int(Id::MB, id);
        tell_message(record, state, (id > 0).then_some(id));
    })
}

/// Records a received message.
fn tell_message(record: &mut Record, state: &mut State, id: Option<c_int>) {
    let info = id.and_then(|id| state.task.buffers.info(id).ok());
    let [length, tag, source] =
        info.map_or([-1; 3], |info| [info.length, info.header.tag, info.header.source]);
    record.int(Id::MNB, length).int(Id::MC, tag);
    record.int(Id::MCX, state.task.context).int(Id::SRC, source);
}

#[inline]
fn receive(library: &Library, wanted: Wanted) -> Result<c_int, Code> {
    library.enroll()?;
    library.with(|state| {
        let old = state.task.buffers.getrbuf();
        state.task.buffers.freebuf(old)
    })?;
    Ok(find(library, wanted, true)?.unwrap_or(0))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_recv(tid: c_int, tag: c_int) -> c_int {
    let called = receives("pvm_recv", Event::RECV, (tid, tag));
    call(called, |library| receive(library, Wanted { tid, tag, until: Until::Ever }))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_nrecv(tid: c_int, tag: c_int) -> c_int {
    let called = receives("pvm_nrecv", Event::NRECV, (tid, tag));
    call(called, |library| receive(library, Wanted { tid, tag, until: Until::Looked }))
}

/// See `pvm3.h`.
///
/// # Safety
/// `timeout` is null or valid for a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_trecv(tid: c_int, tag: c_int, timeout: *const libc::timeval) -> c_int {
    // SAFETY: `timeout` is null or valid for a read, required of the caller.
    let timeout = unsafe { timeout.as_ref() };
    let called = traced("pvm_trecv", Event::TRECV).with_state(|record, state| {
        let [seconds, microseconds] =
            timeout.map_or([-1; 2], |time| [time.tv_sec as c_int, time.tv_usec as c_int]);
        record.int(Id::RST, tid).int(Id::RMC, tag).int(Id::RCX, state.task.context);
        record.int(Id::MTS, seconds).int(Id::MTU, microseconds);
    });
    let called = called.tells(|record, state, id| {
        record.int(Id::MB, id);
        tell_message(record, state, (id > 0).then_some(id));
    });
    call(called, |library| {
        let until = match timeout {
            None => Until::Ever,
            Some(timeout) => {
                let seconds = Duration::from_secs(timeout.tv_sec.max(0) as u64);
                let left = seconds + Duration::from_micros(timeout.tv_usec.max(0) as u64);
                let end = Instant::now().checked_add(left);
                match end {
                    Some(_) if left.is_zero() => Until::Looked,
                    Some(end) => Until::Time(end),
                    None => Until::Ever,
                }
            }
        };
        receive(library, Wanted { tid, tag, until })
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_probe(tid: c_int, tag: c_int) -> c_int {
    let called = receives("pvm_probe", Event::PROBE, (tid, tag)).gives(Id::CC);
    call(called, |library| {
        library.enroll()?;
        let found = find(library, Wanted { tid, tag, until: Until::Looked }, false)?;
        Ok(found.unwrap_or(0))
    })
}

/// The default matching function, which pvm_recvf returns to programs.
unsafe extern "C" fn default_matcher(id: c_int, tid: c_int, tag: c_int) -> c_int {
    let fits = quietly(|library| {
        library.with(|state| {
            let context = state.task.context;
            let header = state.task.buffers.message(id)?.header;
            Ok((tid == -1 || tid == header.source)
                && (tag == -1 || tag == header.tag)
                && (context == -1 || context == header.context))
        })
    });
    match fits {
        Ok(fits) => fits.into(),
        Err(_) => Error::NoSuchBuf.code(),
    }
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_recvf(new: Option<Matcher>) -> Option<Matcher> {
    let is_default = |matcher: &Matcher| *matcher as usize == default_matcher as *const () as usize;
    let new = new.filter(|matcher| !is_default(matcher));
    let mut old = None;
    call(traced("pvm_recvf", Event::RECVF).tells(|_, _, _| {}), |library| {
        old = library.with(|state| Ok(std::mem::replace(&mut state.matcher, new)))?;
        Ok(0)
    });
    Some(old.unwrap_or(default_matcher))
}

/// Returns the bytes of `length` items of a type. Errors: NotImpl for strings, BadParam.
fn bytes_of(length: c_int, data_type: c_int) -> Result<c_int, Error> {
    let size = match data_type {
        PVM_BYTE => 1,
        PVM_SHORT | PVM_USHORT => 2,
        PVM_INT | PVM_UINT | PVM_FLOAT => 4,
        PVM_LONG | PVM_ULONG | PVM_CPLX | PVM_DOUBLE => 8,
        PVM_DCPLX => 16,
        PVM_STR => return Err(Error::NotImpl),
        _ => return Err(Error::BadParam),
    };
    length.checked_mul(size).ok_or(Error::BadParam)
}

/// See `pvm3.h`.
///
/// # Safety
/// `at` has `length` items of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_psend(
    tid: c_int,
    tag: c_int,
    at: *const c_void,
    length: c_int,
    data_type: c_int,
) -> c_int {
    let called = traced("pvm_psend", Event::PSEND).with_state(|record, state| {
        record.int(Id::DST, tid).int(Id::MC, tag).int(Id::MCX, state.task.context);
        record.address(Id::PDA, at).int(Id::PC, length).int(Id::PDT, data_type);
    });
    call(called, |library| {
        let bytes = bytes_of(length, data_type)?;
        // SAFETY: `at` has `length` items of the type, required of the caller. The message is freed
        // before this function returns.
        let source = unsafe { Source::new(Kind::Byte, at.cast(), bytes, 1) };
        let old = library.with(|state| {
            let buffers = &mut state.task.buffers;
            let id = buffers.mkbuf(PvmDataInPlace)?;
            buffers.setsbuf(id)
        })?;
        let packed = library.with(|state| state.task.buffers.pack(&source));
        let sent = packed.and_then(|()| send(library, tid, tag));
        library.with(|state| {
            let buffers = &mut state.task.buffers;
            let used = buffers.setsbuf(old)?;
            buffers.freebuf(used)
        })?;
        sent.map(|()| 0)
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `at` has room for `length` items of the type; the other pointers are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_precv(
    tid: c_int,
    tag: c_int,
    at: *mut c_void,
    length: c_int,
    data_type: c_int,
    from: *mut c_int,
    with_tag: *mut c_int,
    with_length: *mut c_int,
) -> c_int {
    let came = Cell::new([-1; 3]);
    let called = traced("pvm_precv", Event::PRECV).with_state(|record, state| {
        record.int(Id::RST, tid).int(Id::RMC, tag).int(Id::RCX, state.task.context);
        record.address(Id::PDA, at).int(Id::PC, length).int(Id::PDT, data_type);
    });
    let called = called.tells(|record, state, result| {
        let [length, tag, source] = came.get();
        record.int(Id::CC, result).int(Id::MNB, length).int(Id::MC, tag);
        record.int(Id::MCX, state.task.context).int(Id::SRC, source);
    });
    call(called, |library| {
        let room = bytes_of(length, data_type)?;
        let old = library.with(|state| state.task.buffers.setrbuf(0))?;
        let received = receive(library, Wanted { tid, tag, until: Until::Ever });
        let unpacked = received.and_then(|id| {
            library.with(|state| {
                let buffers = &mut state.task.buffers;
                let info = buffers.info(id)?;
                let values = [info.length, info.header.tag, info.header.source];
                came.set(values);
                for (place, value) in [with_length, with_tag, from].into_iter().zip(values) {
                    if !place.is_null() {
                        // SAFETY: `at` has room for `length` items of the type, required of the
                        // caller.
                        unsafe { *place = value };
                    }
                }
                let bytes = info.length.min(room);
                // SAFETY: `at` has room for `length` items of the type, required of the caller.
                let mut target = unsafe { Target::new(Kind::Byte, at.cast(), bytes, 1) };
                let unpacked = buffers.unpack(&mut target);
                buffers.freebuf(id)?;
                // As in libpvm, a failed conversion of a foreign message is ignored.
                let _ = unpacked;
                Ok(())
            })
        });
        library.with(|state| state.task.buffers.setrbuf(old))?;
        unpacked.map(|()| 0)
    })
}
