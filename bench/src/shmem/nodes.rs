//! Two nodes on this machine. Each has a network namespace, and its own host name, processes, IPC
//! objects and /dev/shm. So no library finds memory that the nodes share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::namespaces::Namespaces;

/// The host names.
const HOSTS: [&str; 2] = ["node1", "node2"];
/// The link between the nodes. UCX would else prefer the loopback device.
pub const DEVICE: &str = "veth0";

/// Both nodes. They are deleted when this value is dropped.
pub struct Nodes {
    /// The scripts, and a runtime directory for each node.
    directory: PathBuf,
    namespaces: Namespaces,
}

impl Nodes {
    /// Makes the nodes; needs root.
    pub fn make() -> Result<Self, Failure> {
        let namespaces = Namespaces::make()?;
        let directory = std::env::temp_dir().join(format!("nagaya-nodes-{}", std::process::id()));
        // From here on, a failure removes the directory.
        let made = Nodes { directory, namespaces };
        made.write().map_err(|error| {
            Failure::new(format!("{}: cannot be written: {error}", made.directory.display()))
        })?;
        Ok(made)
    }

    /// Writes the table of hosts, a script for each node that runs a command there, and a
    /// substitute for ssh.
    fn write(&self) -> std::io::Result<()> {
        let directory = self.directory.display();
        let mut table = "127.0.0.1 localhost\n".to_string();
        for (at, host) in HOSTS.into_iter().enumerate() {
            let runtime = self.directory.join(format!("run-{host}"));
            fs::create_dir_all(&runtime)?;
            fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700))?;
            table += &format!("{} {host}\n", Namespaces::ADDRESSES[at]);
            let enter = self.namespaces.enter(at).join(" ");
            self.write_script(
                host,
                &format!(
                    "exec {enter} unshare -m -u -i -p -f --kill-child --mount-proc sh -ec '\n\
                     hostname {host}\n\
                     mount --bind {directory}/hosts /etc/hosts\n\
                     mount -t tmpfs tmpfs /dev/shm\n\
                     export XDG_RUNTIME_DIR={runtime} TMPDIR={runtime}\n\
                     exec \"$@\"' sh \"$@\"\n",
                    runtime = runtime.display(),
                ),
            )?;
        }
        fs::write(self.directory.join("hosts"), table)?;
        self.write_script(
            "agent",
            &format!(
                "while :; do case $1 in -*) shift;; *) break;; esac; done\n\
                 host=$1\n\
                 shift\n\
                 exec {directory}/$host sh -c \"$*\"\n"
            ),
        )
    }

    fn write_script(&self, name: &str, text: &str) -> std::io::Result<()> {
        let file = self.directory.join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}"))?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))
    }

    /// Returns the program that runs a command line on the first node.
    pub fn first(&self) -> Command {
        Command::new(self.directory.join(HOSTS[0]))
    }

    /// Returns the program that a launcher calls in place of ssh.
    pub fn agent(&self) -> PathBuf {
        self.directory.join("agent")
    }

    /// Returns the hosts with `pes` PEs each, for the options of launchers.
    pub fn hosts(&self, pes: u32) -> String {
        HOSTS.map(|host| format!("{host}:{pes}")).join(",")
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
