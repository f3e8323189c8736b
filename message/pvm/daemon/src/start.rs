//! Starting daemons on other hosts: by ssh or the command in `PVM_RSH`, or by a hoster. A thread
//! handles each start, so that the daemon's loop never waits for a login.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::ToSocketAddrs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use launch::ssh::{self, Remote, quoted};
use pvm::error::Error;
use pvm::parcel::Data;
use pvm::tid::Tid;
use rustix::event::{EventfdFlags, eventfd};

use crate::call::Expected;
use crate::child::inherit_nothing;
use crate::invitation::{Acceptance, Invitation, LINE_MAX, Line, Place};
use crate::starting::{DaemonSpec, Fault, Started};
use crate::timed_read::TimedReader;

/// Time limit for a host to start its daemon; logins can be slow.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts in progress.
#[derive(Debug)]
pub struct Starts {
    wake_up: OwnedFd,
    sender: Sender<Started>,
    receiver: Receiver<Started>,
    /// Cancels the wait for a daemon that a hoster starts, by host.
    expected: BTreeMap<u16, Arc<AtomicBool>>,
}

impl Starts {
    /// Returns an empty set.
    pub fn new() -> rustix::io::Result<Starts> {
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sender, receiver) = channel();
        Ok(Starts { wake_up, sender, receiver, expected: BTreeMap::new() })
    }

    /// Starts a daemon and invites it.
    pub fn start(&self, spec: DaemonSpec, invitation: Invitation) {
        let host = invitation.host;
        self.work(host, move || {
            invite(&spec, &invitation).map_err(|why| match is_unknown(&spec.host) {
                true => Fault { error: Error::NoHost, why },
                false => why.into(),
            })
        });
    }

    /// Waits for the call of a daemon that a hoster is to start, and invites it. Returns the
    /// data of the message to the hoster.
    pub(crate) fn expect(&mut self, spec: &DaemonSpec, invitation: Invitation) -> Data {
        let host = invitation.host;
        let data = Expected::new(&spec.host).and_then(|expected| {
            let data = describe(spec, host, &expected.call_address(host)?);
            Ok((expected, data))
        });
        match data {
            Ok((expected, data)) => {
                self.expected.insert(host, expected.cancelled.clone());
                self.work(host, move || Ok(expected.answer(&invitation)?));
                data
            }
            Err(error) => {
                self.work(host, move || Err(format!("cannot listen for its call: {error}").into()));
                describe(spec, host, "")
            }
        }
    }

    /// Stops waiting for this host's daemon, unless it has called already.
    pub(crate) fn give_up(&mut self, host: u16) {
        if let Some(cancelled) = self.expected.get(&host) {
            cancelled.store(true, Relaxed);
        }
    }

    fn work(&self, host: u16, work: impl FnOnce() -> Result<Place, Fault> + Send + 'static) {
        let sender = self.sender.clone();
        let wake_up = self.wake_up.try_clone();
        let work = move || {
            let acceptance = work();
            // This fails if the daemon is ending.
            let _ = sender.send(Started { host, acceptance });
            if let Ok(wake_up) = wake_up {
                let _ = rustix::io::write(&wake_up, &1u64.to_ne_bytes());
            }
        };
        let thread = std::thread::Builder::new().name(format!("start {host}")).spawn(work);
        if let Err(error) = thread {
            let why = format!("cannot create a thread: {error}");
            let _ = self.sender.send(Started { host, acceptance: Err(why.into()) });
            let _ = rustix::io::write(&self.wake_up, &1u64.to_ne_bytes());
        }
    }

    /// Returns the results since the last call.
    pub fn done(&mut self) -> Vec<Started> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake_up, &mut count);
        let done: Vec<Started> = self.receiver.try_iter().collect();
        done.iter().for_each(|started| drop(self.expected.remove(&started.host)));
        done
    }
}

impl AsFd for Starts {
    /// The descriptor is readable if there are results.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_up.as_fd()
    }
}

/// Returns true if this host cannot resolve the name. Called only after ssh has failed, since
/// ssh resolves names of its own.
fn is_unknown(host: &str) -> bool {
    (host, 0).to_socket_addrs().is_err()
}

/// Returns the script that `sh` runs on the other host.
fn script(spec: &DaemonSpec, own: &Path) -> String {
    let vmid = spec.vmid.as_ref().map(|vmid| format!("PVM_VMID={} ", quoted(vmid)));
    let vmid = vmid.map_or(String::new(), |set| format!("{set}export PVM_VMID; "));
    let option = "dx= in the host file";
    let script = match &spec.program {
        Some(program) if is_daemon(program) => ssh::named(program, "--join", option),
        Some(program) => ssh::named(program, "pvmd --join", option),
        None => ssh::nagaya(own, "pvmd --join", option),
    };
    format!("{vmid}{script}")
}

/// Returns a host's entry in the message to a hoster: tid, options, login, command, another
/// command for Windows, and the virtual machine's ID. Hosters pass the command to ssh quoted or
/// unquoted, so it contains nothing that needs quotes.
fn describe(spec: &DaemonSpec, host: u16, call: &str) -> Data {
    let own = std::env::current_exe().unwrap_or_else(|_| "nagaya".into());
    let login = match &spec.login {
        Some(login) => format!("{login}@{}", spec.host),
        None => spec.host.clone(),
    };
    let vmid = spec.vmid.clone().unwrap_or_default();
    let set = if vmid.is_empty() { String::new() } else { format!("env PVM_VMID={vmid} ") };
    let program = match &spec.program {
        Some(program) if is_daemon(program) => program.clone(),
        Some(program) => format!("{program} pvmd"),
        None => format!("{} pvmd", own.display()),
    };
    let command = format!("{set}{program} --call={call}");
    let tid = Tid::of_host(host).as_int();
    let data = Data::default().int(tid).string("").string(&login);
    data.string(&command).string("").string(&vmid)
}

/// Links to our program may have the name of stock PVM's daemon.
fn is_daemon(program: &str) -> bool {
    program.rsplit('/').next().is_some_and(|name| name.starts_with("pvmd"))
}

fn invite(spec: &DaemonSpec, invitation: &Invitation) -> Acceptance {
    let own = std::env::current_exe()
        .map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let script = script(spec, &own);
    let login = spec.login.as_deref();
    let there = ssh::start("PVM_RSH", login, &spec.host, &script, inherit_nothing)?;
    let Remote { mut child, to, from, errors } = there;
    let result = converse(to, from, errors, invitation);
    if result.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    result
}

/// Writes the invitation and reads the acceptance.
fn converse(
    mut to: ChildStdin,
    from: ChildStdout,
    errors: ChildStderr,
    invitation: &Invitation,
) -> Acceptance {
    let mut from = TimedReader::new(from, START_TIMEOUT);
    // A line fits into a pipe's buffer, so this never blocks. If the write fails, the reason is
    // on the child's standard error.
    let written = to.write_all(invitation.to_line().as_bytes());
    drop(to);
    let answer = match written {
        Ok(()) => read_acceptance(&mut from),
        Err(_) => Ok(None),
    };
    match answer {
        Ok(Some(acceptance)) => acceptance,
        Ok(None) => {
            let why = ssh::last_line(errors);
            Err(why.unwrap_or_else(|| "it ended without an answer".to_owned()))
        }
        Err(why) => Err(why),
    }
}

/// Returns the acceptance among the lines of `from`, or `None` if they end without one.
fn read_acceptance(from: &mut impl Read) -> Result<Option<Acceptance>, String> {
    let mut lines = BufReader::new(from).take(LINE_MAX as u64);
    loop {
        let mut line = Vec::new();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        if let Some(acceptance) = Acceptance::parse(&String::from_utf8_lossy(&line)) {
            return Ok(Some(acceptance));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn spec() -> DaemonSpec {
        DaemonSpec { host: "there".into(), login: None, program: None, vmid: None }
    }

    #[test]
    fn the_daemon_there_is_the_one_that_is_meant() {
        let own = Path::new("/opt/it's here/nagaya");
        let run = |spec: &DaemonSpec| {
            let script = script(spec, own).replace("command -v", "true");
            let script = script.replace("exec ", "echo $PVM_VMID ");
            let output = Command::new("sh").args(["-c", &script]).output().expect("sh runs");
            String::from_utf8(output.stdout).expect("it is text")
        };
        assert_eq!(run(&spec()), "nagaya pvmd --join\n");
        let given = DaemonSpec { program: Some("/x y/pvmd3".into()), ..spec() };
        assert_eq!(run(&given), "/x y/pvmd3 --join\n");
        let vmid = DaemonSpec { vmid: Some("b c".into()), program: Some("n".into()), ..spec() };
        assert_eq!(run(&vmid), "b c n pvmd --join\n");
    }

    #[test]
    fn the_line_is_found_among_what_a_login_prints() {
        let no: Acceptance = Err("busy".into());
        let text = format!("Welcome to the cluster!\n{}more\n", no.to_line());
        let mut child = Command::new("printf")
            .args(["%s", &text])
            .stdout(Stdio::piped())
            .spawn()
            .expect("printf runs");
        let mut from = child.stdout.take().expect("it is piped");
        assert_eq!(read_acceptance(&mut from), Ok(Some(no)));
        let _ = child.wait();
    }
}
