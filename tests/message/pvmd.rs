//! The daemon of PVM as a program: one at a time, after any end of the one before, and nothing
//! remains when it ends.

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::{Cmd, Running, WorkDir, nagaya, tool, wait_until};
use rustix::fs::FlockOperation;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::Signal;

const LIMIT: Duration = nagaya_tests::TIME_LIMIT;

fn daemon(work: &WorkDir) -> Cmd {
    let daemon = nagaya("pvmd").env("XDG_RUNTIME_DIR", work.path()).env_remove("PVM_VMID");
    daemon.env("XDG_STATE_HOME", work.join("state")).time_limit(Duration::from_secs(120))
}

/// Starts it, and waits for the line that says where it listens.
fn started(work: &WorkDir) -> (Running, PathBuf) {
    let mut running = daemon(work).spawn();
    let path = PathBuf::from(running.wait_for_lines(1)[0].trim());
    assert_eq!(path, work.join("nagaya/pvmd"));
    UnixStream::connect(&path).expect("it listens");
    (running, path)
}

fn waits_for_lock(process: &Running) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's list");
    let pid = process.pid().to_string();
    locks.lines().any(|line| line.contains("->") && line.split(' ').any(|word| word == pid))
}

#[test]
fn it_leaves_nothing_and_a_second_one_is_refused() {
    let work = WorkDir::short();
    let (running, path) = started(&work);
    daemon(&work).run().refused(125, &["nagaya/pvmd", "running already"]);
    // Another virtual machine of the same user is another daemon.
    let mut other = daemon(&work).env("PVM_VMID", "other").spawn();
    assert!(other.wait_for_lines(1)[0].trim().ends_with("nagaya/pvmd.other"));
    for (running, name) in [(running, "pvmd"), (other, "pvmd.other")] {
        running.signal(Signal::TERM);
        assert_eq!(running.wait().code(), 0, "{name}");
    }
    assert!(!path.exists());
    let left: Vec<_> = std::fs::read_dir(work.path()).expect("a directory").collect();
    let left: Vec<_> = left.into_iter().map(|e| e.expect("an entry").file_name()).collect();
    assert!(left.iter().all(|name| name == "state"), "{left:?}");
    let logs = std::fs::read_dir(work.join("state/nagaya")).map_or(0, Iterator::count);
    assert_eq!(logs, 0, "empty logs are removed");
}

#[test]
fn a_killed_one_does_not_block_the_next() {
    let work = WorkDir::short();
    for _ in 0..3 {
        let (running, path) = started(&work);
        running.signal(Signal::KILL);
        running.wait();
        assert!(path.exists() && UnixStream::connect(&path).is_err(), "a stale socket");
    }
    let (running, _) = started(&work);
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code(), 0);
}

#[test]
fn of_several_that_start_at_once_one_wins() {
    let work = WorkDir::short();
    let (stale, _) = started(&work);
    stale.signal(Signal::KILL);
    stale.wait();
    let mut all: Vec<Running> = (0..6).map(|_| daemon(&work).spawn()).collect();
    wait_until("the others are refused", LIMIT, || {
        all.iter_mut().map(Running::is_running).filter(|running| *running).count() == 1
    });
    let mut winners = 0;
    for mut one in all {
        if one.is_running() {
            winners += 1;
            one.wait_for_lines(1);
            one.signal(Signal::INT);
            assert_eq!(one.wait().code(), 0);
        } else {
            one.wait().refused(125, &["running already"]);
        }
    }
    assert_eq!(winners, 1);
}

#[test]
fn enrolment_waits_for_a_daemon_that_starts_to_listen() {
    let work = WorkDir::short();
    std::fs::DirBuilder::new().mode(0o700).create(work.join("nagaya")).expect("a new directory");
    // We stand for the daemon: it has the lock, and its socket has a name already.
    let lock = std::fs::File::open(work.join("nagaya")).expect("just made");
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("nobody else has it");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    let path = work.join("nagaya").join("pvmd");
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("short")).expect("bind");
    let program = nagaya_tests::program::c_pvm("pvm/orphan.c", &["-Wextra", "-Werror"]);
    let task = Cmd::new(program).env("XDG_RUNTIME_DIR", work.path()).env_remove("PVM_VMID");
    let task = task.env("LD_LIBRARY_PATH", nagaya_tests::program::pvm_libraries());
    let task = task.env_remove("PVMSOCK").spawn();
    wait_until("it waits for the lock", LIMIT, || waits_for_lock(&task));
    rustix::net::listen(&socket, 1).expect("listen");
    drop(lock);
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true).expect("a flag");
    wait_until("it connects", LIMIT, || listener.accept().is_ok());
}

#[test]
fn a_task_killed_while_it_starts_blocks_no_task() {
    let work = WorkDir::short();
    let directory = work.join("nagaya");
    std::fs::DirBuilder::new().mode(0o700).create(&directory).expect("a new directory");
    // Stands for one that starts, or ends, at the same moment.
    let mut other = Cmd::new(tool("flock")).arg(&directory);
    other = other.args(["sh", "-c", "echo has the lock; exec sleep 600"]);
    let mut other = other.spawn();
    other.wait_for_lines(1);
    let (killed, mut next) = (daemon(&work).spawn(), daemon(&work).spawn());
    wait_until("both wait for the lock", LIMIT, || {
        waits_for_lock(&killed) && waits_for_lock(&next)
    });
    killed.signal(Signal::KILL);
    killed.wait();
    assert!(!directory.join("pvmd").exists());
    other.signal_group(Signal::KILL);
    assert!(next.wait_for_lines(1)[0].ends_with("nagaya/pvmd"));
    next.signal(Signal::TERM);
    assert_eq!(next.wait().code(), 0);
    assert!(!directory.exists());
}

#[test]
fn a_bad_host_file_is_refused_with_the_line_and_what_is_wrong() {
    let work = WorkDir::short();
    let file = work.write("hosts", "# mine\n* ep=/bin\nthis sp=fast\n");
    let name = file.to_str().expect("a path").to_string();
    daemon(&work).arg(&name).run().refused(125, &[&format!("{name}:3:"), "sp=fast"]);
    // Daemons there are started neither by hand nor with a typed password.
    for how in ["ms", "pw"] {
        let file = work.write("others", format!("this\n& that so={how}\n"));
        let wanted = [":2:", &format!("so={how}"), "key", "PVM_RSH"];
        daemon(&work).arg(file).run().refused(125, &wanted);
    }
    // ssh would run this command here.
    let file = work.write("options", "this\n& that ip=-oProxyCommand=true\n");
    daemon(&work).arg(file).run().refused(125, &[":2:", "ip=-oProxyCommand=true"]);
    daemon(&work).arg("/no/such/file").run().refused(125, &["/no/such/file", "No such file"]);
    let wrong = daemon(&work).env("PVM_VMID", "a/b").run();
    wrong.refused(125, &["PVM_VMID", "a/b"]);
    assert!(!work.join("nagaya/pvmd").exists());
}
