//! Tags and contexts of the messages that stock PVM's library and daemons exchange. Plug-ins use
//! them, too: hosters, taskers, resource managers, tracers.

/// A tag family: its first tag, and the names of the consecutive tags.
type Family = (u32, &'static [&'static str]);

const TASK_TO_DAEMON: Family = (
    0x8001_0001,
    &[
        "TM_CONNECT",
        "TM_CONN2",
        "TM_EXIT",
        "TM_ADDHOST",
        "TM_DELHOST",
        "TM_CONFIG",
        "TM_MSTAT",
        "TM_HALT",
        "TM_TICKLE",
        "TM_SPAWN",
        "TM_PSTAT",
        "TM_SENDSIG",
        "TM_TASK",
        "TM_MCA",
        "TM_NOTIFY",
        "TM_DB",
        "TM_SCHED",
        "TM_TASKER",
        "TM_HOSTER",
        "TM_TRACER",
        "TM_HOSTSYNC",
        "TM_SETOPT",
        "TM_GETOPT",
        "TM_CONTEXT",
        "TM_SHMCONN",
    ],
);
const DAEMON_TO_DAEMON: Family = (
    0x8002_0001,
    &[
        "DM_ADD",
        "DM_ADDACK",
        "DM_EXEC",
        "DM_EXECACK",
        "DM_SENDSIG",
        "DM_HTUPD",
        "DM_HTUPDACK",
        "DM_HTCOMMIT",
        "DM_SLCONF",
        "DM_STARTACK",
        "DM_TASK",
        "DM_TASKACK",
        "DM_DELHOST",
        "DM_DELHOSTACK",
        "DM_NULL",
        "DM_TASKOUT",
        "DM_PSTAT",
        "DM_PSTATACK",
        "DM_HALT",
        "DM_MCA",
        "DM_NOTIFY",
        "DM_NOTIFYACK",
        "DM_DB",
        "DM_DBACK",
        "DM_RESET",
        "DM_RESETACK",
        "DM_HTDEL",
        "DM_HOSTSYNC",
        "DM_HOSTSYNCACK",
    ],
);
const TASK_CONTROL: Family = (
    0x8003_0001,
    &[
        "TC_CONREQ",
        "TC_CONACK",
        "TC_TASKEXIT",
        "TC_NOOP",
        "TC_OUTPUT",
        "TC_SETTRACE",
        "TC_SETTMASK",
        "TC_SETTRCBUF",
        "TC_SETTRCOPT",
        "TC_SHMAT",
        "TC_OUTPUTX",
        "TC_SIBLINGS",
    ],
);
const PLUG_IN: Family = (
    0x8004_0001,
    &[
        "SM_SPAWN",
        "SM_EXEC",
        "SM_EXECACK",
        "SM_TASK",
        "SM_CONFIG",
        "SM_ADDHOST",
        "SM_DELHOST",
        "SM_ADD",
        "SM_ADDACK",
        "SM_NOTIFY",
        "SM_TASKX",
        "SM_HOSTX",
        "SM_HANDOFF",
        "SM_SCHED",
        "SM_STHOST",
        "SM_STHOSTACK",
        "SM_STTASK",
    ],
);

/// The context of task control.
pub const SYSCTX_TC: i32 = 0x7_ffff;
/// The context of requests from tasks to daemons.
pub const SYSCTX_TM: i32 = 0x7_fffe;
/// The context of messages between group members in pvm_gather and related calls.
pub const SYSCTX_DG: i32 = 0x7_fffc;

macro_rules! tags {
    ($($(#[$doc:meta])+ $name:ident = $value:expr;)+) => {
        $($(#[$doc])+ pub const $name: i32 = $value as u32 as i32;)+
    };
}

tags! {
    /// Requests a direct route.
    TC_CONREQ = 0x8003_0001u32;
    /// Answers a request for a direct route.
    TC_CONACK = 0x8003_0002u32;
    /// A task with a direct route has ended.
    TC_TASKEXIT = 0x8003_0003u32;
    /// Has no effect.
    TC_NOOP = 0x8003_0004u32;
    /// A child's output: its tid, a length (or a code such as [`TO_EOF`]), bytes.
    TC_OUTPUT = 0x8003_0005u32;
    /// Sets the task's tracing and output.
    TC_SETTRACE = 0x8003_0006u32;
    /// Sets the trace mask.
    TC_SETTMASK = 0x8003_0007u32;
    /// Sets the bytes of trace events that are batched.
    TC_SETTRCBUF = 0x8003_0008u32;
    /// Sets the trace options.
    TC_SETTRCOPT = 0x8003_0009u32;
    /// The task itself ends, and so does its children's output.
    TC_OUTPUTX = 0x8003_000bu32;
    /// The tasks that were spawned together.
    TC_SIBLINGS = 0x8003_000cu32;
    /// To the resource manager: pvm_spawn.
    SM_SPAWN = 0x8004_0001u32;
    /// From the resource manager: start tasks.
    SM_EXEC = 0x8004_0002u32;
    /// To the resource manager: these tasks have been started, or have enrolled.
    SM_EXECACK = 0x8004_0003u32;
    /// To the resource manager: pvm_tasks.
    SM_TASK = 0x8004_0004u32;
    /// To the resource manager: pvm_config.
    SM_CONFIG = 0x8004_0005u32;
    /// To the resource manager: pvm_addhosts.
    SM_ADDHOST = 0x8004_0006u32;
    /// To the resource manager: pvm_delhosts.
    SM_DELHOST = 0x8004_0007u32;
    /// From the resource manager: add hosts.
    SM_ADD = 0x8004_0008u32;
    /// To the resource manager: these hosts have been added.
    SM_ADDACK = 0x8004_0009u32;
    /// To the resource manager: pvm_notify.
    SM_NOTIFY = 0x8004_000au32;
    /// From a tasker and to the resource manager: a task has ended.
    SM_TASKX = 0x8004_000bu32;
    /// To the resource manager: a host has ended.
    SM_HOSTX = 0x8004_000cu32;
    /// From the resource manager: another task takes its role.
    SM_HANDOFF = 0x8004_000du32;
    /// To the resource manager: pvm_reg_rm.
    SM_SCHED = 0x8004_000eu32;
    /// To a hoster: start daemons.
    SM_STHOST = 0x8004_000fu32;
    /// From a hoster: the results.
    SM_STHOSTACK = 0x8004_0010u32;
    /// To a tasker: start a task.
    SM_STTASK = 0x8004_0011u32;
}

/// In place of a length of output: the output has ended.
pub const TO_EOF: i32 = 0;
/// In place of a length of output: the task has been spawned.
pub const TO_SPAWN: i32 = -1;
/// In place of a length of output: the task is new.
pub const TO_NEW: i32 = -2;

/// Returns the name of a tag.
pub fn tag_name(tag: i32) -> Option<&'static str> {
    let families = [TASK_TO_DAEMON, DAEMON_TO_DAEMON, TASK_CONTROL, PLUG_IN];
    families
        .iter()
        .find_map(|(first, names)| names.get((tag as u32).checked_sub(*first)? as usize).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_the_names_that_pvmproto_gives_them() {
        assert_eq!(tag_name(TC_SIBLINGS), Some("TC_SIBLINGS"));
        assert_eq!(tag_name(SM_SCHED), Some("SM_SCHED"));
        assert_eq!(tag_name(SM_ADDACK), Some("SM_ADDACK"));
        assert_eq!(tag_name(SM_HANDOFF), Some("SM_HANDOFF"));
        assert_eq!(tag_name(SM_STTASK), Some("SM_STTASK"));
        assert_eq!(tag_name(TC_OUTPUT), Some("TC_OUTPUT"));
        assert_eq!(tag_name(0x8001_0010u32 as i32), Some("TM_DB"));
        assert_eq!(tag_name(0x8001_001au32 as i32), None);
        assert_eq!(tag_name(7), None);
    }
}
