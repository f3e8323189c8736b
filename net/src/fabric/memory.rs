//! Reads and writes of peers' memory: see [`one_sided`].

use std::ptr::NonNull;

use slotmap::{DefaultKey, Key as _};

use super::Fabric;
use crate::carrier::{self, OneSided};
use crate::carriers::Endpoint;
use crate::error::FabricError;
use crate::event::{Peer, SendId, Sending};
use crate::one_sided::{self, Region};
use crate::payload::Payload;
use crate::session::Phase;

impl Fabric {
    /// Registers memory, and returns the key by which peers [`import`](Self::import) it. None if
    /// no carrier reads and writes memory, or the kernel does not let it: a limit of locked
    /// memory, for example.
    ///
    /// # Safety
    /// The memory must stay mapped as long as the fabric lives, and peers that get the key may read
    /// and write it at any time.
    pub unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Option<Vec<u8>> {
        // UCX is the only such carrier, and it is at most once in the list.
        let carrier = self.carriers.one_sided().next()?;
        // SAFETY: this function has the contract of the called one.
        let key = unsafe { carrier.register(start, bytes) }.ok()?;
        Some(one_sided::key(start, bytes, &key))
    }

    /// Returns true if this connection can read and write the peer's memory.
    pub fn reads_memory_of(&mut self, peer: Peer) -> bool {
        let endpoint = self.standing(peer);
        endpoint.is_ok_and(|endpoint| self.carriers.one_sided_of(endpoint).is_some())
    }

    /// Imports memory of a peer by the key that the peer has [made](Self::register). None if this
    /// connection cannot read and write it.
    pub fn import(&mut self, peer: Peer, key: &[u8]) -> Option<Region> {
        let endpoint = self.standing(peer).ok()?;
        let (endpoint, carrier) = self.carriers.one_sided_of(endpoint)?;
        let (key, region) = one_sided::parse(key, peer)?;
        Some(region(carrier.import(endpoint, key).ok()?))
    }

    /// Writes to a peer's memory. The payload is no longer needed when it is
    /// [sent](crate::event::Event::Sent). The peer has it after a [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`FabricError::Range`] if the range is not in the region, [`FabricError::Gone`] if the
    /// connection does not stand.
    pub fn write(
        &mut self,
        region: &Region,
        offset: u64,
        payload: Payload,
    ) -> Result<Sending, FabricError> {
        let address = region.at(offset, payload.extent().1).ok_or(FabricError::Range)?;
        self.operate(region.peer, |carrier, endpoint, tag| {
            carrier.write(endpoint, region.id, address, payload, tag)
        })
    }

    /// Reads from a peer's memory. The data are there when it is
    /// [sent](crate::event::Event::Sent).
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    ///
    /// # Safety
    /// `to` must be writable for `bytes` bytes, and nothing else may use it, until the result is
    /// `Done`, or an event reports the read as `Sent` or `Unsent`, or the fabric is dropped.
    pub unsafe fn read(
        &mut self,
        region: &Region,
        offset: u64,
        to: NonNull<u8>,
        bytes: usize,
    ) -> Result<Sending, FabricError> {
        let address = region.at(offset, bytes).ok_or(FabricError::Range)?;
        self.operate(region.peer, |carrier, endpoint, tag| {
            // SAFETY: this function has the contract of the called one.
            unsafe { carrier.read(endpoint, region.id, address, to, bytes, tag) }
        })
    }

    /// Completes all earlier reads and writes of a peer's memory. When the flush is
    /// [sent](crate::event::Event::Sent), the peer has the written data.
    ///
    /// # Errors
    /// [`FabricError::Gone`] if the connection does not stand, or has no such operations.
    pub fn flush(&mut self, peer: Peer) -> Result<Sending, FabricError> {
        self.operate(peer, |carrier, endpoint, tag| carrier.flush(endpoint, tag))
    }

    /// Returns the endpoint of a connection that stands.
    fn standing(&self, peer: Peer) -> Result<Endpoint, FabricError> {
        let session = self.sessions.get(peer.key).ok_or(FabricError::Gone)?;
        let stands = matches!(session.phase, Phase::Open(_));
        session.endpoint.filter(|_| stands).ok_or(FabricError::Gone)
    }

    /// Starts an operation on a connection's endpoint.
    fn operate(
        &mut self,
        peer: Peer,
        start: impl FnOnce(&mut dyn OneSided, u64, u64) -> carrier::Sending,
    ) -> Result<Sending, FabricError> {
        let endpoint = self.standing(peer)?;
        let (endpoint, carrier) = self.carriers.one_sided_of(endpoint).ok_or(FabricError::Gone)?;
        self.last_send += 1;
        let id = self.last_send;
        let operation: DefaultKey = self.sends.insert((peer.key, id));
        self.is_idle = false;
        match start(carrier, endpoint, operation.data().as_ffi()) {
            carrier::Sending::Pending => {
                self.sessions[peer.key].operations += 1;
                Ok(Sending::Pending(SendId(id)))
            }
            carrier::Sending::Done => {
                self.sends.remove(operation);
                Ok(Sending::Done)
            }
            carrier::Sending::Failed(why) => {
                self.sends.remove(operation);
                self.lose(peer.key, why.into_owned());
                Err(FabricError::Gone)
            }
        }
    }
}
