//! pvm_notify. The daemon sends the notices about hosts and tasks, this library those about direct
//! routes.
//!
//! Inside a host messages always go directly, and need no connection. As in libpvm, a route
//! is *opened* by the first message that is sent with PvmRouteDirect set, at both ends, and
//! closed by the end of a task.

use std::ffi::c_int;

use pvm::constants::*;
use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::protocol::{SYSCTX_TC, TC_CONREQ, TC_TASKEXIT};
use pvm::tid::Tid;
use pvm::wire::Request;

use super::descriptors;
use super::library::{Library, call, quietly};
use super::state::{Code, State};
use super::tracing::{self, traced};

impl State {
    /// Queues a message of these numbers, as if it had arrived.
    fn deliver_ints(&mut self, context: c_int, tag: c_int, numbers: &[c_int]) -> Result<(), Error> {
        let id = self.task.buffers.mkbuf(PvmDataDefault)?;
        let old = self.task.buffers.setsbuf(id)?;
        self.pack_ints(numbers)?;
        self.task.buffers.setsbuf(old)?;
        let message = self.task.buffers.message(id)?;
        message.header.context = context;
        message.header.tag = tag;
        self.task.deliver(id)
    }

    fn open_route(&mut self, tid: Tid) -> Result<(), Error> {
        if !self.routes.open.insert(tid) {
            return Ok(());
        }
        let descriptor = match self.routes.wanted.is_empty() {
            true => -1,
            false => descriptors::descriptor(self)?,
        };
        let wanted = std::mem::take(&mut self.routes.wanted);
        for (context, tag, left) in wanted {
            self.deliver_ints(context, tag, &[tid.as_int(), descriptor])?;
            if left != 1 {
                self.routes.wanted.push((context, tag, if left < 0 { left } else { left - 1 }));
            }
        }
        // This notice reports the end of the route.
        let notify = Request::Notify {
            what: PvmTaskExit,
            context: SYSCTX_TC,
            tag: TC_TASKEXIT,
            tids: vec![tid],
            count: 1,
        };
        self.task.tell(0, notify)
    }

    fn close_route(&mut self, tid: Tid) -> Result<(), Error> {
        if !self.routes.open.remove(&tid) {
            return Ok(());
        }
        self.routes.last = None;
        for (context, tag, whose) in std::mem::take(&mut self.routes.wanted_ends) {
            match whose == tid {
                true => self.deliver_ints(context, tag, &[tid.as_int(), -1])?,
                false => self.routes.wanted_ends.push((context, tag, whose)),
            }
        }
        Ok(())
    }
}

/// Opens the route to a task, before a message that is sent with PvmRouteDirect.
#[inline]
pub fn route_to(state: &mut State, to: Tid) -> Result<(), Error> {
    if state.routes.last == Some(to) {
        return Ok(());
    }
    if state.task.tid() != Some(to) && !state.routes.open.contains(&to) {
        // The message by which libpvm requests a connection.
        let id = state.task.buffers.mkbuf(PvmDataDefault)?;
        let context = state.set_context(SYSCTX_TC);
        let sent = state.task.send(id, to, TC_CONREQ);
        state.set_context(context);
        state.task.buffers.freebuf(id)?;
        sent?;
        state.open_route(to)?;
    }
    state.routes.last = Some(to);
    Ok(())
}

/// Handles the message with which another task opens a route.
pub unsafe extern "C" fn route_opened(id: c_int) -> c_int {
    let _ = quietly(|library| {
        library.with(|state| {
            let source = Tid(state.task.buffers.message(id)?.header.source as u32);
            state.task.buffers.freebuf(id)?;
            if source.is_task() { state.open_route(source) } else { Ok(()) }
        })
    });
    0
}

/// Handles the notice that a task with a route to us has ended.
pub unsafe extern "C" fn route_closed(id: c_int) -> c_int {
    let _ = quietly(|library| {
        library.with(|state| {
            let tid = state.unpack_int();
            state.task.buffers.freebuf(id)?;
            state.close_route(Tid(tid? as u32))
        })
    });
    0
}

/// Returns tids of tasks, given by a C program. Errors: BadParam.
///
/// # Safety
/// `tids` has `count` numbers.
unsafe fn tasks(tids: *const c_int, count: c_int) -> Result<Vec<Tid>, Code> {
    // SAFETY: `tids` has `count` numbers, required of the caller.
    let tids = unsafe { numbers(tids, count)? };
    if tids.iter().all(|tid| tid.is_task()) { Ok(tids) } else { Err(Error::BadParam.into()) }
}

/// Returns tids given by a C program. Errors: BadParam if there are none.
///
/// # Safety
/// `tids` has `count` numbers.
unsafe fn numbers(tids: *const c_int, count: c_int) -> Result<Vec<Tid>, Code> {
    if count < 1 || tids.is_null() {
        return Err(Error::BadParam.into());
    }
    // SAFETY: `numbers` is null or has `count` numbers, which stay unchanged while the result is
    // used, required of the caller. Null is handled separately.
    let tids = unsafe { std::slice::from_raw_parts(tids, count as usize) };
    Ok(tids.iter().map(|tid| Tid(*tid as u32)).collect())
}

/// See `pvm3.h`.
///
/// # Safety
/// `tids` has `count` tids, if the kind of notice takes tids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_notify(
    what: c_int,
    tag: c_int,
    count: c_int,
    tids: *const c_int,
) -> c_int {
    let called = traced("pvm_notify", Event::NOTIFY).with(|record| {
        let count = if what == PvmHostAdd { 0 } else { count };
        // SAFETY: `tids` has `count` tids, if the kind of notice takes tids, required of the
        // caller.
        let tids = unsafe { tracing::numbers(tids, count) };
        record.int(Id::NE, what).int(Id::NMC, tag).ints(Id::NTL, tids)
    });
    call(called, |library| {
        library.enroll()?;
        let (reserved, context) =
            library.with(|state| Ok((state.options.reserved, state.task.context)))?;
        if !reserved && tag < 0 {
            return Err(Error::BadParam.into());
        }
        let cancel = what & PvmNotifyCancel != 0;
        let tids = match what & !PvmNotifyCancel {
            // SAFETY: `tids` has `count` tids, if the kind of notice takes tids, required of the
            // caller.
            PvmHostDelete => unsafe { numbers(tids, count)? },
            // SAFETY: `tids` has `count` tids, if the kind of notice takes tids, required of the
            // caller.
            PvmTaskExit => unsafe { tasks(tids, count)? },
            PvmHostAdd => Vec::new(),
            PvmRouteAdd => {
                return library.with(|state| {
                    let wanted = &mut state.routes.wanted;
                    wanted.retain(|(other, with, _)| (*other, *with) != (context, tag));
                    if count != 0 && !cancel {
                        wanted.push((context, tag, count.max(-1)));
                    }
                    Ok(0)
                });
            }
            PvmRouteDelete => {
                // SAFETY: `tids` has `count` tids, if the kind of notice takes tids, required of
                // the caller.
                let tids = unsafe { tasks(tids, count)? };
                return watch_routes(library, context, tag, tids);
            }
            _ => return Err(Error::BadParam.into()),
        };
        let notify = Request::Notify { what, context, tag, tids, count };
        library.with(|state| state.task.tell(0, notify))?;
        Ok(0)
    })
}

fn watch_routes(
    library: &Library,
    context: c_int,
    tag: c_int,
    tids: Vec<Tid>,
) -> Result<c_int, Code> {
    library.with(|state| {
        for tid in tids {
            match state.routes.open.contains(&tid) {
                true => state.routes.wanted_ends.push((context, tag, tid)),
                false => state.deliver_ints(context, tag, &[tid.as_int(), -1])?,
            }
        }
        Ok(0)
    })
}
