//! The names of a host, and the secret of its virtual machine.

use nagaya_server::Failure;
use pvm::signature::signature;
use pvm::tid::Tid;
use pvm::wire::HostInfo;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::program::ARCHITECTURE;

/// Returns the description of a host that other hosts see.
pub(crate) fn info(host: u16, name: String, speed: i32) -> HostInfo {
    let architecture = ARCHITECTURE.into();
    HostInfo { tid: Tid::of_host(host), name, architecture, speed, signature: signature() }
}

/// Returns a random secret for a new virtual machine.
pub(crate) fn new_secret() -> Result<[u8; 32], Failure> {
    let failed = |error| Failure::ours(format!("cannot generate a secret: {error}"));
    let mut secret = [0; 32];
    getrandom(&mut secret, GetRandomFlags::empty()).map_err(failed)?;
    Ok(secret)
}

/// Returns the system's name of this host.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
