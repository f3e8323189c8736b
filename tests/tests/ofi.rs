//! The provider for libfabric: what it claims, case by case (`programs/ofi.c`), and libfabric's
//! own programs over it. What MPIs do over it is in `mpi_ofi.rs`.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::{Cmd, bin_dir, exec, job, program, skip, task, tasks, tool};

/// With the provider where libfabric looks for it.
fn with_provider(command: Cmd) -> Cmd {
    command.env("FI_PROVIDER_PATH", bin_dir())
}

fn cases() -> PathBuf {
    let flags = program::library_flags(&["pvas", "fabric"]);
    let mut all = vec!["-pthread"];
    all.extend(flags.iter().map(String::as_str));
    program::c_with("ofi.c", &all)
}

fn case(name: &str, ranks: usize) -> Cmd {
    with_provider(tasks(ranks, cases())).args([name, &ranks.to_string()])
}

/// Runs a case as two tasks of one space.
#[track_caller]
fn holds(name: &str) {
    case(name, 2).run().ok();
}

#[test]
fn messages_of_all_sizes_arrive() {
    holds("messages");
    // To itself.
    case("messages", 1).run().ok();
}

#[test]
fn messages_find_their_receives() {
    holds("matching");
}

#[test]
fn one_receive_takes_many_messages() {
    holds("multiple");
}

#[test]
fn others_memory_is_read_and_written() {
    holds("memory");
}

#[test]
fn others_numbers_are_changed_at_once() {
    holds("atomics");
    case("atomics", 5).run().ok();
}

#[test]
fn completions_are_told_as_asked_for() {
    holds("completions");
}

#[test]
fn who_waits_sleeps_and_is_woken() {
    holds("waiting");
}

#[test]
fn who_finds_no_room_tries_again() {
    holds("flood");
    // More tasks than processors.
    case("flood", 9).time_limit(Duration::from_secs(300)).run().ok();
}

#[test]
fn threads_share_an_endpoint() {
    holds("threads");
}

#[test]
fn who_has_gone_is_told_of() {
    let output = case("ends", 2).run().ends_with(128 + 9);
    assert_eq!(output.stdout, "ended well\n", "{output}");
}

#[test]
fn a_sender_that_is_killed_harms_nobody() {
    for _ in 0..10 {
        let output = case("chaos", 2).run().ends_with(128 + 9);
        assert_eq!(output.stdout, "ended well\n", "{output}");
    }
}

/// fi_info, with as much said as libfabric can.
fn fi_info() -> Cmd {
    Cmd::new(tool("fi_info")).args(["-p", "nagaya"])
}

#[test]
fn libfabric_finds_the_provider_in_a_space_only() {
    let task = with_provider(task(tool("fi_info"))).args(["-p", "nagaya"]).run().ok();
    assert!(task.contains("provider: nagaya") && task.contains("FI_EP_RDM"), "{task}");
    let plain = with_provider(fi_info()).env("FI_LOG_LEVEL", "info").run();
    assert_ne!(plain.code(), 0, "{plain}");
    let said = plain.stderr.lines().filter(|line| line.contains("nagaya exec")).count();
    assert_eq!(said, 1, "{plain}");
    // Nobody who has not asked is told anything.
    let quiet = with_provider(fi_info()).run();
    assert!(!quiet.stderr.contains("nagaya exec"), "{quiet}");
}

#[test]
fn libfabrics_ping_pong_runs() {
    for mode in ["msg", "tagged"] {
        let pingpong = |job: &str| {
            let command = with_provider(exec(job, tool("fi_pingpong")));
            command.args(["-p", "nagaya", "-e", "rdm", "-c", "-I", "200", "-m", mode])
        };
        let job = job();
        let server = pingpong(&job).spawn();
        // The client gives up where nobody listens yet.
        let mut client = pingpong(&job).arg("127.0.0.1").run();
        for _ in 0..50 {
            if client.code() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            client = pingpong(&job).arg("127.0.0.1").run();
        }
        let table = client.ok();
        assert!(table.lines().any(|line| line.starts_with("1m")), "{table}");
        server.wait().ok();
    }
}

/// Programs that are linked to fixed addresses have page tables of their own.
#[test]
fn tasks_of_several_domains_exchange_messages() {
    let flags = program::library_flags(&["pvas", "fabric"]);
    let mut all = vec!["-pthread", "-no-pie", "-fno-pie"];
    all.extend(flags.iter().map(String::as_str));
    let fixed = program::c_with("ofi.c", &all);
    for name in ["messages", "matching", "multiple", "memory", "atomics", "flood"] {
        let output = with_provider(tasks(2, &fixed)).args([name, "2"]).run();
        if output.stderr.contains("userfaultfd") {
            return skip("userfaultfd is not allowed here");
        }
        output.ok();
    }
}
