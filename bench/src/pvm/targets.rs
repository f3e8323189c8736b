//! The targets of Nagaya's PVM against stock PVM in the same round.

use std::thread::available_parallelism;

use super::options::Options;
use super::rounds::{OPERATION_BYTES, OPERATIONS};
use super::transport::Transport;
use crate::results::{Measure, Results};
use crate::target::{Bound, Target};

/// Speed-up of a 4-byte message over the routes of stock PVM.
const FASTER_THAN_DIRECT: f64 = 15.0;
const FASTER_THAN_DAEMON: f64 = 30.0;
/// Speed-up of 1 MB in place over stock PVM's direct route.
const FASTER_LARGE: f64 = 2.0;
/// Time of a barrier of two tasks, relative to stock PVM.
const BARRIER: f64 = 1.0 / 15.0;
/// Time from spawn to first message, relative to stock PVM.
const SPAWN: f64 = 0.5;
/// Speed-ups between hosts, over stock PVM with UDP through both daemons.
const HOSTS_LATENCY: f64 = 3.0;
const HOSTS_BANDWIDTH: f64 = 5.0;
/// Time with more tasks than cores, relative to the better route of stock PVM.
const CROWDED: f64 = 1.0;

/// Returns true if there are more tasks than cores.
pub fn more_than_cores(tasks: usize) -> bool {
    tasks > available_parallelism().map_or(1, |cores| cores.get())
}

/// Returns all targets, measured or not.
pub fn all(results: &Results<Transport>, options: &Options) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut ask = |what: String, bound: Bound, of: Measure, above: Transport, below: Transport| {
        let ratio = results.quotient((of, above), (of, below));
        targets.push(Target { what, bound, ratio });
    };
    let message = |what, bytes| Measure { what, tasks: 2, bytes };

    for ours in [Transport::Nagaya, Transport::Space] {
        for encoding in ["xdr", "inplace"] {
            let of =
                message(if encoding == "xdr" { "xdr-unchanged" } else { "inplace-unchanged" }, 4);
            for (stock, least) in [
                (Transport::StockDirect, FASTER_THAN_DIRECT),
                (Transport::StockDaemon, FASTER_THAN_DAEMON),
            ] {
                let what = format!("4 B, {encoding}: {} / {}", stock.name(), ours.name());
                ask(what, Bound::AtLeast(least), of, stock, ours);
            }
        }
        for buffers in ["inplace-unchanged", "inplace-fresh"] {
            let what = format!("1 MB, {buffers}: stock, direct / {}", ours.name());
            let least = Bound::AtLeast(FASTER_LARGE);
            ask(what, least, message(buffers, 1 << 20), Transport::StockDirect, ours);
        }
        let barrier = Measure { what: "barrier", tasks: 2, bytes: 0 };
        let what = format!("barrier of 2 tasks: {} / stock", ours.name());
        ask(what, Bound::AtMost(BARRIER), barrier, ours, Transport::StockDaemon);
        let spawn = Measure { what: "spawn", tasks: 1, bytes: 0 };
        let what = format!("spawn to first message: {} / stock", ours.name());
        ask(what, Bound::AtMost(SPAWN), spawn, ours, Transport::StockDaemon);
    }
    for wiring in ["loopback", "namespaces"] {
        for (bytes, words, least) in
            [(4, "latency, 4 B", HOSTS_LATENCY), (1 << 20, "bandwidth, 1 MB", HOSTS_BANDWIDTH)]
        {
            let what = format!("two hosts ({wiring}), {words}: stock over UDP / nagaya");
            let of = message(wiring, bytes);
            ask(what, Bound::AtLeast(least), of, Transport::StockDaemon, Transport::Nagaya);
        }
    }
    let counts = options.tasks.iter().map(|&tasks| tasks as usize);
    targets.extend(counts.filter(|&tasks| more_than_cores(tasks)).map(|of| crowded(results, of)));
    targets
}

/// Returns the target for more tasks than cores, with its worst operation.
fn crowded(results: &Results<Transport>, tasks: usize) -> Target {
    let quotient = |what| {
        let bytes = if what == "barrier" { 0 } else { OPERATION_BYTES };
        let of = Measure { what, tasks, bytes };
        let stock = |transport| Some((transport, results.of(of, transport)?.median));
        let routes = [Transport::StockDaemon, Transport::StockDirect].into_iter().filter_map(stock);
        let (better, _) = routes.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((what, better, results.quotient((of, Transport::Nagaya), (of, better))?))
    };
    let all = OPERATIONS.into_iter().filter_map(quotient);
    let worst = all.max_by(|a, b| a.2.median.total_cmp(&b.2.median));
    let of = worst.map(|(what, better, _)| format!("({what}): nagaya / {}", better.name()));
    let of = of.unwrap_or_else(|| ": nagaya / stock".to_string());
    Target {
        what: format!("{tasks} tasks on fewer cores, the worst operation {of}"),
        bound: Bound::AtMost(CROWDED),
        ratio: worst.map(|(.., ratio)| ratio),
    }
}
