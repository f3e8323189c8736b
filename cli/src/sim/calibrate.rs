//! Measures this machine for the simulator: messages through the fabric between two processes,
//! pages through the pager, copies and comparisons, and the inner loops of the programs.
//!
//! Both sides spin, as the driver does on free processors. Only the measurement of the wake-up
//! time sleeps. Each result is a median.

use std::env::current_exe;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::mem::ManuallyDrop;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use coherence::diff;
use nagaya_server::Failure;
use net::event::{Event, Peer};
use net::fabric::Fabric;
use net::hex;
use net::secret::Secret;
use pager::{Access, Place, Region, Stops};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sim::cluster::{Cluster, Memory, Network, Waking};
use sim::program::kernels;

const PAGE: usize = 8192;
/// Sizes between which the bandwidth is taken.
const SIZES: [usize; 2] = [64 << 10, 1 << 20];
const ROUNDS: usize = 400;
/// After that a thread that has nothing to do sleeps.
const ASLEEP: Duration = Duration::from_micros(300);
/// After that the other side is not there.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// The other process, which ends with this one.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures all of it.
pub fn measure() -> Result<Cluster, Failure> {
    let (network, waking) = network()?;
    let memory = memory()?;
    let compute = kernels::measure();
    let cluster = Cluster {
        name: "this machine".to_string(),
        about: "measured by nagaya sim --calibrate: the network is a connection between \
                two processes here"
            .to_string(),
        cores: cores(),
        network,
        memory,
        waking,
        compute,
    };
    print!("{}", cluster.text());
    Ok(cluster)
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

fn failure(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::ours(format!("--calibrate: {what}: {why}"))
}

fn fabric(id: u64, secret: &Secret) -> Result<Fabric, Failure> {
    Fabric::new(id, secret).map_err(|why| failure("the network", why))
}

/// Returns the next message and the time to receive it once it was available. If `sleeps`, the
/// thread sleeps as soon as no message is available.
fn message(fabric: &mut Fabric, sleeps: bool) -> Result<(Peer, Vec<u8>, u64), Failure> {
    let begin = Instant::now();
    loop {
        let polled = Instant::now();
        match fabric.poll() {
            Some(Event::Message { from, payload, .. }) => {
                return Ok((from, payload, polled.elapsed().as_nanos() as u64));
            }
            Some(Event::Lost { why, .. }) => return Err(failure("the other process", why)),
            Some(Event::Closed(_)) => return Err(failure("the other process", "it is gone")),
            Some(_) => {}
            None if begin.elapsed() > TIME_LIMIT => {
                return Err(failure("the other process", "it does not answer"));
            }
            None if sleeps && fabric.arm().unwrap_or(false) => {
                let mut fds = [PollFd::from_borrowed_fd(fabric.descriptor(), PollFlags::IN)];
                let left = fabric.deadline().map_or(TIME_LIMIT, |until| until - polled.min(until));
                let left = Timespec::try_from(left).expect("it is short");
                let _ = poll(&mut fds, Some(&left));
            }
            None => {}
        }
    }
}

/// The wait mode of the other side. A message of one byte selects it.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    Spinning,
    Sleeping,
    /// While its process computes on all processors that there are for it.
    Busy,
}

/// The other side: echoes each message until it receives the end.
pub fn echo() -> Result<i32, Failure> {
    let mut secret = String::new();
    std::io::stdin().read_line(&mut secret).map_err(|why| failure("the secret", why))?;
    let secret = hex::decode(secret.trim()).and_then(|bytes| bytes.try_into().ok());
    let secret = secret.ok_or_else(|| failure("the secret", "malformed"))?;
    let mut fabric = fabric(2, &Secret::new(secret))?;
    println!("{}", hex::encode(fabric.address()));
    let _ = std::io::stdout().flush();
    let computes: &AtomicBool = Box::leak(Box::default());
    let mut sleeps = false;
    loop {
        let Ok((from, payload, _)) = message(&mut fabric, sleeps) else { return Ok(0) };
        if let [waits] = payload[..] {
            sleeps = waits != Waits::Spinning as u8;
            let is_busy = waits == Waits::Busy as u8;
            if is_busy && !computes.swap(is_busy, Ordering::Relaxed) {
                // Another processor is the one that measures.
                for _ in 1..cores().max(2) {
                    thread::spawn(|| while computes.load(Ordering::Relaxed) {});
                }
            }
            computes.store(is_busy, Ordering::Relaxed);
        }
        if fabric.send(from, &[], payload).is_err() {
            return Ok(0);
        }
    }
}

fn cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

fn network() -> Result<(Network, Waking), Failure> {
    let mut bytes = [0; 32];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|why| failure("the secret", why))?;
    let own = current_exe().map_err(|why| failure("our own path", why))?;
    let mut command = Command::new(own);
    command.args(["sim", "--echo"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = Other(command.spawn().map_err(|why| failure("the other process", why))?);
    let (input, output) = (other.0.stdin.take(), other.0.stdout.take());
    let mut line = String::new();
    let mut input = input.expect("it is piped");
    writeln!(input, "{}", hex::encode(&bytes)).map_err(|why| failure("the other process", why))?;
    BufReader::new(output.expect("it is piped"))
        .read_line(&mut line)
        .map_err(|why| failure("the other process", why))?;
    let address = hex::decode(line.trim()).filter(|address| !address.is_empty());
    let address = address.ok_or_else(|| failure("the other process", "it gives no address"))?;
    let mut fabric = fabric(1, &Secret::new(bytes))?;
    let peer = fabric.connect(&address).map_err(|why| failure("the other process", why))?;

    let mut round = |size: usize, waits: Waits| -> Result<[u64; 3], Failure> {
        let (mut ways, mut sends, mut receives) = (Vec::new(), Vec::new(), Vec::new());
        fabric.send(peer, &[], vec![waits as u8]).map_err(|why| failure("a message", why))?;
        message(&mut fabric, false)?;
        let mut payload = vec![1; size];
        for at in 0..ROUNDS {
            let pause = Instant::now();
            while waits != Waits::Spinning && pause.elapsed() < ASLEEP {
                std::hint::spin_loop();
            }
            let begin = Instant::now();
            fabric.send(peer, &[], payload).map_err(|why| failure("a message", why))?;
            let sent = begin.elapsed().as_nanos() as u64;
            let (_, came, received) = message(&mut fabric, false)?;
            payload = came;
            // The first ones connect.
            if at >= ROUNDS / 8 {
                ways.push(begin.elapsed().as_nanos() as u64 / 2);
                sends.push(sent);
                receives.push(received);
            }
        }
        Ok([ways, sends, receives].map(median))
    };
    let [way, send_ns, receive_ns] = round(64, Waits::Spinning)?;
    let [small, large] =
        [round(SIZES[0], Waits::Spinning)?[0], round(SIZES[1], Waits::Spinning)?[0]];
    // They are woken on one of the two ways.
    let [waiting_ns, computing_ns] = [round(64, Waits::Sleeping)?[0], round(64, Waits::Busy)?[0]]
        .map(|woken| 2 * woken.saturating_sub(way));
    let more = (SIZES[1] - SIZES[0]) as f64;
    // Work that both sides do at the same time counts once: the sum must be the whole path.
    let busy = (send_ns + receive_ns).max(way);
    let (send_ns, receive_ns) = (send_ns * way / busy, receive_ns * way / busy);
    let network = Network {
        latency_ns: way - send_ns - receive_ns,
        bandwidth_mb_s: more * 1000.0 / large.saturating_sub(small).max(1) as f64,
        send_ns,
        receive_ns,
        kib_ns: 0,
        machine_nodes: 1,
    };
    Ok((network, Waking { waiting_ns, computing_ns }))
}

fn memory() -> Result<Memory, Failure> {
    let [fault_ns, map_ns, wake_ns] = faults()?;
    let [copy_mb_s, diff_mb_s] = copies();
    Ok(Memory { fault_ns, map_ns, wake_ns, call_ns: call(), copy_mb_s, diff_mb_s })
}

/// Until a fault is known, until the page is mapped, until the thread goes on.
fn faults() -> Result<[u64; 3], Failure> {
    const PAGES: u64 = 512;
    let fail = |why| failure("pages", why);
    // An address range without mappings of Nagaya.
    let place = Place { start: 0x6a00_0000_0000, page_bytes: PAGE };
    // It stays until the command ends: if something fails, the thread below is still there.
    let mut region = ManuallyDrop::new(Region::new(place, Stops::All).map_err(fail)?);
    region.grow(PAGES).map_err(fail)?;
    // Filled, as pages are that come from elsewhere: mapping does not pay for their memory.
    for page in 0..PAGES {
        region.write(page, 0, &[1; PAGE]).map_err(fail)?;
    }
    let origin = Instant::now();
    let toucher = thread::spawn(move || {
        let mut times = Vec::new();
        for page in 0..PAGES as usize {
            let begin = origin.elapsed().as_nanos() as u64;
            let at = std::ptr::with_exposed_provenance::<u8>(place.start + page * PAGE);
            // SAFETY: the region has this page, and is never dropped.
            black_box(unsafe { at.read_volatile() });
            times.push((begin, origin.elapsed().as_nanos() as u64));
        }
        times
    });
    let mut served: Vec<(u64, u64)> = Vec::new();
    let mut faults = Vec::new();
    while served.len() < PAGES as usize {
        region.faults(&mut faults).map_err(fail)?;
        for fault in faults.drain(..) {
            let known = origin.elapsed().as_nanos() as u64;
            region.allow(fault.page, Access::Write).map_err(fail)?;
            served.push((known, origin.elapsed().as_nanos() as u64));
        }
    }
    let touched = toucher.join().expect("it only reads");
    let pairs = || touched.iter().zip(&served);
    Ok([
        median(pairs().map(|(touch, serve)| serve.0.saturating_sub(touch.0)).collect()),
        median(served.iter().map(|(known, mapped)| mapped - known).collect()),
        median(pairs().map(|(touch, serve)| touch.1.saturating_sub(serve.1)).collect()),
    ])
}

/// MB/s of copies of pages, and of comparisons of pages that differ in a few places.
fn copies() -> [f64; 2] {
    const PAGES: usize = 4096;
    let from = vec![1u8; PAGES * PAGE];
    let mut to = vec![0u8; PAGES * PAGE];
    let rate = |begin: Instant| (PAGES * PAGE) as f64 * 1000.0 / begin.elapsed().as_nanos() as f64;
    let (mut copy, mut compare) = (0f64, 0f64);
    for _ in 0..4 {
        let begin = Instant::now();
        to.chunks_mut(PAGE).zip(from.chunks(PAGE)).for_each(|(to, from)| to.copy_from_slice(from));
        copy = copy.max(rate(begin));
        to.chunks_mut(PAGE).for_each(|page| page[PAGE / 2..PAGE / 2 + 64].fill(7));
        let mut body = Vec::new();
        let begin = Instant::now();
        for (page, (to, from)) in to.chunks(PAGE).zip(from.chunks(PAGE)).enumerate() {
            diff::append(&mut body, page as u64, from, to);
            body.clear();
        }
        compare = compare.max(rate(begin));
    }
    [copy, compare]
}

/// From one thread to another, which waits for it.
fn call() -> u64 {
    const TURNS: u32 = 20_000;
    let turn = AtomicU32::new(0);
    let both = Barrier::new(2);
    let pass = |mine: u32| {
        both.wait();
        let begin = Instant::now();
        for at in (mine..2 * TURNS).step_by(2) {
            while turn.load(Ordering::Acquire) != at {
                std::hint::spin_loop();
            }
            turn.store(at + 1, Ordering::Release);
        }
        begin.elapsed().as_nanos() as u64 / u64::from(2 * TURNS)
    };
    thread::scope(|scope| {
        scope.spawn(|| pass(1));
        pass(0)
    })
}
