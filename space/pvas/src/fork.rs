//! `pvas_fork` and `pvas_execve`: the paper's two calls, in the manner of vfork.
//!
//! The child of `pvas_fork` returns from it on its parent's stack and with its parent's
//! thread area, while the parent's thread waits. When the parent goes on, the frames
//! below its caller's have been overwritten, so everything that it still needs lies in a
//! [`Record`] on the heap: `pvas_fork` itself is a few instructions that keep all state
//! there.

use std::cell::Cell;
use std::ffi::CString;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nagaya_loader::Program;
use rustix::io::Errno;

use crate::capi;
use crate::child;
use crate::error::Error;
use crate::space::{Space, abandon, comm, load_into};
use crate::watcher::Watcher;

/// What outlives the child's use of our stack. The first members are read by the
/// assembly below.
#[repr(C)]
struct Record {
    /// rbx, rbp, r12 to r15, rsp, return address of pvas_fork's caller.
    registers: [u64; 8],
    /// 1; cleared by the kernel when the child ends or execs, 2 when it is a task.
    state: AtomicU32,
    child: i32,
    space: Arc<Space>,
    id: u32,
    /// Signal mask of the parent's thread, which the child has too.
    parent: u32,
}

thread_local! {
    /// The fork whose child runs on this thread's area. Only that child can read it: the
    /// parent's thread waits.
    static PENDING: Cell<*mut Record> = const { Cell::new(ptr::null_mut()) };
}

/// See `include/pvas.h`.
///
/// # Safety
/// As for vfork(2): the child uses the caller's memory and stack, and must not return
/// from the function that called this.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_fork(pvd: i32, pvid: i32) -> libc::pid_t {
    core::arch::naked_asm!(
        // prepare(pvd, pvid): a record, or null with errno set
        "sub rsp, 8",
        "call {prepare}",
        "add rsp, 8",
        "test rax, rax",
        "jz 9f",
        "mov [rax], rbx",
        "mov [rax + 8], rbp",
        "mov [rax + 16], r12",
        "mov [rax + 24], r13",
        "mov [rax + 32], r14",
        "mov [rax + 40], r15",
        "mov [rax + 48], rsp",
        "mov rcx, [rsp]",
        "mov [rax + 56], rcx",
        "mov rbx, rax",
        // clone(CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, 0, 0, &state)
        "mov edi, {flags}",
        "xor esi, esi",
        "xor edx, edx",
        "lea r10, [rbx + 64]",
        "xor r8d, r8d",
        "mov eax, 56",
        "syscall",
        "test eax, eax",
        "jz 7f",
        "mov [rbx + 68], eax",
        "js 6f",
        // while (state == 1) futex(&state, FUTEX_WAIT, 1, NULL)
        "5: cmp dword ptr [rbx + 64], 1",
        "jne 6f",
        "lea rdi, [rbx + 64]",
        "xor esi, esi",
        "mov edx, 1",
        "xor r10d, r10d",
        "mov eax, 202",
        "syscall",
        "jmp 5b",
        // The parent again, with nothing but rbx. The child's frames are dead: put the
        // return address back and finish on the old stack.
        "6: mov rsp, [rbx + 48]",
        "mov rcx, [rbx + 56]",
        "mov [rsp], rcx",
        "mov rbp, [rbx + 8]",
        "mov r12, [rbx + 16]",
        "mov r13, [rbx + 24]",
        "mov r14, [rbx + 32]",
        "mov r15, [rbx + 40]",
        "mov rdi, rbx",
        "mov rbx, [rbx]",
        "jmp {finish}",
        // The child: rbx back, 0.
        "7: mov rbx, [rbx]",
        "xor eax, eax",
        "ret",
        "9: mov eax, -1",
        "ret",
        prepare = sym prepare,
        finish = sym finish,
        flags = const libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD,
    )
}

extern "C" fn prepare(pvd: i32, pvid: i32) -> *mut Record {
    let record = || {
        let space = capi::space(pvd)?;
        space.check_owner()?;
        let range = || Error::IdRange(i64::from(pvid), space.layout().tasks_max());
        let id = u32::try_from(pvid).map_err(|_| range())?;
        let id = space.take_slot(Some(id))?;
        Ok(Box::into_raw(Box::new(Record {
            registers: [0; 8],
            state: AtomicU32::new(1),
            child: 0,
            space,
            id,
            parent: std::process::id(),
        })))
    };
    match record() {
        Ok(record) => {
            PENDING.set(record);
            record
        }
        Err(error) => {
            capi::set_error(&error);
            ptr::null_mut()
        }
    }
}

/// In the parent, after the child has become a task, has become an ordinary process, or
/// has ended.
///
/// # Safety
/// Called once by `pvas_fork` with the record that `prepare` made.
unsafe extern "C" fn finish(record: *mut Record) -> libc::pid_t {
    PENDING.set(ptr::null_mut());
    // SAFETY: made by Box::into_raw, and the child uses it no more.
    let record = unsafe { Box::from_raw(record) };
    let control = record.space.control();
    let failed = |error: &Error| {
        // SAFETY: no process runs in the segment.
        unsafe { abandon(&control, record.id) };
        capi::set_error(error);
        -1
    };
    if record.child < 0 {
        return failed(&Error::System("clone", Errno::from_raw_os_error(-record.child)));
    }
    if record.state.load(Ordering::Acquire) != 2 {
        // SAFETY: as above; an ordinary process, or none.
        unsafe { abandon(&control, record.id) };
        return record.child;
    }
    let added = Watcher::get().and_then(|watcher| {
        watcher
            .add(record.space.key(), control, record.id, record.child as u32)
            .map_err(|errno| Error::System("pidfd_open (raise ulimit -n)", errno))
    });
    match added {
        Ok(()) => record.child,
        Err(error) => {
            capi::set_error(&error);
            -1
        }
    }
}

/// Whether the caller is the child of a `pvas_fork` that has not been anything else yet.
pub fn is_child() -> bool {
    !PENDING.get().is_null()
}

/// Runs a program in the segment of the task whose `pvas_fork` the caller is the child
/// of. Returns only on error.
pub fn execve(path: &Path, arguments: Vec<CString>, environment: &[CString]) -> Error {
    let record = PENDING.get();
    // SAFETY: PENDING is null or the record of the fork that runs on this thread's area;
    // only its child can see it, and the parent keeps it until then.
    let Some(record) = (unsafe { record.as_ref() }) else { return Error::NotForked };
    if std::process::id() == record.parent {
        return Error::NotForked;
    }
    let control = record.space.control();
    let program = match Program::open(path, arguments) {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    let mut mask = 0u64;
    // SAFETY: asks for the mask, eight bytes.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            ptr::null::<u64>(),
            &raw mut mask,
            8,
        )
    };
    let size = record.space.layout().segment_size();
    // SAFETY: `prepare` took the slot, and an earlier attempt was cleared.
    let task =
        match unsafe { load_into(&control, record.id, &program, environment, size, None, mask) } {
            Ok(task) => task,
            Err(error) => {
                // SAFETY: nobody runs there yet.
                unsafe { control.clear_unstarted(record.id) };
                return error.into();
            }
        };
    let name = comm(path);
    let mut comm = [0; 16];
    let length = name.as_bytes().len().min(15);
    comm[..length].copy_from_slice(&name.as_bytes()[..length]);
    // From here on nothing may be owned on this stack: it is the parent's again soon.
    drop((program, name));
    let _ = child::close_on_exec();
    let _ = child::reset_signals(None);
    // SAFETY: loaded above for this slot; the state word belongs to the record, which the
    // parent frees only after it is set to 2.
    unsafe { child::enter(control, record.id, task, control.gate(), &comm, &record.state) }
}
