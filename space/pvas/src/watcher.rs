//! The watcher: one thread a process that owns spaces. It hears of tasks that end or
//! leave, and gives their memory and IDs back.
//!
//! It keeps a descriptor table of its own, so that the PID descriptors of thousands of
//! tasks appear neither in the owner's table nor in that of any child.

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

use crate::error::Error;
use crate::owner;

/// A task, to be watched.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// Its space, by its key.
    pub space: u64,
    /// That space's.
    pub control: Control,
    /// Its ID there.
    pub id: u32,
    /// Its PID.
    pub pid: u32,
    /// A process that has the mm in which it became a task, and stays.
    pub domain: u32,
}

/// What the owner asks of the watcher.
#[derive(Debug)]
enum Request {
    /// Watch the new task in this slot.
    Add { task: Task, answer: Arc<Answer> },
    /// Reclaim what has ended at once.
    Settle { space: u64, answer: Arc<Answer> },
    /// Kill all tasks of the space, and answer when their memory is back.
    Destroy { space: u64, answer: Arc<Answer> },
}

/// Where a requester waits.
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
    /// The call that the thread cannot work without, if it failed.
    failed: OnceLock<(&'static str, Errno)>,
    pid: u32,
}

impl Watcher {
    /// The process's watcher, started at the first call. A forked child of an owner has
    /// none, and owns nothing.
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
        while watcher.tid.load(Ordering::Acquire) == 0 {
            match watcher.failed.get() {
                None => std::thread::yield_now(),
                Some(&(call, errno)) => return Err(Error::System(call, errno)),
            }
        }
        Ok(watcher)
    }

    fn start(&'static self) -> Result<(), Error> {
        // The thread inherits a full mask: it takes no signal of the program's, and
        // SIGURG, which it reads from a descriptor, stays pending until then.
        let mut before = 0u64;
        let all = u64::MAX;
        // SAFETY: eight-byte sets, as the kernel's are.
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

    /// TID, by which the gate calls it.
    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Acquire)
    }

    fn send(&self, request: Request) {
        self.requests.lock().expect("no panic while held").push(request);
        self.wake();
    }

    fn wake(&self) {
        // SAFETY: a signal that only its descriptor receives, to our own thread.
        unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.tid(), libc::SIGURG) };
    }

    /// Watches a new task. Returns when it is certain to be noticed, whatever becomes of it.
    /// Error: EMFILE where the limit of open files is too low for so many tasks.
    pub fn add(&self, task: Task) -> Result<(), Errno> {
        let answer = Arc::<Answer>::default();
        self.send(Request::Add { task, answer: answer.clone() });
        answer.wait()
    }

    /// Returns once the tasks of a space that have ended are reclaimed. Their parent may
    /// have waited for them before we heard of their end.
    pub fn settle(&self, space: u64) {
        let answer = Arc::<Answer>::default();
        self.send(Request::Settle { space, answer: answer.clone() });
        let _ = answer.wait();
    }

    /// Kills the tasks of a space and returns when all their memory is back.
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
    /// Those that have ended, whose memory somebody still works in.
    ended: Vec<Task>,
    next: u64,
    destroying: HashMap<u64, Arc<Answer>>,
    /// Path of the owner's program, to tell who has left.
    own_exe: PathBuf,
}

/// Event data of the signal descriptor.
const SIGNALS: u64 = 0;
/// How often to look whether a leaving task has left, and whether one that has ended is still
/// held; both take less than this as a rule.
const POLL: Duration = Duration::from_millis(1);

impl Loop {
    /// Fails with the name of the call that failed.
    fn new(watcher: &'static Watcher) -> Result<Self, (&'static str, Errno)> {
        let last = |call| {
            let error = std::io::Error::last_os_error();
            (call, Errno::from_io_error(&error).unwrap_or(Errno::NOSYS))
        };
        // A table of our own, empty (Linux 5.9).
        // SAFETY: no arguments in memory. Only this thread's table is emptied.
        let result = unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 2) };
        if result < 0 {
            return Err(last("close_range"));
        }
        // Where it is forbidden, that shows before a program runs and not after.
        pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
            .map_err(|e| ("pidfd_open", e))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| ("epoll", e))?;
        let set = 1u64 << (libc::SIGURG - 1);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: an eight-byte set.
        let fd = unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const set, 8, flags) };
        if fd < 0 {
            return Err(last("signalfd"));
        }
        // SAFETY: a new descriptor.
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
                continue; // EINTR: no other error can come of these descriptors
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
        let pidfd = match pidfd_open(target, PidfdFlags::empty()) {
            Ok(fd) => fd,
            // Ended and reaped already, as where SIGCHLD is ignored.
            Err(Errno::SRCH) => {
                self.end(task);
                return Ok(());
            }
            Err(errno) => {
                // SAFETY: the requester has not returned the PID to anybody, so it is
                // our child's; once it is reaped nobody runs in its segment.
                unsafe {
                    libc::kill(task.pid as i32, libc::SIGKILL);
                    crate::child::reap(task.pid);
                }
                self.end(task);
                return Err(errno);
            }
        };
        epoll::add(&self.epoll, &pidfd, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
        self.tasks.insert(key, Watched { task, pidfd });
        Ok(())
    }

    fn reclaim(&mut self, key: u64) {
        if let Some(Watched { task, pidfd }) = self.tasks.remove(&key) {
            let _ = epoll::delete(&self.epoll, &pidfd);
            self.end(task);
        }
    }

    /// The process has ended, or has another mm: no thread of it is left in the segment.
    fn end(&mut self, task: Task) {
        owner::announce_end(task.control, task.id);
        self.ended.push(task);
        self.reclaim_ended();
    }

    /// Takes back the memory of those who have ended, and whom nobody holds.
    fn reclaim_ended(&mut self) {
        self.ended.retain(|&Task { control, id, .. }| {
            let held = control::hold::is_held(control, id);
            if !held {
                // SAFETY: what `end` says, and nobody holds it.
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

    /// Whether execve has given the process another mm.
    fn has_left(&self, own_exe: &std::path::Path) -> bool {
        const KCMP_VM: i32 = 1;
        // SAFETY: no arguments in memory.
        let compared = unsafe {
            libc::syscall(libc::SYS_kcmp, self.task.domain, self.task.pid, KCMP_VM, 0, 0)
        };
        if compared >= 0 {
            return compared != 0;
        }
        // Not permitted here: another program in the mm tells as well.
        match std::fs::read_link(format!("/proc/{}/exe", self.task.pid)) {
            Ok(exe) => exe != own_exe,
            Err(_) => false,
        }
    }
}
