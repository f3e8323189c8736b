//! The provider for libfabric: its properties, case by case (`programs/ofi.c`), and libfabric's
//! own programs over it. `mpi/provider.rs` has the tests of MPIs over it.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::mpi::libfabric_with_lnx;
use nagaya_tests::{Cmd, bin_dir, exec, job, program, skip, task, tasks, tool};

/// With the provider in libfabric's search path.
fn with_provider(command: Cmd) -> Cmd {
    command.env("FI_PROVIDER_PATH", bin_dir())
}

/// A program that is linked with libfabric.
fn linked(source: &str) -> PathBuf {
    let flags = program::library_flags(&["pvas", "fabric"]);
    let mut all = vec!["-pthread"];
    all.extend(flags.iter().map(String::as_str));
    program::c_with(source, &all)
}

fn cases() -> PathBuf {
    linked("ofi.c")
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

/// The sender copies them, independent of the receiver.
#[test]
fn large_messages_arrive_without_polling() {
    holds("placed");
}

/// The receiver does not wait for room in which those would be that it is to end itself.
#[test]
fn many_large_messages_are_copied_by_both_sides_before_any_poll() {
    holds("heap");
    // More tasks than processors: both stop in the middle of a message.
    case("heap", 5).run().ok();
}

#[test]
fn a_sender_may_leave_after_its_send() {
    let output = case("gone", 2).run().ok();
    assert_eq!(output, "ended well\n");
}

#[test]
fn a_receiver_may_leave_after_its_receive() {
    // Either of the two may be the last to copy.
    for _ in 0..10 {
        let output = case("received", 3).run().ok();
        assert_eq!(output, "ended well\n");
    }
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
fn a_waiter_sleeps_and_is_woken() {
    holds("waiting");
}

#[test]
fn a_sender_without_room_tries_again() {
    holds("flood");
    // More tasks than processors.
    case("flood", 9).time_limit(Duration::from_secs(300)).run().ok();
}

#[test]
fn threads_share_an_endpoint() {
    holds("threads");
}

/// Then there is no lock.
#[test]
fn threads_may_take_turns() {
    let case = |name, ranks| case(name, ranks).env("TURNS", "1");
    for name in ["messages", "matching", "completions", "waiting", "heap"] {
        case(name, 2).run().ok();
    }
    case("flood", 9).time_limit(Duration::from_secs(300)).run().ok();
    case("chaos", 2).run().ends_with(128 + 9);
}

#[test]
fn lost_peers_are_reported() {
    let output = case("ends", 2).run().ends_with(128 + 9);
    assert_eq!(output.stdout, "ended well\n", "{output}");
}

/// Each task by one line, though it has asked for several; and only if that is wanted.
#[test]
fn unreachable_hosts_are_reported() {
    let lines = |command: Cmd| {
        let output = command.run().ends_with(128 + 9);
        output.stderr.lines().filter(|line| line.contains("is not in this space")).count()
    };
    assert_eq!(lines(case("ends", 2).env("FI_LOG_LEVEL", "warn")), 2);
    assert_eq!(lines(case("ends", 2)), 0);
}

#[test]
fn a_sender_that_is_killed_harms_nobody() {
    for _ in 0..10 {
        let output = case("chaos", 2).run().ends_with(128 + 9);
        assert_eq!(output.stdout, "ended well\n", "{output}");
    }
}

#[test]
fn a_receiver_that_is_killed_harms_nobody() {
    for _ in 0..10 {
        let output = case("deaf", 2).run().ends_with(128 + 9);
        assert_eq!(output.stdout, "ended well\n", "{output}");
    }
}

/// Queues that another provider owns: `lnx`, of a newer libfabric than the distribution's.
#[test]
fn another_provider_may_own_queue_and_receives() {
    let command = with_provider(tasks(2, linked("ofi_lnx.c")));
    let command = command.env("LD_LIBRARY_PATH", libfabric_with_lnx());
    command.env("FI_LNX_PROV_LINKS", "nagaya").run().ok();
}

/// Older and newer libfabrics may have other ideas of how.
#[test]
fn a_libfabric_whose_peers_are_unknown_is_told_so() {
    let command = with_provider(task(linked("ofi_lnx.c"))).arg("alone");
    let output = command.env("FI_LOG_LEVEL", "warn").run();
    assert_eq!(output.code(), 0, "{output}");
    let said = output.stderr.lines().filter(|line| line.contains("is not 2.3 to 2.6")).count();
    assert_eq!(said, 1, "{output}");
}

/// Runs a case of `ofi_names.c`, as [`everywhere`] has it.
#[track_caller]
fn named(name: &str, ranks: usize) -> Vec<String> {
    everywhere("ofi_names.c", name, ranks)
}

/// Runs a case of a program as `ranks` tasks, with the libfabrics of the distribution and of an MPI
/// that brings a newer one. The output of each run.
#[track_caller]
fn everywhere(source: &str, name: &str, ranks: usize) -> Vec<String> {
    let program = linked(source);
    let case = || with_provider(tasks(ranks, &program)).args([name, &ranks.to_string()]);
    let newer = case().env("LD_LIBRARY_PATH", libfabric_with_lnx());
    [case(), newer].map(|case| case.run().ok()).into()
}

#[test]
fn node_service_and_hints_are_answered() {
    named("answers", 1);
}

#[test]
fn error_entries_have_the_size_of_the_programs_interface() {
    named("errors", 1);
}

#[test]
fn calls_without_addresses_are_errors() {
    named("missing", 1);
}

/// Before it starts, too, and again after another has taken its place.
#[test]
fn clients_find_a_server_by_its_service() {
    named("service", 2);
    named("strings", 2);
}

#[test]
fn one_endpoint_has_a_name() {
    named("names", 2);
    named("names", 5);
}

#[test]
fn endpoints_that_have_ended_are_known_and_cannot_be_reached() {
    assert_eq!(named("ended", 2), ["ended well\n", "ended well\n"]);
}

#[test]
fn remote_accesses_are_counted() {
    everywhere("ofi_events.c", "counts", 2);
}

#[test]
fn poll_sets_tell_of_news() {
    everywhere("ofi_events.c", "polls", 2);
}

#[test]
fn wait_sets_wake_their_waiters() {
    everywhere("ofi_events.c", "waits", 2);
}

#[test]
fn poll_waits_for_a_wait_set_s_descriptor() {
    everywhere("ofi_events.c", "descriptors", 2);
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
    // A task that has not asked gets no notice.
    let quiet = with_provider(fi_info()).run();
    assert!(!quiet.stderr.contains("nagaya exec"), "{quiet}");
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port().to_string()
}

#[test]
fn libfabrics_ping_pong_runs() {
    for mode in ["msg", "tagged"] {
        let pingpong = |job: &str| {
            let command = with_provider(exec(job, tool("fi_pingpong")));
            command.args(["-p", "nagaya", "-e", "rdm", "-c", "-I", "200", "-m", mode])
        };
        let job = job();
        let serve = |port: &str| pingpong(&job).args(["-B", port]).spawn();
        let call = |port: &str| pingpong(&job).args(["-P", port, "127.0.0.1"]).run();
        let mut port = free_port();
        let mut server = serve(&port);
        // The client gives up if no server listens yet.
        let mut client = call(&port);
        for _ in 0..50 {
            if client.code() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            // Another process may have taken the port meanwhile.
            if !server.is_running() {
                port = free_port();
                server = serve(&port);
            }
            client = call(&port);
        }
        let table = client.ok();
        assert!(table.lines().any(|line| line.starts_with("1m")), "{table}");
        server.wait().ok();
    }
}

/// Programs that are linked to fixed addresses have separate page tables.
#[test]
fn tasks_of_several_domains_exchange_messages() {
    let flags = program::library_flags(&["pvas", "fabric"]);
    let mut all = vec!["-pthread", "-no-pie", "-fno-pie"];
    all.extend(flags.iter().map(String::as_str));
    let fixed = program::c_with("ofi.c", &all);
    for name in ["messages", "matching", "multiple", "placed", "memory", "atomics", "flood"] {
        let output = with_provider(tasks(2, &fixed)).args([name, "2"]).run();
        if output.stderr.contains("userfaultfd") {
            return skip("userfaultfd is not allowed here");
        }
        output.ok();
    }
}
