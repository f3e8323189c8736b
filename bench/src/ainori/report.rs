//! Tables of the simulated runs, the numbers of the paper beside them, and the targets.

use std::path::Path;

use super::figures;
use super::options::{NORMAL, Options};
use super::paper::{ASKED, CLAIMS, PROGRAMS, Program};
use super::simulated::{Run, Runs};
use crate::failure::Failure;
use crate::spread::Spread;
use crate::table::{Table, write_lines};
use crate::target::{self, Bound, Target};

/// Bytes of a page, the default of the simulator; and the target for unused rides with `auto`, in
/// percent of all bytes.
const PAGE_BYTES: f64 = 8192.0;
const WASTED_PERCENT: f64 = 10.0;

/// Prints the tables; writes `ainori.csv`, `ainori-targets.csv`, `ainori.svg`.
pub fn write(runs: &Runs, options: &Options, out: &Path) -> Result<(), Failure> {
    for program in &PROGRAMS {
        print_program(program, runs, options);
    }
    print_rides(runs);
    print_paper(runs);
    println!("\nall runs in the simulator: {:.0} s", runs.took.as_secs_f64());
    target::report("rides: targets, in percent", &targets(runs), &out.join("ainori-targets.csv"))?;
    write_lines(&out.join("ainori.csv"), &csv(runs))?;
    figures::figure(runs, options).write(&out.join("ainori.svg"))?;
    Ok(())
}

fn time(run: &Run) -> f64 {
    run.seconds
}

/// Returns unused rides in percent of all bytes.
fn wasted(run: &Run) -> f64 {
    run.wasted as f64 * PAGE_BYTES * 100.0 / run.bytes.max(1) as f64
}

/// Prints the speed-ups and page messages of a program: two figures of the paper.
fn print_program(program: &Program, runs: &Runs, options: &Options) {
    let mut headings = vec!["processes".to_string()];
    for policy in &options.rides {
        headings.extend([policy.clone(), "messages".to_string()]);
        if policy != NORMAL {
            headings.push("saved".to_string());
        }
    }
    headings.push(String::new());
    let mut table = Table::new(headings.iter().map(String::as_str));
    for &processes in &options.processes {
        let mut row = vec![processes.to_string()];
        for policy in &options.rides {
            let run = runs.get(program.name, policy, processes);
            row.push(run.map_or(String::new(), |run| format!("{:.2}", run.speedup)));
            row.push(run.map_or(String::new(), |run| run.page_messages.to_string()));
            if policy != NORMAL {
                let saved = run.map(|run| format!("{:.1} %", runs.saved(run, Run::sent)));
                row.push(saved.unwrap_or_default());
            }
        }
        row.push(String::new());
        table.row(row);
    }
    let [speedup, messages] = program.figures;
    table.print(&format!(
        "Figures {speedup} and {messages}: {} ({}), speed-up by policy, and OP_GETPGRANT + \
         OP_BARRGRANT + OP_PUSH",
        program.name.to_uppercase(),
        if options.small { "small" } else { program.size },
    ));
}

/// Prints the fate of rides on the largest number of processes.
fn print_rides(runs: &Runs) {
    let mut table = Table::new([
        "",
        "processes",
        "policy",
        "seconds",
        "MB",
        "rides",
        "used",
        "wasted",
        "late",
        "wasted, % of bytes",
        "",
    ]);
    for program in &PROGRAMS {
        let all = || runs.all.iter().filter(|run| run.program == program.name);
        let most = all().map(|run| run.processes).max();
        for run in all().filter(|run| Some(run.processes) == most) {
            let mut row = vec![run.program.to_string(), run.processes.to_string()];
            row.extend([run.policy.clone(), format!("{:.3}", run.seconds)]);
            row.push(format!("{:.1}", run.bytes as f64 / 1e6));
            row.extend([run.rides, run.used, run.wasted, run.late].map(|of| of.to_string()));
            row.extend([format!("{:.1}", wasted(run)), String::new()]);
            table.row(row);
        }
    }
    table.print("fate of rides");
}

/// Prints the numbers of the paper and of the simulator, in percent.
fn print_paper(runs: &Runs) {
    let mut table = Table::new([
        "",
        "processes",
        "policy",
        "messages saved",
        "paper",
        "time saved",
        "faster by",
        "paper",
        "",
    ]);
    let percent = |of: f64| format!("{of:.1}");
    for claim in &CLAIMS {
        let Some(run) = runs.get(claim.program, claim.policy, claim.processes) else { continue };
        let saved = runs.saved(run, time);
        table.row([
            claim.program.to_string(),
            claim.processes.to_string(),
            claim.policy.to_string(),
            percent(runs.saved(run, Run::sent)),
            claim.messages.map_or(String::new(), percent),
            percent(saved),
            percent(saved * 100.0 / (100.0 - saved)),
            claim.time.map_or(String::new(), percent),
            String::new(),
        ]);
    }
    table.print(
        "what the paper's text says, and what the simulator does, in percent (the paper does not \
         say whether its improvement is time saved or speed gained)",
    );
}

fn targets(runs: &Runs) -> Vec<Target> {
    let one = |value: f64| Spread::of(&[value]);
    let bound = |policy: &str| runs.all.iter().any(|run| run.policy == policy);
    let mut targets = Vec::new();
    for &(program, processes, policy, least) in ASKED.iter().filter(|(.., of, _)| bound(of)) {
        let run = runs.get(program, policy, processes);
        targets.push(Target {
            what: format!("{program} on {processes}, {policy}: page messages saved"),
            bound: Bound::AtLeast(least),
            ratio: run.map(|run| one(runs.saved(run, Run::sent))),
        });
        if policy == "auto" {
            targets.push(Target {
                what: format!("{program} on {processes}, {policy}: wasted rides of bytes"),
                bound: Bound::AtMost(WASTED_PERCENT),
                ratio: run.map(|run| one(wasted(run))),
            });
        }
    }
    targets
}

fn csv(runs: &Runs) -> Vec<String> {
    let mut lines = vec![
        "program,policy,processes,seconds,speedup,page_messages,messages,bytes,rides,used,wasted,\
         late,messages_saved_percent,time_saved_percent"
            .to_string(),
    ];
    lines.extend(runs.all.iter().map(|run| {
        let Run { program, policy, processes, seconds, speedup, page_messages, .. } = run;
        let Run { messages, bytes, rides, used, wasted, late, .. } = run;
        format!(
            "{program},{policy},{processes},{seconds},{speedup},{page_messages},{messages},\
             {bytes},{rides},{used},{wasted},{late},{:.2},{:.2}",
            runs.saved(run, Run::sent),
            runs.saved(run, time),
        )
    }));
    lines
}
