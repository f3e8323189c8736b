//! A daemon's command-line options, and the user's settings in the environment.

use std::path::PathBuf;

use fcp::protocol::Protocol;
use nagaya_server::Failure;

use crate::hostfile::HostFile;
use crate::invitation::SILENCE_MS;

/// A daemon's command-line options.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The virtual machine's ID (PVM_VMID).
    pub vmid: Option<String>,
    /// Directory of the socket; default: [`job::directory`](nagaya_server::job::directory).
    pub directory: Option<PathBuf>,
    /// Directory of the log; default: `log::directory`.
    pub log: Option<PathBuf>,
    /// The host's name; default: the system's.
    pub name: Option<String>,
    /// The host file.
    pub hostfile: HostFile,
    /// Halt the virtual machine on SIGHUP, SIGINT and SIGTERM.
    pub signals: bool,
    /// Write no more to standard error once tasks can connect.
    pub quiet: bool,
    /// Tasks share one address space on each host.
    pub space: bool,
    /// Bytes of a task's segment in that space, if given.
    pub segment_size: Option<u64>,
}

/// Returns the user's settings for the virtual machine: [`silence_ms`] and [`protocol`].
pub(crate) fn choices() -> Result<(u32, Protocol), Failure> {
    Ok((silence_ms()?, protocol()?))
}

/// Returns the protocol for messages inside a host: `NAGAYA_PVM_PROTOCOL`.
fn protocol() -> Result<Protocol, Failure> {
    let Some(text) = std::env::var_os("NAGAYA_PVM_PROTOCOL") else {
        return Ok(Protocol::default());
    };
    text.to_str().and_then(Protocol::of_name).ok_or_else(|| {
        let names = Protocol::ALL.map(Protocol::name).join(", ");
        let text = text.to_string_lossy();
        Failure::ours(format!("NAGAYA_PVM_PROTOCOL={text}: should be one of {names}"))
    })
}

/// Returns the silence in milliseconds after which a host counts as lost: `NAGAYA_PVM_SILENCE`,
/// given in seconds.
fn silence_ms() -> Result<u32, Failure> {
    let Some(text) = std::env::var_os("NAGAYA_PVM_SILENCE") else { return Ok(SILENCE_MS) };
    let seconds = text.to_str().and_then(|text| text.parse::<f64>().ok());
    match seconds.filter(|seconds| (0.1..=1e6).contains(seconds)) {
        Some(seconds) => Ok((seconds * 1000.0) as u32),
        None => Err(Failure::ours(format!(
            "NAGAYA_PVM_SILENCE={}: should be seconds, from 0.1",
            text.to_string_lossy()
        ))),
    }
}
