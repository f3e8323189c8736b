//! The number of this PE and of all PEs, as the launcher gives them.

use std::os::fd::BorrowedFd;

use control::{ThisTask, fnv1a};
use net::launcher::{Contact, Started};
use net::rendezvous;
use net::wireup::Wireup;
use rustix::net::sockopt::socket_peercred;

/// This PE among all PEs.
pub struct Identity {
    /// The number of this PE.
    pub me: usize,
    /// Number of PEs.
    pub n: usize,
    /// A number of the job that all its PEs share. Two jobs may share a space.
    pub job: u64,
    /// Number of PEs in this PE's space, if the launcher gives it.
    here: Option<usize>,
    /// The launcher's exchange of addresses, if it was needed for these numbers.
    wireup: Option<Wireup>,
}

/// Variables with the number of processes of a job.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.trim().parse().ok()
}

impl Identity {
    /// Reads the environment, or asks the launcher. The error is one line.
    pub fn new() -> Result<Self, String> {
        let run = || (number("NAGAYA_TASK_ID"), number("NAGAYA_TASKS"));
        let is_of_run = rendezvous::is_guest();
        let (me, n) = match Started::of_environment() {
            _ if is_of_run => run(),
            Started::Alone => run(),
            Started::Pmix => (number("PMIX_RANK"), SIZES.into_iter().find_map(number)),
            Started::Pmi(Contact::Inherited { rank, size, .. }) => {
                (Some(rank as usize), Some(size as usize))
            }
            Started::Pmi(Contact::Port { id, .. }) => {
                (Some(id as usize), SIZES.into_iter().find_map(number))
            }
            Started::Unformed(line) => return Err(line),
        };
        let job = job();
        let here = if is_of_run { number(rendezvous::LOCAL_SIZE) } else { None };
        match (me, n) {
            (Some(me), Some(n)) if me < n => Ok(Self { me, n, job, here, wireup: None }),
            _ => {
                let wireup = Wireup::with_run().map_err(|error| error.to_string())?;
                let (me, n) = wireup.as_ref().map_or((0, 1), |it| (it.rank(), it.size()));
                Ok(Self { me: me as usize, n: n as usize, job, here, wireup })
            }
        }
    }

    /// Returns true if all PEs are tasks of this space, as far as that is known without them.
    pub fn is_one_space(&self, task: ThisTask) -> bool {
        let expected = task.control.tasks_expected() as usize;
        self.n == 1 || self.here.unwrap_or(expected) == self.n
    }

    /// Returns the launcher's exchange of addresses. None if there is no launcher: then all PEs are
    /// tasks of this space.
    pub fn take_wireup(&mut self) -> Result<Option<Wireup>, String> {
        match self.wireup.take() {
            Some(wireup) => Ok(Some(wireup)),
            None => Wireup::with_run().map_err(|error| error.to_string()),
        }
    }
}

/// Returns a number of this job on its node.
fn job() -> u64 {
    let given = std::env::var("PMIX_NAMESPACE").ok().filter(|name| !name.is_empty());
    let name = given.unwrap_or_else(|| format!("pmi {}", launcher().unwrap_or(0)));
    fnv1a(name.as_bytes())
}

/// Returns the PID of the process at the other end of PMI's socket.
fn launcher() -> Option<i32> {
    let fd: i32 = std::env::var("PMI_FD").ok()?.parse().ok().filter(|&fd| fd > 2)?;
    // SAFETY: the descriptor is used for one system call, which fails if it is closed.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    Some(socket_peercred(fd).ok()?.pid.as_raw_nonzero().get())
}
