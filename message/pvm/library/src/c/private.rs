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

/// Sends the daemon a group request: a [`GroupRequest`] in postcard's encoding. The [`Answer`] has
/// the same encoding, in memory that the caller frees with free(). Makes the process a task.
/// Returns 0 or PVM's error code, which is not reported.
///
/// # Safety
/// `request` has `length` bytes; the other two are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_ask(
    request: *const c_void,
    length: usize,
    answer: *mut *mut c_void,
    answer_length: *mut usize,
) -> c_int {
    code(quietly(|library| {
        // SAFETY: `request` has `length` bytes, required of the caller.
        let request = unsafe { std::slice::from_raw_parts(request.cast::<u8>(), length) };
        let request: GroupRequest = postcard::from_bytes(request).map_err(|_| Error::BadParam)?;
        let reply: Answer = library.ask(Request::Group(request))?;
        let reply = postcard::to_extend(&reply, Vec::new()).map_err(|_| Error::SysErr)?;
        // SAFETY: the allocated memory has room for all bytes copied into it. The two result
        // pointers are valid for a write, required of the caller.
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

/// Returns the plain memory of the host's window, which begins with the groups' slots; null if the
/// process is no task. It stays mapped until the task exits.
///
/// # Safety
/// `size` is null or valid for a write.
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
        // SAFETY: `size` is null or valid for a write, required of the caller. Null is handled
        // separately.
        unsafe { *size = length };
    }
    at.cast()
}

/// Sleeps until `*word` differs from `value`; the caller has polled before. Meanwhile messages are
/// processed, handlers run, and other threads may use the library. A process that changes the word
/// wakes the sleepers by futex. Returns 0, or PvmSysErr if the daemon has ended.
///
/// # Safety
/// `word` is aligned and stays valid for reads, in shared or private memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nagaya_pvm_wait(word: *const u32, value: u32) -> c_int {
    // SAFETY: `word` is aligned and valid, required of the caller; an atomic has the same layout.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    code(quietly(|library| {
        while word.load(Acquire) == value {
            library.wait_while(word, value)?;
        }
        Ok(())
    }))
}

/// Reports an error of libgpvm3 or of a program.
///
/// # Safety
/// `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lpvmerr(name: *const c_char, code: c_int) -> c_int {
    // SAFETY: `name` is a string, required of the caller.
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
        // SAFETY: `group` is a string or null, required of the callers of libgpvm3.
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

/// Records the start of a traced call of libgpvm3. `event` is its number, and `id` the kind of the
/// argument `value`, or negative. Returns the depth for [`nagaya_pvm_trace_exit`].
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

/// Records the end of a traced call with this result, of kind `id`. `list` has the receivers of
/// pvm_bcast.
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
    // SAFETY: `list` is null or has `count` tids, required of the caller.
    let list = unsafe { numbers(list, count) };
    end(&GroupCall { list, ..group_call(event, std::ptr::null(), id, 0) }, depth, result);
}
