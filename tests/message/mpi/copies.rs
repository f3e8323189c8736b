//! Large messages are single copies in user space: the counters of `nagaya ps` show them, and
//! the kernel copies none.

use nagaya_tests::mpi::Mpi;
use nagaya_tests::{Cmd, WorkDir, messages, tool};

/// The kernel's copies that strace sees are less than one large message.
pub fn are_in_user_space(mpi: Mpi) {
    let dir = WorkDir::new();
    let trace = dir.join("trace");
    let strace = Cmd::new(tool("strace"))
        .args(["-f", "-qq", "-A", "-e", "trace=process_vm_readv,process_vm_writev", "-o"])
        .arg(&trace);
    messages::are_single_copies(
        mpi,
        &dir.join("done"),
        |program| program.to_owned(),
        |command| strace.clone().command(command),
    );
    // Probes of the own process do not count; messages would.
    let trace = std::fs::read_to_string(&trace).expect("strace's log");
    let result = |line: &str| line.rsplit("= ").next().and_then(|n| n.trim().parse::<u64>().ok());
    let by_kernel: u64 = trace.lines().filter_map(result).sum();
    assert!(by_kernel < 65536, "{by_kernel} bytes were copied by the kernel");
}
