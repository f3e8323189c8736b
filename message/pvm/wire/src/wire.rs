//! What tasks and their host's daemon say to each other.
//!
//! A task asks by its Unix socket: frames of a length (`u32`, little-endian) and a
//! [`Frame`] in postcard's encoding. The daemon answers into the task's receive buffer, as
//! all that comes to a task does, so that a task waits at one place: an
//! [`Envelope`](crate::envelope::Envelope) of [`What::Letter`](crate::envelope::What::Letter)
//! whose data is a [`Letter`]. Only the answer to [`Request::Enroll`] comes by the socket, as
//! a frame with a `Result<Welcome, i32>` (an error code of PVM), and with a [`Welcome`] the
//! window's descriptor (SCM_RIGHTS).
//!
//! Nobody is trusted: the daemon takes only connections of its own user (SO_PEERCRED), a task
//! only a daemon of its own user or of root; lengths are checked before memory is taken.

use serde::{Deserialize, Serialize};

use crate::tid::Tid;

/// Of this protocol. A daemon refuses others with `PvmBadVersion`.
pub const VERSION: u32 = 5;
/// Longest frame, in bytes: the longest message and its envelope.
pub const FRAME_MAX: usize = i32::MAX as usize;

/// A task's frame to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// By which the answer is known; 0 where none is wanted.
    pub id: u32,
    /// What the task wants.
    pub request: Request,
}

/// The daemon's letter to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Letter {
    /// The answer to the frame with this number: what it asked for, or an error code of PVM.
    Answer(u32, Result<Answer, i32>),
    /// Something that nobody asked for.
    News(News),
}

/// Where something goes that comes by itself, such as output of children: nowhere if the task
/// is [`Tid`] 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    /// To which task, or 0.
    pub tid: i32,
    /// In which context.
    pub context: i32,
    /// With which tag (PVM: code).
    pub tag: i32,
}

/// What children inherit (and pvm_setopt of a task's own: the `Self` options).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inheritance {
    /// Standard output and error.
    pub output: Sink,
    /// Trace events.
    pub trace: Sink,
    /// Bytes of trace events that are gathered.
    pub trace_buffer: i32,
    /// How events are traced.
    pub trace_options: i32,
    /// Which events are traced, as a trace mask's text.
    pub trace_mask: String,
    /// The context in which a child begins.
    pub context: i32,
}

/// pvm_spawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// The program, as given.
    pub file: String,
    /// The spawner's working directory, or empty if it is unknown. A relative `file` with a
    /// slash is looked for there first.
    pub directory: String,
    /// Its arguments, without its name.
    pub arguments: Vec<String>,
    /// `PvmTaskHost` and so on.
    pub flags: i32,
    /// Host, architecture or `.`; may hold `host:directory`.
    pub place: String,
    /// How many.
    pub count: u32,
    /// `NAME=value` of the variables that PVM_EXPORT names.
    pub environment: Vec<String>,
    /// What they inherit.
    pub inheritance: Inheritance,
}

/// A message in other hands than its sender's and receiver's: the daemon's, a mailbox's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// Envelope, fragment lengths and data, as in a receive buffer.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// What a task may want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// To be a task. First of all.
    Enroll {
        /// [`VERSION`].
        version: u32,
        /// The number in `PVMEPID`, by which the daemon knows a program that it started (it
        /// need not be its PID: a shell may be between).
        started_as: Option<u32>,
        /// The program's name, for ps.
        name: String,
    },
    /// To be one no longer (pvm_exit); answered when what it wanted is done.
    Exit,
    /// To send a message through the daemon (PvmDontRoute, and before a route is direct).
    Route(Parcel),
    /// The same of a long message: envelope and fragment lengths, and by which
    /// [terms](fcp::loan::Terms) its data are lent to the daemon.
    RouteLent(Parcel, [u8; fcp::loan::Terms::SIZE]),
    /// The address of another host's task on the fabric. Answered when it is known.
    Address(Tid),
    /// Where the fabric finds this task: from now on others may be told.
    Publish(#[serde(with = "serde_bytes")] Vec<u8>),
    /// pvm_spawn.
    Spawn(Spawn),
    /// pvm_kill (SIGTERM, then what it takes) and pvm_sendsig.
    Signal(Tid, i32),
    /// pvm_config.
    Config,
    /// pvm_addhosts: lines of a host file.
    AddHosts(Vec<String>),
    /// pvm_delhosts.
    DeleteHosts(Vec<String>),
    /// pvm_halt.
    Halt,
    /// pvm_mstat: the name of a host.
    HostStatus(String),
    /// pvm_pstat.
    TaskStatus(Tid),
    /// pvm_tasks: all (0), of a host (its daemon), or one.
    Tasks(Tid),
    /// pvm_notify.
    Notify {
        /// `PvmTaskExit` and so on, with `PvmNotifyCancel` or not.
        what: i32,
        /// In which context notices come.
        context: i32,
        /// With which tag.
        tag: i32,
        /// Of whom; of host notices that want a number (`PvmHostAdd`): `count`.
        tids: Vec<Tid>,
        /// How many notices, -1 without end.
        count: i32,
    },
    /// pvm_newcontext.
    NewContext,
    /// pvm_freecontext.
    FreeContext(i32),
    /// pvm_hostsync: the clock of a host.
    Clock(Tid),
    /// pvm_setopt of `PvmSelfOutput…`, `PvmSelfTrace…`: for the task itself.
    Inherit(Inheritance),
    /// pvm_setopt of `PvmNoReset`.
    NoReset(bool),
    /// pvm_getnoresets.
    NoResets,
    /// The console's `reset`: kills all tasks without `PvmNoReset`, and forgets mailboxes.
    Reset,
    /// A message's mailbox.
    Mailbox(MailboxRequest),
    /// A group.
    Group(GroupRequest),
    /// pvm_reg_hoster (true) and its end.
    Hoster(bool),
    /// pvm_reg_tasker (true) and its end.
    Tasker(bool),
    /// pvm_reg_rm: the task is resource manager of the virtual machine until it ends.
    ResourceManager,
    /// pvm_reg_tracer: what tasks get that nobody spawned; nothing at its end.
    Tracer(Option<Inheritance>),
    /// What a hoster, tasker or resource manager answers: the daemon's message, and its data.
    PlugIn(i32, Parcel),
    /// pvm_settmask of a task elsewhere, and debug masks: the console's `trace`, `tickle`.
    Tickle(Vec<i32>),
}

/// What is wanted of mailboxes (pvm_putinfo and its kind).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailboxRequest {
    /// pvm_putinfo.
    Put {
        /// The name.
        class: String,
        /// pvm_insert: exactly this entry, which there must not be yet; else -1.
        index: i32,
        /// `PvmMbox…`.
        flags: i32,
        /// What is kept.
        parcel: Parcel,
    },
    /// pvm_recvinfo.
    Get {
        /// The name.
        class: String,
        /// Which entry.
        index: i32,
        /// `PvmMbox…`.
        flags: i32,
    },
    /// pvm_delinfo.
    Delete {
        /// The name.
        class: String,
        /// Which entry.
        index: i32,
        /// `PvmMbox…`.
        flags: i32,
    },
    /// pvm_getmboxinfo: classes whose name fits the pattern.
    List(String),
}

/// What is wanted of groups (libgpvm3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupRequest {
    /// pvm_joingroup.
    Join(String),
    /// pvm_lvgroup.
    Leave(String),
    /// The members, and where the group's shared words are.
    Members(String),
    /// pvm_freezegroup.
    Freeze(String, i32),
    /// pvm_barrier where the group's [slot](crate::slots) does not do, with how many. Answered
    /// when all are there.
    Barrier(String, i32),
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// A number: a status, a context, an index, an instance.
    Number(i32),
    /// Of each of several, a tid or an error.
    Each(Vec<i32>),
    /// The virtual machine.
    Hosts(Vec<HostInfo>),
    /// Tasks.
    Tasks(Vec<TaskInfo>),
    /// Where the fabric finds a task.
    Address(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A host's clock: seconds and microseconds since 1970.
    Clock(i64, i32),
    /// What a mailbox held, and the entry's index.
    Entry(i32, Parcel),
    /// Mailboxes.
    Classes(Vec<ClassInfo>),
    /// A group.
    Group(GroupInfo),
    /// Of each task of a spawn, its tid or an error; and for each host that did not start
    /// some, a line that says why.
    Spawned(Vec<i32>, Vec<String>),
}

/// What comes to a task by itself, and is not a message for its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// Somebody elsewhere wants to send to this task directly: open the fabric, and publish.
    Open,
    /// A task has ended: routes to it and what waits for it go.
    Gone(Tid),
    /// A host is lost, with all its tasks.
    HostGone(u16),
    /// Trace mask, trace options or debug mask as the console wants them.
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
    /// Which.
    pub tid: Tid,
    /// Who spawned it, or 0.
    pub parent: Tid,
    /// Its host ([`Tid::of_host`]).
    pub host: Tid,
    /// Status bits, as PVM's ps shows them.
    pub flags: i32,
    /// Its program.
    pub name: String,
    /// Its PID there.
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
    /// The member of each instance; 0 where there is none.
    pub members: Vec<u32>,
    /// Another with each change, and in each group.
    pub version: u32,
    /// Whether it was static (pvm_freezegroup) and has lost a member: no call to all of its
    /// members is possible any more.
    pub dead: bool,
    /// Which of the window's [`slots`](crate::slots) is its, if there was one left.
    pub slot: Option<u16>,
}

/// The daemon's answer to [`Request::Enroll`], by the socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Who the task is.
    pub tid: Tid,
    /// Who spawned it: a tid, `PvmNoParent` or `PvmParentNotSet`.
    pub parent: i32,
    /// What it has inherited.
    pub inheritance: Inheritance,
    /// What proves to other hosts that a task is of this virtual machine.
    pub secret: [u8; 32],
    /// The number of the protocol by which messages go in the host's window.
    pub protocol: u8,
    /// Whether this host's tasks live in one space (`nagaya pvm --space`), those at least that
    /// the daemon starts and that can.
    pub space: bool,
    /// The resource manager, which it asks in the daemon's stead.
    pub manager: Option<Tid>,
}
