//! Messages about jobs whose ranks on this node are not all in one space.

use std::collections::BTreeMap;

use crate::identity::Identity;
use crate::job::Job;
use crate::query::JobStatus;

/// Remedy for ranks in separate containers.
const ONE_CONTAINER: &str = "start mpirun inside one container, or one container instance a node \
                             (apptainer exec instance://NAME)";

/// Returns the message about a job with ranks that have not joined the space of the others.
pub fn missing(job: &str, present: u32, expected: u32) -> String {
    format!(
        "job {job}: only {present} of its {expected} ranks on this node are in this space, so not \
         all messages go through it: start all ranks by nagaya exec; if they are in containers, \
         {ONE_CONTAINER}; see nagaya-exec(1)"
    )
}

/// Returns the message about a job whose ranks on this node are in several spaces, because their
/// processes have these differences ([`Identity::differences`]).
pub fn apart(job: &str, ranks: u32, differences: &[String]) -> String {
    let what = if differences.is_empty() { "rights".into() } else { listed(differences) };
    let is_container = |it: &String| it.contains("namespaces") || it.contains("root");
    let advice = match differences.iter().any(is_container) {
        true => ONE_CONTAINER,
        false => "start all ranks with the same rights",
    };
    format!(
        "job {job}: its {ranks} ranks on this node have different {what}, so not all messages go \
         through one space: {advice}; see nagaya-exec(1)"
    )
}

/// Returns "a, b and c".
fn listed(names: &[String]) -> String {
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}

/// Describes, for each running job with a known number of ranks on this node, the spaces that they
/// are in.
pub fn describe(jobs: &[JobStatus]) -> Vec<String> {
    let mut by_name: BTreeMap<&str, Vec<&JobStatus>> = BTreeMap::new();
    for job in jobs.iter().filter(|job| job.status.expected.is_some()) {
        by_name.entry(&job.status.job).or_default().push(job);
    }
    by_name.into_iter().map(|(name, spaces)| of_job(name, &spaces)).collect()
}

/// Describes the spaces of one job. There is at least one.
fn of_job(name: &str, spaces: &[&JobStatus]) -> String {
    let expected = spaces[0].status.expected.unwrap_or(0);
    let present: u32 = spaces.iter().map(|job| job.status.present).sum();
    if spaces.len() > 1 {
        let identity = |job: &JobStatus| Identity::of_process(job.server_pid);
        let first = identity(spaces[0]);
        let others = spaces[1..].iter().map(|job| identity(job));
        let mut differences: Vec<String> = Vec::new();
        for (one, other) in others.filter_map(|other| first.as_ref().zip(other)) {
            differences.extend(one.differences(&other));
        }
        differences.sort();
        differences.dedup();
        return apart(name, expected.max(present), &differences);
    }
    // The job of programs that are linked to fixed addresses has only some ranks.
    if present < expected && !Job::is_apart(name) {
        return missing(name, present, expected);
    }
    format!("job {name}: {present} of {expected} ranks of this node are in one space")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_listed_with_the_remedy_for_them() {
        let message = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            apart("j", 2, &names)
        };
        let containers = message(&["IPC namespaces", "PID namespaces", "user namespaces"]);
        let wanted = "different IPC namespaces, PID namespaces and user namespaces, so";
        assert!(containers.contains(wanted), "{containers}");
        assert!(containers.contains("inside one container"), "{containers}");
        let rights = message(&["capabilities"]);
        assert!(rights.contains("different capabilities, so"), "{rights}");
        assert!(rights.contains("start all ranks with the same rights"), "{rights}");
        assert!(message(&[]).contains("different rights, so"));
    }
}
