//! `nagaya maps`: the segments of a job, their owners and mappings, and their resident size.

use nagaya_server::Failure;
use nagaya_server::maps::Mapping;
use nagaya_server::query::{self, JobStatus};

use crate::ps::{end, human};

const EXAMPLES: &str = "\
Examples:
  nagaya maps                            all jobs
  nagaya maps run:4711.2                 task 2 of the job run:4711";

/// Show the segments of a job, with the owner and the mappings of each
///
/// See nagaya-maps(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// JOB, JOB.ID or the PID of a task (default: all jobs)
    target: Option<String>,
}

/// Prints the segments.
pub fn maps(options: &Options) -> Result<i32, Failure> {
    match &options.target {
        None => {
            let query::Jobs { jobs, silent } = query::jobs()?;
            for job in jobs {
                show(&job, None)?;
            }
            return Ok(end(&silent));
        }
        Some(target) => {
            let selection = query::select(target)?;
            show(&selection.job, selection.id)?;
        }
    }
    Ok(0)
}

fn show(job: &JobStatus, id: Option<u32>) -> Result<(), Failure> {
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
    let mappings = job.maps()?;
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
    Ok(())
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
