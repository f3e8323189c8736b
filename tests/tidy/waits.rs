//! All waits ask the wait policy (`sync::wait`): the products contain no loops of their own that
//! spin, yield, or poll for a fixed time.

use syn::visit::{self, Visit};

use crate::assert_only;
use crate::sources::{files, is_test, members, syntax, text};

/// The functions of such loops.
const RAW: &[&str] = &["yield_now", "sched_yield", "SYS_sched_yield", "spin_loop", "poll_for"];

/// The exceptions, each with its reason.
const EXCEPTIONS: &[&str] = &[
    // Measures other things by a loop that must not sleep.
    "cli/src/sim/calibrate.rs: spin_loop",
    "cli/src/tune.rs: yield_now",
    // Readers and writers of a few words, in handlers of faults and signals, which must not use the
    // C library.
    "memory/span/src/dispositions.rs: SYS_sched_yield",
    "memory/span/src/dispositions.rs: spin_loop",
    "memory/span/src/range_table.rs: spin_loop",
    // Lets a shadow run between two polls. The policy decides how long the agent polls.
    "memory/span/src/agent/driver.rs: yield_now",
    // Compares clocks: a wake-up would count as a part of the message's time.
    "memory/span/src/node.rs: yield_now",
    // Names the system call, to pass it on.
    "memory/span/src/call_table.rs: SYS_sched_yield",
    "memory/span/src/jump.rs: SYS_sched_yield",
    "memory/span/src/calls.rs: SYS_sched_yield",
    "memory/span/src/sharing.rs: SYS_sched_yield",
    // A pause of a given length for a sender that competes with its receiver.
    "message/fcp/src/line.rs: poll_for",
    // The program polls by calls that must return.
    "message/ofi/src/face/cq.rs: sched_yield",
    "message/ofi/src/face/send.rs: sched_yield",
    // A bounded search of 0.2 µs.
    "message/ofi/src/face/send.rs: spin_loop",
    // Never reached: the process has ended.
    "space/pvas/src/raw.rs: spin_loop",
    // Polls of the network from one question to the wait policy to the next.
    "message/shmem/src/remote/agent.rs: spin_loop",
    // The mechanism.
    "sync/src/wait.rs: spin_loop",
    "sync/src/wait/wake.rs: sched_yield",
];

/// The same for C.
const EXCEPTIONS_IN_C: &[&str] = &[
    // The program's own progress by MPI or UCX, which has no wake-up.
    "include/pvas_delegate_mpi_serve.h",
    "include/pvas_delegate_ucx_serve.h",
    // The gate runs without the C library, and waits for a few instructions of another task.
    "space/gate/c/gate.h",
    "space/gate/c/region.c",
];

/// Collects the names of [`RAW`] outside tests.
#[derive(Default)]
struct Waits(Vec<String>);

impl<'a> Visit<'a> for Waits {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let attributes = match item {
            syn::Item::Mod(it) => &it.attrs,
            syn::Item::Fn(it) => &it.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        self.note(&path.path);
    }

    fn visit_pat(&mut self, pattern: &'a syn::Pat) {
        if let syn::Pat::Path(path) = pattern {
            self.note(&path.path);
        }
        visit::visit_pat(self, pattern);
    }
}

impl Waits {
    fn note(&mut self, path: &syn::Path) {
        let name = path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        if RAW.contains(&&*name) {
            self.0.push(name);
        }
    }
}

#[test]
fn waits_ask_the_wait_policy() {
    let mut found = Vec::new();
    for member in members() {
        let directory = member.directory.as_str();
        if ["tests", "tests/skip", "bench", "fuzz"].contains(&directory) {
            continue;
        }
        for file in files(&format!("{directory}/src"), &["rs"]) {
            let mut waits = Waits::default();
            waits.visit_file(&syntax(&file));
            found.extend(waits.0.into_iter().map(|name| format!("{file}: {name}")));
        }
    }
    found.sort();
    found.dedup();
    assert_only(&found, EXCEPTIONS, "a wait asks the wait policy: WaitPolicy or Backoff");
}

#[test]
fn c_code_does_not_yield() {
    let all = ["include", "space/gate/c"].iter().flat_map(|wing| files(wing, &["c", "h", "S"]));
    let found: Vec<String> = all.filter(|file| text(file).contains("sched_yield")).collect();
    assert_only(&found, EXCEPTIONS_IN_C, "C code does not yield the processor in loops");
}
