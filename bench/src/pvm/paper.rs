//! Table 3 of the paper (Kikuchi et al., FOLON): PVM over UDP and over FCP, and beside each number
//! that of the paper, from processors on a VME bus and Ethernet in 1996.

use super::transport::Transport;
use crate::results::{Measure, Results};
use crate::table::{Table, three_digits};

/// Bytes of the paper's messages for latency and throughput.
pub const LATENCY_BYTES: usize = 4;
pub const THROUGHPUT_BYTES: usize = 4096;
/// Encoding and buffers of the messages on one host.
pub const MESSAGE: &str = "raw-unchanged";
/// Measures between hosts; the first one that was measured is used.
const HOSTS: [&str; 2] = ["namespaces", "loopback"];

/// The paper's numbers, in µs and MB/s, and the corresponding transports here. In the paper all
/// messages pass through two daemons, which use UDP or FCP. PVM over FCP plus and FCP II is future
/// work there.
const TABLE_3: [Row; 5] = [
    ("UDP: stock PVM, two hosts", &HOSTS, Transport::StockDaemon, "580", "0.60"),
    ("FCP", &[MESSAGE], Transport::Fcp, "630", "1.0"),
    ("FCP plus", &[MESSAGE], Transport::FcpPlus, "", ""),
    ("FCP II", &[MESSAGE], Transport::Nagaya, "", ""),
    ("FCP II, tasks in one space", &[MESSAGE], Transport::Space, "", ""),
];
type Row = (&'static str, &'static [&'static str], Transport, &'static str, &'static str);

/// Prints the measured rows. The throughput is that of a single message, as in the paper.
pub fn print(results: &Results<Transport>) {
    let headings =
        ["PVM over", "4 B, µs", "the paper's", "4096 B, µs", "4096 B, MB/s", "the paper's", ""];
    let mut table = Table::new(headings);
    let mut empty = true;
    for (words, measures, transport, latency, throughput) in TABLE_3 {
        let of = |bytes| {
            let all = measures.iter().map(|&what| Measure { what, tasks: 2, bytes });
            all.into_iter().find_map(|of| results.of(of, transport)).map(|spread| spread.median)
        };
        let (Some(short), Some(long)) = (of(LATENCY_BYTES), of(THROUGHPUT_BYTES)) else { continue };
        empty = false;
        table.row([
            words.to_string(),
            three_digits(short),
            latency.to_string(),
            three_digits(long),
            three_digits(THROUGHPUT_BYTES as f64 / long),
            throughput.to_string(),
            String::new(),
        ]);
    }
    if !empty {
        table.print("PVM, the paper's Table 3: latency and throughput of a message, one way, raw");
    }
}
