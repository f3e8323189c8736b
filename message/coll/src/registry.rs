//! The registry of ranks that are tasks of this space and have this library.
//!
//! Ranks may be ordinary processes, on this node or another, or lack the library. They would not
//! answer. So each rank exports its rank under a common name before it calls MPI_Init. MPI_Init
//! waits for all ranks, so after it every registered rank of the space is visible. If all ranks of
//! a communicator are registered, all of them read the same.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::time::Duration;

use control::{ThisTask, export, fnv1a, this_task};
use rustix::net::sockopt::socket_peercred;

use crate::abi::{Handle, SUCCESS};
use crate::mpi::Mpi;
use outbox::outbox::VERSION;

/// The variables in which launchers pass a process its rank.
const RANK_VARIABLES: [&str; 3] = ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// Returns the name under which the ranks of this job are exported. Two jobs may share a space.
fn name() -> String {
    let job = std::env::var("PMIX_NAMESPACE").ok().filter(|name| !name.is_empty());
    let job = job.unwrap_or_else(|| format!("pmi {}", launcher().unwrap_or(0)));
    // The length of an exported name is limited; that of a job's name is not.
    format!("nagaya-coll {VERSION} {:016x}", fnv1a(job.as_bytes()))
}

/// Returns the PID of the process at the other end of PMI's socket.
fn launcher() -> Option<i32> {
    let fd: i32 = std::env::var("PMI_FD").ok()?.parse().ok().filter(|&fd| fd > 2)?;
    // SAFETY: the descriptor is used for one system call, which fails if it is closed.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    Some(socket_peercred(fd).ok()?.pid.as_raw_nonzero().get())
}

/// Registers this task's rank. A second call has no effect.
pub fn register() {
    let Some(task) = this_task() else { return };
    let given =
        RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok()?.parse::<u32>().ok());
    if let Some(rank) = given {
        // Without the entry, the job works as without this library.
        let _ = export::export(&task.control, task.id, name().as_bytes(), rank.into(), 0);
    }
}

/// Returns the tasks of the space by their rank in `MPI_COMM_WORLD`. To be called after
/// `MPI_Init`.
fn entries(task: &ThisTask) -> &'static HashMap<u32, u32> {
    static ENTRIES: OnceLock<HashMap<u32, u32>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        let name = name();
        let rank = |id: u32| {
            let found = export::import(&task.control, id, name.as_bytes(), Some(Duration::ZERO));
            Some((u32::try_from(found.ok()?.0).ok()?, id))
        };
        (0..task.control.tasks_high()).filter_map(rank).collect()
    })
}

/// Returns the tasks of a communicator's ranks; `None` if one is not registered.
pub fn tasks(mpi: &Mpi, comm: Handle, ranks: usize) -> Option<Vec<u32>> {
    let all: Vec<c_int> = (0..ranks as c_int).collect();
    tasks_of(mpi, comm, &all)
}

/// Returns true if this rank of a communicator is registered: it is a task of this space. An
/// intercommunicator's ranks are never.
pub fn is_task(mpi: &Mpi, comm: Handle, rank: c_int) -> bool {
    let mut is_inter: c_int = 0;
    // SAFETY: a message has been sent by this communicator. MPI writes one number.
    let asked = unsafe { (mpi.comm_test_inter)(comm, &mut is_inter) };
    asked == SUCCESS && is_inter == 0 && rank >= 0 && tasks_of(mpi, comm, &[rank]).is_some()
}

/// Returns the tasks of some ranks of a communicator; `None` if one is not registered.
fn tasks_of(mpi: &Mpi, comm: Handle, in_group: &[c_int]) -> Option<Vec<u32>> {
    let entries = entries(&this_task()?);
    let mut in_world = vec![-1; in_group.len()];
    let (mut group, mut world): (Handle, Handle) = (0, 0);
    // SAFETY: MPI writes handles, and a number for each rank, into variables of these sizes.
    let asked = unsafe {
        (mpi.comm_group)(comm, &mut group);
        (mpi.comm_group)(mpi.comm_world(), &mut world);
        let (from, to) = (in_group.as_ptr(), in_world.as_mut_ptr());
        let count = in_group.len() as c_int;
        let asked = (mpi.group_translate_ranks)(group, count, from, world, to);
        (mpi.group_free)(&mut group);
        (mpi.group_free)(&mut world);
        asked
    };
    let task = |rank: &c_int| entries.get(&u32::try_from(*rank).ok()?).copied();
    in_world.iter().map(task).collect::<Option<Vec<_>>>().filter(|_| asked == SUCCESS)
}
