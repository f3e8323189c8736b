//! How the threads that drive an agent sleep: its own thread and a task each have an epoll(7) set
//! of the descriptors that wake them.
//!
//! Faults and the doorbell wake the agent's thread, and so does the network while no task serves
//! it. The network and an answer to its request wake the task. While the task sleeps, a signal
//! handler may run for a long time, so a timer makes the agent's thread check.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::sigset_t;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::error::DsmError;
use crate::request_table::Doorbell;

/// Longest time for which a signal handler may delay messages of other nodes.
const HANDLER_MAX: Duration = Duration::from_millis(20);

/// The two sets of descriptors.
pub struct Watch {
    thread: OwnedFd,
    task: OwnedFd,
    /// Wakes the task.
    answered: Doorbell,
    /// Wakes the thread once.
    timer: OwnedFd,
}

impl Watch {
    /// Watches a doorbell and a userfaultfd, and a network after [`listen`](Self::listen).
    pub fn new(
        doorbell: &Doorbell,
        faults: BorrowedFd<'_>,
        network: Option<BorrowedFd<'_>>,
    ) -> Result<Self, DsmError> {
        let answered = Doorbell::new()?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
            .map_err(|why| DsmError::System(format!("cannot make a timer: {why}")))?;
        // Edge-triggered: each ring wakes the sleeper, and no thread has to read the counter.
        let rings = EventFlags::IN | EventFlags::ET;
        let sets = || {
            let timer = (timer.as_fd(), rings);
            let thread = set(&[(doorbell.as_fd(), rings), (faults, EventFlags::IN), timer])?;
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

    /// Selects whether the network wakes the agent's thread.
    pub fn listen(&self, network: BorrowedFd<'_>, listens: bool) {
        let flags = if listens { EventFlags::IN } else { EventFlags::empty() };
        epoll::modify(&self.thread, network, EventData::new_u64(0), flags)
            .expect("`new` has added the network to the set");
    }

    /// Wakes the task.
    pub fn wake_task(&self) {
        self.answered.ring();
    }

    /// A task that serves the network goes to sleep: the agent's thread checks soon.
    pub fn task_sleeps(&self) {
        let it_value = Timespec::try_from(HANDLER_MAX).expect("a short time");
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
            .expect("a timer and a valid time");
    }

    /// Called by the agent's thread: sleeps. Returns true if the time limit ended the sleep.
    pub fn sleep(&self, until: Option<Instant>) -> bool {
        sleep(&self.thread, until, None)
    }

    /// Called by the task: sleeps, and takes the signals that `signals` does not block meanwhile.
    /// Returns true if the time limit ended the sleep.
    pub fn sleep_as_task(&self, until: Option<Instant>, signals: &sigset_t) -> bool {
        sleep(&self.task, until, Some(signals))
    }
}

fn set(members: &[(BorrowedFd<'_>, EventFlags)]) -> io::Result<OwnedFd> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    for (member, flags) in members {
        epoll::add(&set, member, EventData::new_u64(0), *flags)?;
    }
    Ok(set)
}

/// Sleeps until a descriptor is ready, the time has come, or a signal has arrived. The caller
/// checks for events in all cases. Returns true if the time has come.
fn sleep(set: &OwnedFd, until: Option<Instant>, signals: Option<&sigset_t>) -> bool {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // Rounded up: a sleeper that woke too early would sleep again and again.
    let left = left.map_or(-1, |left| {
        i32::try_from((left + Duration::from_micros(999)).as_millis()).unwrap_or(i32::MAX)
    });
    let signals = signals.map_or(std::ptr::null(), std::ptr::from_ref);
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let count = events.len() as i32;
    // SAFETY: `events` has room for `count` events. `signals` is null or borrowed for this call.
    unsafe { libc::epoll_pwait(set.as_raw_fd(), events.as_mut_ptr(), count, left, signals) == 0 }
}
