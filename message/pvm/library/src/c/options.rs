//! pvm_setopt, pvm_getopt, contexts and trace masks.

use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering::Relaxed;

use pvm::constants::*;
use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::wire::{Inheritance, Request, Sink, Welcome};

use super::errors::AUTO_ERR;
use super::library::{Library, call};
use super::settings::{MASK_SIZE, Tracer, pvmctrc, pvmmyctx};
use super::state::{Code, State, Tracing};
use super::tracing::{self, traced};

/// Smallest and largest fragment, in bytes.
const FRAGMENT_SIZES: std::ops::RangeInclusive<c_int> = 52..=1_048_576;

/// Returns the settings for children.
fn children(_: &mut State) -> &mut Tracer {
    // SAFETY: the holder of `State` holds the lock, under which alone the library uses this.
    unsafe { &mut *pvmctrc.0.get() }
}

/// Returns the attributes that children inherit.
pub fn inheritance(state: &mut State) -> Inheritance {
    let context = state.task.context;
    children(state).inheritance(context)
}

impl State {
    /// Sets the context of messages. Returns the old one.
    pub fn set_context(&mut self, context: c_int) -> c_int {
        pvmmyctx.store(context, Relaxed);
        std::mem::replace(&mut self.task.context, context)
    }

    /// Applies the daemon's welcome.
    pub fn greeted(&mut self, welcome: &Welcome) {
        let given = Tracer::of(&welcome.inheritance);
        let own = &mut self.options.own;
        let Tracer { output_tid, output_context, output_tag, .. } = *own;
        let Tracer { trace_tid, trace_context, trace_tag, .. } = *own;
        *own = given;
        // Settings that the program has made before stay.
        if output_tid != 0 {
            (own.output_tid, own.output_context, own.output_tag) =
                (output_tid, output_context, output_tag);
        }
        if trace_tid != 0 {
            (own.trace_tid, own.trace_context, own.trace_tag) =
                (trace_tid, trace_context, trace_tag);
        }
        *children(self) = self.options.own;
        self.tracing = Tracing::default();
        self.look_at_tracing();
        if self.task.context == 0 {
            self.set_context(welcome.inheritance.context);
        }
    }

    /// Changes tracing and output of this task and of its future children.
    pub fn retrace(&mut self, change: impl FnOnce(&mut Tracer)) {
        change(&mut self.options.own);
        *children(self) = self.options.own;
    }

    /// Notifies the daemon of the changed attributes.
    pub fn tell_inheritance(&mut self) -> Result<(), Error> {
        let inheritance = self.options.own.inheritance(self.task.context);
        self.task.tell(0, Request::Inherit(inheritance))
    }
}

/// Sends the children's output to the receiver of this task's output.
pub fn output_as_own(state: &mut State) {
    let own = state.options.own;
    let child = children(state);
    child.output_tid = own.output_tid;
    child.output_context = own.output_context;
    child.output_tag = own.output_tag;
}

/// Sends the children's output to this task.
pub fn output_here(state: &mut State, context: c_int, tag: c_int) {
    let tid = state.task.tid().map_or(0, |tid| tid.as_int());
    let child = children(state);
    child.output_tid = tid;
    child.output_context = context;
    child.output_tag = tag;
}

/// Returns the sink of the program's own trace events, if they are traced.
pub fn trace_sink(state: &State) -> Option<Sink> {
    let own = &state.options.own;
    (own.traces_event(Event::USER_DEFINED) && own.trace_tid > 0).then(|| own.trace_sink())
}

fn get(state: &mut State, what: c_int) -> Result<c_int, Error> {
    let child = *children(state);
    let own = state.options.own;
    Ok(match what {
        PvmRoute => state.task.route,
        PvmDebugMask => state.options.debug_mask,
        PvmAutoErr => AUTO_ERR.load(Relaxed),
        PvmOutputTid => child.output_tid,
        PvmOutputContext => child.output_context,
        PvmOutputCode => child.output_tag,
        PvmTraceTid => child.trace_tid,
        PvmTraceContext => child.trace_context,
        PvmTraceCode => child.trace_tag,
        PvmTraceBuffer => child.trace_buffer,
        PvmTraceOptions => child.trace_options,
        PvmFragSize => state.task.buffers.fragment_size as c_int,
        PvmResvTids => state.options.reserved_as,
        PvmSelfOutputTid => own.output_tid,
        PvmSelfOutputContext => own.output_context,
        PvmSelfOutputCode => own.output_tag,
        PvmSelfTraceTid => own.trace_tid,
        PvmSelfTraceContext => own.trace_context,
        PvmSelfTraceCode => own.trace_tag,
        PvmSelfTraceBuffer => own.trace_buffer,
        PvmSelfTraceOptions => own.trace_options,
        PvmShowTids => state.options.show_tids_as,
        PvmNoReset => state.options.no_reset,
        _ => return Err(Error::BadParam),
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_getopt(what: c_int) -> c_int {
    let called = traced("pvm_getopt", Event::GETOPT).with(|record| record.int(Id::OPT, what));
    let called = called.tells(|record, state, _| {
        // As in libpvm, the value of an unknown option is traced as 0.
        record.int(Id::OPV, get(state, what).unwrap_or(0));
    });
    call(called, |library| library.with(|state| get(state, what)))
}

/// Sets an option of the library. Returns the old value, or `None` if the daemon needs it, too.
fn set(state: &mut State, what: c_int, value: c_int) -> Result<Option<c_int>, Error> {
    let own = state.options.own;
    let swap = |place: &mut c_int| Ok(Some(std::mem::replace(place, value)));
    let allowed = |yes: bool| if yes { Ok(()) } else { Err(Error::BadParam) };
    match what {
        PvmRoute => {
            allowed((PvmDontRoute..=PvmRouteDirect).contains(&value))?;
            swap(&mut state.task.route)
        }
        PvmDebugMask => swap(&mut state.options.debug_mask),
        PvmAutoErr => Ok(Some(AUTO_ERR.swap(value, Relaxed))),
        PvmOutputTid | PvmOutputContext | PvmOutputCode | PvmTraceTid | PvmTraceContext
        | PvmTraceCode => set_receiver(state, what, value).map(Some),
        PvmTraceBuffer => swap(&mut children(state).trace_buffer),
        PvmTraceOptions | PvmSelfTraceOptions => {
            if what == PvmSelfTraceOptions {
                state.send_events();
            }
            allowed((PvmTraceFull..=PvmTraceCount).contains(&value))?;
            match what {
                PvmTraceOptions => swap(&mut children(state).trace_options),
                _ => swap(&mut state.options.own.trace_options),
            }
        }
        PvmFragSize => {
            allowed(FRAGMENT_SIZES.contains(&value))?;
            let size = &mut state.task.buffers.fragment_size;
            Ok(Some(std::mem::replace(size, value as usize) as c_int))
        }
        PvmResvTids => {
            state.options.reserved = value != 0;
            swap(&mut state.options.reserved_as)
        }
        PvmShowTids => {
            state.options.show_tids = value != 0;
            swap(&mut state.options.show_tids_as)
        }
        PvmSelfOutputTid | PvmSelfTraceTid => {
            let old = match what {
                PvmSelfOutputTid => own.output_tid,
                _ => own.trace_tid,
            };
            if old > 0 || value > 0 {
                return Ok(None);
            }
            set_own(state, what, value).map(Some)
        }
        PvmSelfOutputCode | PvmSelfTraceCode | PvmNoReset => Ok(None),
        PvmSelfTraceBuffer => {
            state.send_events();
            swap(&mut state.options.own.trace_buffer)
        }
        PvmSelfOutputContext | PvmSelfTraceContext | PvmPollTime | PvmPollType => {
            Err(Error::NotImpl)
        }
        _ => Err(Error::BadParam),
    }
}

/// Sets the receiver of the children's output or trace events, or the context or tag of these. Of
/// other tasks, only the receiver of this task's own output or events is allowed.
fn set_receiver(state: &mut State, what: c_int, value: c_int) -> Result<c_int, Error> {
    let tid = state.task.tid().map_or(-1, |tid| tid.as_int());
    let own = state.options.own;
    let child = children(state);
    let (receiver, context, tag, [own_receiver, own_context, own_tag]) = match what {
        PvmOutputTid | PvmOutputContext | PvmOutputCode => (
            &mut child.output_tid,
            &mut child.output_context,
            &mut child.output_tag,
            [own.output_tid, own.output_context, own.output_tag],
        ),
        _ => (
            &mut child.trace_tid,
            &mut child.trace_context,
            &mut child.trace_tag,
            [own.trace_tid, own.trace_context, own.trace_tag],
        ),
    };
    let is_free = *receiver <= 0 || *receiver == tid;
    let (place, is_allowed) = match what {
        PvmOutputTid | PvmTraceTid => {
            let is_own = value == own_receiver && *tag == own_tag;
            (receiver, value == 0 || value == tid || is_own)
        }
        PvmOutputContext | PvmTraceContext => (context, is_free || value == own_context),
        _ => (tag, is_free || value == own_tag),
    };
    if !is_allowed {
        return Err(Error::BadParam);
    }
    Ok(std::mem::replace(place, value))
}

/// Sets an option that the daemon needs, too, for this task and its future children. Returns the
/// old value.
fn set_own(state: &mut State, what: c_int, value: c_int) -> Result<c_int, Error> {
    let own = &mut state.options.own;
    let place = match what {
        PvmSelfOutputTid => &mut own.output_tid,
        PvmSelfOutputCode => &mut own.output_tag,
        PvmSelfTraceTid => &mut own.trace_tid,
        _ => &mut own.trace_tag,
    };
    let old = std::mem::replace(place, value);
    let own = *own;
    match what {
        PvmSelfOutputTid | PvmSelfOutputCode => output_as_own(state),
        _ => {
            let child = children(state);
            child.trace_tid = own.trace_tid;
            child.trace_context = own.trace_context;
            child.trace_tag = own.trace_tag;
            state.look_at_tracing();
        }
    }
    Ok(old)
}

/// Sets an option, and notifies the daemon.
pub fn set_with_daemon(library: &Library, what: c_int, value: c_int) -> Result<c_int, Code> {
    if what == PvmNoReset {
        let old = library.with(|state| match state.task.is_enrolled() {
            true => Ok(state.options.no_reset),
            false => Err(Error::BadParam),
        })?;
        if (old != 0) != (value != 0) {
            library.ask(Request::NoReset(value != 0))?;
        }
        library.with(|state| {
            state.options.no_reset = value;
            Ok(())
        })?;
        return Ok(old);
    }
    let goes_nowhere = library.with(|state| {
        let own = state.options.own;
        Ok(match what {
            PvmSelfOutputCode => own.output_tid <= 0,
            PvmSelfTraceCode => own.trace_tid <= 0,
            _ => false,
        })
    })?;
    if goes_nowhere {
        // libpvm returns 0 for this error.
        return Err(Code(0));
    }
    library.enroll()?;
    let (old, request) = library.with(|state| {
        let old = set_own(state, what, value)?;
        let context = state.task.context;
        Ok((old, Request::Inherit(state.options.own.inheritance(context))))
    })?;
    library.ask(request)?;
    Ok(old)
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_setopt(what: c_int, value: c_int) -> c_int {
    let called = traced("pvm_setopt", Event::SETOPT).gives(Id::OPV);
    let called = called.with(|record| record.int(Id::OPT, what).int(Id::OPV, value));
    call(called, |library| match library.with(|state| set(state, what, value))? {
        Some(old) => Ok(old),
        None => set_with_daemon(library, what, value),
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_getcontext() -> c_int {
    // The context can be read without the lock.
    if !tracing::is_on() {
        return pvmmyctx.load(Relaxed);
    }
    call(traced("pvm_getcontext", Event::GETCONTEXT).gives(Id::CXC), |_| Ok(pvmmyctx.load(Relaxed)))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_setcontext(context: c_int) -> c_int {
    let called = traced("pvm_setcontext", Event::SETCONTEXT);
    call(called.with(|record| record.int(Id::CXS, context)), |library| {
        library.with(|state| Ok(state.set_context(context)))
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_newcontext() -> c_int {
    let called = traced("pvm_newcontext", Event::NEWCONTEXT).gives(Id::CXN);
    call(called, |library| library.ask_number(Request::NewContext))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_freecontext(context: c_int) -> c_int {
    let called = traced("pvm_freecontext", Event::FREECONTEXT);
    call(called.with(|record| record.int(Id::CXF, context)), |library| match context {
        // In libpvm, 0 requests a new context.
        0 => library.ask_number(Request::NewContext),
        _ => library.ask_number(Request::FreeContext(context)),
    })
}

fn mask_place(state: &mut State, who: c_int) -> Result<&mut [u8; MASK_SIZE], Error> {
    match who {
        PvmTaskSelf => Ok(&mut state.options.own.mask),
        PvmTaskChild => Ok(&mut children(state).mask),
        _ => Err(Error::BadParam),
    }
}

/// See `pvm3.h`.
///
/// # Safety
/// `mask` is null or has room for a trace mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gettmask(who: c_int, mask: *mut c_char) -> c_int {
    call("pvm_gettmask", |library| {
        if mask.is_null() {
            return Err(Error::BadParam.into());
        }
        let from = library.with(|state| mask_place(state, who).copied())?;
        // SAFETY: `mask` has room for a trace mask, required of the caller.
        unsafe { mask.cast::<[u8; MASK_SIZE]>().write_unaligned(from) };
        Ok(0)
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `mask` is null or a trace mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_settmask(who: c_int, mask: *const c_char) -> c_int {
    call("pvm_settmask", |library| {
        if mask.is_null() {
            return Err(Error::BadParam.into());
        }
        // SAFETY: `mask` is null or a trace mask, required of the caller.
        let from = unsafe { mask.cast::<[u8; MASK_SIZE]>().read_unaligned() };
        library.with(|state| {
            *mask_place(state, who)? = from;
            state.look_at_tracing();
            Ok(0)
        })
    })
}
