//! Put and get of one `long double`. C passes it on the stack and returns it in a register of the
//! x87, which Rust does not know. So these functions pass its address on.

use std::arch::naked_asm;
use std::ffi::c_int;

use crate::context::{self, Handle};
use crate::rma;

/// Bytes of a `long double`, with padding.
const BYTES: usize = 16;

/// Writes a value to a symmetric object.
unsafe extern "C" fn put(to: *mut u8, pe: c_int, value: *const u8) {
    // SAFETY: the caller passes the address of its argument.
    unsafe { rma::put("shmem_longdouble_p", context::default(), to, value, BYTES, pe) }
}

unsafe extern "C" fn put_ctx(context: Handle, to: *mut u8, pe: c_int, value: *const u8) {
    // SAFETY: the caller passes the address of its argument.
    unsafe { rma::put("shmem_ctx_longdouble_p", context, to, value, BYTES, pe) }
}

/// Reads the value of a symmetric object.
unsafe extern "C" fn get(from: *const u8, pe: c_int, value: *mut u8) {
    // SAFETY: the caller passes the address of 16 bytes of its stack.
    unsafe { rma::get("shmem_longdouble_g", context::default(), value, from, BYTES, pe) }
}

unsafe extern "C" fn get_ctx(context: Handle, from: *const u8, pe: c_int, value: *mut u8) {
    // SAFETY: the caller passes the address of 16 bytes of its stack.
    unsafe { rma::get("shmem_ctx_longdouble_g", context, value, from, BYTES, pe) }
}

/// Defines a function by its instructions, under both names.
macro_rules! naked {
    ([$name:literal, $profiled:literal] $inner:ident: $($line:literal),*) => {
        naked!($name $inner: $($line),*);
        naked!($profiled $inner: $($line),*);
    };
    ($name:literal $inner:ident: $($line:literal),*) => {
        const _: () = {
            #[unsafe(naked)]
            #[unsafe(export_name = $name)]
            unsafe extern "C" fn function() {
                naked_asm!($($line),*, inner = sym $inner)
            }
        };
    };
}

// The value lies on the stack, behind the return address: its address becomes the last argument.
naked!(["shmem_longdouble_p", "pshmem_longdouble_p"] put: "lea rdx, [rsp + 8]", "jmp {inner}");
naked!(["shmem_ctx_longdouble_p", "pshmem_ctx_longdouble_p"] put_ctx:
    "lea rcx, [rsp + 8]", "jmp {inner}");
naked!(["shmem_longdouble_g", "pshmem_longdouble_g"] get:
    "sub rsp, 24", "mov rdx, rsp", "call {inner}", "fld tbyte ptr [rsp]", "add rsp, 24", "ret");
naked!(["shmem_ctx_longdouble_g", "pshmem_ctx_longdouble_g"] get_ctx:
    "sub rsp, 24", "mov rcx, rsp", "call {inner}", "fld tbyte ptr [rsp]", "add rsp, 24", "ret");
