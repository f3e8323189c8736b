//! Message buffers: packing, unpacking, and what belongs to them. These need no daemon.

use std::ffi::{CStr, c_char, c_int, c_void};

use pvm::buffers::Buffers;
use pvm::error::Error;
use pvm::items::{Kind, Source, Target};
use pvm::message::Header;

use super::errors;
use super::library::call;

/// A step on the buffers.
#[inline]
fn step<T>(
    name: &str,
    run: impl FnOnce(&mut Buffers) -> Result<T, Error>,
    result: impl FnOnce(T) -> c_int,
) -> c_int {
    call(name, |library| library.with(|state| run(&mut state.task.buffers)).map(result))
}

fn ok(name: &str, run: impl FnOnce(&mut Buffers) -> Result<(), Error>) -> c_int {
    step(name, run, |()| 0)
}

fn number(name: &str, run: impl FnOnce(&mut Buffers) -> Result<i32, Error>) -> c_int {
    step(name, run, |number| number)
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_mkbuf(encoding: c_int) -> c_int {
    number("pvm_mkbuf", |buffers| buffers.mkbuf(encoding))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_initsend(encoding: c_int) -> c_int {
    number("pvm_initsend", |buffers| buffers.initsend(encoding))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_freebuf(id: c_int) -> c_int {
    call("pvm_freebuf", |library| library.with(|state| state.free(id)).map(|()| 0))
}

impl super::library::State {
    /// Frees a buffer. One with a message that has come and was not received is no message
    /// any more.
    pub fn free(&mut self, id: c_int) -> Result<(), Error> {
        if self.task.buffers.message(id).is_ok_and(|message| message.waits)
            && let Ok(intake) = self.task.intake()
        {
            intake.arrived.retain(|arrived| *arrived != id);
        }
        self.task.buffers.freebuf(id)
    }
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_setsbuf(id: c_int) -> c_int {
    number("pvm_setsbuf", |buffers| buffers.setsbuf(id))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_setrbuf(id: c_int) -> c_int {
    number("pvm_setrbuf", |buffers| buffers.setrbuf(id))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_getsbuf() -> c_int {
    number("pvm_getsbuf", |buffers| Ok(buffers.getsbuf()))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_getrbuf() -> c_int {
    number("pvm_getrbuf", |buffers| Ok(buffers.getrbuf()))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_pkmesg(id: c_int) -> c_int {
    ok("pvm_pkmesg", |buffers| buffers.pack_message(id))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_pkmesgbody(id: c_int) -> c_int {
    ok("pvm_pkmesgbody", |buffers| buffers.pack_body(id))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_upkmesg() -> c_int {
    number("pvm_upkmesg", Buffers::unpack_message)
}

/// See `pvm3.h`.
///
/// # Safety
/// Each pointer is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_bufinfo(
    id: c_int,
    length: *mut c_int,
    tag: *mut c_int,
    tid: *mut c_int,
) -> c_int {
    step(
        "pvm_bufinfo",
        |buffers| buffers.info(id),
        |info| {
            let values = [info.length, info.header.tag, info.header.source];
            for (place, value) in [length, tag, tid].into_iter().zip(values) {
                if !place.is_null() {
                    // SAFETY: as our caller says.
                    unsafe { *place = value };
                }
            }
            0
        },
    )
}

/// `struct pvmminfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MessageInfo {
    length: c_int,
    context: c_int,
    tag: c_int,
    wait_id: c_int,
    encoding: c_int,
    crc: c_int,
    source: c_int,
    destination: c_int,
}

/// See `pvm3.h`.
///
/// # Safety
/// `info` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getminfo(id: c_int, info: *mut MessageInfo) -> c_int {
    step(
        "pvm_getminfo",
        |buffers| if info.is_null() { Err(Error::BadParam) } else { buffers.info(id) },
        |found| {
            let Header { context, tag, wait_id, crc, source, destination } = found.header;
            let value = MessageInfo {
                length: found.length,
                context,
                tag,
                wait_id,
                encoding: found.encoding,
                crc,
                source,
                destination,
            };
            // SAFETY: as our caller says.
            unsafe { *info = value };
            0
        },
    )
}

/// See `pvm3.h`.
///
/// # Safety
/// `info` is null or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_setminfo(id: c_int, info: *const MessageInfo) -> c_int {
    if info.is_null() {
        return ok("pvm_setminfo", |_| Err(Error::BadParam));
    }
    // SAFETY: as our caller says.
    let MessageInfo { context, tag, wait_id, crc, source, destination, .. } = unsafe { *info };
    let header = Header { context, tag, wait_id, crc, source, destination };
    ok("pvm_setminfo", |buffers| buffers.set_info(id, header))
}

macro_rules! items {
    ($($pack:ident, $unpack:ident, $kind:ident;)+) => {$(
        /// See `pvm3.h`.
        ///
        /// # Safety
        /// As for `Source::new`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pack(at: *const c_void, count: c_int, stride: c_int) -> c_int {
            // SAFETY: as our caller says.
            let source = unsafe { Source::new(Kind::$kind, at.cast(), count, stride) };
            ok(stringify!($pack), |buffers| buffers.pack(&source))
        }

        /// See `pvm3.h`.
        ///
        /// # Safety
        /// As for `Target::new`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $unpack(at: *mut c_void, count: c_int, stride: c_int) -> c_int {
            // SAFETY: as our caller says.
            let mut target = unsafe { Target::new(Kind::$kind, at.cast(), count, stride) };
            ok(stringify!($unpack), |buffers| buffers.unpack(&mut target))
        }
    )+};
}

items! {
    pvm_pkbyte, pvm_upkbyte, Byte;
    pvm_pkshort, pvm_upkshort, Short;
    pvm_pkint, pvm_upkint, Int;
    pvm_pklong, pvm_upklong, Long;
    pvm_pkushort, pvm_upkushort, UShort;
    pvm_pkuint, pvm_upkuint, UInt;
    pvm_pkulong, pvm_upkulong, ULong;
    pvm_pkfloat, pvm_upkfloat, Float;
    pvm_pkdouble, pvm_upkdouble, Double;
    pvm_pkcplx, pvm_upkcplx, Complex;
    pvm_pkdcplx, pvm_upkdcplx, DoubleComplex;
}

/// See `pvm3.h`.
///
/// # Safety
/// `string` is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_pkstr(string: *const c_char) -> c_int {
    if string.is_null() {
        return errors::tell("pvm_pkstr", Error::BadParam.code());
    }
    // SAFETY: as our caller says.
    let string = unsafe { CStr::from_ptr(string) };
    ok("pvm_pkstr", |buffers| buffers.pack_string(string))
}

/// See `pvm3.h`.
///
/// # Safety
/// There is room for the string that comes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_upkstr(at: *mut c_char) -> c_int {
    // SAFETY: as our caller says.
    ok("pvm_upkstr", |buffers| unsafe { buffers.unpack_string(at.cast()) })
}
