//! JIAJIA 2.1's variables, which later versions replaced by calls, and Fortran's COMMON block.
//!
//! A program may have a copy of its own of a library's variable (a copy relocation, a COMMON
//! block), which then is the one that counts: the one that dlsym(3) finds.

#![allow(non_upper_case_globals)]

use std::ffi::{CStr, c_int};
use std::sync::atomic::AtomicI32;

/// This task's number.
#[unsafe(no_mangle)]
static jia_pid: AtomicI32 = AtomicI32::new(0);
/// How many tasks there are.
#[unsafe(no_mangle)]
static hostc: AtomicI32 = AtomicI32::new(1);
/// The next lock number of the macros; only programs change it.
#[unsafe(no_mangle)]
static jia_lock_index: AtomicI32 = AtomicI32::new(0);
/// `COMMON /jia/ jiapid, jiahosts`, aligned as gfortran aligns COMMON blocks.
#[repr(C, align(16))]
struct Common([AtomicI32; 2]);
#[unsafe(no_mangle)]
static jia_: Common = Common([AtomicI32::new(0), AtomicI32::new(1)]);

/// Sets the values that the program reads from now on.
pub fn set(rank: u32, size: u32) {
    let (rank, size) = (rank as c_int, size as c_int);
    set_one(c"jia_pid", &jia_pid, 0, rank);
    set_one(c"hostc", &hostc, 0, size);
    set_one(c"jia_", &jia_.0[0], 0, rank);
    set_one(c"jia_", &jia_.0[0], 1, size);
}

fn set_one(name: &CStr, own: &AtomicI32, index: usize, value: c_int) {
    // SAFETY: `name` is a C string. dlsym only searches the loaded objects.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let at = if found.is_null() { own.as_ptr() } else { found.cast::<c_int>() };
    // SAFETY: a variable of this library's, or the program's of the same name in its place, which
    // jia.h and jiaf.h declare with this type and length.
    unsafe { at.add(index).write_volatile(value) };
}
