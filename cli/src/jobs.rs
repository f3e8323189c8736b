//! Running jobs as JSON, for `nagaya ps --json` and `nagaya maps --json`. nagaya-ps(1) and
//! nagaya-maps(1) describe the keys; new ones may come, and none goes without a new `format`.

use nagaya_server::maps::Mapping;
use nagaya_server::protocol::{DomainStatus, TaskStatus};
use nagaya_server::query::JobStatus;
use serde_json::{Value, json};

/// The version of the form.
const FORMAT: u32 = 1;

/// Returns a document with jobs, and the errors of servers that do not answer.
pub fn document(jobs: Vec<Value>, silent: &[String]) -> String {
    let all = json!({ "format": FORMAT, "jobs": jobs, "errors": silent });
    serde_json::to_string_pretty(&all).expect("text and numbers only")
}

/// Returns a job with the tasks that are wanted. `state` gives the state of a process.
pub fn job(job: &JobStatus, wanted: impl Fn(u32) -> bool, state: impl Fn(u32) -> char) -> Value {
    let status = &job.status;
    let tasks = status.tasks.iter().filter(|task| wanted(task.id));
    let state = |pid| if job.same_pids { state(pid) } else { '?' };
    let tasks: Vec<Value> = tasks.map(|it| task(it, status, state(it.pid))).collect();
    let domains: Vec<Value> = status.domains.iter().map(domain).collect();
    json!({
        "job": status.job,
        "server_pid": status.server,
        "pids_are_ours": job.same_pids,
        "base": status.base,
        "segment_bytes": status.segment_size,
        "tasks_max": status.tasks_max,
        "ranks_expected": status.expected,
        "ranks_present": status.present,
        "protection": status.protection.map(|it| it.name()),
        "domains": domains,
        "tasks": tasks,
    })
}

fn domain(domain: &DomainStatus) -> Value {
    json!({
        "pid": domain.pid,
        "first_id": domain.ids.0,
        "end_id": domain.ids.1,
        "processors": domain.processors,
        "mapped_of_others_bytes": domain.far,
    })
}

fn task(task: &TaskStatus, status: &nagaya_server::protocol::Status, state: char) -> Value {
    let start = status.base + u64::from(task.id) * status.segment_size;
    json!({
        "id": task.id,
        "pid": task.pid,
        "state": state.to_string(),
        "domain": task.domain,
        "stub_pid": task.stub,
        "segment_start": start,
        "segment_end": start + status.segment_size,
        "resident_bytes": task.resident,
        "copies": task.copies,
        "copied_bytes": task.copied_bytes,
        "sites_patched": task.sites_patched,
        "sites_unreached": task.sites_unreached,
        "path": task.path,
        "arguments": task.arguments,
    })
}

/// Returns a job as [`job`] does, each task with the mappings in its segment.
pub fn with_mappings(
    one: &JobStatus,
    mappings: &[Mapping],
    wanted: impl Fn(u32) -> bool,
    state: impl Fn(u32) -> char,
) -> Value {
    let mut value = job(one, wanted, state);
    for task in value["tasks"].as_array_mut().into_iter().flatten() {
        let id = task["id"].as_u64();
        let own = mappings.iter().filter(|mapping| Some(u64::from(mapping.id)) == id);
        task["mappings"] = own.map(mapping).collect();
    }
    value
}

fn mapping(mapping: &Mapping) -> Value {
    json!({
        "start": mapping.start,
        "end": mapping.end,
        "permissions": mapping.permissions,
        "offset": mapping.offset,
        "part": mapping.part,
        "resident_bytes": mapping.resident,
        "file": mapping.file,
    })
}
