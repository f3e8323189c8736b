//! A system call that another process makes. One of its threads is stopped and executes a system
//! call instruction of its own program with our registers; then its state is restored.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

use proc::maps;
use rustix::io::{Errno, Result};
use rustix::process::Pid;

use crate::process::{State, gone, threads};
use crate::trace::{Stop, Thread};

/// The instruction `syscall`.
const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// Bytes of a mapping that are searched for it at a time.
const PIECE: usize = 64 << 10;

/// Lets the process make this call. Returns its result.
pub fn make(pid: Pid, number: i64, arguments: [usize; 6]) -> Result<u64> {
    // The kernel has several errors for a process that is about to end.
    let ended = |error| if lives(pid) { error } else { Errno::SRCH };
    let thread = stopped(pid).map_err(ended)?;
    // By the stopped thread: the first thread may have ended, and with it its view of the memory.
    let result = instruction(&thread).and_then(|at| pass(&thread, at, number, arguments));
    thread.release()?;
    result.map_err(ended)
}

fn lives(pid: Pid) -> bool {
    threads(pid).is_ok_and(|tids| tids.into_iter().any(|tid| State::of(tid).is_some()))
}

/// Stops a thread of the process.
fn stopped(pid: Pid) -> Result<Thread> {
    // A caller that traces the process should not wait, so this is tried first.
    let held = Thread::held(pid.as_raw_pid());
    if held.registers().is_ok() {
        return Ok(held);
    }
    let mut why = Errno::SRCH;
    // The first thread may have ended before the others, or be in an uninterruptible sleep.
    for tid in threads(pid)? {
        let Some(state) = State::of(tid) else { continue };
        let ours = state.tracer == rustix::thread::gettid().as_raw_pid();
        match state.kind {
            'D' => why = Errno::BUSY,
            't' if ours => return Ok(Thread::held(tid)),
            _ if state.tracer != 0 => why = Errno::PERM,
            _ => match Thread::stop(tid) {
                Ok(thread) => return Ok(thread),
                Err(error) => why = error,
            },
        }
    }
    Err(why)
}

/// Finds a system call instruction of a thread's process: in its vDSO, else in its libraries.
fn instruction(thread: &Thread) -> Result<u64> {
    // The kernel gives all processes of one architecture the same vDSO.
    if let (Some(base), Some(offset)) = (vdso(thread.tid()), *OFFSET)
        && thread.word(base + offset).is_ok_and(|word| word.to_le_bytes().starts_with(&INSTRUCTION))
    {
        return Ok(base + offset);
    }
    let maps = maps::of(thread.tid()).map_err(gone)?;
    let memory = File::open(format!("/proc/{}/mem", thread.tid())).map_err(gone)?;
    // The kernel emulates calls in the vsyscall page, which cannot be read.
    let mut code = maps.filter(|it| it.executes && it.path != "[vsyscall]");
    code.find_map(|it| search(&memory, it.addresses)).ok_or(Errno::NOTSUP)
}

/// Offset of the instruction in our own vDSO.
static OFFSET: LazyLock<Option<u64>> = LazyLock::new(|| {
    let start = vdso(rustix::thread::gettid().as_raw_pid())?;
    let vdso = maps::own().ok()?.into_iter().find(|it| it.path == "[vdso]")?;
    let memory = File::open("/proc/self/mem").ok()?;
    Some(search(&memory, start..vdso.addresses.end)? - start)
});

/// Returns the address of the vDSO of a thread's process, from its auxiliary vector.
fn vdso(tid: i32) -> Option<u64> {
    let vector = fs::read(format!("/proc/{tid}/auxv")).ok()?;
    let mut words =
        vector.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    while let (Some(kind), Some(value)) = (words.next(), words.next()) {
        if kind == libc::AT_SYSINFO_EHDR {
            return Some(value);
        }
    }
    None
}

/// Searches a mapping for the instruction.
fn search(memory: &File, Range { start, end }: Range<u64>) -> Option<u64> {
    let mut piece = vec![0; PIECE];
    // An instruction across the end of a piece is missed; there are many others.
    (start..end).step_by(PIECE).find_map(|from| {
        let length = PIECE.min((end - from) as usize);
        memory.read_exact_at(&mut piece[..length], from).ok()?;
        let at = piece[..length].windows(2).position(|bytes| bytes == INSTRUCTION)?;
        Some(from + at as u64)
    })
}

/// Executes the instruction with this call's registers, and restores the thread's state.
fn pass(thread: &Thread, at: u64, number: i64, arguments: [usize; 6]) -> Result<u64> {
    let saved = thread.registers()?;
    let signals = thread.signals()?;
    let dispatch = thread.without_dispatch()?;
    // While all signals are blocked, no handler starts.
    thread.set_signals(u64::MAX)?;
    let mut registers = saved;
    registers.rip = at;
    // No system call is in progress that the kernel would restart.
    registers.orig_rax = u64::MAX;
    registers.rax = number as u64;
    let argument_registers = [
        &mut registers.rdi,
        &mut registers.rsi,
        &mut registers.rdx,
        &mut registers.r10,
        &mut registers.r8,
        &mut registers.r9,
    ];
    for (register, argument) in argument_registers.into_iter().zip(arguments) {
        *register = argument as u64;
    }
    let result = thread.set_registers(&registers).and_then(|()| {
        // Into the call, and out of it.
        thread.go_until(Stop::Call)?;
        thread.go_until(Stop::Call)?;
        Ok(thread.registers()?.rax)
    });
    // The kernel restarts an interrupted call only after a stop of this kind.
    thread.stop_again()?;
    thread.set_registers(&saved)?;
    if let Some(dispatch) = dispatch {
        thread.set_dispatch(&dispatch)?;
    }
    thread.set_signals(signals)?;
    let result = result? as i64;
    if (-4095..0).contains(&result) {
        return Err(Errno::from_raw_os_error(-result as i32));
    }
    Ok(result as u64)
}
