//! Addresses: the bytes that programs exchange. An address is the location of an endpoint, or the
//! name under which it is registered (`name`). It is written in this provider's format, or as a
//! string (FI_ADDR_STR).

use control::Identity;

use crate::abi;
use crate::engine::name::Name;

/// First word of an endpoint's address, with the version of the format.
const MAGIC: u64 = u64::from_le_bytes(*b"nagaya\0\x01");
/// First word of an address that is a name.
const MAGIC_NAME: u64 = u64::from_le_bytes(*b"nagaya\0\x02");

/// `addr_format` of this provider's format. libfabric reserves the highest bit for providers.
pub const FORMAT: u32 = 1 << 31 | 0x6e67;

/// Number of bytes of an address in that format.
pub const SIZE: usize = 48;

/// Prefixes of strings.
const ENDPOINT: &str = "fi_nagaya://";
const NAME: &str = "fi_ns://";

/// The location of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The mark of the space ([`Here::mark`](crate::engine::space::Here)).
    pub mark: u64,
    /// The endpoint's task.
    pub task: Identity,
    /// Address of its port.
    pub port: u64,
    /// The source number of its messages.
    pub source: u32,
}

impl Address {
    /// Returns the address in this provider's format.
    pub fn bytes(self) -> [u8; SIZE] {
        let Identity { id, generation } = self.task;
        let task = u64::from(generation) << 32 | u64::from(id);
        let words = [MAGIC, self.mark, task, self.port, self.source.into(), 0];
        std::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8])
    }

    /// Parses such an address. Returns `None` for anything else.
    pub fn parse(bytes: &[u8; SIZE]) -> Option<Self> {
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[n * 8 + i]));
        let (task, source) = (word(2), word(4));
        let task = Identity { id: task as u32, generation: (task >> 32) as u32 };
        let source = u32::try_from(source).ok()?;
        let is_ours = word(0) == MAGIC && word(5) == 0;
        is_ours.then_some(Self { mark: word(1), task, port: word(3), source })
    }

    fn text(self) -> String {
        let Self { mark, task: Identity { id, generation }, port, source } = self;
        format!("{ENDPOINT}{mark:016x}/{id}.{generation}/{port:x}/{source:x}")
    }

    fn parse_text(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(ENDPOINT)?.split('/');
        let mark = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (id, generation) = parts.next()?.split_once('.')?;
        let task = Identity { id: id.parse().ok()?, generation: generation.parse().ok()? };
        let port = u64::from_str_radix(parts.next()?, 16).ok()?;
        let source = u32::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(Self { mark, task, port, source })
    }
}

/// The format of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// [`SIZE`] bytes.
    Own,
    /// Strings that end with a zero.
    String,
}

impl Format {
    /// Returns the format with this number of libfabric's; 0: the provider's choice.
    pub fn of(number: u32) -> Option<Self> {
        match number {
            0 | FORMAT => Some(Self::Own),
            abi::ADDR_STR => Some(Self::String),
            _ => None,
        }
    }

    /// Returns its number.
    pub fn number(self) -> u32 {
        match self {
            Self::Own => FORMAT,
            Self::String => abi::ADDR_STR,
        }
    }
}

/// The meaning of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An endpoint.
    Endpoint(Address),
    /// The endpoint that has this name at the time of a lookup.
    Name(Name),
    /// As a source: an endpoint without a name. As a destination: no endpoint.
    Unnamed,
}

impl Target {
    /// Returns the address in this format. A string ends with a zero.
    pub fn written(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Own => self.bytes().to_vec(),
            Format::String => {
                let mut bytes = self.text().into_bytes();
                bytes.push(0);
                bytes
            }
        }
    }

    fn bytes(&self) -> [u8; SIZE] {
        let text = match self {
            Self::Endpoint(address) => return address.bytes(),
            Self::Name(name) => name.text(),
            Self::Unnamed => "",
        };
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&MAGIC_NAME.to_le_bytes());
        bytes[8..][..text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Parses an address in this provider's format.
    pub fn parse(bytes: &[u8; SIZE]) -> Option<Self> {
        if bytes[..8] != MAGIC_NAME.to_le_bytes() {
            return Address::parse(bytes).map(Self::Endpoint);
        }
        let text = &bytes[8..];
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Self::named(std::str::from_utf8(&text[..end]).ok()?)
    }

    /// Returns the address as a string.
    pub fn text(&self) -> String {
        match self {
            Self::Endpoint(address) => address.text(),
            Self::Name(name) => format!("{NAME}{}", name.text()),
            Self::Unnamed => NAME.to_owned(),
        }
    }

    /// Parses a string.
    pub fn parse_text(text: &str) -> Option<Self> {
        match text.strip_prefix(NAME) {
            Some(name) => Self::named(name),
            None => Address::parse_text(text).map(Self::Endpoint),
        }
    }

    fn named(text: &str) -> Option<Self> {
        if text.is_empty() { Some(Self::Unnamed) } else { Name::new(text).map(Self::Name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOM: Identity = Identity { id: 7, generation: 9 };
    const ADDRESS: Address = Address { mark: 0xabc, task: WHOM, port: 0x1000, source: 0x70003 };

    #[test]
    fn addresses_come_back_and_others_are_none() {
        let bytes = ADDRESS.bytes();
        assert_eq!(Address::parse(&bytes), Some(ADDRESS));
        for changed in [0, 7, 36, 40] {
            let mut bytes = bytes;
            bytes[changed] ^= 1;
            assert_eq!(Address::parse(&bytes), None, "byte {changed}");
        }
    }

    #[test]
    fn every_target_comes_back_in_every_format() {
        let name = |text| Target::Name(Name::new(text).unwrap());
        let long = "a-node-with-a-long-name.example.org:service-with-a-long-name";
        let targets =
            [Target::Endpoint(ADDRESS), name("localhost:9228"), name(long), Target::Unnamed];
        for target in targets {
            for format in [Format::Own, Format::String] {
                let written = target.written(format);
                assert!(written.len() <= 128);
                let read = match format {
                    Format::Own => Target::parse(written.first_chunk().unwrap()),
                    Format::String => {
                        let text = written.strip_suffix(&[0]).unwrap();
                        Target::parse_text(std::str::from_utf8(text).unwrap())
                    }
                };
                assert_eq!(read, Some(target.clone()), "{format:?}");
            }
        }
        for wrong in ["", "fi_shm://1", "fi_nagaya://", "fi_nagaya://1/2.3/4/5/6"] {
            assert_eq!(Target::parse_text(wrong), None, "{wrong}");
        }
    }
}
