//! The part of the event loop that concerns other hosts.

use std::os::fd::AsFd;

use pvm::parcel::Data;
use pvm::protocol::SM_STHOST;

use crate::event::{Action, Event};
use crate::invitation::Invitation;
use crate::peers::{PeerEvent, Peers};
use crate::plugin;
use crate::running::Running;
use crate::source::Source;
use crate::start::Starts;
use crate::starting::Started;
use crate::task_message::TaskMessage;

/// Most messages of other hosts that are processed before the other sources get their turn.
const EVENTS_MAX: usize = 256;

impl Running {
    /// Executes an action that concerns other hosts.
    pub(crate) fn execute_remote(&mut self, action: Action) {
        match action {
            Action::OpenFabric(host, secret) => {
                let address = self.open_fabric(host, secret);
                self.handle(Event::Fabric(address));
            }
            Action::Start(start) => {
                let (spec, invitation) = *start;
                match self.starts() {
                    Ok(starts) => starts.start(spec, invitation),
                    Err(why) => {
                        let host = invitation.host;
                        let started = Started { host, acceptance: Err(why.into()) };
                        self.handle(Event::Started(started));
                    }
                }
            }
            Action::StartBy(hoster, wait_id, wanted) => match self.starts() {
                Ok(starts) => {
                    let count = Data::default().int(wanted.len() as i32);
                    let data = wanted.into_iter().fold(count, |data, (spec, invitation)| {
                        data.and(&starts.expect(&spec, invitation))
                    });
                    let message = data.message(plugin::to(hoster, SM_STHOST), wait_id);
                    self.deliver(hoster, TaskMessage::Whole(message));
                }
                Err(why) => {
                    for (_, Invitation { host, .. }) in wanted {
                        let started = Started { host, acceptance: Err(why.clone().into()) };
                        self.handle(Event::Started(started));
                    }
                }
            },
            Action::GiveUp(host) => {
                if let Some(starts) = &mut self.network.starts {
                    starts.give_up(host);
                }
            }
            Action::Connect(host, address) => {
                let Some(peers) = &mut self.network.peers else { return };
                if let Err(error) = peers.connect(host, &address) {
                    self.log.report(&format!("host {host}: {error}"));
                    self.handle(Event::PeerLost(host));
                }
            }
            Action::Disconnect(host) => {
                if let Some(peers) = &mut self.network.peers {
                    peers.leave(host);
                }
            }
            Action::Send(host, message) => self.network.send(host, &message),
            Action::Forward(to, message) => {
                let loan = match message {
                    TaskMessage::Exposed(_, terms) => self.delivery.loan(terms),
                    _ => None,
                };
                if let Some(peers) = &mut self.network.peers {
                    peers.forward(to.host(), message, loan);
                }
                self.pressure.forwarded(&self.network, to);
            }
            _ => unreachable!("it concerns this host"),
        }
    }

    fn open_fabric(&mut self, host: u16, secret: [u8; 32]) -> Result<Vec<u8>, String> {
        if self.network.peers.is_none() {
            let peers = Peers::open(host, secret).map_err(|error| error.to_string())?;
            self.network.open(peers, &mut self.poll).map_err(|error| error.to_string())?;
        }
        Ok(self.network.peers.as_ref().expect("just opened").address().to_vec())
    }

    fn starts(&mut self) -> Result<&mut Starts, String> {
        if self.network.starts.is_none() {
            let starts = Starts::new().map_err(|error| error.to_string())?;
            let wake_up = starts.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            self.poll.add(Source::Starts(wake_up)).map_err(|error| error.to_string())?;
            self.network.starts = Some(starts);
        }
        Ok(self.network.starts.as_mut().expect("just made"))
    }

    /// Processes events of the fabric.
    pub(crate) fn poll_fabric(&mut self) {
        for _ in 0..EVENTS_MAX {
            let Some(peers) = &mut self.network.peers else { break };
            match peers.poll() {
                Some(PeerEvent::Message(host, message)) => {
                    self.pressure.received(&message);
                    self.handle(Event::Peer(host, *message));
                }
                Some(PeerEvent::TaskMessage(host, message)) => {
                    self.handle(Event::TaskMessage(host, message));
                    self.pressure.hold_back_host(&mut self.network, host);
                }
                Some(PeerEvent::Lost(host, why)) => {
                    self.pressure.lost(host);
                    self.log.report(&format!("host {host} is lost: {why}"));
                    self.handle(Event::PeerLost(host));
                }
                Some(PeerEvent::Malformed(what)) => self.log.report(&what),
                None => break,
            }
        }
        if self.network.ticks() {
            self.handle(Event::Tick);
        }
    }

    /// Processes the answers of daemons that were started.
    pub(crate) fn take_started(&mut self) {
        let done = self.network.starts.as_mut().map(Starts::done).unwrap_or_default();
        for started in done {
            self.handle(Event::Started(started));
        }
    }
}
