//! The interfaces on which a carrier listens, and the order in which a peer's addresses are tried.
//!
//! An address of this carrier has its random name and then, for each listening socket, the family
//! (4 or 6), the IP address and the port, in network byte order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use if_addrs::{IfAddr, Interface};

use super::noise::Instance;

/// Variables that name the interfaces to listen on, with commas between them. UCX's notation
/// `mlx5_0:1,eth0` is accepted; names that are no interfaces are ignored.
const VARIABLES: [&str; 2] = ["NAGAYA_NET_DEVICES", "UCX_NET_DEVICES"];

/// Maximum number of addresses of one peer that are tried.
const ADDRESSES_MAX: usize = 32;

/// Returns the IP addresses to listen on: those of the named interfaces; or of all but loopback and
/// bridges; or, on a machine without a network, the others.
pub fn own() -> Vec<IpAddr> {
    let named = VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    choose(if_addrs::get_if_addrs().unwrap_or_default(), named.as_deref(), is_bridge)
}

/// A bridge connects the virtual machines or containers of this host, often by the same address on
/// all hosts.
fn is_bridge(name: &str) -> bool {
    std::path::Path::new("/sys/class/net").join(name).join("bridge").exists()
}

fn choose(
    interfaces: Vec<Interface>,
    named: Option<&str>,
    is_bridge: impl Fn(&str) -> bool,
) -> Vec<IpAddr> {
    let usable = interfaces.iter().filter(|interface| {
        let is_named = |named: &str| {
            let mut names = named.split(',').map(|name| name.split(':').next().unwrap_or(name));
            named == "all" || names.any(|name| name.trim() == interface.name)
        };
        !is_link_local(interface.ip()) && named.is_none_or(is_named)
    });
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for interface in usable {
        let is_last = interface.is_loopback() || is_bridge(&interface.name);
        if is_last && named.is_none() { &mut rest } else { &mut first }.push(interface.ip());
    }
    if first.is_empty() { rest } else { first }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Writes an address.
pub fn write(instance: &Instance, listening: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = instance.to_vec();
    for address in listening {
        match address.ip() {
            IpAddr::V4(ip) => {
                bytes.push(4);
                bytes.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                bytes.push(6);
                bytes.extend_from_slice(&ip.octets());
            }
        }
        bytes.extend_from_slice(&address.port().to_be_bytes());
    }
    bytes
}

/// Reads an address, if it is well-formed.
pub fn parse(bytes: &[u8]) -> Option<(Instance, Vec<SocketAddr>)> {
    let (instance, mut rest) = bytes.split_first_chunk()?;
    let mut addresses = Vec::new();
    while let Some((family, after)) = rest.split_first() {
        let (ip, after): (IpAddr, _) = match family {
            4 => {
                let (octets, after) = after.split_first_chunk::<4>()?;
                (Ipv4Addr::from(*octets).into(), after)
            }
            6 => {
                let (octets, after) = after.split_first_chunk::<16>()?;
                (Ipv6Addr::from(*octets).into(), after)
            }
            _ => return None,
        };
        let (port, after) = after.split_first_chunk()?;
        addresses.push((ip, u16::from_be_bytes(*port)).into());
        rest = after;
    }
    (addresses.len() <= ADDRESSES_MAX).then_some((*instance, addresses))
}

/// Returns for each own address whether peers with these addresses would call it: that of a network
/// that it shares with one of them. All would be called if a peer is in none of our networks, or if
/// it has one of our addresses, which need not be on this host.
pub fn called(own: &[IpAddr], peers: &[Vec<SocketAddr>]) -> Vec<bool> {
    called_of(&if_addrs::get_if_addrs().unwrap_or_default(), own, peers)
}

fn called_of(interfaces: &[Interface], own: &[IpAddr], peers: &[Vec<SocketAddr>]) -> Vec<bool> {
    let network = |ip: &IpAddr| interfaces.iter().find(|interface| interface.ip() == *ip);
    let is_shared = |ip: &IpAddr, peer: &[SocketAddr]| {
        let is_in = |it: &Interface| peer.iter().any(|address| is_near(&it.addr, address.ip()));
        network(ip).is_some_and(is_in)
    };
    let is_known = |peer: &Vec<SocketAddr>| {
        own.iter().any(|ip| is_shared(ip, peer))
            && !peer.iter().any(|address| own.contains(&address.ip()))
    };
    let is_called = |ip| peers.iter().any(|peer| is_shared(ip, peer));
    let are_known = peers.iter().all(is_known);
    own.iter().map(|ip| !are_known || is_called(ip)).collect()
}

/// Sorts a peer's addresses: those in a network of this host first.
pub fn sort_by_distance(addresses: &mut [SocketAddr]) {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    addresses.sort_by_key(|address| !interfaces.iter().any(|own| is_near(&own.addr, address.ip())));
}

fn is_near(own: &IfAddr, ip: IpAddr) -> bool {
    match (own, ip) {
        (IfAddr::V4(own), IpAddr::V4(ip)) => {
            let mask = u32::from(own.netmask);
            u32::from(own.ip) & mask == u32::from(ip) & mask
        }
        (IfAddr::V6(own), IpAddr::V6(ip)) => {
            let mask = u128::from(own.netmask);
            u128::from(own.ip) & mask == u128::from(ip) & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use if_addrs::{IfOperStatus, Ifv4Addr};

    use super::*;

    fn interface(ip: &str, prefixlen: u8) -> Interface {
        let netmask = Ipv4Addr::from_bits(!(u32::MAX >> prefixlen));
        let ip = ip.parse().expect("an address");
        Interface {
            name: "eth0".to_owned(),
            addr: IfAddr::V4(Ifv4Addr { ip, netmask, prefixlen, broadcast: None }),
            index: None,
            oper_status: IfOperStatus::Up,
            is_p2p: false,
        }
    }

    #[test]
    fn peers_call_by_common_networks() {
        let own = [interface("192.0.2.7", 24), interface("10.0.0.7", 8), interface("10.9.0.7", 16)];
        let called = |peers: &[&[&str]]| {
            let addresses = own.iter().map(Interface::ip).collect::<Vec<_>>();
            let socket = |ip: &&str| SocketAddr::new(ip.parse().expect("an address"), 1);
            let peers = peers.iter().map(|peer| peer.iter().map(socket).collect());
            called_of(&own, &addresses, &peers.collect::<Vec<_>>())
        };
        assert_eq!(called(&[&["198.51.100.1", "10.1.0.8"]]), [false, true, false]);
        assert_eq!(called(&[&["10.1.0.8"], &["192.0.2.8"]]), [true, true, false]);
        assert_eq!(called(&[&["10.9.0.8"]]), [false, true, true]);
        // One of them comes from elsewhere, by no interface that we could name.
        assert_eq!(called(&[&["10.1.0.8"], &["198.51.100.1"]]), [true, true, true]);
        // The same address in another network, or this host.
        assert_eq!(called(&[&["10.1.0.8", "192.0.2.7"]]), [true, true, true]);
    }
}
