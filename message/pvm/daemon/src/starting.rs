//! The data of starting a daemon on another host: its parameters and its result.

use pvm::error::Error;

use crate::invitation::Place;

/// The parameters for starting a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSpec {
    /// The host's name or address for ssh.
    pub host: String,
    /// The login there (`lo=`), if it differs.
    pub login: Option<String>,
    /// The daemon's program there (`dx=`).
    pub program: Option<String>,
    /// The virtual machine's ID there (`id=`), if another daemon may run there.
    pub vmid: Option<String>,
}

/// The result of a start.
#[derive(Debug)]
pub struct Started {
    /// The host's number.
    pub host: u16,
    /// The daemon's address, or the reason why it does not run.
    pub acceptance: Result<Place, Fault>,
}

/// The reason why a daemon does not run.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The error code for the requesting program: CantStart or NoHost.
    pub error: Error,
    /// The reason, in one line.
    pub why: String,
}

impl From<String> for Fault {
    fn from(why: String) -> Fault {
        Fault { error: Error::CantStart, why }
    }
}
