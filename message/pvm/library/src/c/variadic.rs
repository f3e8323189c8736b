//! pvm_packf and pvm_unpackf. `shim.c` fetches the arguments after the format, since Rust cannot
//! define functions with a variable number of arguments.

use std::ffi::{CStr, c_char, c_double, c_int, c_long, c_void};

use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::format::Arguments;

use super::library::call;
use super::tracing::{text, traced};

unsafe extern "C" {
    fn nagaya_pvm_next_int(list: *mut c_void) -> c_int;
    fn nagaya_pvm_next_long(list: *mut c_void) -> c_long;
    fn nagaya_pvm_next_double(list: *mut c_void) -> c_double;
    fn nagaya_pvm_next_pointer(list: *mut c_void) -> *mut c_void;
    fn nagaya_pvm_packf();
    fn nagaya_pvm_unpackf();
    fn nagaya_pvm_vpackf();
    fn nagaya_pvm_vunpackf();
}

/// A `va_list`, by its address.
struct List(*mut c_void);

impl Arguments for List {
    fn int(&mut self) -> i32 {
        // SAFETY: the list has the arguments that the format describes, required of the caller
        // of `pack_format` or `unpack_format`, which read them in that order.
        unsafe { nagaya_pvm_next_int(self.0) }
    }

    fn long(&mut self) -> i64 {
        // SAFETY: the list has the arguments that the format describes.
        unsafe { nagaya_pvm_next_long(self.0) }
    }

    fn double(&mut self) -> f64 {
        // SAFETY: the list has the arguments that the format describes.
        unsafe { nagaya_pvm_next_double(self.0) }
    }

    fn pointer(&mut self) -> *mut u8 {
        // SAFETY: the list has the arguments that the format describes.
        unsafe { nagaya_pvm_next_pointer(self.0).cast() }
    }
}

/// Executes pvm_packf with the address of a `va_list`.
///
/// # Safety
/// `format` is null or a string; `list` is a `va_list` with the arguments that it describes.
#[unsafe(no_mangle)]
unsafe extern "C" fn nagaya_pvm_pack_list(format: *const c_char, list: *mut c_void) -> c_int {
    let called = traced("pvm_packf", Event::PACKF);
    // SAFETY: `format` is null or a string, required of the caller.
    let called = called.with(|record| record.string(Id::PF, &unsafe { text(format) }));
    call(called, |library| {
        if format.is_null() {
            return Err(Error::BadParam.into());
        }
        // SAFETY: `format` is null or a string; `list` is a `va_list` with the arguments that it
        // describes, required of the caller. Null is handled separately.
        let format = unsafe { CStr::from_ptr(format) }.to_bytes();
        library.with(|state| {
            // SAFETY: `format` is null or a string; `list` is a `va_list` with the arguments that
            // it describes, required of the caller.
            unsafe { state.task.buffers.pack_format(format, &mut List(list)) }.map(|()| 0)
        })
    })
}

/// Executes pvm_unpackf with the address of a `va_list`.
///
/// # Safety
/// The same as for [`nagaya_pvm_pack_list`].
#[unsafe(no_mangle)]
unsafe extern "C" fn nagaya_pvm_unpack_list(format: *const c_char, list: *mut c_void) -> c_int {
    let called = traced("pvm_unpackf", Event::UNPACKF);
    // SAFETY: `format` is null or a string, required of the caller.
    let called = called.with(|record| record.string(Id::PF, &unsafe { text(format) }));
    call(called, |library| {
        if format.is_null() {
            return Err(Error::BadParam.into());
        }
        // SAFETY: `format` is null or a string; `list` is a `va_list` with the arguments that it
        // describes, required of the caller. Null is handled separately.
        let format = unsafe { CStr::from_ptr(format) }.to_bytes();
        library.with(|state| {
            // SAFETY: `format` is null or a string; `list` is a `va_list` with the arguments that
            // it describes, required of the caller.
            unsafe { state.task.buffers.unpack_format(format, &mut List(list)) }.map(|()| 0)
        })
    })
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($to:ident) => {
        std::arch::naked_asm!("jmp {}", sym $to)
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($to:ident) => {
        std::arch::naked_asm!("b {}", sym $to)
    };
}

macro_rules! variadic {
    ($($name:ident = $to:ident;)+) => {$(
        /// See `pvm3.h`. Jumps to a C function with the same arguments: rustc exports only
        /// functions written in Rust from a library.
        ///
        /// # Safety
        /// The arguments are those that the format describes.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            jump!($to)
        }
    )+};
}

variadic! {
    pvm_packf = nagaya_pvm_packf;
    pvm_unpackf = nagaya_pvm_unpackf;
    pvm_vpackf = nagaya_pvm_vpackf;
    pvm_vunpackf = nagaya_pvm_vunpackf;
}
