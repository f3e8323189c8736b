//! System calls as values: those of the kernel, and those that a thread makes to its own shadow.

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Call {
    /// Its number.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Numbers from here on are calls to a shadow. A program cannot make them, since the kernel reads
/// 32 bits.
const FIRST: u64 = 1 << 32;
/// Sets the shadow's signal mask.
pub const MASK: u64 = FIRST;
/// The thread handles the signal that was forwarded; sets the mask of the handler.
pub const TAKEN: u64 = FIRST + 1;
/// The thread has faulted. Arguments: the first words of the siginfo.
pub const FAULT: u64 = FIRST + 2;
/// The thread returns to the origin, with the context in its slot.
pub const HOME: u64 = FIRST + 3;
/// The thread has exited with this status.
pub const END: u64 = FIRST + 4;

/// Makes a child that shares memory. Arguments: clone flags, and where its IDs go. The child's
/// context is in the slot.
pub const CHILD: u64 = FIRST + 5;
/// Makes a child that has a copy of the memory; arguments as for [`CHILD`].
pub const FORK: u64 = FIRST + 6;

/// Returns true if the context in the slot goes with the call.
pub fn takes_context(call: &Call) -> bool {
    [libc::SYS_clone as u64, CHILD, FORK].contains(&call.number)
}
