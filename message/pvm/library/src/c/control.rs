//! Messages that PVM's library and daemons send each other to control a task: handlers that
//! each task has from the start. Programs can call them, too, as libpvm's.

use std::ffi::c_int;

use pvm::error::Error;
use pvm::items::{Kind, Target};
use pvm::protocol::*;
use pvm::wire::Sink;

use super::errors::log_error;
use super::library::quietly;
use super::notify;
use super::settings::{MASK_SIZE, mask_of};
use super::state::State;
use crate::task::handlers::{Function, Handlers, Pattern};

/// By tag, in the order in which libpvm adds them: by that numbers are given.
const HANDLERS: [(c_int, Function); 9] = [
    (TC_CONREQ, notify::route_opened),
    (TC_CONACK, pvm_tc_noop),
    (TC_TASKEXIT, notify::route_closed),
    (TC_NOOP, pvm_tc_noop),
    (TC_SETTRACE, pvm_tc_settrace),
    (TC_SETTRCBUF, pvm_tc_settrcbuf),
    (TC_SETTRCOPT, pvm_tc_settrcopt),
    (TC_SETTMASK, pvm_tc_settmask),
    (TC_SIBLINGS, pvm_tc_siblings),
];

impl State {
    /// Adds the handlers that each task has from the start.
    pub fn add_control_handlers(handlers: &mut Handlers) {
        for (tag, function) in HANDLERS {
            let pattern = Pattern { source: -1, tag, context: SYSCTX_TC };
            // It fails only if the program has taken PVM's own tags.
            let _ = handlers.add(pattern, function);
        }
    }

    /// The next number of the active receive buffer.
    pub fn unpack_int(&mut self) -> Result<c_int, Error> {
        let mut number = 0;
        // SAFETY: one int, which outlives the call.
        let mut target = unsafe { Target::new(Kind::Int, (&raw mut number).cast(), 1, 1) };
        self.task.buffers.unpack(&mut target)?;
        Ok(number)
    }

    /// The next bytes of the active receive buffer.
    pub fn unpack_bytes(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        let left = self.task.buffers.receiving()?.length();
        if length > left {
            return Err(Error::NoData);
        }
        let mut bytes = vec![0; length];
        // SAFETY: as many bytes, which outlive the call.
        let mut target = unsafe { Target::new(Kind::Byte, bytes.as_mut_ptr(), length as c_int, 1) };
        self.task.buffers.unpack(&mut target)?;
        Ok(bytes)
    }

    /// The next string of the active receive buffer, without its zero.
    pub fn unpack_string(&mut self) -> Result<Vec<u8>, Error> {
        let length = usize::try_from(self.unpack_int()?).map_err(|_| Error::BadMsg)?;
        let mut bytes = self.unpack_bytes(length)?;
        bytes.pop();
        Ok(bytes)
    }

    fn unpack_sink(&mut self) -> Result<Sink, Error> {
        let (tid, context, tag) = (self.unpack_int()?, self.unpack_int()?, self.unpack_int()?);
        Ok(Sink { tid, context, tag })
    }
}

/// A step on the message, which is the active receive buffer and is freed then.
fn handle(id: c_int, run: impl FnOnce(&mut State) -> Result<(), Error>) -> c_int {
    let _ = quietly(|library| {
        library.with(|state| {
            let _ = run(state);
            state.look_at_tracing();
            state.free(id)
        })
    });
    0
}

macro_rules! handlers {
    ($($(#[$doc:meta])+ $name:ident = $run:expr;)+) => {$(
        $(#[$doc])+
        ///
        /// # Safety
        /// None is needed; it has the type of a handler.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(id: c_int) -> c_int {
            handle(id, $run)
        }
    )+};
}

handlers! {
    /// Does nothing.
    pvm_tc_noop = |_| Ok(());
    /// Trace events and output of this task go somewhere else from now on.
    pvm_tc_settrace = |state| {
        let (trace, output) = (state.unpack_sink()?, state.unpack_sink()?);
        let mask = mask_of(&state.unpack_string()?);
        let (buffer, options) = (state.unpack_int()?.max(0), state.unpack_int()?.max(0));
        state.send_events();
        state.retrace(|own| {
            if trace.tid != 0 {
                own.set_trace(trace, buffer, options);
                own.set_mask(mask.unwrap_or([0; MASK_SIZE]));
            }
            if output.tid != 0 {
                own.set_output(output);
            }
        });
        if trace.tid != 0 && mask.is_none() {
            log_error("pvm_tc_settrace() bogus trace mask");
        }
        state.tell_inheritance()
    };
    /// So many bytes of trace events are gathered from now on.
    pvm_tc_settrcbuf = |state| {
        let bytes = state.unpack_int()?.max(0);
        state.send_events();
        state.options.own.set_buffer(bytes);
        Ok(())
    };
    /// Events are traced in another way from now on.
    pvm_tc_settrcopt = |state| {
        let options = state.unpack_int()?.max(0);
        state.send_events();
        state.options.own.set_options(options);
        Ok(())
    };
    /// Other events are traced from now on.
    pvm_tc_settmask = |state| {
        match mask_of(&state.unpack_string()?) {
            Some(mask) => state.options.own.set_mask(mask),
            None => log_error("pvm_tc_settmask() bogus trace mask"),
        }
        Ok(())
    };
    /// The parent tells who was spawned together.
    pvm_tc_siblings = |state| {
        let count = state.unpack_int()?.max(0);
        let siblings = (0..count).map(|_| state.unpack_int()).collect::<Result<_, _>>()?;
        state.siblings = Some(siblings);
        Ok(())
    };
}
