//! What the system must allow a process that begins as a node: open files and addresses. UCX ends
//! a process that lacks them in the middle; here one line says so before.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::DsmError;

/// Open files that the agent and UCX have, besides those to other nodes.
const FILES: u64 = 32;
/// To each other node: while both call each other, there are two.
const FILES_EACH: u64 = 2;
/// Addresses that UCX takes, and the agent with its first pages.
const ADDRESS_BYTES: u64 = 64 << 20;
/// To each other node.
const ADDRESS_BYTES_EACH: u64 = 256 << 10;

/// Sees that there is room for a node among so many; raises the limit of open files as far as
/// that needs.
pub fn check(nodes: usize) -> Result<(), DsmError> {
    let others = nodes as u64 - 1;
    if others == 0 {
        return Ok(());
    }
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    let files = open + FILES + FILES_EACH * others;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < files) {
        return Err(lacks(
            &format!("open files (ulimit -n), with {open} open"),
            files,
            limit.maximum,
        ));
    }
    if limit.current.is_some_and(|now| now < files) {
        let limit = Rlimit { current: Some(files), ..limit };
        setrlimit(Resource::Nofile, limit)
            .map_err(|why| DsmError::System(format!("cannot raise the limit of files: {why}")))?;
    }
    let most = getrlimit(Resource::As).current;
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let used = pages.unwrap_or(0) * rustix::param::page_size() as u64;
    let bytes = used + ADDRESS_BYTES + ADDRESS_BYTES_EACH * others;
    if most.is_some_and(|most| most < bytes) {
        let kib = |bytes: u64| bytes >> 10;
        let what = format!("KiB of addresses (ulimit -v), with {} in use", kib(used));
        return Err(lacks(&what, kib(bytes), most.map(kib)));
    }
    Ok(())
}

fn lacks(what: &str, needed: u64, most: Option<u64>) -> DsmError {
    let most = most.unwrap_or_default();
    DsmError::System(format!(
        "a node of shared memory needs about {needed} {what}, and {most} are allowed; raise that"
    ))
}
