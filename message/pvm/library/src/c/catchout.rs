//! pvm_catchout: the library prints the output of the task's children.

use std::collections::BTreeMap;
use std::ffi::c_int;

use pvm::error::Error;
use pvm::protocol::*;

use super::errors::{log, log_error};
use super::library::{Library, call, quietly};
use super::options;
use super::state::{Catchout, Code, State};

unsafe extern "C" {
    /// C's standard output.
    static stdout: *mut libc::FILE;
}

fn print_to(file: *mut libc::FILE, bytes: &[u8]) {
    // SAFETY: the program keeps `file` open, as pvm_catchout requires; `bytes` has
    // `bytes.len()` bytes.
    unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), file) };
}

/// Prints to standard output, and flushes it.
pub fn print(text: &str) {
    // SAFETY: the C library initializes `stdout` before any library is loaded.
    let file = unsafe { stdout };
    print_to(file, text.as_bytes());
    // SAFETY: `file` is the C library's `stdout`.
    unsafe { libc::fflush(file) };
}

impl State {
    fn print_line(&self, tid: c_int, line: &[u8]) {
        let Some(catchout) = &self.catchout else { return };
        if catchout.file.is_null() {
            return;
        }
        let who = if self.options.show_tids { format!("[t{tid:x}] ") } else { String::new() };
        print_to(catchout.file, &[who.as_bytes(), line, b"\n"].concat());
    }

    /// Processes a message of a child's output: the active receive buffer.
    fn output(&mut self) -> Result<(), Error> {
        let (tid, length) = (self.unpack_int()?, self.unpack_int()?);
        let bytes = match length {
            1.. => self.unpack_bytes(length as usize)?,
            _ => Vec::new(),
        };
        let show = self.options.show_tids;
        let Some(catchout) = &mut self.catchout else {
            log(&format!("pvmclaimo() message from task t{tid:x}"));
            return Ok(());
        };
        let known = catchout.children.contains_key(&tid);
        match length {
            TO_SPAWN | TO_NEW => {
                let child = catchout.children.entry(tid).or_default();
                child.started |= length == TO_SPAWN;
                if !known && show {
                    self.print_line(tid, b"BEGIN");
                }
            }
            0.. if !known => log(&format!("pvmclaimo() bogus message, no task t{tid:x}")),
            0.. => {
                let child = catchout.children.entry(tid).or_default();
                child.line.extend(bytes);
                child.ended |= length == TO_EOF;
                let mut lines: Vec<Vec<u8>> =
                    child.line.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                child.line = lines.pop().unwrap_or_default();
                if child.ended && !child.line.is_empty() {
                    lines.push(std::mem::take(&mut child.line));
                }
                for line in lines {
                    self.print_line(tid, &line);
                }
            }
            _ => log(&format!("pvmclaimo() bogus message from task t{tid:x}")),
        }
        let Some(catchout) = &mut self.catchout else { return Ok(()) };
        if catchout.children.get(&tid).is_some_and(|child| child.started && child.ended) {
            catchout.children.remove(&tid);
            if show {
                self.print_line(tid, b"EOF");
            }
        }
        Ok(())
    }
}

/// Handles a message with the output of a child.
unsafe extern "C" fn claim(id: c_int) -> c_int {
    let _ = quietly(|library| {
        library.with(|state| {
            let _ = state.output();
            state.free(id)
        })
    });
    0
}

/// Takes the place of libpvm's handler of the task's own end, so that later handlers get the same
/// numbers.
unsafe extern "C" fn flush(_: c_int) -> c_int {
    0
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_catchout(file: *mut libc::FILE) -> c_int {
    call("pvm_catchout", |library| {
        if file.is_null() {
            library.with(|state| {
                options::output_as_own(state);
                if let Some(catchout) = &mut state.catchout {
                    catchout.file = std::ptr::null_mut();
                }
                Ok(())
            })?;
            return Ok(0);
        }
        library.enroll()?;
        library.with(|state| {
            match &mut state.catchout {
                Some(catchout) => catchout.file = file,
                None => {
                    let handlers = [
                        state.add_control(TC_OUTPUT, claim)?,
                        state.add_control(TC_OUTPUTX, flush)?,
                    ];
                    state.catchout = Some(Catchout { file, children: BTreeMap::new(), handlers });
                }
            }
            options::output_here(state, SYSCTX_TC, TC_OUTPUT);
            Ok(0)
        })
    })
}

/// Waits at the task's end for the children whose output it prints.
pub fn finish(library: &Library) -> Result<(), Code> {
    let waits = |state: &mut State| {
        let catchout = state.catchout.as_ref();
        Ok(catchout.is_some_and(|c| !c.file.is_null() && !c.children.is_empty()))
    };
    if library.with(waits)? {
        if library.with(|state| Ok(state.options.show_tids))? {
            log_error("child task(s) still running.  waiting...");
        }
        while library.with(waits)? {
            library.wait(None)?;
        }
    }
    library.with(|state| {
        if let Some(catchout) = state.catchout.take() {
            options::output_as_own(state);
            for number in catchout.handlers {
                let _ = state.task.intake()?.handlers.delete(number);
            }
        }
        Ok(())
    })
}
