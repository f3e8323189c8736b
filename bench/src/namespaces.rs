//! Two network namespaces, connected by a pair of veth devices. To sockets they are two hosts.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::launch::{on_path, output_of};

const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Both namespaces. They are deleted when this value is dropped.
pub struct Namespaces {
    names: [String; 2],
}

impl Namespaces {
    /// The address of each namespace.
    pub const ADDRESSES: [&'static str; 2] = ["10.213.77.1", "10.213.77.2"];

    /// Makes the namespaces; needs root and `ip`.
    pub fn make() -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new("network namespaces: only root can make them"));
        }
        on_path("ip").ok_or_else(|| {
            Failure::new("network namespaces: no command `ip`; apt-get install iproute2")
        })?;
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |side: &str| format!("nagaya-bench-{}-{nth}{side}", std::process::id());
        // From here on, a failure deletes the namespaces.
        let made = Namespaces { names: ["a", "b"].map(name) };
        let [a, b] = &made.names;
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add veth0 netns {a} type veth peer name veth0 netns {b}"),
        ] {
            ip(&line)?;
        }
        for (name, address) in made.names.iter().zip(Self::ADDRESSES) {
            ip(&format!("-n {name} addr add {address}/24 dev veth0"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set veth0 up"))?;
        }
        // The kernel needs up to a second to report that a link is up. UCX uses only links that are
        // up.
        let deadline = Instant::now() + TIME_LIMIT;
        for name in &made.names {
            while !ip(&format!("-n {name} link show veth0"))?.contains("state UP") {
                if Instant::now() > deadline {
                    return Err(Failure::new("network namespaces: veth0 does not come up"));
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(made)
    }

    /// Returns the command prefix for the first (0) or second (1) namespace.
    pub fn enter(&self, which: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.names[which]].map(str::to_string).to_vec()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(line: &str) -> Result<String, Failure> {
    output_of(Command::new("ip").args(line.split(' ')), TIME_LIMIT)
}
