//! Tasks: enrollment, exit, spawning, and signals.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

use pvm::constants::*;
use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::items::{Kind, Source};
use pvm::protocol::{SYSCTX_TC, TC_SIBLINGS};
use pvm::tid::Tid;
use pvm::wire::{Answer, Request, Spawn};

use super::kept::CTaskInfo;
use super::library::{Library, call, call_quietly, exit_task};
use super::state::{Code, State};
use super::tracing::{text, traced};
use super::{catchout, messages, options, settings};

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_mytid() -> c_int {
    call(traced("pvm_mytid", Event::MYTID).gives(Id::MT), |library| Ok(library.tid()?.as_int()))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_parent() -> c_int {
    let called = traced("pvm_parent", Event::PARENT).gives(Id::PT);
    call_quietly(called, &[Error::NoParent, Error::ParentNotSet], parent)
}

fn parent(library: &Library) -> Result<c_int, Code> {
    library.enroll()?;
    match library.with(|state| Ok(state.task.welcome().ok_or(Error::SysErr)?.parent))? {
        0 => Err(Error::NoParent.into()),
        error if error < 0 => Err(Code(error)),
        tid => Ok(tid),
    }
}

/// See `pvm3.h`. Messages that were not received are lost.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_exit() -> c_int {
    exit_task()
}

impl Library {
    /// Ends the task: waits for the output of its children, flushes messages, and tells the daemon.
    pub fn exit(&self) -> Result<c_int, Code> {
        if !self.with(|state| Ok(state.task.is_enrolled()))? {
            return Ok(0);
        }
        let _ = catchout::finish(self);
        while self.take_in() == Ok(true) {}
        // SAFETY: a null stream makes fflush flush all of the program's streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        self.with(|state| {
            state.send_events();
            state.task.finish();
            Ok(())
        })?;
        let told = self.ask(Request::Exit);
        self.with(|state| {
            state.leave();
            Ok(())
        })?;
        told.map(|_| 0)
    }
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_kill(tid: c_int) -> c_int {
    let called = traced("pvm_kill", Event::KILL).with(|record| record.int(Id::TT, tid));
    call(called, |_| match pvm_sendsig(tid, libc::SIGTERM) {
        // libpvm's text, which it prints twice.
        code if code < 0 => Err(Code(code)),
        result => Ok(result),
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_sendsig(tid: c_int, signal: c_int) -> c_int {
    let called = traced("pvm_sendsig", Event::SENDSIG)
        .with(|record| record.int(Id::TT, tid).int(Id::SN, signal));
    call(called, |library| {
        library.enroll()?;
        let to = Tid(tid as u32);
        if !to.is_task() {
            return Err(Error::BadParam.into());
        }
        library.ask(Request::Signal(to, signal)).map(|_| 0)
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_pstat(tid: c_int) -> c_int {
    let called = traced("pvm_pstat", Event::PSTAT).gives(Id::TST);
    call_quietly(called.with(|record| record.int(Id::TT, tid)), &[Error::NoTask], |library| {
        library.enroll()?;
        let of = Tid(tid as u32);
        if !of.is_task() {
            return Err(Error::BadParam.into());
        }
        library.ask_number(Request::TaskStatus(of))
    })
}

/// Returns the strings of a C program, up to a null pointer.
///
/// # Safety
/// `strings` is null or an array of strings that ends with a null.
unsafe fn strings(mut strings: *const *const c_char) -> Vec<String> {
    let mut all = Vec::new();
    // SAFETY: `strings` is null or an array of strings that ends with a null, required of the
    // caller.
    while let Some(string) = unsafe { strings.as_ref() }.filter(|string| !string.is_null()) {
        // SAFETY: `strings` is null or an array of strings that ends with a null, required of the
        // caller. Null is handled separately.
        all.push(unsafe { CStr::from_ptr(*string) }.to_string_lossy().into_owned());
        // SAFETY: this element was not null, so the array has another one.
        strings = unsafe { strings.add(1) };
    }
    all
}

/// Returns the working directory, in which relative names of programs are searched; empty if it is
/// not UTF-8.
fn working_directory() -> String {
    let directory = std::env::current_dir().ok();
    directory
        .and_then(|directory| directory.into_os_string().into_string().ok())
        .unwrap_or_default()
}

/// Returns the variables for children: those that PVM_EXPORT names, and PVM_EXPORT.
fn exported() -> Vec<String> {
    let Ok(names) = std::env::var("PVM_EXPORT") else { return Vec::new() };
    let mut all = vec![format!("PVM_EXPORT={names}")];
    for name in names.split(':').filter(|name| !name.is_empty()) {
        if let Ok(value) = std::env::var(name) {
            all.push(format!("{name}={value}"));
        }
    }
    all
}

/// See `pvm3.h`.
///
/// # Safety
/// `file` is a string; `arguments` is null or an array of strings that ends with a null; `place`
/// is null or a string; `tids` is null or has room for `count` tids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_spawn(
    file: *const c_char,
    arguments: *const *const c_char,
    flags: c_int,
    place: *const c_char,
    count: c_int,
    tids: *mut c_int,
) -> c_int {
    let all = Cell::new(Vec::new());
    let more = || std::env::var("PVMTASK").ok().and_then(|text| settings::number(&text));
    let called = traced("pvm_spawn", Event::SPAWN).with(|record| {
        // SAFETY: `file` is a string; `place` is null or a string; `tids` is null or has room for
        // `count` tids, required of the caller.
        let (file, place) = unsafe { (text(file), text(place)) };
        record.string(Id::SE, &file).string(Id::SW, &place);
        record.int(Id::SF, flags | more().unwrap_or(0)).int(Id::SC, count)
    });
    let called = called.tells(|record, _, result| {
        record.int(Id::CC, result).ints(Id::STL, &all.take());
    });
    call(called, |library| {
        library.enroll()?;
        if count < 1 || file.is_null() {
            return Err(Error::BadParam.into());
        }
        // SAFETY: `file` is a string; `arguments` is null or an array of strings that ends with a
        // null; `place` is null or a string, required of the caller.
        let (file, place) = unsafe { (text(file), text(place)) };
        let spawn = Spawn {
            file,
            directory: working_directory(),
            // SAFETY: `arguments` is null or an array of strings that ends with a null; `place` is
            // null or a string; `tids` is null or has room for `count` tids, required of the
            // caller.
            arguments: unsafe { strings(arguments) },
            flags: flags | more().unwrap_or(0),
            place,
            count: count as u32,
            environment: exported(),
            inheritance: library.with(|state| Ok(options::inheritance(state)))?,
        };
        let mut each = match library.ask(Request::Spawn(spawn))? {
            Answer::Spawned(each, _) => each,
            _ => return Err(Error::DSysErr.into()),
        };
        // Tids first, then errors, as in libpvm.
        each.sort_by_key(|tid| *tid < 0);
        each.truncate(count as usize);
        if !tids.is_null() {
            // SAFETY: `tids` is null or has room for `count` tids, required of the caller. Null is
            // handled separately.
            unsafe { tids.copy_from_nonoverlapping(each.as_ptr(), each.len()) };
        }
        let started: Vec<c_int> = each.into_iter().filter(|tid| *tid > 0).collect();
        if !started.is_empty() {
            tell_siblings(library, &started)?;
        }
        let count = started.len() as c_int;
        all.set(started);
        Ok(count)
    })
}

impl State {
    /// Packs numbers into the active send buffer.
    pub fn pack_ints(&mut self, numbers: &[c_int]) -> Result<(), Error> {
        let count = numbers.len() as c_int;
        // SAFETY: `numbers` has `numbers.len()` ints and outlives `source`, whose ints are copied.
        let source = unsafe { Source::new(Kind::Int, numbers.as_ptr().cast(), count, 1) };
        self.task.buffers.pack(&source)
    }
}

/// Notifies tasks that they were spawned together.
fn tell_siblings(library: &Library, tids: &[c_int]) -> Result<(), Code> {
    let (old, context) = library.with(|state| {
        let id = state.task.buffers.mkbuf(PvmDataDefault)?;
        let old = state.task.buffers.setsbuf(id)?;
        state.pack_ints(&[tids.len() as c_int])?;
        state.pack_ints(tids)?;
        Ok((old, state.set_context(SYSCTX_TC)))
    })?;
    let sent = messages::multicast(library, tids, TC_SIBLINGS);
    library.with(|state| {
        state.set_context(context);
        let used = state.task.buffers.setsbuf(old)?;
        state.task.buffers.freebuf(used)
    })?;
    sent
}

/// See `pvm3.h`.
///
/// # Safety
/// `list` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_siblings(list: *mut *mut c_int) -> c_int {
    let called = traced("pvm_siblings", Event::SIBLINGS).tells(|record, state, result| {
        let all = state.siblings.as_deref().filter(|_| result >= 0);
        record.ints(Id::SIB, all.unwrap_or_default());
    });
    call(called, |library| {
        if list.is_null() {
            return Err(Error::BadParam.into());
        }
        library.enroll()?;
        let known = library.with(|state| Ok(state.siblings.is_some()))?;
        if !known && matches!(parent(library), Err(code) if code == Error::NoParent.into()) {
            let own = library.tid()?.as_int();
            library.with(|state| {
                state.siblings = Some(vec![own]);
                Ok(())
            })?;
        }
        loop {
            let found = library.with(|state| {
                Ok(state.siblings.as_mut().map(|tids| (tids.as_mut_ptr(), tids.len() as c_int)))
            })?;
            if let Some((tids, count)) = found {
                // SAFETY: `list` is null or valid for a write, required of the caller. Null is
                // handled separately.
                unsafe { *list = tids };
                return Ok(count);
            }
            library.wait(None)?;
        }
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// The pointers are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_tasks(
    which: c_int,
    count: *mut c_int,
    list: *mut *mut CTaskInfo,
) -> c_int {
    let found = Cell::new(0);
    let called = traced("pvm_tasks", Event::TASKS).with(|record| record.int(Id::TW, which));
    let called = called.tells(|record, _, result| {
        record.int(Id::CC, result).int(Id::TNT, found.get());
    });
    call(called, |library| {
        let Answer::Tasks(tasks) = library.ask(Request::Tasks(Tid(which as u32)))? else {
            return Err(Error::DSysErr.into());
        };
        let kept = library.with(|state| Ok(state.tasks.keep(&tasks)))?;
        found.set(tasks.len() as c_int);
        // SAFETY: the pointers are null or valid for a write, required of the caller.
        unsafe {
            if !count.is_null() {
                *count = tasks.len() as c_int;
            }
            if !list.is_null() {
                *list = kept;
            }
        }
        Ok(0)
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// The pointers are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getnoresets(list: *mut *mut c_int, count: *mut c_int) -> c_int {
    call("pvm_getnoresets", |library| {
        let Answer::Each(tids) = library.ask(Request::NoResets)? else {
            return Err(Error::DSysErr.into());
        };
        let (at, found) = library.with(|state| {
            state.no_resets = tids;
            Ok((state.no_resets.as_mut_ptr(), state.no_resets.len()))
        })?;
        // SAFETY: the pointers are null or valid for a write, required of the caller.
        unsafe {
            if !list.is_null() {
                *list = at;
            }
            if !count.is_null() {
                *count = found as c_int;
            }
        }
        Ok(0)
    })
}

/// Sets the name that ps shows for a task that the daemon did not start. Call it before enrolling.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmsettaskname(name: *const c_char) -> c_int {
    call("pvmsettaskname", |library| {
        if name.is_null() {
            return Err(Error::BadParam.into());
        }
        // SAFETY: `name` is null or a string, required of the caller. Null is handled separately.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        library.with(|state| {
            if state.task.is_enrolled() {
                return Err(Error::Exists);
            }
            state.task.name = name;
            Ok(0)
        })
    })
}

/// Changes PVM_EXPORT in the C library's environment, so that `getenv` and `putenv` agree.
fn change_export(
    name: *const c_char,
    change: impl FnOnce(Option<&str>, &str) -> Option<String>,
) -> c_int {
    if name.is_null() {
        return 0;
    }
    // SAFETY: `name` is a string, required of the callers of pvm_export and pvm_unexport.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if name.is_empty() {
        return 0;
    }
    let old = std::env::var("PVM_EXPORT").ok();
    if let Some(new) = change(old.as_deref(), &name) {
        // SAFETY: no other thread uses the environment, required of the caller, as for setenv.
        unsafe { std::env::set_var("PVM_EXPORT", new) };
    }
    0
}

/// See `pvm3.h`.
///
/// # Safety
/// `name` is null or a string; no other thread uses the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_export(name: *const c_char) -> c_int {
    change_export(name, |old, name| match old {
        Some(old) if old.split(':').any(|one| one == name) => None,
        Some(old) if !old.is_empty() => Some(format!("{old}:{name}")),
        _ => Some(name.to_string()),
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// The same as for [`pvm_export`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_unexport(name: *const c_char) -> c_int {
    change_export(name, |old, name| {
        let left: Vec<&str> = old?.split(':').collect();
        let at = left.iter().position(|one| *one == name)?;
        let (before, after) = (&left[..at], &left[at + 1..]);
        Some([before, after].concat().join(":"))
    })
}
