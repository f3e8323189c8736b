//! The command line of the program, as `ps` and others read it in `/proc/PID/cmdline`. The kernel
//! gets the address of the program's arguments, instead of those with which this node was started.

use proc::process::Stat;

use crate::raw;
use crate::snapshot::MemoryMap;

/// `PR_SET_MM_MAP`.
const SET_MAP: u64 = 14;
/// Fields of `/proc/self/stat`, as proc_pid_stat(5) numbers them.
const CODE: usize = 26;
const STACK: usize = 28;
const DATA: usize = 45;
const ARGUMENTS: usize = 48;

/// Sets the arguments of the process, each with a zero byte at its end.
///
/// A kernel without CONFIG_CHECKPOINT_RESTORE does not permit that. Then `strings` are written
/// over the present arguments, as far as there is room.
pub fn set_arguments(strings: &'static [u8]) {
    let Some(map) = current() else { return };
    let start = strings.as_ptr().expose_provenance() as u64;
    let new = MemoryMap { arguments: [start, start + strings.len() as u64], ..map };
    let arguments =
        [libc::PR_SET_MM as u64, SET_MAP, &raw const new as u64, size_of_val(&new) as u64, 0, 0];
    // SAFETY: the kernel reads `new`, which differs from the present values only in the arguments.
    if unsafe { raw::call(libc::SYS_prctl as u64, arguments) } == 0 {
        return;
    }
    let [start, end] = map.arguments;
    let room = (end - start) as usize;
    let count = strings.len().min(room.saturating_sub(1));
    // SAFETY: the process's own arguments, which the kernel has put there, to be written; std has
    // copied what it keeps of them.
    unsafe {
        let area = std::slice::from_raw_parts_mut(start as *mut u8, room);
        area[..count].copy_from_slice(&strings[..count]);
        area[count..].fill(0);
    }
}

/// The kernel's description of the process's memory.
fn current() -> Option<MemoryMap> {
    let stat = Stat::read("/proc/self").ok()?;
    let pair = |number: usize| Some([stat.field(number)?, stat.field(number + 1)?]);
    let [heap_start, argument_start] = pair(DATA + 2)?;
    let [argument_end, environment_start] = pair(ARGUMENTS + 1)?;
    // SAFETY: asks.
    let heap_end = unsafe { raw::call(libc::SYS_brk as u64, [0; 6]) } as u64;
    Some(MemoryMap {
        code: pair(CODE)?,
        data: pair(DATA)?,
        heap: [heap_start, heap_end],
        stack: stat.field(STACK)?,
        arguments: [argument_start, argument_end],
        environment: [environment_start, stat.field(ARGUMENTS + 3)?],
        auxiliary: 0,
        auxiliary_bytes: 0,
        executable: -1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_what_it_is_set_to() {
        let read = || std::fs::read("/proc/self/cmdline").expect("a command line");
        let own = read();
        let [start, end] = current().expect("a memory map").arguments;
        assert_eq!(end - start, own.len() as u64);
        let strings = b"one\0two\0".to_vec().leak();
        set_arguments(strings);
        assert_eq!(read(), strings);
        set_arguments(own.clone().leak());
        assert_eq!(read(), own);
    }
}
