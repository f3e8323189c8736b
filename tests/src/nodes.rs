//! Several nodes on one machine: network namespaces connected by virtual Ethernet devices, each
//! with its own host name, `/dev/shm` and runtime directory. A launcher reaches them through a
//! script that takes ssh's arguments.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Cmd, Running, Task, WorkDir, nagaya, ps, runtime_dir, tool, wait_until};

/// The names of the nodes, for launchers and in the nodes.
pub const NAMES: [&str; 4] = ["node1", "node2", "node3", "node4"];

/// Time limit for the end after a loss: that of the fabric, on a busy machine.
pub const END_MAX: Duration = Duration::from_secs(30);

/// The nodes. Dropped, they are gone.
pub struct Nodes {
    dir: WorkDir,
    /// A process in the namespaces of each, which go with it.
    holders: Vec<Running>,
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
        let left = (0..self.holders.len()).flat_map(|node| self.processes(node));
        for pid in left.filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The parts of a machine that the nodes share, besides the processor.
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
        Self::of(2, shares)
    }

    /// So many nodes, 2 to 4.
    pub fn of(count: usize, shares: Shares) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let dir = WorkDir::new();
        let names = &NAMES[..count];
        let lines = names
            .iter()
            .enumerate()
            .map(|(node, name)| format!("{} {name}\n", Self::address(node)));
        dir.write("hosts", format!("127.0.0.1 localhost\n{}", lines.collect::<String>()));
        dir.write_executable("agent", AGENT);
        let apart = if shares == Shares::Files { "apart" } else { "" };
        let hold = |name: &&str| {
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
        };
        let holders = names.iter().map(hold).collect();
        let nodes = Self { dir, holders };
        let ip = |node: usize, args: &[&str]| nodes.on(node, Cmd::new(tool("ip")).args(args));
        let pid = |node: usize| nodes.holders[node].pid().to_string();
        let add = |args: &[&str]| ip(0, &[&["link", "add"], args].concat()).run().ok();
        // Each node's device is eth0, which UCX finds in the machine's /sys.
        match count {
            2 => drop(add(&["eth0", "type", "veth", "peer", "name", "eth0", "netns", &pid(1)])),
            _ => {
                add(&["eth0", "type", "bridge"]);
                for node in 1..count {
                    let port = format!("port{node}");
                    add(&[&port, "type", "veth", "peer", "name", "eth0", "netns", &pid(node)]);
                    ip(0, &["link", "set", &port, "master", "eth0", "up"]).run().ok();
                }
            }
        }
        for node in 0..count {
            let address = format!("{}/24", Self::address(node));
            ip(node, &["addr", "add", &address, "dev", "eth0"]).run().ok();
            ip(node, &["link", "set", "eth0", "up"]).run().ok();
        }
        // The kernel reports this some time later. Intel MPI, which checks before, may crash
        // (without Nagaya: 3 times of 38).
        for node in 0..count {
            wait_until("the nodes are connected", Duration::from_secs(60), || {
                ip(node, &["link", "show", "eth0"]).run().ok().contains("state UP")
            });
        }
        Some(nodes)
    }

    /// Returns the address of a node.
    pub fn address(node: usize) -> String {
        format!("10.250.0.{}", node + 1)
    }

    /// The program that stands for ssh.
    pub fn agent(&self) -> PathBuf {
        self.dir.join("agent")
    }

    /// A directory that both see.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        self.holders.len()
    }

    /// Nothing is left of a job on any node, soon.
    #[track_caller]
    pub fn all_is_gone(&self) {
        let left = || (0..self.count()).flat_map(|node| self.processes(node));
        let begin = Instant::now();
        while left().next().is_some() {
            let line = |pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            let lines: Vec<_> = left().map(|pid| (pid, line(pid))).collect();
            assert!(begin.elapsed() < END_MAX, "left: {lines:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// PIDs of all that runs on a node, and was started there.
    pub fn processes(&self, node: usize) -> Vec<i32> {
        let network = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let holder = self.holders[node].pid();
        let Some(own) = network(holder) else { return Vec::new() };
        if network(std::process::id() as i32).as_ref() == Some(&own) {
            return Vec::new(); // It was not set up.
        }
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|&pid| pid != holder && network(pid).as_ref() == Some(&own))
            .collect()
    }

    /// Bytes that a node has sent by a device.
    #[track_caller]
    pub fn sent(&self, node: usize, device: &str) -> u64 {
        let table = self.on(node, Cmd::new("cat").arg("/proc/net/dev")).run().ok();
        let line =
            table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        // The ninth number: the first eight count received data.
        let sent = line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok());
        sent.unwrap_or_else(|| panic!("no {device} in {table}"))
    }

    /// Cuts a node off from the others.
    pub fn cut(&self, node: usize) {
        self.on(node, Cmd::new(tool("ip")).args(["link", "set", "eth0", "down"])).run().ok();
    }

    /// Returns the command on a node. Launchers keep files under their host's name in a common
    /// directory. Here it is separate, since nodes of other tests have the same names.
    pub fn on(&self, node: usize, command: Cmd) -> Cmd {
        let pid = self.holders[node].pid().to_string();
        let nsenter = Cmd::new(tool("nsenter")).args(["-t", &pid, "-m", "-u", "-n", "--"]);
        nsenter.command(command).env("TMPDIR", self.dir())
    }

    /// Returns the list of `nagaya ps` there.
    #[track_caller]
    pub fn tasks(&self, node: usize) -> Vec<Task> {
        ps(|_| self.on(node, nagaya("ps").arg("--parsable")))
    }

    /// Bytes and packets that have come to a node over the network.
    pub fn received(&self, node: usize) -> (u64, u64) {
        let text = self.on(node, Cmd::new(tool("cat")).arg("/proc/net/dev")).run().ok();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
        let mut numbers = line.expect("a device").split_whitespace();
        let mut next = || numbers.next().and_then(|it| it.parse().ok()).expect("a number");
        (next(), next())
    }

    /// TCP segments with data that a node has sent: without acknowledgements, which come at times
    /// with data and at times alone, and without what was sent again.
    pub fn sent_segments(&self, node: usize) -> u64 {
        let text = self.on(node, Cmd::new(tool("cat")).arg("/proc/net/netstat")).run().ok();
        // One line of names, one of numbers.
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
        let mut fields = || lines.next().expect("TCP's counters").split_whitespace();
        let (mut names, mut numbers) = (fields(), fields());
        let place = names.position(|name| name == "TCPOrigDataSent").expect("a counter");
        numbers.nth(place).and_then(|it| it.parse().ok()).expect("a number")
    }
}
