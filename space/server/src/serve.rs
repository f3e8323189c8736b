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

/// Time in which the stub that started this process must have asked.
const STUB_IS_LATE: Duration = Duration::from_secs(10);

/// Sends the stub that started this process the reason why there will be no server. Only the stub's
/// standard error is visible to the user. Removes the files, whose lock the stub holds. Tools that
/// ask meanwhile get no answer, as if no server ran: the reason is the stub's.
pub fn refuse(listener: OwnedFd, lock: &Path, socket: &Path, failure: &Failure) {
    let deadline = Instant::now() + STUB_IS_LATE;
    let listener = UnixListener::from(listener);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(&listener, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return,
            Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        let Ok((peer, _)) = listener.accept() else { return };
        let mut connection = connection(peer.into());
        // Unread bytes at the close would reset the stub's connection.
        match connection.receive_until(deadline) {
            Ok(Some(Request::Signal(..) | Request::Status | Request::Maps) | None) => continue,
            // A request that cannot be read may be the stub's.
            Ok(Some(Request::Start(_))) | Err(_) => {}
        }
        let _ = std::fs::remove_file(socket);
        let _ = std::fs::remove_file(lock);
        let _ = connection.send(&Reply::Refused(failure.message.clone(), failure.status), &[]);
        return;
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::identity::Identity;
    use crate::inherit::Inheritance;
    use crate::protocol::Start;

    fn start() -> Request {
        Request::Start(Box::new(Start {
            path: b"true".to_vec(),
            arguments: vec![],
            environment: vec![],
            fds: vec![],
            expected_tasks: None,
            id: None,
            preferred_id: None,
            identity: Some(Identity::of_this_process()),
            mounts: false,
            protection: None,
            outlives_stub: false,
            inheritance: Inheritance::of_this_process(0),
        }))
    }

    /// In a failed run `nagaya ps` got the reason, and the stub nothing.
    #[test]
    fn the_stub_gets_the_reason_even_if_a_tool_asks_first() {
        let socket = std::env::temp_dir().join(format!("nagaya-serve-{}", std::process::id()));
        let listener = UnixListener::bind(&socket).expect("a socket");
        let [mut tool, mut silent, mut stub] =
            [(); 3].map(|()| connection(UnixStream::connect(&socket).expect("a server").into()));
        tool.send(&Request::Status, &[]).expect("sent");
        rustix::net::shutdown(&silent, rustix::net::Shutdown::Write).expect("shut");
        stub.send(&start(), &[]).expect("sent");

        let failure = Failure { message: "no pidfd_open".into(), status: 125 };
        refuse(listener.into(), Path::new("/nonexistent"), &socket, &failure);

        assert!(matches!(tool.receive::<Reply>(), Ok(None)));
        assert!(matches!(silent.receive::<Reply>(), Ok(None)));
        let reply = stub.receive::<Reply>().expect("a reply");
        assert!(
            matches!(&reply, Some(Reply::Refused(m, 125)) if m == "no pidfd_open"),
            "{reply:?}"
        );
        assert!(!socket.exists());
    }
}
