//! The numbers of `pvm3.h`, under its names. Error codes are in [`crate::error`].

macro_rules! numbers {
    ($($(#[$doc:meta])+ $name:ident = $value:expr;)+) => {
        $($(#[$doc])+ pub const $name: i32 = $value;)+
    };
}

numbers! {
    /// Encoding: XDR, which every machine reads.
    PvmDataDefault = 0;
    /// Encoding: the memory of the sender as it is; only machines like it read it.
    PvmDataRaw = 1;
    /// Encoding: as raw, and read from the sender's memory only when the message is sent.
    PvmDataInPlace = 2;
    /// Encoding of the messages that library and daemon exchange: the default.
    PvmDataFoo = PvmDataDefault;
    /// Encoding of a trace event that the user defines: XDR, with the type before each item.
    PvmDataTrace = 4;
}

numbers! {
    /// pvm_spawn: PVM chooses where.
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
    /// pvm_spawn: on hosts other than those that `where` says.
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
    /// Added to a kind: the notices wanted so far come now.
    PvmNotifyCancel = 256;
}

numbers! {
    /// Option: how messages travel, one of the next three.
    PvmRoute = 1;
    /// Route: through the daemons only.
    PvmDontRoute = 1;
    /// Route: direct if the other task asks for it.
    PvmAllowDirect = 2;
    /// Route: direct.
    PvmRouteDirect = 3;
    /// Option: what the library logs of itself, a bit each.
    PvmDebugMask = 2;
    /// Option: 0 keeps quiet about errors, 1 prints them, 2 ends the task, 3 aborts it.
    PvmAutoErr = 3;
    /// Option: the task that gets the children's standard output.
    PvmOutputTid = 4;
    /// Option: the tag of that output.
    PvmOutputCode = 5;
    /// Option: the task that gets the children's trace events.
    PvmTraceTid = 6;
    /// Option: the tag of those events.
    PvmTraceCode = 7;
    /// Option: bytes of trace events that children gather.
    PvmTraceBuffer = 8;
    /// Option: what children trace, one of the next three.
    PvmTraceOptions = 9;
    /// Tracing: whole events.
    PvmTraceFull = 1;
    /// Tracing: times only.
    PvmTraceTime = 2;
    /// Tracing: numbers of calls only.
    PvmTraceCount = 3;
    /// Option: bytes of a message fragment, headers included.
    PvmFragSize = 10;
    /// Option: whether tids and tags that PVM keeps for itself may be used.
    PvmResvTids = 11;
    /// Option: as [`PvmOutputTid`], for the task itself.
    PvmSelfOutputTid = 12;
    /// Option: as [`PvmOutputCode`], for the task itself.
    PvmSelfOutputCode = 13;
    /// Option: as [`PvmTraceTid`], for the task itself.
    PvmSelfTraceTid = 14;
    /// Option: as [`PvmTraceCode`], for the task itself.
    PvmSelfTraceCode = 15;
    /// Option: as [`PvmTraceBuffer`], for the task itself.
    PvmSelfTraceBuffer = 16;
    /// Option: as [`PvmTraceOptions`], for the task itself.
    PvmSelfTraceOptions = 17;
    /// Option: whether pvm_catchout says whose output it is.
    PvmShowTids = 18;
    /// Option: how a task waits in shared memory, one of the next two.
    PvmPollType = 19;
    /// Waiting: by looking.
    PvmPollConstant = 1;
    /// Waiting: by looking for a while, then asleep.
    PvmPollSleep = 2;
    /// Option: how long that while is.
    PvmPollTime = 20;
    /// Option: the context of the children's output.
    PvmOutputContext = 21;
    /// Option: the context of the children's trace events.
    PvmTraceContext = 22;
    /// Option: as [`PvmOutputContext`], for the task itself.
    PvmSelfOutputContext = 23;
    /// Option: as [`PvmTraceContext`], for the task itself.
    PvmSelfTraceContext = 24;
    /// Option: the task survives a reset of the virtual machine.
    PvmNoReset = 25;
}

numbers! {
    /// pvm_gettmask: of this task.
    PvmTaskSelf = 0;
    /// pvm_gettmask: of its children to come.
    PvmTaskChild = 1;
    /// The context of those who never ask for another.
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
    /// Mailbox: where among the flags an index begins that says which entry to write.
    PvmMboxDirectIndexShift = 10;
    /// Mailbox: such an index is below this.
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
/// Mailbox of the task that starts daemons.
pub const PVMHOSTERCLASS: &str = "###_PVM_HOSTER_###";
/// Mailbox of the tasks that start tasks.
pub const PVMTASKERCLASS: &str = "###_PVM_TASKER_###";
/// Mailbox of tracers.
pub const PVMTRACERCLASS: &str = "###_PVM_TRACER_###";
/// Mailbox of resource managers.
pub const PVMRMCLASS: &str = "###_PVM_RM_###";
