//! Domains: parts of a space whose tasks have separate page tables.
//!
//! A domain is a range of IDs. Its tasks share one mm, with its own `mmap` lock and page tables, on
//! a set of processors. All segments lie at the same addresses in all domains. In a domain the
//! segments of other domains are *views*: mappings of the same memory. The kernel makes their
//! page-table entries one by one, when a page is first touched. It removes them everywhere when the
//! page's owner frees the page (Shimada et al., Multiple PVAS, §3). A page that no task has touched
//! yet is a hole in a view, which `gate/c/far.c` resolves.
//!
//! Domain 0 is the mm of the space's owner. Each other domain has a *keeper*, a child of the owner
//! that starts the domain's tasks ([`keeper`]). These tasks are still children of the owner. The
//! keeper of an owner that is linked to fixed addresses is a program of its own
//! ([`keeper_program`]).

use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use control::Control;
use proc::process::Status;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::child::{self, Attributes};
use crate::connection::Connection;
use crate::error::{Error, last};
use crate::keeper::{self, Answer, Request, Start};
use crate::keeper_program::{self, Open};
use crate::memory::Memory;
use crate::own_memory::Forkable;
use crate::owner;
use crate::views::{ALL_RIGHTS, Views};

/// Time limit for a keeper's answer. Its owner serves nobody else meanwhile.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Description of a domain.
#[derive(Debug, Clone)]
pub struct DomainInfo {
    /// A process that stays in the domain's mm as long as the domain exists.
    pub pid: u32,
    /// IDs of the domain. The owner's domain has all IDs that no other domain has.
    pub ids: Range<u32>,
    /// Processors of the domain; empty if they are the owner's.
    pub processors: Vec<u32>,
}

/// A space's memory and its domains except domain 0. Only the owner has this.
#[derive(Debug)]
pub(crate) struct Domains {
    /// The domains from number 1 on.
    others: Vec<Domain>,
    /// Views of these domains in the owner's mm, if there are any.
    views: Option<Views>,
    memory: Memory,
    /// The file of the control area, if keepers are programs of their own.
    control_file: Option<OwnedFd>,
}

impl Domains {
    /// Begins with the owner's domain only.
    pub fn new(memory: Memory, control_file: Option<OwnedFd>) -> Self {
        Self { others: Vec::new(), views: None, memory, control_file }
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    pub fn infos(&self) -> impl Iterator<Item = DomainInfo> {
        self.others.iter().map(|domain| {
            let is_set = |&cpu: &u32| domain.processors[cpu as usize / 8] >> (cpu % 8) & 1 == 1;
            let processors = (0..domain.processors.len() as u32 * 8).filter(is_set).collect();
            DomainInfo { pid: domain.pid, ids: domain.ids.clone(), processors }
        })
    }

    pub fn get(&self, number: u32) -> Option<&Domain> {
        self.others.get((number as usize).checked_sub(1)?)
    }

    /// Creates another domain and returns its number.
    ///
    /// # Errors
    /// One of the IDs is taken or was taken before.
    pub fn add(
        &mut self,
        control: Control,
        ids: Range<u32>,
        processors: Vec<u8>,
    ) -> Result<u32, Error> {
        let number = self.others.len() as u32 + 1;
        owner::give_to_domain(control, ids.clone(), number).map_err(Error::IdTaken)?;
        let domain = self.make(control, &ids, processors).inspect_err(|_| {
            owner::take_from_domain(control, ids);
        })?;
        self.others.push(domain);
        Ok(number)
    }

    fn make(
        &mut self,
        control: Control,
        ids: &Range<u32>,
        processors: Vec<u8>,
    ) -> Result<Domain, Error> {
        if self.views.is_none() {
            self.views = Some(Views::new()?);
        }
        let file = self.control_file.as_ref().map(AsFd::as_fd);
        let domain = Domain::create(control, &self.memory, file, ids.clone(), processors)?;
        let views = self.views.as_mut().expect("made before");
        views.map(&control.layout(), &self.memory, ids.clone(), ALL_RIGHTS)?;
        Ok(domain)
    }

    /// Takes back the rights that tasks have opened in the memory of the last task with this ID.
    pub fn close_views(&self, id: u32) -> Result<(), Error> {
        self.others.iter().filter(|domain| !domain.ids.contains(&id)).try_for_each(|domain| {
            // A domain without a keeper has no task either, or will lose it.
            match domain.ask(&Request::Close(id), &[]) {
                Ok(Answer::Closed) | Err(Error::NoKeeper(_)) => Ok(()),
                Ok(answer) => Err(answer.error()),
                Err(error) => Err(error),
            }
        })
    }

    /// Ends all keepers. No task may live in their domains.
    pub fn end(&mut self) {
        self.others.clear();
        self.views = None;
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// No task lives in any domain.
    pub unsafe fn destroy(self) {
        // SAFETY: by this function's contract no task lives in any domain.
        unsafe { self.memory.destroy() };
    }
}

/// A domain other than domain 0. Only the owner has this.
#[derive(Debug)]
pub(crate) struct Domain {
    ids: Range<u32>,
    /// CPU mask as for sched_setaffinity; empty means the owner's.
    processors: Vec<u8>,
    keeper: Mutex<Connection>,
    pid: u32,
}

impl Domain {
    /// Creates the mm and its keeper. The caller has reserved the IDs, and none was ever taken.
    pub fn create(
        control: Control,
        memory: &Memory,
        control_file: Option<BorrowedFd<'_>>,
        ids: Range<u32>,
        processors: Vec<u8>,
    ) -> Result<Self, Error> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|errno| Error::System("socketpair", errno))?;
        // A send to a keeper that does not read then has a time limit, too.
        rustix::io::ioctl_fionbio(&ours, true)
            .map_err(|errno| Error::System("socketpair", errno))?;
        let ours = Connection::new(ours, keeper::VERSION);
        let pid = match control_file {
            None => fork_keeper(theirs, control, memory, &ids)?,
            Some(_) => keeper_program::start(theirs)?,
        };
        let domain = Self { ids, processors, keeper: Mutex::new(ours), pid };
        let mut keeper = domain.keeper.lock().expect("no other thread has it");
        if let Some(file) = control_file {
            let open = Open::new(&control.layout(), memory, &domain.ids);
            keeper_program::open(&keeper, &open, memory, file)
                .map_err(|_| Error::NoKeeper(domain.pid))?;
        }
        let ready = domain.receive(&mut keeper)?;
        drop(keeper);
        match ready {
            Answer::Ready => Ok(domain),
            answer => Err(answer.error()),
        }
    }
    /// Returns the PID of the keeper, which stays in the domain's mm.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts a program as task `id`, whose slot the caller has taken. Returns its PID.
    pub fn start(
        &self,
        id: u32,
        path: &Path,
        arguments: Vec<CString>,
        environment: &[CString],
        attributes: &Attributes,
    ) -> Result<u32, Error> {
        let (attributes, fds) = attributes.settled(&self.processors)?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        // The keeper opens the file: it has an executable and descriptors of its own.
        let path = match path.strip_prefix("/proc/self") {
            Ok(rest) => Path::new("/proc").join(std::process::id().to_string()).join(rest),
            Err(_) => path,
        };
        let environment = environment.to_vec();
        let path = path.as_os_str().as_bytes().to_vec();
        let start = Start { id, path, arguments, environment, attributes };
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        match self.ask(&Request::Start(Box::new(start)), &borrowed)? {
            Answer::Started { pid } => Ok(pid),
            Answer::Failed { pid, error } => {
                // The failed child has no other waiter.
                pid.map(child::reap);
                Err(error.into())
            }
            answer => Err(answer.error()),
        }
    }

    fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<Answer, Error> {
        let mut keeper = self.keeper.lock().expect("no panic while held");
        keeper.send(request, fds).map_err(|_| Error::NoKeeper(self.pid))?;
        self.receive(&mut keeper)
    }

    fn receive(&self, keeper: &mut Connection) -> Result<Answer, Error> {
        let answer = keeper.receive_until(Instant::now() + ANSWER_TIMEOUT);
        if answer.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            // It may be stopped. A late answer would belong to another request.
            self.kill();
        }
        answer.ok().flatten().ok_or(Error::NoKeeper(self.pid))
    }

    /// Kills the keeper if it lives.
    fn kill(&self) {
        if child::lives(self.pid) {
            // SAFETY: kill touches no memory. The keeper is a child that is not reaped yet, so the
            // PID is its own.
            unsafe { libc::kill(self.pid as i32, libc::SIGKILL) };
        }
    }
}

impl Drop for Domain {
    /// Ends the keeper, which may be stopped, and reaps it.
    fn drop(&mut self) {
        self.kill();
        child::reap(self.pid);
    }
}

/// Forks the keeper of a domain. Returns its PID.
fn fork_keeper(
    socket: OwnedFd,
    control: Control,
    memory: &Memory,
    ids: &Range<u32>,
) -> Result<u32, Error> {
    let before = child::sigprocmask(libc::SIG_SETMASK, &u64::MAX);
    let forkable = Forkable::begin();
    // SAFETY: the child uses malloc, which fork(3) leaves usable, and nothing else that another
    // thread may have locked.
    let pid = unsafe { libc::fork() };
    // In the child, too: forks of the domain's tasks copy the keeper's memory.
    drop(forkable);
    if pid == 0 {
        keeper::run(Connection::new(socket, keeper::VERSION), control, memory, ids);
    }
    let failed = last("fork");
    child::sigprocmask(libc::SIG_SETMASK, &before);
    u32::try_from(pid).map_err(|_| failed)
}

/// Completes attributes for another process, the keeper, from which the task cannot inherit them.
impl Attributes {
    /// Returns attributes without inherited values, and the descriptors to send: the working
    /// directory, then the task's. `fds` has the descriptors' numbers in the same order.
    fn settled(&self, processors: &[u8]) -> Result<(Self, Vec<OwnedFd>), Error> {
        let failed = |call| move |errno| Error::System(call, errno);
        let copy = |fd: i32| {
            // SAFETY: the borrow lasts for one call, and a number that is not open gives EBADF.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(failed("dup"))
        };
        let cwd = match (self.cwd_fd, &self.cwd) {
            (Some(fd), _) => copy(fd)?,
            (None, path) => {
                use rustix::fs::{Mode, OFlags, open};
                let path = path.as_deref().unwrap_or(c".");
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                open(path, flags, Mode::empty())
                    .map_err(|errno| Error::Setup("working directory", errno))?
            }
        };
        let pairs = match &self.fds {
            Some(pairs) => pairs.clone(),
            None => inherited().map_err(failed("/proc/self/fd"))?,
        };
        let mut sent = vec![cwd];
        for &(from, _) in &pairs {
            sent.push(copy(from).map_err(|_| Error::Setup("descriptors", Errno::BADF))?);
        }
        let limits = if self.limits.is_empty() { limits() } else { self.limits.clone() };
        let affinity = match (self.affinity.is_empty(), processors.is_empty()) {
            (false, _) => self.affinity.clone(),
            (true, false) => processors.to_vec(),
            (true, true) => affinity().map_err(failed("sched_getaffinity"))?,
        };
        let all = Self {
            fds: Some(pairs),
            cwd: None,
            cwd_fd: None,
            umask: self.umask.or_else(umask),
            affinity,
            limits,
            ignored_signals: Some(self.ignored_signals.unwrap_or_else(ignored_signals)),
            sigmask: Some(self.sigmask.unwrap_or_else(|| child::sigprocmask(libc::SIG_BLOCK, &0))),
            ..self.clone()
        };
        Ok((all, sent))
    }
}

/// Returns the descriptors that are not close-on-exec, each paired with its own number.
fn inherited() -> Result<Vec<(i32, i32)>, Errno> {
    let names = std::fs::read_dir("/proc/self/fd")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let numbers = names.flatten().filter_map(|name| name.file_name().to_str()?.parse().ok());
    let stays = |&fd: &i32| {
        // SAFETY: the borrow lasts for one call, and a number that is not open gives EBADF.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
    };
    Ok(numbers.filter(stays).map(|fd| (fd, fd)).collect())
}

/// Returns the file mode creation mask. Only /proc shows it without changing it.
fn umask() -> Option<u32> {
    let status = Status::read("/proc/self").ok()?;
    u32::from_str_radix(status.field("Umask")?, 8).ok()
}

fn limits() -> Vec<(u32, u64, u64)> {
    let limit = |resource: u32| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: getrlimit writes the structure `limit` on this stack.
        let read = unsafe { libc::getrlimit(resource, &raw mut limit) };
        (read == 0).then_some((resource, limit.rlim_cur, limit.rlim_max))
    };
    (0..16).filter_map(limit).collect()
}

fn affinity() -> Result<Vec<u8>, Errno> {
    let mut mask = vec![0u8; 1024];
    // SAFETY: the kernel writes at most `mask.len()` bytes.
    let bytes =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, mask.len(), mask.as_mut_ptr()) };
    if bytes < 0 {
        return Err(Errno::from_raw_os_error(
            std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        ));
    }
    mask.truncate(bytes as usize);
    Ok(mask)
}

/// Returns the ignored signals, bit n-1 for signal n.
fn ignored_signals() -> u64 {
    let is_ignored = |signal: &i32| {
        let mut action = [0u64; 4];
        // SAFETY: the kernel's sigaction has four 64-bit words, as `action` has.
        let read =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, *signal, 0, action.as_mut_ptr(), 8) };
        read == 0 && action[0] == libc::SIG_IGN as u64
    };
    (1..=64).filter(is_ignored).fold(0, |set, signal| set | 1 << (signal - 1))
}
