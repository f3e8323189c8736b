//! Virtual machines of PVM under Slurm: srun starts the daemons of all hosts, or each one in
//! ssh's place.

use std::time::Duration;

use nagaya_tests::slurm::Slurm;
use nagaya_tests::{WorkDir, nagaya, nagaya_path, tool, wait_until};

/// Time limit of each step.
const LIMIT: Duration = nagaya_tests::TIME_LIMIT;

/// Returns the console's output on a host, which has its own runtime directory in `work`.
fn console(work: &WorkDir, host: &str, lines: &str) -> String {
    nagaya("pvm").env("XDG_RUNTIME_DIR", work.join(host)).stdin(lines).run().ok()
}

fn daemon_listens(work: &WorkDir, host: &str) -> bool {
    work.join(host).join("nagaya/pvmd").exists()
}

/// The hosts that it knows.
fn hosts(work: &WorkDir, host: &str) -> Vec<String> {
    let conf = console(work, host, "conf\n");
    let lines = conf.lines().filter(|line| line.contains("LINUX64"));
    lines.filter_map(|line| Some(line.split_whitespace().next()?.to_string())).collect()
}

#[test]
fn srun_starts_the_daemons_of_all_hosts() {
    srun_starts_the_daemons_by("pmix");
}

#[test]
fn srun_s_pmi2_starts_the_daemons_of_all_hosts() {
    srun_starts_the_daemons_by("pmi2");
}

fn srun_starts_the_daemons_by(interface: &str) {
    let (slurm, work) = (Slurm::start(&["n0"]), WorkDir::short());
    let script = "host=host$SLURM_PROCID; mkdir -m 700 $0/$host; \
        XDG_RUNTIME_DIR=$0/$host exec \"$1\" pvmd -n $host";
    let srun = slurm
        .client("srun")
        .args([&format!("--mpi={interface}"), "-n", "3", "sh", "-c", script])
        .arg(work.path())
        .arg(nagaya_path())
        .env("UCX_TLS", "tcp,self")
        .spawn();
    let all = ["host0", "host1", "host2"];
    wait_until("all listen", LIMIT, || all.iter().all(|host| daemon_listens(&work, host)));
    for host in all {
        assert_eq!(hosts(&work, host), all, "on {host}");
    }
    console(&work, "host1", "halt\n");
    srun.wait().ok();
    assert!(!all.iter().any(|host| daemon_listens(&work, host)));
}

#[test]
fn srun_starts_hosts_in_the_place_of_ssh() {
    let (slurm, work) = (Slurm::start(&["n0", "n1"]), WorkDir::short());
    let rsh = format!(
        "#!/bin/sh\nhost=$1\nshift\ndir={}/$host\nmkdir -m 700 $dir || exit\nSLURM_CONF={} exec {} \
         --quiet -N1 -w $host env XDG_RUNTIME_DIR=$dir sh -c \"$*\"\n",
        work.path().display(),
        slurm.conf().display(),
        tool("srun").display(),
    );
    let rsh = work.write_executable("rsh", &rsh);
    std::fs::create_dir(work.join("one")).expect("a new directory");
    let daemon = nagaya("pvmd")
        .args(["-n", "one"])
        .env("XDG_RUNTIME_DIR", work.join("one"))
        .env("PVM_RSH", rsh)
        .env("UCX_TLS", "tcp,self")
        .spawn();
    wait_until("the first daemon listens", LIMIT, || daemon_listens(&work, "one"));
    let added = console(&work, "one", "add n0 n1\n");
    assert!(added.contains("2 successful"), "{added}");
    // srun's jobs go, and the daemons stay.
    wait_until("srun's jobs are over", LIMIT, || {
        slurm.client("squeue").arg("-h").run().ok().is_empty()
    });
    assert_eq!(hosts(&work, "n1"), ["one", "n0", "n1"]);
    console(&work, "n0", "halt\n");
    daemon.wait().ok();
    wait_until("all have ended", LIMIT, || {
        !["one", "n0", "n1"].iter().any(|host| daemon_listens(&work, host))
    });
}
