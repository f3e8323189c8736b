//! Round trips and bandwidth of each carrier, between two processes of this host.
//!
//! `cargo run --release -p nagaya-net --example carriers`. Rounds of the carriers alternate.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use net::event::{Event, Peer};
use net::fabric::Fabric;
use net::hex;
use net::secret::Secret;

const CARRIERS: [&str; 3] = ["local", "tcp", "ucx-tcp"];
const SIZES: [usize; 7] = [8, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Messages under way in a stream.
const WINDOW: u64 = 32;
const TURNS: usize = 5;
const WAIT_MAX: Duration = Duration::from_secs(30);

fn secret() -> Secret {
    Secret::new([7; 32])
}

/// Returns the next message's sender, header and length.
fn message(fabric: &mut Fabric) -> (Peer, Vec<u8>, Vec<u8>) {
    loop {
        match fabric.wait(WAIT_MAX).expect("a descriptor").expect("an event in time") {
            Event::Message { from, header, payload } => return (from, header, payload),
            Event::Lost { why, .. } => panic!("lost: {why}"),
            _ => {}
        }
    }
}

/// Answers messages whose header is `echo`, and counts the others until `end`.
fn serve(carriers: &str) {
    let mut fabric = Fabric::with_carriers(2, &secret(), carriers).expect("a fabric");
    println!("{}", hex::encode(fabric.address()));
    loop {
        let (from, header, payload) = message(&mut fabric);
        match &header[..] {
            b"echo" => drop(fabric.send(from, b"", payload).expect("it stands")),
            b"end" => drop(fabric.send(from, b"", Vec::new()).expect("it stands")),
            b"over" => return,
            _ => {}
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn round_trip(fabric: &mut Fabric, peer: Peer, bytes: usize) -> f64 {
    let data = vec![1u8; bytes];
    let rounds = if bytes > 100_000 { 200 } else { 2000 };
    let one = |fabric: &mut Fabric| {
        let begin = Instant::now();
        fabric.send(peer, b"echo", data.as_slice()).expect("it stands");
        message(fabric);
        begin.elapsed().as_secs_f64() * 1e6
    };
    median((0..rounds).map(|_| one(fabric)).collect())
}

fn bandwidth(fabric: &mut Fabric, peer: Peer, bytes: usize) -> f64 {
    let data = vec![1u8; bytes];
    let count = (256 << 20) / bytes.max(4096);
    let begin = Instant::now();
    let mut pending = 0;
    for _ in 0..count {
        // SAFETY: the data live until the answer to `end` has come.
        let payload = unsafe { net::payload::Payload::borrowed(data.as_ptr(), data.len()) };
        if fabric.send(peer, b"", payload).expect("it stands") != net::event::Sending::Done {
            pending += 1;
        }
        while pending > WINDOW {
            if let Some(Event::Sent(_)) = fabric.wait(WAIT_MAX).expect("a descriptor") {
                pending -= 1;
            }
        }
    }
    fabric.send(peer, b"end", Vec::new()).expect("it stands");
    message(fabric);
    (count * bytes) as f64 / begin.elapsed().as_secs_f64() / 1e9
}

fn main() {
    if let Some(carriers) = std::env::args().nth(1) {
        return serve(&carriers);
    }
    let own = std::env::current_exe().expect("the program");
    let mut ends = CARRIERS.map(|carriers| {
        let mut command = Command::new(&own);
        let mut child =
            command.arg(carriers).stdout(Stdio::piped()).spawn().expect("start the other side");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("an address");
        let mut fabric = Fabric::with_carriers(1, &secret(), carriers).expect("a fabric");
        let peer = fabric.connect(&hex::decode(line.trim()).expect("digits")).expect("a peer");
        (carriers, fabric, peer, child)
    });
    println!("{:>9} {:>9} {:>12} {:>9} {:>6}", "carrier", "bytes", "round trip", "GB/s", "turn");
    for bytes in SIZES {
        for turn in 0..TURNS {
            for (carriers, fabric, peer, _) in &mut ends {
                let us = round_trip(fabric, *peer, bytes);
                let gb = bandwidth(fabric, *peer, bytes);
                println!("{carriers:>9} {bytes:>9} {us:>9.1} us {gb:>9.2} {turn:>6}");
            }
        }
    }
    for (_, fabric, peer, child) in &mut ends {
        let _ = fabric.send(*peer, b"over", Vec::new());
        fabric.close(*peer);
        let _ = fabric.wait(Duration::from_millis(100));
        let _ = child.kill();
        let _ = child.wait();
    }
}
