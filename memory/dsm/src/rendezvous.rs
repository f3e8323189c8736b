//! How tasks of `nagaya run` find each other, which no other launcher has started: all connect
//! to a socket of the one who runs them, who hands on what they exchange. The socket's name is
//! an abstract one, so nothing is left; it cannot be guessed, and other users are not let in.
//!
//! A task stays connected until it has left its job. If its connection ends before, it is
//! lost, and its job with it: the others are killed, since they would wait for ever, or,
//! worse, go on in the address space of an agent that is no more.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use fabric::secret::random;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::DsmError;

/// The socket, this task's rank, and the number of tasks.
pub const SOCKET: &str = "NAGAYA_JOB_SOCKET";
/// See [`SOCKET`].
pub const RANK: &str = "NAGAYA_JOB_RANK";
/// See [`SOCKET`].
pub const SIZE: &str = "NAGAYA_JOB_SIZE";
/// Which process of which PMIx job `nagaya run` itself is: a task that is another was started
/// by a launcher within.
pub const OUTER: &str = "NAGAYA_JOB_OUTER";

/// What a frame may have at most.
const FRAME_BYTES_MAX: usize = 1 << 30;
/// What a task may take to say all that it has begun to say.
const SAY_MAX: Duration = Duration::from_secs(10);
/// From the loss of a task to the end of the others: whoever waits for them sees it first.
const LOST_FIRST: Duration = Duration::from_millis(200);

/// What a task says.
#[derive(Debug, Serialize, Deserialize)]
enum Says {
    /// Here I am, with this rank.
    Here(u32),
    /// This is for everybody.
    Give(Vec<u8>),
    /// I have left.
    Bye,
}

/// What a task is told: what everybody has given, by rank.
type All = Vec<Vec<u8>>;

/// A task's connection.
pub struct Guest {
    stream: UnixStream,
    rank: u32,
    size: u32,
}

impl Guest {
    /// As the environment says; none if it says nothing.
    pub fn new() -> Result<Option<Self>, DsmError> {
        let Some(path) = std::env::var_os(SOCKET) else { return Ok(None) };
        if std::env::var(OUTER).unwrap_or_default() != outer() {
            return Ok(None);
        }
        let number = |name: &str| {
            let text = std::env::var(name).unwrap_or_default();
            text.parse::<u32>().map_err(|_| {
                DsmError::System(format!("{name}={text}: nagaya run sets it; leave it as it is"))
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

    /// Which task this is.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Gives these bytes, and gets everybody's, by rank.
    pub fn exchange(&mut self, bytes: &[u8]) -> Result<All, DsmError> {
        self.say(&Says::Give(bytes.to_vec()))?;
        let all: All = receive(&mut self.stream).map_err(|why| lost(&why))?;
        match all.len() == self.size as usize {
            true => Ok(all),
            false => Err(DsmError::System("the tasks do not agree on how many they are".into())),
        }
    }

    /// It has left.
    pub fn bye(&mut self) {
        let _ = self.say(&Says::Bye);
    }

    fn say(&mut self, says: &Says) -> Result<(), DsmError> {
        send(&mut self.stream, says).map_err(|why| lost(&why))
    }
}

/// This process of a PMIx job, as [`OUTER`] names it.
fn outer() -> String {
    let of = |name| std::env::var(name).unwrap_or_default();
    match std::env::var_os("PMIX_NAMESPACE") {
        Some(_) => format!("{} {}", of("PMIX_NAMESPACE"), of("PMIX_RANK")),
        None => String::new(),
    }
}

fn lost(why: &io::Error) -> DsmError {
    DsmError::System(format!("the `nagaya run` that started this task does not answer: {why}"))
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

/// The other side: serves a job's tasks in a thread, as long as the process lives.
pub struct Host {
    name: String,
}

/// A task, as the host sees it.
struct Task {
    stream: UnixStream,
    rank: Option<u32>,
    given: Option<Vec<u8>>,
    /// Names the process, whatever becomes of its number.
    process: Option<OwnedFd>,
    has_left: bool,
}

impl Host {
    /// Serves `size` tasks.
    pub fn new(size: u32) -> io::Result<Self> {
        let name = format!("nagaya-job-{:032x}", u128::from_ne_bytes(random()));
        let listener = UnixListener::bind_addr(&address(&name)?)?;
        std::thread::Builder::new()
            .name("nagaya-meet".into())
            .spawn(move || serve(&listener, size as usize))?;
        Ok(Self { name })
    }

    /// What a task's environment must have that shall find the host of this name.
    pub fn environment(name: &str, rank: u32, size: u32) -> [(&'static str, String); 4] {
        [
            (SOCKET, name.to_owned()),
            (RANK, rank.to_string()),
            (SIZE, size.to_string()),
            (OUTER, outer()),
        ]
    }

    /// What its socket is called.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn serve(listener: &UnixListener, size: usize) {
    let mut tasks: Vec<Task> = Vec::new();
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
            match ready.then(|| hear(&mut tasks[at])) {
                None | Some(Ok(())) => at += 1,
                Some(Err(_)) => {
                    let gone = tasks.remove(at);
                    is_lost |= !gone.has_left && gone.rank.is_some();
                }
            }
        }
        if is_lost {
            end(&mut tasks);
        }
        if ready[0]
            && let Ok((stream, _)) = listener.accept()
        {
            tasks.extend(Task::new(stream));
        }
        hand_on(&mut tasks, size);
    }
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
        Some(Self { stream, rank: None, given: None, process, has_left: false })
    }
}

fn hear(task: &mut Task) -> io::Result<()> {
    match receive(&mut task.stream)? {
        Says::Here(rank) => task.rank = Some(rank),
        Says::Give(bytes) => task.given = Some(bytes),
        Says::Bye => task.has_left = true,
    }
    Ok(())
}

/// When all have given something, all get it.
fn hand_on(tasks: &mut [Task], size: usize) {
    let mut all: Vec<Option<Vec<u8>>> = vec![None; size];
    for task in tasks.iter() {
        if let (Some(rank), Some(given)) = (task.rank, &task.given)
            && let Some(place) = all.get_mut(rank as usize)
        {
            *place = Some(given.clone());
        }
    }
    let Some(all): Option<All> = all.into_iter().collect() else { return };
    for task in tasks {
        task.given = None;
        let _ = send(&mut task.stream, &all);
    }
}

/// A task is lost: so are all.
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

    #[test]
    fn all_get_what_all_give() {
        let host = Host::new(3).expect("a socket");
        let connect = |rank| {
            let stream = UnixStream::connect_addr(&address(host.name()).unwrap()).unwrap();
            let mut guest = Guest { stream, rank, size: 3 };
            guest.say(&Says::Here(rank)).unwrap();
            guest
        };
        std::thread::scope(|scope| {
            for rank in [2, 0, 1] {
                let mut guest = connect(rank);
                scope.spawn(move || {
                    for round in 0..20u8 {
                        let text = vec![rank as u8 + round; 1000 * rank as usize];
                        let all = guest.exchange(&text).expect("the others");
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
