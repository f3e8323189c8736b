//! System calls that touch no thread-local, unlike libc's, which set errno. A child that shares its
//! parent's thread area makes these only.

use std::ffi::CStr;

use rustix::io::Errno;

fn call(number: i64, arguments: [usize; 4]) -> Result<usize, Errno> {
    let result: isize;
    // SAFETY: the asm block declares all registers that the instruction changes. All callers
    // pass pointers to live data of the size that the call expects.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    if (-4095..0).contains(&result) {
        Err(Errno::from_raw_os_error(-result as i32))
    } else {
        Ok(result as usize)
    }
}

/// Makes a call without arguments.
pub fn call0(number: i64) -> Result<usize, Errno> {
    call(number, [0; 4])
}

/// Makes a call with one argument.
pub fn call1(number: i64, a: usize) -> Result<usize, Errno> {
    call(number, [a, 0, 0, 0])
}

/// Makes a call with two arguments.
pub fn call2(number: i64, a: usize, b: usize) -> Result<usize, Errno> {
    call(number, [a, b, 0, 0])
}

/// Makes a call with three arguments.
pub fn call3(number: i64, a: usize, b: usize, c: usize) -> Result<usize, Errno> {
    call(number, [a, b, c, 0])
}

/// Makes a call with four arguments.
pub fn call4(number: i64, a: usize, b: usize, c: usize, d: usize) -> Result<usize, Errno> {
    call(number, [a, b, c, d])
}

/// Returns the PID of the calling process.
pub fn getpid() -> u32 {
    call0(libc::SYS_getpid).unwrap_or(0) as u32
}

/// Sets the name that ps(1) shows.
pub fn set_comm(name: &[u8; 16]) {
    let _ = call2(libc::SYS_prctl, libc::PR_SET_NAME as usize, name.as_ptr() as usize);
}

/// Moves the calling process to the cgroup of this `cgroup.procs`, if that is permitted.
pub fn join_cgroup(procs: &CStr) {
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    let path = procs.as_ptr() as usize;
    if let Ok(fd) = call4(libc::SYS_openat, libc::AT_FDCWD as usize, path, flags, 0) {
        let _ = call3(libc::SYS_write, fd, c"0".as_ptr() as usize, 1);
        let _ = call1(libc::SYS_close, fd);
    }
}

/// Ends the calling process.
pub fn exit(status: usize) -> ! {
    let _ = call1(libc::SYS_exit_group, status);
    loop {
        core::hint::spin_loop();
    }
}
