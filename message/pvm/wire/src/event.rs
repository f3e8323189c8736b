//! Trace events that tasks and daemons send to a tracer (`pvmtev.h`), and their encoding.
//!
//! A record has the event's number, the time, the task and a list of values. All are packed in
//! XDR, as by pvm_pkint and related calls. A sender's first record of an event *describes* the
//! event: before each value come its identifier and its type. Later records have only the
//! values. A tracer gets the meaning of the identifiers from [`identifiers`].

use crate::parcel::Data;
use mark::*;

/// Markers before and after each part of a message to a tracer.
#[allow(missing_docs)]
pub mod mark {
    pub const BUFFER: i32 = -1;
    pub const BUFFER_END: i32 = -2;
    pub const IDENTIFIERS: i32 = -3;
    pub const IDENTIFIERS_END: i32 = -4;
    pub const DESCRIPTION: i32 = -5;
    pub const DESCRIPTION_END: i32 = -6;
    pub const RECORD: i32 = -7;
    pub const RECORD_END: i32 = -8;
    /// Marker of a user-defined record.
    pub const USER_RECORD: i32 = -9;
    pub const USER_RECORD_END: i32 = -10;
}

/// Flag in a type: an array, preceded by its count.
pub const ARRAY: i32 = 0x80;
const INT: i32 = 6;
const LONG: i32 = 8;
const STRING: i32 = 12;

macro_rules! events {
    ($($name:ident)+) => {
        /// The kind of an event: a call of `pvm3.h`, or another event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(non_camel_case_types, missing_docs, clippy::upper_case_acronyms)]
        #[repr(i32)]
        pub enum Event { $($name),+ }

        /// All events, by number.
        pub const EVENTS: &[Event] = &[$(Event::$name),+];
        const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

events! {
    ADDHOSTS BARRIER BCAST BUFINFO CONFIG DELETE DELHOSTS EXIT FREEBUF GETFDS GETINST GETOPT
    GETRBUF GETSBUF GETTID GSIZE HALT INITSEND INSERT JOINGROUP KILL LOOKUP LVGROUP MCAST MKBUF
    MSTAT MYTID NOTIFY NRECV PARENT PERROR PKBYTE PKCPLX PKDCPLX PKDOUBLE PKFLOAT PKINT PKUINT
    PKLONG PKULONG PKSHORT PKUSHORT PKSTR PROBE PSTAT RECV RECVF SEND SENDSIG SETOPT SETRBUF
    SETSBUF SPAWN START_PVMD TASKS TICKLE TIDTOHOST TRECV UPKBYTE UPKCPLX UPKDCPLX UPKDOUBLE
    UPKFLOAT UPKINT UPKUINT UPKLONG UPKULONG UPKSHORT UPKUSHORT UPKSTR VERSION REG_HOSTER
    REG_RM REG_TASKER REG_TRACER NEWTASK ENDTASK SPNTASK ARCHCODE CATCHOUT GETMWID GETTMASK
    HOSTSYNC PACKF PRECV PSEND REDUCE SETMWID SETTMASK UNPACKF GATHER SCATTER PUTINFO GETINFO
    DELINFO GETMBOXINFO NEWCONTEXT FREECONTEXT SETCONTEXT GETCONTEXT SIBLINGS GETMINFO SETMINFO
    ADDMHF DELMHF MHF_INVOKE TIMING PROFILING USER_DEFINED
}

impl Event {
    /// Returns the event's name in descriptions.
    pub fn name(self) -> String {
        NAMES[self as usize].to_lowercase()
    }
}

/// The number of events.
pub const COUNT: usize = EVENTS.len();

/// The phase of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Phase {
    /// The event is not a call.
    Moment = 0,
    /// The call begins.
    Entry = 0x4000,
    /// The call ends.
    Exit = 0x8000,
}

macro_rules! identifiers {
    ($($name:ident = $meaning:literal;)+) => {
        /// The identifier of a value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::upper_case_acronyms)]
        #[repr(i32)]
        pub enum Id {
            $(#[doc = $meaning] $name),+
        }

        /// All identifiers, by number.
        pub const IDS: &[Id] = &[$(Id::$name),+];
        const MEANINGS: &[(&str, &str)] = &[$((stringify!($name), $meaning)),+];
    };
}

identifiers! {
    AN = "PVM Architecture Name";
    AC = "PVM Architecture Code";
    AS = "Argument Strings (Argc/Argv)";
    BF = "Block Flag";
    CC = "Condition Code";
    CN = "Class Name";
    CI = "Class Index";
    CF = "Class Flags";
    CD = "Class Data";
    CR = "Returned Class Data";
    CL = "Returned Class Names";
    CDA = "Collective Data Address";
    CDT = "Collective Data Type";
    CDX = "Collective Data";
    CDC = "Collective Count";
    CGI = "Collective Group Result Instance";
    CRF = "Collective Reduce Function";
    CXC = "Current Message Context";
    CXF = "Freed Message Context";
    CXN = "New Message Context";
    CXS = "Set Message Context";
    ERI = "PVM Error Identifier";
    ERR = "PVM Error String";
    FDS = "File Descriptors";
    FP = "File Pointer";
    GN = "Group Name";
    GI = "Group Instance Number";
    GT = "Group Task ID";
    GS = "Group Size";
    GBC = "Group Barrier Count";
    HN = "Host Name";
    HNL = "Host Name List";
    HNA = "Host Name Alias";
    HPT = "Host PVMD Task ID";
    HA = "Host Architecture";
    HSP = "Host Speed";
    HIS = "Host Information Structures";
    HCS = "Host Clock Seconds";
    HCU = "Host Clock Microseconds";
    HDS = "Host Delta Seconds";
    HDU = "Host Delta Microseconds";
    HS = "Host Status";
    INB = "Info Number of Message Bytes";
    IMC = "Info Message Code";
    IST = "Info Message Source Task";
    MC = "Message Code";
    MCX = "Message Context";
    MB = "Message Buffer";
    MNB = "Message Number of Bytes";
    SRC = "Message Source Task ID";
    DST = "Message Destination Task ID";
    MDL = "Message Destination Task ID List";
    MTS = "Message Timeout Seconds";
    MTU = "Message Timeout Microseconds";
    MRF = "Message Receive Function";
    MRB = "Message Receive Buffer";
    MSB = "Message Send Buffer";
    ME = "Message Encoding";
    MHI = "Message Handler Index";
    AST = "Actual Message Sender Task ID";
    AMC = "Actual Message Code";
    AML = "Actual Message Length";
    NE = "Notify Event ID";
    NMC = "Notify Message Code";
    NCT = "Notify Count";
    NTL = "Notify Task ID List";
    NH = "Number of Hosts";
    NA = "Number of Architectures";
    OPT = "PVM Option ID";
    OPV = "PVM Option Value";
    OS = "Output String";
    PDA = "Pack Data Address";
    PDT = "Pack Data Type";
    PC = "Pack Count";
    PSD = "Pack Stride";
    PSG = "Pack String";
    PF = "Pack Format";
    PRF = "Profiling Count";
    RST = "Receive Msg Source Task / Wildcard";
    RMC = "Receive Msg Code / Wildcard";
    RCX = "Receive Msg Context";
    SN = "Signal Number";
    SE = "Spawn Executable File";
    SF = "Spawn Flags";
    SW = "Spawn Where";
    SC = "Spawn Count";
    STL = "Spawned Task ID List";
    SIB = "Sibling Task ID List";
    TID = "Task ID";
    PT = "Parent Task ID";
    MT = "My Task ID";
    TF = "Task Flags";
    TN = "Task Name";
    PID = "Task Process ID";
    TT = "Target Task ID";
    TW = "Tasks Where";
    TIS = "Task Information Structures";
    TNT = "Task Info - Number of Tasks";
    TST = "Task Status";
    TUS = "Task User Usage Seconds";
    TUU = "Task User Usage Microseconds";
    TSS = "Task System Usage Seconds";
    TSU = "Task System Usage Microseconds";
    TES = "Task Exit Status";
    TA = "Tickle Arguments";
    TR = "Tickle Responses";
    TS = "Time Seconds";
    TU = "Time Microseconds";
    TGS = "Timing Seconds";
    TGU = "Timing Microseconds";
    TMW = "Trace Mask Who";
    TM = "Trace Mask";
    TRC = "Tracer Message Trace Context";
    TRT = "Tracer Message Trace Tag";
    TRX = "Tracer Message Output Context";
    TRO = "Tracer Message Output Tag";
    TRM = "Tracer Trace Mask";
    TRB = "Tracer Trace Buffering";
    TRL = "Tracer Trace Options";
    VER = "PVM Version";
    VCT = "Trace Event Count";
    VID = "Trace Event ID";
    WID = "Wait Identifier Number";
}

/// Returns the name and the meaning of an identifier.
pub fn meaning(identifier: i32) -> Option<(&'static str, &'static str)> {
    MEANINGS.get(usize::try_from(identifier).ok()?).copied()
}

/// Returns the names and meanings of all identifiers. Each sender's first message to a tracer
/// has them.
pub fn identifiers() -> Data {
    let data = Data::default().int(IDENTIFIERS);
    let each = MEANINGS.iter().zip(0..);
    let data = each.fold(data, |data, ((name, meaning), number)| {
        data.int(number).string(name).string(meaning)
    });
    data.int(IDENTIFIERS_END)
}

/// Starts a buffer of records, for tracers that want several records per message.
pub fn buffer() -> Data {
    Data::default().int(BUFFER)
}

/// Ends a buffer of records.
pub fn buffer_end(data: Data) -> Data {
    data.int(BUFFER_END)
}

/// A record under construction.
#[derive(Debug)]
pub struct Record {
    data: Data,
    described: bool,
}

impl Record {
    /// Starts a record behind `data`, of task `tid` at `time` (seconds and microseconds since
    /// 1970).
    pub fn new(
        data: Data,
        (event, phase): (Event, Phase),
        described: bool,
        (seconds, microseconds): (i32, i32),
        tid: i32,
    ) -> Record {
        let number = event as i32 | phase as i32;
        let data = match described {
            true => data.int(DESCRIPTION).int(number).string(&event.name()),
            false => data.int(RECORD).int(number),
        };
        let mut record = Record { data, described };
        record.int(Id::TS, seconds).int(Id::TU, microseconds).int(Id::TID, tid);
        record
    }

    /// Ends the record. Returns it with the data before it.
    pub fn end(self) -> Data {
        self.data.int(if self.described { DESCRIPTION_END } else { RECORD_END })
    }

    fn put(&mut self, put: impl FnOnce(Data) -> Data) {
        self.data = put(std::mem::take(&mut self.data));
    }

    fn describe(&mut self, id: Id, kind: i32) {
        if self.described {
            self.put(|data| data.int(id as i32).int(kind));
        }
    }

    /// Appends a number.
    pub fn int(&mut self, id: Id, value: i32) -> &mut Record {
        self.describe(id, INT);
        self.put(|data| data.int(value));
        self
    }

    /// Appends an address, as a long in XDR: its lower half.
    pub fn address<T: ?Sized>(&mut self, id: Id, value: *const T) -> &mut Record {
        self.describe(id, LONG);
        self.put(|data| data.int(value.cast::<u8>() as usize as i32));
        self
    }

    /// Appends a string.
    pub fn string(&mut self, id: Id, value: &str) -> &mut Record {
        self.describe(id, STRING);
        self.put(|data| data.string(value));
        self
    }

    /// Appends an array of numbers.
    pub fn ints(&mut self, id: Id, values: &[i32]) -> &mut Record {
        self.describe(id, INT | ARRAY);
        self.put(|data| values.iter().fold(data.int(values.len() as i32), |data, n| data.int(*n)));
        self
    }

    /// Appends an array of strings.
    pub fn strings<S: AsRef<str>>(&mut self, id: Id, values: &[S]) -> &mut Record {
        self.describe(id, STRING | ARRAY);
        self.put(|data| {
            let data = data.int(values.len() as i32);
            values.iter().fold(data, |data, value| data.string(value.as_ref()))
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parcel::Reader;
    use crate::tid::Tid;

    fn words(data: Data) -> Vec<i32> {
        let bytes = data.parcel(Tid(1));
        let mut reader = Reader::new(&bytes).expect("a message");
        std::iter::from_fn(|| reader.int().ok()).collect()
    }

    #[test]
    fn a_description_has_identifiers_and_types() {
        let call = (Event::PSTAT, Phase::Exit);
        let mut record = Record::new(Data::default(), call, true, (7, 8), 9);
        record.int(Id::TST, -31);
        let name = [0x7073_7461, 0x7400_0000];
        let expected = [-5, 0x8000 + 44, 6, name[0], name[1], 106, 6, 7, 107, 6, 8, 88, 6, 9];
        assert_eq!(words(record.end()), [&expected[..], &[98, 6, -31, -6]].concat());
    }

    #[test]
    fn a_record_has_values_alone() {
        let call = (Event::TICKLE, Phase::Entry);
        let mut record = Record::new(buffer(), call, false, (7, 8), 9);
        record.ints(Id::TA, &[5, 0]);
        let data = buffer_end(record.end());
        assert_eq!(words(data), [-1, -7, 0x4000 + 55, 7, 8, 9, 2, 5, 0, -8, -2]);
    }

    #[test]
    fn names_are_those_of_the_header() {
        assert_eq!(Event::ADDHOSTS.name(), "addhosts");
        assert_eq!((Event::USER_DEFINED as usize, COUNT), (108, 109));
        assert_eq!(Event::USER_DEFINED.name(), "user_defined");
        assert_eq!((Id::WID as i32, MEANINGS[122]), (122, ("WID", "Wait Identifier Number")));
    }
}
