//! Two nodes on one machine: network namespaces that a pair of virtual Ethernet devices
//! connects, each with its host name, `/dev/shm` and runtime directory of its own. A launcher
//! reaches them through a script that takes ssh's arguments.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Cmd, Running, Task, WorkDir, nagaya, ps, runtime_dir, tool, wait_until};

/// What the nodes are called, for launchers and by themselves.
pub const NAMES: [&str; 2] = ["node1", "node2"];

/// Both nodes. Dropped, they are gone.
pub struct Nodes {
    dir: WorkDir,
    /// A process in the namespaces of each, which go with it.
    holders: [Running; 2],
}

/// Sets up its own namespaces and stays in them. Nothing of this is seen outside.
const HOLDER: &str = r#"
set -e
dir=$1 name=$2 runtime=$3
mount --make-rprivate /
hostname "$name"
mount --bind "$dir/hosts" /etc/hosts
if [ "$4" = apart ]; then
	mount -t tmpfs tmpfs /dev/shm
	mkdir -m 700 "$dir/run.$name"
	mount --bind "$dir/run.$name" "$runtime"
fi
ip link set lo up
echo ready
exec sleep 600
"#;

/// `agent [OPTIONS] NODE COMMAND...`
const AGENT: &str = r#"#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
pid=$(cat "${0%/*}/$1.pid")
shift
exec nsenter -t "$pid" -m -u -n -- sh -c "$*"
"#;

/// A launcher's daemon on a node that was cut off would stay.
impl Drop for Nodes {
    fn drop(&mut self) {
        let network = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let holders = self.holders.each_ref().map(Running::pid);
        let ours = network(std::process::id() as i32);
        let own = holders.map(network).map(|it| if it == ours { None } else { it });
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            let lives_there = network(pid).is_some_and(|it| own.contains(&Some(it)));
            if lives_there
                && !holders.contains(&pid)
                && let Some(pid) = Pid::from_raw(pid)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// What of a machine's the nodes share, besides the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// Files only.
    Files,
    /// Also `/dev/shm` and the runtime directory, as containers with the host's may do.
    Memory,
}

impl Nodes {
    /// Two nodes, or `None` where this user may not make them.
    pub fn new(shares: Shares) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let dir = WorkDir::new();
        dir.write("hosts", "127.0.0.1 localhost\n10.250.0.1 node1\n10.250.0.2 node2\n");
        dir.write_executable("agent", AGENT);
        let apart = if shares == Shares::Files { "apart" } else { "" };
        let holders = NAMES.map(|name| {
            let mut holder = Cmd::new(tool("unshare"))
                .args(["-m", "-u", "-n", "sh", "-c", HOLDER, "holder"])
                .arg(dir.path())
                .arg(name)
                .arg(runtime_dir())
                .arg(apart)
                .time_limit(Duration::from_secs(600))
                .spawn();
            holder.wait_for_word("ready");
            dir.write(&format!("{name}.pid"), holder.pid().to_string());
            holder
        });
        let nodes = Self { dir, holders };
        let other = nodes.holders[1].pid().to_string();
        let ip = |node: usize, args: &[&str]| nodes.on(node, Cmd::new(tool("ip")).args(args));
        let pair = ["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &other];
        ip(0, &pair).run().ok();
        for (node, address) in ["10.250.0.1/24", "10.250.0.2/24"].into_iter().enumerate() {
            ip(node, &["addr", "add", address, "dev", "eth0"]).run().ok();
            ip(node, &["link", "set", "eth0", "up"]).run().ok();
        }
        // The kernel says so some time later. Intel MPI, which looks before, may crash (without
        // us: 3 times of 38).
        for node in [0, 1] {
            wait_until("the nodes are connected", Duration::from_secs(60), || {
                ip(node, &["link", "show", "eth0"]).run().ok().contains("state UP")
            });
        }
        Some(nodes)
    }

    /// The program that stands for ssh.
    pub fn agent(&self) -> PathBuf {
        self.dir.join("agent")
    }

    /// A directory that both see.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The command, on node 0 or 1.
    pub fn on(&self, node: usize, command: Cmd) -> Cmd {
        let pid = self.holders[node].pid().to_string();
        Cmd::new(tool("nsenter")).args(["-t", &pid, "-m", "-u", "-n", "--"]).command(command)
    }

    /// What `nagaya ps` lists there.
    #[track_caller]
    pub fn tasks(&self, node: usize) -> Vec<Task> {
        ps(|_| self.on(node, nagaya("ps").arg("--parsable")))
    }
}
