//! Wire-up: the processes of a parallel job exchange their addresses. Each process contributes
//! bytes, such as its fabric's address, and receives the bytes of all processes.
//!
//! The exchange uses PMIx under mpirun and prterun of Open MPI and PRRTE, and under
//! `srun --mpi=pmix`. It uses PMI-1 under mpirun of MPICH, mpiexec of Intel MPI, other launchers
//! based on Hydra, `srun --mpi=pmi2`, and Flux. The tasks of `nagaya run` use its socket
//! ([`rendezvous`](crate::rendezvous)).
//!
//! ```no_run
//! use net::{fabric::Fabric, secret::Secret, wireup::Wireup};
//!
//! if let Some(mut wireup) = Wireup::new()? {
//!     // All processes use the secret of rank 0. The launcher sends it only to this job.
//!     let secrets = wireup.exchange(Secret::random().bytes(), None)?;
//!     let secret = Secret::new(secrets[0][..].try_into()?);
//!     let fabric = Fabric::new(wireup.rank().into(), &secret)?;
//!     let addresses = wireup.exchange(fabric.address(), None)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod error;

use std::time::Duration;

use crate::launcher::Started;
use crate::pmi_client::PmiClient;
use crate::pmix_client::PmixClient;
use crate::rendezvous::Guest;
pub use error::{Late, WireupError};

/// This process's membership in its job. A process has at most one. Dropping it leaves the job.
pub struct Wireup {
    client: Client,
}

enum Client {
    Pmix(PmixClient),
    Pmi(PmiClient),
    Run(Guest),
}

impl Wireup {
    /// Joins the job of this process. Returns none if no launcher started it.
    pub fn new() -> Result<Option<Self>, WireupError> {
        let client = match Started::of_environment() {
            Started::Alone => return Ok(None),
            Started::Pmix => Client::Pmix(PmixClient::new()?),
            Started::Pmi(contact) => Client::Pmi(PmiClient::new(&contact)?),
            Started::Unformed(line) => return Err(WireupError::Unformed(line)),
        };
        Ok(Some(Self { client }))
    }

    /// The same, also for the tasks of `nagaya run`. A launcher within takes precedence.
    pub fn with_run() -> Result<Option<Self>, WireupError> {
        match Guest::new()? {
            Some(guest) => Ok(Some(Self { client: Client::Run(guest) })),
            None => Self::new(),
        }
    }

    /// The rank of this process in the job.
    pub fn rank(&self) -> u32 {
        match &self.client {
            Client::Pmix(client) => client.rank(),
            Client::Pmi(client) => client.rank(),
            Client::Run(guest) => guest.rank(),
        }
    }

    /// The number of processes of the job.
    pub fn size(&self) -> u32 {
        match &self.client {
            Client::Pmix(client) => client.size(),
            Client::Pmi(client) => client.size(),
            Client::Run(guest) => guest.size(),
        }
    }

    /// The rank of this process among those on its node.
    pub fn local_rank(&self) -> u32 {
        match &self.client {
            Client::Pmix(client) => client.local_rank(),
            Client::Pmi(client) => client.local_rank(),
            // All its tasks are on one machine.
            Client::Run(guest) => guest.rank(),
        }
    }

    /// The host of a process, if the launcher reports it. Only PMIx has such a request.
    pub fn host(&self, rank: u32) -> Option<String> {
        match &self.client {
            Client::Pmix(client) => client.host(rank),
            Client::Pmi(_) | Client::Run(_) => None,
        }
    }

    /// Contributes `bytes`, and returns the bytes of all processes, by rank. It is collective: all
    /// processes of the job must call it, and it waits for all, at most for `limit`. After a
    /// timeout, the job cannot exchange anything any more.
    pub fn exchange(
        &mut self,
        bytes: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, WireupError> {
        match &mut self.client {
            Client::Pmix(client) => client.exchange(bytes, limit),
            Client::Pmi(client) => client.exchange(bytes, limit),
            Client::Run(guest) => guest.exchange(bytes, limit),
        }
    }

    /// Waits for all processes of the job.
    pub fn barrier(&mut self) -> Result<(), WireupError> {
        match &mut self.client {
            Client::Pmix(client) => client.barrier(),
            Client::Pmi(client) => client.barrier(),
            Client::Run(guest) => guest.exchange(&[], None).map(drop),
        }
    }

    /// Tells `nagaya run` that this process may end while the others continue. Other launchers are
    /// told when this is dropped.
    pub fn leave(&mut self) {
        if let Client::Run(guest) = &mut self.client {
            guest.bye();
        }
    }

    /// Ends all processes of the job with this exit status.
    pub fn abort(&self, status: u8, line: &str) -> ! {
        self.end_all(status, line);
        std::process::exit(status.into())
    }

    /// Ends all processes of the job as [`abort`](Self::abort) does, except this one. A launcher
    /// with PMIx prints `line`.
    pub fn end_all(&self, status: u8, line: &str) {
        match &self.client {
            Client::Pmix(client) => client.end_all(status, line),
            Client::Pmi(client) => client.end_all(status),
            // It kills the others once this process ends without having left.
            Client::Run(_) => {}
        }
    }
}
