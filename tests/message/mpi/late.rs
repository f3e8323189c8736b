//! Messages of 3 to 64 KiB to a rank that computes, by libnagaya-coll.so.

use std::time::Duration;

use nagaya_tests::mpi::Mpi;
use nagaya_tests::{WorkDir, nagaya};

/// No send waits for a receiver that computes, and each message arrives whole.
pub fn do_not_wait(mpi: Mpi) {
    let dir = WorkDir::new();
    let meeting = dir.join("meeting");
    std::fs::write(&meeting, "").expect("write");
    let exec = nagaya("exec").args(["--collectives", "inplace", "--transport", "copy"]);
    let exec = exec.arg(mpi.compile("mpi_late.c")).arg(&meeting);
    let job = mpi.launch(2).command(exec).time_limit(Duration::from_secs(120));
    assert_eq!(job.run().ok(), "sends do not wait\n");
}
