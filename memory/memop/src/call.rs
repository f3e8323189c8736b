//! A system call that another process makes: one of its threads is stopped, made to pass a
//! system call instruction of its own program with our registers, and put back.

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
/// How much of a mapping is searched for it at a time.
const PIECE: usize = 64 << 10;

/// Has the process make this call; its result.
pub fn make(pid: Pid, number: i64, arguments: [usize; 6]) -> Result<u64> {
    // Who is about to end is refused by the kernel in several ways.
    let ended = |error| if lives(pid) { error } else { Errno::SRCH };
    let thread = stopped(pid).map_err(ended)?;
    // (The first thread's view of the memory ends with it.)
    let result = instruction(&thread).and_then(|at| pass(&thread, at, number, arguments));
    thread.release()?;
    result.map_err(ended)
}

fn lives(pid: Pid) -> bool {
    threads(pid).is_ok_and(|tids| tids.into_iter().any(|tid| State::of(tid).is_some()))
}

/// A thread of the process, stopped.
fn stopped(pid: Pid) -> Result<Thread> {
    // A caller that traces it is in a hurry.
    let held = Thread::held(pid.as_raw_pid());
    if held.registers().is_ok() {
        return Ok(held);
    }
    let mut why = Errno::SRCH;
    // The first thread may have ended before the others, or be where no signal reaches it.
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

/// Where a thread's process has a system call instruction: in its vDSO, else in its libraries.
fn instruction(thread: &Thread) -> Result<u64> {
    // The kernel gives all processes of a kind the same vDSO.
    if let (Some(base), Some(offset)) = (vdso(thread.tid()), *OFFSET)
        && thread.word(base + offset).is_ok_and(|word| word.to_le_bytes().starts_with(&INSTRUCTION))
    {
        return Ok(base + offset);
    }
    let maps = maps::of(thread.tid()).map_err(gone)?;
    let memory = File::open(format!("/proc/{}/mem", thread.tid())).map_err(gone)?;
    // The kernel executes calls in the vsyscall page itself; nobody else can read it.
    let mut code = maps.filter(|it| it.executes && it.path != "[vsyscall]");
    code.find_map(|it| search(&memory, it.addresses)).ok_or(Errno::NOTSUP)
}

/// Where the instruction is in our own vDSO.
static OFFSET: LazyLock<Option<u64>> = LazyLock::new(|| {
    let start = vdso(rustix::thread::gettid().as_raw_pid())?;
    let vdso = maps::own().ok()?.into_iter().find(|it| it.path == "[vdso]")?;
    let memory = File::open("/proc/self/mem").ok()?;
    Some(search(&memory, start..vdso.addresses.end)? - start)
});

/// Where the vDSO of a thread's process is, by its auxiliary vector.
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

fn search(memory: &File, Range { start, end }: Range<u64>) -> Option<u64> {
    let mut piece = vec![0; PIECE];
    // An instruction that lies across the end of a piece is missed; there are many.
    (start..end).step_by(PIECE).find_map(|from| {
        let length = PIECE.min((end - from) as usize);
        memory.read_exact_at(&mut piece[..length], from).ok()?;
        let at = piece[..length].windows(2).position(|bytes| bytes == INSTRUCTION)?;
        Some(from + at as u64)
    })
}

/// Passes the instruction with this call's registers; all is as it was afterwards.
fn pass(thread: &Thread, at: u64, number: i64, arguments: [usize; 6]) -> Result<u64> {
    let saved = thread.registers()?;
    let signals = thread.signals()?;
    let dispatch = thread.without_dispatch()?;
    // With all signals blocked no handler begins meanwhile.
    thread.set_signals(u64::MAX)?;
    let mut registers = saved;
    registers.rip = at;
    // No call is under way, which would be begun again.
    registers.orig_rax = u64::MAX;
    registers.rax = number as u64;
    let places = [
        &mut registers.rdi,
        &mut registers.rsi,
        &mut registers.rdx,
        &mut registers.r10,
        &mut registers.r8,
        &mut registers.r9,
    ];
    for (place, argument) in places.into_iter().zip(arguments) {
        *place = argument as u64;
    }
    let result = thread.set_registers(&registers).and_then(|()| {
        // Into the call, and out of it.
        thread.go_until(Stop::Call)?;
        thread.go_until(Stop::Call)?;
        Ok(thread.registers()?.rax)
    });
    // Where a call was interrupted, it is begun again only by who comes out of such a stop.
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
