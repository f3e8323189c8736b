//! The state of the library in this process, by topic. The functions of each topic are in its
//! own file; [`library`](super::library) has the lock under which all of them work.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use pvm::error::Error;
use pvm::event::COUNT;
use pvm::parcel::Data;
use pvm::tid::Tid;

use super::kept::{Classes, Hosts, Tasks};
use super::settings::Options;
use crate::task::Task;
use crate::task::handlers::Handlers;

/// The value that a function returns on failure; mostly one of PVM's error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

impl From<Error> for Code {
    fn from(error: Error) -> Code {
        Code(error.code())
    }
}

/// A function that matches messages (pvm_recvf).
pub type Matcher = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;

/// The state of the library.
pub struct State {
    /// The task.
    pub task: Task,
    /// The program's matching function.
    pub matcher: Option<Matcher>,
    /// Handlers of a process that is no task.
    pub early_handlers: Handlers,
    /// Options of pvm_setopt.
    pub options: Options,
    /// Trace events.
    pub tracing: Tracing,
    /// The tasks that the parent has spawned together with this one, once it has sent their tids.
    pub siblings: Option<Vec<c_int>>,
    /// Roles that this task has taken over.
    pub roles: Roles,
    /// Direct routes.
    pub routes: Routes,
    /// Output of children.
    pub catchout: Option<Catchout>,
    /// The descriptor of pvm_getfds.
    pub descriptors: Descriptors,
    /// The last result of pvm_config.
    pub hosts: Hosts,
    /// The last result of pvm_reg_rm.
    pub manager_host: Hosts,
    /// The last result of pvm_tasks.
    pub tasks: Tasks,
    /// The last result of pvm_getnoresets.
    pub no_resets: Vec<c_int>,
    /// The last result of pvm_getmboxinfo.
    pub classes: Classes,
    /// The receiving thread; others wait until it has processed a message.
    pub(super) receiver: usize,
    /// The thread whose buffers are active.
    pub thread: usize,
    pub(super) active: HashMap<usize, (c_int, c_int)>,
    pub(super) empty_looks: u32,
}

/// The roles of this task, with the indices of their mailbox entries.
#[derive(Default)]
pub struct Roles {
    pub(super) hoster: Option<c_int>,
    pub(super) tasker: Option<c_int>,
    pub(super) manager: Option<c_int>,
    pub(super) tracer: Option<c_int>,
}

/// Direct routes, and the requested notices about them.
#[derive(Default)]
pub struct Routes {
    pub(super) open: HashSet<Tid>,
    /// The route that was used last.
    pub(super) last: Option<Tid>,
    /// Context, tag, and number of remaining notices; -1 for no limit.
    pub(super) wanted: Vec<(c_int, c_int, c_int)>,
    /// Context and tag of a notice, and the task whose end it reports.
    pub(super) wanted_ends: Vec<(c_int, c_int, Tid)>,
}

/// Output of children.
pub struct Catchout {
    pub(super) file: *mut libc::FILE,
    pub(super) children: BTreeMap<c_int, Child>,
    pub(super) handlers: [c_int; 2],
}

/// A child whose output is printed.
#[derive(Default)]
pub struct Child {
    /// The incomplete line.
    pub(super) line: Vec<u8>,
    pub(super) started: bool,
    pub(super) ended: bool,
}

/// The descriptor, once the program has requested it.
#[derive(Default)]
pub struct Descriptors {
    pub(super) event: Option<OwnedFd>,
    pub(super) list: [c_int; 1],
}

impl Descriptors {
    /// Makes the descriptor readable.
    pub fn signal(&self) {
        if let Some(event) = &self.event {
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// Makes the descriptor unreadable: the program polls.
    #[inline]
    pub fn clear(&self) {
        if let Some(event) = &self.event {
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }
}

/// The state of tracing.
pub struct Tracing {
    /// Events whose entry and exit records were described to the tracer, as bits.
    pub(super) described: [i32; COUNT],
    pub(super) counts: [c_int; COUNT],
    pub(super) totals: [Duration; COUNT],
    /// The threads that execute a call, and its start.
    pub(super) inside: Vec<(usize, Instant)>,
    /// Records that were not sent yet.
    pub(super) gathered: Data,
}

impl Default for Tracing {
    fn default() -> Tracing {
        Tracing {
            described: [0; COUNT],
            counts: [0; COUNT],
            totals: [Duration::ZERO; COUNT],
            inside: Vec::new(),
            gathered: Data::default(),
        }
    }
}

/// Returns the time: seconds and microseconds since 1970.
pub fn clock() -> (i32, i32) {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() as i32, since.subsec_micros() as i32)
}
