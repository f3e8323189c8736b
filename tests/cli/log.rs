//! `NAGAYA_LOG`: the messages of the command and of node servers, by level.

use nagaya_tests::{WorkDir, exec, job, nagaya};

#[test]
fn choices_and_starts_are_written_at_level_info() {
    let job = job();
    let output = exec(&job, "true").env("NAGAYA_LOG", "info").run();
    assert!(output.status.success(), "{output}");
    let start = format!("nagaya: info: exec: job {job}: task 0 has started: PID ");
    assert!(output.stderr.contains(&start), "{output}");
    assert!(output.stderr.contains("info: exec: job"), "{output}");
    let silent = exec(&job, "true").run();
    assert_eq!(silent.stderr, "", "the default is warn");
}

#[test]
fn a_node_server_writes_into_the_file() {
    let dir = WorkDir::new();
    let file = dir.join("log");
    let job = job();
    let run = exec(&job, "sh").args(["-c", "exit 7"]);
    let run = run.env("NAGAYA_LOG", "error,server=info").env("NAGAYA_LOG_FILE", &file).run();
    assert_eq!((run.code(), run.stderr.as_str()), (7, ""), "{run}");
    let wanted =
        ["its space is ready; PID ", "task 0 has started: PID ", "has ended with status 7"];
    let mut log = String::new();
    // The server ends after its last stub.
    nagaya_tests::wait_until("the server has ended", nagaya_tests::TIME_LIMIT, || {
        log = std::fs::read_to_string(&file).unwrap_or_default();
        log.contains(&format!("info: server: job {job}: ends"))
    });
    for part in wanted {
        assert!(log.contains(&format!("info: server: job {job}: ")), "{log}");
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("info: exec: "), "{log}");
}

#[test]
fn pvm_s_daemon_logs_its_start_and_its_tasks() {
    let dir = WorkDir::new();
    let (file, machine) = (dir.join("log"), job());
    let pvm = |line: &str| {
        let command = nagaya("pvm").args(["-c", line]).env("PVM_VMID", &machine);
        command.env("NAGAYA_LOG", "warn,pvmd=info").env("NAGAYA_LOG_FILE", &file).run().ok()
    };
    pvm("spawn -1 -> /bin/true");
    pvm("halt");
    let log = std::fs::read_to_string(&file).unwrap();
    assert!(log.contains("nagaya: info: pvmd: PID "), "{log}");
    assert!(log.contains("info: pvmd: task t40002 has ended"), "{log}");
}

#[test]
fn a_wrong_level_is_named() {
    let output = exec(&job(), "true").env("NAGAYA_LOG", "loud").run();
    assert!(output.status.success(), "{output}");
    assert!(output.stderr.starts_with("nagaya: NAGAYA_LOG: \"loud\" is no level"), "{output}");
}
