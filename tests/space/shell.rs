//! Shells as tasks: they fork for everything they do.

use nagaya_tests::{same_as_plain, task, tasks, tool};

#[test]
fn bash_runs_pipelines_subshells_here_documents_and_jobs() {
    let script = nagaya_tests::program::source_dir().join("shell.sh");
    let script = script.to_str().expect("a UTF-8 path");
    let output = same_as_plain(&["bash", script]);
    assert!(output.ok().contains("== the end"), "the script ran to its end");
}

#[test]
fn dash_does_too() {
    same_as_plain(&["dash", "-c", "for i in 1 2 3; do (echo $i | cat); done | sort -r; exit 4"])
        .ends_with(4);
}

#[test]
fn eight_shells_at_once_do_not_disturb_each_other() {
    let script = "for i in $(seq 40); do echo $NAGAYA_TASK_ID:$i | cat; done | sort | uniq | wc -l";
    tasks(8, "bash").args(["-c", script]).run().prints(&"40\n".repeat(8));
}

#[test]
fn a_shell_ends_with_its_own_status() {
    task("bash").args(["-c", "exit 7"]).run().ends_with(7);
    task("bash").args(["-c", "kill -9 $$"]).run().ends_with(128 + 9);
    task("bash").args(["-c", "kill -SEGV $$"]).run().ends_with(128 + 11);
}

#[test]
fn a_shell_that_execs_becomes_that_program() {
    task("bash").args(["-c", "exec echo replaced"]).run().prints("replaced\n");
    // Not even PIE: it runs in its own address space.
    let gcc = tool("gcc");
    let version = task("bash").args(["-c", "exec \"$0\" -dumpversion"]).arg(gcc).run().ok();
    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
}

#[test]
fn a_background_job_outlives_the_task_that_started_it() {
    let script = "(sleep 0.3; echo later > \"$0\") & echo first";
    let dir = nagaya_tests::WorkDir::new();
    let file = dir.join("written-later");
    task("bash").args(["-c", script]).arg(&file).run().prints("first\n");
    nagaya_tests::wait_until("the job wrote its file", nagaya_tests::TIME_LIMIT, || {
        std::fs::read_to_string(&file).is_ok_and(|text| text == "later\n")
    });
}
