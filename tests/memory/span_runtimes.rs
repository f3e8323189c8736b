//! Runtimes that require memory at certain addresses, under `nagaya span`: sanitizers, and a
//! garbage collector that maps its heap three times.

use std::time::Duration;

use nagaya_tests::program::source_dir;
use nagaya_tests::span::program;
use nagaya_tests::{Cmd, WorkDir, nagaya, tool};

const LIMIT: Duration = Duration::from_secs(170);
const SUM: &str = "200000\n";

/// Returns the output of a program that is compiled with this sanitizer, alone and on this many
/// nodes. Leak detection uses ptrace(2), which no program may call.
fn sanitized(sanitizer: &str) {
    let program = program("sanitized", &["-g", &format!("-fsanitize={sanitizer}")]);
    Cmd::new(&program).time_limit(LIMIT).run().prints(SUM);
    for nodes in ["1", "2", "3"] {
        let span = nagaya("span").args(["--place", "spread", "--nodes", nodes]).arg(&program);
        span.env("LSAN_OPTIONS", "detect_leaks=0").time_limit(LIMIT).run().prints(SUM);
    }
}

#[test]
fn programs_with_address_sanitizer_run_and_are_told_of_errors() {
    sanitized("address");
    let program = program("sanitized", &["-g", "-fsanitize=address"]);
    for nodes in ["1", "2"] {
        let span = nagaya("span").args(["--nodes", nodes]).arg(&program).arg("0");
        let output = span.env("LSAN_OPTIONS", "detect_leaks=0").time_limit(LIMIT).run();
        assert_eq!(output.code(), 1, "{output}");
        assert!(output.stderr.contains("heap-buffer-overflow"), "{output}");
    }
}

#[test]
fn programs_with_thread_sanitizer_run() {
    sanitized("thread");
}

#[test]
fn programs_with_undefined_behaviour_sanitizer_run() {
    sanitized("undefined");
}

#[test]
fn java_runs_with_a_collector_that_maps_its_heap_three_times() {
    let work = WorkDir::new();
    let source = source_dir().join("span/Collects.java");
    let compiled = Cmd::new(tool("javac")).arg("-d").arg(work.path()).arg(source).run();
    assert!(compiled.status.success(), "{compiled}");
    for nodes in ["1", "2", "3"] {
        let span = nagaya("span").args(["--nodes", nodes, "java", "-XX:+UseZGC", "-Xmx64m", "-cp"]);
        span.arg(work.path()).arg("Collects").time_limit(LIMIT).run().prints("600\n");
    }
}
