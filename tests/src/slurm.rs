//! A Slurm cluster on this machine, for tests of srun. Its daemons run as this user, with all
//! their files in a separate directory. All nodes are one host, or each has its own namespaces.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::nodes::{NAMES, Nodes};
use crate::{Cmd, Running, WorkDir, tool, wait_until};

/// Time limit for the start and the end of its daemons.
const LIMIT: Duration = crate::TIME_LIMIT;

/// A cluster. Dropped, it is gone.
pub struct Slurm<'a> {
    work: WorkDir,
    daemons: Vec<Running>,
    /// Hosts of the nodes, if each has its own.
    hosts: Option<&'a Nodes>,
}

/// Returns a port that was free a moment ago, below the range from which the kernel chooses ports
/// of clients.
fn port() -> u16 {
    let ports = std::iter::repeat_with(|| fastrand::u16(20_000..32_000));
    ports
        .take(1000)
        .find(|&port| TcpListener::bind(("0.0.0.0", port)).is_ok())
        .expect("a free port")
}

/// Writes the configuration of the controller, which is returned, and of each node. With
/// `have_hosts` each node is a host of its own.
fn write_files(work: &WorkDir, nodes: &[&str], have_hosts: bool) -> PathBuf {
    let dir = work.path().display().to_string();
    let this_host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = |index: usize| match have_hosts {
        true => (nodes[index].to_owned(), Nodes::address(index)),
        false => (this_host.clone(), "127.0.0.1".to_owned()),
    };
    let (first, address) = host(0);
    let mut conf = format!(
        "ClusterName=test\nSlurmctldHost={first}({address})\nSlurmctldPort={}\n\
         AuthType=auth/munge\nAuthInfo=socket={dir}/munge\nCredType=cred/munge\n\
         SlurmUser={uid}\nSlurmdUser={uid}\nStateSaveLocation={dir}/state\n\
         SlurmdSpoolDir={dir}/spool.%n\nSlurmctldPidFile={dir}/slurmctld.pid\n\
         SlurmdPidFile={dir}/slurmd.%n.pid\nSlurmctldLogFile={dir}/slurmctld.log\n\
         SlurmdLogFile={dir}/slurmd.%n.log\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\nSchedulerType=sched/builtin\n\
         SelectType=select/linear\nMpiDefault=none\nSlurmdParameters=config_overrides\n\
         MailProg=/bin/true\nPartitionName=all Nodes={} Default=YES State=UP\n",
        port(),
        nodes.join(","),
        uid = rustix::process::geteuid().as_raw(),
    );
    for (index, node) in nodes.iter().enumerate() {
        let (port, (host, address)) = (port(), host(index));
        conf +=
            &format!("NodeName={node} NodeHostname={host} NodeAddr={address} Port={port} CPUs=4\n");
        std::fs::create_dir(work.join(&format!("spool.{node}"))).expect("a new directory");
    }
    std::fs::create_dir(work.join("state")).expect("a new directory");
    let file = work.write("slurm.conf", &conf);
    for node in nodes {
        // Else in /tmp, under a name that another node's or cluster's job has, too.
        let own = work.join(node);
        std::fs::create_dir(&own).expect("a new directory");
        work.write(&format!("{node}/slurm.conf"), &conf);
        work.write(&format!("{node}/mpi.conf"), format!("PMIxCliTmpDirBase={}\n", own.display()));
    }
    file
}

impl<'a> Slurm<'a> {
    /// A cluster on this host with these nodes, for four processes each.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start(nodes: &[&str]) -> Self {
        Self::start_by(|| Self::try_start(nodes, None))
    }

    /// A cluster of these hosts, with their names. Its commands run on the first one.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start_on(hosts: &'a Nodes) -> Self {
        Self::start_by(|| Self::try_start(&NAMES[..hosts.count()], Some(hosts)))
    }

    #[track_caller]
    fn start_by(start: impl Fn() -> Option<Self>) -> Self {
        // A daemon ends if another process has taken its port in the meantime.
        (0..3).find_map(|_| start()).expect("Slurm's daemons keep running")
    }

    /// Starts a cluster. Returns `None` if a daemon has ended.
    #[track_caller]
    fn try_start(nodes: &[&str], hosts: Option<&'a Nodes>) -> Option<Self> {
        let work = WorkDir::short();
        let conf = write_files(&work, nodes, hosts.is_some());
        let dir = work.path().display().to_string();
        let key = work.write("key", "a key that is long enough for munge, and secret to nobody");
        Cmd::new("chmod").arg("400").arg(&key).run().ok();
        let file = |option: &str, name: &str| format!("--{option}={dir}/{name}");
        let munged = Cmd::new(tool("munged")).args(["--foreground", "--force"]).args([
            file("key-file", "key"),
            file("socket", "munge"),
            file("pid-file", "munged.pid"),
            file("seed-file", "munged.seed"),
            file("log-file", "munged.log"),
        ]);
        let mut slurm = Slurm { daemons: vec![munged.spawn()], work, hosts };
        wait_until("munged listens", LIMIT, || slurm.work.join("munge").exists());
        let controller = Cmd::new(tool("slurmctld")).arg("-D").arg("-f").arg(&conf);
        slurm.spawn(0, controller);
        for (index, node) in nodes.iter().enumerate() {
            let conf = slurm.work.join(node).join("slurm.conf");
            let daemon = Cmd::new(tool("slurmd")).args(["-D", "-N", node]).arg("-f").arg(&conf);
            slurm.spawn(index, daemon);
        }
        let mut all_run = true;
        wait_until("all nodes are idle", LIMIT, || {
            all_run = slurm.daemons.iter_mut().all(Running::is_running);
            let states = slurm.client("sinfo").args(["-h", "-N", "-o", "%T"]).run().stdout;
            let idle = states.lines().filter(|state| *state == "idle").count();
            !all_run || idle == nodes.len()
        });
        all_run.then_some(slurm)
    }

    /// Returns a command on the host of a node.
    fn on(&self, node: usize, command: Cmd) -> Cmd {
        match self.hosts {
            Some(hosts) => hosts.on(node, command),
            None => command,
        }
    }

    fn spawn(&mut self, node: usize, daemon: Cmd) {
        let daemon = self.on(node, daemon).time_limit(Duration::from_secs(600));
        self.daemons.push(daemon.spawn());
    }

    /// Its configuration, which clients find by `SLURM_CONF`.
    pub fn conf(&self) -> PathBuf {
        self.work.join("slurm.conf")
    }

    /// One of Slurm's commands, for this cluster.
    pub fn client(&self, name: &str) -> Cmd {
        self.on(0, Cmd::new(tool(name)).env("SLURM_CONF", self.conf()))
    }
}

impl Drop for Slurm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = Cmd::new("sh").args(["-c", "tail -n 30 *.log"]).dir(self.work.path());
            eprintln!("Slurm's logs:\n{}", logs.run().stdout);
        }
        // Jobs of a test that has failed.
        self.client("scancel").args(["--signal=KILL", "--partition=all"]).run();
        let deadline = Instant::now() + LIMIT;
        let left = || self.client("squeue").arg("-h").run().stdout;
        while !left().trim().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        for mut daemon in self.daemons.drain(..).rev() {
            daemon.signal(Signal::TERM);
            let deadline = Instant::now() + LIMIT;
            while daemon.is_running() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
