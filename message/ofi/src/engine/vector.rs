//! Address vectors' contents: peers by number, those that are not there too.

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
    /// By fi_addr_t; those that can be reached.
    pub peers: Vec<Option<Peer>>,
    /// Those that cannot be reached, and all that were inserted by name.
    known: BTreeMap<usize, Known>,
    /// Places that were given up.
    free: Vec<usize>,
    /// What their owners are called in completions, by their sources, in order.
    names: Vec<(u32, u64)>,
}

/// A peer as it was inserted.
#[derive(Debug)]
enum Known {
    /// Its endpoint has ended.
    Ended(Address),
    /// It is found by its name.
    Named {
        name: Name,
        /// What completions call it.
        called: u64,
        /// The space's event count when it was last looked for in vain.
        looked: Option<u32>,
    },
}

impl Vector {
    /// A number for another peer.
    fn place(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        })
    }

    /// Adds a peer that is there; its number. Without a name it is called by its number. Whoever
    /// is there twice is called as he was named last, otherwise by his first number.
    pub fn add(&mut self, peer: Peer, called: Option<u64>) -> u64 {
        let number = self.place();
        self.settle(number, peer, called);
        number as u64
    }

    /// Adds a peer whose endpoint has ended.
    pub fn add_ended(&mut self, address: Address, called: Option<u64>) -> u64 {
        let number = self.place();
        self.call(address.source, called, number);
        self.known.insert(number, Known::Ended(address));
        number as u64
    }

    /// Adds a peer that is looked for by its name.
    pub fn add_named(&mut self, here: &Here, name: Name, called: Option<u64>) -> u64 {
        let number = self.place();
        let named = Known::Named { name, called: called.unwrap_or(number as u64), looked: None };
        self.known.insert(number, named);
        // If it is not there yet, it is looked for again when it is used.
        let _ = self.seek(here, number, abi::EINVAL);
        number as u64
    }

    fn call(&mut self, source: u32, called: Option<u64>, number: usize) -> u64 {
        let name = called.unwrap_or(number as u64);
        match self.find(source) {
            Ok(at) if called.is_some() => self.names[at].1 = name,
            Ok(_) => {}
            Err(at) => self.names.insert(at, (source, name)),
        }
        name
    }

    fn settle(&mut self, number: usize, mut peer: Peer, called: Option<u64>) {
        for other in self.peers.iter_mut().flatten().filter(|other| other.source == peer.source) {
            (other.is_alone, peer.is_alone) = (false, false);
        }
        peer.name = self.call(peer.source, called, number);
        self.peers[number] = Some(peer);
    }

    /// Takes one out, if it is there.
    pub fn remove(&mut self, number: usize) -> Option<()> {
        let peer = self.peers.get_mut(number)?.take();
        let known = self.known.remove(&number);
        if peer.is_none() && known.is_none() {
            return None;
        }
        self.free.push(number);
        match (peer, known) {
            (Some(peer), _) => self.forget(peer.source, peer.name),
            (None, Some(Known::Ended(address))) => self.forget(address.source, number as u64),
            _ => {}
        }
        Some(())
    }

    /// Its owner may be in another place.
    fn forget(&mut self, source: u32, name: u64) {
        let Ok(at) = self.find(source) else { return };
        match self.peers.iter().flatten().find(|other| other.source == source) {
            Some(other) if self.names[at].1 == name => self.names[at].1 = other.name,
            Some(_) => {}
            None => drop(self.names.remove(at)),
        }
    }

    fn find(&self, source: u32) -> Result<usize, usize> {
        self.names.binary_search_by_key(&source, |&(source, _)| source)
    }

    /// What messages of this source are said to be from.
    pub fn name(&self, source: u32) -> Option<u64> {
        self.find(source).ok().map(|at| self.names[at].1)
    }

    /// What was inserted as this number.
    pub fn target(&self, here: &Here, number: usize) -> Option<Target> {
        match self.known.get(&number) {
            Some(Known::Ended(address)) => Some(Target::Endpoint(*address)),
            Some(Known::Named { name, .. }) => Some(Target::Name(*name)),
            None => {
                self.peers.get(number)?.as_ref().map(|peer| Target::Endpoint(peer.address(here)))
            }
        }
    }

    /// What messages of this peer say that they are from. Error: EAGAIN, EINVAL.
    #[cold]
    pub fn source(&mut self, here: &Here, number: usize) -> Result<u32, i32> {
        if let Some(Known::Ended(address)) = self.known.get(&number) {
            return Ok(address.source);
        }
        self.seek(here, number, abi::EINVAL)?;
        self.peers[number].map(|peer| peer.source).ok_or(abi::EINVAL)
    }

    /// Looks for a peer to which an operation has failed with this error. `Ok`: it is worth another
    /// try. Otherwise the error: EAGAIN if a peer of that name is not there yet.
    #[cold]
    pub fn seek(&mut self, here: &Here, number: usize, error: i32) -> Result<(), i32> {
        let before = self.peers.get(number).ok_or(abi::EINVAL)?;
        if before.is_some() && error != abi::ECONNRESET {
            return Err(error);
        }
        let missing = if before.is_some() { error } else { abi::EAGAIN };
        let before = before.map(|peer| peer.source);
        let (name, called) = match self.known.get_mut(&number) {
            None => return Err(error),
            Some(Known::Ended(_)) => return Err(abi::ECONNRESET),
            Some(Known::Named { name, called, looked }) => {
                // Names come with events only.
                let event = here.task.control.event().load(Acquire);
                if looked.replace(event) == Some(event) {
                    return Err(missing);
                }
                (*name, *called)
            }
        };
        let address = registry::find(here, &name).ok_or(missing)?;
        let peer = Peer::find(here, &address).map_err(|_: Absence| missing)?;
        if before == Some(peer.source) {
            return Err(missing);
        }
        if let Some(source) = before {
            self.peers[number] = None;
            self.forget(source, called);
        }
        self.settle(number, peer, Some(called));
        Ok(())
    }
}
