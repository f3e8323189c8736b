//! How long a message takes from one core to another, beside what the machine needs at
//! least: a word that two cores set in turns.
//!
//!     cargo run --release -p nagaya-fcp --example latency [CORE CORE]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fcp::header::Plan;
use fcp::member::{Card, Members};
use fcp::memory::Memory;
use fcp::port::Port;
use fcp::ring::Kind;
use fcp::window::Window;
use rustix::thread::{CpuSet, sched_setaffinity};

const TURNS: u64 = 200_000;
const SIZES: [usize; 6] = [8, 48, 256, 1024, 4096, 16384];

fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("the core is ours to use");
}

/// Two ports of a new window.
fn ports() -> [Port; 2] {
    let memory = Memory::anonymous(1 << 20).expect("memory");
    let plan = Plan { members: 2, messages: 512 << 10, lendable: 0 };
    let window = Window::open(memory, Some(plan)).expect("a window");
    let members = Arc::new(Members::of(Arc::new(window)).expect("members"));
    [0, 1].map(|index| Port::join(&members, Card::default(), Some(index)).expect("a place"))
}

/// Nanoseconds one way, of turns that `there` answers and `here` begins.
fn one_way(cores: [usize; 2], there: impl FnOnce() + Send, here: impl FnOnce()) -> f64 {
    thread::scope(|scope| {
        scope.spawn(move || {
            stay_on(cores[1]);
            there();
        });
        stay_on(cores[0]);
        thread::sleep(Duration::from_millis(5));
        let begin = Instant::now();
        here();
        begin.elapsed().as_nanos() as f64 / (2 * TURNS) as f64
    })
}

#[repr(align(128))]
struct Line(AtomicU64);

fn flag(cores: [usize; 2]) -> f64 {
    let (to, fro) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let wait = |word: &AtomicU64, n| {
        while word.load(Ordering::Acquire) != n {
            std::hint::spin_loop();
        }
    };
    let there = || {
        for n in 1..=TURNS {
            wait(&to.0, n);
            fro.0.store(n, Ordering::Release);
        }
    };
    one_way(cores, there, || {
        for n in 1..=TURNS {
            to.0.store(n, Ordering::Release);
            wait(&fro.0, n);
        }
    })
}

fn message(cores: [usize; 2], size: usize) -> f64 {
    let [mut here, mut there] = ports();
    let send = |port: &mut Port, bytes: &[u8]| {
        let to = 1 - port.peer().index;
        port.send(to, Some(0), Kind::Inline, &[bytes], None, |_| ()).expect("it fits");
    };
    let receive = |port: &mut Port, bytes: &mut [u8]| {
        let arrived = port.receive(None).expect("not corrupt");
        arrived.expect("no time limit").read(0, bytes);
    };
    let answer = || {
        let mut bytes = vec![0; size];
        for _ in 0..TURNS {
            receive(&mut there, &mut bytes);
            send(&mut there, &bytes);
        }
    };
    one_way(cores, answer, || {
        let mut bytes = vec![1; size];
        for _ in 0..TURNS {
            send(&mut here, &bytes);
            receive(&mut here, &mut bytes);
        }
    })
}

fn main() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let cores = if let [a, b] = given[..] { [a, b] } else { [0, 1] };
    println!("ns one way; 8 B against the flag");
    println!("  flag{}", SIZES.map(|size| format!("{size:>7} B")).concat());
    for _ in 0..5 {
        let limit = flag(cores);
        let times = SIZES.map(|size| message(cores, size));
        let text = times.map(|time| format!("{time:>9.0}")).concat();
        println!("{limit:>6.0}{text}   {:.2}x", times[0] / limit);
    }
}
