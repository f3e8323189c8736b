//! The table of all environment variables of Nagaya: `nagaya info --env` prints it, nagaya-env(7)
//! explains it, and a test compares it with the variables that the sources read.

/// The source of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The user: it is a setting.
    User,
    /// Nagaya itself, for its tasks.
    Nagaya,
}

/// A variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The value that counts if it is not set; empty: none.
    pub default: &'static str,
    /// The unit of its value, or the possible values.
    pub unit: &'static str,
    /// Its effect.
    pub meaning: &'static str,
    /// The man page with the details.
    pub page: &'static str,
    /// The source of its value.
    pub origin: Origin,
}

/// A topic, and its variables.
pub type Group = (&'static str, &'static [Setting]);

/// All variables, by topic.
#[rustfmt::skip]
pub const GROUPS: &[Group] = &[
    ("Jobs and tasks", &[
        user("NAGAYA_JOB", "the launcher's job", "name",
            "the job that nagaya exec joins, if --job is not given", "nagaya-exec(1)"),
        user("NAGAYA_FALLBACK", "0", "0 or 1",
            "1: nagaya exec runs a program that cannot be a task as an ordinary process", "nagaya-exec(1)"),
        user("NAGAYA_TRANSPORT", "auto", "auto, copy, provider",
            "the path of an MPI's messages within a node", "nagaya-exec(1)"),
        user("NAGAYA_COLLECTIVES", "auto", "auto, inplace, mpi",
            "the executor of an MPI's collective operations", "nagaya-exec(1)"),
        user("NAGAYA_PROTECT", "0", "0, writes, all",
            "protects the memory of each task from the others", "nagaya-run(1)"),
        user("NAGAYA_FIXED_ADDRESSES", "0", "0 or 1",
            "1: spaces and programs have the same addresses in every run", "pvas(7)"),
        user("NAGAYA_KEEP_ACCESS", "0", "0 or 1",
            "1: tasks may give up rights, and keep access to the memory of the others", "pvas(7)"),
        user("NAGAYA_COPY", "by kind, or as measured", "string, vector, stream",
            "the loop that copies messages between tasks", "nagaya-tune(1)"),
        user("PVAS_SEGMENT_SIZE", "by the node's memory", "bytes, such as 32G",
            "the size of segments of new spaces", "nagaya-run(1)"),
        user("PVAS_SHARED", "0", "0 or 1",
            "1: the memory of tasks is shared memory, as domains need", "pvas_create_attr(3)"),
        user("NAGAYA_COLL_LOG", "", "any text",
            "libnagaya-coll.so reports the communicators that it serves", "nagaya-coll(7)"),
        ours("NAGAYA_TASK_ID", "", "number",
            "the ID of this task", "nagaya-run(1)"),
        ours("NAGAYA_TASKS", "", "number",
            "the number of tasks of this job", "nagaya-run(1)"),
        ours("NAGAYA_TRAFFIC_DIR", "", "directory",
            "where libnagaya-traffic.so writes the record of its rank; nagaya exec --report sets it", "nagaya-exec(1)"),
    ]),
    ("Waiting", &[
        user("NAGAYA_WAIT", "auto", "auto, spin, sleep",
            "how a process waits for another one", "nagaya-env(7)"),
        user("NAGAYA_WAIT_WAKE_US", "measured", "microseconds",
            "the time of a wake-up", "nagaya-env(7)"),
    ]),
    ("Messages of the command", &[
        user("NAGAYA_LOG", "warn", "error, warn, info, debug",
            "the messages on standard error; COMPONENT=LEVEL, behind a comma, for one component", "nagaya-env(7)"),
        user("NAGAYA_LOG_FILE", "standard error", "file",
            "the file to which these messages are appended; the only place for those of node servers", "nagaya-env(7)"),
        user("NAGAYA_PROGRESS", "1 on a terminal, else 0", "0 or 1",
            "1: commands that take longer than 2 s report their progress on standard error", "nagaya-env(7)"),
    ]),
    ("Several machines", &[
        user("NAGAYA_RSH", "ssh", "command",
            "the program that runs a command on another host", "nagaya-span(1)"),
        user("NAGAYA_NET", "local,tcp", "local, tcp, ucx",
            "the carriers of messages between nodes, the preferred one first", "nagaya-span(1)"),
        user("NAGAYA_NET_DEVICES", "all but loopback and bridges", "interfaces",
            "the network interfaces on which nodes listen", "nagaya-span(1)"),
        ours("NAGAYA_JOB_SOCKET", "", "path",
            "how tasks of nagaya run find each other", "nagaya-run(1)"),
        ours("NAGAYA_JOB_RANK", "", "number",
            "the number of this task in that job", "nagaya-run(1)"),
        ours("NAGAYA_JOB_SIZE", "", "number",
            "the number of tasks of that job", "nagaya-run(1)"),
        ours("NAGAYA_JOB_LOCAL_SIZE", "", "number",
            "the number of tasks of that job in this address space", "nagaya-run(1)"),
        ours("NAGAYA_JOB_OUTER", "", "text",
            "the launcher's job in which that job runs", "nagaya-run(1)"),
    ]),
    ("Shared memory between nodes", &[
        user("NAGAYA_DSM_PAGE", "8K", "bytes",
            "the size of a page, a multiple of 4K", "jia(7)"),
        user("NAGAYA_DSM_START", "0x580000000000", "address",
            "where shared memory begins, in every process", "jia(7)"),
        user("NAGAYA_DSM_MIGRATE", "0", "0 or 1",
            "1: a page that one node alone wrote moves there at a barrier", "jia(7)"),
        user("NAGAYA_DSM_ALONE", "1", "0 or 1",
            "1: pages that no other node has are written without notice", "jia(7)"),
        user("NAGAYA_DSM_CALLS", "1", "0 or 1",
            "0: system calls find no shared memory that is elsewhere; no rights are needed", "jia(7)"),
        user("NAGAYA_DSM_MESSAGES", "64M", "bytes",
            "messages sent to a task and not received, above which senders wait", "jia(7)"),
        user("NAGAYA_DSM_JOIN", "60", "seconds",
            "the time that a task waits for others that do not join; 0: for ever", "jia(7)"),
        user("NAGAYA_DSM_RIDES", "auto", "normal, ainori1, ainori2, ainori3, runs, auto",
            "the messages that carry other pages", "jia(7)"),
        user("NAGAYA_DSM_TIMEOUT", "20", "seconds",
            "the time after which a silent node is given up; 0: never", "jia(7)"),
        user("NAGAYA_DSM_STATISTICS", "", "1, or a prefix of files",
            "statistics at the end: printed, or in files", "jia(7)"),
        user("NAGAYA_DSM_REPORT", "", "prefix of files",
            "the files for nagaya dsm report", "nagaya-dsm(1)"),
        user("NAGAYA_DSM_RECORD", "", "directory",
            "where each node records its events", "jia(7)"),
    ]),
    ("OpenSHMEM", &[
        user("SHMEM_SYMMETRIC_SIZE", "1G", "bytes, such as 512M",
            "the size of the symmetric heap of each PE", "nagaya-shmem(7)"),
        user("SHMEM_INFO", "0", "0 or 1",
            "1: PE 0 prints these variables and their values", "nagaya-shmem(7)"),
        user("SHMEM_VERSION", "0", "0 or 1",
            "1: PE 0 prints the version of the library", "nagaya-shmem(7)"),
        user("SHMEM_DEBUG", "0", "0 or 1",
            "1: reports how the PEs reach each other", "nagaya-shmem(7)"),
        user("NAGAYA_CC", "cc", "command",
            "the compiler that oshcc runs", "nagaya-oshcc(1)"),
        user("NAGAYA_CXX", "c++", "command",
            "the compiler that oshc++ runs", "nagaya-oshcc(1)"),
        ours("NAGAYA_SHMEM_EXEC", "", "1",
            "the library has executed the program again by nagaya exec", "nagaya-shmem(7)"),
    ]),
    ("PVM", &[
        user("NAGAYA_PVM_PROTOCOL", "fcp2", "fcp, fcp-plus, fcp2",
            "the protocol of messages inside a host", "nagaya-pvmd(1)"),
        user("NAGAYA_PVM_SILENCE", "30", "seconds",
            "the time after which a silent host is lost", "nagaya-pvmd(1)"),
        user("PVM_VMID", "", "text",
            "the virtual machine, if a user has several", "nagaya-pvm(1)"),
        user("PVM_ROOT", "/usr/lib/pvm3", "directory",
            "the directory of PVM's programs", "nagaya-pvm(1)"),
        user("PVM_ARCH", "LINUX64", "text",
            "the name of this architecture in paths", "nagaya-pvm(1)"),
        user("PVM_PATH", "see the page", "directories",
            "where the daemon finds programs", "nagaya-pvm(1)"),
        user("PVM_WD", "the home directory", "directory",
            "the working directory of tasks", "nagaya-pvm(1)"),
        user("PVM_DEBUGGER", "$PVM_ROOT/lib/debugger", "program",
            "the debugger of tasks that are spawned with PvmTaskDebug", "nagaya-pvmd(1)"),
        user("PVM_EXPORT", "", "names",
            "the variables that spawned tasks inherit", "nagaya-pvm(1)"),
        user("PVM_RSH", "ssh", "command",
            "the program that runs a command on another host", "nagaya-pvmd(1)"),
        user("PVM_TMP", "/tmp", "directory",
            "the answer of pvm_gettmp", "nagaya-pvm(1)"),
        user("PVMTASK", "0", "bit mask",
            "options that pvm_spawn adds", "nagaya-pvm(1)"),
        user("PVMTASKDEBUG", "0", "bit mask",
            "the debug mask of the library", "nagaya-pvm(1)"),
        ours("PVMSOCK", "", "path",
            "the daemon's socket; the daemon sets it", "nagaya-pvm(1)"),
        ours("PVMEPID", "", "number",
            "the cookie of a spawned task; the daemon sets it", "nagaya-pvm(1)"),
        ours("PVMCTX", "", "number",
            "the message context; the daemon sets it", "nagaya-pvm(1)"),
        ours("PVMTMASK", "", "text",
            "the trace mask; the daemon sets it", "nagaya-pvm(1)"),
        ours("PVMTRCBUF", "", "bytes",
            "the trace buffer; the daemon sets it", "nagaya-pvm(1)"),
        ours("PVMTRCOPT", "", "number",
            "the trace options; the daemon sets it", "nagaya-pvm(1)"),
    ]),
];

const fn user(
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    meaning: &'static str,
    page: &'static str,
) -> Setting {
    Setting { name, default, unit, meaning, page, origin: Origin::User }
}

const fn ours(
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    meaning: &'static str,
    page: &'static str,
) -> Setting {
    Setting { name, default, unit, meaning, page, origin: Origin::Nagaya }
}

/// Returns all variables.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|(_, settings)| *settings)
}
