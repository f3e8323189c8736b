//! Progress: an endpoint takes the messages that have arrived, completes operations, and cleans up
//! after dead peers. Copies of large messages run without the domain's lock.

use sync::ring::Found;

use crate::abi;
use crate::engine::arrival::UNEXPECTED_BYTES_MAX;
use crate::engine::space::{Here, ticket};
use crate::engine::state::{Core, Endpoint, Locked, PendingSend, Queue, State};
use crate::engine::transfer::{Help, Transfer};
use crate::engine::vector::Vector;
use crate::protocol::slab::Slab;
use crate::protocol::slot_use::SlotUse;
use crate::protocol::wire::Kind;

impl Endpoint {
    /// Cleans up after dead peers: gaps in the ring, claimed receives, and messages that no task
    /// will receive.
    fn check_peers(&mut self, here: &Here, queues: &mut Slab<Queue>, vectors: &Slab<Vector>) {
        let lives = |sender: u32| {
            here.task.control.identity(sender >> 16).is_some_and(|now| ticket(now) == sender)
        };
        let table = &self.port.head().posted.table;
        let is_orphan =
            |slot_use: &SlotUse| table.claimed_by(*slot_use).is_some_and(|sender| !lives(sender));
        let published = self.plain.published().chain(self.tagged.published());
        let orphans: Vec<_> = published.filter(is_orphan).collect();
        if !orphans.is_empty() {
            // All messages of dead senders are in the ring by now.
            self.drain_ring(here, queues, vectors);
        }
        match self.port.receiver.look_closely(&self.port.ring) {
            Found::Unfinished(claimed) if !lives(claimed) => {
                self.port.receiver.skip_dead(&self.port.ring, claimed);
            }
            Found::Nothing => {
                for kind in [Kind::Plain, Kind::Tagged] {
                    let is_lost = |slot_use| orphans.contains(&slot_use);
                    let lost = self.matching(kind).take_published(is_lost);
                    self.fail_receives(queues, kind, lost);
                }
            }
            _ => {}
        }
        let is_dead = |send: &PendingSend| !here.is_living(send.peer.task);
        let numbers = self.pending.numbers();
        let lost: Vec<_> =
            numbers.filter(|&number| self.pending.get(number).is_some_and(is_dead)).collect();
        if !lost.is_empty() {
            // Records that the peers have returned before their death count.
            self.take_returned(queues);
        }
        for number in lost {
            self.end_send(queues, number, Some(abi::ECONNRESET));
        }
        self.finish_claimed_sends(here, queues);
        if self.last.as_ref().is_some_and(|last| !here.is_living(last.task())) {
            self.release_last();
        }
    }

    /// Updates the port's hints for polls without the lock.
    pub fn update_watch(&self) {
        let busy = !self.transfers.is_empty()
            || !self.helping.is_empty()
            || !self.unfinished.is_empty()
            || !self.claimed_sends.is_empty()
            || self.unexpected_bytes > UNEXPECTED_BYTES_MAX;
        self.port.update_watch(busy);
    }
}

/// A copy to be made without the lock, for the endpoint with the number that comes first.
#[derive(Debug)]
pub enum Work {
    /// Copy a message that has its receive.
    Receive(usize, Transfer),
    /// Help the receiver to copy this message of ours.
    Help(usize, usize, Help),
    /// Copy this message of ours, which has claimed its receive.
    Claimed(usize, usize, Help),
}

impl State {
    /// Takes the messages that have arrived at an endpoint, and completes operations.
    #[inline]
    pub fn progress(&mut self, here: &Here, number: usize) {
        let State { endpoints, queues, vectors } = self;
        let Some(endpoint) = endpoints.get_mut(number) else { return };
        endpoint.drain_ring(here, queues, vectors);
        endpoint.take_returned(queues);
        if !endpoint.unfinished.is_empty() {
            endpoint.finish_transfers(here, queues);
        }
        if !endpoint.claimed_sends.is_empty() {
            endpoint.finish_claimed_sends(here, queues);
        }
        endpoint.update_watch();
    }

    /// Takes the next copy of an endpoint.
    #[inline]
    pub fn work(&mut self, number: usize) -> Option<Work> {
        let endpoint = self.endpoints.get_mut(number)?;
        if endpoint.helping.is_empty() && endpoint.transfers.is_empty() {
            return None;
        }
        let work = match endpoint.helping.pop_front() {
            Some(message) => endpoint.pending.get_mut(message).map(|send| {
                send.is_helped = true;
                let help = Help::shared(&send.record, send.peer);
                Work::Help(number, message, help)
            }),
            None => endpoint.transfers.pop_front().map(|transfer| Work::Receive(number, transfer)),
        };
        endpoint.update_watch();
        work
    }
}

impl Work {
    /// Makes the copy. The caller does not have the lock.
    pub fn run(self, core: &Core) {
        match self {
            Self::Help(number, message, help) => {
                let copied = help.run(core.here);
                let mut state = core.lock();
                let State { endpoints, queues, .. } = &mut *state;
                let Some(endpoint) = endpoints.get_mut(number) else { return };
                endpoint.helped(queues, message, copied);
            }
            Self::Claimed(number, message, help) => {
                help.run(core.here);
                let mut state = core.lock();
                let State { endpoints, queues, .. } = &mut *state;
                let Some(endpoint) = endpoints.get_mut(number) else { return };
                endpoint.claimed_helped(core.here, queues, message);
                endpoint.update_watch();
            }
            Self::Receive(number, transfer) => {
                let outcome = transfer.run(core.here);
                let mut state = core.lock();
                let State { endpoints, queues, .. } = &mut *state;
                let Some(endpoint) = endpoints.get_mut(number) else { return };
                endpoint.finish_transfer(queues, outcome);
                endpoint.update_watch();
                drop(state);
                // Another thread may wait for the completion.
                core.wake();
            }
        }
    }
}

impl Core {
    /// Releases the lock, and copies a message that has just got its receive.
    pub fn run_work(&self, mut state: Locked<'_>, number: usize) {
        if state.endpoints.get(number).is_none_or(|endpoint| endpoint.transfers.is_empty()) {
            return;
        }
        let work = state.work(number);
        drop(state);
        if let Some(work) = work {
            work.run(self);
        }
    }

    /// Makes progress on all endpoints, and makes all copies.
    pub fn progress_all(&self) {
        let mut state = self.lock();
        let numbers: Vec<_> = state.endpoints.numbers().collect();
        for &number in &numbers {
            state.progress(self.here, number);
        }
        drop(state);
        for number in numbers {
            loop {
                let work = self.lock().work(number);
                let Some(work) = work else { break };
                work.run(self);
            }
        }
    }

    /// Cleans up after dead peers. Not for every poll: it checks each peer.
    #[cold]
    pub fn check_peers(&self) {
        let mut state = self.lock();
        let State { endpoints, queues, vectors } = &mut *state;
        let numbers: Vec<_> = endpoints.numbers().collect();
        for number in numbers {
            if let Some(endpoint) = endpoints.get_mut(number) {
                endpoint.check_peers(self.here, queues, vectors);
                // The receiver frees lines several at a time; senders may wait for fewer.
                endpoint.port.receiver.publish(&endpoint.port.ring);
                endpoint.update_watch();
            }
        }
    }
}
