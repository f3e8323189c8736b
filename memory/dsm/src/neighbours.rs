//! The tasks of one address space. All use the request table of the first, whose process runs the
//! agent.
//!
//! They need a pointer to the table and two descriptors: the agent's doorbell and the userfaultfd.
//! A process that holds the userfaultfd keeps pages closed when the agent's process is killed.
//! Otherwise threads that wait for a page would continue, and read zeros.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use net::secret::random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::error::DsmError;
use crate::request_table::{Doorbell, RequestTable};

/// Time limit for a neighbour to fetch its descriptors.
const COME_MAX: Duration = Duration::from_secs(60);
/// Time for a task that has ended to report the cause before others report the consequence.
const REPORT_AFTER: Duration = Duration::from_secs(2);

/// The data that the first task of a space sends to the others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invitation {
    /// The address of the table.
    table: usize,
    /// The version of this library. Each task has its own copy, and all must be the same.
    version: String,
    /// The abstract socket that hands out the descriptors.
    socket: [u8; 16],
}

/// Returns the version of this library: tasks of the same version agree on the table's layout.
fn version() -> String {
    format!("{} {}", env!("CARGO_PKG_VERSION"), size_of::<crate::request_table::Slot>())
}

/// A socket that hands descriptors to neighbours.
pub struct Door {
    listener: UnixListener,
    /// The invitation for them.
    pub invitation: Invitation,
}

fn failed(doing: &str) -> impl Fn(std::io::Error) -> DsmError {
    move |why| DsmError::System(format!("cannot {doing} a task of this address space: {why}"))
}

fn address(socket: [u8; 16]) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name([b"nagaya-dsm-", &socket[..]].concat())
}

impl Door {
    /// Creates a door to a table.
    pub fn new(table: &'static RequestTable) -> Result<Self, DsmError> {
        let socket = random();
        let listener = address(socket).and_then(|at| UnixListener::bind_addr(&at));
        let listener = listener.map_err(failed("listen for"))?;
        let table = std::ptr::from_ref(table).expose_provenance();
        Ok(Self { listener, invitation: Invitation { table, version: version(), socket } })
    }

    /// Waits for this number of neighbours, and gives them the doorbell and another descriptor.
    pub fn hand_out(
        self,
        neighbours: usize,
        doorbell: &Doorbell,
        keep: BorrowedFd<'_>,
    ) -> Result<(), DsmError> {
        let mut handed = 0;
        while handed < neighbours {
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
            let limit = Timespec { tv_sec: COME_MAX.as_secs() as i64, tv_nsec: 0 };
            if poll(&mut fds, Some(&limit)) == Ok(0) {
                return Err(DsmError::System(format!(
                    "{} tasks of this address space have not come within {COME_MAX:?}",
                    neighbours - handed
                )));
            }
            let (stream, _) = self.listener.accept().map_err(failed("accept"))?;
            // Only the job knows the name. This check is against guesses.
            let caller = socket_peercred(&stream).map(|caller| caller.uid);
            if caller != Ok(rustix::process::geteuid()) {
                continue;
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [doorbell.as_fd(), keep];
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "it is large enough");
            sendmsg(&stream, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL)
                .map_err(|why| failed("hand descriptors to")(why.into()))?;
            handed += 1;
        }
        Ok(())
    }
}

/// The table and the descriptors that a neighbour has received.
pub struct Handed {
    /// The request table.
    pub table: &'static RequestTable,
    /// The doorbell.
    pub doorbell: Doorbell,
    /// The userfaultfd, which it keeps until it ends.
    pub keep: OwnedFd,
}

impl Invitation {
    /// Accepts the invitation: fetches the descriptors.
    pub fn accept(&self) -> Result<Handed, DsmError> {
        if self.version != version() {
            return Err(DsmError::System(format!(
                "tasks of one address space have different versions of libjia ({} and {}); let all \
                 load the same",
                self.version,
                version()
            )));
        }
        let stream = address(self.socket).and_then(|at| UnixStream::connect_addr(&at));
        // If the task has ended, it reports the cause and ends the job, this task included.
        let ended = |why: std::io::Error| {
            std::thread::sleep(REPORT_AFTER);
            failed("get descriptors from")(why)
        };
        let stream = stream.map_err(ended)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
            .map_err(|why| ended(why.into()))?;
        let mut fds = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let mut fds = fds.next().into_iter().flatten();
        let (Some(doorbell), Some(keep)) = (fds.next(), fds.next()) else {
            return Err(ended(std::io::ErrorKind::UnexpectedEof.into()));
        };
        // SAFETY: the table lies in the common address space, and is never freed.
        let table = unsafe { &*std::ptr::with_exposed_provenance::<RequestTable>(self.table) };
        Ok(Handed { table, doorbell: Doorbell::of(doorbell), keep })
    }
}

/// Identifies the page tables of this process. Only tasks of one space that share their page tables
/// have equal values. Domains have their own.
pub fn space() -> [u8; 16] {
    let Some(task) = control::this_task() else { return random() };
    let namespace = proc::host::pid_namespace() as u32;
    let mut space = [0; 16];
    space[..4].copy_from_slice(&task.control.owner_pid().to_ne_bytes());
    space[4..8].copy_from_slice(&namespace.to_ne_bytes());
    // A base is a multiple of a gigabyte, and domains are at most as many as tasks.
    let base = task.control.layout().base() | u64::from(task.control.domain_of(task.id));
    space[8..].copy_from_slice(&base.to_ne_bytes());
    space
}
