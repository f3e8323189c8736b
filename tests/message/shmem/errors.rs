//! Errors: one line that names the PE, the function and the argument, then all PEs end.

use nagaya_tests::Output;

use crate::{compiled, oshrun};

fn of(error: &str) -> Output {
    oshrun(3, &compiled("errors.c", &[])).arg(error).run()
}

/// PE 0 makes an error; the others wait for ever.
#[track_caller]
fn ends_with(error: &str, line: &str) {
    let output = of(error).ends_with(1);
    let stderr = output.stderr.trim_end();
    assert_eq!(stderr.lines().count(), 1, "{error}: {output}");
    let wanted = format!("nagaya-shmem: PE 0: {line}");
    assert!(stderr.starts_with(&wanted), "{error}: {stderr}, not {wanted}");
}

#[test]
fn a_pe_that_does_not_exist() {
    ends_with("pe", "shmem_long_p: PE 3 does not exist; the job has 3 PEs");
    ends_with("negative", "shmem_long_g: PE -1 does not exist; the job has 3 PEs");
}

#[test]
fn an_address_that_is_not_symmetric() {
    ends_with("stack", "shmem_long_put: 0x");
    ends_with("null", "shmem_putmem: 0x0..0x8 is not symmetric");
    ends_with("end", "shmem_putmem: 1099511627776 bytes at 0x");
    ends_with("atomic", "shmem_long_atomic_inc: the object at 0x");
    ends_with("free", "shmem_free: 0x");
}

#[test]
fn an_argument_that_does_not_exist() {
    ends_with("comparison", "shmem_long_wait_until: 17 is no comparison");
    ends_with("signal", "shmem_long_put_signal: 9 is no operation on a signal");
    ends_with("context", "shmem_ctx_long_p: the context is SHMEM_CTX_INVALID");
}

/// Several PEs make the same error.
#[track_caller]
fn several_end_with(error: &str, words: &str) {
    let output = of(error).ends_with(1);
    assert!(output.stderr.lines().next().is_some(), "{error}: {output}");
    for line in output.stderr.lines() {
        let is_ours = line.starts_with("nagaya-shmem: ") && line.contains(words);
        assert!(is_ours, "{error}: {output}");
    }
}

#[test]
fn use_before_the_begin_and_begin_after_the_end() {
    several_end_with("uninitialised", "shmem_barrier_all: the program has not called shmem_init");
    several_end_with("twice", "shmem_init: the program has called shmem_finalize before");
}

#[test]
fn unequal_sizes_in_an_allocation() {
    several_end_with("sizes", "all PEs must call this function alike");
}

#[test]
fn the_status_of_global_exit_is_that_of_the_job() {
    let output = of("exit").ends_with(42);
    assert_eq!(output.stderr, "", "{output}");
}

#[test]
fn a_pe_that_leaves_or_crashes_ends_the_job() {
    for error in ["leave", "fail"] {
        of(error).ends_with(3);
    }
    let output = of("segv").ends_with(128 + 11);
    assert!(output.stderr.contains("killed by signal 11"), "{output}");
}

#[test]
fn a_heap_size_that_is_none() {
    let program = compiled("chapters.c", &[]);
    for (name, value) in [("SHMEM_SYMMETRIC_SIZE", "much"), ("SMA_SYMMETRIC_SIZE", "-1")] {
        let output = oshrun(1, &program).arg("setup").env(name, value).run().ends_with(1);
        let line = format!("nagaya-shmem: shmem_init: {name}={value} is no size, ");
        let is_one_line = output.stderr.trim_end().lines().count() == 1;
        assert!(is_one_line && output.stderr.starts_with(&line), "{output}");
    }
}

#[test]
fn variables_are_shown_on_request() {
    let program = compiled("chapters.c", &[]);
    let run = || oshrun(2, &program).arg("setup");
    let output = run().env("SHMEM_INFO", "1").env("SHMEM_SYMMETRIC_SIZE", "2.5M").run();
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{output}");
    assert!(lines[0].contains("SHMEM_SYMMETRIC_SIZE=2621440"), "{output}");
    // The name of the standard counts if both are set.
    let output = run()
        .env("SHMEM_SYMMETRIC_SIZE", "3M")
        .env("SMA_SYMMETRIC_SIZE", "5M")
        .env("SMA_INFO", "1")
        .run();
    assert!(output.stderr.contains("SHMEM_SYMMETRIC_SIZE=3145728"), "{output}");
    let output = run().env("SHMEM_VERSION", "1").run();
    let line = output.stderr.trim_end();
    assert!(
        line.starts_with("nagaya-shmem: nagaya ") && line.ends_with(", OpenSHMEM 1.5"),
        "{line}"
    );
}
