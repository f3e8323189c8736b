//! Tasks that do a part of PVM's work: hosters start daemons, taskers start tasks, resource
//! managers choose hosts, tracers receive trace events. The same call registers and unregisters a
//! task, in turn. Other tasks find them by a mailbox.

use std::ffi::{CStr, c_char, c_int};

use pvm::constants::*;
use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::wire::{Answer, HostInfo, Inheritance, MailboxRequest, Parcel, Request, Sink};

use super::kept::CHostInfo;
use super::library::{Library, call};
use super::state::{Code, Roles, State};
use super::tracing::traced;

/// Puts a message that `pack` packs into a mailbox.
fn announce(
    library: &Library,
    class: &str,
    flags: c_int,
    pack: impl FnOnce(&mut State) -> Result<(), Error>,
) -> Result<c_int, Code> {
    let bytes = library.with(|state| {
        let id = state.task.buffers.mkbuf(PvmDataDefault)?;
        let old = state.task.buffers.setsbuf(id)?;
        pack(state)?;
        state.task.buffers.setsbuf(old)?;
        let bytes = state.task.parcel(id)?;
        state.task.buffers.freebuf(id)?;
        Ok(bytes)
    })?;
    let put =
        MailboxRequest::Put { class: class.into(), index: -1, flags, parcel: Parcel { bytes } };
    library.ask_number(Request::Mailbox(put))
}

fn withdraw(library: &Library, class: &str, index: c_int) {
    let delete = MailboxRequest::Delete { class: class.into(), index, flags: PvmMboxDefault };
    // The mailbox entry may have been deleted with the role.
    let _ = library.ask(Request::Mailbox(delete));
}

/// Registers or unregisters the task as hoster or tasker.
fn toggle(
    library: &Library,
    class: &str,
    request: impl FnOnce(bool) -> Request,
    role: impl Fn(&mut Roles) -> &mut Option<c_int>,
) -> Result<c_int, Code> {
    let own = library.tid()?.as_int();
    let is = library.with(|state| Ok(*role(&mut state.roles)))?;
    let result = library.ask_number(request(is.is_none()))?;
    let now = match is {
        Some(index) => {
            withdraw(library, class, index);
            None
        }
        None => {
            let pack = |state: &mut State| state.pack_ints(&[own]);
            Some(announce(library, class, PvmMboxMultiInstance, pack).unwrap_or(-1))
        }
    };
    library.with(|state| {
        *role(&mut state.roles) = now;
        Ok(result)
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_reg_hoster() -> c_int {
    call(traced("pvm_reg_hoster", Event::REG_HOSTER), |library| {
        toggle(library, PVMHOSTERCLASS, Request::Hoster, |roles| &mut roles.hoster)
    })
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_reg_tasker() -> c_int {
    call(traced("pvm_reg_tasker", Event::REG_TASKER), |library| {
        toggle(library, PVMTASKERCLASS, Request::Tasker, |roles| &mut roles.tasker)
    })
}

/// See `pvm3.h`. A resource manager keeps its role until it ends.
///
/// # Safety
/// `host` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_reg_rm(host: *mut *mut CHostInfo) -> c_int {
    call(traced("pvm_reg_rm", Event::REG_RM), |library| {
        let own = library.tid()?;
        let hosts: Vec<HostInfo> = match library.ask(Request::ResourceManager)? {
            // The daemon, and no other manager, has answered.
            Answer::Done => match library.ask(Request::Config)? {
                Answer::Hosts(hosts) => hosts,
                _ => return Err(Error::DSysErr.into()),
            },
            Answer::Hosts(hosts) => hosts,
            _ => return Err(Error::DSysErr.into()),
        };
        // The first host, wherever the manager runs.
        let first = hosts.get(..1).unwrap_or_default();
        let kept = library.with(|state| Ok(state.manager_host.keep(first)))?;
        if !host.is_null() {
            // SAFETY: `host` is null or valid for a write, required of the caller. Null is handled
            // separately.
            unsafe { *host = kept };
        }
        if let Some(index) = library.with(|state| Ok(state.roles.manager.take()))? {
            withdraw(library, PVMRMCLASS, index);
        }
        let pack = |state: &mut State| state.pack_ints(&[own.as_int()]);
        let index = announce(library, PVMRMCLASS, PvmMboxMultiInstance, pack);
        library.with(|state| {
            state.roles.manager = index.ok();
            Ok(0)
        })
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `mask` is a trace mask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_reg_tracer(
    trace_context: c_int,
    trace_tag: c_int,
    output_context: c_int,
    output_tag: c_int,
    mask: *const c_char,
    buffer: c_int,
    options: c_int,
) -> c_int {
    let called = traced("pvm_reg_tracer", Event::REG_TRACER).with(|record| {
        record.int(Id::TRC, trace_context).int(Id::TRT, trace_tag);
        record.int(Id::TRX, output_context).int(Id::TRO, output_tag);
        // SAFETY: `mask` is a trace mask, required of the caller.
        record.string(Id::TRM, &unsafe { CStr::from_ptr(mask) }.to_string_lossy());
        record.int(Id::TRB, buffer).int(Id::TRL, options)
    });
    call(called, |library| {
        let own = library.tid()?.as_int();
        if let Some(index) = library.with(|state| Ok(state.roles.tracer.take()))? {
            library.ask_number(Request::Tracer(None))?;
            withdraw(library, PVMTRACERCLASS, index);
            return Ok(0);
        }
        // SAFETY: `mask` is a trace mask, required of the caller.
        let mask = unsafe { CStr::from_ptr(mask) };
        let inheritance = Inheritance {
            output: Sink { tid: own, context: output_context, tag: output_tag },
            trace: Sink { tid: own, context: trace_context, tag: trace_tag },
            trace_buffer: buffer,
            trace_options: options,
            trace_mask: mask.to_string_lossy().into_owned(),
            context: 0,
        };
        library.ask_number(Request::Tracer(Some(inheritance)))?;
        let index = announce(library, PVMTRACERCLASS, PvmMboxDefault, |state| {
            let before = [own, trace_context, trace_tag, output_context, output_tag];
            state.pack_ints(&before)?;
            state.task.buffers.pack_string(mask)?;
            state.pack_ints(&[buffer, options])
        });
        library.with(|state| {
            state.roles.tracer = Some(index.unwrap_or(-1));
            Ok(0)
        })
    })
}
