//! The fuzz targets, by wing.

mod jobs;
mod machine;
mod net;
mod pages;
mod programs;
mod pvm;
mod tasks;

use crate::target::Target;

/// All targets.
pub const TARGETS: &[&Target] = &[
    &net::LOCAL_RING,
    &net::TCP_HANDSHAKE,
    &net::TCP_RECORDS,
    &net::FABRIC,
    &net::ADDRESS,
    &net::PMI,
    &net::PMIX,
    &net::LAUNCHER,
    &pages::SCOPE,
    &pages::SEQUENTIAL,
    &pages::RECORDING,
    &jobs::DSM,
    &jobs::CLUSTER,
    &jobs::SPAN,
    &jobs::CONTROL,
    &jobs::HOSTS,
    &jobs::DOMAINS,
    &programs::ELF,
    &programs::SPAN_TEXT,
    &programs::GATE_DECODER,
    &programs::GATE_SITES,
    &programs::GATE_FILTER,
    &tasks::NODE_SERVER,
    &tasks::SMAPS,
    &tasks::PROC,
    &tasks::OFI,
    &tasks::TRAFFIC,
    &tasks::SHMEM,
    &pvm::LINES,
    &pvm::FRAMES,
    &pvm::MESSAGE,
    &pvm::INTAKE,
    &machine::TASKS,
    &machine::PEERS,
];

/// Returns the target with this name.
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
