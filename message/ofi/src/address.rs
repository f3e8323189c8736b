//! What an endpoint is called: the bytes that MPIs exchange, 48 of them.

use pvas::hold::Identity;

/// What every address begins with, and the version of what follows.
const MAGIC: u64 = u64::from_le_bytes(*b"nagaya\0\x01");

/// `addr_format`, a format of our own: libfabric asks for the highest bit.
pub const FORMAT: u32 = 1 << 31 | 0x6e67;

/// Bytes of an address.
pub const SIZE: usize = 48;

/// Where an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The space ([`Here::mark`](crate::space::Here)).
    pub mark: u64,
    /// The task.
    pub whom: Identity,
    /// Its port.
    pub port: u64,
    /// What its messages say that they are from.
    pub source: u32,
}

impl Address {
    /// As others get it.
    pub fn bytes(self) -> [u8; SIZE] {
        let Identity { id, generation } = self.whom;
        let task = u64::from(generation) << 32 | u64::from(id);
        let words = [MAGIC, self.mark, task, self.port, self.source.into(), 0];
        std::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8])
    }

    /// From there; `None` if it is no address of this version.
    pub fn parse(bytes: &[u8; SIZE]) -> Option<Self> {
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[n * 8 + i]));
        let (task, source) = (word(2), word(4));
        let whom = Identity { id: task as u32, generation: (task >> 32) as u32 };
        let source = u32::try_from(source).ok()?;
        let is_ours = word(0) == MAGIC && word(5) == 0;
        is_ours.then_some(Self { mark: word(1), whom, port: word(3), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_others_are_none() {
        let whom = Identity { id: 7, generation: 9 };
        let address = Address { mark: 1, whom, port: 0x1000, source: 3 };
        let bytes = address.bytes();
        assert_eq!(Address::parse(&bytes), Some(address));
        for changed in [0, 7, 36, 40] {
            let mut bytes = bytes;
            bytes[changed] ^= 1;
            assert_eq!(Address::parse(&bytes), None, "byte {changed}");
        }
    }
}
