//! The contents of an address vector: peers by number (fi_addr_t), with those that cannot be
//! reached.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Acquire;

use crate::abi;
use crate::engine::address::{Address, Target};
use crate::engine::name::Name;
use crate::engine::port::{Absence, Peer};
use crate::engine::registry;
use crate::engine::space::Here;

/// An address vector.
#[derive(Debug, Default)]
pub struct Vector {
    /// The peers that can be reached, by number.
    pub peers: Vec<Option<Peer>>,
    /// The peers that cannot be reached, and all that were inserted by name.
    known: BTreeMap<usize, Known>,
    /// Numbers of removed peers.
    free: Vec<usize>,
    /// The address in completions for each source number, in the order of source numbers.
    fi_addrs: Vec<(u32, u64)>,
}

/// A peer as it was inserted.
#[derive(Debug)]
enum Known {
    /// Its endpoint has ended.
    Ended(Address),
    /// It is looked up by its name (`registry`).
    Named {
        name: Name,
        /// Its address in completions.
        fi_addr: u64,
        /// The space's event count at the last lookup without success.
        tried_at: Option<u32>,
    },
}

impl Vector {
    /// Returns a number for another peer.
    fn free_number(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        })
    }

    /// Adds a peer, and returns its number. Completions contain `user_id`, or otherwise the number.
    /// For a peer that was added twice they contain the last `user_id`, or otherwise the first
    /// number.
    pub fn add(&mut self, peer: Peer, user_id: Option<u64>) -> u64 {
        let number = self.free_number();
        self.insert(number, peer, user_id);
        number as u64
    }

    /// Adds a peer whose endpoint has ended.
    pub fn add_ended(&mut self, address: Address, user_id: Option<u64>) -> u64 {
        let number = self.free_number();
        self.set_fi_addr(address.source, user_id, number);
        self.known.insert(number, Known::Ended(address));
        number as u64
    }

    /// Adds a peer by its name.
    pub fn add_named(&mut self, here: &Here, name: Name, user_id: Option<u64>) -> u64 {
        let number = self.free_number();
        let fi_addr = user_id.unwrap_or(number as u64);
        self.known.insert(number, Known::Named { name, fi_addr, tried_at: None });
        // A peer that is not there yet is looked up again when it is used.
        let _ = self.seek(here, number, abi::EINVAL);
        number as u64
    }

    fn set_fi_addr(&mut self, source: u32, user_id: Option<u64>, number: usize) -> u64 {
        let fi_addr = user_id.unwrap_or(number as u64);
        match self.find(source) {
            Ok(at) if user_id.is_some() => self.fi_addrs[at].1 = fi_addr,
            Ok(_) => {}
            Err(at) => self.fi_addrs.insert(at, (source, fi_addr)),
        }
        fi_addr
    }

    fn insert(&mut self, number: usize, mut peer: Peer, user_id: Option<u64>) {
        for other in self.peers.iter_mut().flatten().filter(|other| other.source == peer.source) {
            (other.is_alone, peer.is_alone) = (false, false);
        }
        peer.fi_addr = self.set_fi_addr(peer.source, user_id, number);
        self.peers[number] = Some(peer);
    }

    /// Removes a peer, if there is one with this number.
    pub fn remove(&mut self, number: usize) -> Option<()> {
        let peer = self.peers.get_mut(number)?.take();
        let known = self.known.remove(&number);
        if peer.is_none() && known.is_none() {
            return None;
        }
        self.free.push(number);
        match (peer, known) {
            (Some(peer), _) => self.forget(peer.source, peer.fi_addr),
            (None, Some(Known::Ended(address))) => self.forget(address.source, number as u64),
            _ => {}
        }
        Some(())
    }

    /// Removes an address in completions, unless the same peer has another number.
    fn forget(&mut self, source: u32, fi_addr: u64) {
        let Ok(at) = self.find(source) else { return };
        match self.peers.iter().flatten().find(|other| other.source == source) {
            Some(other) if self.fi_addrs[at].1 == fi_addr => self.fi_addrs[at].1 = other.fi_addr,
            Some(_) => {}
            None => drop(self.fi_addrs.remove(at)),
        }
    }

    fn find(&self, source: u32) -> Result<usize, usize> {
        self.fi_addrs.binary_search_by_key(&source, |&(source, _)| source)
    }

    /// Returns the address in completions for messages with this source number.
    pub fn fi_addr(&self, source: u32) -> Option<u64> {
        self.find(source).ok().map(|at| self.fi_addrs[at].1)
    }

    /// Returns the address or name that was inserted as this number.
    pub fn target(&self, here: &Here, number: usize) -> Option<Target> {
        match self.known.get(&number) {
            Some(Known::Ended(address)) => Some(Target::Endpoint(*address)),
            Some(Known::Named { name, .. }) => Some(Target::Name(*name)),
            None => {
                self.peers.get(number)?.as_ref().map(|peer| Target::Endpoint(peer.address(here)))
            }
        }
    }

    /// Returns the source number of a peer's messages. Error: EAGAIN, EINVAL.
    #[cold]
    pub fn source(&mut self, here: &Here, number: usize) -> Result<u32, i32> {
        if let Some(Known::Ended(address)) = self.known.get(&number) {
            return Ok(address.source);
        }
        self.seek(here, number, abi::EINVAL)?;
        self.peers[number].map(|peer| peer.source).ok_or(abi::EINVAL)
    }

    /// Looks up a peer again after an operation to it has failed with `error`. `Ok`: the caller
    /// tries the operation again. Error: EAGAIN if no endpoint has the peer's name yet.
    #[cold]
    pub fn seek(&mut self, here: &Here, number: usize, error: i32) -> Result<(), i32> {
        let before = self.peers.get(number).ok_or(abi::EINVAL)?;
        if before.is_some() && error != abi::ECONNRESET {
            return Err(error);
        }
        let missing = if before.is_some() { error } else { abi::EAGAIN };
        let before = before.map(|peer| peer.source);
        let (name, fi_addr) = match self.known.get_mut(&number) {
            None => return Err(error),
            Some(Known::Ended(_)) => return Err(abi::ECONNRESET),
            Some(Known::Named { name, fi_addr, tried_at }) => {
                // Each change of the exported names raises the event count.
                let event = here.task.control.event().load(Acquire);
                if tried_at.replace(event) == Some(event) {
                    return Err(missing);
                }
                (*name, *fi_addr)
            }
        };
        let address = registry::find(here, &name).ok_or(missing)?;
        let peer = Peer::find(here, &address).map_err(|_: Absence| missing)?;
        if before == Some(peer.source) {
            return Err(missing);
        }
        if let Some(source) = before {
            self.peers[number] = None;
            self.forget(source, fi_addr);
        }
        self.insert(number, peer, Some(fi_addr));
        Ok(())
    }
}
