//! How tasks of `nagaya run` find each other without another launcher. All connect to a socket of
//! `nagaya run`, which forwards the data that they exchange. The socket has a random abstract name,
//! so no file remains, no process can guess it, and other users are refused.
//!
//! A task stays connected until it has left its job. If its connection ends before, the task is
//! lost, and the job with it: the others are killed. Otherwise they would wait forever, or continue
//! in the address space of an agent that has ended.

use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::launcher;
use crate::secret::random;
use crate::wireup::error::{Late, WireupError};

/// The socket, this task's rank, and the number of tasks.
pub const SOCKET: &str = "NAGAYA_JOB_SOCKET";
/// See [`SOCKET`].
pub const RANK: &str = "NAGAYA_JOB_RANK";
/// See [`SOCKET`].
pub const SIZE: &str = "NAGAYA_JOB_SIZE";
/// The number of tasks of this `nagaya run`: those in one address space.
pub const LOCAL_SIZE: &str = "NAGAYA_JOB_LOCAL_SIZE";
/// The [identity](launcher::identity) of `nagaya run` itself. A task with another identity was
/// started by a launcher within.
pub const OUTER: &str = "NAGAYA_JOB_OUTER";

/// Maximum size of a frame in bytes.
const FRAME_BYTES_MAX: usize = 1 << 30;
/// Time limit for a task to finish a frame that it has begun.
const SAY_MAX: Duration = Duration::from_secs(10);
/// Time from the loss of a task to the end of the others: tasks that wait for it see it first.
const LOST_FIRST: Duration = Duration::from_millis(200);

/// A message of a task.
#[derive(Debug, Serialize, Deserialize)]
enum Says {
    /// The task has connected, with this rank.
    Here(u32),
    /// The contribution of the task to an exchange.
    Give(Vec<u8>),
    /// The task has contributed and waits for long: which tasks are missing?
    Who,
    /// The task has left.
    Bye,
    /// These tasks have ended, says the `nagaya run` that started them. Some may not have
    /// connected.
    Ended(Range<u32>),
}

/// Returns true if `nagaya run` has started this process, and no launcher within.
pub fn is_guest() -> bool {
    let outer = std::env::var(OUTER).unwrap_or_default();
    std::env::var_os(SOCKET).is_some() && outer == launcher::identity()
}

/// The contributions of all tasks, by rank.
type All = Vec<Vec<u8>>;

/// A message to a task.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// The contributions of all tasks.
    All(All),
    /// The ranks that have not contributed yet.
    Missing(Vec<u32>),
    /// This task has ended before it has connected.
    Ended(u32),
}

/// The connection of a task.
pub struct Guest {
    stream: UnixStream,
    rank: u32,
    size: u32,
}

impl Guest {
    /// Connects as the environment says, or returns `None` if it says nothing.
    pub fn new() -> Result<Option<Self>, WireupError> {
        let path = std::env::var_os(SOCKET).filter(|_| is_guest());
        let Some(path) = path else { return Ok(None) };
        let number = |name: &str| {
            let text = std::env::var(name).unwrap_or_default();
            text.parse::<u32>().map_err(|_| {
                WireupError::Run(format!("{name}={text}: nagaya run sets it; leave it as it is"))
            })
        };
        let (rank, size) = (number(RANK)?, number(SIZE)?);
        let name = path.to_string_lossy();
        let stream = address(&name).and_then(|at| UnixStream::connect_addr(&at));
        let stream = stream.map_err(|why| lost(&why))?;
        let mut guest = Self { stream, rank, size };
        guest.say(&Says::Here(rank))?;
        Ok(Some(guest))
    }

    /// Returns the rank of this task.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of tasks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Contributes these bytes, and returns those of all tasks, by rank. Waits up to `limit`.
    pub fn exchange(&mut self, bytes: &[u8], limit: Option<Duration>) -> Result<All, WireupError> {
        self.say(&Says::Give(bytes.to_vec()))?;
        if let Some(limit) = limit
            && !self.is_told_within(limit)
        {
            self.say(&Says::Who)?;
        }
        let all = match receive(&mut self.stream).map_err(|why| lost(&why))? {
            Told::All(all) => all,
            Told::Missing(tasks) => return Err(WireupError::Late(Late::Ranks(tasks))),
            Told::Ended(task) => return Err(WireupError::NeverCame(task)),
        };
        match all.len() == self.size as usize {
            true => Ok(all),
            false => Err(WireupError::Run("the tasks do not agree on how many they are".into())),
        }
    }

    fn is_told_within(&self, limit: Duration) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a setting's seconds");
            match poll(&mut fds, Some(&left)) {
                Ok(told) => return told > 0,
                // A signal interrupted the wait: continues for the remaining time.
                Err(_) => continue,
            }
        }
    }

    /// Leaves the job.
    pub fn bye(&mut self) {
        let _ = self.say(&Says::Bye);
    }

    fn say(&mut self, says: &Says) -> Result<(), WireupError> {
        send(&mut self.stream, says).map_err(|why| lost(&why))
    }
}

fn lost(why: &io::Error) -> WireupError {
    WireupError::Run(format!("the `nagaya run` that started this task does not answer: {why}"))
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

fn send(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    bytes = postcard::to_extend(value, bytes).expect("into memory");
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&bytes)
}

fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Reads a message of a task and one of `nagaya run` (see `fuzz`).
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let _ = postcard::from_bytes::<Says>(bytes);
    let _ = postcard::from_bytes::<Told>(bytes);
}

/// The server of a job's tasks, in a thread that lives as long as the process.
pub struct Host {
    name: String,
}

/// A task that has connected.
struct Task {
    stream: UnixStream,
    rank: Option<u32>,
    given: Option<Vec<u8>>,
    /// It wants to know which tasks are missing.
    asks: bool,
    /// A pidfd, which names the process even if its PID is used again.
    process: Option<OwnedFd>,
    has_left: bool,
}

impl Host {
    /// Serves `size` tasks. If one is lost while others have not connected, `ends` ends these,
    /// since only the caller knows them.
    pub fn new(size: u32, ends: impl Fn() + Send + 'static) -> io::Result<Self> {
        let name = format!("nagaya-job-{:032x}", u128::from_ne_bytes(random()));
        let listener = UnixListener::bind_addr(&address(&name)?)?;
        std::thread::Builder::new()
            .name("nagaya-meet".into())
            .spawn(move || serve(&listener, size as usize, &ends))?;
        Ok(Self { name })
    }

    /// Returns the environment variables by which a task finds the host of this name. `local_size`
    /// tasks share its address space.
    pub fn environment(
        name: &str,
        rank: u32,
        size: u32,
        local_size: u32,
    ) -> [(&'static str, String); 5] {
        [
            (SOCKET, name.to_owned()),
            (RANK, rank.to_string()),
            (SIZE, size.to_string()),
            (LOCAL_SIZE, local_size.to_string()),
            (OUTER, launcher::identity()),
        ]
    }

    /// Returns the name of its socket.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells the host of this name that these tasks have ended. If one has not connected, the
    /// others wait for it no longer. Never blocks.
    pub fn tell_ended(name: &str, tasks: Range<u32>) {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let tell = || -> io::Result<()> {
            let at = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
            let family = AddressFamily::UNIX;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            rustix::net::connect(&socket, &at)?;
            send(&mut socket.into(), &Says::Ended(tasks))
        };
        // If the host has ended, so has the job. If it has no place for a caller, the tasks wait
        // for their limit.
        let _ = tell();
    }
}

fn serve(listener: &UnixListener, size: usize, ends: &impl Fn()) {
    let mut tasks: Vec<Task> = Vec::new();
    let mut states = vec![State::Expected; size];
    loop {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        fds.extend(tasks.iter().map(|task| PollFd::new(&task.stream, PollFlags::IN)));
        // Interrupted or not, we look.
        let _ = poll(&mut fds, None);
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut is_lost = false;
        let mut at = 0;
        for ready in &ready[1..] {
            match ready.then(|| hear(&mut tasks[at], &mut states)) {
                None | Some(Ok(())) => at += 1,
                Some(Err(_)) => {
                    let gone = tasks.remove(at);
                    is_lost |= !gone.has_left && gone.rank.is_some();
                }
            }
        }
        if is_lost {
            end(&mut tasks);
            if states.contains(&State::Expected) {
                ends();
            }
        }
        if ready[0]
            && let Ok((stream, _)) = listener.accept()
        {
            tasks.extend(Task::new(stream));
        }
        hand_on(&mut tasks, size);
        if let Some(task) = states.iter().position(|&state| state == State::Ended) {
            tell_of_end(&mut tasks, task as u32);
        }
    }
}

/// A task as the host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It may still connect.
    Expected,
    Connected,
    /// It has ended without having connected.
    Ended,
}

impl Task {
    fn new(stream: UnixStream) -> Option<Self> {
        stream.set_read_timeout(Some(SAY_MAX)).ok()?;
        stream.set_write_timeout(Some(SAY_MAX)).ok()?;
        let caller = rustix::net::sockopt::socket_peercred(stream.as_fd()).ok()?;
        if caller.uid != rustix::process::geteuid() {
            return None;
        }
        let process = pidfd_open(caller.pid, PidfdFlags::empty()).ok();
        Some(Self { stream, rank: None, given: None, asks: false, process, has_left: false })
    }
}

/// Handles a message.
fn hear(task: &mut Task, states: &mut [State]) -> io::Result<()> {
    match receive(&mut task.stream)? {
        Says::Here(rank) => {
            task.rank = Some(rank);
            if let Some(state) = states.get_mut(rank as usize) {
                *state = State::Connected;
            }
        }
        Says::Give(bytes) => task.given = Some(bytes),
        Says::Who => task.asks = true,
        Says::Bye => task.has_left = true,
        Says::Ended(ranks) => {
            let ranks = ranks.start as usize..ranks.end as usize;
            for state in states.get_mut(ranks).into_iter().flatten() {
                if *state == State::Expected {
                    *state = State::Ended;
                }
            }
        }
    }
    Ok(())
}

/// Tells the first task that waits of one that has ended. It ends the job.
fn tell_of_end(tasks: &mut [Task], ended: u32) {
    let waits = |task: &&mut Task| task.rank.is_some() && task.given.is_some();
    let Some(first) = tasks.iter_mut().filter(waits).min_by_key(|task| task.rank) else { return };
    first.given = None;
    let _ = send(&mut first.stream, &Told::Ended(ended));
}

/// Sends all contributions to all tasks when they are complete.
fn hand_on(tasks: &mut [Task], size: usize) {
    let mut all: Vec<Option<Vec<u8>>> = vec![None; size];
    for task in tasks.iter() {
        if let (Some(rank), Some(given)) = (task.rank, &task.given)
            && let Some(place) = all.get_mut(rank as usize)
        {
            *place = Some(given.clone());
        }
    }
    let missing = |all: &[Option<Vec<u8>>]| {
        let missing = all.iter().enumerate().filter(|(_, given)| given.is_none());
        Told::Missing(missing.map(|(rank, _)| rank as u32).collect())
    };
    for task in tasks.iter_mut() {
        // A task without a contribution has received all of them meanwhile.
        let is_late = std::mem::take(&mut task.asks) && all.contains(&None);
        if is_late && task.given.take().is_some() {
            let _ = send(&mut task.stream, &missing(&all));
        }
    }
    let Some(all): Option<All> = all.into_iter().collect() else { return };
    let told = Told::All(all);
    for task in tasks {
        task.given = None;
        let _ = send(&mut task.stream, &told);
    }
}

/// Ends the job: a task is lost.
fn end(tasks: &mut Vec<Task>) {
    std::thread::sleep(LOST_FIRST);
    for task in tasks.drain(..).filter(|task| !task.has_left) {
        if let Some(process) = task.process {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn connect(host: &Host, rank: u32, size: u32) -> Guest {
        let stream = UnixStream::connect_addr(&address(host.name()).unwrap()).unwrap();
        let mut guest = Guest { stream, rank, size };
        guest.say(&Says::Here(rank)).unwrap();
        guest
    }

    #[test]
    fn a_wait_that_fails_names_the_missing_peer() {
        let host = Host::new(4, || {}).expect("a socket");
        let (mut here, mut silent) = (connect(&host, 2, 4), connect(&host, 3, 4));
        let error = here.exchange(&[1], Some(Duration::from_millis(50))).expect_err("others lack");
        // The host kills the process of a task that disconnects without a word: this one.
        here.bye();
        silent.bye();
        assert_eq!(error, WireupError::Late(Late::Ranks(vec![0, 1, 3])));
    }

    /// One task reports it, and the others end with it.
    #[test]
    fn a_task_that_ends_before_it_connects_is_not_waited_for() {
        let host = Host::new(3, || {}).expect("a socket");
        let mut first = connect(&host, 0, 3);
        Host::tell_ended(host.name(), 0..1); // it has connected
        let wait = std::thread::spawn(move || (first.exchange(&[1], Some(LIMIT)), first));
        let mut late = connect(&host, 2, 3);
        Host::tell_ended(host.name(), 1..2);
        let (told, mut first) = wait.join().expect("no panic");
        let error = told.expect_err("a task lacks");
        assert_eq!(error, WireupError::NeverCame(1));
        let error = late.exchange(&[1], Some(LIMIT)).expect_err("a task lacks");
        first.bye();
        late.bye();
        assert_eq!(error, WireupError::NeverCame(1));
    }

    #[test]
    fn an_exchange_gives_every_contribution_to_every_rank() {
        let host = Host::new(3, || {}).expect("a socket");
        let connect = |rank| connect(&host, rank, 3);
        std::thread::scope(|scope| {
            for rank in [2, 0, 1] {
                let mut guest = connect(rank);
                scope.spawn(move || {
                    for round in 0..20u8 {
                        let text = vec![rank as u8 + round; 1000 * rank as usize];
                        let all = guest.exchange(&text, Some(LIMIT)).expect("the others");
                        for (rank, text) in all.into_iter().enumerate() {
                            assert_eq!(text, vec![rank as u8 + round; 1000 * rank]);
                        }
                    }
                    guest.bye();
                });
            }
        });
    }
}
