//! Page messages of real runs and of simulated runs with the same parameters.

use std::path::Path;

use super::options::Options;
use super::paper::PROGRAMS;
use crate::dsm::traffic::{Traffic, Wanted};
use crate::failure::Failure;
use crate::launch::Nagaya;
use crate::progress::progress;
use crate::table::{Table, write_lines};

/// Runs them, prints a table, writes `ainori-real.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    let mut table = Table::new([
        "program",
        "nodes",
        "policy",
        "page messages",
        "sim",
        "saved",
        "sim",
        "seconds",
        "",
    ]);
    let mut lines =
        vec!["program,nodes,policy,page_messages,sim_page_messages,seconds".to_string()];
    let mut failures = Vec::new();
    for program in &PROGRAMS {
        let arguments = if options.small { program.quick } else { program.real };
        for &nodes in &options.nodes {
            let mut normal = None;
            for policy in &options.rides {
                progress(&format!("ainori, {} on {nodes} nodes, {policy}", program.name));
                let wanted = Wanted { name: program.name, arguments, rides: policy };
                let of = match Traffic::of(&wanted, nodes, nagaya, out) {
                    Ok(of) => of,
                    Err(failure) => {
                        failures.push(failure);
                        continue;
                    }
                };
                let counts = [of.real, of.simulated].map(|of| of.page_messages);
                let normal = *normal.get_or_insert(counts);
                let saved = |at: usize| {
                    let saved = 1.0 - counts[at] as f64 / normal[at].max(1) as f64;
                    format!("{:.1} %", saved * 100.0)
                };
                lines.push(format!(
                    "{},{nodes},{policy},{},{},{}",
                    program.name, counts[0], counts[1], of.seconds
                ));
                table.row([
                    program.name.to_string(),
                    nodes.to_string(),
                    policy.clone(),
                    counts[0].to_string(),
                    counts[1].to_string(),
                    saved(0),
                    saved(1),
                    format!("{:.3}", of.seconds),
                    if counts[0] == counts[1] { "equal".to_string() } else { String::new() },
                ]);
            }
        }
    }
    progress("");
    table.print("OP_GETPGRANT + OP_BARRGRANT + OP_PUSH of real runs, and of nagaya sim");
    for program in &PROGRAMS {
        let arguments = if options.small { program.quick } else { program.real };
        println!("  {}: {arguments}", program.name);
    }
    write_lines(&out.join("ainori-real.csv"), &lines)?;
    Failure::of_all(failures)
}
