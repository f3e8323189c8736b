//! The functions that libgpvm3 calls beside those of `pvm3.h`: requests to the daemon, the memory
//! that groups share, waiting, errors and traces. Both libraries come from one build, and no other
//! program calls these functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;

use pvm::error::Error;
use pvm::event::{EVENTS, Event, IDS, Id, Record};
use pvm::wire::{Answer, GroupRequest, Request};

use super::library::{begin, end, quietly, tell};
use super::state::{Code, State};
use super::tracing::{Called, Depth, numbers, text};

fn code(result: Result<(), Code>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

/// Asks the daemon about groups: `request` is a [`GroupRequest`] in postcard's encoding, so is
/// the [`Answer`], in memory that the caller frees with free(). Makes the process a task.
/// Returns 0 or PVM's error code, which is not told.
///
/// # Safety
/// `request` has `length` bytes; the other two can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_ask(
    request: *const c_void,
    length: usize,
    answer: *mut *mut c_void,
    answer_length: *mut usize,
) -> c_int {
    code(quietly(|library| {
        // SAFETY: as our caller says.
        let request = unsafe { std::slice::from_raw_parts(request.cast::<u8>(), length) };
        let request: GroupRequest = postcard::from_bytes(request).map_err(|_| Error::BadParam)?;
        let reply: Answer = library.ask(Request::Group(request))?;
        let reply = postcard::to_extend(&reply, Vec::new()).map_err(|_| Error::SysErr)?;
        // SAFETY: as much memory as is copied into it; the caller lets us write the rest.
        unsafe {
            let memory = libc::malloc(reply.len());
            if memory.is_null() {
                return Err(Error::NoMem.into());
            }
            memory.cast::<u8>().copy_from_nonoverlapping(reply.as_ptr(), reply.len());
            *answer = memory;
            *answer_length = reply.len();
        }
        Ok(())
    }))
}

/// The plain memory of the host's window, which begins with the groups' slots; null if this is
/// no task. It stays where it is until the task exits.
///
/// # Safety
/// `size` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_plain(size: *mut usize) -> *mut c_void {
    let plain = quietly(|library| {
        library.with(|state| {
            let window = state.task.port()?.members().window();
            let plain = window.plain();
            let at = window.address(plain.start, plain.len()).ok_or(Error::SysErr)?;
            Ok((at.as_ptr(), plain.len()))
        })
    });
    let (at, length) = plain.unwrap_or((std::ptr::null_mut(), 0));
    if !size.is_null() {
        // SAFETY: as our caller says.
        unsafe { *size = length };
    }
    at.cast()
}

/// Sleeps until `*word` is no longer `value`: the caller has looked for a while. Meanwhile messages
/// are taken in, handlers run, and other threads may use the library. Who changes the word wakes
/// those who sleep on it by futex. Returns 0, or PvmSysErr if the daemon has gone.
///
/// # Safety
/// `word` can be read, in memory that others share or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_wait(word: *const u32, value: u32) -> c_int {
    // SAFETY: as our caller says; an atomic is as large.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    code(quietly(|library| {
        while word.load(Acquire) == value {
            library.wait_while(word, value)?;
        }
        Ok(())
    }))
}

/// What libgpvm3 and programs tell errors of their own with.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lpvmerr(name: *const c_char, code: c_int) -> c_int {
    // SAFETY: a string, as our caller says.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    tell(&name, code)
}

/// A call of libgpvm3.
struct GroupCall<'a> {
    event: Option<Event>,
    group: *const c_char,
    value: Option<(Id, c_int)>,
    list: &'a [c_int],
}

impl Called for GroupCall<'_> {
    fn name(&self) -> &str {
        ""
    }

    fn event(&self) -> Option<Event> {
        self.event
    }

    fn entry(&self, record: &mut Record, _: &mut State) {
        // SAFETY: a string or null, as those say who call libgpvm3.
        record.string(Id::GN, &unsafe { text(self.group) });
        if let Some((id, value)) = self.value {
            record.int(id, value);
        }
    }

    fn exit(&self, record: &mut Record, _: &mut State, result: c_int) {
        record.int(self.value.map_or(Id::CC, |(id, _)| id), result);
        if self.event == Some(Event::BCAST) {
            record.ints(Id::MDL, self.list);
        }
    }
}

fn group_call<'a>(event: c_int, group: *const c_char, id: c_int, value: c_int) -> GroupCall<'a> {
    let event = EVENTS.get(event as usize).copied();
    GroupCall { event, group, value: IDS.get(id as usize).map(|id| (*id, value)), list: &[] }
}

/// A call of libgpvm3 begins, where calls are traced: `event` is its number, `id` that of what
/// `value` is, or negative. Returns what [`nagaya_pvm_trace_exit`] is to get.
///
/// # Safety
/// `group` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_trace_entry(
    event: c_int,
    group: *const c_char,
    id: c_int,
    value: c_int,
) -> c_int {
    begin(&group_call(event, group, id, value)) as c_int
}

/// The call ends with this result, which is an `id`; pvm_bcast has sent to `list`.
///
/// # Safety
/// `list` is null or has `count` tids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_trace_exit(
    event: c_int,
    depth: c_int,
    id: c_int,
    result: c_int,
    list: *const c_int,
    count: c_int,
) {
    let depth = [Depth::Unknown, Depth::Outer, Depth::Inner][depth.clamp(0, 2) as usize];
    // SAFETY: as our caller says.
    let list = unsafe { numbers(list, count) };
    end(&GroupCall { list, ..group_call(event, std::ptr::null(), id, 0) }, depth, result);
}
