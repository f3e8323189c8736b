//! The limits that a node needs at its start: open files and addresses. UCX ends a process that
//! exceeds them later; this module refuses before, with one line.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::DsmError;

/// Open files of the agent and UCX, besides those for other nodes.
const FILES: u64 = 32;
/// Open files for each other node: two while both connect to each other.
const FILES_EACH: u64 = 2;
/// Addresses of UCX, and of the agent with its first pages.
const ADDRESS_BYTES: u64 = 64 << 20;
/// Addresses for each other node.
const ADDRESS_BYTES_EACH: u64 = 256 << 10;

/// Checks that the limits allow a node of a job with `nodes` nodes. Raises the limit of open files
/// as far as needed.
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
