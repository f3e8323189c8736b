//! `pvas_fork` and `pvas_execve`: the paper's two calls, in the manner of vfork.
//!
//! The child of `pvas_fork` returns from it on its parent's stack and with its parent's
//! thread area, while the parent's thread waits. When the parent goes on, the frames
//! below its caller's have been overwritten, so everything that it still needs lies in a
//! [`Record`] on the heap: `pvas_fork` itself is a few instructions that keep all state
//! there.

use std::cell::Cell;
use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nagaya_gate::abi::Task;
use nagaya_loader::Program;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::capi;
use crate::child;
use crate::error::Error;
use crate::owner;
use crate::space::{Space, abandon, comm, load_into};
use crate::watcher::{self, Watcher};

/// What outlives the child's use of our stack. The first members are read by the
/// assembly below.
#[repr(C)]
struct Record {
    /// rbx, rbp, r12 to r15, rsp, return address of pvas_fork's caller.
    registers: [u64; 8],
    /// The slot's `starting`: [`RUNS`] or [`ASKS`]; cleared by the kernel when the child ends
    /// or execs, 2 when it is a task. It outlives the record, as the child does.
    state: *const AtomicU32,
    child: i32,
    parent: u32,
    /// Top of a stack of the parent's own, for `attend`.
    stack_top: u64,
    _stack: Vec<u8>,
    space: Arc<Space>,
    id: u32,
    /// Signal mask of the parent's thread before.
    sigmask: u64,
    /// What the child asks for in `pvas_execve`, and what it gets (null: an error).
    request: Request,
    task: *mut Task,
    comm: [u8; 16],
}

impl Record {
    fn state(&self) -> &AtomicU32 {
        // SAFETY: in the control area, which the space keeps, and the record the space.
        unsafe { &*self.state }
    }
}

/// Arguments of `pvas_execve`, as C gave them.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub path: *const c_char,
    pub argv: *const *const c_char,
    pub envp: *const *const c_char,
    /// The child's signal mask.
    pub sigmask: u64,
}

/// Values of [`Record::state`] besides 0 (the child has left or ended) and 2 (it is a task):
/// the child runs, or waits for the parent to load its program.
const RUNS: u32 = 1;
const ASKS: u32 = 3;
/// Loading a program needs less.
const STACK_SIZE: usize = 512 << 10;

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
        // Until the child is a task or has gone, on a stack of our own
        "mov rsp, [rbx + 80]",
        "mov rdi, rbx",
        "call {attend}",
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
        // The child: its signals and rbx back, 0.
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
        let space = capi::space(pvd)?;
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
            // A handler of the waiting parent would run on the child's stack.
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
    child::sigprocmask(libc::SIG_SETMASK, &record.sigmask);
    let failed = |error: &Error| {
        // SAFETY: no process runs in the segment.
        unsafe { abandon(&control, record.id) };
        capi::set_error(error);
        -1
    };
    if record.child < 0 {
        return failed(&Error::System("clone", Errno::from_raw_os_error(-record.child)));
    }
    if !control.is_announced(record.id) {
        // SAFETY: as above; an ordinary process, or none.
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
            capi::set_error(&error);
            -1
        }
    }
}

/// Whether the caller is the child of a `pvas_fork` that has not been anything else yet.
pub fn is_child() -> bool {
    !PENDING.get().is_null()
}

/// In the child, before it returns from `pvas_fork`.
///
/// # Safety
/// Called by `pvas_fork` with the record that `prepare` made.
unsafe extern "C" fn as_child(record: *const Record) {
    // SAFETY: the parent keeps the record until we have left or ended.
    child::sigprocmask(libc::SIG_SETMASK, unsafe { &(*record).sigmask });
}

/// In the parent: serves its child until that is a task, has become an ordinary process, or
/// has ended. While the child runs, the thread area is the child's.
///
/// # Safety
/// Called by `pvas_fork` with its record and the child's PID in it.
unsafe extern "C" fn attend(record: *mut Record) {
    loop {
        // SAFETY: the record is ours; the child writes `request` only, and then `state`.
        let (state, child) = unsafe { ((*record).state(), (*record).child as u32) };
        match child::wait_while(state, RUNS, || child::lives(child)) {
            // SAFETY: the child's request is there, and it waits.
            ASKS => unsafe { serve(record) },
            _ => return,
        }
    }
}

/// In the parent: loads the program that the child asks for. The child waits, so the thread
/// area is ours; were it to load by itself, a SIGKILL could leave our malloc locked.
///
/// # Safety
/// Called with `pvas_fork`'s record, in whose request the child has put pointers that
/// `pvas_execve` was given.
unsafe fn serve(record: *mut Record) {
    // SAFETY: the child only waits for `state` meanwhile.
    let record = unsafe { &mut *record };
    // SAFETY: as the caller of `pvas_execve` vouched.
    let loaded = unsafe { load(record) };
    record.task = loaded.unwrap_or_else(|error| {
        capi::set_error(&error);
        ptr::null_mut()
    });
    let state = record.state();
    // Unless it has been killed, and the kernel has cleared the word.
    let _ = state.compare_exchange(ASKS, RUNS, Ordering::AcqRel, Ordering::Relaxed);
    let _ = futex::wake(state, futex::Flags::empty(), 1);
}

/// # Safety
/// As for `serve`.
unsafe fn load(record: &mut Record) -> Result<*mut Task, Error> {
    // SAFETY: as the caller vouches.
    let (path, arguments, environment) = unsafe {
        let request = record.request;
        (capi::path(request.path)?, capi::strings(request.argv), capi::strings(request.envp))
    };
    // Relative to the child's directory, which need not be ours.
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
    // SAFETY: `prepare` took the slot, and an earlier attempt was cleared.
    let task = unsafe { load_into(&control, id, &program, &environment, size, stack, mask) };
    task.map_err(|error| {
        // SAFETY: nobody runs there yet.
        unsafe { owner::clear_unstarted(control, id) };
        error.into()
    })
}

/// The child may have set another limit than ours.
fn stack_limit_of(pid: rustix::process::Pid) -> Option<Option<u64>> {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes two 64-bit words.
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

/// Runs a program in the segment of the task whose `pvas_fork` the caller is the child of.
/// Returns only on error: `Some`, or `None` if the parent has set it already.
///
/// # Safety
/// The pointers of `request` are those of `pvas_execve`.
pub unsafe fn execve(mut request: Request) -> Option<Error> {
    let record = PENDING.get();
    // SAFETY: PENDING is null or the record of the fork that runs on this thread's area; only
    // its child can see it, and the parent keeps it until then.
    let Some(shared) = (unsafe { record.as_ref() }) else { return Some(Error::NotForked) };
    if std::process::id() == shared.parent {
        return Some(Error::NotForked);
    }
    request.sigmask = child::sigprocmask(libc::SIG_BLOCK, &0);
    // SAFETY: the parent reads the request only after it sees ASKS.
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
    // SAFETY: written by the parent before it gave the word back.
    let (task, comm) = unsafe { ((*record).task, (*record).comm) };
    if task.is_null() {
        return None;
    }
    // From here on nothing may be owned on this stack: it is the parent's again soon.
    let control = shared.space.control();
    let _ = child::close_on_exec();
    let _ = child::reset_signals(None);
    // SAFETY: loaded for this slot, with whose word this child was cloned.
    unsafe { child::enter(control, shared.id, task, owner::gate(control), &comm) }
}
