//! `nagaya maps`: the segments of a job, their owners and mappings, and their resident size.

mod drawing;

use std::path::{Path, PathBuf};

use nagaya_server::Failure;
use nagaya_server::maps::Mapping;
use nagaya_server::query::{self, JobStatus};

use crate::jobs;
use crate::ps::{end, human, state};
use drawing::Drawing;

const EXAMPLES: &str = "\
Examples:
  nagaya maps                            all jobs
  nagaya maps run:4711.2                 task 2 of the job run:4711
  nagaya maps --svg space.svg run:4711   a drawing of that job";

/// Show the segments of a job, with the owner and the mappings of each
///
/// See nagaya-maps(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// JOB, JOB.ID or the PID of a task (default: all jobs)
    target: Option<String>,
    /// Print JSON, for programs
    #[arg(long, conflicts_with = "svg")]
    json: bool,
    /// Draw the segments, their tasks and domains, as an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Also draw who talks to whom, from a report of nagaya exec --report
    #[arg(long, value_name = "REPORT.json", requires = "svg")]
    messages: Option<PathBuf>,
}

/// Prints or draws the segments.
pub fn maps(options: &Options) -> Result<i32, Failure> {
    let (jobs, id, silent) = match &options.target {
        None => {
            let query::Jobs { jobs, silent } = query::jobs()?;
            (jobs, None, silent)
        }
        Some(target) => {
            let selection = query::select(target)?;
            (vec![selection.job], selection.id, Vec::new())
        }
    };
    let mut running = Vec::new();
    for job in jobs {
        match options.target {
            Some(_) => running.push((job.maps()?, job)),
            // One of all jobs may end before it is asked for its mappings.
            None => running.extend(job.maps_while_it_runs()?.map(|mappings| (mappings, job))),
        }
    }
    if let Some(file) = &options.svg {
        draw(&running, options.messages.as_deref(), file)?;
    } else if options.json {
        let wanted = |task| id.is_none_or(|id| task == id);
        let all = running.iter().map(|(maps, job)| jobs::with_mappings(job, maps, wanted, state));
        println!("{}", jobs::document(all.collect(), &silent));
    } else {
        running.iter().for_each(|(maps, job)| show(job, maps, id));
    }
    Ok(end(&silent))
}

/// Draws jobs, and the messages of a report.
fn draw(
    jobs: &[(Vec<Mapping>, JobStatus)],
    messages: Option<&Path>,
    file: &Path,
) -> Result<(), Failure> {
    let mut drawing = Drawing::default();
    for (mappings, job) in jobs {
        drawing.job(&job.status, mappings);
    }
    if let Some(report) = messages {
        let failed = |why: &dyn std::fmt::Display| {
            Failure::ours(format!("--messages {}: {why}", report.display()))
        };
        let text = std::fs::read_to_string(report).map_err(|why| failed(&why))?;
        let value = serde_json::from_str(&text).map_err(|why| failed(&why))?;
        if !drawing.messages(&value) {
            return Err(failed(&"not a report of nagaya exec --report FILE.json"));
        }
    } else if jobs.is_empty() {
        return Err(Failure::ours("--svg: no job is running"));
    }
    std::fs::write(file, drawing.finish())
        .map_err(|why| Failure::ours(format!("--svg {}: {why}", file.display())))
}

fn show(job: &JobStatus, mappings: &[Mapping], id: Option<u32>) {
    let status = &job.status;
    println!(
        "job {}: server {}, segments of {} from {:#x}, {} tasks of {}{}",
        status.job,
        status.server,
        human(status.segment_size),
        status.base,
        status.tasks.len(),
        status.tasks_max,
        status.protection.map_or(String::new(), |it| format!(", protected: {}", it.name()))
    );
    if status.domains.len() > 1 {
        for (number, domain) in status.domains.iter().enumerate() {
            let tasks = status.tasks.iter().filter(|task| task.domain == number as u32);
            let mut line = format!("domain {number}: PID {}, {} tasks", domain.pid, tasks.count());
            let (first, end) = domain.ids;
            if number > 0 {
                line += &format!(" of IDs {first} to {}", end - 1);
            }
            if !domain.processors.is_empty() {
                line += &format!(", processors {}", ranges(&domain.processors));
            }
            println!("{line}, {} of other domains mapped", human(domain.far));
        }
    }
    for task in status.tasks.iter().filter(|t| id.is_none_or(|id| t.id == id)) {
        let start = status.base + u64::from(task.id) * status.segment_size;
        println!(
            "task {} PID {}{} segment {:#x}-{:#x} resident {} sites {} patched, {} unknown: {}",
            task.id,
            task.pid,
            if status.domains.len() > 1 {
                format!(" domain {}", task.domain)
            } else {
                String::new()
            },
            start,
            start + status.segment_size,
            human(task.resident),
            task.sites_patched,
            task.sites_unreached,
            task.arguments.join(" ")
        );
        for mapping in mappings.iter().filter(|m| m.id == task.id) {
            let Mapping { start, end, permissions, part, resident, file, .. } = mapping;
            let resident = human(*resident);
            println!("  {start:x}-{end:x} {permissions} {part:<7} {resident:>10}  {file}");
        }
    }
}

/// Numbers in ascending order, as the kernel writes lists: 0-3,8.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u32]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn lists_are_short() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
    }
}
