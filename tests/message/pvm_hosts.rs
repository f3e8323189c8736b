//! Virtual machines of several hosts: hosts are added and deleted at run time, and any of them may
//! be killed, the first included. All hosts are this machine, each daemon with its own runtime
//! directory; they use TCP.

#[path = "../../message/pvm/daemon/tests/client/mod.rs"]
mod client;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use client::{Client, parcel};
use nagaya_tests::mpi::{INTEL_MPI, MPICH_4, MPICH_5, OPEN_MPI_4, OPEN_MPI_5};
use nagaya_tests::nodes::{NAMES, Nodes, Shares};
use nagaya_tests::{Running, WorkDir, nagaya, program, wait_until};
use pvm::constants::PvmTaskHost;
use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{Answer, Inheritance, Request, Spawn};
use rustix::process::Signal;

/// Time limit of the daemons for each step.
const LIMIT: Duration = nagaya_tests::TIME_LIMIT;

/// Takes ssh's arguments; each host has a runtime directory, and its daemon's PID in a file.
const AGENT: &str = r#"#!/bin/sh
host=$1
shift
case $host in *nowhere*|localhost) echo "agent: $host: no such host" >&2; exit 255 ;; esac
dir=${0%/*}/$host
mkdir -m 700 "$dir" || exit
echo "Welcome to $host!"
XDG_RUNTIME_DIR=$dir exec sh -c "$*"
"#;

/// Hosts that can be reached by an agent.
struct Machine {
    dir: WorkDir,
    _first: Running,
}

impl Machine {
    /// A virtual machine of one host, called `one`.
    fn new() -> Machine {
        Machine::with_silence("30")
    }

    /// The same, with this many seconds of silence until a host is lost.
    fn with_silence(seconds: &str) -> Machine {
        Machine::with(&["-n", "one"], seconds)
    }

    fn with(arguments: &[&str], seconds: &str) -> Machine {
        let dir = WorkDir::short();
        let agent = dir.write_executable("agent", AGENT);
        let runtime = dir.join("one");
        std::fs::create_dir(&runtime).expect("a new directory");
        let first = nagaya("pvmd")
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("PVM_RSH", &agent)
            .env("NAGAYA_PVM_SILENCE", seconds)
            .env("UCX_TLS", "tcp,self")
            .time_limit(Duration::from_secs(300))
            .spawn();
        let machine = Machine { dir, _first: first };
        wait_until("the first daemon listens", LIMIT, || machine.daemon_if_any("one").is_some());
        machine
    }

    fn socket(&self, host: &str) -> PathBuf {
        self.dir.join(host).join("nagaya").join("pvmd")
    }

    fn client(&self, host: &str) -> Client {
        Client::new(&self.socket(host))
    }

    /// The PID of the daemon of a host.
    fn daemon(&self, host: &str) -> i32 {
        self.daemon_if_any(host).expect("it listens")
    }

    fn daemon_if_any(&self, host: &str) -> Option<i32> {
        let socket = UnixStream::connect(self.socket(host)).ok()?;
        let peer = rustix::net::sockopt::socket_peercred(&socket).ok()?;
        Some(peer.pid.as_raw_nonzero().get())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A failed test leaves daemons that are not halted.
        for entry in std::fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            let host = entry.file_name().to_string_lossy().into_owned();
            if let Some(pid) = self.daemon_if_any(&host) {
                nagaya_tests::kill(pid, Signal::KILL);
            }
        }
    }
}

fn names(client: &mut Client) -> Vec<String> {
    match client.ask(Request::Config) {
        Ok(Answer::Hosts(hosts)) => hosts.into_iter().map(|host| host.name).collect(),
        other => panic!("{other:?} instead of hosts"),
    }
}

fn each(answer: Result<Answer, i32>) -> Vec<i32> {
    match answer {
        Ok(Answer::Each(codes)) => codes,
        other => panic!("{other:?} instead of codes"),
    }
}

fn add(client: &mut Client, hosts: &[&str]) -> Vec<i32> {
    each(client.ask(Request::AddHosts(hosts.iter().map(|host| (*host).to_string()).collect())))
}

fn wait_for_hosts(client: &mut Client, wanted: &[&str]) {
    wait_until(&format!("hosts are {wanted:?}"), LIMIT, || names(client) == wanted);
}

#[test]
fn a_host_that_is_added_has_its_tasks_in_a_space_too() {
    let machine = Machine::with(&["-n", "one", "--space"], "30");
    let mut one = machine.client("one");
    assert_eq!(add(&mut one, &["two"]), [0x80000]);
    for host in ["one", "two"] {
        let spawn = Spawn {
            file: "/bin/sleep".into(),
            directory: String::new(),
            arguments: vec!["60".into()],
            flags: PvmTaskHost,
            place: host.into(),
            count: 2,
            environment: Vec::new(),
            inheritance: Inheritance::default(),
        };
        let tids = match one.ask(Request::Spawn(spawn)) {
            Ok(Answer::Spawned(tids, _)) => tids,
            other => panic!("{other:?} instead of task IDs"),
        };
        assert!(tids.len() == 2 && tids.iter().all(|tid| *tid > 0), "{tids:?} on {host}");
        let ps = nagaya("ps").env("XDG_RUNTIME_DIR", machine.dir.join(host)).run().ok();
        assert_eq!(ps.lines().filter(|line| line.contains("sleep 60")).count(), 2, "{host}: {ps}");
        for tid in tids {
            one.ask(Request::Signal(Tid(tid as u32), 9)).expect("it is signalled");
        }
        let sleeps = || {
            let ps = nagaya("ps").env("XDG_RUNTIME_DIR", machine.dir.join(host)).run().ok();
            ps.contains("sleep")
        };
        wait_until("the tasks have ended", LIMIT, || !sleeps());
    }
}

#[test]
fn hosts_are_added_and_tasks_of_all_of_them_reach_each_other() {
    let machine = Machine::new();
    let mut one = machine.client("one");
    let codes = add(&mut one, &["two", "nowhere.invalid", "three", "one", "bad bad"]);
    let (dup, no) = (Error::DupHost.code(), Error::NoHost.code());
    assert_eq!(codes, [0x80000, no, 0xc0000 + 0x40000, dup, Error::BadParam.code()]);
    // There is such a host, and it does not answer.
    assert_eq!(add(&mut one, &["localhost"]), [Error::CantStart.code()]);
    let mut two = machine.client("two");
    let mut three = machine.client("three");
    assert_eq!((two.tid(), three.tid()), (Tid::task(2, 1), Tid::task(4, 1)));
    for client in [&mut one, &mut two, &mut three] {
        wait_for_hosts(client, &["one", "two", "three"]);
    }
    for n in 0..100u8 {
        one.ask(Request::Route(parcel(three.tid(), i32::from(n), &[n; 9]))).expect("sent");
        three.ask(Request::Route(parcel(two.tid(), i32::from(n), &[n; 9]))).expect("sent");
    }
    for n in 0..100u8 {
        assert_eq!(three.receive(i32::from(n)).header.source, one.tid().as_int());
        assert_eq!(two.receive(i32::from(n)).header.source, three.tid().as_int());
    }
    let Ok(Answer::Tasks(tasks)) = two.ask(Request::Tasks(Tid(0))) else { panic!("no tasks") };
    let tids: Vec<Tid> = tasks.iter().map(|task| task.tid).collect();
    assert_eq!(tids, [one.tid(), two.tid(), three.tid()]);
    // A host is deleted; its daemon ends and leaves nothing.
    let pid = machine.daemon("two");
    let delete = Request::DeleteHosts(vec!["two".into(), "nobody".into()]);
    assert_eq!(each(three.ask(delete)), [0, Error::NoHost.code()]);
    wait_for_hosts(&mut one, &["one", "three"]);
    wait_until("the daemon has ended", LIMIT, || !nagaya_tests::is_alive(pid));
    assert!(!machine.dir.join("two").join("nagaya").exists());
    // The machine ends everywhere.
    let pid = machine.daemon("three");
    let _ = one.send(Request::Halt);
    wait_until("all have ended", LIMIT, || !nagaya_tests::is_alive(pid));
    wait_until("the first has ended", LIMIT, || !machine.dir.join("one").join("nagaya").exists());
    assert!(!machine.dir.join("three").join("nagaya").exists());
}

#[test]
fn the_machine_goes_on_without_its_first_host() {
    let machine = Machine::new();
    let mut one = machine.client("one");
    assert_eq!(add(&mut one, &["two", "three"]), [0x80000, 0xc0000]);
    let (mut two, mut three) = (machine.client("two"), machine.client("three"));
    let first = machine.daemon("one");
    let start = Instant::now();
    nagaya_tests::kill(first, Signal::KILL);
    wait_for_hosts(&mut two, &["two", "three"]);
    wait_for_hosts(&mut three, &["two", "three"]);
    println!("known after {} ms", start.elapsed().as_millis());
    two.ask(Request::Route(parcel(three.tid(), 7, b"still"))).expect("sent");
    assert_eq!(three.receive(7).data, b"still");
    // A host joins those that are left, by the other's wish.
    assert_eq!(add(&mut three, &["four"]), [0x100000]);
    wait_for_hosts(&mut two, &["two", "three", "four"]);
    let last = machine.daemon("four");
    let _ = two.send(Request::Halt);
    wait_until("all have ended", LIMIT, || !nagaya_tests::is_alive(last));
}

#[test]
fn a_signal_to_the_first_daemon_halts_all_hosts() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let machine = Machine::new();
        let hosts = ["one", "two", "three"];
        // Two guests: neither is ever alone, and would end for that.
        assert_eq!(add(&mut machine.client("one"), &hosts[1..]), [0x80000, 0xc0000]);
        let guests = [machine.daemon("two"), machine.daemon("three")];
        nagaya_tests::kill(machine.daemon("one"), signal);
        wait_until(&format!("all have ended by {signal:?}"), LIMIT, || {
            hosts.iter().all(|host| !machine.dir.join(host).join("nagaya").exists())
                && guests.iter().all(|pid| !nagaya_tests::is_alive(*pid))
        });
    }
}

/// Between network namespaces that share only files, as two machines do.
#[test]
fn two_nodes_with_a_network_between_them() {
    let Some(nodes) = Nodes::new(Shares::Files) else {
        return nagaya_tests::skip("only root may make network namespaces");
    };
    let socket = |node: usize| nodes.dir().join(format!("run.{}/nagaya/pvmd", NAMES[node]));
    let daemon = nagaya("pvmd").env("PVM_RSH", nodes.agent()).env("NAGAYA_PVM_SILENCE", "2");
    let daemon = nodes.on(0, daemon.time_limit(Duration::from_secs(300))).spawn();
    wait_until("the first daemon listens", LIMIT, || UnixStream::connect(socket(0)).is_ok());
    let mut one = Client::new(&socket(0));
    assert_eq!(add(&mut one, &[NAMES[1]]), [0x80000]);
    let mut two = Client::new(&socket(1));
    assert_eq!(names(&mut two), NAMES[..2]);
    one.ask(Request::Route(parcel(two.tid(), 1, &[7; 10_000]))).expect("sent");
    assert_eq!(two.receive(1).data, [7; 10_000]);
    two.ask(Request::Route(parcel(one.tid(), 2, b"back"))).expect("sent");
    assert_eq!(one.receive(2).data, b"back");
    // The network breaks without a word: each side goes on alone.
    let start = Instant::now();
    let down = ["link", "set", "eth0", "down"];
    nodes.on(1, nagaya_tests::Cmd::new(nagaya_tests::tool("ip")).args(down)).run().ok();
    wait_until("the first is alone", LIMIT, || names(&mut one) == [NAMES[0]]);
    wait_until("the second is alone", LIMIT, || names(&mut two) == [NAMES[1]]);
    println!("known after {} ms", start.elapsed().as_millis());
    let pid = daemon.pid();
    let _ = (one.send(Request::Halt), two.send(Request::Halt));
    wait_until("both have ended", LIMIT, || {
        !nagaya_tests::is_alive(pid) && !socket(0).exists() && !socket(1).exists()
    });
}

/// A program of `pvm_far.c` on a host.
fn far(machine: &Machine, host: &str, arguments: &[&str]) -> nagaya_tests::Cmd {
    nagaya_tests::Cmd::new(program::c_pvm("pvm_far.c", &[]))
        .args(arguments)
        .env("LD_LIBRARY_PATH", program::pvm_libraries())
        .env("XDG_RUNTIME_DIR", machine.dir.join(host))
        .env("UCX_TLS", "tcp,self")
}

#[test]
fn tasks_of_two_hosts_send_to_each_other_directly_and_in_order() {
    let machine = Machine::new();
    let mut one = machine.client("one");
    assert_eq!(add(&mut one, &["two"]), [0x80000]);
    for end in [&["by exit"][..], &[]] {
        let echo = far(&machine, "two", &[]).spawn();
        let mut tid = String::new();
        wait_until("it says who it is", LIMIT, || {
            tid = echo.stdout().trim().to_string();
            tid.starts_with("800")
        });
        let arguments = [&[&tid[..]], end].concat();
        let sent = far(&machine, "one", &arguments).run().ok();
        assert_eq!(sent, "0 wrong\n");
        assert_eq!(echo.wait().ok(), format!("{tid}\nafter 1200\n"));
    }
    let _ = one.send(Request::Halt);
    wait_until("all have ended", LIMIT, || machine.daemon_if_any("two").is_none());
}

/// The daemons of three hosts, started by a launcher, find each other; a halt ends them and it.
fn daemons_form_a_machine_under(launcher: nagaya_tests::Cmd) {
    let dir = WorkDir::short();
    let script = "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; dir=$0/$rank; mkdir -m 700 $dir; \
        XDG_RUNTIME_DIR=$dir exec \"$1\" pvmd -n host$rank";
    let mpirun = launcher
        .args(["sh", "-c", script])
        .arg(dir.path())
        .arg(nagaya_tests::nagaya_path())
        .env("UCX_TLS", "tcp,self")
        .spawn();
    let socket = |rank: usize| dir.join(&format!("{rank}/nagaya/pvmd"));
    wait_until("all listen", LIMIT, || (0..3).all(|r| UnixStream::connect(socket(r)).is_ok()));
    let mut clients: Vec<Client> = (0..3).map(|rank| Client::new(&socket(rank))).collect();
    for client in &mut clients {
        wait_for_hosts(client, &["host0", "host1", "host2"]);
    }
    let to = clients[2].tid();
    clients[1].ask(Request::Route(parcel(to, 5, b"launched"))).expect("sent");
    assert_eq!(clients[2].receive(5).data, b"launched");
    let _ = clients[1].send(Request::Halt);
    mpirun.wait().ok();
    assert!((0..3).all(|rank| !socket(rank).exists()));
}

#[test]
fn launchers_with_pmix_start_the_daemons_of_all_hosts() {
    for mpi in [OPEN_MPI_4, OPEN_MPI_5] {
        daemons_form_a_machine_under(mpi.launch(3));
    }
}

#[test]
fn launchers_with_pmi_1_start_the_daemons_of_all_hosts() {
    for mpi in [MPICH_4, MPICH_5, INTEL_MPI] {
        daemons_form_a_machine_under(mpi.launch(3));
    }
}

#[test]
fn a_guest_that_is_left_alone_ends() {
    let machine = Machine::with_silence("1");
    let mut one = machine.client("one");
    assert_eq!(add(&mut one, &["two", "three"]), [0x80000, 0xc0000]);
    let mut busy = machine.client("two");
    let (first, second, third) =
        (machine.daemon("one"), machine.daemon("two"), machine.daemon("three"));
    nagaya_tests::kill(third, Signal::STOP);
    nagaya_tests::kill(first, Signal::KILL);
    // Hosts with a task stay. The stopped one is lost, notices that when it resumes, and ends.
    wait_for_hosts(&mut busy, &["two"]);
    nagaya_tests::kill(third, Signal::CONT);
    wait_until("the third has ended", LIMIT, || !nagaya_tests::is_alive(third));
    assert!(nagaya_tests::is_alive(second));
    drop(busy);
    wait_until("the second has ended", LIMIT, || !nagaya_tests::is_alive(second));
    assert!(!machine.dir.join("two").join("nagaya").exists());
}
