//! Control messages between PVM's libraries and daemons, and the handlers that each task has for
//! them. Programs can call the handlers, too, as in libpvm.

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

/// The handlers by tag, in libpvm's order, which determines their numbers.
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
    /// Adds the handlers of control messages.
    pub fn add_control_handlers(handlers: &mut Handlers) {
        for (tag, function) in HANDLERS {
            let pattern = Pattern { source: -1, tag, context: SYSCTX_TC };
            // This fails only if the program handles PVM's own tags.
            let _ = handlers.add(pattern, function);
        }
    }

    /// Unpacks a number from the active receive buffer.
    pub fn unpack_int(&mut self) -> Result<c_int, Error> {
        let mut number = 0;
        // SAFETY: `number` is one int, and outlives `target`.
        let mut target = unsafe { Target::new(Kind::Int, (&raw mut number).cast(), 1, 1) };
        self.task.buffers.unpack(&mut target)?;
        Ok(number)
    }

    /// Unpacks bytes from the active receive buffer.
    pub fn unpack_bytes(&mut self, length: usize) -> Result<Vec<u8>, Error> {
        let left = self.task.buffers.receiving()?.length();
        if length > left {
            return Err(Error::NoData);
        }
        let mut bytes = vec![0; length];
        // SAFETY: `bytes` has `length` bytes, and outlives `target`.
        let mut target = unsafe { Target::new(Kind::Byte, bytes.as_mut_ptr(), length as c_int, 1) };
        self.task.buffers.unpack(&mut target)?;
        Ok(bytes)
    }

    /// Unpacks a string from the active receive buffer, without the terminating zero.
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

/// Runs a step on a message, which is the active receive buffer, and frees it.
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
        /// None. The function is unsafe only to have the type of a handler.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(id: c_int) -> c_int {
            handle(id, $run)
        }
    )+};
}

handlers! {
    /// Does nothing.
    pvm_tc_noop = |_| Ok(());
    /// Sets the destinations of trace events and output of this task.
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
    /// Sets the size of the trace buffer in bytes.
    pvm_tc_settrcbuf = |state| {
        let bytes = state.unpack_int()?.max(0);
        state.send_events();
        state.options.own.set_buffer(bytes);
        Ok(())
    };
    /// Sets the trace options.
    pvm_tc_settrcopt = |state| {
        let options = state.unpack_int()?.max(0);
        state.send_events();
        state.options.own.set_options(options);
        Ok(())
    };
    /// Sets the trace mask.
    pvm_tc_settmask = |state| {
        match mask_of(&state.unpack_string()?) {
            Some(mask) => state.options.own.set_mask(mask),
            None => log_error("pvm_tc_settmask() bogus trace mask"),
        }
        Ok(())
    };
    /// Stores the tids of the tasks that were spawned together.
    pvm_tc_siblings = |state| {
        let count = state.unpack_int()?.max(0);
        let siblings = (0..count).map(|_| state.unpack_int()).collect::<Result<_, _>>()?;
        state.siblings = Some(siblings);
        Ok(())
    };
}
