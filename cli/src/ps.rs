//! `nagaya ps`: jobs and tasks of this user on this node.

use nagaya_server::Failure;
use nagaya_server::protocol::TaskStatus;
use nagaya_server::query;
use proc::process::Stat;

const EXAMPLES: &str = "\
Examples:
  nagaya ps                              all jobs of this user on this node
  nagaya ps --parsable | cut -f3         the PIDs of all tasks";

/// List jobs and tasks
///
/// See nagaya-ps(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// List only this job
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// Print one line for each task: fields separated by tabs, sizes in bytes, no heading
    #[arg(long)]
    parsable: bool,
    /// Print JSON, for programs
    #[arg(long, conflicts_with = "parsable")]
    json: bool,
}

/// Prints the list. The status is 125 if a job's server does not answer.
pub fn ps(options: &Options) -> Result<i32, Failure> {
    let asked = options.job.as_deref().map_or_else(query::jobs, query::jobs_named);
    let query::Jobs { jobs, silent } = asked?;
    if options.json {
        let all = jobs.iter().map(|job| crate::jobs::job(job, |_| true, state)).collect();
        println!("{}", crate::jobs::document(all, &silent));
        return Ok(end(&silent));
    }
    if !options.parsable {
        println!(
            "{:<24} {:>4} {:>7} STATE {:>9} {:>9} {:>9} COMMAND",
            "JOB", "ID", "PID", "RSS", "COPIES", "COPIED"
        );
    }
    for query::JobStatus { status: job, same_pids, .. } in &jobs {
        for task in &job.tasks {
            let state = if *same_pids { state(task.pid) } else { '?' };
            let command = task.arguments.join(" ");
            let command = command.replace(['\t', '\n'], " ");
            let TaskStatus { id, pid, resident, copies, copied_bytes, .. } = task;
            if options.parsable {
                let job = &job.job;
                println!(
                    "{job}\t{id}\t{pid}\t{state}\t{resident}\t{copies}\t{copied_bytes}\t{command}"
                );
            } else {
                let (rss, copied) = (human(*resident), human(*copied_bytes));
                let job = &job.job;
                println!(
                    "{job:<24} {id:>4} {pid:>7} {state:<5} {rss:>9} {copies:>9} {copied:>9} {command}"
                );
            }
        }
    }
    Ok(end(&silent))
}

/// Prints a line for each job that is missing in the output, and returns the exit status.
pub fn end(silent: &[String]) -> i32 {
    for line in silent {
        proc::error_line!("nagaya: {line}");
    }
    if silent.is_empty() { 0 } else { 125 }
}

/// The letter that ps(1) shows.
pub fn state(pid: u32) -> char {
    let stat = Stat::read(&format!("/proc/{pid}")).ok();
    stat.and_then(|stat| stat.field(3)).unwrap_or('?')
}

/// Bytes in the largest unit that leaves at least 1.
pub fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}
