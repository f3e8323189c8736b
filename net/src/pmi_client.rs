//! Exchange of addresses by PMI-1. [`wireup`](crate::wireup) describes the purpose, and [`pmi`]
//! the messages.

use std::ffi::{c_int, c_void};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::launcher::Contact;
use crate::pmi::{self, Command, Gathered, Lines, Reply, Violation};
use crate::wireup::error::{Late, WireupError};

/// Time limit for an answer that does not depend on other processes.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Time limit for the answer to the last message, after which nothing is lost.
const FINALIZE_MAX: Duration = Duration::from_secs(10);
/// Time limit for the launcher to read what this process has written, and how often to look.
const READ_MAX: Duration = Duration::from_secs(1);
const READ_POLL: Duration = Duration::from_millis(2);

/// Variables with the number of the job's processes on this node, and the rank of this one.
const LOCAL_SIZE: &[&str] = &["MPI_LOCALNRANKS"];
const LOCAL_RANK: &[&str] = &["MPI_LOCALRANKID", "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID"];

/// This process among those of its job. One a process; dropped, it leaves.
pub struct PmiClient {
    link: Link,
    lines: Lines,
    rank: u32,
    size: u32,
    /// The job's key-value space, and how long a value in it may be.
    name: String,
    value_bytes: usize,
    /// Number of exchanges so far. Each has its own keys.
    exchanges: u32,
}

/// The launcher's socket.
enum Link {
    /// Inherited; it stays open, since an MPI library in this process may use it, too.
    Inherited(RawFd),
    Port(TcpStream),
}

impl Link {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            // SAFETY: `launcher` has seen that it is a socket, and nothing here closes it.
            Self::Inherited(fd) => unsafe { BorrowedFd::borrow_raw(*fd) },
            Self::Port(stream) => stream.as_fd(),
        }
    }
}

/// Why there is no answer.
enum Silence {
    Broken(WireupError),
    /// Not within the limit.
    Late,
}

impl PmiClient {
    /// Begins with the launcher.
    pub fn new(contact: &Contact) -> Result<Self, WireupError> {
        let (link, rank, size) = match contact {
            Contact::Inherited { fd, rank, size } => (Link::Inherited(*fd), *rank, *size),
            Contact::Port { address, .. } => {
                let stream = TcpStream::connect(address.as_str());
                let stream =
                    stream.map_err(|why| failed("connect to PMI_PORT", why.to_string()))?;
                (Link::Port(stream), 0, 0)
            }
        };
        let (lines, name) = (Lines::default(), String::new());
        let mut this = Self { link, lines, rank, size, name, value_bytes: 0, exchanges: 0 };
        if let Contact::Port { id, .. } = contact {
            this.learn_place(*id)?;
        }
        this.begin()?;
        Ok(this)
    }

    /// At a port the launcher sends rank and size.
    fn learn_place(&mut self, id: u32) -> Result<(), WireupError> {
        const DOING: &str = "tell this process's rank";
        self.write(DOING, Command::InitAck(id))?;
        let (mut rank, mut size) = (None, None);
        while rank.is_none() || size.is_none() {
            match self.answer(DOING)? {
                Reply::Acknowledged => {}
                Reply::Set(name, value) => match name.as_str() {
                    "rank" => rank = value.parse::<u32>().ok(),
                    "size" => size = value.parse::<u32>().ok(),
                    _ => {}
                },
                reply => return Err(unexpected(DOING, &reply)),
            }
        }
        (self.rank, self.size) = (rank.unwrap_or_default(), size.unwrap_or_default());
        match self.rank < self.size {
            true => Ok(()),
            false => Err(failed(DOING, format!("rank {} of {}", self.rank, self.size))),
        }
    }

    fn begin(&mut self) -> Result<(), WireupError> {
        const DOING: &str = "begin";
        self.write(DOING, Command::Init)?;
        loop {
            match self.answer(DOING)? {
                Reply::Begun => break,
                // At a port, settings besides rank and size may still come.
                Reply::Set(..) => {}
                reply => return Err(unexpected(DOING, &reply)),
            }
        }
        let (key_bytes, value_bytes) = match self.ask("tell its limits", Command::GetMaxes)? {
            Reply::Maxes { key_bytes, value_bytes } => (key_bytes, value_bytes),
            reply => return Err(unexpected("tell its limits", &reply)),
        };
        self.name = match self.ask("name the job", Command::GetName)? {
            Reply::Name(name) => name,
            reply => return Err(unexpected("name the job", &reply)),
        };
        let bytes = pmi::value_bytes(&self.name, key_bytes, value_bytes);
        self.value_bytes = bytes.ok_or_else(|| {
            failed("exchange addresses", format!("its values have at most {value_bytes} bytes"))
        })?;
        Ok(())
    }

    /// Returns the rank of this process in the job, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of processes of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the rank of this process on its node, from 0, if the launcher provides it.
    pub fn local_rank(&self) -> u32 {
        number(LOCAL_RANK).unwrap_or(0)
    }

    /// Contributes `bytes` and returns the contributions of all processes, by rank. All processes
    /// of the job must call this, and wait for each other, until the limit if there is one. After
    /// the limit the job cannot exchange anything.
    pub fn exchange(
        &mut self,
        bytes: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, WireupError> {
        const DOING: &str = "bring another process's bytes";
        if bytes.len() > pmi::GIVEN_BYTES_MAX {
            return Err(failed("put bytes", format!("{} are too many", bytes.len())));
        }
        let exchange = self.exchanges;
        self.exchanges += 1;
        for (part, value) in pmi::values(bytes, self.value_bytes).iter().enumerate() {
            let (name, key) = (self.name.clone(), pmi::key(exchange, self.rank, part));
            match self.ask("put bytes", Command::Put(&name, &key, value))? {
                Reply::Put => {}
                reply => return Err(unexpected("put bytes", &reply)),
            }
        }
        if !self.all_come(limit)? {
            return Err(WireupError::Late(self.late(exchange)?));
        }
        let mut all = Vec::new();
        for rank in 0..self.size {
            let mut gathered = Gathered::default();
            all.push(loop {
                let part = gathered.parts();
                let value = self.get(DOING, &pmi::key(exchange, rank, part))?;
                let value = value.ok_or_else(|| {
                    failed(DOING, format!("process {rank} has put nothing; is it another program?"))
                })?;
                if let Some(bytes) = gathered.push(&value).map_err(|why| violated(DOING, &why))? {
                    break bytes;
                }
            });
        }
        Ok(all)
    }

    /// Waits for all processes of the job.
    pub fn barrier(&mut self) -> Result<(), WireupError> {
        self.all_come(None).map(drop)
    }

    /// Ends all processes of the job with this exit status, this one perhaps, too.
    pub fn end_all(&self, status: u8) {
        // The launcher does not read any more what a process has written before it is killed.
        wait_for_readers();
        // If the launcher is gone, no other process is ended.
        let _ = self.send_all(Command::Abort(status).line().as_bytes());
    }

    /// Returns true if all processes have arrived within the limit.
    fn all_come(&mut self, limit: Option<Duration>) -> Result<bool, WireupError> {
        const DOING: &str = "bring all processes together";
        self.write(DOING, Command::Barrier)?;
        match self.reply(DOING, limit) {
            Ok(Reply::AllCame) => Ok(true),
            Ok(reply) => Err(unexpected(DOING, &reply)),
            Err(Silence::Late) => Ok(false),
            Err(Silence::Broken(error)) => Err(error),
        }
    }

    /// Returns the processes without a contribution to an exchange. Some launchers show a pair to
    /// others only after the barrier, or only on the same node.
    fn late(&mut self, exchange: u32) -> Result<Late, WireupError> {
        if number(LOCAL_SIZE) != Some(self.size) {
            return Ok(Late::Unknown);
        }
        let mut late = Vec::new();
        for rank in 0..self.size {
            let value = self.get_early(&pmi::key(exchange, rank, 0))?;
            match value {
                None if rank == self.rank => return Ok(Late::Unknown),
                None => late.push(rank),
                Some(_) => {}
            }
        }
        Ok(if late.is_empty() { Late::Unknown } else { Late::Ranks(late) })
    }

    /// The value of a key, while the barrier may still end.
    fn get_early(&mut self, key: &str) -> Result<Option<String>, WireupError> {
        const DOING: &str = "say who is missing";
        let name = self.name.clone();
        self.write(DOING, Command::Get(&name, key))?;
        loop {
            match self.answer(DOING)? {
                Reply::Value(value) => return Ok(value),
                Reply::AllCame => {}
                reply => return Err(unexpected(DOING, &reply)),
            }
        }
    }

    fn get(&mut self, doing: &'static str, key: &str) -> Result<Option<String>, WireupError> {
        let name = self.name.clone();
        match self.ask(doing, Command::Get(&name, key))? {
            Reply::Value(value) => Ok(value),
            reply => Err(unexpected(doing, &reply)),
        }
    }

    fn ask(&mut self, doing: &'static str, command: Command<'_>) -> Result<Reply, WireupError> {
        self.write(doing, command)?;
        self.answer(doing)
    }

    fn write(&mut self, doing: &'static str, command: Command<'_>) -> Result<(), WireupError> {
        let sent = self.send_all(command.line().as_bytes());
        sent.map_err(|why| failed(doing, reason(why)))
    }

    fn send_all(&self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match send(self.link.fd(), bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut fds = [PollFd::from_borrowed_fd(self.link.fd(), PollFlags::OUT)];
                    let _ = poll(&mut fds, None);
                }
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Waits for the launcher's answer to a request of this process.
    fn answer(&mut self, doing: &'static str) -> Result<Reply, WireupError> {
        self.reply(doing, Some(ANSWER_MAX)).map_err(|silence| match silence {
            Silence::Broken(error) => error,
            Silence::Late => failed(doing, format!("no answer within {ANSWER_MAX:?}")),
        })
    }

    fn reply(&mut self, doing: &'static str, limit: Option<Duration>) -> Result<Reply, Silence> {
        let until = limit.map(|limit| Instant::now() + limit);
        let broken = |why: String| Err(Silence::Broken(failed(doing, why)));
        let mut bytes = [0; 4096];
        loop {
            if let Some(reply) = self.lines.reply() {
                return reply.or_else(|why| broken(why.to_string()));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::from_borrowed_fd(self.link.fd(), PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Err(Silence::Late),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(why) => return broken(why.to_string()),
            }
            match recv(self.link.fd(), &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return broken(reason(Errno::PIPE)),
                Ok((count, _)) => self.lines.push(&bytes[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(why) => return broken(reason(why)),
            }
        }
    }
}

/// A launcher reports a process that ends without this as one that has failed.
impl Drop for PmiClient {
    fn drop(&mut self) {
        // MPI_Finalize sends the message, and closes the socket.
        if mpi_has_begun() || self.send_all(Command::Finalize.line().as_bytes()).is_err() {
            return;
        }
        let until = Instant::now() + FINALIZE_MAX;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
            && !matches!(self.reply("end", Some(left)), Ok(Reply::Finalized) | Err(_))
        {}
    }
}

/// Returns true if an MPI library of this process is initialized. It uses the same socket.
fn mpi_has_begun() -> bool {
    // SAFETY: a lookup by a constant name among what is loaded.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"MPI_Initialized".as_ptr()) };
    if function.is_null() {
        return false;
    }
    // SAFETY: MPI's standard gives the function of this name this type.
    let is_initialized = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(function)
    };
    let mut flag = 0;
    // SAFETY: it may be called at any time, and writes one number.
    unsafe { is_initialized(&mut flag) };
    flag != 0
}

/// Waits until the launcher has read this process's standard output and error, if they are pipes.
fn wait_for_readers() {
    let until = Instant::now() + READ_MAX;
    let is_unread = |fd: BorrowedFd<'_>| {
        let is_pipe = rustix::fs::fstat(fd).is_ok_and(|data| {
            rustix::fs::FileType::from_raw_mode(data.st_mode) == rustix::fs::FileType::Fifo
        });
        is_pipe && rustix::io::ioctl_fionread(fd).is_ok_and(|bytes| bytes > 0)
    };
    let (output, error) = (std::io::stdout(), std::io::stderr());
    while (is_unread(output.as_fd()) || is_unread(error.as_fd())) && Instant::now() < until {
        std::thread::sleep(READ_POLL);
    }
}

fn number(names: &[&str]) -> Option<u32> {
    names.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

fn reason(why: Errno) -> String {
    match why {
        Errno::PIPE | Errno::CONNRESET => "it has closed the connection".into(),
        why => why.to_string(),
    }
}

fn failed(doing: &'static str, why: String) -> WireupError {
    WireupError::Pmi { doing, why }
}

fn violated(doing: &'static str, why: &Violation) -> WireupError {
    failed(doing, why.to_string())
}

fn unexpected(doing: &'static str, reply: &Reply) -> WireupError {
    failed(doing, format!("it answers with {reply:?}"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;
    use std::thread::{JoinHandle, spawn};

    use super::*;

    const NAME: &str = "cmd=my_kvsname kvsname=kvs";
    const BEGUN: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
    const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=64";

    /// A launcher that answers each line with the next of these, and returns the lines.
    fn launcher(answers: &[&str]) -> (UnixStream, JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let answers: Vec<String> = answers.iter().map(|answer| answer.to_string()).collect();
        let serves = spawn(move || {
            let (mut to, mut lines) = (theirs.try_clone().expect("a descriptor"), Vec::new());
            let mut from = BufReader::new(theirs).lines();
            for answer in answers {
                let Some(Ok(line)) = from.next() else { return lines };
                lines.push(line);
                // The other side may not wait for it.
                let _ = to.write_all(answer.as_bytes());
            }
            lines
        });
        (ours, serves)
    }

    fn client(socket: &UnixStream) -> Result<PmiClient, WireupError> {
        PmiClient::new(&Contact::Inherited { fd: socket.as_raw_fd(), rank: 0, size: 1 })
    }

    fn answers(last: &[&str]) -> Vec<String> {
        [&[BEGUN, MAXES, NAME], last].concat().iter().map(|line| format!("{line}\n")).collect()
    }

    /// Returns the result of an exchange with such a launcher.
    fn exchange(last: &[&str]) -> Result<Vec<Vec<u8>>, WireupError> {
        let answers = answers(last);
        let (socket, serves) = launcher(&answers.iter().map(String::as_str).collect::<Vec<_>>());
        let result = client(&socket).expect("it begins").exchange(&[0xab], None);
        drop(socket);
        serves.join().expect("it ends");
        result
    }

    #[test]
    fn a_job_is_formed_and_left() {
        let end = "cmd=finalize_ack\n";
        let all = ["cmd=put_result rc=0", "cmd=barrier_out", "cmd=get_result rc=0 value=1.cd"];
        let mut answers = answers(&all);
        answers.push(end.into());
        let (socket, serves) = launcher(&answers.iter().map(String::as_str).collect::<Vec<_>>());
        let mut client = client(&socket).expect("it begins");
        assert_eq!(client.exchange(&[0xab], None), Ok(vec![vec![0xcd]]));
        drop(client);
        let lines = serves.join().expect("it ends");
        let last = ["barrier_in", "get kvsname=kvs key=nagaya-0-0-0", "finalize"];
        assert_eq!(lines[3], "cmd=put kvsname=kvs key=nagaya-0-0-0 value=1.ab");
        assert_eq!(lines[4..], last.map(|command| format!("cmd={command}")));
    }

    #[test]
    fn a_launcher_that_breaks_the_rules_is_an_error_in_one_line() {
        let long = "x".repeat(pmi::LINE_BYTES_MAX + 1);
        for answer in ["\n", "cmd=barrier_out\n", "cmd=response_to_init rc=-1\n", &long, ""] {
            let (socket, serves) = launcher(&[answer]);
            let Err(error) = client(&socket) else { panic!("{answer:?}") };
            let line = error.to_string();
            assert!(line.starts_with("the launcher cannot begin by PMI: "), "{line}");
            assert!(line.len() < 300 && !line.contains('\n'), "{line}");
            serves.join().expect("it ends");
        }
    }

    #[test]
    fn answers_that_do_not_fit_end_the_exchange() {
        let put = "cmd=put_result rc=0";
        for (last, words) in [
            (&["cmd=put_result rc=-1"][..], "cannot put bytes by PMI: it sends a refusal"),
            (&["cmd=barrier_out"], "cannot put bytes by PMI: it answers with AllCame"),
            (&[put, "cmd=put_result"], "bring all processes together by PMI: it answers with Put"),
            (&[put], "bring all processes together by PMI: it has closed the connection"),
            (&[put, "cmd=barrier_out", "cmd=get_result rc=1"], "process 0 has put nothing"),
            (&[put, "cmd=barrier_out", "cmd=get_result rc=0 value=2.00ff1"], "of another length"),
        ] {
            let line = exchange(last).expect_err("a violation").to_string();
            assert!(line.contains(words), "{line}");
        }
    }

    #[test]
    fn processes_that_do_not_come_are_late() {
        let answers = answers(&["cmd=put_result rc=0"]);
        let mut answers: Vec<_> = answers.iter().map(String::as_str).collect();
        answers.push("");
        answers.push("");
        let (socket, serves) = launcher(&answers);
        let mut client = client(&socket).expect("it begins");
        let limit = Some(Duration::from_millis(50));
        assert_eq!(client.exchange(&[1], limit), Err(WireupError::Late(Late::Unknown)));
        client.end_all(3);
        let lines = serves.join().expect("it ends");
        assert_eq!(lines.last().map(String::as_str), Some("cmd=abort exitcode=3"));
    }
}
