//! Message mailboxes, and the older calls such as pvm_insert, which use mailboxes of one int.

use std::ffi::{CStr, c_char, c_int};

use pvm::constants::*;
use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::message::Message;
use pvm::wire::{Answer, MailboxRequest, Parcel, Request};

use super::kept::CClassInfo;
use super::library::{Library, call, call_remembering};
use super::state::Code;
use super::tracing::{text, traced};
use crate::task::message_of;

/// Returns a class's name. Errors: BadParam if it is null or empty.
///
/// # Safety
/// `name` is null or a string.
unsafe fn class(name: *const c_char) -> Result<String, Code> {
    // SAFETY: `name` is null or a string, required of the caller. Null is handled separately.
    if name.is_null() || unsafe { *name } == 0 {
        return Err(Error::BadParam.into());
    }
    // SAFETY: `name` is null or a string, required of the caller. Null is handled separately.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

fn put(
    library: &Library,
    class: String,
    index: c_int,
    id: c_int,
    flags: c_int,
) -> Result<c_int, Code> {
    library.enroll()?;
    let bytes = library.with(|state| state.task.parcel(id))?;
    let put = MailboxRequest::Put { class, index, flags, parcel: Parcel { bytes } };
    library.ask_number(Request::Mailbox(put))
}

/// Returns an entry and its index.
fn get(
    library: &Library,
    class: String,
    index: c_int,
    flags: c_int,
) -> Result<(c_int, Message), Code> {
    let get = MailboxRequest::Get { class, index, flags };
    let Answer::Entry(index, parcel) = library.ask(Request::Mailbox(get))? else {
        return Err(Error::DSysErr.into());
    };
    let message = library.with(|state| message_of(parcel.bytes, &mut state.task.buffers))?;
    Ok((index, message))
}

/// See `pvm3.h`.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_putinfo(name: *const c_char, id: c_int, flags: c_int) -> c_int {
    let called = traced("pvm_putinfo", Event::PUTINFO).with(|record| {
        // SAFETY: `name` is null or a string, required of the caller.
        record.string(Id::CN, &unsafe { text(name) }).int(Id::CI, -1);
        record.int(Id::CF, flags).int(Id::CD, id)
    });
    call_remembering(called, &[Error::Denied, Error::Exists], |library| {
        // SAFETY: `name` is null or a string, required of the caller.
        put(library, unsafe { class(name)? }, -1, id, flags)
    })
}

/// See `pvm3.h`. Frees the buffer that was received last.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_recvinfo(name: *const c_char, index: c_int, flags: c_int) -> c_int {
    let called = traced("pvm_recvinfo", Event::GETINFO).with(|record| {
        // SAFETY: `name` is null or a string, required of the caller.
        record.string(Id::CN, &unsafe { text(name) }).int(Id::CI, index).int(Id::CF, flags)
    });
    let called = called.tells(|record, _, result| {
        record.int(Id::CC, result.min(0)).int(Id::CR, if result < 0 { -1 } else { result });
    });
    call_remembering(called, &[Error::NotFound], |library| {
        // SAFETY: `name` is null or a string, required of the caller.
        let class = unsafe { class(name)? };
        if index < 0 {
            return Err(Error::BadParam.into());
        }
        library.enroll()?;
        library.with(|state| {
            let old = state.task.buffers.getrbuf();
            state.task.buffers.freebuf(old)
        })?;
        let (_, message) = get(library, class, index, flags)?;
        library.with(|state| state.task.buffers.receive(message))
    })
}

fn delete(library: &Library, class: String, index: c_int, flags: c_int) -> Result<c_int, Code> {
    if index < 0 {
        return Err(Error::BadParam.into());
    }
    library.ask_number(Request::Mailbox(MailboxRequest::Delete { class, index, flags }))
}

/// See `pvm3.h`.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_delinfo(name: *const c_char, index: c_int, flags: c_int) -> c_int {
    let called = traced("pvm_delinfo", Event::DELINFO).with(|record| {
        // SAFETY: `name` is null or a string, required of the caller.
        record.string(Id::CN, &unsafe { text(name) }).int(Id::CI, index).int(Id::CF, flags)
    });
    call_remembering(called, &[Error::Denied, Error::NotFound], |library| {
        // SAFETY: `name` is null or a string, required of the caller.
        delete(library, unsafe { class(name)? }, index, flags)
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `pattern` is null or a string; the others are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getmboxinfo(
    pattern: *const c_char,
    count: *mut c_int,
    list: *mut *mut CClassInfo,
) -> c_int {
    let called = traced("pvm_getmboxinfo", Event::GETMBOXINFO);
    // SAFETY: `pattern` is null or a string, required of the caller.
    let called = called.with(|record| record.string(Id::CN, &unsafe { text(pattern) }));
    call(called, |library| {
        let pattern = match pattern.is_null() {
            true => String::new(),
            // SAFETY: `pattern` is null or a string, required of the caller. Null is handled
            // separately.
            false => unsafe { CStr::from_ptr(pattern) }.to_string_lossy().into_owned(),
        };
        let request = Request::Mailbox(MailboxRequest::List(pattern));
        let Answer::Classes(classes) = library.ask(request)? else {
            return Err(Error::DSysErr.into());
        };
        let kept = library.with(|state| Ok(state.classes.keep(&classes)))?;
        // SAFETY: `pattern` is null or a string; the others are null or valid for a write,
        // required of the caller.
        unsafe {
            if !list.is_null() {
                *list = kept;
            }
            if !count.is_null() {
                *count = classes.len() as c_int;
            }
        }
        Ok(0)
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_insert(name: *const c_char, index: c_int, data: c_int) -> c_int {
    let called = traced("pvm_insert", Event::INSERT).with(|record| {
        // SAFETY: `name` is null or a string, required of the caller.
        record.string(Id::CN, &unsafe { text(name) }).int(Id::CI, index).int(Id::CD, data)
    });
    call_remembering(called, &[Error::Denied], |library| {
        // SAFETY: `name` is null or a string, required of the caller.
        let class = unsafe { class(name)? };
        if index < -1 {
            return Err(Error::BadParam.into());
        }
        library.enroll()?;
        let (id, old) = library.with(|state| {
            let id = state.task.buffers.mkbuf(PvmDataDefault)?;
            let old = state.task.buffers.setsbuf(id)?;
            state.pack_ints(&[data])?;
            Ok((id, old))
        })?;
        let flags = PvmMboxMultiInstance | PvmMboxPersistent;
        let result = put(library, class, index, id, flags);
        library.with(|state| {
            state.task.buffers.setsbuf(old)?;
            state.task.buffers.freebuf(id)
        })?;
        result
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `name` is null or a string; `data` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_lookup(name: *const c_char, index: c_int, data: *mut c_int) -> c_int {
    let called = traced("pvm_lookup", Event::LOOKUP).with(|record| {
        // SAFETY: `name` is null or a string, required of the caller.
        record.string(Id::CN, &unsafe { text(name) }).int(Id::CI, index)
    });
    call_remembering(called, &[Error::NotFound], |library| {
        // SAFETY: `name` is null or a string, required of the caller.
        let class = unsafe { class(name)? };
        let (index, flags) = match index {
            -1 => (0, PvmMboxFirstAvail),
            0.. => (index, PvmMboxDefault),
            _ => return Err(Error::BadParam.into()),
        };
        let (index, message) = get(library, class, index, flags)?;
        let value = library.with(|state| {
            let buffers = &mut state.task.buffers;
            let id = buffers.insert(message);
            let old = buffers.setrbuf(id)?;
            let value = state.unpack_int();
            state.task.buffers.setrbuf(old)?;
            state.task.buffers.freebuf(id)?;
            Ok(value.ok())
        })?;
        if let Some(value) = value.filter(|_| !data.is_null()) {
            // SAFETY: `data` is null or valid for a write, required of the caller. Null is handled
            // separately.
            unsafe { *data = value };
        }
        Ok(index)
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `name` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_delete(name: *const c_char, index: c_int) -> c_int {
    let called = traced("pvm_delete", Event::DELETE).with(|record| {
        // SAFETY: `name` is null or a string, required of the caller.
        record.string(Id::CN, &unsafe { text(name) }).int(Id::CI, index)
    });
    call_remembering(called, &[Error::NotFound, Error::Denied], |library| {
        // SAFETY: `name` is null or a string, required of the caller.
        delete(library, unsafe { class(name)? }, index, PvmMboxDefault)
    })
}
