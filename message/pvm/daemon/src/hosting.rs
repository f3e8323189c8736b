//! The state of adding and deleting hosts.

use std::collections::BTreeMap;

use pvm::error::Error;
use pvm::tid::Tid;

use crate::errand::Asker;
use crate::event::PeerMessage;
use crate::hostfile::{Host, SPEED};
use crate::starting::DaemonSpec;

/// Ticks of silence after which a host counts as lost. This covers machines and networks that
/// fail silently; if a daemon is killed, its closed connection shows it at once.
pub const TICKS: u32 = 6;

/// Start of the line by which a daemon tells its hoster that it runs.
pub(crate) const STARTED: &str = "ddpro<";

/// A host that a task wants to add.
#[derive(Clone, Debug)]
pub(crate) struct HostSpec {
    /// Its name in the virtual machine.
    pub name: String,
    /// Parameters for starting its daemon.
    pub daemon: DaemonSpec,
    /// Its speed.
    pub speed: i32,
    /// Directories searched for programs, if given.
    pub programs: Option<String>,
    /// Working directory of programs, if given.
    pub directory: Option<String>,
    /// The program that runs tasks under a debugger, if given.
    pub debugger: Option<String>,
}

impl HostSpec {
    pub fn new(Host { name, options, .. }: Host) -> HostSpec {
        let daemon = DaemonSpec {
            host: options.address.unwrap_or_else(|| name.clone()),
            login: options.login,
            program: options.program,
            vmid: options.vmid,
        };
        HostSpec {
            name,
            daemon,
            speed: options.speed.unwrap_or(SPEED),
            programs: options.path,
            directory: options.directory,
            debugger: options.debugger,
        }
    }
}

/// A pending request for hosts.
#[derive(Debug)]
pub(crate) struct HostRequest {
    /// The hosts to add, each with its index in the answer.
    pub wanted: Vec<(usize, HostSpec)>,
    /// The answer: for each host a tid or an error code.
    pub slots: Vec<Option<i32>>,
    /// The resource manager that made the request, and its wait ID.
    pub managed: Option<(Tid, i32)>,
}

/// This host's state of adding and deleting hosts.
#[derive(Debug, Default)]
pub(crate) struct Hosting {
    /// This daemon's fabric address, once the fabric is open.
    pub address: Option<Vec<u8>>,
    pub requests: BTreeMap<Asker, HostRequest>,
    /// Requests for the list of hosts (pvm_config).
    pub config_requests: Vec<Asker>,
    /// Requests that wait for the fabric.
    pub waiting: Vec<Asker>,
    /// The pending request, and the index in its answer, of each host that joins or leaves.
    pub joining: BTreeMap<u16, (Asker, usize)>,
    pub leaving: BTreeMap<u16, (Asker, usize)>,
    /// Hosts whose daemons a hoster is to start, and the wait ID of its answer.
    pub hosted: BTreeMap<u16, i32>,
    pub last_wait_id: i32,
    /// Requests of resource managers so far.
    pub last_managed: u32,
    /// Errors that a hoster reported for hosts that it could not start.
    pub refused: BTreeMap<u16, Error>,
    /// Ticks for which a guest has been alone without tasks.
    pub idle: u32,
    /// Ticks since the last message from each host.
    pub silent: BTreeMap<u16, u32>,
    /// Messages that arrived before the snapshot of the virtual machine.
    pub early: Vec<(u16, PeerMessage)>,
}
