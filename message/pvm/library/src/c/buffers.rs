//! Message buffers: creation, packing, unpacking. These calls need no daemon.

use std::ffi::{CStr, c_char, c_int, c_void};

use pvm::buffers::Buffers;
use pvm::error::Error;
use pvm::event::{Event, Id, Record};
use pvm::items::{Kind, Source, Target};
use pvm::message::Header;

use super::library::call;
use super::state::State;
use super::tracing::{Called, traced};

/// Runs a step on the buffers.
#[inline]
fn step<T>(
    called: impl Called,
    run: impl FnOnce(&mut Buffers) -> Result<T, Error>,
    result: impl FnOnce(T) -> c_int,
) -> c_int {
    call(called, |library| library.with(|state| run(&mut state.task.buffers)).map(result))
}

fn ok(called: impl Called, run: impl FnOnce(&mut Buffers) -> Result<(), Error>) -> c_int {
    step(called, run, |()| 0)
}

fn number(called: impl Called, run: impl FnOnce(&mut Buffers) -> Result<i32, Error>) -> c_int {
    step(called, run, |number| number)
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_mkbuf(encoding: c_int) -> c_int {
    let called = traced("pvm_mkbuf", Event::MKBUF).with(|record| record.int(Id::ME, encoding));
    number(called.gives(Id::MB), |buffers| buffers.mkbuf(encoding))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_initsend(encoding: c_int) -> c_int {
    let called = traced("pvm_initsend", Event::INITSEND);
    let called = called.with(|record| record.int(Id::ME, encoding)).gives(Id::MSB);
    number(called, |buffers| buffers.initsend(encoding))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_freebuf(id: c_int) -> c_int {
    let called = traced("pvm_freebuf", Event::FREEBUF).with(|record| record.int(Id::MB, id));
    call(called, |library| library.with(|state| state.free(id)).map(|()| 0))
}

impl State {
    /// Frees a buffer. If it holds a message that was not received yet, the message is dropped.
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
    let called = traced("pvm_setsbuf", Event::SETSBUF).with(|record| record.int(Id::MB, id));
    number(called.gives(Id::MSB), |buffers| buffers.setsbuf(id))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_setrbuf(id: c_int) -> c_int {
    let called = traced("pvm_setrbuf", Event::SETRBUF).with(|record| record.int(Id::MB, id));
    number(called.gives(Id::MRB), |buffers| buffers.setrbuf(id))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_getsbuf() -> c_int {
    number(traced("pvm_getsbuf", Event::GETSBUF).gives(Id::MSB), |buffers| Ok(buffers.getsbuf()))
}

/// See `pvm3.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_getrbuf() -> c_int {
    number(traced("pvm_getrbuf", Event::GETRBUF).gives(Id::MRB), |buffers| Ok(buffers.getrbuf()))
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
/// Each pointer is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_bufinfo(
    id: c_int,
    length: *mut c_int,
    tag: *mut c_int,
    tid: *mut c_int,
) -> c_int {
    let called = traced("pvm_bufinfo", Event::BUFINFO).with(|record| record.int(Id::MB, id));
    let called = called.tells(|record, state, result| {
        let values = match state.task.buffers.info(id) {
            Ok(info) if result == 0 => [info.length, info.header.tag, info.header.source],
            _ => [result; 3],
        };
        record.int(Id::CC, result).int(Id::INB, values[0]);
        record.int(Id::IMC, values[1]).int(Id::IST, values[2]);
    });
    step(
        called,
        |buffers| buffers.info(id),
        |info| {
            let values = [info.length, info.header.tag, info.header.source];
            for (place, value) in [length, tag, tid].into_iter().zip(values) {
                if !place.is_null() {
                    // SAFETY: each pointer is null or valid for a write, required of the caller.
                    // Null is handled separately.
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
/// `info` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getminfo(id: c_int, info: *mut MessageInfo) -> c_int {
    step(
        traced("pvm_getminfo", Event::GETMINFO).with(|record| record.int(Id::MB, id)),
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
            // SAFETY: `info` is null or valid for a write, required of the caller. Null is handled
            // separately.
            unsafe { *info = value };
            0
        },
    )
}

/// See `pvm3.h`.
///
/// # Safety
/// `info` is null or valid for a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_setminfo(id: c_int, info: *const MessageInfo) -> c_int {
    let called = traced("pvm_setminfo", Event::SETMINFO).with(|record| record.int(Id::MB, id));
    if info.is_null() {
        return ok(called, |_| Err(Error::BadParam));
    }
    // SAFETY: `info` is null or valid for a read, required of the caller. Null is handled
    // separately.
    let MessageInfo { context, tag, wait_id, crc, source, destination, .. } = unsafe { *info };
    let header = Header { context, tag, wait_id, crc, source, destination };
    ok(called, |buffers| buffers.set_info(id, header))
}

/// Records the arguments of packing and unpacking.
fn many(record: &mut Record, at: *const c_void, count: c_int, stride: c_int) -> &mut Record {
    record.address(Id::PDA, at).int(Id::PC, count).int(Id::PSD, stride)
}

macro_rules! items {
    ($($pack:ident $packs:ident, $unpack:ident $unpacks:ident, $kind:ident;)+) => {$(
        /// See `pvm3.h`.
        ///
        /// # Safety
        /// `at`, `count` and `stride` meet the requirements of `Source::new`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pack(at: *const c_void, count: c_int, stride: c_int) -> c_int {
            // SAFETY: `at`, `count` and `stride` meet the requirements of `Source::new`, required
            // of the caller.
            let source = unsafe { Source::new(Kind::$kind, at.cast(), count, stride) };
            let called = traced(stringify!($pack), Event::$packs);
            let called = called.with(|record| many(record, at, count, stride));
            ok(called, |buffers| buffers.pack(&source))
        }

        /// See `pvm3.h`.
        ///
        /// # Safety
        /// `at`, `count` and `stride` meet the requirements of `Target::new`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $unpack(at: *mut c_void, count: c_int, stride: c_int) -> c_int {
            // SAFETY: `at`, `count` and `stride` meet the requirements of `Target::new`, required
            // of the caller.
            let mut target = unsafe { Target::new(Kind::$kind, at.cast(), count, stride) };
            let called = traced(stringify!($unpack), Event::$unpacks);
            let called = called.with(|record| many(record, at, count, stride));
            ok(called, |buffers| buffers.unpack(&mut target))
        }
    )+};
}

items! {
    pvm_pkbyte PKBYTE, pvm_upkbyte UPKBYTE, Byte;
    pvm_pkshort PKSHORT, pvm_upkshort UPKSHORT, Short;
    pvm_pkint PKINT, pvm_upkint UPKINT, Int;
    pvm_pklong PKLONG, pvm_upklong UPKLONG, Long;
    pvm_pkushort PKUSHORT, pvm_upkushort UPKUSHORT, UShort;
    pvm_pkuint PKUINT, pvm_upkuint UPKUINT, UInt;
    pvm_pkulong PKULONG, pvm_upkulong UPKULONG, ULong;
    pvm_pkfloat PKFLOAT, pvm_upkfloat UPKFLOAT, Float;
    pvm_pkdouble PKDOUBLE, pvm_upkdouble UPKDOUBLE, Double;
    pvm_pkcplx PKCPLX, pvm_upkcplx UPKCPLX, Complex;
    pvm_pkdcplx PKDCPLX, pvm_upkdcplx UPKDCPLX, DoubleComplex;
}

/// See `pvm3.h`.
///
/// # Safety
/// `string` is a null-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_pkstr(string: *const c_char) -> c_int {
    let called = traced("pvm_pkstr", Event::PKSTR).with(|record| record.address(Id::PDA, string));
    ok(called, |buffers| match string.is_null() {
        true => Err(Error::BadParam),
        // SAFETY: `string` is a null-terminated string, required of the caller. Null is handled
        // separately.
        false => buffers.pack_string(unsafe { CStr::from_ptr(string) }),
    })
}

/// See `pvm3.h`.
///
/// # Safety
/// `at` has room for the received string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_upkstr(at: *mut c_char) -> c_int {
    let called = traced("pvm_upkstr", Event::UPKSTR).with(|record| record.address(Id::PDA, at));
    // SAFETY: `at` has room for the received string, required of the caller.
    ok(called, |buffers| unsafe { buffers.unpack_string(at.cast()) })
}
