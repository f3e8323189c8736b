//! The receivers that a sender of FCP or FCP plus has found.

use std::collections::HashMap;

use fcp::error::Refused;
use fcp::hold::Peer;
use fcp::member::{Life, Membership};

use crate::buffer::Buffer;
use crate::table::Table;

/// Finds receivers by their ID.
#[derive(Debug)]
pub(crate) struct Directory {
    group: u32,
    /// FCP plus: the entry of each ID that was found.
    cache: Option<HashMap<u32, u16>>,
    /// Entry of the last receiver.
    last: u16,
    /// By entry: the member that had it when it was last looked up, and its buffer.
    peers: Vec<Option<(Peer, Buffer)>>,
}

impl Directory {
    /// Returns the directory of a sender of `group` in a window for `members` members.
    pub fn new(group: u32, members: u16, caches: bool) -> Self {
        let cache = caches.then(HashMap::new);
        Self { group, cache, last: 0, peers: vec![None; members.into()] }
    }

    /// Returns the member with this ID.
    pub fn find(&mut self, membership: &Membership, id: u32) -> Result<(Peer, Buffer), Refused> {
        let members = membership.members();
        let table = Table(members.window());
        let known = self.cache.as_ref().and_then(|cache| cache.get(&id).copied());
        let index = match known {
            Some(index) => index,
            None => table.find(id, self.group, self.last).ok_or(Refused::Gone)?,
        };
        self.last = index;
        if let Some(cache) = &mut self.cache
            && known.is_none()
        {
            cache.insert(id, index);
        }
        if let Some(found) = self.peers[usize::from(index)] {
            return Ok(found);
        }
        let entry = members.entry(index).ok_or(Refused::Gone)?;
        if members.life(entry.peer) == Life::Gone {
            return Err(Refused::Dead);
        }
        let buffer = Buffer::of(members.window(), index).expect("all members have buffers");
        let found = (entry.peer, buffer);
        self.peers[usize::from(index)] = Some(found);
        Ok(found)
    }

    /// Forgets a member that no longer has this ID or this entry.
    pub fn forget(&mut self, id: u32, peer: Peer) {
        self.peers[usize::from(peer.index)] = None;
        if let Some(cache) = &mut self.cache {
            cache.remove(&id);
        }
    }
}
