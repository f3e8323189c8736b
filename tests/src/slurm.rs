//! A Slurm cluster on this machine, for tests of srun. Its daemons run as this user, with all
//! their files in a separate directory.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::{Cmd, Running, WorkDir, tool, wait_until};

/// Time limit for the start and the end of its daemons.
const LIMIT: Duration = crate::TIME_LIMIT;

/// A cluster. Dropped, it is gone.
pub struct Slurm {
    work: WorkDir,
    daemons: Vec<Running>,
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

impl Slurm {
    /// A cluster with these nodes, for four processes each.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn start(nodes: &[&str]) -> Slurm {
        // A daemon ends if another process has taken its port in the meantime.
        (0..3).find_map(|_| Self::try_start(nodes)).expect("Slurm's daemons keep running")
    }

    /// Starts a cluster. Returns `None` if a daemon has ended.
    #[track_caller]
    fn try_start(nodes: &[&str]) -> Option<Slurm> {
        let work = WorkDir::short();
        let dir = work.path().display().to_string();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let mut conf = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\n\
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
        for node in nodes {
            let port = port();
            conf += &format!(
                "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4\n"
            );
            std::fs::create_dir(work.join(&format!("spool.{node}"))).expect("a new directory");
        }
        std::fs::create_dir(work.join("state")).expect("a new directory");
        work.write("slurm.conf", &conf);
        for node in nodes {
            // Else in /tmp, under a name that another node's or cluster's job has, too.
            let own = work.join(node);
            std::fs::create_dir(&own).expect("a new directory");
            work.write(&format!("{node}/slurm.conf"), &conf);
            work.write(
                &format!("{node}/mpi.conf"),
                format!("PMIxCliTmpDirBase={}\n", own.display()),
            );
        }
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
        let mut slurm = Slurm { daemons: vec![munged.spawn()], work };
        wait_until("munged listens", LIMIT, || slurm.work.join("munge").exists());
        let conf = slurm.conf();
        let controller = Cmd::new(tool("slurmctld")).arg("-D").arg("-f").arg(&conf);
        slurm.daemons.push(controller.time_limit(Duration::from_secs(600)).spawn());
        for node in nodes {
            let conf = slurm.work.join(node).join("slurm.conf");
            let daemon = Cmd::new(tool("slurmd")).args(["-D", "-N", node]).arg("-f").arg(&conf);
            slurm.daemons.push(daemon.time_limit(Duration::from_secs(600)).spawn());
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

    /// Its configuration, which clients find by `SLURM_CONF`.
    pub fn conf(&self) -> PathBuf {
        self.work.join("slurm.conf")
    }

    /// One of Slurm's commands, for this cluster.
    pub fn client(&self, name: &str) -> Cmd {
        Cmd::new(tool(name)).env("SLURM_CONF", self.conf())
    }
}

impl Drop for Slurm {
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
