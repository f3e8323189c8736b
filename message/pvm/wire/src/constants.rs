//! The numbers of `pvm3.h`, under its names. Error codes are in [`crate::error`].

macro_rules! numbers {
    ($($(#[$doc:meta])+ $name:ident = $value:expr;)+) => {
        $($(#[$doc])+ pub const $name: i32 = $value;)+
    };
}

numbers! {
    /// Encoding: XDR, which every machine can read.
    PvmDataDefault = 0;
    /// Encoding: the sender's memory unchanged; only machines with the same data format can read
    /// it.
    PvmDataRaw = 1;
    /// Encoding: like raw, but the sender's memory is read only when the message is sent.
    PvmDataInPlace = 2;
    /// Encoding of the messages between library and daemon: the default.
    PvmDataFoo = PvmDataDefault;
    /// Encoding of a user-defined trace event: XDR, with the type before each item.
    PvmDataTrace = 4;
}

numbers! {
    /// pvm_spawn: PVM chooses the hosts.
    PvmTaskDefault = 0;
    /// pvm_spawn: `where` names a host.
    PvmTaskHost = 1;
    /// pvm_spawn: `where` names an architecture.
    PvmTaskArch = 2;
    /// pvm_spawn: under a debugger.
    PvmTaskDebug = 4;
    /// pvm_spawn: with tracing.
    PvmTaskTrace = 8;
    /// pvm_spawn: on the service node of a parallel machine.
    PvmMppFront = 16;
    /// pvm_spawn: on hosts other than those that `where` selects.
    PvmHostCompl = 32;
    /// pvm_spawn: the child's parent is not the caller.
    PvmNoSpawnParent = 64;
}

numbers! {
    /// pvm_notify: a task ends.
    PvmTaskExit = 1;
    /// pvm_notify: a host fails or is deleted.
    PvmHostDelete = 2;
    /// pvm_notify: hosts are added.
    PvmHostAdd = 3;
    /// pvm_notify: a direct route to a task opens.
    PvmRouteAdd = 4;
    /// pvm_notify: a direct route to a task closes.
    PvmRouteDelete = 5;
    /// Added to a kind: send the requested notices now.
    PvmNotifyCancel = 256;
}

numbers! {
    /// Option: the route of messages, one of the next three.
    PvmRoute = 1;
    /// Route: through the daemons only.
    PvmDontRoute = 1;
    /// Route: direct if the other task requests it.
    PvmAllowDirect = 2;
    /// Route: direct.
    PvmRouteDirect = 3;
    /// Option: the topics that the library logs, one bit each.
    PvmDebugMask = 2;
    /// Option: on errors, 0 prints nothing, 1 prints a message, 2 ends the task, 3 aborts it.
    PvmAutoErr = 3;
    /// Option: the task that gets the children's standard output.
    PvmOutputTid = 4;
    /// Option: the tag of that output.
    PvmOutputCode = 5;
    /// Option: the task that gets the children's trace events.
    PvmTraceTid = 6;
    /// Option: the tag of those events.
    PvmTraceCode = 7;
    /// Option: bytes of trace events that children batch.
    PvmTraceBuffer = 8;
    /// Option: the level of children's tracing, one of the next three.
    PvmTraceOptions = 9;
    /// Tracing: whole events.
    PvmTraceFull = 1;
    /// Tracing: times only.
    PvmTraceTime = 2;
    /// Tracing: number of calls only.
    PvmTraceCount = 3;
    /// Option: bytes of a message fragment, headers included.
    PvmFragSize = 10;
    /// Option: whether tids and tags reserved by PVM may be used.
    PvmResvTids = 11;
    /// Option: like [`PvmOutputTid`], for the task itself.
    PvmSelfOutputTid = 12;
    /// Option: like [`PvmOutputCode`], for the task itself.
    PvmSelfOutputCode = 13;
    /// Option: like [`PvmTraceTid`], for the task itself.
    PvmSelfTraceTid = 14;
    /// Option: like [`PvmTraceCode`], for the task itself.
    PvmSelfTraceCode = 15;
    /// Option: like [`PvmTraceBuffer`], for the task itself.
    PvmSelfTraceBuffer = 16;
    /// Option: like [`PvmTraceOptions`], for the task itself.
    PvmSelfTraceOptions = 17;
    /// Option: whether pvm_catchout prints the tid with each line of output.
    PvmShowTids = 18;
    /// Option: the wait policy in shared memory, one of the next two.
    PvmPollType = 19;
    /// Wait policy: poll.
    PvmPollConstant = 1;
    /// Wait policy: poll for a limited time, then sleep.
    PvmPollSleep = 2;
    /// Option: the time limit of polling.
    PvmPollTime = 20;
    /// Option: the context of the children's output.
    PvmOutputContext = 21;
    /// Option: the context of the children's trace events.
    PvmTraceContext = 22;
    /// Option: like [`PvmOutputContext`], for the task itself.
    PvmSelfOutputContext = 23;
    /// Option: like [`PvmTraceContext`], for the task itself.
    PvmSelfTraceContext = 24;
    /// Option: the task survives a reset of the virtual machine.
    PvmNoReset = 25;
}

numbers! {
    /// pvm_gettmask: the mask of this task.
    PvmTaskSelf = 0;
    /// pvm_gettmask: the mask of its future children.
    PvmTaskChild = 1;
    /// The initial context of tasks.
    PvmBaseContext = 0;
}

numbers! {
    /// Mailbox: one entry of the name, or the first.
    PvmMboxDefault = 0;
    /// Mailbox: the entry outlives its owner.
    PvmMboxPersistent = 1;
    /// Mailbox: the name may have several entries.
    PvmMboxMultiInstance = 2;
    /// Mailbox: others may overwrite the entry.
    PvmMboxOverWritable = 4;
    /// Mailbox: the first entry at or after the index.
    PvmMboxFirstAvail = 8;
    /// Mailbox: read and delete at once.
    PvmMboxReadAndDelete = 16;
    /// Mailbox: wait until there is an entry.
    PvmMboxWaitForInfo = 32;
    /// Mailbox: the largest flag.
    PvmMboxMaxFlag = 512;
    /// Mailbox: the bit position among the flags of the index of the entry to write.
    PvmMboxDirectIndexShift = 10;
    /// Mailbox: the limit of that index; it must be smaller.
    PvmMboxMaxDirectIndex = 1 << (31 - PvmMboxDirectIndexShift);
}

numbers! {
    /// Type for pvm_psend, pvm_precv, pvm_reduce, pvm_gather, pvm_scatter: a string.
    PVM_STR = 0;
    /// Type: bytes.
    PVM_BYTE = 1;
    /// Type: `short`.
    PVM_SHORT = 2;
    /// Type: `int`.
    PVM_INT = 3;
    /// Type: `float`.
    PVM_FLOAT = 4;
    /// Type: two `float`.
    PVM_CPLX = 5;
    /// Type: `double`.
    PVM_DOUBLE = 6;
    /// Type: two `double`.
    PVM_DCPLX = 7;
    /// Type: `long`.
    PVM_LONG = 8;
    /// Type: `unsigned short`.
    PVM_USHORT = 9;
    /// Type: `unsigned int`.
    PVM_UINT = 10;
    /// Type: `unsigned long`.
    PVM_ULONG = 11;
}

/// Mailbox of the tasks that survive a reset.
pub const PVMNORESETCLASS: &str = "###_PVM_NO_RESET_###";
/// Mailbox of the tasks that start daemons (hosters).
pub const PVMHOSTERCLASS: &str = "###_PVM_HOSTER_###";
/// Mailbox of the tasks that start tasks (taskers).
pub const PVMTASKERCLASS: &str = "###_PVM_TASKER_###";
/// Mailbox of tracers.
pub const PVMTRACERCLASS: &str = "###_PVM_TRACER_###";
/// Mailbox of resource managers.
pub const PVMRMCLASS: &str = "###_PVM_RM_###";
