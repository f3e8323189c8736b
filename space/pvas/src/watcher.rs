//! The watcher: one thread in each process that owns spaces. It detects tasks that end or leave,
//! and frees their memory and IDs.
//!
//! The thread has a private descriptor table, so the pidfds of thousands of tasks appear neither in
//! the owner's table nor in any child's.

use std::collections::HashMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use control::Control;
use nagaya_gate::abi::slot_state;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sync::wait::Backoff;

use crate::error::Error;
use crate::owner;

/// A task to watch.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// Key of its space.
    pub space: u64,
    /// Control area of its space.
    pub control: Control,
    /// Its ID in the space.
    pub id: u32,
    /// Its PID.
    pub pid: u32,
    /// A process that stays in the mm in which the task started.
    pub domain: u32,
}

/// A request from the owner to the watcher.
#[derive(Debug)]
enum Request {
    /// Watch the new task in this slot.
    Add { task: Task, answer: Arc<Answer> },
    /// Reclaim the tasks that have ended, now.
    Settle { space: u64, answer: Arc<Answer> },
    /// Kill all tasks of the space, and answer when their memory is free.
    Destroy { space: u64, answer: Arc<Answer> },
}

/// The answer to a request, for which the requester waits.
#[derive(Debug, Default)]
struct Answer {
    result: Mutex<Option<Result<(), Errno>>>,
    ready: Condvar,
}

impl Answer {
    fn give(&self, result: Result<(), Errno>) {
        *self.result.lock().expect("no panic while held") = Some(result);
        self.ready.notify_all();
    }

    fn wait(&self) -> Result<(), Errno> {
        let mut result = self.result.lock().expect("no panic while held");
        loop {
            match result.take() {
                Some(result) => return result,
                None => result = self.ready.wait(result).expect("no panic while held"),
            }
        }
    }
}

/// A handle to the process's watcher.
#[derive(Debug)]
pub struct Watcher {
    requests: Mutex<Vec<Request>>,
    tid: AtomicU32,
    started: AtomicBool,
    /// The required call that failed when the thread started, if any.
    failed: OnceLock<(&'static str, Errno)>,
    pid: u32,
}

impl Watcher {
    /// Returns the process's watcher, and starts it at the first call. A forked child of an owner
    /// owns no spaces and has no watcher.
    pub fn get() -> Result<&'static Self, Error> {
        static WATCHER: OnceLock<Watcher> = OnceLock::new();
        let watcher = WATCHER.get_or_init(|| Self {
            requests: Mutex::new(Vec::new()),
            tid: AtomicU32::new(0),
            started: AtomicBool::new(false),
            failed: OnceLock::new(),
            pid: std::process::id(),
        });
        if watcher.pid != std::process::id() {
            return Err(Error::NotOwner);
        }
        if !watcher.started.swap(true, Ordering::AcqRel) {
            watcher.start()?;
        }
        let mut backoff = Backoff::default();
        while watcher.tid.load(Ordering::Acquire) == 0 {
            match watcher.failed.get() {
                None => backoff.pause(),
                Some(&(call, errno)) => return Err(Error::System(call, errno)),
            }
        }
        Ok(watcher)
    }

    fn start(&'static self) -> Result<(), Error> {
        // The thread inherits a full signal mask, so it takes none of the program's signals.
        // SIGURG, which it reads from a signalfd, stays pending until then.
        let mut before = 0u64;
        let all = u64::MAX;
        // SAFETY: both pointers are null or to u64 variables of this call, and the kernel's sigset
        // has eight bytes.
        let mask = |set: *const u64, old: *mut u64| unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, set, old, 8)
        };
        mask(&raw const all, &raw mut before);
        let thread =
            std::thread::Builder::new().name("pvas-watcher".into()).spawn(move || match Loop::new(
                self,
            ) {
                Ok(state) => state.run(),
                Err(failure) => self.failed.set(failure).expect("set by this thread only"),
            });
        mask(&raw const before, std::ptr::null_mut());
        thread.map(drop).map_err(|e| {
            self.started.store(false, Ordering::Release);
            Error::System("thread", Errno::from_io_error(&e).unwrap_or(Errno::AGAIN))
        })
    }

    /// Returns the TID, to which the gate sends SIGURG.
    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Acquire)
    }

    fn send(&self, request: Request) {
        self.requests.lock().expect("no panic while held").push(request);
        self.wake();
    }

    fn wake(&self) {
        // SAFETY: tgkill touches no memory. The thread has SIGURG blocked and reads it from its
        // signalfd.
        unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.tid(), libc::SIGURG) };
    }

    /// Watches a new task. After the return the watcher will notice its end in any case.
    ///
    /// # Errors
    /// EMFILE if the limit of open files is too low for the number of tasks.
    pub fn add(&self, task: Task) -> Result<(), Errno> {
        let answer = Arc::<Answer>::default();
        self.send(Request::Add { task, answer: answer.clone() });
        answer.wait()
    }

    /// Waits until the ended tasks of a space are reclaimed. The owner may have waited for a task
    /// before the watcher noticed its end.
    pub fn settle(&self, space: u64) {
        let answer = Arc::<Answer>::default();
        self.send(Request::Settle { space, answer: answer.clone() });
        let _ = answer.wait();
    }

    /// Kills the tasks of a space, and returns when all their memory is free.
    pub fn destroy(&self, space: u64) {
        let answer = Arc::<Answer>::default();
        self.send(Request::Destroy { space, answer: answer.clone() });
        let _ = answer.wait();
    }
}

/// A watched task.
struct Watched {
    task: Task,
    pidfd: OwnedFd,
}

/// State of the thread.
struct Loop {
    watcher: &'static Watcher,
    epoll: OwnedFd,
    signals: OwnedFd,
    tasks: HashMap<u64, Watched>,
    /// Ended tasks that another task may still hold.
    ended: Vec<Task>,
    next: u64,
    destroying: HashMap<u64, Arc<Answer>>,
    /// Path of the owner's program, to recognise tasks that have left.
    own_exe: PathBuf,
}

/// Event data of the signal descriptor.
const SIGNALS: u64 = 0;
/// Poll interval for leaving tasks, and for ended tasks that are held. Both conditions usually end
/// sooner.
const POLL: Duration = Duration::from_millis(1);

impl Loop {
    /// Sets up the calling thread as the watcher. The error has the name of the failed call.
    fn new(watcher: &'static Watcher) -> Result<Self, (&'static str, Errno)> {
        let last = |call| {
            let error = std::io::Error::last_os_error();
            (call, Errno::from_io_error(&error).unwrap_or(Errno::NOSYS))
        };
        // CLOSE_RANGE_UNSHARE (Linux 5.9) gives the thread a private, empty descriptor table.
        // SAFETY: the call has no arguments in memory and empties only this thread's descriptor
        // table.
        let result = unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 2) };
        if result < 0 {
            return Err(last("close_range"));
        }
        // A seccomp filter that forbids pidfd_open is detected here, before a program runs.
        pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
            .map_err(|e| ("pidfd_open", e))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| ("epoll", e))?;
        let set = 1u64 << (libc::SIGURG - 1);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: `set` is a u64, and the kernel's sigset has eight bytes.
        let fd = unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const set, 8, flags) };
        if fd < 0 {
            return Err(last("signalfd"));
        }
        // SAFETY: signalfd4 returned this new descriptor, so it has no other owner.
        let signals = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        epoll::add(&epoll, &signals, epoll::EventData::new_u64(SIGNALS), epoll::EventFlags::IN)
            .map_err(|e| ("epoll", e))?;
        let own_exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        watcher.tid.store(tid as u32, Ordering::Release);
        Ok(Self {
            watcher,
            epoll,
            signals,
            tasks: HashMap::new(),
            ended: Vec::new(),
            next: SIGNALS + 1,
            destroying: HashMap::new(),
            own_exe,
        })
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let leaving = self.tasks.values().any(Watched::is_leaving);
            let timeout = (leaving || !self.ended.is_empty())
                .then_some(rustix::event::Timespec { tv_sec: 0, tv_nsec: POLL.as_nanos() as i64 });
            events.clear();
            let waited = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            );
            if waited.is_err() {
                continue; // EINTR: these descriptors cause no other error
            }
            let ended: Vec<u64> = events.iter().map(|e| e.data.u64()).collect();
            for key in ended {
                match key {
                    SIGNALS => self.handle_requests(),
                    task => self.reclaim(task),
                }
            }
            if leaving {
                self.look_for_left();
            }
            self.reclaim_ended();
            self.finish_destroys();
        }
    }

    fn handle_requests(&mut self) {
        let mut sink = [0; 1024];
        while rustix::io::read(&self.signals, &mut sink).is_ok_and(|n| n > 0) {}
        for watched in self.tasks.values() {
            crate::regions::remove_left(watched.task.control);
        }
        let requests = std::mem::take(&mut *self.watcher.requests.lock().expect("never panics"));
        for request in requests {
            match request {
                Request::Add { task, answer } => answer.give(self.add(task)),
                Request::Settle { space, answer } => {
                    let ended = |(_, t): &(&u64, &Watched)| t.task.space == space && t.has_ended();
                    let ended: Vec<u64> =
                        self.tasks.iter().filter(ended).map(|(&key, _)| key).collect();
                    for key in ended {
                        self.reclaim(key);
                    }
                    answer.give(Ok(()));
                }
                Request::Destroy { space, answer } => {
                    for watched in self.tasks.values().filter(|t| t.task.space == space) {
                        let _ = pidfd_send_signal(&watched.pidfd, Signal::KILL);
                    }
                    self.destroying.insert(space, answer);
                }
            }
        }
    }

    fn add(&mut self, task: Task) -> Result<(), Errno> {
        let key = self.next;
        self.next += 1;
        let target = Pid::from_raw(task.pid as i32).ok_or(Errno::SRCH)?;
        let watched = pidfd_open(target, PidfdFlags::empty()).and_then(|pidfd| {
            let data = epoll::EventData::new_u64(key);
            epoll::add(&self.epoll, &pidfd, data, epoll::EventFlags::IN).map(|()| pidfd)
        });
        let pidfd = match watched {
            Ok(pidfd) => pidfd,
            // The task has already ended and been reaped, as happens if SIGCHLD is ignored.
            Err(Errno::SRCH) => {
                self.end(task);
                return Ok(());
            }
            Err(errno) => {
                // SAFETY: the requester has not returned the PID yet, so it still names our child.
                // After the reap no thread runs in its segment.
                unsafe {
                    libc::kill(task.pid as i32, libc::SIGKILL);
                    crate::child::reap(task.pid);
                }
                self.end(task);
                return Err(errno);
            }
        };
        self.tasks.insert(key, Watched { task, pidfd });
        Ok(())
    }

    fn reclaim(&mut self, key: u64) {
        if let Some(Watched { task, pidfd }) = self.tasks.remove(&key) {
            let _ = epoll::delete(&self.epoll, &pidfd);
            self.end(task);
        }
    }

    /// Announces the end of a task whose process has ended or has another mm. No thread of it is
    /// left in the segment.
    fn end(&mut self, task: Task) {
        owner::announce_end(task.control, task.id);
        // In another domain the keeper does it.
        if task.control.domain_of(task.id) == 0 {
            // SAFETY: the task's last thread has left the mm, and `reclaim_ended` has not unmapped
            // its segment yet.
            unsafe { crate::outside::remove(task.control, task.id) };
        }
        self.ended.push(task);
        self.reclaim_ended();
    }

    /// Frees the memory of ended tasks that no task holds.
    fn reclaim_ended(&mut self) {
        self.ended.retain(|&Task { control, id, .. }| {
            let held = control::hold::is_held(control, id);
            if !held {
                // SAFETY: `end` got this task after its last thread had left the segment, and no
                // task holds it.
                unsafe { owner::reclaim(control, id) };
            }
            held
        });
    }

    fn look_for_left(&mut self) {
        let own_exe = &self.own_exe;
        let left = |t: &Watched| t.is_leaving() && t.has_left(own_exe);
        let left: Vec<u64> =
            self.tasks.iter().filter(|(_, t)| left(t)).map(|(&key, _)| key).collect();
        for key in left {
            self.reclaim(key);
        }
    }

    fn finish_destroys(&mut self) {
        let (tasks, ended) = (&self.tasks, &self.ended);
        self.destroying.retain(|space, answer| {
            let held = ended.iter().any(|t| t.space == *space);
            let alive = held || tasks.values().any(|t| t.task.space == *space);
            if !alive {
                answer.give(Ok(()));
            }
            alive
        });
    }
}

impl Watched {
    fn has_ended(&self) -> bool {
        crate::child::has_ended(&self.pidfd)
    }

    fn is_leaving(&self) -> bool {
        self.task.control.slot(self.task.id).state.load(Ordering::Acquire) == slot_state::LEAVING
    }

    /// Returns true if execve has given the process another mm.
    fn has_left(&self, own_exe: &std::path::Path) -> bool {
        const KCMP_VM: i32 = 1;
        // SAFETY: kcmp has no arguments in memory.
        let compared = unsafe {
            libc::syscall(libc::SYS_kcmp, self.task.domain, self.task.pid, KCMP_VM, 0, 0)
        };
        if compared >= 0 {
            return compared != 0;
        }
        // kcmp is not permitted. A different executable also shows another mm.
        match std::fs::read_link(format!("/proc/{}/exe", self.task.pid)) {
            Ok(exe) => exe != own_exe,
            Err(_) => false,
        }
    }
}
