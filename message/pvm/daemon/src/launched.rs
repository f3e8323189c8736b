//! A virtual machine that a launcher starts: `mpirun -n 3 --map-by node nagaya pvmd`, or the
//! same by prterun, srun or mpiexec. The first process is the first host; the others are its
//! guests from the start. They exchange addresses and the secret by PMIx or PMI-1, which the
//! launcher offers to this job only.

use std::cell::Cell;

use nagaya_server::Failure;
use net::wireup::{Wireup, WireupError};

use crate::hostfile::SPEED;
use crate::identity::{host_name, info, new_secret};
use crate::invitation::{Acceptance, Invitation, Line, Place};
use crate::options::{Options, choices};
use crate::peers::Peers;
use crate::run::begin;
use crate::running::{Running, Startup};
use crate::socket::Refused;

/// Returns the connection to the launcher, if one started this process together with others.
pub fn wireup() -> Result<Option<Wireup>, Failure> {
    let wireup = Wireup::new().map_err(failed)?;
    Ok(wireup.filter(|wireup| wireup.size() > 1))
}

fn failed(error: WireupError) -> Failure {
    Failure::ours(error.to_string())
}

/// Runs this host's daemon until the host leaves the virtual machine. Calls `ready` once tasks
/// can connect.
pub fn run(
    options: &Options,
    mut wireup: Wireup,
    ready: impl FnOnce(&std::path::Path),
) -> Result<(), Refused> {
    let rank = wireup.rank();
    let name = options.name.clone().or_else(|| wireup.host(rank)).unwrap_or_else(host_name);
    let options = &Options { name: Some(name.clone()), ..options.clone() };
    let speed = options.hostfile.own(&name).speed.unwrap_or(SPEED);
    if rank == 0 {
        let secret = new_secret().map_err(Refused::System)?;
        let peers = Peers::open(1, secret);
        let peers = peers.map_err(|error| Refused::System(Failure::ours(error.to_string())))?;
        let by = Place { info: info(1, name, speed), address: peers.address().to_vec() };
        let mut invitation = Invitation::new(by, secret, 0, String::new());
        invitation.space = options.space;
        let chosen = choices().map_err(Refused::System)?;
        (invitation.silence_ms, invitation.protocol) = (chosen.0, chosen.1 as u8);
        let exchanged = wireup.exchange(invitation.to_line().as_bytes(), None);
        exchanged.map_err(failed).map_err(Refused::System)?;
        let answers = wireup.exchange(&[], None).map_err(failed).map_err(Refused::System)?;
        drop(wireup);
        let acceptances = answers[1..].iter().map(|answer| read(answer)).collect();
        let startup = Startup::Leader { secret, peers: Box::new(peers), acceptances };
        return begin(options, startup, |running| ready(&running.path));
    }
    let lines = wireup.exchange(&[], None).map_err(failed).map_err(Refused::System)?;
    let invitation = Invitation::parse(&String::from_utf8_lossy(&lines[0]));
    let Some(mut invitation) = invitation else {
        let why =
            "the first process sent no invitation: install the same version of nagaya on all hosts";
        return Err(Refused::System(Failure::ours(why)));
    };
    (invitation.host, invitation.name, invitation.speed) = (rank as u16 + 1, name.clone(), speed);
    let (host, wireup) = (invitation.host, Cell::new(Some(wireup)));
    let answer = |acceptance: Acceptance| {
        if let Some(mut wireup) = wireup.take() {
            // If the exchange fails, the leader does not know us, and the silence ends this
            // daemon.
            let _ = wireup.exchange(acceptance.to_line().as_bytes(), None);
        }
    };
    let accept = |running: &Running| {
        let info = info(host, name, speed);
        answer(Ok(Place { info, address: running.network.address() }));
        ready(&running.path);
    };
    let result = begin(options, Startup::Guest(Box::new(invitation)), accept);
    result.map_err(Refused::failure).map_err(|failure| {
        answer(Err(failure.message.clone()));
        Refused::System(failure)
    })
}

fn read(answer: &[u8]) -> Acceptance {
    let odd = || Err("it sent an invalid answer".to_string());
    Acceptance::parse(&String::from_utf8_lossy(answer)).unwrap_or_else(odd)
}
