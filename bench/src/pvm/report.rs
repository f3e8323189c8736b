//! The results of a run: tables on the terminal, CSV files, a figure.

use std::path::Path;

use super::options::Options;
use super::rounds::{HOSTS_BYTES, MESSAGES, OPERATION_BYTES, OPERATIONS, SENDERS, STREAM_BYTES};
use super::transport::{TRANSPORTS, Transport};
use super::{figures, paper, targets};
use crate::failure::Failure;
use crate::results::{Measure, Results};
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};
use crate::{sizes, target};

/// The transports whose ratio the tables show: the better one of stock PVM, and Nagaya's default.
const RATIO: (Transport, Transport) = (Transport::StockDirect, Transport::Nagaya);

/// Prints the tables; writes `pvm.csv`, `pvm-targets.csv`, `pvm.svg`.
pub fn write(results: &Results<Transport>, options: &Options, out: &Path) -> Result<(), Failure> {
    let rounds = options.rounds;
    for what in MESSAGES {
        let rows = options.sizes.iter().map(|&bytes| Measure { what, tasks: 2, bytes });
        let title = format!("PVM messages, {what}; µs one way, median (min) of {rounds} rounds");
        print(results, &title, "size", rows, size, RATIO);
    }
    paper::print(results);
    let rows = options.sizes.iter().map(|&bytes| Measure { what: "netpipe", tasks: 2, bytes });
    print(results, "NPpvm, Debian's binary; µs one way, median (min)", "size", rows, size, RATIO);
    print_streams(results);
    for &tasks in &options.tasks {
        let tasks = tasks as usize;
        let rows = OPERATIONS
            .iter()
            .flat_map(|&what| [0, OPERATION_BYTES].map(|bytes| Measure { what, tasks, bytes }));
        let crowded = if targets::more_than_cores(tasks) { ", more than cores" } else { "" };
        let title = format!("PVM, {tasks} tasks{crowded}; µs, median (min) of {rounds} rounds");
        print(results, &title, "", rows, |of| of.what.to_string(), RATIO);
    }
    let rows = ["spawn", "notice"].into_iter().map(|what| Measure { what, tasks: 1, bytes: 0 });
    let title = "PVM, spawn to first message and SIGKILL to notice; µs, median (min)";
    let name = |of: Measure| of.what.to_string();
    print(results, title, "", rows, name, (Transport::StockDaemon, Transport::Nagaya));
    for (what, words) in [("loopback", "loopback"), ("namespaces", "network namespaces")] {
        let rows = HOSTS_BYTES.iter().map(|&bytes| Measure { what, tasks: 2, bytes });
        let title = format!("PVM, two hosts ({words}), raw; µs one way, median (min)");
        print(results, &title, "size", rows, size, RATIO);
    }
    let bound = targets::all(results, options);
    target::report("PVM: targets", &bound, &file(out, "targets"))?;
    write_lines(&out.join("pvm.csv"), &csv(results))?;
    figures::write(results, options, &out.join("pvm.svg"))?;
    println!("written: pvm.csv, pvm-targets.csv, pvm.svg in {}", out.display());
    Ok(())
}

fn file(out: &Path, what: &str) -> std::path::PathBuf {
    out.join(format!("pvm-{what}.csv"))
}

fn size(measure: Measure) -> String {
    sizes::shown(measure.bytes)
}

/// Prints a row for each operation and a column for each transport that have results.
fn print(
    results: &Results<Transport>,
    title: &str,
    heading: &str,
    rows: impl Iterator<Item = Measure>,
    name: impl Fn(Measure) -> String,
    (above, below): (Transport, Transport),
) {
    let seen =
        |of: &Measure| TRANSPORTS.iter().any(|&transport| results.of(*of, transport).is_some());
    let rows: Vec<Measure> = rows.filter(seen).collect();
    let transports = TRANSPORTS
        .into_iter()
        .filter(|&transport| rows.iter().any(|of| results.of(*of, transport).is_some()));
    let transports: Vec<Transport> = transports.collect();
    if rows.is_empty() {
        return;
    }
    let ratio = format!("{} / {}", above.name(), below.name());
    let headings =
        std::iter::once(heading).chain(transports.iter().map(|transport| transport.name()));
    let mut table = Table::new(headings.chain([ratio.as_str()]));
    for of in rows {
        let cell = |transport: &Transport| match results.of(of, *transport) {
            Some(Spread { median, min, .. }) => {
                format!("{} ({})", three_digits(median), three_digits(min))
            }
            None => String::new(),
        };
        let quotient = results.quotient((of, above), (of, below));
        let quotient = quotient.map(|of| format!("{:.2}", of.median)).unwrap_or_default();
        let cells = std::iter::once(name(of)).chain(transports.iter().map(cell)).chain([quotient]);
        table.row(cells);
    }
    table.print(title);
}

/// Prints one-way streams at full speed, in 10⁶ bytes per second.
fn print_streams(results: &Results<Transport>) {
    let mut table = Table::new(["", "senders", "messages/s", "MB/s", ""]);
    let mut empty = true;
    for senders in SENDERS {
        let tasks = senders as usize + 1;
        let of = Measure { what: "stream", tasks, bytes: STREAM_BYTES };
        for transport in TRANSPORTS {
            let Some(us) = results.of(of, transport).map(|spread| spread.median) else { continue };
            empty = false;
            let rates = [1e6 / us, STREAM_BYTES as f64 / us].map(three_digits);
            let [messages, megabytes] = rates;
            let cells = [transport.name().to_string(), senders.to_string(), messages, megabytes];
            table.row(cells.into_iter().chain([String::new()]));
        }
    }
    if !empty {
        table.print(&format!("PVM, streams of {STREAM_BYTES} B, raw"));
    }
}

fn csv(results: &Results<Transport>) -> Vec<String> {
    let mut lines = vec!["what,tasks,bytes,way,us,us_min,us_max".to_string()];
    lines.extend(results.all().map(|(Measure { what, tasks, bytes }, transport, of)| {
        let Spread { median, min, max } = of;
        format!("{what},{tasks},{bytes},{},{median:.4},{min:.4},{max:.4}", transport.key())
    }));
    lines
}
