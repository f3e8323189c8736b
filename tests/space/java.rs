//! The Java virtual machine as a task: it reserves gigabytes, moves its own heap about, and
//! lives on SIGSEGV.

use std::path::Path;

use nagaya_tests::program::source_dir;
use nagaya_tests::{Output, WorkDir, same_as_plain, task, tasks, tool};

/// Compiles `Work.java` as a task, into the directory.
fn compile(dir: &Path) -> Output {
    task(tool("javac")).arg("-d").arg(dir).arg(source_dir().join("Work.java")).run()
}

#[test]
fn java_compiles_and_runs_a_class_with_threads_garbage_and_subprocesses() {
    let dir = WorkDir::new();
    let compiled = compile(dir.path());
    assert!(compiled.status.success(), "{compiled}");
    let classes = dir.path().to_str().expect("UTF-8");
    let text = same_as_plain(&["java", "-Xmx128m", "-cp", classes, "Work"]).ok();
    assert!(text.ends_with("the end\n"), "{text}");
}

#[test]
fn java_runs_with_its_default_heap_and_each_collector() {
    let dir = WorkDir::new();
    let compiled = compile(dir.path());
    assert!(compiled.status.success(), "{compiled}");
    for options in [&[][..], &["-XX:+UseG1GC", "-Xmx256m"], &["-XX:+UseParallelGC", "-Xmx256m"]] {
        let output = task("java").args(options).arg("-cp").arg(dir.path()).arg("Work").run();
        assert!(output.clone().ok().ends_with("the end\n"), "{output}");
    }
}

#[test]
fn two_virtual_machines_run_at_once() {
    let dir = WorkDir::new();
    let compiled = compile(dir.path());
    assert!(compiled.status.success(), "{compiled}");
    let output = tasks(2, "java").args(["-Xmx128m", "-cp"]).arg(dir.path()).arg("Work").run();
    assert_eq!(output.clone().ok().matches("the end\n").count(), 2, "{output}");
}
