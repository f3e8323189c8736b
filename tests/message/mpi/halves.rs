//! Large messages of which sender and receiver each copy a part, by libnagaya-coll.so.

use std::time::Duration;

use nagaya_tests::mpi::Mpi;
use nagaya_tests::remains::{MARK, Remains};
use nagaya_tests::{WorkDir, kill, nagaya, ps, seed};
use rustix::process::Signal;

/// Runs on a machine with other work, in which receivers may find that they copy faster alone.
const RUNS: usize = 5;

/// Messages of all lengths arrive whole, nothing is written beside them, and the sender has copied
/// a part of them.
pub fn are_whole(mpi: Mpi) {
    let mut copied = Vec::new();
    // Without the library the sender copies nothing.
    while !copied.last().is_some_and(|ranks: &Vec<u64>| ranks.iter().all(|&bytes| bytes > 1 << 20))
    {
        assert!(copied.len() < RUNS, "bytes by rank and run: {copied:?}");
        copied.push(copied_by_ranks(mpi));
    }
}

/// Returns the bytes that each rank has copied in one run.
fn copied_by_ranks(mpi: Mpi) -> Vec<u64> {
    let dir = WorkDir::new();
    let done = dir.join("done");
    let exec = nagaya("exec").args(["--collectives", "inplace"]);
    let exec = exec.arg(mpi.compile("mpi_halves.c")).args(["400", &seed().to_string()]).arg(&done);
    let mut job = mpi.launch(2).command(exec).spawn();
    job.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
    let tasks = ps(|_| nagaya("ps").arg("--parsable"));
    std::fs::write(&done, "").expect("write");
    assert_eq!(job.wait().ok().matches("messages are whole").count(), 1);

    let ours = done.to_str().expect("UTF-8");
    let tasks = tasks.iter().filter(|task| task.command.contains(ours));
    let copied: Vec<u64> = tasks.map(|task| task.copied_bytes).collect();
    assert_eq!(copied.len(), 2);
    copied
}

/// A rank is killed while both copy: the launcher ends, no message is torn, and nothing remains.
pub fn end_with_a_killed_rank(mpi: Mpi) {
    let mut random = seed();
    for _ in 0..4 {
        let remains = Remains::new();
        let exec = nagaya("exec").args(["--collectives", "inplace"]);
        let exec = exec.arg(mpi.compile("mpi_halves.c")).args(["0", &random.to_string()]);
        let job = mpi.launch(2).command(exec).env(MARK, remains.mark());
        let mut job = job.time_limit(Duration::from_secs(60)).spawn();
        let pids = job.wait_for_pids(2);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros(random >> 46));
        kill(pids[usize::try_from(random % 2).expect("small")], Signal::KILL);
        let output = job.wait();
        assert_ne!(output.code(), 0, "{output}");
        assert!(!output.stderr.contains("not so"), "{output}");
        assert!(!output.stderr.contains("ignal 11"), "{output}");
        assert!(!output.stderr.contains("Segmentation"), "{output}");
        remains.none("a rank that copies");
    }
}
