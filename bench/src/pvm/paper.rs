//! The paper's Table 3 (Kikuchi et al., FOLON): PVM over UDP and over FCP; ours, and beside
//! each number the paper's own, of processors on a VME bus and of Ethernet in 1996.

use super::Way;
use crate::results::{Measure, Results};
use crate::table::{Table, three_digits};

/// The sizes of the paper's latency and throughput.
pub const LATENCY: usize = 4;
pub const THROUGHPUT: usize = 4096;
/// Of two tasks on one host: the encoding, and buffers, by which they are compared.
pub const MESSAGE: &str = "raw-unchanged";
/// Between hosts; where both were measured, the first.
const HOSTS: [&str; 2] = ["namespaces", "loopback"];

/// What the paper measured, in µs and MB/s, and what stands for it here. In the paper two
/// daemons speak UDP, or FCP, and all messages go through both; of FCP plus and FCP II under
/// PVM it speaks as of further work.
const TABLE_3: [Row; 5] = [
    ("UDP: stock PVM, two hosts", &HOSTS, Way::StockDaemon, "580", "0.60"),
    ("FCP", &[MESSAGE], Way::Fcp, "630", "1.0"),
    ("FCP plus", &[MESSAGE], Way::FcpPlus, "", ""),
    ("FCP II", &[MESSAGE], Way::Nagaya, "", ""),
    ("FCP II, tasks in one space", &[MESSAGE], Way::Space, "", ""),
];
type Row = (&'static str, &'static [&'static str], Way, &'static str, &'static str);

/// Prints what there is of it. Its throughput is that of a single message, so is ours.
pub fn print(results: &Results<Way>) {
    let headings =
        ["PVM over", "4 B, µs", "the paper's", "4096 B, µs", "4096 B, MB/s", "the paper's", ""];
    let mut table = Table::new(headings);
    let mut empty = true;
    for (words, measures, way, latency, throughput) in TABLE_3 {
        let of = |bytes| {
            let all = measures.iter().map(|&what| Measure { what, tasks: 2, bytes });
            all.into_iter().find_map(|of| results.of(of, way)).map(|spread| spread.median)
        };
        let (Some(short), Some(long)) = (of(LATENCY), of(THROUGHPUT)) else { continue };
        empty = false;
        table.row([
            words.to_string(),
            three_digits(short),
            latency.to_string(),
            three_digits(long),
            three_digits(THROUGHPUT as f64 / long),
            throughput.to_string(),
            String::new(),
        ]);
    }
    if !empty {
        table.print("PVM, the paper's Table 3: latency and throughput of a message, one way, raw");
    }
}
