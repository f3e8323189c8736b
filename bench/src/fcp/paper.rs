//! Tables 2, 4 and 5 of the paper (Kikuchi et al., FOLON), and beside each number that of the
//! paper, from processors on a VME bus and Ethernet in 1996.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::sample::{TRANSPORTS, Transport};
use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::results::{Measure, Results};
use crate::table::{Table, three_digits, write_lines};

/// Bytes of the paper's messages for latency and throughput.
const LATENCY_BYTES: usize = 4;
const THROUGHPUT_BYTES: usize = 4096;

/// Table 2, in µs and MB/s. The paper had not measured FCP II; §6.1.2 expects this latency.
const TABLE_2: [(Transport, &str, &str); 5] = [
    (Transport::Vcl, "4.2", "1.7"),
    (Transport::Fcp, "240", "1.5"),
    (Transport::FcpPlus, "200", "1.5"),
    (Transport::Fcp2, "140 (expected)", ""),
    (Transport::Udp, "320", "0.76"),
];

/// Tables 4 and 5: a heading, the key in `nagaya info --fcp`, and the paper's numbers for FCP, FCP
/// plus and FCP II.
const TABLE_4: [Row; 4] = [
    ("buffer table, words an entry", "table_entry", ["4", "4", "1"]),
    ("receive buffer management, words", "management", ["7", "7", "2"]),
    ("  and for each line of 64 B", "management_per_line", ["", "", ""]),
    ("message header, words", "header", ["3", "3", "2"]),
];
const TABLE_5: [Row; 3] = [
    ("send", "send", ["23", "18", "8"]),
    ("receive", "receive", ["22", "16", "7"]),
    ("both, on average over many", "average", ["", "", ""]),
];
type Row = (&'static str, &'static str, [&'static str; 3]);

/// Their names in `nagaya info --fcp`, and their columns.
const PROTOCOLS: [(&str, Transport); 3] =
    [("fcp", Transport::Fcp), ("fcp-plus", Transport::FcpPlus), ("fcp2", Transport::Fcp2)];

const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Prints Table 2. Its throughput is that of a single message, as in the paper.
pub fn print_times(results: &Results<Transport>) {
    let headings = ["", "4 B, µs", "the paper's", "4096 B, µs", "4096 B, MB/s", "the paper's", ""];
    let mut table = Table::new(headings);
    for transport in TRANSPORTS {
        let of = |bytes| {
            let measure = Measure { what: "unchanged", tasks: 2, bytes };
            results.of(measure, transport).map(|spread| spread.median)
        };
        if of(LATENCY_BYTES).is_none() && of(THROUGHPUT_BYTES).is_none() {
            continue;
        }
        let paper = TABLE_2.iter().find(|(of, ..)| *of == transport);
        let [latency, throughput] = paper.map_or(["", ""], |(_, a, b)| [*a, *b]);
        let shown = |value: Option<f64>| value.map(three_digits).unwrap_or_default();
        let carries = !matches!(transport, Transport::Word | Transport::Line);
        let rate = of(THROUGHPUT_BYTES).filter(|_| carries).map(|us| THROUGHPUT_BYTES as f64 / us);
        table.row([
            transport.name().to_string(),
            shown(of(LATENCY_BYTES)),
            latency.to_string(),
            shown(of(THROUGHPUT_BYTES)),
            shown(rate),
            throughput.to_string(),
            String::new(),
        ]);
    }
    table.print("FCP, the paper's Table 2: latency and throughput of a message, one way");
}

/// Prints Tables 4 and 5 for Nagaya's protocols, and writes them to `fcp-counts.csv`.
pub fn print_counts(nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut command = Command::new(&nagaya.command);
    let text = output_of(command.args(["info", "--fcp", "--parsable"]), TIME_LIMIT)?;
    let counts: BTreeMap<&str, &str> = text.lines().filter_map(|at| at.split_once('=')).collect();
    let titles = [
        "FCP, the paper's Table 4: data of the protocols in shared memory",
        "FCP, the paper's Table 5: loads and stores of shared memory, for a message",
    ];
    let mut lines = vec!["what,protocol,ours,papers".to_string()];
    for (title, rows) in titles.into_iter().zip([&TABLE_4[..], &TABLE_5[..]]) {
        let columns = PROTOCOLS.iter().flat_map(|(_, transport)| [transport.name(), "the paper's"]);
        let mut table = Table::new(std::iter::once("").chain(columns).chain([""]));
        for (words, key, papers) in rows {
            let mut cells = vec![words.to_string()];
            for ((protocol, _), papers) in PROTOCOLS.iter().zip(papers) {
                let ours = counts.get(format!("{protocol}.{key}").as_str());
                let ours = ours.and_then(|number| number.parse::<f64>().ok()).ok_or_else(|| {
                    Failure::new(format!("nagaya info --fcp does not print {protocol}.{key}"))
                })?;
                let ours = ((ours * 10.0).round() / 10.0).to_string();
                lines.push(format!("{key},{protocol},{ours},{papers}"));
                cells.extend([ours, papers.to_string()]);
            }
            table.row(cells.into_iter().chain([String::new()]));
        }
        table.print(title);
    }
    write_lines(&out.join("fcp-counts.csv"), &lines)
}
