//! Detects the launcher of this process from the variables that launchers set.
//!
//! A launcher provides an interface by which its processes exchange addresses: PMIx (Open MPI,
//! PRRTE, `srun --mpi=pmix`), or PMI-1 over an inherited socket or a port (Hydra of MPICH and
//! Intel MPI, `srun --mpi=pmi2`, Flux). A process that is one of several and has no such interface
//! must not create a job of one process: [`Started::Unformed`].

use std::os::fd::BorrowedFd;

/// The way in which this process was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// By no launcher, or as the only process of its job.
    Alone,
    /// By a launcher with PMIx.
    Pmix,
    /// By a launcher with PMI-1.
    Pmi(Contact),
    /// As one of several processes that cannot find each other. The text is one line.
    Unformed(String),
}

/// The channel of PMI-1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contact {
    /// On an inherited socket. The launcher has set rank and size, too.
    Inherited {
        /// `PMI_FD`.
        fd: i32,
        /// `PMI_RANK`.
        rank: u32,
        /// `PMI_SIZE`.
        size: u32,
    },
    /// At a TCP port, where the launcher sends rank and size.
    Port {
        /// `PMI_PORT`, as `HOST:PORT`.
        address: String,
        /// `PMI_ID`.
        id: u32,
    },
}

/// Variables with the number of processes, the launcher that sets them, and the option that
/// enables an exchange. PMI's variables take precedence.
const SIZES: &[(&str, &str, &str)] = &[
    ("SLURM_STEP_NUM_TASKS", "srun", "use srun --mpi=pmix or --mpi=pmi2"),
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's launcher", "keep PMIX_NAMESPACE in the environment"),
    ("FLUX_JOB_SIZE", "flux run", "keep PMI_FD in the environment"),
    ("PALS_SIZE", "PALS", "use a launcher with PMIx or PMI-1, such as mpirun"),
    ("MV2_COMM_WORLD_SIZE", "MVAPICH's launcher", "use a launcher with PMIx or PMI-1"),
];

/// Variables with the rank of a process. A rank above 0 means several processes, also if their
/// number is unknown.
const RANKS: &[&str] = &[
    "PMI_RANK",
    "PMIX_RANK",
    "PMI2_RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "FLUX_TASK_RANK",
    "PALS_RANKID",
    "MV2_COMM_WORLD_RANK",
];

/// For jobs that are meant to have one process each.
const ALONE: &str = "or start jobs of one process by `nagaya run -n 1 PROGRAM`";

pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Started {
    /// Reads the environment of this process.
    pub fn of_environment() -> Self {
        Self::of(&|name| std::env::var(name).ok(), &is_socket)
    }

    /// Evaluates the variables. `is_socket` returns true if a descriptor is a socket.
    pub(crate) fn of(variable: Variable<'_>, is_socket: &dyn Fn(i32) -> bool) -> Self {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let number = |name: &str| given(name)?.trim().parse::<u32>().ok();
        let size = number("PMI_SIZE").unwrap_or(1);
        let fd = given("PMI_FD").and_then(|fd| fd.trim().parse().ok());
        // Launchers with PMIx close PMI's socket: one that is open belongs to the inner launcher.
        if let Some(fd) = fd.filter(|&fd| size > 1 && is_socket(fd)) {
            return match number("PMI_RANK").filter(|&rank| rank < size) {
                Some(rank) => Self::Pmi(Contact::Inherited { fd, rank, size }),
                None => Self::Unformed(format!(
                    "PMI_RANK={} is no rank of PMI_SIZE={size}; leave both as they are",
                    given("PMI_RANK").unwrap_or_default()
                )),
            };
        }
        if given("PMIX_NAMESPACE").is_some() {
            return Self::Pmix;
        }
        if let Some(address) = given("PMI_PORT") {
            return match number("PMI_ID") {
                Some(id) => Self::Pmi(Contact::Port { address, id }),
                None => Self::Unformed(format!(
                    "PMI_PORT={address} without PMI_ID; leave both as the launcher sets them"
                )),
            };
        }
        if size > 1 {
            let fd = given("PMI_FD");
            let fd =
                fd.map_or("PMI_FD is not set".into(), |fd| format!("PMI_FD={fd} is no socket"));
            return Self::Unformed(format!(
                "the launcher's {size} processes (PMI_SIZE) cannot find each other: {fd}; start \
                 the program by the launcher itself, or by scripts that keep its descriptors \
                 open, {ALONE}"
            ));
        }
        // A PMI job with one process, whatever launcher surrounds it.
        if number("PMI_SIZE").is_some() {
            return Self::Alone;
        }
        let of_several = |&(name, by, remedy): &(&str, &'static str, &'static str)| {
            let size = number(name).filter(|&size| size > 1)?;
            Some((name.to_owned(), size, by, remedy))
        };
        if let Some((name, size, by, remedy)) = SIZES.iter().find_map(of_several) {
            return Self::Unformed(format!(
                "the {size} processes of {by} ({name}) cannot find each other without PMI; \
                 {remedy}, {ALONE}"
            ));
        }
        let is_later = |name: &&&str| number(name).is_some_and(|rank| rank > 0);
        match RANKS.iter().find(is_later) {
            Some(name) => Self::Unformed(format!(
                "{name}={} says that a launcher has started several processes, which cannot find \
                 each other without PMI; keep all variables that the launcher sets, {ALONE}",
                given(name).unwrap_or_default()
            )),
            None => Self::Alone,
        }
    }
}

/// Returns a name of this process among all launched processes. A process and its children share
/// the name, unless a launcher in between has started processes.
pub fn identity() -> String {
    identity_of(&|name| std::env::var(name).ok(), &peer_pid)
}

fn identity_of(variable: Variable<'_>, peer: &dyn Fn(i32) -> Option<i32>) -> String {
    const NAMES: &[&str] = &[
        "PMIX_NAMESPACE",
        "PMIX_RANK",
        "PMI_RANK",
        "PMI_PORT",
        "PMI_ID",
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_PROCID",
    ];
    let mut parts: Vec<_> = NAMES.iter().map(|name| variable(name).unwrap_or_default()).collect();
    // Two of Hydra's jobs have the same ranks and descriptors, but not the same launcher.
    let fd = variable("PMI_FD").and_then(|fd| fd.parse().ok());
    parts.push(fd.and_then(peer).map_or_else(String::new, |pid| pid.to_string()));
    match parts.iter().all(String::is_empty) {
        true => String::new(),
        false => parts.join(" "),
    }
}

fn borrow(fd: &i32) -> Option<BorrowedFd<'_>> {
    // SAFETY: used for getsockopt only, which fails with EBADF on a number that is no descriptor.
    (*fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(*fd) })
}

fn is_socket(fd: i32) -> bool {
    borrow(&fd).is_some_and(|fd| rustix::net::sockopt::socket_type(fd).is_ok())
}

/// The process at the other end of a Unix socket.
fn peer_pid(fd: i32) -> Option<i32> {
    let peer = rustix::net::sockopt::socket_peercred(borrow(&fd)?).ok()?;
    Some(peer.pid.as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(variables: &[(&str, &str)]) -> Started {
        let variable =
            |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
        Started::of(&variable, &|fd| fd == 6)
    }

    fn unformed(variables: &[(&str, &str)]) -> String {
        match started(variables) {
            Started::Unformed(line) => line,
            other => panic!("{variables:?}: {other:?}"),
        }
    }

    const INHERITED: Started = Started::Pmi(Contact::Inherited { fd: 6, rank: 1, size: 4 });

    #[test]
    fn a_process_without_a_launcher_is_alone() {
        assert_eq!(started(&[]), Started::Alone);
        assert_eq!(started(&[("PMI_SIZE", ""), ("PMIX_NAMESPACE", "")]), Started::Alone);
        // Inside an allocation, but not of a step with several tasks.
        let allocation = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")];
        assert_eq!(started(&allocation), Started::Alone);
        assert_eq!(started(&[("SLURM_STEP_NUM_TASKS", "1")]), Started::Alone);
    }

    #[test]
    fn launchers_are_recognised_by_their_variables() {
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("PMI_FD", "6")];
        assert_eq!(started(&pmi), INHERITED);
        assert_eq!(started(&[("PMIX_NAMESPACE", "a"), ("PMIX_RANK", "1")]), Started::Pmix);
        let port = Contact::Port { address: "a:1".into(), id: 3 };
        assert_eq!(started(&[("PMI_PORT", "a:1"), ("PMI_ID", "3")]), Started::Pmi(port));
        let one = [("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("PMI_FD", "6")];
        assert_eq!(started(&one), Started::Alone);
    }

    #[test]
    fn the_inner_of_two_launchers_counts() {
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("PMIX_NAMESPACE", "a")];
        assert_eq!(started(&[&pmi[..], &[("PMI_FD", "6")]].concat()), INHERITED);
        // Closed by the launcher with PMIx.
        assert_eq!(started(&[&pmi[..], &[("PMI_FD", "5")]].concat()), Started::Pmix);
        let slurm = [("PMI_SIZE", "1"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(started(&slurm), Started::Alone);
    }

    #[test]
    fn several_processes_without_an_interface_are_unformed() {
        let line = unformed(&[("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("PMI_FD", "5")]);
        assert!(line.contains("4 processes") && line.contains("PMI_FD=5 is no socket"), "{line}");
        let line = unformed(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")]);
        assert!(line.contains("PMI_FD is not set"), "{line}");
        let line = unformed(&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "2")]);
        assert!(line.contains("srun --mpi=pmix or --mpi=pmi2"), "{line}");
        for rank in ["4", "-1", "x", ""] {
            let line = unformed(&[("PMI_RANK", rank), ("PMI_SIZE", "4"), ("PMI_FD", "6")]);
            assert!(line.starts_with(&format!("PMI_RANK={rank} is no rank")), "{line}");
        }
        assert!(unformed(&[("PMI_PORT", "a:1")]).contains("without PMI_ID"));
        for name in RANKS {
            assert!(unformed(&[(name, "1")]).starts_with(&format!("{name}=1 says")));
            assert_eq!(started(&[(name, "0")]), Started::Alone);
        }
        for (name, ..) in SIZES {
            assert!(unformed(&[(name, "2")]).contains(name));
            assert!(!unformed(&[(name, "2")]).contains('\n'));
        }
    }

    #[test]
    fn processes_of_different_launchers_have_different_identities() {
        let identity = |variables: &[(&str, &str)], peer| {
            let variable =
                |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
            identity_of(&variable, &|_| peer)
        };
        assert_eq!(identity(&[], None), "");
        let hydra = [("PMI_RANK", "0"), ("PMI_FD", "6")];
        assert_ne!(identity(&hydra, Some(1)), identity(&hydra, Some(2)));
        assert_eq!(identity(&hydra, Some(1)), identity(&hydra, Some(1)));
        let pmix = [("PMIX_NAMESPACE", "a"), ("PMIX_RANK", "0")];
        assert_ne!(identity(&pmix, None), identity(&[("PMIX_NAMESPACE", "b")], None));
        let step = |step| [("SLURM_JOB_ID", "1"), ("SLURM_STEP_ID", step)];
        assert_ne!(identity(&step("0"), None), identity(&step("1"), None));
    }
}
