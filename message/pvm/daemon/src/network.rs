//! The other hosts: connections to their daemons, daemons being started there, and ticks.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::event::PeerMessage;
use crate::hosting::TICKS;
use crate::peers::Peers;
use crate::poll::Poll;
use crate::source::Source;
use crate::start::Starts;

/// Time limit for other hosts to receive pending messages when this daemon ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

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
    pub(crate) fn ticks(&mut self) -> bool {
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
    pub(crate) fn close(&mut self) -> bool {
        let end = Instant::now() + CLOSE_TIMEOUT;
        self.peers.take().is_none_or(|mut peers| peers.part(end))
    }

    /// Sends a daemon message to a host.
    pub(crate) fn send(&mut self, host: u16, message: &PeerMessage) {
        if let Some(peers) = &mut self.peers {
            peers.send(host, message);
        }
    }

    /// Returns the bytes of messages in flight to this host.
    pub(crate) fn pending(&self, host: u16) -> usize {
        self.peers.as_ref().map_or(0, |peers| peers.pending(host))
    }

    /// Returns this daemon's fabric address; empty while the fabric is not open.
    pub(crate) fn address(&self) -> Vec<u8> {
        self.peers.as_ref().map_or_else(Vec::new, |peers| peers.address().to_vec())
    }
}
