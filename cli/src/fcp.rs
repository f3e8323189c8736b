//! `nagaya info --fcp`: the structural cost of FCP's protocols on any machine. It is the number of
//! words in shared memory, and the number of loads and stores of them per message. The code that
//! sends and receives counts them.

use fcp::protocol::Protocol;
use fcp_classic::counts::{Accesses, Structures};

/// A number of a protocol: a key for programs, words for people.
struct Count {
    key: &'static str,
    title: &'static str,
    value: f64,
}

fn counts(protocol: Protocol) -> [Count; 7] {
    let Structures { table_entry, management, management_per_line, header } =
        Structures::of(protocol);
    let Accesses { send, receive, average } = Accesses::of(protocol);
    let count = |key, title, value| Count { key, title, value };
    [
        count("table_entry", "table, words an entry", table_entry as f64),
        count("management", "receive buffer, words", management as f64),
        count("management_per_line", "  and for each line of 64 B", management_per_line as f64),
        count("header", "header, words", header as f64),
        count("send", "loads and stores, to send", send.into()),
        count("receive", "  to receive", receive.into()),
        count("average", "  both, on average", average),
    ]
}

/// Prints them: a column a protocol, or lines of PROTOCOL.KEY=NUMBER.
pub fn report(parsable: bool) {
    let all = Protocol::ALL.map(|protocol| (protocol, counts(protocol)));
    if parsable {
        for (protocol, counts) in all {
            for Count { key, value, .. } in counts {
                println!("{}.{key}={value}", protocol.name());
            }
        }
        return;
    }
    println!("{:<28}{}", "", all.each_ref().map(|(of, _)| format!("{:>10}", of.name())).concat());
    for (row, Count { title, .. }) in all[0].1.iter().enumerate() {
        let cells = all.each_ref().map(|(_, counts)| {
            let value = counts[row].value;
            format!("{:>10}", (value * 10.0).round() / 10.0)
        });
        println!("{title:<28}{}", cells.concat());
    }
}
