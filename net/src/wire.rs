//! The wire format of fabrics: the header of every active message, the two messages that begin a
//! connection, and the address.
//!
//! All numbers are little endian. Incoming bytes are not trusted: a view of them is created only
//! if lengths, magic and version are right.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::secret::{Nonce, Token};

/// The magic of a header: "NG".
const MAGIC: u16 = u16::from_le_bytes(*b"NG");
/// Both sides must speak the same.
const VERSION: u8 = 2;
/// The magic of an address.
const ADDRESS_MAGIC: [u8; 8] = *b"nagayaF2";
/// UCX's addresses are some hundred bytes; with many devices, some thousand.
pub const ADDRESS_BYTES_MAX: usize = 64 << 10;
/// A user's header, which travels with the payload and arrives before it.
pub const USER_HEADER_BYTES_MAX: usize = 256;

/// A kind of carrier, in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CarrierKind {
    /// Rings in shared memory.
    Local = 1,
    /// TCP inside a Noise session.
    Tcp = 2,
    /// UCX.
    Ucx = 3,
}

/// The part of an address that belongs to one carrier.
#[derive(Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// The carrier.
    pub kind: CarrierKind,
    /// Its own address.
    pub bytes: &'a [u8],
}

impl Section<'_> {
    /// Appends the section of a carrier: its kind, the length, and the carrier's own address.
    pub fn write(to: &mut Vec<u8>, kind: CarrierKind, bytes: &[u8]) {
        debug_assert!(bytes.len() <= ADDRESS_BYTES_MAX);
        to.push(kind as u8);
        to.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        to.extend_from_slice(bytes);
    }
}

/// Returns the sections of an address without its head. Carriers that this version does not know
/// are left out, and the rest of malformed bytes, too.
pub fn sections(mut bytes: &[u8]) -> impl Iterator<Item = Section<'_>> {
    std::iter::from_fn(move || {
        loop {
            let (&[kind, ref length @ ..], rest) = bytes.split_first_chunk::<5>()?;
            let (section, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            bytes = rest;
            let kind = match kind {
                1 => CarrierKind::Local,
                2 => CarrierKind::Tcp,
                3 => CarrierKind::Ucx,
                _ => continue,
            };
            return Some(Section { kind, bytes: section });
        }
    })
}

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// I want to talk; here is my address. Payload: [`Hello`] and the address.
    Hello = 1,
    /// Answers a hello. Payload: [`Welcome`].
    Welcome = 2,
    /// Answers a welcome, so that its sender knows that the hello was no old one.
    Ready = 3,
    /// A user's header and payload.
    Data = 4,
    /// The last message of this direction.
    Bye = 5,
    /// The sender has given up this connection and all operations on it.
    Reset = 6,
}

/// Begins every active message's header; the user's header follows. It is short, so that a message
/// of 8 bytes with a user's header of 4 fits into one cache line of a ring.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Header {
    magic: U16,
    version: u8,
    kind: u8,
    user_header_bytes: U16,
    /// Counts the messages of a direction, from 0, which is its ready: the lower half of the
    /// number. Hello and welcome have none.
    pub sequence: U32,
    /// The receiver's name for the connection; 0 in a hello.
    pub session: U64,
    /// Proves the sender.
    pub token: [u8; Token::BYTES],
}

impl Header {
    /// Of a message to be sent.
    pub fn new(kind: Kind, session: u64, sequence: u64, token: Token, user_bytes: usize) -> Self {
        debug_assert!(user_bytes <= USER_HEADER_BYTES_MAX);
        Self {
            magic: MAGIC.into(),
            version: VERSION,
            kind: kind as u8,
            user_header_bytes: (user_bytes as u16).into(),
            sequence: (sequence as u32).into(),
            session: session.into(),
            token: token.bytes(),
        }
    }

    /// Of a message that came, with its kind and the user's header.
    pub fn parse(bytes: &[u8]) -> Option<(&Self, Kind, &[u8])> {
        let (header, user) = Self::ref_from_prefix(bytes).ok()?;
        let kind = match header.kind {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Ready,
            4 => Kind::Data,
            5 => Kind::Bye,
            6 => Kind::Reset,
            _ => return None,
        };
        let fits = header.magic == MAGIC
            && header.version == VERSION
            && user.len() == usize::from(header.user_header_bytes.get())
            && user.len() <= USER_HEADER_BYTES_MAX
            && (kind == Kind::Data || user.is_empty());
        fits.then_some((header, kind, user))
    }
}

/// Begins a hello's payload; the sections of the sender's address follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Hello {
    /// The sender.
    pub from: U64,
    /// The receiver.
    pub to: U64,
    /// The sender's name for the connection.
    pub session: U64,
    /// The sender's number.
    pub nonce: Nonce,
}

impl Hello {
    /// And the address.
    pub fn parse(payload: &[u8]) -> Option<(&Self, &[u8])> {
        let (hello, address) = Self::ref_from_prefix(payload).ok()?;
        (!address.is_empty() && address.len() <= ADDRESS_BYTES_MAX).then_some((hello, address))
    }
}

/// A welcome's payload.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Welcome {
    /// The sender.
    pub from: U64,
    /// The receiver.
    pub to: U64,
    /// The sender's name for the connection.
    pub session: U64,
    /// The sender's number.
    pub nonce: Nonce,
    /// The number in the hello that this answers.
    pub answered: Nonce,
}

/// Begins an address; the sections of carriers follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct Address {
    magic: [u8; 8],
    /// Whose it is.
    pub id: U64,
    /// Proves that its maker holds the secret: UCX trusts an address.
    pub token: [u8; Token::BYTES],
}

impl Address {
    /// The bytes to hand to others.
    pub fn bytes(id: u64, token: Token, sections: &[u8]) -> Vec<u8> {
        let head = Self { magic: ADDRESS_MAGIC, id: id.into(), token: token.bytes() };
        [head.as_bytes(), sections].concat()
    }

    /// Returns the head, and the sections of carriers.
    pub fn parse(bytes: &[u8]) -> Option<(&Self, &[u8])> {
        let (head, sections) = Self::ref_from_prefix(bytes).ok()?;
        let length_fits = !sections.is_empty() && sections.len() <= ADDRESS_BYTES_MAX;
        (head.magic == ADDRESS_MAGIC && length_fits).then_some((head, sections))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::secret::{Domain, Secret};

    fn data(user: &[u8]) -> Vec<u8> {
        let token = Secret::new([1; 32]).token(Domain::Token, &[]);
        let header = Header::new(Kind::Data, 7, 9, token, user.len());
        [header.as_bytes(), user].concat()
    }

    #[test]
    fn a_header_comes_as_it_was_sent() {
        let bytes = data(b"user");
        let (header, kind, user) = Header::parse(&bytes).unwrap();
        assert_eq!((header.session.get(), header.sequence.get()), (7, 9));
        assert_eq!((kind, user), (Kind::Data, &b"user"[..]));
    }

    #[test]
    fn a_user_header_above_the_limit_is_refused() {
        let mut bytes = data(&[0; USER_HEADER_BYTES_MAX]);
        assert!(Header::parse(&bytes).is_some());
        bytes.push(0);
        bytes[4..8].copy_from_slice(&(USER_HEADER_BYTES_MAX as u32 + 1).to_le_bytes());
        assert!(Header::parse(&bytes).is_none());
    }

    proptest! {
        /// No input causes a panic, and only bytes that exist are read.
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            Header::parse(&bytes);
            Hello::parse(&bytes);
            Address::parse(&bytes);
            let read: usize = sections(&bytes).map(|section| 5 + section.bytes.len()).sum();
            prop_assert!(read <= bytes.len());
        }

        #[test]
        fn sections_come_back_and_unknown_ones_are_left_out(
            tcp in prop::collection::vec(any::<u8>(), 0..100),
            ucx in prop::collection::vec(any::<u8>(), 0..100),
            unknown in 4u8..,
        ) {
            let mut bytes = vec![unknown, 3, 0, 0, 0, 1, 2, 3];
            Section::write(&mut bytes, CarrierKind::Tcp, &tcp);
            Section::write(&mut bytes, CarrierKind::Ucx, &ucx);
            let read: Vec<_> = sections(&bytes).collect();
            prop_assert_eq!(read, vec![
                Section { kind: CarrierKind::Tcp, bytes: &tcp },
                Section { kind: CarrierKind::Ucx, bytes: &ucx },
            ]);
        }

        #[test]
        fn a_header_with_one_byte_changed_is_refused_or_differs(
            user in prop::collection::vec(any::<u8>(), 0..USER_HEADER_BYTES_MAX),
            at in 0usize..6,
            with in 1u8..,
        ) {
            let mut bytes = data(&user);
            bytes[at] ^= with;
            // Another kind may be right, for a message without a user's header.
            let parsed = Header::parse(&bytes);
            prop_assert!(parsed.is_none() || (at == 3 && user.is_empty()));
        }

        #[test]
        fn a_truncated_header_is_refused(
            user in prop::collection::vec(any::<u8>(), 1..USER_HEADER_BYTES_MAX),
            kept in any::<prop::sample::Index>(),
        ) {
            let bytes = data(&user);
            prop_assert!(Header::parse(&bytes[..kept.index(bytes.len())]).is_none());
        }

        #[test]
        fn an_address_comes_back(id: u64, ucx in prop::collection::vec(any::<u8>(), 1..300)) {
            let token = Secret::new([1; 32]).token(Domain::Address, &[]);
            let bytes = Address::bytes(id, token, &ucx);
            let (head, rest) = Address::parse(&bytes).unwrap();
            prop_assert_eq!((head.id.get(), head.token, rest), (id, token.bytes(), &ucx[..]));
            prop_assert!(Address::parse(&bytes[..32]).is_none());
        }
    }
}
