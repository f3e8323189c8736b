//! Addresses: the bytes that programs exchange. One says where an endpoint is, or by which name
//! it is found (`name`), in a format of our own or as a string (FI_ADDR_STR).

use std::ffi::{CStr, c_char, c_void};

use control::Identity;

use crate::abi;
use crate::engine::name::Name;

/// What the address of an endpoint begins with, and the version of what follows.
const MAGIC: u64 = u64::from_le_bytes(*b"nagaya\0\x01");
/// What an address that is a name begins with.
const MAGIC_NAME: u64 = u64::from_le_bytes(*b"nagaya\0\x02");

/// `addr_format` of the format of our own: libfabric asks for the highest bit.
pub const FORMAT: u32 = 1 << 31 | 0x6e67;

/// Bytes of an address in that format.
pub const SIZE: usize = 48;

/// What strings of endpoints and of names begin with.
const ENDPOINT: &str = "fi_nagaya://";
const NAME: &str = "fi_ns://";

/// Where an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The space ([`Here::mark`](crate::engine::space::Here)).
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

    fn text(self) -> String {
        let Self { mark, whom: Identity { id, generation }, port, source } = self;
        format!("{ENDPOINT}{mark:016x}/{id}.{generation}/{port:x}/{source:x}")
    }

    fn parse_text(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(ENDPOINT)?.split('/');
        let mark = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (id, generation) = parts.next()?.split_once('.')?;
        let whom = Identity { id: id.parse().ok()?, generation: generation.parse().ok()? };
        let port = u64::from_str_radix(parts.next()?, 16).ok()?;
        let source = u32::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(Self { mark, whom, port, source })
    }
}

/// How addresses are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// [`SIZE`] bytes.
    Own,
    /// Strings that end with a zero.
    String,
}

impl Format {
    /// The format with this number of libfabric's; 0: the provider's choice.
    pub fn of(number: u32) -> Option<Self> {
        match number {
            0 | FORMAT => Some(Self::Own),
            abi::ADDR_STR => Some(Self::String),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Self::Own => FORMAT,
            Self::String => abi::ADDR_STR,
        }
    }

    /// Reads the address at `at`, and its length. `None`: there is none.
    ///
    /// # Safety
    /// `at` is null, or an address in this format, or at least as many bytes.
    pub unsafe fn read(self, at: *const c_void) -> Option<(Target, usize)> {
        if at.is_null() {
            return None;
        }
        match self {
            Self::Own => {
                // SAFETY: as the caller says.
                let bytes = unsafe { &*at.cast::<[u8; SIZE]>() };
                Some((Target::parse(bytes)?, SIZE))
            }
            Self::String => {
                // SAFETY: as the caller says.
                let text = unsafe { CStr::from_ptr(at.cast::<c_char>()) };
                Some((Target::parse_text(text.to_str().ok()?)?, text.count_bytes() + 1))
            }
        }
    }
}

/// Whom an address means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// An endpoint.
    Endpoint(Address),
    /// The endpoint that has this name when it is looked for.
    Name(Name),
    /// As a source: an endpoint without a name. As a destination: none.
    Unnamed,
}

impl Target {
    /// As it is written, with the zero that ends strings.
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

    fn parse(bytes: &[u8; SIZE]) -> Option<Self> {
        if bytes[..8] != MAGIC_NAME.to_le_bytes() {
            return Address::parse(bytes).map(Self::Endpoint);
        }
        let text = &bytes[8..];
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Self::named(std::str::from_utf8(&text[..end]).ok()?)
    }

    /// As strings have it.
    pub fn text(&self) -> String {
        match self {
            Self::Endpoint(address) => address.text(),
            Self::Name(name) => format!("{NAME}{}", name.text()),
            Self::Unnamed => NAME.to_owned(),
        }
    }

    /// From there.
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

/// Copies a written address to where a program wants it, as far as it fits, and sets the length to
/// what it needs. Error: EINVAL, ETOOSMALL.
///
/// # Safety
/// Both are null or the program's, with as much room as the length says.
pub unsafe fn copy_out(written: &[u8], to: *mut c_void, length: *mut usize) -> Result<(), i32> {
    if length.is_null() {
        return Err(abi::EINVAL);
    }
    // SAFETY: as the caller says.
    unsafe {
        let room = length.replace(written.len());
        if !to.is_null() {
            let copied = room.min(written.len());
            std::ptr::copy_nonoverlapping(written.as_ptr(), to.cast::<u8>(), copied);
        } else if room != 0 {
            return Err(abi::EINVAL);
        }
        if room < written.len() { Err(abi::ETOOSMALL) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOM: Identity = Identity { id: 7, generation: 9 };
    const ADDRESS: Address = Address { mark: 0xabc, whom: WHOM, port: 0x1000, source: 0x70003 };

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
                // SAFETY: written in this format.
                let read = unsafe { format.read(written.as_ptr().cast()) };
                assert_eq!(read, Some((target.clone(), written.len())), "{format:?}");
            }
        }
        for wrong in ["", "fi_shm://1", "fi_nagaya://", "fi_nagaya://1/2.3/4/5/6"] {
            assert_eq!(Target::parse_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn missing_addresses_are_errors() {
        for format in [Format::Own, Format::String] {
            // SAFETY: null.
            assert_eq!(unsafe { format.read(std::ptr::null()) }, None);
        }
        let mut to = [0u8; 4];
        let mut length = 4;
        let (place, none) = (to.as_mut_ptr().cast(), std::ptr::null_mut());
        // SAFETY: as much room as it says.
        unsafe {
            assert_eq!(copy_out(b"abcdef", place, &mut length), Err(abi::ETOOSMALL));
            assert_eq!((length, &to), (6, b"abcd"));
            assert_eq!(copy_out(b"abcdef", none, &mut length), Err(abi::EINVAL));
            length = 0;
            assert_eq!(copy_out(b"abcdef", none, &mut length), Err(abi::ETOOSMALL));
            assert_eq!(copy_out(b"abc", place, std::ptr::null_mut()), Err(abi::EINVAL));
        }
    }
}
