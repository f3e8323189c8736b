//! How long a message takes from one core to another, beside what the machine needs at
//! least: a word that two cores set in turns, and for large messages one copy of what the
//! other core has just written.
//!
//!     cargo run --release -p nagaya-fcp --example latency [CORE CORE]

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fcp::header::Plan;
use fcp::lend::Block;
use fcp::mail::Mail;
use fcp::member::{Card, Members};
use fcp::memory::Memory;
use fcp::port::Port;
use fcp::window::Window;
use rustix::thread::{CpuSet, sched_setaffinity};
use sync::ring::Kind;

const TURNS: u64 = 200_000;
const SIZES: [usize; 6] = [8, 48, 256, 1024, 4096, 16384];
const LARGE_TURNS: u64 = 2_000;
const LARGE: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];

fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("the core is ours to use");
}

/// Two ports of a new window.
fn ports() -> [Port; 2] {
    let memory = Memory::anonymous(33 << 20).expect("memory");
    let plan = Plan { members: 2, messages: 512 << 10, lendable: 16 << 20, listed: false };
    let window = Window::open(memory, Some(plan)).expect("a window");
    let members = Arc::new(Members::of(Arc::new(window)).expect("members"));
    [0, 1].map(|index| Port::join(&members, Card::default(), Some(index)).expect("a place"))
}

/// Nanoseconds one way, of turns that `there` answers and `here` begins.
fn one_way(cores: [usize; 2], turns: u64, there: impl FnOnce() + Send, here: impl FnOnce()) -> f64 {
    thread::scope(|scope| {
        scope.spawn(move || {
            stay_on(cores[1]);
            there();
        });
        stay_on(cores[0]);
        thread::sleep(Duration::from_millis(5));
        let begin = Instant::now();
        here();
        begin.elapsed().as_nanos() as f64 / (2 * turns) as f64
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
    one_way(cores, TURNS, there, || {
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
    one_way(cores, TURNS, answer, || {
        let mut bytes = vec![1; size];
        for _ in 0..TURNS {
            send(&mut here, &bytes);
            receive(&mut here, &mut bytes);
        }
    })
}

/// One copy: each side copies the other's buffer into its own when it is told to.
fn copy(cores: [usize; 2], size: usize) -> f64 {
    let turn = Line(AtomicU64::new(0));
    let mut buffers = [vec![1u8; size], vec![2; size]];
    let [a, b] = buffers.each_mut().map(|buffer| AtomicPtr::new(buffer.as_mut_ptr()));
    let copies = |first: u64, from: &AtomicPtr<u8>, to: &AtomicPtr<u8>| {
        for n in 0..LARGE_TURNS {
            while turn.0.load(Ordering::Acquire) != 2 * n + first {
                std::hint::spin_loop();
            }
            let (from, to) = (from.load(Ordering::Relaxed), to.load(Ordering::Relaxed));
            // SAFETY: both are this long, apart, and ours in turns.
            unsafe { std::ptr::copy_nonoverlapping(from, to, size) };
            turn.0.store(2 * n + first + 1, Ordering::Release);
        }
    };
    one_way(cores, LARGE_TURNS, || copies(1, &a, &b), || copies(0, &b, &a))
}

/// The same by messages of any length, by the faster way.
fn mail(cores: [usize; 2], size: usize) -> f64 {
    let [mut here, mut there] = ports().map(Mail::new);
    let (mut first, mut second) = (vec![1; size], vec![2; size]);
    let answer = || {
        for _ in 0..LARGE_TURNS {
            there.receive(&mut second, &[], None).expect("not corrupt").expect("no time limit");
            there.send(0, None, &second, None).expect("it lives");
        }
    };
    one_way(cores, LARGE_TURNS, answer, || {
        for _ in 0..LARGE_TURNS {
            here.send(1, None, &first, None).expect("it lives");
            here.receive(&mut first, &[], None).expect("not corrupt").expect("no time limit");
        }
    })
}

/// The same by memory that is lent: each reads what is lent in place, into what it lends.
fn lent(cores: [usize; 2], size: usize) -> f64 {
    let [mut here, mut there] = ports();
    let send = |port: &mut Port, block: Block| {
        let to = 1 - port.peer().index;
        let memory = (&block.share(), 0..size);
        port.send_lent(to, None, &[], memory, None, |_| ()).expect("it lives");
    };
    let receive = |port: &mut Port| {
        let mut arrived = port.receive(None).expect("not corrupt").expect("no time limit");
        let loan = arrived.loan().expect("it is lent");
        drop(arrived);
        let mut block = port.block(size).expect("room");
        block.copy_from_slice(&loan);
        block
    };
    let answer = || {
        for _ in 0..LARGE_TURNS {
            let block = receive(&mut there);
            send(&mut there, block);
        }
    };
    one_way(cores, LARGE_TURNS, answer, || {
        let mut block = here.block(size).expect("room");
        for _ in 0..LARGE_TURNS {
            send(&mut here, block);
            block = receive(&mut here);
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
    println!("µs one way; against one copy");
    for size in LARGE {
        for _ in 0..3 {
            let limit = copy(cores, size);
            let (mail, lent) = (mail(cores, size), lent(cores, size));
            println!(
                "{:>5} KiB: copy {:.1}, mail {:.1} ({:.2}x), lent {:.1} ({:.2}x)",
                size >> 10,
                limit / 1e3,
                mail / 1e3,
                mail / limit,
                lent / 1e3,
                lent / limit,
            );
        }
    }
}
