//! The MPI and the shape of a job, from the environment that its launcher gives to a rank.

use std::path::{Path, PathBuf};

use nagaya_server::job::Job;
use rustix::process::{Pid, getppid};
use rustix::thread::{CpuSet, sched_getaffinity};
use sync::wait::quota;

/// An MPI, as far as its settings differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Open MPI before 5.0, with its own runtime.
    OpenMpi4,
    /// Open MPI 5.0 and newer, with PRRTE.
    OpenMpi5,
    /// MPICH.
    Mpich,
    /// Intel MPI.
    Intel,
}

impl Kind {
    /// Returns the name in files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OpenMpi4 => "openmpi4",
            Kind::OpenMpi5 => "openmpi5",
            Kind::Mpich => "mpich",
            Kind::Intel => "intel",
        }
    }
}

/// A job of an MPI's launcher.
#[derive(Clone, Debug, Default)]
pub struct Launched {
    /// The MPI, if the environment shows it.
    pub kind: Option<Kind>,
    /// The program was started by a launcher that can start an MPI.
    pub by_launcher: bool,
    /// Rank of this process.
    pub rank: Option<u32>,
    /// Number of ranks.
    pub ranks: Option<u32>,
    /// Number of ranks on this node.
    pub ranks_here: Option<u32>,
    /// Directory of the launcher's program, which distinguishes installed MPIs of one kind.
    pub directory: Option<PathBuf>,
}

/// Variables with the rank of a process. The last ones are srun's for PMIx.
const RANK: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];
/// Variables with the number of ranks. The last one is srun's for PMIx.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

impl Launched {
    /// Returns what the environment of this process shows.
    pub fn of_environment(job: &Job, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let is_set = |name: &str| variable(name).is_some();
        let kind = if is_set("OMPI_COMM_WORLD_SIZE") {
            let is_5 = is_set("PRTE_LAUNCHED") || is_set("OMPI_VERSION");
            Some(if is_5 { Kind::OpenMpi5 } else { Kind::OpenMpi4 })
        } else if is_set("I_MPI_HYDRA_UUID") {
            Some(Kind::Intel)
        } else if is_set("MPI_LOCALNRANKS") && is_set("PMI_RANK") {
            Some(Kind::Mpich)
        } else {
            None
        };
        let number = |name: &str| variable(name)?.parse::<u32>().ok();
        let of_launchers = ["PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK"];
        Self {
            kind,
            by_launcher: kind.is_some() || of_launchers.iter().any(|name| is_set(name)),
            rank: RANK.iter().find_map(|name| number(name)),
            ranks: RANKS.iter().find_map(|name| number(name)),
            ranks_here: job.expected_tasks,
            directory: getppid().and_then(directory_of),
        }
    }

    /// Returns true if ranks of this job are known to run on other nodes.
    pub fn is_on_several_nodes(&self) -> bool {
        self.ranks.zip(self.ranks_here).is_some_and(|(ranks, here)| ranks > here)
    }

    /// Returns a job of two ranks on this node, as a user would start it with this launcher.
    pub fn two_ranks(kind: Kind, launcher: &Path) -> Self {
        let launcher = launcher.canonicalize().ok();
        Self {
            kind: Some(kind),
            by_launcher: true,
            rank: None,
            ranks: Some(2),
            ranks_here: Some(2),
            directory: launcher.and_then(|path| Some(path.parent()?.to_owned())),
        }
    }
}

/// Returns the directory of a process's program.
fn directory_of(process: Pid) -> Option<PathBuf> {
    let link = format!("/proc/{}/exe", process.as_raw_nonzero());
    Some(std::fs::read_link(link).ok()?.parent()?.to_owned())
}

/// Returns the number of processors for the ranks of this node. A rank may be bound to one of them,
/// and its launcher is not.
pub fn processors() -> u32 {
    let allowed = |process: Option<Pid>| sched_getaffinity(process).map_or(0, |set| count(&set));
    let processors = allowed(getppid()).max(allowed(None)).max(1);
    quota::processors().map_or(processors, |limit| processors.min(limit.ceil() as u32))
}

fn count(set: &CpuSet) -> u32 {
    set.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(variables: &[(&str, &str)]) -> Launched {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Launched::of_environment(&Job::of_environment(Some("job"), &find), &find)
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        let sizes = [("OMPI_COMM_WORLD_SIZE", "8"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
        let open_mpi = [&sizes[..], &[("OMPI_COMM_WORLD_RANK", "5")]].concat();
        let job = launched(&open_mpi);
        assert_eq!(job.rank, Some(5));
        assert_eq!(job.kind, Some(Kind::OpenMpi4));
        assert_eq!((job.ranks, job.ranks_here), (Some(8), Some(4)));
        let job = launched(&[&open_mpi[..], &[("PRTE_LAUNCHED", "1")]].concat());
        assert_eq!(job.kind, Some(Kind::OpenMpi5));
        let hydra = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
        let job = launched(&hydra);
        assert_eq!((job.kind, job.ranks, job.ranks_here), (Some(Kind::Mpich), Some(2), Some(2)));
        let job = launched(&[&hydra[..], &[("I_MPI_HYDRA_UUID", "1")]].concat());
        assert_eq!(job.kind, Some(Kind::Intel));
    }

    #[test]
    fn jobs_on_several_nodes_are_known_by_their_numbers_of_ranks() {
        let step = [("SLURM_JOB_ID", "1"), ("SLURM_STEP_ID", "0"), ("SLURM_NODEID", "0")];
        let tasks = [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_STEP_TASKS_PER_NODE", "2(x2)")];
        let job = launched(&[&step[..], &tasks].concat());
        assert_eq!((job.ranks, job.ranks_here), (Some(4), Some(2)));
        assert!(job.is_on_several_nodes());
        let tasks = [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_STEP_TASKS_PER_NODE", "4")];
        assert!(!launched(&[&step[..], &tasks].concat()).is_on_several_nodes());
        assert!(!launched(&[("OMPI_COMM_WORLD_SIZE", "4")]).is_on_several_nodes());
    }

    #[test]
    fn other_launchers_start_an_unknown_mpi_or_none() {
        let job = launched(&[("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "slurm.1.0")]);
        assert_eq!((job.kind, job.by_launcher), (None, true));
        assert!(!launched(&[("SLURM_JOB_ID", "1")]).by_launcher);
    }
}
