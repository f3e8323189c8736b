//! The node server outlives a stub that asks for the impossible: descriptors out of range,
//! limits that do not exist, processors that nobody has. It answers or hangs up, and serves
//! the next one.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nagaya_server::identity::Identity;
use nagaya_server::inherit::Inheritance;
use nagaya_server::protocol::{Connection, Reply, Request, Start, connection};
use nagaya_server::server::Server;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use pvas::SpaceOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Says to [`serve`] that it is the server.
const ROLE: &str = "NAGAYA_TEST_SERVES";

/// A server in a process of its own, since it reaps children and blocks signals.
struct Process {
    child: Child,
    socket: PathBuf,
}

impl Process {
    fn new() -> Self {
        Self::with(false)
    }

    /// Perhaps with other rights than this process: it may gain no new ones.
    fn with(no_new_privs: bool) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = PathBuf::from(format!("/tmp/nagaya-hostile-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&socket); // of a killed test with the same PID
        let listener = UnixListener::bind(&socket).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "serve", "--test-threads=1"]).env(ROLE, "1");
        command.stdin(OwnedFd::from(listener)).stdout(Stdio::null());
        let block = move || {
            if no_new_privs {
                // SAFETY: no arguments in memory.
                unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            }
            let set = 1u64 << (libc::SIGCHLD - 1);
            // SAFETY: an eight-byte set, as the kernel's are.
            unsafe {
                libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const set, 0, 8);
            }
            Ok(())
        };
        // SAFETY: one system call. All threads of the harness inherit the mask.
        unsafe { command.pre_exec(block) };
        Self { child: command.spawn().unwrap(), socket }
    }

    fn connect(&self) -> Connection {
        connection(UnixStream::connect(&self.socket).expect("the server lives").into())
    }

    /// Asks for a task and waits for its end, if it gets one. The server must then still
    /// answer others.
    fn ask_for(&self, start: Start, extra_fds: usize) {
        let root: OwnedFd = File::open("/").unwrap().into();
        let null: OwnedFd = File::open("/dev/null").unwrap().into();
        let mut fds = vec![root.as_fd()];
        fds.extend(start.fds.iter().map(|_| null.as_fd()));
        fds.extend((0..extra_fds).map(|_| null.as_fd()));
        let mut connection = self.connect();
        let request = Request::Start(Box::new(start));
        if let Some(Reply::Started { .. }) = ask(&mut connection, &request, &fds) {
            let end = hear(&mut connection);
            assert!(matches!(end, Some(Reply::Ended(_))), "{end:?} after {request:?}");
        }
        drop(connection);
        match ask(&mut self.connect(), &Request::Status, &[]) {
            Some(Reply::Status(status)) => assert_eq!(status.job, "hostile"),
            other => panic!("the server answers {other:?} after {request:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[test]
#[ignore = "run by the others"]
fn serve() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let listener = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let options = SpaceOptions { segment_size: Some(64 << 20), ..SpaceOptions::default() };
    let mut server = Server::new("hostile", listener, options, 0).unwrap();
    loop {
        server.turn(None);
    }
}

/// The next message; `None` if the server hangs up.
fn hear(connection: &mut Connection) -> Option<Reply> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        match connection.take::<Reply>() {
            Ok(Some((reply, _))) => return Some(reply),
            Ok(None) => {}
            Err(error) => panic!("the server sent something else: {error}"),
        }
        let mut fds = [PollFd::new(connection, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
        assert!(Instant::now() < limit, "no answer");
        if !fds[0].revents().is_empty() && !connection.fill().unwrap_or(false) {
            return None;
        }
    }
}

fn ask(connection: &mut Connection, request: &Request, fds: &[BorrowedFd<'_>]) -> Option<Reply> {
    connection.send(request, fds).ok()?;
    hear(connection)
}

fn start(sigmask: u64) -> Start {
    Start {
        path: b"/bin/true".to_vec(),
        arguments: vec![b"true".to_vec()],
        environment: Vec::new(),
        fds: Vec::new(),
        expected_tasks: None,
        id: None,
        preferred_id: None,
        identity: None,
        mounts: false,
        protection: None,
        outlives_stub: false,
        inheritance: Inheritance::of_this_process(sigmask),
    }
}

fn fd() -> impl Strategy<Value = i32> {
    prop_oneof![
        4 => 0..20,
        1 => prop::sample::select(vec![-1, i32::MIN, 1023, 65535, 1 << 20, i32::MAX - 1, i32::MAX]),
        1 => any::<i32>(),
    ]
}

fn runner() -> TestRunner {
    TestRunner::new(ProptestConfig {
        cases: 200,
        source_file: Some(file!()),
        ..ProptestConfig::default()
    })
}

#[test]
fn a_server_outlives_odd_descriptors_and_ids() {
    let ids = prop_oneof![Just(None), (0..5u32).prop_map(Some), any::<u32>().prop_map(Some)];
    let strategy = (
        prop::collection::vec(fd(), 0..8),
        ids,
        any::<Option<u32>>(),
        any::<u64>(),
        prop_oneof![5 => Just(0), 1 => 1..3usize],
    );
    let result = runner().run(&strategy, |(fds, id, preferred_id, sigmask, extra_fds)| {
        Process::new().ask_for(Start { fds, id, preferred_id, ..start(sigmask) }, extra_fds);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// What a process inherits, with some bytes of its encoding changed.
#[test]
fn a_server_outlives_odd_inheritances() {
    let strategy = prop::collection::vec(any::<(Index, u8)>(), 1..4);
    let result = runner().run(&strategy, |changes| {
        let mut bytes = postcard::to_allocvec(&start(0).inheritance).unwrap();
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        if let Ok(inheritance) = postcard::from_bytes(&bytes) {
            Process::new().ask_for(Start { inheritance, ..start(0) }, 0);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_connection_stands_for_one_task() {
    let server = Process::new();
    let root = File::open("/").unwrap();
    let mut connection = server.connect();
    let sleeper = Start {
        path: b"/bin/sleep".to_vec(),
        arguments: vec![b"sleep".to_vec(), b"600".to_vec()],
        ..start(0)
    };
    let sleeper = Request::Start(Box::new(sleeper));
    assert!(matches!(ask(&mut connection, &sleeper, &[root.as_fd()]), Some(Reply::Started { .. })));
    assert!(matches!(ask(&mut connection, &sleeper, &[root.as_fd()]), Some(Reply::Refused(..))));
    // Signals that do not exist are nobody's end.
    connection.send(&Request::Signal(12345, Some(1)), &[]).unwrap();
    connection.send(&Request::Signal(-9, None), &[]).unwrap();
    connection.send(&Request::Signal(15, Some(1)), &[]).unwrap();
    let end = hear(&mut connection);
    assert!(matches!(end, Some(Reply::Ended(15))), "{end:?}");
}

/// The bytes of a request as it is sent.
fn bytes_of(request: &Request) -> Vec<u8> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    connection(theirs.into()).send(request, &[]).unwrap();
    let mut bytes = Vec::new();
    (&ours).read_to_end(&mut bytes).unwrap();
    bytes
}

/// A stub that sends requests and reads no replies waits alone, and misses none of them.
#[test]
fn a_stub_that_does_not_read_delays_only_itself() {
    /// Time without progress after which the server counts as waiting for the reader.
    const STALL: Duration = Duration::from_millis(300);
    let server = Process::new();
    let root = File::open("/").unwrap();
    let mut mute = server.connect();
    let sleeper = Start {
        path: b"/bin/sleep".to_vec(),
        arguments: vec![b"sleep".to_vec(), b"600".to_vec()],
        ..start(0)
    };
    let sleeper = Request::Start(Box::new(sleeper));
    assert!(matches!(ask(&mut mute, &sleeper, &[root.as_fd()]), Some(Reply::Started { .. })));
    // As many requests as the sockets and the server take.
    let request = bytes_of(&Request::Status);
    let mut sent = 0;
    let mut last = Instant::now();
    while last.elapsed() < STALL {
        match rustix::net::send(&mute, &request, rustix::net::SendFlags::DONTWAIT) {
            Ok(bytes) => {
                assert_eq!(bytes, request.len(), "a short message is sent as a whole");
                sent += 1;
                last = Instant::now();
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    assert!(sent > 100, "{sent} requests");
    // The server answers others, and starts tasks for them.
    server.ask_for(start(0), 0);
    // It has dropped nobody for that.
    for number in 0..sent {
        let reply = hear(&mut mute);
        assert!(matches!(reply, Some(Reply::Status(_))), "reply {number} of {sent}: {reply:?}");
    }
    mute.send(&Request::Signal(15, None), &[]).unwrap();
    let end = hear(&mut mute);
    assert!(matches!(end, Some(Reply::Ended(15))), "{end:?}");
}

/// True if all threads of the process sleep.
fn sleeps(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let state = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    threads.map(state).all(|state| state == Some('S'))
}

/// Clients that a server cannot accept for want of descriptors do not keep it busy.
#[test]
fn a_server_at_its_limit_of_open_files_sleeps() {
    /// Consecutive looks at a server that sleeps.
    const LOOKS: usize = 20;
    let server = Process::new();
    assert!(matches!(ask(&mut server.connect(), &Request::Status, &[]), Some(Reply::Status(_))));
    let pid = server.child.id();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    let limit = libc::rlimit { rlim_cur: open + 4, rlim_max: open + 4 };
    // SAFETY: prlimit reads `limit`.
    let result = unsafe {
        let resource = libc::RLIMIT_NOFILE;
        libc::prlimit(pid as i32, resource, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(result, 0);
    let clients: Vec<UnixStream> =
        (0..60).map(|_| UnixStream::connect(&server.socket).expect("connect")).collect();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut looks = 0;
    while looks < LOOKS {
        looks = if sleeps(pid) { looks + 1 } else { 0 };
        assert!(Instant::now() < deadline, "the server does not sleep");
        std::thread::sleep(Duration::from_millis(5));
    }
    // When they have gone, it serves again.
    drop(clients);
    assert!(matches!(ask(&mut server.connect(), &Request::Status, &[]), Some(Reply::Status(_))));
}

/// What a stub says of its rights is not believed: a task has those of its server.
#[test]
fn a_stub_with_other_rights_gets_no_task() {
    let root = File::open("/").unwrap();
    for (no_new_privs, identity) in
        [(false, None), (true, None), (true, Some(Identity::of_this_process()))]
    {
        let server = Process::with(no_new_privs);
        let start = Request::Start(Box::new(Start { identity, ..start(0) }));
        let reply = ask(&mut server.connect(), &start, &[root.as_fd()]);
        match reply {
            Some(Reply::Started { .. }) => assert!(!no_new_privs),
            Some(Reply::Apart { .. }) => assert!(no_new_privs),
            other => panic!("{other:?}"),
        }
    }
}

/// Mounts that are none of a stub's: a file in their place, or none.
#[test]
fn a_server_outlives_mounts_that_are_none() {
    let server = Process::new();
    let root = File::open("/").unwrap();
    // The same but for the mount namespace's number.
    let mut bytes = postcard::to_allocvec(&Identity::of_this_process()).unwrap();
    let at = bytes.windows(5).position(|it| it == b"mnt:[").expect("a mount namespace") + 5;
    bytes[at] ^= 1;
    let identity: Identity = postcard::from_bytes(&bytes).unwrap();
    for descriptors in [3, 1] {
        let start = Start { identity: Some(identity.clone()), mounts: true, ..start(0) };
        let fds = vec![root.as_fd(); descriptors];
        let reply = ask(&mut server.connect(), &Request::Start(Box::new(start)), &fds);
        assert!(matches!(reply, Some(Reply::Apart { .. })), "{reply:?}");
    }
    let identity = Some(Identity::of_this_process());
    let start = Start { identity, ..start(0) };
    let reply = ask(&mut server.connect(), &Request::Start(Box::new(start)), &[root.as_fd()]);
    assert!(matches!(reply, Some(Reply::Started { .. })), "it still serves: {reply:?}");
}
