//! `pvas_fork` and `pvas_execve`, the two calls of the PVAS paper that start tasks, in the manner
//! of vfork.
//!
//! The child of `pvas_fork` returns from it on its parent's stack and with its parent's thread
//! area, while the parent's thread waits. Meanwhile the child overwrites the stack frames below the
//! frame of the parent's caller. So all state that the parent still needs lies in a [`Record`] on
//! the heap. `pvas_fork` itself is a few instructions that save this state.

use std::cell::Cell;
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nagaya_gate::abi::Task;
use nagaya_loader::Program;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::child;
use crate::error::Error;
use crate::handles;
use crate::owner;
use crate::program::{abandon, comm, load_into};
use crate::space::Space;
use crate::watcher::{self, Watcher};

/// State of the parent that survives the child's use of its stack. The assembly below reads the
/// first members.
#[repr(C)]
struct Record {
    /// rbx, rbp, r12 to r15, rsp, return address of pvas_fork's caller.
    registers: [u64; 8],
    /// The slot's `starting`: [`RUNS`], [`ASKS`], or 2 when the child is a task. The kernel clears
    /// it when the child ends or execs. It outlives the record, as the child does.
    state: *const AtomicU32,
    child: i32,
    parent: u32,
    /// Top of a private stack on which the parent runs `attend`.
    stack_top: u64,
    _stack: Vec<u8>,
    space: Arc<Space>,
    id: u32,
    /// Previous signal mask of the parent's thread.
    sigmask: u64,
    /// The child's request in `pvas_execve`, and the loaded task (null on an error).
    request: Request,
    task: *mut Task,
    comm: [u8; 16],
}

impl Record {
    fn state(&self) -> &AtomicU32 {
        // SAFETY: `prepare` pointed `state` into the control area. The record holds the space,
        // which keeps the area mapped.
        unsafe { &*self.state }
    }
}

/// Arguments of `pvas_execve`, as the C caller passed them.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub path: *const c_char,
    pub argv: *const *const c_char,
    pub envp: *const *const c_char,
    /// The child's signal mask.
    pub sigmask: u64,
}

/// Further values of [`Record::state`], besides 0 (the child has left or ended) and 2 (it is a
/// task). The child runs, or it waits until the parent has loaded its program.
const RUNS: u32 = 1;
const ASKS: u32 = 3;
/// Size in bytes of the parent's private stack. Loading a program needs less.
const STACK_SIZE: usize = 512 << 10;

thread_local! {
    /// The fork whose child runs on this thread's area. Only that child can read it, because the
    /// parent's thread waits.
    static PENDING: Cell<*mut Record> = const { Cell::new(ptr::null_mut()) };
}

/// See `include/pvas.h`.
///
/// # Safety
/// As for vfork(2): the child uses the caller's memory and stack. It must not return from the
/// function that called this one.
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
        // clone(CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, 0, 0, state)
        "mov edi, {flags}",
        "xor esi, esi",
        "xor edx, edx",
        "mov r10, [rbx + 64]",
        "xor r8d, r8d",
        "mov eax, 56",
        "syscall",
        "test eax, eax",
        "jz 7f",
        "mov [rbx + 72], eax",
        "js 6f",
        // On the private stack until the child is a task or has gone
        "mov rsp, [rbx + 80]",
        "mov rdi, rbx",
        "call {attend}",
        // The parent continues with only rbx valid. The child's frames are dead: restore the return
        // address and finish on the old stack.
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
        // The child: restore its signal mask and rbx, return 0.
        "7: mov rdi, rbx",
        "sub rsp, 8",
        "call {as_child}",
        "add rsp, 8",
        "mov rbx, [rbx]",
        "xor eax, eax",
        "ret",
        "9: mov eax, -1",
        "ret",
        prepare = sym prepare,
        finish = sym finish,
        attend = sym attend,
        as_child = sym as_child,
        flags = const libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD,
    )
}

extern "C" fn prepare(pvd: i32, pvid: i32) -> *mut Record {
    let record = || {
        let space = handles::space(pvd)?;
        space.check_owner()?;
        let range = || Error::IdRange(i64::from(pvid), space.layout().tasks_max());
        let id = u32::try_from(pvid).map_err(|_| range())?;
        if id < space.layout().tasks_max() && space.domain_of(id) != 0 {
            return Err(Error::Invalid("task ID (pvas_fork makes tasks of the first domain only)"));
        }
        let id = space.take_slot(Some(id))?;
        let stack = vec![0; STACK_SIZE];
        let none = Request { path: ptr::null(), argv: ptr::null(), envp: ptr::null(), sigmask: 0 };
        Ok(Box::into_raw(Box::new(Record {
            registers: [0; 8],
            state: &space.control().slot(id).starting,
            child: 0,
            parent: std::process::id(),
            stack_top: (stack.as_ptr() as u64 + STACK_SIZE as u64) & !15,
            _stack: stack,
            space,
            id,
            // A signal handler of the waiting parent would run on the child's stack.
            sigmask: child::sigprocmask(libc::SIG_SETMASK, &u64::MAX),
            request: none,
            task: ptr::null_mut(),
            comm: [0; 16],
        })))
    };
    match record() {
        Ok(record) => {
            PENDING.set(record);
            record
        }
        Err(error) => {
            handles::set_error(&error);
            ptr::null_mut()
        }
    }
}

/// Completes `pvas_fork` in the parent, after the child has become a task or an ordinary process,
/// or has ended.
///
/// # Safety
/// `pvas_fork` calls this once with the record that `prepare` made.
unsafe extern "C" fn finish(record: *mut Record) -> libc::pid_t {
    PENDING.set(ptr::null_mut());
    // SAFETY: `prepare` made the pointer with Box::into_raw. The child does not use the record any
    // more.
    let record = unsafe { Box::from_raw(record) };
    let control = record.space.control();
    child::sigprocmask(libc::SIG_SETMASK, &record.sigmask);
    let failed = |error: &Error| {
        // SAFETY: the clone failed, so no process runs in the segment.
        unsafe { abandon(&control, record.id) };
        handles::set_error(error);
        -1
    };
    if record.child < 0 {
        return failed(&Error::System("clone", Errno::from_raw_os_error(-record.child)));
    }
    if !control.is_announced(record.id) {
        // SAFETY: the child has ended or has another mm, so no process runs in the segment.
        unsafe { abandon(&control, record.id) };
        return record.child;
    }
    let task = watcher::Task {
        space: record.space.key(),
        control,
        id: record.id,
        pid: record.child as u32,
        domain: std::process::id(),
    };
    let added = Watcher::get()
        .and_then(|watcher| watcher.add(task).map_err(|errno| Error::System("pidfd_open", errno)));
    match added {
        Ok(()) => record.child,
        Err(error) => {
            handles::set_error(&error);
            -1
        }
    }
}

/// Returns true if the caller is a child of `pvas_fork` that has not yet become a task or an
/// ordinary process.
pub fn is_child() -> bool {
    !PENDING.get().is_null()
}

/// Restores the signal mask in the child, before it returns from `pvas_fork`.
///
/// # Safety
/// `pvas_fork` calls this with the record that `prepare` made.
unsafe extern "C" fn as_child(record: *const Record) {
    // SAFETY: `prepare` made the record, and the parent keeps it until this child has left or
    // ended.
    child::sigprocmask(libc::SIG_SETMASK, unsafe { &(*record).sigmask });
}

/// Serves the child in the parent, until the child has become a task or an ordinary process, or has
/// ended. While the child runs, it owns the thread area.
///
/// # Safety
/// `pvas_fork` calls this with its record, in which it has stored the child's PID.
unsafe extern "C" fn attend(record: *mut Record) {
    loop {
        // SAFETY: `prepare` made the record, and the parent frees it only in `finish`. The child
        // writes only `request`, before it changes `state`.
        let (state, child) = unsafe { ((*record).state(), (*record).child as u32) };
        match child::wait_while(state, RUNS, || child::lives(child)) {
            // SAFETY: the child stored its request before it set ASKS, and it waits until `state`
            // changes.
            ASKS => unsafe { serve(record) },
            _ => return,
        }
    }
}

/// Loads the program that the child requests, in the parent. The child waits, so the parent owns
/// the thread area. If the child loaded the program itself, a SIGKILL could leave the parent's
/// malloc locked.
///
/// # Safety
/// `attend` calls this with `pvas_fork`'s record. Its request has the pointers that the child
/// passed to `pvas_execve`.
unsafe fn serve(record: *mut Record) {
    // SAFETY: `prepare` made the record. Meanwhile the child only waits for `state`.
    let record = unsafe { &mut *record };
    // SAFETY: the request has the pointers that the child passed to `pvas_execve`, whose contract
    // makes them valid.
    let loaded = unsafe { load(record) };
    record.task = loaded.unwrap_or_else(|error| {
        handles::set_error(&error);
        ptr::null_mut()
    });
    let state = record.state();
    // The exchange fails if the child was killed and the kernel has cleared the word.
    let _ = state.compare_exchange(ASKS, RUNS, Ordering::AcqRel, Ordering::Relaxed);
    let _ = futex::wake(state, futex::Flags::empty(), 1);
}

/// # Safety
/// As for [`serve`].
unsafe fn load(record: &mut Record) -> Result<*mut Task, Error> {
    // SAFETY: by this function's contract the request has the pointers of `pvas_execve`, which are
    // null or valid C strings and lists.
    let (path, arguments, environment) = unsafe {
        let request = record.request;
        (
            handles::path(request.path)?,
            handles::strings(request.argv),
            handles::strings(request.envp),
        )
    };
    // A relative path is relative to the child's directory, which may differ from the parent's.
    let mut found = path.to_path_buf();
    if path.is_relative() && !path.as_os_str().is_empty() {
        let directory = std::fs::read_link(format!("/proc/{}/cwd", record.child));
        if let Ok(directory) = directory {
            found = directory.join(path);
        }
    }
    let program = Program::open(&found, arguments)?;
    let name = comm(path);
    let length = name.as_bytes().len().min(15);
    record.comm = [0; 16];
    record.comm[..length].copy_from_slice(&name.as_bytes()[..length]);
    let child = rustix::process::Pid::from_raw(record.child);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack).current;
    let limit = child.map_or(limit, |pid| stack_limit_of(pid).unwrap_or(limit));
    let control = record.space.control();
    let size = record.space.layout().segment_size();
    let (id, mask) = (record.id, record.request.sigmask);
    let stack = Some(limit.unwrap_or(u64::MAX));
    // SAFETY: `prepare` took the slot. If an earlier attempt failed, `clear_unstarted` emptied the
    // segment.
    let task = unsafe { load_into(&control, id, &program, &environment, size, stack, mask) };
    task.map_err(|error| {
        // SAFETY: the child has not entered the segment, and no other process runs in it.
        unsafe { owner::clear_unstarted(control, id) };
        error.into()
    })
}

/// Returns the child's soft stack limit, which may differ from the parent's. The inner `None` means
/// unlimited.
fn stack_limit_of(pid: rustix::process::Pid) -> Option<Option<u64>> {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes two 64-bit words to `limit`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            pid.as_raw_nonzero().get(),
            libc::RLIMIT_STACK,
            0,
            (&raw mut limit).cast::<u64>(),
        )
    };
    (result == 0).then_some((limit[0] != u64::MAX).then_some(limit[0]))
}

/// Runs a program in the segment that `pvas_fork` reserved, in the child of `pvas_fork`. Returns
/// only on an error: `Some`, or `None` if the parent has already recorded the error.
///
/// # Safety
/// The pointers of `request` are the arguments of `pvas_execve` and satisfy its contract.
pub unsafe fn execve(mut request: Request) -> Option<Error> {
    let record = PENDING.get();
    // SAFETY: PENDING is null or the record of the fork whose child uses this thread's area. Only
    // that child can read it, and the parent keeps the record until the child has left.
    let Some(shared) = (unsafe { record.as_ref() }) else { return Some(Error::NotForked) };
    if std::process::id() == shared.parent {
        return Some(Error::NotForked);
    }
    request.sigmask = child::sigprocmask(libc::SIG_BLOCK, &0);
    // SAFETY: the parent reads the request only after it has seen ASKS, which is stored below.
    unsafe { (*record).request = request };
    shared.state().store(ASKS, Ordering::Release);
    let _ = futex::wake(shared.state(), futex::Flags::empty(), 1);
    let parent_lives = || {
        let parent = rustix::process::getppid();
        parent.is_some_and(|pid| pid.as_raw_nonzero().get() as u32 == shared.parent)
    };
    if child::wait_while(shared.state(), ASKS, parent_lives) == ASKS {
        return Some(Error::NoOwner);
    }
    // SAFETY: the parent wrote both fields before it changed `state`, and writes them no more.
    let (task, comm) = unsafe { ((*record).task, (*record).comm) };
    if task.is_null() {
        return None;
    }
    // From here on no value on this stack may need a drop, because the parent reuses the stack
    // soon.
    let control = shared.space.control();
    let _ = child::close_on_exec();
    let _ = child::reset_signals(None);
    // SAFETY: the parent loaded `task` for this slot, and this child was cloned with the slot's
    // `starting`.
    unsafe { child::enter(control, shared.id, task, owner::gate(control), &comm) }
}
