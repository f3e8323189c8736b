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

/// What a function returns instead of a result; mostly one of PVM's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

impl From<Error> for Code {
    fn from(error: Error) -> Code {
        Code(error.code())
    }
}

/// A function that says whether a message fits (pvm_recvf).
pub type Matcher = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;

/// All that the library remembers.
pub struct State {
    /// The task.
    pub task: Task,
    /// The program's matching function.
    pub matcher: Option<Matcher>,
    /// Handlers of a process that is no task.
    pub early_handlers: Handlers,
    /// pvm_setopt.
    pub options: Options,
    /// What its tracer is told.
    pub tracing: Tracing,
    /// Those whom the parent has spawned together with us, once it has told.
    pub siblings: Option<Vec<c_int>>,
    /// Roles that this task has taken over.
    pub roles: Roles,
    /// Direct routes.
    pub routes: Routes,
    /// Output of children.
    pub catchout: Option<Catchout>,
    /// What pvm_getfds gives.
    pub descriptors: Descriptors,
    /// What pvm_config gave.
    pub hosts: Hosts,
    /// What pvm_reg_rm gave.
    pub manager_host: Hosts,
    /// What pvm_tasks gave.
    pub tasks: Tasks,
    /// What pvm_getnoresets gave.
    pub no_resets: Vec<c_int>,
    /// What pvm_getmboxinfo gave.
    pub classes: Classes,
    /// Which thread receives; others wait until it has taken something in.
    pub(super) receiver: usize,
    /// Whose buffers are active, and those of other threads.
    pub thread: usize,
    pub(super) active: HashMap<usize, (c_int, c_int)>,
    pub(super) empty_looks: u32,
}

/// What this task is, with the index of its mailbox.
#[derive(Default)]
pub struct Roles {
    pub(super) hoster: Option<c_int>,
    pub(super) tasker: Option<c_int>,
    pub(super) manager: Option<c_int>,
    pub(super) tracer: Option<c_int>,
}

/// Direct routes, and who wants to know of them.
#[derive(Default)]
pub struct Routes {
    pub(super) open: HashSet<Tid>,
    /// The one that was used last.
    pub(super) last: Option<Tid>,
    /// Context, tag, and how many notices are left; -1 without end.
    pub(super) wanted: Vec<(c_int, c_int, c_int)>,
    /// Context, tag, and whose end is to be told.
    pub(super) wanted_ends: Vec<(c_int, c_int, Tid)>,
}

/// Output of children.
pub struct Catchout {
    pub(super) file: *mut libc::FILE,
    pub(super) children: BTreeMap<c_int, Child>,
    pub(super) handlers: [c_int; 2],
}

/// A child whose output comes.
#[derive(Default)]
pub struct Child {
    /// A line that has begun.
    pub(super) line: Vec<u8>,
    pub(super) started: bool,
    pub(super) ended: bool,
}

/// The descriptor, once somebody has asked for it.
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

/// What is remembered of calls.
pub struct Tracing {
    /// Of which events entry and exit have been described.
    pub(super) described: [i32; COUNT],
    pub(super) counts: [c_int; COUNT],
    pub(super) totals: [Duration; COUNT],
    /// The threads that are in a call, and since when.
    pub(super) inside: Vec<(usize, Instant)>,
    /// Records that have not been sent yet.
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

/// The time: seconds and microseconds since 1970.
pub fn clock() -> (i32, i32) {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() as i32, since.subsec_micros() as i32)
}
