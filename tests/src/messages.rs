//! The proof that an MPI's large messages are single copies in user space: the counters of `nagaya
//! ps`, read while `mpi_messages.c` waits for the test.

use std::path::{Path, PathBuf};

use crate::mpi::Mpi;
use crate::{Cmd, nagaya_path, ps};

/// Runs `mpi_messages.c` as two tasks under the MPI's launcher, and asserts that its messages
/// arrive and are copied in user space.
///
/// `under` says how the launcher and `nagaya ps` are run, as by another user or under a
/// filter; `bring` gives the path at which such a command finds a program. `done` is a file
/// that it can see.
#[track_caller]
pub fn are_single_copies(
    mpi: Mpi,
    done: &Path,
    bring: impl Fn(&Path) -> PathBuf,
    under: impl Fn(Cmd) -> Cmd,
) {
    of_program_are_single_copies(mpi, &mpi.compile("mpi_messages.c"), done, bring, under);
}

/// The same for `mpi_messages.c`, compiled in any way.
#[track_caller]
pub fn of_program_are_single_copies(
    mpi: Mpi,
    program: &Path,
    done: &Path,
    bring: impl Fn(&Path) -> PathBuf,
    under: impl Fn(Cmd) -> Cmd,
) {
    of_ranks_are_single_copies(mpi, program, done, bring, under, |exec| exec);
}

/// The same where `rank` says how the launcher is to run `nagaya exec`, as in a container of each
/// rank's own.
#[track_caller]
pub fn of_ranks_are_single_copies(
    mpi: Mpi,
    program: &Path,
    done: &Path,
    bring: impl Fn(&Path) -> PathBuf,
    under: impl Fn(Cmd) -> Cmd,
    rank: impl Fn(Cmd) -> Cmd,
) {
    let program = bring(program);
    let exec = Cmd::new(bring(&nagaya_path())).arg("exec").arg(&program).arg(done);
    let mut job = under(mpi.launch(2).command(rank(exec))).spawn();
    job.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
    let tasks = ps(|_| under(Cmd::new(bring(&nagaya_path())).args(["ps", "--parsable"])));
    std::fs::write(done, "").expect("write");
    assert_eq!(job.wait().ok().matches("messages arrived").count(), 1);

    let ours = done.to_str().expect("UTF-8");
    let tasks: Vec<_> = tasks.iter().filter(|task| task.command.contains(ours)).collect();
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    let copies: u64 = tasks.iter().map(|task| task.copies).sum();
    let bytes: u64 = tasks.iter().map(|task| task.copied_bytes).sum();
    assert!(copies > 40, "{tasks:?}");
    // 20 fresh buffers of 4 MiB each way, at the least.
    assert!(bytes > 2 * 20 * (4 << 20), "{tasks:?}");
}
