//! The carrier of a simulated process.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::world::World;
use crate::carrier::{Carrier, EndpointId, Happened, Landing, Reason, Sending, There, Way};
use crate::error::FabricError;
use crate::payload::Payload;

/// A network that several carriers and a test use.
pub(super) type Shared = Arc<Mutex<World>>;

/// Gives access to the network.
pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, World> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The carrier of a process.
pub(super) struct Simulated {
    pub world: Shared,
    /// The process, by its place in the network.
    pub node: usize,
    /// Never readable.
    pub descriptor: OwnedFd,
}

impl Simulated {
    /// Returns the network, unless the process is dead.
    fn alive(&self) -> Option<MutexGuard<'_, World>> {
        let world = lock(&self.world);
        (!world.nodes[self.node].is_dead).then_some(world)
    }
}

impl Carrier for Simulated {
    fn address(&self) -> Result<Vec<u8>, FabricError> {
        Ok((self.node as u64).to_le_bytes().to_vec())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        let world = lock(&self.world);
        Ok(world.next_work(self.node).is_none_or(|at| at > world.now()))
    }

    fn progress(&mut self) -> bool {
        let Some(mut world) = self.alive() else { return false };
        !world.nodes[self.node].happened.is_empty() || world.pump(self.node)
    }

    fn next(&mut self) -> Option<Happened> {
        lock(&self.world).nodes[self.node].happened.pop_front()
    }

    fn connect(&mut self, address: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        let to = address.try_into().map(u64::from_le_bytes).map_err(|_| "no address")?;
        let mut world = self.alive().ok_or("this process is dead")?;
        world.connect(self.node, to as usize, tag)
    }

    fn answer(&mut self, way: Way, _: &[u8], tag: u64) -> Result<EndpointId, Reason> {
        let mut world = self.alive().ok_or("this process is dead")?;
        world.answer(self.node, way, tag)
    }

    fn adopt(&mut self, way: Way, tag: u64) -> Option<EndpointId> {
        let mut world = self.alive().filter(|world| !world.plan.overtakes)?;
        world.answer(self.node, way, tag).ok()
    }

    fn close(&mut self, endpoint: EndpointId) {
        if let Some(mut world) = self.alive() {
            world.close(endpoint);
        }
    }

    fn send(&mut self, endpoint: EndpointId, header: &[u8], payload: Payload, tag: u64) -> Sending {
        let Some(mut world) = self.alive() else { return Sending::Failed("it is dead".into()) };
        match world.send(endpoint, header.to_vec(), payload, tag) {
            Ok(true) => Sending::Done,
            Ok(false) => Sending::Pending,
            Err(why) => Sending::Failed(why),
        }
    }

    fn receive(&mut self, there: There, landing: Landing, tag: u64) -> Option<Landing> {
        lock(&self.world).receive(self.node, &there, landing, tag)
    }

    fn refuse(&mut self, there: There) {
        lock(&self.world).refuse(&there);
    }

    fn settle(&mut self) {
        if let Some(mut world) = self.alive() {
            world.settle(self.node);
        }
    }

    fn tend(&mut self) {}

    fn needs_tending(&self) -> bool {
        false
    }

    fn refused(&self) -> u64 {
        0
    }

    fn stop_listening(&mut self) {
        lock(&self.world).nodes[self.node].listens = false;
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        if let Some(mut world) = self.alive() {
            world.exit(self.node);
        }
    }
}
