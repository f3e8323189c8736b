//! One-way time and bandwidth between two processes, spinning and sleeping.
//!
//!     cargo run --release -p nagaya-net --example pingpong [BYTES...]
//!
//! With `NAMESPACES="PID PID"`, the two run in the network namespaces of these processes
//! (as root). All of UCX's environment variables are in force.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use net::event::{Event, Peer};
use net::fabric::Fabric;
use net::hex;
use net::secret::Secret;
use rustix::process::{Signal, set_parent_process_death_signal};

const SECRET: [u8; 32] = [42; 32];
const SIZES: [usize; 6] = [4, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20];
/// How long a size is measured.
const TIME: Duration = Duration::from_millis(500);

/// The next event.
fn next(fabric: &mut Fabric, sleeps: bool) -> Event {
    loop {
        let event = match sleeps {
            true => fabric.wait(Duration::from_secs(60)).expect("a descriptor"),
            false => fabric.poll(),
        };
        if let Some(event) = event {
            return event;
        }
    }
}

fn message(fabric: &mut Fabric, sleeps: bool) -> (Peer, Vec<u8>, Vec<u8>) {
    loop {
        match next(fabric, sleeps) {
            Event::Message { from, header, payload } => return (from, header, payload),
            Event::Lost { why, .. } => panic!("lost: {why}"),
            _ => {}
        }
    }
}

/// Sends back what comes.
fn answer() {
    // It may spin, and nobody may ever connect.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    let mut fabric = Fabric::new(2, &Secret::new(SECRET)).expect("a fabric");
    println!("{}", hex::encode(fabric.address()));
    std::io::stdout().flush().expect("a pipe");
    let mut sleeps = false;
    loop {
        match next(&mut fabric, sleeps) {
            Event::Message { from, header, payload } => {
                sleeps = header[0] == 1;
                fabric.send(from, &header, payload).expect("a peer");
            }
            Event::Closed(_) | Event::Lost { .. } => return,
            _ => {}
        }
    }
}

fn measure(fabric: &mut Fabric, peer: Peer, sleeps: bool, bytes: usize) -> (f64, f64) {
    let mut payload = vec![1; bytes];
    let mut times = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < TIME || times.len() < 20 {
        let start = Instant::now();
        fabric.send(peer, &[u8::from(sleeps)], payload).expect("a peer");
        payload = message(fabric, sleeps).2;
        times.push(start.elapsed().as_secs_f64() / 2.0);
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    (median * 1e6, times[times.len() / 20] * 1e6)
}

fn main() {
    if env::args().nth(1).as_deref() == Some("answer") {
        return answer();
    }
    let namespaces = env::var("NAMESPACES").unwrap_or_default();
    let [here, there] = match namespaces.split_once(' ') {
        None => [None, None],
        Some((here, there)) => [Some(here), Some(there)],
    };
    let own = env::current_exe().expect("our own path");
    if let (Some(pid), None) = (here, env::var_os("INSIDE")) {
        let mut command = Command::new("nsenter");
        command.args(["-t", pid, "-n"]).arg(own).args(env::args().skip(1)).env("INSIDE", "1");
        let status = command.status().expect("nsenter");
        std::process::exit(status.code().unwrap_or(1));
    }
    let mut command = match there {
        None => Command::new(own),
        Some(pid) => {
            let mut command = Command::new("nsenter");
            command.args(["-t", pid, "-n"]).arg(own);
            command
        }
    };
    let mut child = command.arg("answer").stdout(Stdio::piped()).spawn().expect("ourselves");
    let mut line = String::new();
    let output = child.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("an address");
    let mut fabric = Fabric::new(1, &Secret::new(SECRET)).expect("a fabric");
    let peer = fabric.connect(&hex::decode(line.trim()).expect("digits")).expect("a peer");
    let sizes: Vec<usize> = env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let sizes = if sizes.is_empty() { SIZES.to_vec() } else { sizes };
    println!("{:>10} {:>12} {:>10} {:>10} {:>10}", "bytes", "", "us", "us (5 %)", "MB/s");
    for sleeps in [false, true] {
        measure(&mut fabric, peer, sleeps, 4);
        for &bytes in &sizes {
            let (us, best) = measure(&mut fabric, peer, sleeps, bytes);
            let way = if sleeps { "sleeping" } else { "spinning" };
            println!("{bytes:>10} {way:>12} {us:>10.2} {best:>10.2} {:>10.0}", bytes as f64 / us);
        }
    }
    fabric.close(peer);
    while !matches!(next(&mut fabric, true), Event::Closed(_) | Event::Lost { .. }) {}
    child.wait().expect("our child");
}
