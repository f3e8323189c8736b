//! Resolves the node and service of fi_getinfo(3) to an endpoint. All names and addresses of this
//! machine mean one node, so a client may use another of them than its server.

use std::net::{IpAddr, TcpListener, ToSocketAddrs as _};

use crate::engine::address::Target;
use crate::engine::name::Name;

/// The node of registered names.
const HERE: &str = "localhost";

/// Resolves a node and a service. The node may also be an address as a string. Without a service
/// the result is [`Target::Unnamed`]. Error: the node is not this machine.
pub fn resolve(node: Option<&str>, service: Option<&str>, numeric: bool) -> Result<Target, String> {
    if let Some(target) = node.and_then(Target::parse_text) {
        return Ok(target);
    }
    if let Some(node) = node.filter(|node| !is_here(node, numeric)) {
        return Err(format!("{node} is not this machine, and this provider does not leave it"));
    }
    let named = service.and_then(|service| Name::new(&format!("{HERE}:{service}")));
    Ok(named.map_or(Target::Unnamed, Target::Name))
}

/// Returns true if a node is this machine. A `numeric` node is not looked up.
fn is_here(node: &str, numeric: bool) -> bool {
    if let Ok(address) = node.parse::<IpAddr>() {
        return is_own(address);
    }
    if numeric {
        return false;
    }
    let system = rustix::system::uname();
    let host = system.nodename().to_str().unwrap_or_default();
    let short = host.split('.').next().unwrap_or_default();
    if [HERE, host, short].iter().any(|known| node.eq_ignore_ascii_case(known)) {
        return true;
    }
    (node, 0).to_socket_addrs().is_ok_and(|mut all| all.any(|address| is_own(address.ip())))
}

/// Returns true if this machine has the IP address.
fn is_own(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback() || TcpListener::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_this_machine_is_called_is_one() {
        let name = Target::Name(Name::new("localhost:7").unwrap());
        let host = rustix::system::uname();
        let host = host.nodename().to_str().unwrap();
        for node in [None, Some("localhost"), Some("127.0.0.1"), Some("::1"), Some(host)] {
            assert_eq!(resolve(node, Some("7"), false), Ok(name.clone()), "{node:?}");
            assert_eq!(resolve(node, None, false), Ok(Target::Unnamed), "{node:?}");
        }
        assert_eq!(resolve(Some("0.0.0.0"), Some("7"), true), Ok(name));
        for other in ["192.0.2.1", "2001:db8::1", "localhost"] {
            assert!(resolve(Some(other), Some("7"), true).unwrap_err().contains(other));
        }
        let text = Target::Name(Name::new("me").unwrap());
        assert_eq!(resolve(Some("fi_ns://me"), None, true), Ok(text));
    }
}
