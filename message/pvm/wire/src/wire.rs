//! The protocol between tasks and their host's daemon.
//!
//! A task sends requests by its Unix socket: frames of a length (`u32`, little-endian) and a
//! [`Frame`] in postcard's encoding. The daemon answers into the task's receive buffer, so that
//! a task waits on a single object. The answer is an [`Envelope`](crate::envelope::Envelope) of
//! [`What::Control`](crate::envelope::What::Control) whose data is a [`Control`]. Only the answer
//! to [`Request::Enroll`] comes by the socket: a frame with a `Result<Welcome, i32>` (the error
//! is a code of PVM). A [`Welcome`] comes with the window's descriptor (SCM_RIGHTS).
//!
//! Neither side trusts the other. The daemon accepts only connections of its own user
//! (SO_PEERCRED), a task only a daemon of its own user or of root. Lengths are checked before
//! memory is allocated.

use serde::{Deserialize, Serialize};

use crate::tid::Tid;

/// Version of this protocol. A daemon refuses other versions with `PvmBadVersion`.
pub const VERSION: u32 = 5;
/// Longest frame, in bytes: the longest message and its envelope.
pub const FRAME_MAX: usize = i32::MAX as usize;

/// A task's frame to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Number that the answer repeats; 0 if the task wants no answer.
    pub id: u32,
    /// The request.
    pub request: Request,
}

/// A control message of the daemon to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// The answer to the frame with this number, or an error code of PVM.
    Answer(u32, Result<Answer, i32>),
    /// A notice without a request.
    Notice(Notice),
}

/// The receiver of messages that a task did not request itself, such as output of children.
/// There is no receiver if the tid is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// The receiving task, or 0.
    pub tid: i32,
    /// The context of the messages.
    pub context: i32,
    /// The tag of the messages (PVM: code).
    pub tag: i32,
}

/// Attributes that children inherit. pvm_setopt sets a task's own with the `Self` options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inheritance {
    /// Receiver of standard output and error.
    pub output: Sink,
    /// Receiver of trace events.
    pub trace: Sink,
    /// Bytes of trace events that are batched.
    pub trace_buffer: i32,
    /// Trace options, such as `PvmTraceFull`.
    pub trace_options: i32,
    /// The traced events, as the text of a trace mask.
    pub trace_mask: String,
    /// The initial context of a child.
    pub context: i32,
}

/// The arguments of pvm_spawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// The program, as given.
    pub file: String,
    /// The spawner's working directory, or empty if it is unknown. A relative `file` with a
    /// slash is searched there first.
    pub directory: String,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
    /// Flags, such as `PvmTaskHost`.
    pub flags: i32,
    /// Host, architecture or `.`; may have the form `host:directory`.
    pub place: String,
    /// The number of tasks.
    pub count: u32,
    /// `NAME=value` of each variable that PVM_EXPORT names.
    pub environment: Vec<String>,
    /// The attributes that the tasks inherit.
    pub inheritance: Inheritance,
}

/// A message held by the daemon or a mailbox, between sender and receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// Envelope, fragment lengths and data, as in a receive buffer.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// A task's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Become a task. The first request of a connection.
    Enroll {
        /// [`VERSION`].
        version: u32,
        /// The number in `PVMEPID`, by which the daemon recognizes a program that it started. It
        /// is not the PID, since a shell may start the program.
        started_as: Option<u32>,
        /// The program's name, for ps.
        name: String,
    },
    /// Stop being a task (pvm_exit). Answered once the earlier requests are executed.
    Exit,
    /// Send a message through the daemon: with PvmDontRoute, or before a direct route exists.
    Route(Parcel),
    /// Like `Route` for a long message: envelope and fragment lengths, and the
    /// [terms](fcp::loan::Terms) of the buffer that exposes its data to the daemon.
    RouteExposed(Parcel, [u8; fcp::loan::Terms::SIZE]),
    /// Return the fabric address of another host's task, once it is known.
    Address(Tid),
    /// Publish this task's fabric address, which other tasks may then get.
    Publish(#[serde(with = "serde_bytes")] Vec<u8>),
    /// pvm_spawn.
    Spawn(Spawn),
    /// pvm_sendsig, and pvm_kill (which sends SIGTERM).
    Signal(Tid, i32),
    /// pvm_config.
    Config,
    /// pvm_addhosts: lines of a host file.
    AddHosts(Vec<String>),
    /// pvm_delhosts.
    DeleteHosts(Vec<String>),
    /// pvm_halt.
    Halt,
    /// pvm_mstat of the host with this name.
    HostStatus(String),
    /// pvm_pstat.
    TaskStatus(Tid),
    /// pvm_tasks: all (0), those of a host (its daemon), or one.
    Tasks(Tid),
    /// pvm_notify.
    Notify {
        /// `PvmTaskExit` or another kind, possibly with `PvmNotifyCancel`.
        what: i32,
        /// The context of the notices.
        context: i32,
        /// The tag of the notices.
        tag: i32,
        /// The tasks or hosts; for `PvmHostAdd` empty, and `count` applies.
        tids: Vec<Tid>,
        /// Number of notices; -1 for no limit.
        count: i32,
    },
    /// pvm_newcontext.
    NewContext,
    /// pvm_freecontext.
    FreeContext(i32),
    /// pvm_hostsync: return the clock of a host.
    Clock(Tid),
    /// pvm_setopt of `PvmSelfOutput…` and `PvmSelfTrace…`: attributes of the task itself.
    Inherit(Inheritance),
    /// pvm_setopt of `PvmNoReset`.
    NoReset(bool),
    /// pvm_getnoresets.
    NoResets,
    /// The console's `reset`: kill all tasks without `PvmNoReset`, and delete mailboxes.
    Reset,
    /// A request on message mailboxes.
    Mailbox(MailboxRequest),
    /// A request on a group.
    Group(GroupRequest),
    /// pvm_reg_hoster: register (true) or unregister.
    Hoster(bool),
    /// pvm_reg_tasker: register (true) or unregister.
    Tasker(bool),
    /// pvm_reg_rm: make the task resource manager of the virtual machine until it ends.
    ResourceManager,
    /// pvm_reg_tracer: attributes of tasks without a tracer of their own; `None` to unregister.
    Tracer(Option<Inheritance>),
    /// A message of a hoster, tasker or resource manager to the daemon: tag and data.
    PlugIn(i32, Parcel),
    /// pvm_settmask of another task, and debug masks: the console's `trace` and `tickle`.
    Tickle(Vec<i32>),
}

/// A request on message mailboxes (pvm_putinfo and related calls).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailboxRequest {
    /// pvm_putinfo.
    Put {
        /// The name.
        class: String,
        /// For pvm_insert, the index of the new entry, which must not exist; otherwise -1.
        index: i32,
        /// `PvmMbox…` flags.
        flags: i32,
        /// The message to store.
        parcel: Parcel,
    },
    /// pvm_recvinfo.
    Get {
        /// The name.
        class: String,
        /// The entry's index.
        index: i32,
        /// `PvmMbox…` flags.
        flags: i32,
    },
    /// pvm_delinfo.
    Delete {
        /// The name.
        class: String,
        /// The entry's index.
        index: i32,
        /// `PvmMbox…` flags.
        flags: i32,
    },
    /// pvm_getmboxinfo: list the classes whose name matches the pattern.
    List(String),
}

/// A request on groups (libgpvm3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupRequest {
    /// pvm_joingroup.
    Join(String),
    /// pvm_lvgroup.
    Leave(String),
    /// Return the members and the slot of the group.
    Members(String),
    /// pvm_freezegroup.
    Freeze(String, i32),
    /// pvm_barrier with this count, if the group's [slot](crate::slots) cannot be used. Answered
    /// once all have arrived.
    Barrier(String, i32),
}

/// The daemon's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The request is executed.
    Done,
    /// A number: a status, a context, an index, an instance.
    Number(i32),
    /// For each item a tid or an error code.
    Each(Vec<i32>),
    /// The hosts of the virtual machine.
    Hosts(Vec<HostInfo>),
    /// Tasks.
    Tasks(Vec<TaskInfo>),
    /// The fabric address of a task.
    Address(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A host's clock: seconds and microseconds since 1970.
    Clock(i64, i32),
    /// The index and message of a mailbox entry.
    Entry(i32, Parcel),
    /// Mailboxes.
    Classes(Vec<ClassInfo>),
    /// A group.
    Group(GroupInfo),
    /// For each task of a spawn its tid or an error code. For each host that failed to start
    /// some, a line with the reason.
    Spawned(Vec<i32>, Vec<String>),
}

/// A notice to a task's library, without a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// A task of another host wants a direct route: open the fabric, and publish the address.
    Open,
    /// A task has ended: drop the routes to it and the messages that wait for it.
    Gone(Tid),
    /// A host is lost, with all its tasks.
    HostGone(u16),
    /// New trace mask, trace options or debug mask, set by the console.
    Tickle(Vec<i32>),
}

/// A host of the virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// The tid by which programs know it ([`Tid::of_host`]).
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// Its architecture, such as LINUX64.
    pub architecture: String,
    /// Its relative speed.
    pub speed: i32,
    /// Its data signature.
    pub signature: i32,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Its tid.
    pub tid: Tid,
    /// The tid of its parent, or 0.
    pub parent: Tid,
    /// Its host ([`Tid::of_host`]).
    pub host: Tid,
    /// Status bits, as PVM's ps shows them.
    pub flags: i32,
    /// Its program's name.
    pub name: String,
    /// Its PID on its host.
    pub pid: i32,
}

/// A class of mailboxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassInfo {
    /// Its name.
    pub name: String,
    /// Index, owner and flags of each entry.
    pub entries: Vec<(i32, Tid, i32)>,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// The member of each instance; 0 for a free instance.
    pub members: Vec<u32>,
    /// The version. It differs after each change and between groups.
    pub version: u32,
    /// True if it was static (pvm_freezegroup) and has lost a member. Collective calls fail
    /// then.
    pub dead: bool,
    /// Index of its slot among the window's [`slots`](crate::slots), if one was free.
    pub slot: Option<u16>,
}

/// The daemon's answer to [`Request::Enroll`], by the socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The tid of the task.
    pub tid: Tid,
    /// Its parent: a tid, `PvmNoParent` or `PvmParentNotSet`.
    pub parent: i32,
    /// Its inherited attributes.
    pub inheritance: Inheritance,
    /// The virtual machine's secret, which authenticates the task to other hosts.
    pub secret: [u8; 32],
    /// Number of the protocol for messages in the host's window.
    pub protocol: u8,
    /// True if tasks that this host's daemon starts share one address space, with
    /// `nagaya pvm --space`. Programs that cannot share it run as processes.
    pub space: bool,
    /// The resource manager, to which the task sends some requests instead of the daemon.
    pub manager: Option<Tid>,
}
