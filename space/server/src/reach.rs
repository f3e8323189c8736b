//! Connects to a job's node server, and starts it if there is none.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pvas::Protection;
use pvas::connection::Connection;
use rustix::fs::{FlockOperation, flock};

use crate::Failure;
use crate::identity::Identity;
use crate::job::{self, Job, check_peer, directory};
use crate::protocol::connection;
use crate::sweep::listen_and_sweep;

/// Settings of a server that has to be started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Segment size in bytes; `None` selects one that suits the job.
    pub segment_size: Option<u64>,
    /// The tasks' memory is shared memory, because some tasks need domains.
    pub shared: bool,
    /// The job's addresses are the same in every run.
    pub fixed_addresses: bool,
    /// The tasks are protected from each other.
    pub protection: Option<Protection>,
    /// Value of `--delegatee`.
    pub delegatee: Option<&'a str>,
    /// The user already knows that ranks of the job are in other spaces.
    pub apart_is_known: bool,
}

/// Time limit for the connection to a server for another identity.
const OTHERS_CONNECT: Duration = Duration::from_secs(10);

/// A connected server of a job.
#[derive(Debug)]
pub struct Reached {
    /// Connection to the server.
    pub connection: Connection,
    /// Keeps the server from ending before it has received a request.
    pub lock: File,
    /// The server process, if this process started it.
    pub started: Option<Child>,
}

/// Connects to the job's server, and starts it if there is none.
pub fn reach(job: &Job, wanted: Wanted<'_>) -> Result<Reached, Failure> {
    let place = Place::new(job)?;
    let (connection, started) = match place.connect()? {
        Some(connection) => (connection, None),
        None => place.start(wanted).map(|(connection, child)| (connection, Some(child)))?,
    };
    Ok(Reached { connection, lock: place.lock, started })
}

/// Connects to the job's server, which must be running.
pub fn connect(job: &Job) -> Result<Connection, Failure> {
    let socket = job.socket(&directory()?, &Identity::of_this_process());
    let stream = UnixStream::connect(&socket)
        .map_err(|e| Failure::ours(format!("{}: {e}", socket.display())))?;
    check_peer(&stream)?;
    Ok(connection(stream.into()))
}

/// The location of a job's servers. It is locked, so no server starts or ends.
#[derive(Debug)]
pub struct Place {
    job: Job,
    identity: Identity,
    directory: PathBuf,
    socket: PathBuf,
    lock_path: PathBuf,
    /// The lock, released when this is dropped.
    pub lock: File,
}

impl Place {
    /// Waits for the lock of the job.
    pub fn new(job: &Job) -> Result<Self, Failure> {
        let directory = directory()?;
        let identity = Identity::of_this_process();
        let socket = job.socket(&directory, &identity);
        let lock_path = job.lock(&directory);
        let lock = lock_file(&lock_path)?;
        Ok(Self { job: job.clone(), identity, directory, socket, lock_path, lock })
    }

    /// Connects to the server for programs of this process's identity, if there is one.
    pub fn connect(&self) -> Result<Option<Connection>, Failure> {
        let Ok(stream) = UnixStream::connect(&self.socket) else { return Ok(None) };
        check_peer(&stream)?;
        Ok(Some(connection(stream.into())))
    }

    /// Connects to the job's servers for other identities.
    pub fn others(&self) -> Vec<Connection> {
        let paths = self.job.sockets(&self.directory);
        let others = paths.into_iter().filter(|path| *path != self.socket);
        let connect = |path: PathBuf| {
            let stream = job::connect(&path, OTHERS_CONNECT).ok()?;
            check_peer(&stream).ok()?;
            Some(connection(stream.into()))
        };
        others.filter_map(connect).collect()
    }

    /// Starts the server for programs of this process's identity, and connects to it.
    pub fn start(&self, wanted: Wanted<'_>) -> Result<(Connection, Child), Failure> {
        let (stream, child) =
            start_server(&self.job, wanted, &self.identity, &self.socket, &self.lock_path)?;
        check_peer(&stream)?;
        Ok((connection(stream.into()), child))
    }
}

fn lock_file(path: &Path) -> Result<File, Failure> {
    let fail = |e: io::Error| Failure::ours(format!("{}: {e}", path.display()));
    loop {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(fail)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|e| fail(e.into()))?;
        // A server that has just ended may have removed the file while this process waited for its
        // lock.
        use std::os::unix::fs::MetadataExt;
        let same = match (file.metadata(), fs::metadata(path)) {
            (Ok(ours), Ok(now)) => ours.ino() == now.ino() && ours.dev() == now.dev(),
            _ => false,
        };
        if same {
            return Ok(file);
        }
    }
}

/// Starts the node server, listening on `socket`, and connects to it.
fn start_server(
    job: &Job,
    wanted: Wanted<'_>,
    identity: &Identity,
    socket: &Path,
    lock: &Path,
) -> Result<(UnixStream, Child), Failure> {
    let fail =
        |what: &str, e: io::Error| Failure::ours(format!("{}: {what}: {e}", socket.display()));
    let listener = listen_and_sweep(socket).map_err(|e| fail("cannot listen", e))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("server").arg("--job").arg(&job.name).arg("--socket").arg(socket);
    command.arg("--lock").arg(lock);
    let size =
        wanted.segment_size.unwrap_or_else(|| crate::server::segment_size_for(job.local_tasks));
    command.arg("--segment-size").arg(size.to_string());
    command.arg("--tasks").arg(job.local_tasks.unwrap_or(0).to_string());
    if wanted.fixed_addresses {
        command.arg("--fixed-addresses");
    }
    if wanted.shared {
        command.arg("--shared");
    }
    if let Some(protection) = wanted.protection {
        command.arg(format!("--protect={}", protection.name()));
    }
    if wanted.apart_is_known {
        command.arg("--apart-is-known");
    }
    command.arg("--identity").arg(identity.number().to_string());
    command.args(wanted.delegatee.into_iter().flat_map(|place| ["--delegatee", place]));
    command.env_clear();
    // These variables select copy loops (see pvas::copy_plan), the kind of the tasks' memory,
    // the tasks' addresses, whether tasks may give up rights, and the messages of the server.
    for name in [
        "HOME",
        "XDG_CONFIG_HOME",
        "NAGAYA_COPY",
        "PVAS_SHARED",
        "NAGAYA_FIXED_ADDRESSES",
        "NAGAYA_KEEP_ACCESS",
        "NAGAYA_LOG",
        "NAGAYA_LOG_FILE",
    ] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.stdin(Stdio::from(OwnedFd::from(listener)));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|e| fail("cannot start the node server", e))?;
    let stream = UnixStream::connect(socket).map_err(|e| fail("cannot connect", e))?;
    Ok((stream, child))
}
