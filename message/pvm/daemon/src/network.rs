//! The part of the event loop that concerns other hosts.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use pvm::parcel::Data;
use pvm::protocol::SM_STHOST;

use crate::event::{Action, Event};
use crate::hosts::TICKS;
use crate::invitation::Invitation;
use crate::load::Load;
use crate::peers::{Happened, Peers};
use crate::plugin;
use crate::poll::Poll;
use crate::run::{Running, Source};
use crate::start::{Started, Starts};

/// Time limit for other hosts to receive pending messages when this daemon ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// Most messages of other hosts that are processed before the other sources get their turn.
const HEARD_MAX: usize = 256;

/// The other hosts: connected ones, and those being started.
pub(crate) struct Network {
    pub(crate) peers: Option<Peers>,
    pub(crate) starts: Option<Starts>,
    /// End of the current tick.
    tick: Option<Instant>,
    tick_length: Duration,
}

impl Network {
    /// Returns a network without other hosts. A host counts as lost after `silence_ms`
    /// milliseconds without a message.
    pub(crate) fn new(silence_ms: u32) -> Network {
        let tick_length = Duration::from_millis((silence_ms / TICKS).max(1).into());
        Network { peers: None, starts: None, tick: None, tick_length }
    }

    /// Watches the fabric of `peers`.
    pub(crate) fn open(&mut self, peers: Peers, poll: &mut Poll<Source>) -> Result<(), Errno> {
        let descriptor = peers.as_fd().try_clone_to_owned();
        let descriptor =
            descriptor.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        poll.add(Source::Fabric(descriptor))?;
        self.peers = Some(peers);
        Ok(())
    }

    /// Returns true if the loop may sleep; otherwise the fabric has events to poll.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.peers.as_mut().is_none_or(Peers::may_sleep)
    }

    /// Returns the time of the next poll that is due without a wake-up of the fabric.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let peers = self.peers.as_ref()?;
        peers.deadline().into_iter().chain(self.tick).min()
    }

    /// Returns true if a tick has ended, and starts the next.
    fn ticks(&mut self) -> bool {
        if self.peers.is_none() {
            return false;
        }
        let now = Instant::now();
        let tick = *self.tick.get_or_insert(now + self.tick_length);
        if now < tick {
            return false;
        }
        // A process that was stopped has missed ticks; they do not count.
        self.tick = Some(now + self.tick_length);
        true
    }

    /// Sends pending messages and closes the fabric. Returns true if all hosts received them.
    pub(crate) fn farewell(&mut self) -> bool {
        let end = Instant::now() + FAREWELL;
        self.peers.take().is_none_or(|mut peers| peers.part(end))
    }
}

impl Running {
    /// Executes an action that concerns other hosts.
    pub(crate) fn act_abroad(&mut self, action: Action) {
        match action {
            Action::OpenFabric(host, secret) => {
                let address = self.open_fabric(host, secret);
                self.tell(Event::Fabric(address));
            }
            Action::Start(start) => {
                let (recipe, invitation) = *start;
                match self.starts() {
                    Ok(starts) => starts.start(recipe, invitation),
                    Err(why) => {
                        let host = invitation.host;
                        let started = Started { host, acceptance: Err(why.into()) };
                        self.tell(Event::Started(started));
                    }
                }
            }
            Action::StartBy(hoster, wait_id, wanted) => match self.starts() {
                Ok(starts) => {
                    let count = Data::default().int(wanted.len() as i32);
                    let data = wanted.into_iter().fold(count, |data, (recipe, invitation)| {
                        data.and(&starts.expect(&recipe, invitation))
                    });
                    let message = data.message(plugin::to(hoster, SM_STHOST), wait_id);
                    self.deliver(hoster, Load::Whole(message));
                }
                Err(why) => {
                    for (_, Invitation { host, .. }) in wanted {
                        let started = Started { host, acceptance: Err(why.clone().into()) };
                        self.tell(Event::Started(started));
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
                    self.log.say(&format!("host {host}: {error}"));
                    self.tell(Event::PeerLost(host));
                }
            }
            Action::Disconnect(host) => {
                if let Some(peers) = &mut self.network.peers {
                    peers.leave(host);
                }
            }
            Action::Send(host, letter) => {
                if let Some(peers) = &mut self.network.peers {
                    peers.send(host, &letter);
                }
            }
            Action::PassOn(to, load) => {
                let loan = match load {
                    Load::Lent(_, terms) => self.post.loan(terms),
                    _ => None,
                };
                if let Some(peers) = &mut self.network.peers {
                    peers.pass_on(to.host(), load, loan);
                }
                self.went_far(to);
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
            let bell = starts.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            self.poll.add(Source::Starts(bell)).map_err(|error| error.to_string())?;
            self.network.starts = Some(starts);
        }
        Ok(self.network.starts.as_mut().expect("just made"))
    }

    /// Processes events of the fabric.
    pub(crate) fn hear(&mut self) {
        for _ in 0..HEARD_MAX {
            let Some(peers) = &mut self.network.peers else { break };
            match peers.poll() {
                Some(Happened::Letter(host, letter)) => {
                    self.told(&letter);
                    self.tell(Event::Peer(host, *letter));
                }
                Some(Happened::Load(host, load)) => {
                    self.tell(Event::Load(host, load));
                    self.hold_back_host(host);
                }
                Some(Happened::Lost(host, why)) => {
                    self.lost(host);
                    self.log.say(&format!("host {host} is lost: {why}"));
                    self.tell(Event::PeerLost(host));
                }
                Some(Happened::Odd(what)) => self.log.say(&what),
                None => break,
            }
        }
        if self.network.ticks() {
            self.tell(Event::Tick);
        }
    }

    /// Processes the answers of daemons that were started.
    pub(crate) fn hear_starts(&mut self) {
        let done = self.network.starts.as_mut().map(Starts::done).unwrap_or_default();
        for started in done {
            self.tell(Event::Started(started));
        }
    }
}
