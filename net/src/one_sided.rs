//! One-sided access: reads and writes of a peer's memory without its calls, by RDMA.
//!
//! A process *registers* memory and gives the *key* to its peers, by messages. A peer that
//! *imports* the key reads and writes the memory. A write is visible once a *flush* after it is
//! complete. Messages and one-sided operations have no order between them.
//!
//! Only the carrier over UCX has this. Where UCX uses a network without RDMA, it emulates it by
//! messages that are handled while the peer's fabric makes progress.

use std::ptr::NonNull;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::carrier::RegionId;
use crate::event::Peer;

/// Longest part of a key that a carrier makes. UCX's keys take less than 200 bytes with a few
/// devices.
const CARRIERS_BYTES_MAX: usize = 16 << 10;

/// Memory of a peer that has been imported: see [`Fabric::import`](crate::fabric::Fabric::import).
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub(crate) peer: Peer,
    pub(crate) id: RegionId,
    address: u64,
    bytes: u64,
}

impl Region {
    /// Returns the address of a range. None if the range is not in the memory.
    pub(crate) fn at(&self, offset: u64, bytes: usize) -> Option<u64> {
        let is_inside = offset.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes);
        is_inside.then(|| self.address + offset)
    }
}

/// The start of a key; the carrier's bytes follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    address: U64,
    bytes: U64,
}

/// Returns the key of memory, from the carrier's.
pub(crate) fn key(start: NonNull<u8>, bytes: usize, carriers: &[u8]) -> Vec<u8> {
    let address = start.addr().get() as u64;
    let head = Head { address: address.into(), bytes: (bytes as u64).into() };
    [head.as_bytes(), carriers].concat()
}

/// Splits a key: the carrier's part, and the memory if it gets this name. None if it is no key.
pub(crate) fn parse(key: &[u8], peer: Peer) -> Option<(&[u8], impl FnOnce(RegionId) -> Region)> {
    let (head, carriers) = Head::ref_from_prefix(key).ok()?;
    let (address, bytes) = (head.address.get(), head.bytes.get());
    address.checked_add(bytes)?;
    let is_valid = !carriers.is_empty() && carriers.len() <= CARRIERS_BYTES_MAX;
    is_valid.then_some((carriers, move |id| Region { peer, id, address, bytes }))
}

#[cfg(test)]
mod tests {
    use slotmap::DefaultKey;

    use super::*;

    #[test]
    fn a_key_names_memory_and_its_ends() {
        let peer = Peer { key: DefaultKey::default(), id: 3 };
        let start = NonNull::without_provenance(0x1000.try_into().expect("not 0"));
        let whole = key(start, 0x20, b"rkey");
        let (carriers, region) = parse(&whole, peer).expect("a key");
        assert_eq!(carriers, b"rkey");
        let region = region(7);
        assert_eq!((region.id, region.at(0, 0x20)), (7, Some(0x1000)));
        assert_eq!(region.at(0x18, 8), Some(0x1018));
        assert_eq!((region.at(0x19, 8), region.at(u64::MAX, 8)), (None, None));
        assert!(parse(&whole[..15], peer).is_none() && parse(&whole[..16], peer).is_none());
        let beyond = [&[0xff; 16][..], b"rkey"].concat();
        assert!(parse(&beyond, peer).is_none(), "no memory ends there");
    }
}
