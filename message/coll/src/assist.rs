//! Both processors copy a large message: a sender that waits copies pieces of its message into the
//! receiver's buffer, while the receiver copies others.
//!
//! The receiver's MPI reads a large message from the sender's memory by process_vm_readv(2), which
//! the gate makes a copy in user space. One processor alone reads fresh data of another at a part
//! of the speed. So the library comes before that function. It exposes the buffer in the rank's
//! *mailbox* (`sync::pieces`), and invites the sender by a word of the sender's mailbox. A sender
//! that waits in a call of the MPI (`Waiting`) accepts the invitation and copies pieces until none
//! is left. Without such a sender the receiver copies all of them.
//!
//! The receiver returns when all pieces are copied, so nobody writes into its buffer afterwards.
//! Each holds the other's task (`control::hold`) while it uses its mailbox, so a death unmaps
//! nothing. If a sender dies with a claimed piece, or a piece cannot be copied, the receiver makes
//! the whole copy anew by the original function, which has the kernel's results.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_ulong;
use std::mem::transmute;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use control::{Identity, ThisTask, export, hold, this_task};
use libc::{iovec, pid_t, ssize_t};
use sync::futex;
use sync::pieces::{BYTES_MAX, BYTES_MIN, Exposed};
use sync::wait::{DOUBT, WaitPolicy, wake};

use crate::library::die;
use crate::speeds::Speeds;
use crate::wait::ticks;
use outbox::outbox::VERSION;

/// A sender waits, and nobody has invited it. Other values of the word: 0 if no sender waits, else
/// the inviting task's ID in the upper half, and the tag of its message, which is not 0, below a
/// flag.
const WAITING: u64 = 1 << 32;
const INVITED: u64 = 1 << 63;

/// Packs the invitation of a task to its message with this tag.
fn invitation(id: u32, tag: u32) -> u64 {
    INVITED | u64::from(id) << 32 | u64::from(tag)
}

/// Returns the inviting task and the tag.
fn invited(word: u64) -> Option<(u32, u32)> {
    (word & INVITED != 0).then_some((((word & !INVITED) >> 32) as u32, word as u32))
}

/// A rank's part in such copies, which other tasks find by an exported name.
#[repr(C, align(64))]
struct Mailbox {
    /// The invitation to a sender of this task.
    invitation: AtomicU64,
    /// Keeps the words of the two roles in different cache lines.
    _rest: [u64; 7],
    /// The buffer of this task, as a receiver.
    exposed: Exposed,
}

/// This task's mailbox.
struct Own {
    mailbox: &'static Mailbox,
    /// A thread receives.
    is_exposed: AtomicBool,
    speeds: Speeds,
}

static OWN: OnceLock<Own> = OnceLock::new();

/// This is a forked child, which has only a copy of the mailbox.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    IS_CHILD.store(true, Relaxed);
}

#[inline]
fn own() -> Option<&'static Own> {
    OWN.get().filter(|_| !IS_CHILD.load(Relaxed))
}

/// Returns the name of the mailbox.
fn name() -> String {
    format!("nagaya-coll {VERSION} mailbox")
}

/// Creates and exports the mailbox of this task. Without it nothing changes for the MPI.
pub fn register() {
    find_syscall();
    let Some(task) = this_task().filter(|task| task.control.protection().is_none()) else {
        return;
    };
    OWN.get_or_init(|| {
        let (invitation, exposed) = (AtomicU64::new(0), Exposed::default());
        let mailbox: &Mailbox = Box::leak(Box::new(Mailbox { invitation, _rest: [0; 7], exposed }));
        let address = task.for_others(std::ptr::from_ref(mailbox).expose_provenance() as u64);
        let size = size_of::<Mailbox>() as u64;
        let _ = export::export(&task.control, task.id, name().as_bytes(), address, size);
        // SAFETY: the handler stores one flag. This library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        Own { mailbox, is_exposed: AtomicBool::new(false), speeds: Speeds::default() }
    });
}

thread_local! {
    /// The last peer and the address of its mailbox, or 0 if it has none.
    static LAST: Cell<Option<(Identity, u64)>> = const { Cell::new(None) };
}

/// Returns the mailbox of a task of this domain. The caller holds the task.
fn mailbox_of(this: &ThisTask, peer: Identity) -> Option<&'static Mailbox> {
    let address = match LAST.get() {
        Some((last, address)) if last == peer => address,
        _ => {
            let address = find(this, peer).unwrap_or(0);
            LAST.set(Some((peer, address)));
            address
        }
    };
    let mailbox = std::ptr::with_exposed_provenance::<Mailbox>(address as usize);
    // SAFETY: `find` has checked that a mailbox is in the segment of the task, which never frees
    // it, and the caller's hold keeps the segment. All fields are atomic or never read.
    unsafe { mailbox.as_ref() }
}

fn find(this: &ThisTask, peer: Identity) -> Option<u64> {
    let control = &this.control;
    if control.domain_of(peer.id) != control.domain_of(this.id) {
        return None;
    }
    let found = export::import(control, peer.id, name().as_bytes(), Some(Duration::ZERO));
    let (address, size) = found.ok()?;
    let is_right = address.is_multiple_of(align_of::<Mailbox>() as u64)
        && size == size_of::<Mailbox>() as u64
        && [address, address + size - 1].map(|at| control.layout().id_of(at)) == [Some(peer.id); 2];
    is_right.then_some(address)
}

type Transfer =
    unsafe extern "C" fn(pid_t, *const iovec, c_ulong, *const iovec, c_ulong, c_ulong) -> ssize_t;

/// Returns the C library's function. This library's own symbol precedes it.
fn original() -> Option<Transfer> {
    static ORIGINAL: OnceLock<Option<Transfer>> = OnceLock::new();
    *ORIGINAL.get_or_init(|| {
        // SAFETY: the name ends with a zero.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"process_vm_readv".as_ptr()) };
        // SAFETY: the function has this type in all C libraries.
        (!address.is_null()).then(|| unsafe { transmute::<*mut libc::c_void, Transfer>(address) })
    })
}

/// process_vm_readv(2). A large piece of memory of a waiting sender is copied by both.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_vm_readv(
    pid: pid_t,
    local: *const iovec,
    locals: c_ulong,
    remote: *const iovec,
    remotes: c_ulong,
    flags: c_ulong,
) -> ssize_t {
    if locals == 1 && remotes == 1 && flags == 0 && !local.is_null() && !remote.is_null() {
        // SAFETY: the caller passes one vector each. (A bad address ends this process, which the
        // original would report; MPIs pass their own variables.)
        let (to, from) = unsafe { (&*local, &*remote) };
        let is_large = (BYTES_MIN..=BYTES_MAX).contains(&(to.iov_len as u64));
        if is_large
            && to.iov_len == from.iov_len
            && let Some(pid) = u32::try_from(pid).ok()
            && pull(pid, to, from).is_some()
        {
            return to.iov_len as ssize_t;
        }
    }
    match original() {
        // SAFETY: the caller's contract is that of the original function.
        Some(original) => unsafe { original(pid, local, locals, remote, remotes, flags) },
        None => {
            // SAFETY: errno is this thread's own variable.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            -1
        }
    }
}

/// syscall(2), by which Intel MPI calls process_vm_readv(2). All other calls jump to the C library,
/// with their arguments untouched.
///
/// # Safety
/// The contract of the C library's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {readv}",
        "je 3f",
        "2:",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        // The arguments of the call become those of the function.
        "3:",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov rcx, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "jmp {transfer}",
        // The first call. The pushes leave the stack at a multiple of 16 bytes, but for one word.
        "4:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp 2b",
        readv = const libc::SYS_process_vm_readv,
        next = sym SYSCALL,
        transfer = sym process_vm_readv,
        find = sym find_syscall,
    )
}

/// The C library's syscall(2), or 0 before its first use. MPI_Init finds it, if nobody has: the
/// first user could be a signal handler, which may not call dlsym(3).
static SYSCALL: AtomicUsize = AtomicUsize::new(0);

extern "C" fn find_syscall() {
    // SAFETY: the name ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"syscall".as_ptr()) };
    if address.is_null() {
        die("the C library has no syscall(2)");
    }
    SYSCALL.store(address as usize, Release);
}

/// Copies all of `from`, memory of process `pid`, to `to`, together with the sender if that is
/// faster. `None` if the sender does not wait, or if the copy failed, and must be made anew.
fn pull(pid: u32, to: &iovec, from: &iovec) -> Option<()> {
    let (own, read) = (own()?, original()?);
    let (begin, size) = (ticks(), to.iov_len as u64);
    if !own.speeds.together(size) {
        // SAFETY: the arguments are those of the caller of the function that this replaces.
        let copied = unsafe { read(pid as pid_t, to, 1, from, 1, 0) };
        own.speeds.record(size, false, ticks().wrapping_sub(begin));
        return (copied == size as ssize_t).then_some(());
    }
    let this = this_task()?;
    let sender = this.control.identity(this.task_of(pid)?)?;
    let hold = this.hold(sender, hold::WORK).ok()?;
    let theirs = &mailbox_of(&this, sender)?.invitation;
    if theirs.load(Relaxed) != WAITING || own.is_exposed.swap(true, Acquire) {
        return None;
    }
    let exposed = &own.mailbox.exposed;
    let target = this.for_others(to.iov_base as u64);
    let (tag, shares) = exposed.expose(target, size, from.iov_base as u64);
    let invitation = invitation(this.id, tag);
    if theirs.compare_exchange(WAITING, invitation, AcqRel, Relaxed).is_err() {
        own.is_exposed.store(false, Release);
        return None;
    }
    shares.copy(None, |at, length| {
        let part = |of: &iovec| iovec {
            iov_base: of.iov_base.wrapping_byte_add(at as usize),
            iov_len: length as usize,
        };
        // SAFETY: the caller of the function that this replaces owns the buffer, of which `shares`
        // gives each piece to one copier. The call checks the sender's addresses.
        let copied = unsafe { read(pid as pid_t, &part(to), 1, &part(from), 1, 0) };
        if copied == length as ssize_t { Ok(()) } else { Err(libc::EFAULT) }
    });
    // A sender that has not noticed the invitation may get another one.
    let _ = theirs.compare_exchange(invitation, WAITING, Relaxed, Relaxed);
    drop(hold);
    let mut policy = WaitPolicy::default();
    let result = loop {
        let word = exposed.futex();
        let seen = word.load(Acquire);
        match policy.poll(|| shares.finished()) {
            Some(error) => break (error == 0).then_some(()),
            None => futex::sleep(word, seen, Some(Instant::now() + DOUBT)),
        }
        if !this.control.is_living(sender) && shares.finished().is_none() {
            break None;
        }
    };
    own.is_exposed.store(false, Release);
    own.speeds.record(size, true, ticks().wrapping_sub(begin));
    result
}

/// A sender that waits. Receivers may invite it while this exists.
pub struct Waiting(&'static Own);

impl Waiting {
    /// Begins to wait; `None` if another thread waits already, or this task has no mailbox.
    pub fn begin() -> Option<Self> {
        let own = own()?;
        let begun = own.mailbox.invitation.compare_exchange(0, WAITING, AcqRel, Relaxed);
        begun.is_ok().then(|| Self(own))
    }

    /// Copies pieces for a receiver that has invited this sender. Returns true if there was one.
    #[inline]
    pub fn help(&self) -> bool {
        let word = &self.0.mailbox.invitation;
        if word.load(Relaxed) == WAITING {
            return false;
        }
        let invitation = invited(word.swap(0, Acquire));
        if let Some((id, tag)) = invitation {
            push(id, tag);
        }
        word.store(WAITING, Release);
        invitation.is_some()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A receiver whose invitation comes now copies all itself.
        self.0.mailbox.invitation.store(0, Release);
    }
}

/// Copies pieces of the message with this tag to the task, until none is left.
#[cold]
fn push(id: u32, tag: u32) -> Option<()> {
    let this = this_task()?;
    let receiver = this.control.identity(id)?;
    let _hold = this.hold(receiver, hold::WORK).ok()?;
    let exposed = &mailbox_of(&this, receiver)?.exposed;
    let helped = exposed.helped(tag)?;
    let layout = this.control.layout();
    let last = helped.to.checked_add(helped.bytes.checked_sub(1)?)?;
    if [helped.to, last].map(|at| layout.id_of(at)) != [Some(receiver.id); 2] {
        return None;
    }
    let pid = this.control.slot(receiver.id).pid.load(Relaxed);
    let was_last = helped.shares.copy(None, |at, length| {
        let part = |address: u64| iovec {
            iov_base: std::ptr::with_exposed_provenance_mut((address + at) as usize),
            iov_len: length as usize,
        };
        // SAFETY: the receiver would read these bytes of the caller's message itself, and has
        // exposed its buffer, of which `shares` gives each piece to one copier. The call checks
        // both addresses.
        let copied = unsafe {
            let (from, to) = (part(helped.from), part(helped.to));
            libc::process_vm_writev(pid as pid_t, &from, 1, &to, 1, 0)
        };
        if copied == length as ssize_t { Ok(()) } else { Err(libc::EFAULT) }
    });
    if was_last {
        futex::wake(exposed.futex());
    }
    Some(())
}

/// Polls between two steps of the wait policy. A poll calls the MPI.
const POLLS: u32 = 8;

/// Polls until `is_done` returns true, and helps receivers meanwhile. Returns true if one has
/// invited this sender.
pub fn help_until(mut is_done: impl FnMut() -> bool) -> bool {
    let mut was_invited = false;
    let waiting = Waiting::begin();
    let mut policy = WaitPolicy::default();
    let mut turn = 0u32;
    while !is_done() {
        if let Some(waiting) = &waiting {
            was_invited |= waiting.help();
        }
        turn += 1;
        if turn.is_multiple_of(POLLS) && policy.must_sleep() {
            // No sleep: nothing wakes this rank when the MPI has completed the request, and a
            // receiver that has invited it copies faster with help.
            wake::timed_yield();
        }
    }
    was_invited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_names_task_and_message() {
        for (id, tag) in [(0, 1), (0x7fff_ffff, u32::MAX), (1342, 7)] {
            let word = invitation(id, tag);
            assert_eq!(invited(word), Some((id, tag)));
            assert!(word != WAITING && word != 0);
        }
        assert_eq!((invited(WAITING), invited(0)), (None, None));
    }
}
