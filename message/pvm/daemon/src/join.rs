//! The daemon of a host that another host adds. `nagaya pvmd --join` reads an invitation from
//! standard input and answers on standard output. `nagaya pvmd --call`, which a hoster starts,
//! fetches the invitation by TCP. Both continue in the background.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use nagaya_server::Failure;

use crate::call::Calling;
use crate::hosting::STARTED;
use crate::identity::info;
use crate::invitation::{Acceptance, Invitation, LINE_MAX, Line, Place};
use crate::options::Options;
use crate::run::begin;
use crate::running::{Running, Startup};
use crate::socket::Refused;
use crate::start::START_TIMEOUT;
use crate::timed_read::TimedReader;

/// Reads an invitation, joins, and runs until the host leaves the virtual machine. Call it while
/// the process has one thread: it continues in a forked child with its own session.
pub fn join(options: &Options) -> Result<(), Failure> {
    let mut text = String::new();
    // The inviting daemon writes at once. The time limit covers one that has ended without
    // closing this end of the connection.
    let stdin = TimedReader::new(std::io::stdin(), START_TIMEOUT);
    let read = stdin.take(LINE_MAX as u64).read_to_string(&mut text);
    read.map_err(|error| Failure::ours(format!("cannot read the invitation: {error}")))?;
    let invitation = text.lines().find_map(Invitation::parse).ok_or_else(|| {
        Failure::ours(
            "no invitation on standard input: a daemon runs `nagaya pvmd --join`, not a user",
        )
    })?;
    accept(options, invitation, answer)
}

/// Does the same as [`join`] with an invitation fetched from the address in `number`.
pub fn call(options: &Options, number: &str) -> Result<(), Failure> {
    let (call, invitation) = Calling::begin(number).map_err(Failure::ours)?;
    let call = std::cell::Cell::new(Some(call));
    accept(options, invitation, |acceptance| {
        let said = call.take().map(|call| call.end(acceptance));
        // The line is that of stock PVM's daemon: hosters check its beginning, or pass it on.
        let line = match (acceptance, said) {
            (Ok(Place { info, .. }), Some(Ok(()))) => {
                let (architecture, signature) = (&info.architecture, info.signature);
                format!("{STARTED}0> arch<{architecture}> ip<0:0> mtu<0> dsig<{signature}>")
            }
            _ => "PvmCantStart".into(),
        };
        println!("{line}");
    })
}

fn accept(
    options: &Options,
    invitation: Invitation,
    answer: impl Fn(&Acceptance),
) -> Result<(), Failure> {
    if let Some(fault) = invitation.fault() {
        answer(&Err(fault));
        return Ok(());
    }
    detach()?;
    let (host, name, speed) = (invitation.host, invitation.name.clone(), invitation.speed);
    let startup = Startup::Guest(Box::new(invitation));
    let accept = |running: &Running| {
        let info = info(host, name, speed);
        answer(&Ok(Place { info, address: running.network.address() }));
        silence();
    };
    let result = begin(options, startup, accept).map_err(Refused::failure);
    // After the acceptance nobody reads this.
    result.or_else(|failure| {
        answer(&Err(failure.message));
        Ok(())
    })
}

fn answer(acceptance: &Acceptance) {
    let mut out = std::io::stdout();
    // The write fails if the inviting daemon no longer waits for the answer.
    let _ = out.write_all(acceptance.to_line().as_bytes()).and_then(|()| out.flush());
}

/// Continues in a child process that survives the terminal and the login session.
fn detach() -> Result<(), Failure> {
    // SAFETY: `join` and `call` require a process with one thread, so the child inherits no lock
    // that another thread holds.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::ours(format!("cannot fork: {}", std::io::Error::last_os_error()))),
        0 => {
            let _ = rustix::process::setsid();
            Ok(())
        }
        _ => {
            // SAFETY: `_exit` ends the parent without running exit handlers or destructors.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Closes the login session's pipes.
fn silence() {
    let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") else {
        return;
    };
    let _ = rustix::stdio::dup2_stdin(null.as_fd());
    let _ = rustix::stdio::dup2_stdout(null.as_fd());
    let _ = rustix::stdio::dup2_stderr(null.as_fd());
}
