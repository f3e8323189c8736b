//! How the processes of a parallel job find each other: each gives some bytes, such as its
//! fabric's address, and gets everybody's.
//!
//! For processes that a launcher with PMIx has started (mpirun and prterun of Open MPI and
//! PRRTE, `srun --mpi=pmix`), or one with PMI-1 (mpirun of MPICH, mpiexec of Intel MPI, other
//! launchers made of Hydra, `srun --mpi=pmi2`, Flux).
//!
//! ```no_run
//! use net::{fabric::Fabric, secret::Secret, wireup::Wireup};
//!
//! if let Some(mut wireup) = Wireup::new()? {
//!     // The first process's secret is everybody's. The launcher hands it to this job only.
//!     let secrets = wireup.exchange(Secret::random().bytes(), None)?;
//!     let secret = Secret::new(secrets[0][..].try_into()?);
//!     let fabric = Fabric::new(wireup.rank().into(), &secret)?;
//!     let addresses = wireup.exchange(fabric.address(), None)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::time::Duration;

use crate::launcher::Started;
use crate::pmi_client::PmiClient;
use crate::pmix_client::PmixClient;

/// This process among those of its job. One a process; dropped, it leaves.
pub struct Wireup {
    by: By,
}

enum By {
    Pmix(PmixClient),
    Pmi(PmiClient),
}

/// Why it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireupError {
    /// No PMIx here.
    Missing(&'static str),
    /// PMIx refuses.
    Pmix {
        /// What was tried.
        doing: &'static str,
        /// PMIx's word for why.
        why: &'static str,
    },
    /// PMIx returned a value of another type than agreed.
    Odd(&'static str),
    /// The launcher does not do what is asked of it by PMI-1.
    Pmi {
        /// What was tried.
        doing: &'static str,
        /// What happened.
        why: String,
    },
    /// This process is one of several that cannot find each other: see [`Started::Unformed`].
    Unformed(String),
    /// Processes have not given anything within the limit.
    Late(Late),
    /// A process has ended, and the others need not wait for it.
    Ended,
}

/// Which processes have not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Late {
    /// These of this host; if none, some of other hosts.
    Ranks(Vec<u32>),
    /// The launcher cannot tell.
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
            Self::Odd(what) => write!(
                f,
                "PMIx does not tell the {what}; the launcher's PMIx and PMIX_NAMESPACE do not agree"
            ),
        }
    }
}

impl std::error::Error for WireupError {}

impl Wireup {
    /// This process's place in its job; none if it is alone.
    pub fn new() -> Result<Option<Self>, WireupError> {
        let by = match Started::of_environment() {
            Started::Alone => return Ok(None),
            Started::Pmix => By::Pmix(PmixClient::new()?),
            Started::Pmi(contact) => By::Pmi(PmiClient::new(&contact)?),
            Started::Unformed(line) => return Err(WireupError::Unformed(line)),
        };
        Ok(Some(Self { by }))
    }

    /// Which of the job's processes this is, from 0.
    pub fn rank(&self) -> u32 {
        match &self.by {
            By::Pmix(client) => client.rank(),
            By::Pmi(client) => client.rank(),
        }
    }

    /// How many processes the job has.
    pub fn size(&self) -> u32 {
        match &self.by {
            By::Pmix(client) => client.size(),
            By::Pmi(client) => client.size(),
        }
    }

    /// Which of the job's processes on its node this is, from 0.
    pub fn local_rank(&self) -> u32 {
        match &self.by {
            By::Pmix(client) => client.local_rank(),
            By::Pmi(client) => client.local_rank(),
        }
    }

    /// The host of a process, if the launcher tells. PMI-1 has no such question.
    pub fn host(&self, rank: u32) -> Option<String> {
        match &self.by {
            By::Pmix(client) => client.host(rank),
            By::Pmi(_) => None,
        }
    }

    /// Gives these bytes, and gets everybody's, by rank. All processes of the job must call it,
    /// and wait for each other: without end, or until the limit. After a limit that was too short,
    /// the job cannot exchange anything any more.
    pub fn exchange(
        &mut self,
        bytes: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, WireupError> {
        match &mut self.by {
            By::Pmix(client) => client.exchange(bytes, limit),
            By::Pmi(client) => client.exchange(bytes, limit),
        }
    }

    /// Waits for all processes of the job.
    pub fn barrier(&mut self) -> Result<(), WireupError> {
        match &mut self.by {
            By::Pmix(client) => client.barrier(),
            By::Pmi(client) => client.barrier(),
        }
    }

    /// Ends all processes of the job with this exit status.
    pub fn abort(&self, status: u8, line: &str) -> ! {
        self.end_all(status, line);
        std::process::exit(status.into())
    }

    /// As [`abort`](Self::abort), for a caller that ends this process in another way. A launcher
    /// with PMIx prints the line.
    pub fn end_all(&self, status: u8, line: &str) {
        match &self.by {
            By::Pmix(client) => client.end_all(status, line),
            By::Pmi(client) => client.end_all(status),
        }
    }
}
