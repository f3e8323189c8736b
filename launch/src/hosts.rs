//! The hosts of a job, from a list (`a,b:4`) or a host file, and the test for this host.

use std::net::{ToSocketAddrs as _, UdpSocket};

use crate::ssh::is_name;

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name for ssh: a name, an address, or a login and a name.
    pub name: String,
    /// Number of its processors to use; `None` means all that are available there.
    pub processors: Option<u32>,
}

/// Parses the value of `-H`: hosts separated by commas, each with an optional number of processors.
pub fn list(text: &str) -> Result<Vec<Host>, String> {
    text.split(',').map(|word| host(word.trim())).collect()
}

/// Parses a host file with one host a line, in mpirun's formats: `a`, `a:4`, `a slots=4`. A comment
/// begins with `#`.
pub fn file(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split_once('#').map_or(line, |(line, _)| line);
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let named = |why: String| format!("{}: {why}", at + 1);
        let mut host = host(name).map_err(named)?;
        for word in words {
            let slots = word.strip_prefix("slots=").ok_or_else(|| {
                named(format!("{word}: only slots= may follow a host, the number of processors"))
            })?;
            host.processors = Some(number(slots).map_err(named)?);
        }
        hosts.push(host);
    }
    Ok(hosts)
}

fn host(word: &str) -> Result<Host, String> {
    // An IPv6 address contains colons, unless it is in brackets.
    let (name, processors) = match word.rsplit_once(':') {
        Some((name, count)) if !name.contains(':') || name.ends_with(']') => (name, Some(count)),
        _ => (word, None),
    };
    let processors = processors.map(number).transpose()?;
    let name = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    if !is_name(name) {
        return Err(format!("'{word}' is no host"));
    }
    Ok(Host { name: name.to_owned(), processors })
}

fn number(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|&count: &u32| count > 0);
    count.ok_or_else(|| format!("'{text}' is no number of processors"))
}

/// Returns all nodes in order. This host, which has the files and the terminal, is the first, even
/// if it is not named. Without a name it provides one processor, for its first thread.
pub fn nodes(named: Vec<Host>, is_here: impl Fn(&str) -> bool) -> Result<Vec<Host>, String> {
    let (here, others): (Vec<Host>, Vec<Host>) =
        named.into_iter().partition(|host| is_here(&host.name));
    if let [_, again, ..] = &here[..] {
        return Err(format!("{}: this host is named twice", again.name));
    }
    for (at, host) in others.iter().enumerate() {
        if others[..at].iter().any(|it| it.name == host.name) {
            return Err(format!("{}: this host is named twice", host.name));
        }
    }
    let unnamed = Host { name: "localhost".to_owned(), processors: Some(1) };
    let first = here.into_iter().next().unwrap_or(unnamed);
    Ok(std::iter::once(first).chain(others).collect())
}

/// Returns true if the name is this host's name or resolves to one of its addresses.
pub fn is_here(name: &str) -> bool {
    let uname = rustix::system::uname();
    if name == "localhost" || Some(name) == uname.nodename().to_str().ok() {
        return true;
    }
    // A host can bind only to its own addresses.
    let addresses = (name, 0).to_socket_addrs();
    addresses.is_ok_and(|mut all| all.any(|address| UdpSocket::bind(address).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(all: &[(&str, Option<u32>)]) -> Vec<Host> {
        let host = |&(name, processors): &(&str, _)| Host { name: name.to_owned(), processors };
        all.iter().map(host).collect()
    }

    #[test]
    fn lists_and_files_name_hosts() {
        let wanted = named(&[("a", None), ("me@b.c", Some(4)), ("::1", None), ("fe::2", Some(2))]);
        assert_eq!(list("a,me@b.c:4,::1,[fe::2]:2"), Ok(wanted));
        let text = "# all\na\n\nb slots=4 # big\n c:2\n";
        assert_eq!(file(text), Ok(named(&[("a", None), ("b", Some(4)), ("c", Some(2))])));
        for bad in ["", "a,", "a:0", "a:x", ":3", "-oProxyCommand=x", "a;b"] {
            assert!(list(bad).is_err(), "{bad}");
        }
        assert!(file("a\nb slots=0").is_err_and(|why| why.starts_with("2: ")));
        assert!(file("a max=3").is_err_and(|why| why.contains("max=3")));
    }

    #[test]
    fn this_host_is_the_first_node() {
        let here = |name: &str| name == "me" || name == "my-address";
        let nodes = |text: &str| nodes(list(text).unwrap(), here);
        assert_eq!(nodes("a,me:2,b"), Ok(named(&[("me", Some(2)), ("a", None), ("b", None)])));
        assert_eq!(nodes("a"), Ok(named(&[("localhost", Some(1)), ("a", None)])));
        assert!(nodes("a,b,a").is_err_and(|why| why.contains("a: ")));
        assert!(nodes("me,a,my-address").is_err());
    }

    #[test]
    fn a_host_knows_its_own_names() {
        assert!(is_here("localhost") && is_here("127.0.0.1"));
        assert!(!is_here("192.0.2.1") && !is_here("nowhere.invalid"));
    }
}
