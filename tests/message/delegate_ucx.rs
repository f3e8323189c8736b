//! Delegated UCX, over shared memory and over TCP. The cases are in `programs/delegate_ucx.c`.

use std::path::PathBuf;

use nagaya_tests::{Cmd, nagaya, program};

/// UCX's transports: shared memory with and without the kernel's copies, and TCP. One device
/// only: UCX 1.13 crashes now and then where its TCP has two between the same workers.
const TRANSPORTS: [&str; 3] = ["shm,self", "posix,self", "tcp,self"];

fn program() -> PathBuf {
    let ours = program::library_flags(&["pvas_delegate", "pvas"]);
    let mut flags = vec!["-pthread", "-lucp", "-lucs"];
    flags.extend(ours.iter().map(String::as_str));
    program::build("gcc", "delegate_ucx.c", &flags)
}

#[track_caller]
fn holds(case: &str) {
    for transports in TRANSPORTS {
        // One that fails takes the others along.
        let run = nagaya("run").args(["-K", "-n", "4"]).arg(program()).arg(case);
        let output = run.env("UCX_TLS", transports).env("UCX_NET_DEVICES", "lo").run();
        assert!(output.status.success(), "{transports}: {output}");
    }
}

#[test]
fn tagged_messages_come_as_sent_and_buffers_are_free_then() {
    holds("sends");
}

#[test]
fn puts_have_arrived_after_a_flush_and_active_messages_come() {
    holds("puts_and_messages");
}

#[test]
fn a_wrong_request_fails_the_transfer_and_not_the_delegatee() {
    holds("errors");
}

#[test]
fn a_requester_that_is_killed_keeps_its_memory_while_ucx_needs_it() {
    for transports in TRANSPORTS {
        let owner = Cmd::new(program()).arg("dies");
        let output = owner.env("UCX_TLS", transports).env("UCX_NET_DEVICES", "lo").run();
        assert!(output.status.success(), "{transports}: {output}");
    }
}

#[test]
fn the_headers_are_c_and_cplusplus_and_the_requesters_needs_no_ucx() {
    for (compiler, language) in [("gcc", "c"), ("g++", "c++")] {
        for name in ["pvas_delegate_ucx.h", "pvas_delegate_ucx_serve.h"] {
            let flags = ["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"];
            let header = program::include_dir().join(name);
            Cmd::new(compiler).args(flags).arg(program::include_dir()).arg(header).run().ok();
        }
    }
    let header = std::fs::read_to_string(program::include_dir().join("pvas_delegate_ucx.h"));
    assert!(!header.expect("the header").contains("ucp/api"));
}
