//! The shared address space of tasks with `--space`. A node server owns it; the daemon is not
//! inside. A stray write of a task can harm the server and other tasks, but not the daemon. If
//! the server ends, the daemon starts another one for the next task.
//!
//! For each task, the daemon keeps a connection to the server, as `nagaya exec` does for one
//! task: a [`Stub`]. A program that cannot be a task of a space runs as an ordinary process.
//! Programs linked to fixed addresses need a space created for them. If the first program was
//! not one, they get a second server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Child;

use nagaya_server::Failure;
use nagaya_server::inherit::{self, Inheritance};
use nagaya_server::job::Job;
use nagaya_server::protocol::{Connection, Reply, Request, Start};
use nagaya_server::reach::{Reached, Wanted, connect, reach};
use rustix::fs::{Mode, OFlags};

use crate::program::{ProgramSpec, Streams};

/// The space of this host's tasks.
#[derive(Debug)]
pub(crate) struct Space {
    job: Job,
    segment_size: Option<u64>,
    inheritance: Inheritance,
    server: Option<Server>,
    /// The server for programs linked to fixed addresses, if `server` does not take them.
    apart: Option<Server>,
}

/// A running node server.
#[derive(Debug)]
struct Server {
    /// Keeps the server from ending between tasks.
    connection: Connection,
    child: Option<Child>,
    /// True if the server is known to take programs linked to fixed addresses.
    takes_fixed: bool,
}

/// An event in the life of a task.
#[derive(Debug)]
pub(crate) enum StubEvent {
    /// The task runs, with this PID; its output comes from this descriptor.
    Started(u32, OwnedFd),
    /// The program cannot be a task of a space, for this reason, or the server ended first.
    Refused(Box<ProgramSpec>, String),
    /// The task ended, with this wait status.
    Ended(i32),
}

/// The daemon's end of a task's connection to the server.
#[derive(Debug)]
pub(crate) struct Stub {
    connection: Connection,
    /// The program and its output, until the server reports its start.
    waits: Option<(Box<ProgramSpec>, OwnedFd)>,
    /// Set for a server's first task: keeps the server from ending before it knows our
    /// connections.
    lock: Option<File>,
}

impl Space {
    /// Returns the space of the virtual machine with this ID; the first task starts its server.
    /// Call it before the process changes its signal handling, which children inherit from here.
    pub fn new(vmid: Option<&str>, segment_size: Option<u64>) -> Space {
        let name = vmid.map_or("pvm".into(), |vmid| format!("pvm.{vmid}"));
        let job = Job { name, local_tasks: None, local_rank: None, expected_tasks: None };
        // The daemon reads its signals from a descriptor; programs do not.
        let inheritance = Inheritance::of_children(0);
        Space { job, segment_size, inheritance, server: None, apart: None }
    }

    /// Has the server start a program; the returned [`Stub`] reports its events. Waits for the
    /// server only while it starts, and never for the program. On failure returns the spec and
    /// the reason.
    pub fn start(&mut self, spec: Box<ProgramSpec>) -> Result<Stub, (Box<ProgramSpec>, String)> {
        match self.try_start(&spec) {
            Ok((connection, lock, output)) => {
                Ok(Stub { connection, lock, waits: Some((spec, output)) })
            }
            Err(failure) => Err((spec, failure.message)),
        }
    }

    fn try_start(
        &mut self,
        spec: &ProgramSpec,
    ) -> Result<(Connection, Option<File>, OwnedFd), Failure> {
        let failed = |what: &str| {
            let what = what.to_string();
            move |error: io::Error| Failure::ours(format!("{what}: {error}"))
        };
        let Streams { input, output, writer, too } = Streams::new().map_err(failed("pipe"))?;
        let directory = spec.directory.as_deref().unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, Mode::empty()).map_err(io::Error::from);
        let directory = opened.map_err(failed(&directory.display().to_string()))?;
        let mut arguments = vec![spec.file.as_os_str().as_bytes().to_vec()];
        arguments.extend(spec.arguments.iter().map(|word| word.as_bytes().to_vec()));
        let start = Start {
            path: spec.file.as_os_str().as_bytes().to_vec(),
            arguments,
            environment: environment(&spec.environment),
            fds: vec![0, 1, 2],
            expected_tasks: None,
            id: None,
            preferred_id: None,
            identity: None,
            mounts: false,
            protection: None,
            outlives_stub: true,
            inheritance: self.inheritance.clone(),
        };
        // The server reports errors in the file.
        let is_fixed = nagaya_server::is_fixed(&spec.file);
        let (connection, lock) = self.connect(is_fixed)?;
        let fds = [directory.as_fd(), input.as_fd(), writer.as_fd(), too.as_fd()];
        let sent = connection.send(&Request::Start(Box::new(start)), &fds);
        sent.map_err(failed("the node server"))?;
        Ok((connection, lock, output))
    }

    /// Connects to the server for such programs, and starts it if none runs. The first
    /// connection to a new server comes with a lock.
    fn connect(&mut self, is_fixed: bool) -> Result<(Connection, Option<File>), Failure> {
        for server in [&mut self.server, &mut self.apart] {
            let gone = |server: &mut Server| !server.connection.fill().unwrap_or(false);
            if let Some(mut server) = server.take_if(gone)
                && let Some(child) = &mut server.child
            {
                let _ = child.try_wait();
            }
        }
        let is_apart = is_fixed && self.server.as_ref().is_some_and(|it| !it.takes_fixed);
        let (job, place) = match is_apart {
            true => (&self.job.apart(), &mut self.apart),
            false => (&self.job, &mut self.server),
        };
        if place.is_some() {
            return Ok((nonblocking(connect(job)?)?, None));
        }
        let wanted =
            Wanted { segment_size: self.segment_size, shared: is_fixed, ..Wanted::default() };
        // A server that fails to start reports the reason on its first connection.
        let Reached { connection: first, lock, started } = reach(job, wanted)?;
        let connection = nonblocking(connect(job)?)?;
        let takes_fixed = is_fixed && started.is_some();
        *place = Some(Server { connection, child: started, takes_fixed });
        Ok((nonblocking(first)?, Some(lock)))
    }
}

fn nonblocking(connection: Connection) -> Result<Connection, Failure> {
    let set = rustix::io::ioctl_fionbio(&connection, true);
    set.map_err(|error| Failure::ours(format!("the node server: {error}")))?;
    Ok(connection)
}

/// Returns the daemon's environment, overridden by these variables.
fn environment(variables: &BTreeMap<String, String>) -> Vec<Vec<u8>> {
    let name = |entry: &[u8]| entry.split(|&byte| byte == b'=').next().map(<[u8]>::to_vec);
    let is_set = |entry: &Vec<u8>| {
        let name = name(entry).unwrap_or_default();
        variables.keys().any(|variable| variable.as_bytes() == name)
    };
    let mut environment = inherit::environment();
    environment.retain(|entry| !is_set(entry));
    environment.extend(variables.iter().map(|(name, value)| format!("{name}={value}").into()));
    environment
}

impl Stub {
    /// Returns the server's reports on the task since the last call.
    pub fn read(&mut self) -> Vec<StubEvent> {
        let open = self.connection.fill().unwrap_or(false);
        let mut events = Vec::new();
        let mut status = libc::SIGKILL;
        let gone = loop {
            match self.connection.take::<Reply>() {
                Ok(Some((Reply::Started { pid, .. }, _))) => {
                    let output = self.waits.take().map(|(_, output)| output);
                    events.extend(output.map(|output| StubEvent::Started(pid, output)));
                }
                Ok(Some((Reply::Refused(why, _), _))) => {
                    let spec = self.waits.take().map(|(spec, _)| spec);
                    events.extend(spec.map(|spec| StubEvent::Refused(spec, why)));
                }
                Ok(Some((Reply::Ended(as_it_did), _))) => {
                    status = as_it_did;
                    break true;
                }
                Ok(Some(_)) => {}
                Ok(None) => break !open,
                Err(_) => break true,
            }
        };
        if gone || !events.is_empty() {
            self.lock = None;
        }
        if gone {
            // The end of a server ends its tasks.
            let refused = |(spec, _)| StubEvent::Refused(spec, "the node server has ended".into());
            events.push(self.waits.take().map_or(StubEvent::Ended(status), refused));
        }
        events
    }

    /// Sends the task a signal.
    pub fn signal(&self, signal: i32) {
        // The end of the connection reports a server that has ended.
        let _ = self.connection.send(&Request::Signal(signal, None), &[]);
    }
}

impl AsFd for Stub {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
