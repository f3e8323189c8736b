//! The proof that an MPI's large messages are single copies in user space: the counters of
//! `nagaya ps`, read while `mpi_messages.c` waits for us to let it end.

use std::path::{Path, PathBuf};

use crate::program::build;
use crate::{Cmd, nagaya_path, ps, tool};

/// Runs `mpi_messages.c` as two tasks under the launcher of the MPI whose tools' names end
/// with `suffix`, and asserts that its messages arrive and are copied in user space.
///
/// `under` says how the launcher and `nagaya ps` are run, as by another user or under a
/// filter; `bring` gives the path at which such a command finds a program. `done` is a file
/// that it can see.
#[track_caller]
pub fn are_single_copies(
    suffix: &str,
    done: &Path,
    bring: impl Fn(&Path) -> PathBuf,
    under: impl Fn(Cmd) -> Cmd,
) {
    let compiler = format!("mpicc.{suffix}");
    tool(&compiler);
    let program = bring(&build(&compiler, "mpi_messages.c", &["-Wno-stringop-overflow"]));
    let launcher = Cmd::new(tool(&format!("mpirun.{suffix}"))).args(["-n", "2"]);
    let launcher = match suffix {
        "openmpi" => launcher.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]),
        _ => launcher,
    };
    let exec = Cmd::new(bring(&nagaya_path())).arg("exec").arg(&program).arg(done);
    let mut job = under(launcher.command(exec)).spawn();
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
