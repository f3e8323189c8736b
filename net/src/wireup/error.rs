//! Errors of wire-up.

use std::fmt;

/// The reason why wire-up failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireupError {
    /// No PMIx library is installed.
    Missing(&'static str),
    /// A call of PMIx failed.
    Pmix {
        /// The operation that failed.
        doing: &'static str,
        /// The reason that PMIx reports.
        why: &'static str,
    },
    /// PMIx returned a value of an unexpected type.
    Odd(&'static str),
    /// A request by PMI-1 failed.
    Pmi {
        /// The operation that failed.
        doing: &'static str,
        /// The reason.
        why: String,
    },
    /// The launcher started several processes without PMIx or PMI-1: see
    /// [`Started::Unformed`](crate::launcher::Started::Unformed).
    Unformed(String),
    /// Some processes did not contribute within the limit.
    Late(Late),
    /// A process ended before it contributed.
    Ended,
    /// This process ended before it joined the job.
    NeverCame(u32),
    /// `nagaya run` has started this process, and does not answer, or its variables are wrong.
    Run(String),
}

/// The processes that did not contribute in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Late {
    /// These ranks of this host. An empty list means ranks of other hosts.
    Ranks(Vec<u32>),
    /// The launcher does not report them.
    Unknown,
}

impl fmt::Display for WireupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(why) => f.write_str(why),
            Self::Pmix { doing, why } => write!(
                f,
                "PMIx cannot {doing}: {why}; is this process one of those that the launcher has \
                 started, and its launcher still there?"
            ),
            Self::Pmi { doing, why } => write!(
                f,
                "the launcher cannot {doing} by PMI: {why}; let each process that the launcher \
                 starts be one program that joins the job, once"
            ),
            Self::Unformed(line) => f.write_str(line),
            Self::Late(Late::Ranks(ranks)) => {
                write!(f, "processes {ranks:?} (none: of other hosts) have not come in time")
            }
            Self::Late(Late::Unknown) => f.write_str("some processes have not come in time"),
            Self::Ended => f.write_str("a process of this job has ended before all had come"),
            Self::NeverCame(rank) => write!(f, "process {rank} has ended before it joined the job"),
            Self::Run(line) => f.write_str(line),
            Self::Odd(what) => write!(
                f,
                "PMIx does not tell the {what}; the launcher's PMIx and PMIX_NAMESPACE do not agree"
            ),
        }
    }
}

impl std::error::Error for WireupError {}
