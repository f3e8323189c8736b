//! The daemon of a host that another one adds. `nagaya pvmd --join` reads an invitation from
//! standard input and answers on standard output; `nagaya pvmd --call`, which a hoster starts,
//! calls for it. Either lives on by itself.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use nagaya_server::Failure;

use crate::call::Calling;
use crate::hosts::STARTED;
use crate::invitation::{Acceptance, Invitation, LINE_MAX, Line, Place};
use crate::patience::Patient;
use crate::run::{Beginning, Options, Running, begin, info};
use crate::socket::Refused;
use crate::start::PATIENCE;

/// Reads an invitation and does as it says; runs until the host leaves the virtual machine.
/// Call it before there are threads: it goes on in a child of its own session.
pub fn join(options: &Options) -> Result<(), Failure> {
    let mut text = String::new();
    // Who has asked for this writes at once; one who is gone, perhaps without this end of the
    // connection being told, never does.
    let stdin = Patient::new(std::io::stdin(), PATIENCE);
    let read = stdin.take(LINE_MAX as u64).read_to_string(&mut text);
    read.map_err(|error| Failure::ours(format!("cannot read the invitation: {error}")))?;
    let invitation = text.lines().find_map(Invitation::parse).ok_or_else(|| {
        Failure::ours("no invitation comes by standard input (a daemon starts this, not a user)")
    })?;
    accept(options, invitation, answer)
}

/// As [`join`], with an invitation that is to be had where `number` says.
pub fn call(options: &Options, number: &str) -> Result<(), Failure> {
    let (call, invitation) = Calling::begin(number).map_err(Failure::ours)?;
    let call = std::cell::Cell::new(Some(call));
    accept(options, invitation, |acceptance| {
        let said = call.take().map(|call| call.end(acceptance));
        // As stock PVM's daemons: hosters look for its beginning, or hand it on.
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
    let beginning = Beginning::Guest(Box::new(invitation));
    let accept = |running: &Running| {
        let address = running.network.peers.as_ref().map(|peers| peers.address().to_vec());
        let info = info(host, name, speed);
        answer(&Ok(Place { info, address: address.unwrap_or_default() }));
        silence();
    };
    let result = begin(options, beginning, accept).map_err(Refused::failure);
    // Once it has accepted, nobody reads this.
    result.or_else(|failure| {
        answer(&Err(failure.message));
        Ok(())
    })
}

fn answer(acceptance: &Acceptance) {
    let mut out = std::io::stdout();
    // Who does not wait for it any more does not get it.
    let _ = out.write_all(acceptance.to_line().as_bytes()).and_then(|()| out.flush());
}

/// Goes on in a child that no terminal and no login session ends.
fn detach() -> Result<(), Failure> {
    // SAFETY: there is one thread, so the child's memory is in order.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::ours(format!("cannot fork: {}", std::io::Error::last_os_error()))),
        0 => {
            let _ = rustix::process::setsid();
            Ok(())
        }
        _ => {
            // SAFETY: ends this process, and runs nothing of it.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Lets go of the login session's pipes.
fn silence() {
    let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") else {
        return;
    };
    let _ = rustix::stdio::dup2_stdin(null.as_fd());
    let _ = rustix::stdio::dup2_stdout(null.as_fd());
    let _ = rustix::stdio::dup2_stderr(null.as_fd());
}
