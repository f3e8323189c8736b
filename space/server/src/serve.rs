//! The life of a node server: it serves until no stub needs it, or reports why it cannot start.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::Failure;
use crate::protocol::{Reply, Request, connection};
use crate::server::Server;

/// Sends the stub that started this process the reason why there will be no server. Only the stub's
/// standard error is visible to the user. Removes the files, whose lock the stub holds.
pub fn refuse(listener: OwnedFd, lock: &Path, socket: &Path, failure: &Failure) {
    let stub_is_late = Duration::from_secs(10);
    let listener = UnixListener::from(listener);
    let mut fds = [PollFd::new(&listener, PollFlags::IN)];
    let timeout = Timespec { tv_sec: stub_is_late.as_secs() as i64, tv_nsec: 0 };
    if !poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0) {
        return;
    }
    let Ok((stub, _)) = listener.accept() else { return };
    let mut connection = connection(stub.into());
    // Unread bytes at the close would reset the stub's connection.
    let _ = connection.receive_until::<Request>(Instant::now() + stub_is_late);
    let _ = std::fs::remove_file(socket);
    let _ = std::fs::remove_file(lock);
    let _ = connection.send(&Reply::Refused(failure.message.clone(), failure.status), &[]);
}

/// Runs a node server until no stub needs it. Stubs lock the file `lock` while they connect.
/// Removes `socket` and `lock` at the end.
pub fn serve_job(server: &mut Server, lock: &Path, socket: &Path) {
    let grace = Duration::from_millis(50);
    let mut served = false;
    loop {
        let timeout = if server.is_idle() { Some(grace) } else { server.ranks_timeout() };
        server.turn(timeout);
        server.miss_ranks();
        served |= !server.is_idle();
        // A stub that holds the lock is about to connect. Before the first stub has connected, the
        // server waits for it, because that stub started the server.
        if server.is_idle() && (served || first_stub_is_late()) {
            let held = try_lock(lock);
            if let Err(Errno::WOULDBLOCK | Errno::INTR | Errno::MFILE | Errno::NFILE) = held {
                continue;
            }
            // The server has the lock, or the directory is gone, as a session's is at its end. In
            // both cases no stub can connect any more.
            let _ = std::fs::remove_file(socket);
            let _ = std::fs::remove_file(lock);
            return;
        }
    }
}

/// Returns true once a minute has passed since the first call. Called while no stub has connected.
fn first_stub_is_late() -> bool {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed() > Duration::from_secs(60)
}

fn try_lock(path: &Path) -> Result<OwnedFd, Errno> {
    use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}
