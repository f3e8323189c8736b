//! Copies between tasks in user space: `process_vm_readv` and `process_vm_writev` give what the
//! kernel's give, in every corner, and never a signal; and the gate disturbs no register.

use std::path::{Path, PathBuf};

use nagaya_tests::{Cmd, WorkDir, program, seed, task, tasks, tool};

/// The state of SIGSEGV and SIGBUS during the copies.
const SIGNALS: [&str; 4] = ["default", "blocked", "ignored", "caught"];

/// The gate's loops that copy.
const LOOPS: [&str; 3] = ["string", "vector", "stream"];

/// A case of `programs/copies.c` and its arguments.
struct Case<'a> {
    name: &'a str,
    seed: u64,
    count: u32,
    signals: &'a str,
}

impl Case<'_> {
    fn args(&self, dir: &Path) -> [String; 5] {
        [
            self.name.to_owned(),
            dir.to_str().expect("UTF-8").to_owned(),
            self.seed.to_string(),
            self.count.to_string(),
            self.signals.to_owned(),
        ]
    }

    /// Runs it as one ordinary process.
    fn alone_plain(&self) -> String {
        Cmd::new(copies()).args(self.args(Path::new("."))).run().ok()
    }

    /// Runs it as one task, whose copies this loop makes.
    fn alone_task(&self, by: &str) -> String {
        task(copies()).env("NAGAYA_COPY", by).args(self.args(Path::new("."))).run().ok()
    }

    /// Runs it as two ordinary processes.
    fn pair_plain(&self) -> String {
        let dir = WorkDir::new();
        let half =
            |id: &str| Cmd::new(copies()).args(self.args(dir.path())).env("NAGAYA_TASK_ID", id);
        let other = half("1").spawn();
        let text = half("0").run().ok();
        other.wait().ok();
        text
    }

    /// Runs it as two tasks, whose copies this loop makes.
    fn pair_tasks(&self, by: &str) -> String {
        let dir = WorkDir::new();
        tasks(2, copies()).env("NAGAYA_COPY", by).args(self.args(dir.path())).run().ok()
    }
}

fn copies() -> PathBuf {
    program::c("copies.c")
}

#[test]
fn random_copies_in_a_task_itself_equal_the_kernels() {
    let seed = seed();
    for signals in SIGNALS {
        let case = Case { name: "on_itself", seed, count: 800, signals };
        let plain = case.alone_plain();
        for by in LOOPS {
            assert_eq!(case.alone_task(by), plain, "SIGSEGV {signals}, {by}");
        }
    }
}

#[test]
fn random_copies_between_tasks_equal_the_kernels() {
    let seed = seed();
    for signals in SIGNALS {
        let case = Case { name: "with_peer", seed, count: 500, signals };
        let plain = case.pair_plain();
        for by in LOOPS {
            assert_eq!(case.pair_tasks(by), plain, "SIGSEGV {signals}, {by}");
        }
    }
}

#[test]
fn thread_ids_strangers_and_the_dead_are_left_to_the_kernel() {
    let case = Case { name: "threads_and_ends", seed: 1, count: 1, signals: "default" };
    case.pair_plain();
    case.pair_tasks("string");
}

#[test]
fn memory_that_vanishes_during_a_copy_is_efault_or_a_short_count() {
    let case = Case { name: "races", seed: 1, count: 1, signals: "default" };
    case.pair_plain();
    for (i, signals) in SIGNALS.into_iter().enumerate() {
        Case { signals, ..case }.pair_tasks(LOOPS[i % 3]);
    }
}

#[test]
fn big_unaligned_copies_arrive_whole() {
    let case = Case { name: "bulk", seed: 1, count: 1, signals: "default" };
    case.pair_plain();
    for by in LOOPS {
        case.pair_tasks(by);
    }
}

#[test]
fn a_bad_address_is_efault_under_every_signal_mask() {
    let case = Case { name: "masks_change", seed: 1, count: 1, signals: "default" };
    assert_eq!(case.alone_plain(), "masks changed\n");
    assert_eq!(case.alone_task("string"), "masks changed\n");
}

#[test]
fn copies_work_in_signal_handlers_on_small_stacks() {
    let case = Case { name: "in_handlers", seed: 1, count: 1, signals: "default" };
    case.alone_plain();
    for by in LOOPS {
        case.alone_task(by);
    }
}

#[test]
fn libcs_copies_between_tasks_do_not_reach_the_kernel() {
    let case = Case { name: "bulk", seed: 1, count: 1, signals: "default" };
    let (dir, log) = (WorkDir::new(), WorkDir::new());
    let calls = |command: Cmd| {
        let trace = log.join("trace");
        Cmd::new(tool("strace"))
            .args(["-f", "-qq", "-e", "trace=process_vm_readv,process_vm_writev", "-o"])
            .arg(&trace)
            .command(command)
            .run()
            .ok();
        std::fs::read_to_string(trace).expect("strace's log").matches("process_vm_").count()
    };
    let alone = Case { name: "in_handlers", ..case };
    let plain = calls(Cmd::new(copies()).args(alone.args(Path::new("."))));
    assert_eq!(plain, 2000, "strace sees an ordinary process's copies");
    let between = calls(tasks(2, copies()).args(case.args(dir.path())));
    assert_eq!(between, 0, "system calls made by tasks");
}

#[test]
fn a_gated_system_call_preserves_registers_vectors_and_the_red_zone() {
    let program = program::c("registers.c");
    let plain = Cmd::new(&program).run().ok();
    for by in LOOPS {
        task(&program).env("NAGAYA_COPY", by).run().prints(&plain);
    }
}

#[test]
fn a_copy_loop_that_does_not_exist_is_refused() {
    let refused = task("/bin/true").env("NAGAYA_COPY", "fast").run();
    assert_eq!(refused.status.code(), Some(125), "{refused}");
    assert_eq!(refused.stderr, "nagaya: invalid NAGAYA_COPY (string, vector or stream)\n");
}
