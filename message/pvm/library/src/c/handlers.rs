//! Message handlers.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Write as _;

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::protocol::SYSCTX_TC;

use super::library::{call, quietly};
use super::state::State;
use super::tracing::traced;
use crate::task::handlers::{Function, Handlers, Pattern};

impl State {
    /// Returns the handlers, also of a process that is no task yet.
    fn handlers(&mut self) -> &mut Handlers {
        match self.task.intake() {
            Ok(intake) => &mut intake.handlers,
            Err(_) => &mut self.early_handlers,
        }
    }
}

impl State {
    /// Adds a handler of the library for a control message.
    pub fn add_control(&mut self, tag: c_int, function: Function) -> Result<c_int, Error> {
        self.handlers().add(Pattern { source: -1, tag, context: SYSCTX_TC }, function)
    }
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_addmhf(
    source: c_int,
    tag: c_int,
    context: c_int,
    function: Option<Function>,
) -> c_int {
    let called = traced("pvm_addmhf", Event::ADDMHF).gives(Id::MHI);
    let called =
        called.with(|record| record.int(Id::RST, source).int(Id::RMC, tag).int(Id::RCX, context));
    call(called, |library| {
        // libpvm accepts null, and crashes when a message arrives.
        let function = function.ok_or(Error::BadParam)?;
        let pattern = Pattern { source, tag, context };
        library.with(|state| state.handlers().add(pattern, function))
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_delmhf(number: c_int) -> c_int {
    let given = quietly(|library| library.with(|state| Ok(state.handlers().given() as c_int)));
    // libpvm's text.
    let name = match given {
        Ok(given) if number >= given => "(mhid >= ndhandles) pvm_delmhf",
        _ => "pvm_delmhf",
    };
    let called = traced(name, Event::DELMHF).with(|record| record.int(Id::MHI, number));
    call(called, |library| library.with(|state| state.handlers().delete(number)).map(|()| 0))
}

/// Prints the table of handlers, for tests.
///
/// # Safety
/// `who` and `text` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmdisplaymhfinfo(who: *const c_char, text: *const c_char, tid: c_int) {
    // SAFETY: `who` and `text` are strings, required of the caller.
    let (who, text) = unsafe { (CStr::from_ptr(who), CStr::from_ptr(text)) };
    let (who, text) = (who.to_string_lossy(), text.to_string_lossy());
    let me = "pvmdisplaymhfinfo";
    let mut out = format!("\n{who} t{tid:x}: Display Message Handler Information: ");
    let described = quietly(|library| {
        library.with(|state| {
            let handlers = state.handlers();
            let free: Vec<_> = handlers.free().iter().rev().copied().collect();
            let head = free.first().copied().unwrap_or(-1);
            let (given, active) = (handlers.given(), handlers.active());
            let _ = write!(out, "ndhandles = {given}\tnhandles = {}", active.len());
            let _ = write!(out, "\tfl_dhandles = {head}\n{me}: free list.  head <-");
            for number in &free {
                let _ = write!(out, " {number}");
            }
            let _ = write!(out, " -< tail\n{who} t{tid:x}: {text}\n");
            for (index, handler) in active.iter().enumerate() {
                let Pattern { source, tag, context } = handler.pattern;
                let number = handler.number;
                let _ = write!(out, "{who} t{tid:x}: dhandles[{number:2}].mhid = {number:2}  ");
                let _ = write!(out, ".handle = {index:2}     handles[{index:2}].mhid = ");
                let _ = write!(out, "{number:2}  .header.src = t{source:<8x}  ");
                let _ = writeln!(out, ".header.ctx = {context:8}  .header.tag= {tag:8}");
            }
            Ok(())
        })
    });
    let _ = described;
    out += "\n\n";
    super::catchout::print(&out);
}
