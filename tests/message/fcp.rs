//! FCP II between tasks of one space: sender and receiver copy long messages at the same time.

use std::time::Duration;

use nagaya_tests::{Cmd, WorkDir, program, seed};

#[test]
fn senders_and_receivers_killed_in_the_middle_of_a_copy_tear_no_message() {
    let program = program::c_with_libraries("fcp_together.c", &["fcp", "pvas"]);
    let dir = WorkDir::new();
    let window = dir.path().join("window");
    let command = Cmd::new(program).arg(window).arg(seed().to_string()).arg("5");
    let output = command.time_limit(Duration::from_secs(120)).run();
    assert!(output.status.success(), "{output}");
    print!("{}", output.stdout);
}
