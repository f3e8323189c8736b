//! Domains: parts of a space whose tasks have page tables of their own.
//!
//! A domain is a run of IDs. Its tasks share one mm, which is nobody else's: their own `mmap`
//! lock, their own page tables, on processors of their own. All segments lie at the same
//! addresses in all domains. Those of other domains are *views* there: mappings of the same
//! memory, whose page-table entries the kernel makes when a page is first touched, one by one,
//! and takes away everywhere when its owner gives the page up (Shimada et al., Multiple PVAS,
//! §3). What no task has ever touched is a hole: `gate/c/far.c` looks what it is.
//!
//! Domain 0 is the mm of the space's owner. Each of the others has a *keeper*, a child of the
//! owner, which makes its tasks ([`keeper`]); they are the owner's children all
//! the same.

use std::ffi::CString;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

use control::Control;
use nagaya_layout::SpaceLayout;
use pager::holes::Holes;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::child::{self, Attributes};
use crate::connection::Connection;
use crate::error::{Error, last};
use crate::keeper::{self, Answer, Ask, Start};
use crate::memory::Memory;
use crate::owner;

/// What a domain is like.
#[derive(Debug, Clone)]
pub struct DomainInfo {
    /// A process that has its mm for as long as it is there.
    pub pid: u32,
    /// Its IDs; those of the owner's domain are all that no other has.
    pub ids: Range<u32>,
    /// Its processors; none where they are its owner's.
    pub processors: Vec<u32>,
}

/// A space's memory, and its domains but the first, as its owner sees them.
#[derive(Debug)]
pub(crate) struct Domains {
    /// Domain 1 first.
    others: Vec<Domain>,
    /// What the owner's mm has of them, if there are any.
    views: Option<Views>,
    memory: Memory,
}

impl Domains {
    /// No domain but the owner's.
    pub fn new(memory: Memory) -> Self {
        Self { others: Vec::new(), views: None, memory }
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

    /// Makes one more; returns its number. Error: somebody has or had one of the IDs.
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
        let domain = Domain::create(control, &self.memory, ids.clone(), processors)?;
        let views = self.views.as_mut().expect("made before");
        views.map(&control.layout(), &self.memory, ids.clone())?;
        Ok(domain)
    }

    /// Ends all keepers. Nobody lives in their domains.
    pub fn end(&mut self) {
        self.others.clear();
        self.views = None;
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No task lives in any domain.
    pub unsafe fn destroy(self) {
        // SAFETY: as the caller vouches.
        unsafe { self.memory.destroy() };
    }
}

/// One of a space's domains but the first, as its owner sees it.
#[derive(Debug)]
pub(crate) struct Domain {
    ids: Range<u32>,
    /// CPU mask, as sched_setaffinity takes it; empty: as the owner's.
    processors: Vec<u8>,
    keeper: Mutex<Connection>,
    pid: u32,
}

impl Domain {
    /// Makes the mm and its keeper. The IDs are the caller's, and no task has had them yet.
    pub fn create(
        control: Control,
        memory: &Memory,
        ids: Range<u32>,
        processors: Vec<u8>,
    ) -> Result<Self, Error> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|errno| Error::System("socketpair", errno))?;
        let before = child::sigprocmask(libc::SIG_SETMASK, &u64::MAX);
        // SAFETY: the child uses malloc, which fork(3) leaves usable, and nothing else that
        // another thread may have locked.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            drop(ours);
            keeper::run(theirs, control, memory, &ids);
        }
        let failed = last("fork");
        child::sigprocmask(libc::SIG_SETMASK, &before);
        if pid < 0 {
            return Err(failed);
        }
        let domain = Self {
            ids,
            processors,
            keeper: Mutex::new(Connection::new(ours, keeper::VERSION)),
            pid: pid as u32,
        };
        match domain.hear()? {
            Answer::Ready => Ok(domain),
            answer => Err(answer.error()),
        }
    }

    /// A process that has the domain's mm for as long as it lives.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts a program as the task `id`, whose slot the caller has taken; returns its PID.
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
        let environment = environment.to_vec();
        let path = path.as_os_str().as_bytes().to_vec();
        let start = Start { id, path, arguments, environment, attributes };
        let lent: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        let sent = {
            let keeper = self.keeper.lock().expect("no panic while held");
            keeper.send(&Ask::Start(Box::new(start)), &lent)
        };
        sent.map_err(|_| Error::NoKeeper(self.pid))?;
        match self.hear()? {
            Answer::Started { pid } => Ok(pid),
            Answer::Failed { pid, error } => {
                // Our child, of which nobody else knows.
                pid.map(child::reap);
                Err(error.into())
            }
            answer => Err(answer.error()),
        }
    }

    fn hear(&self) -> Result<Answer, Error> {
        let mut keeper = self.keeper.lock().expect("no panic while held");
        keeper.receive().ok().flatten().ok_or(Error::NoKeeper(self.pid))
    }
}

impl Drop for Domain {
    /// The keeper ends with its connection.
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let _ = rustix::net::shutdown(&*keeper, rustix::net::Shutdown::Both);
        child::reap(self.pid);
    }
}

/// What this mm has of other domains' segments; unmapped with this value.
pub(crate) struct Views {
    holes: Holes,
    /// Address and size.
    mapped: Vec<(usize, usize)>,
}

impl Drop for Views {
    fn drop(&mut self) {
        for &(start, size) in &self.mapped {
            // SAFETY: mapped by us, and nobody looks at other domains any more.
            unsafe { libc::munmap(start as *mut _, size) };
        }
    }
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Views")
    }
}

impl Views {
    /// None yet.
    pub fn new() -> Result<Self, Error> {
        let holes = Holes::new().map_err(Error::Views)?;
        Ok(Self { holes, mapped: Vec::new() })
    }

    /// Maps the segments of these IDs, in which nothing is mapped.
    pub fn map(
        &mut self,
        layout: &SpaceLayout,
        memory: &Memory,
        ids: Range<u32>,
    ) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let view = map_view(layout, memory, ids)?;
        self.mapped.push((view.start, view.len()));
        self.holes.watch(view).map_err(Error::Views)
    }
}

/// Maps the segments of these IDs, of which none is mapped; returns where.
pub(crate) fn map_view(
    layout: &SpaceLayout,
    memory: &Memory,
    ids: Range<u32>,
) -> Result<Range<usize>, Error> {
    let start = layout.base() + u64::from(ids.start) * layout.segment_size();
    let size = (ids.len() as u64 * layout.segment_size()) as usize;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let offset = start - layout.base();
    // SAFETY: replaces nothing.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        mmap(start as *mut _, size, protection, flags, memory.file(), offset)
            .map_err(|errno| Error::System("mmap of other domains' segments", errno))?;
        // Neither a fork nor a core file of one task is everybody's.
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            libc::madvise(start as *mut _, size, advice);
        }
    }
    Ok(start as usize..start as usize + size)
}

/// What another process, whose child the task would have been, must be told: everything that it
/// would have inherited.
impl Attributes {
    /// All of them said, and the descriptors to send: the working directory, then the task's, whose
    /// numbers stand in `fds` in this order.
    fn settled(&self, processors: &[u8]) -> Result<(Self, Vec<OwnedFd>), Error> {
        let failed = |call| move |errno| Error::System(call, errno);
        let copy = |fd: i32| {
            // SAFETY: the caller's, for one call.
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

/// Descriptors that are not close-on-exec, at their numbers.
fn inherited() -> Result<Vec<(i32, i32)>, Errno> {
    let names = std::fs::read_dir("/proc/self/fd")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let numbers = names.flatten().filter_map(|name| name.file_name().to_str()?.parse().ok());
    let stays = |&fd: &i32| {
        // SAFETY: for one call, which may find it closed.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
    };
    Ok(numbers.filter(stays).map(|fd| (fd, fd)).collect())
}

/// The file mode creation mask, which can be read here only.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}

fn limits() -> Vec<(u32, u64, u64)> {
    let limit = |resource: u32| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes the structure.
        let read = unsafe { libc::getrlimit(resource, &raw mut limit) };
        (read == 0).then_some((resource, limit.rlim_cur, limit.rlim_max))
    };
    (0..16).filter_map(limit).collect()
}

fn affinity() -> Result<Vec<u8>, Errno> {
    let mut mask = vec![0u8; 1024];
    // SAFETY: writes at most so many bytes.
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

/// Bit n-1 for signal n.
fn ignored_signals() -> u64 {
    let is_ignored = |signal: &i32| {
        let mut action = [0u64; 4];
        // SAFETY: writes four words.
        let read =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, *signal, 0, action.as_mut_ptr(), 8) };
        read == 0 && action[0] == libc::SIG_IGN as u64
    };
    (1..=64).filter(is_ignored).fold(0, |set, signal| set | 1 << (signal - 1))
}
