//! Tags and contexts that stock PVM's library and daemons use among themselves. Those who
//! take a part of that over know them, too: hosters, taskers, resource managers, tracers.

/// A tag's family: its first tag, and names from there on.
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
/// The context of what tasks ask of daemons.
pub const SYSCTX_TM: i32 = 0x7_fffe;
/// The context of what members of a group send in pvm_gather and its kind.
pub const SYSCTX_DG: i32 = 0x7_fffc;

macro_rules! tags {
    ($($(#[$doc:meta])+ $name:ident = $value:expr;)+) => {
        $($(#[$doc])+ pub const $name: i32 = $value as u32 as i32;)+
    };
}

tags! {
    /// Wants a direct route.
    TC_CONREQ = 0x8003_0001u32;
    /// Answers who wants one.
    TC_CONACK = 0x8003_0002u32;
    /// A task with a direct route has ended.
    TC_TASKEXIT = 0x8003_0003u32;
    /// Does nothing.
    TC_NOOP = 0x8003_0004u32;
    /// A child's output: its tid, a length (or [`TO_EOF`] and so on), bytes.
    TC_OUTPUT = 0x8003_0005u32;
    /// Tracing and output of the task change.
    TC_SETTRACE = 0x8003_0006u32;
    /// The trace mask changes.
    TC_SETTMASK = 0x8003_0007u32;
    /// How many bytes of trace events are gathered.
    TC_SETTRCBUF = 0x8003_0008u32;
    /// How events are traced.
    TC_SETTRCOPT = 0x8003_0009u32;
    /// The task itself ends, and with it its children's output.
    TC_OUTPUTX = 0x8003_000bu32;
    /// Who has been spawned together.
    TC_SIBLINGS = 0x8003_000cu32;
    /// To the resource manager: pvm_spawn.
    SM_SPAWN = 0x8004_0001u32;
    /// From the resource manager: start tasks.
    SM_EXEC = 0x8004_0002u32;
    /// To the resource manager: these tasks are started, or have come.
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
    /// To the resource manager: these hosts are added.
    SM_ADDACK = 0x8004_0009u32;
    /// To the resource manager: pvm_notify.
    SM_NOTIFY = 0x8004_000au32;
    /// From a tasker and to the resource manager: a task has ended.
    SM_TASKX = 0x8004_000bu32;
    /// To the resource manager: a host has gone.
    SM_HOSTX = 0x8004_000cu32;
    /// From the resource manager: another is one in its place.
    SM_HANDOFF = 0x8004_000du32;
    /// To the resource manager: pvm_reg_rm.
    SM_SCHED = 0x8004_000eu32;
    /// To a hoster: start daemons.
    SM_STHOST = 0x8004_000fu32;
    /// From it: what came of that.
    SM_STHOSTACK = 0x8004_0010u32;
    /// To a tasker: start a task.
    SM_STTASK = 0x8004_0011u32;
}

/// In place of a length of output: there is no more.
pub const TO_EOF: i32 = 0;
/// In place of a length of output: the task has been started.
pub const TO_SPAWN: i32 = -1;
/// In place of a length of output: the task is there.
pub const TO_NEW: i32 = -2;

/// The name of such a tag.
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
