//! Where those sleep who drive an agent, its thread and a task: for each an epoll(7) set of the
//! descriptors that wake it.
//!
//! The thread is woken by faults and the bell, and by the network as long as no task serves
//! that. The task is woken by the network, and by who answers it. While it sleeps a signal's
//! handler may run, which nobody is told of: so a timer wakes the thread now and then meanwhile.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::sigset_t;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::desk::Bell;
use crate::error::DsmError;

/// How long what other nodes say may wait for a handler.
const HANDLER_MAX: Duration = Duration::from_millis(20);

/// Both sets.
pub struct Watch {
    thread: OwnedFd,
    task: OwnedFd,
    /// Wakes the task.
    answered: Bell,
    /// Wakes the thread, once.
    timer: OwnedFd,
}

impl Watch {
    /// Of a bell and a userfaultfd; and of a network, once one listens to it.
    pub fn new(
        bell: &Bell,
        faults: BorrowedFd<'_>,
        network: Option<BorrowedFd<'_>>,
    ) -> Result<Self, DsmError> {
        let answered = Bell::new()?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
            .map_err(|why| DsmError::System(format!("cannot make a timer: {why}")))?;
        // Every ring wakes the sleeper, and nobody need read it.
        let rings = EventFlags::IN | EventFlags::ET;
        let sets = || {
            let timer = (timer.as_fd(), rings);
            let thread = set(&[(bell.as_fd(), rings), (faults, EventFlags::IN), timer])?;
            let task = set(&[(answered.as_fd(), rings)])?;
            if let Some(network) = network {
                epoll::add(&thread, network, EventData::new_u64(0), EventFlags::empty())?;
                epoll::add(&task, network, EventData::new_u64(0), EventFlags::IN)?;
            }
            io::Result::Ok((thread, task))
        };
        let (thread, task) =
            sets().map_err(|why| DsmError::System(format!("cannot watch descriptors: {why}")))?;
        Ok(Self { thread, task, answered, timer })
    }

    /// Whether the network wakes the agent's thread.
    pub fn listen(&self, network: BorrowedFd<'_>, listens: bool) {
        let flags = if listens { EventFlags::IN } else { EventFlags::empty() };
        epoll::modify(&self.thread, network, EventData::new_u64(0), flags)
            .expect("it is in the set");
    }

    /// Wakes the task.
    pub fn call_task(&self) {
        self.answered.ring();
    }

    /// A task sleeps, or goes on to, and serves the network: the thread looks after it soon.
    pub fn task_sleeps(&self) {
        let it_value = Timespec::try_from(HANDLER_MAX).expect("a short time");
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
            .expect("a timer, and a time");
    }

    /// The agent's thread sleeps.
    pub fn sleep(&self, until: Option<Instant>) {
        sleep(&self.thread, until, None);
    }

    /// The task does, and takes the signals meanwhile that a mask lets through.
    pub fn sleep_as_task(&self, until: Option<Instant>, signals: &sigset_t) {
        sleep(&self.task, until, Some(signals));
    }
}

fn set(members: &[(BorrowedFd<'_>, EventFlags)]) -> io::Result<OwnedFd> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    for (member, flags) in members {
        epoll::add(&set, member, EventData::new_u64(0), *flags)?;
    }
    Ok(set)
}

/// Until something is there, it is time, or a signal has come: whatever it is, the sleeper looks
/// again.
fn sleep(set: &OwnedFd, until: Option<Instant>, signals: Option<&sigset_t>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Rounded up: a process that wakes too early would sleep again and again.
    let left = left.map_or(-1, |left| {
        i32::try_from((left + Duration::from_micros(999)).as_millis()).unwrap_or(i32::MAX)
    });
    let signals = signals.map_or(std::ptr::null(), std::ptr::from_ref);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let count = events.len() as i32;
    // SAFETY: writes at most so many events; a mask, or none.
    unsafe { libc::epoll_pwait(set.as_raw_fd(), events.as_mut_ptr(), count, left, signals) };
}
