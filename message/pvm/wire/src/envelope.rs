//! The header in front of a message's data during its transfer: in a receive buffer, over the
//! fabric, or through the daemon.
//!
//! It has nine 32-bit words, little-endian. With the two words of FCP's own header, a message of
//! up to 20 bytes fits into one cache line:
//! ```text
//! source │ destination │ number │ context │ tag │ wait ID │ encoding │ checksum │ what, fragments
//! lengths of the fragments, if there are several; then the data
//! ```
//! Messages between two tasks are *numbered*, from 1. When the route between the tasks changes
//! from the daemons to a direct one, the receiver restores the order. Messages with number 0 are
//! not ordered this way; daemons always use the same route.

use crate::error::Error;
use crate::message::Header;

/// Bytes of an envelope without fragment lengths.
pub const SIZE: usize = 36;
/// Most bytes of a message, envelope included, that is copied into a receive buffer as a whole.
/// Longer messages expose a buffer with their data.
pub const INLINE_MAX: usize = 8192;
/// Most bytes of fragment lengths with an exposed buffer. A message with more goes in parts.
pub const TABLE_MAX: usize = 32_768;
/// Most fragments of a message.
pub const FRAGMENTS_MAX: usize = (1 << 24) - 1;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// A message of the program.
    Message = 0,
    /// A message to the library: a [`Control`](crate::wire::Control) of the daemon.
    Control = 1,
    /// A part of a message that is too long for one piece: a [`Part`] and bytes.
    Part = 2,
}

impl What {
    /// Returns the kind of a message from its first bytes, an envelope or a part. Errors:
    /// BadMsg.
    #[inline]
    pub fn of(bytes: &[u8; SIZE]) -> Result<What, Error> {
        match bytes[SIZE - 1] {
            0 => Ok(What::Message),
            1 => Ok(What::Control),
            2 => Ok(What::Part),
            _ => Err(Error::BadMsg),
        }
    }
}

/// The header of a part of a message. Envelope, lengths and data of the whole message are cut
/// into parts, which are sent by the same route, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The tid of the sender.
    pub source: i32,
    /// The tid of the receiver.
    pub destination: i32,
    /// The sender's number for the message.
    pub serial: u32,
    /// Offset of the part in the message.
    pub offset: u32,
    /// Bytes of the whole message.
    pub total: u32,
}

impl Part {
    /// Returns its encoding.
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let words =
            [self.source as u32, self.destination as u32, self.serial, self.offset, self.total];
        let mut bytes = [0; SIZE];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes[SIZE - 1] = What::Part as u8;
        bytes
    }

    /// Parses a part; [`What::of`] must have returned [`What::Part`].
    pub fn parse(bytes: &[u8; SIZE]) -> Part {
        let word = |n: usize| {
            u32::from_le_bytes([bytes[4 * n], bytes[4 * n + 1], bytes[4 * n + 2], bytes[4 * n + 3]])
        };
        Part {
            source: word(0) as i32,
            destination: word(1) as i32,
            serial: word(2),
            offset: word(3),
            total: word(4),
        }
    }
}

/// An envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The kind of the message.
    pub what: What,
    /// The message's header.
    pub header: Header,
    /// Its number between the two tasks, or 0.
    pub number: u32,
    /// The encoding of its data, as sent.
    pub encoding: i32,
    /// The number of fragments. Their lengths follow if there is more than one.
    pub fragments: u32,
}

impl Envelope {
    /// Returns its encoding.
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let Header { context, tag, wait_id, crc, source, destination } = self.header;
        let words = [
            source as u32,
            destination as u32,
            self.number,
            context as u32,
            tag as u32,
            wait_id as u32,
            self.encoding as u32,
            crc as u32,
            (self.what as u32) << 24 | self.fragments,
        ];
        let mut bytes = [0; SIZE];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the bytes of the fragment lengths that follow.
    pub fn table_size(&self) -> usize {
        if self.fragments == 1 { 0 } else { 4 * self.fragments as usize }
    }

    /// Parses the envelope at the start of `bytes`. Errors: BadMsg.
    pub fn parse(bytes: &[u8]) -> Result<Envelope, Error> {
        let bytes: &[u8; SIZE] = bytes.first_chunk().ok_or(Error::BadMsg)?;
        let word = |n: usize| {
            u32::from_le_bytes([bytes[4 * n], bytes[4 * n + 1], bytes[4 * n + 2], bytes[4 * n + 3]])
        };
        let what = What::of(bytes)?;
        if what == What::Part {
            return Err(Error::BadMsg);
        }
        Ok(Envelope {
            what,
            header: Header {
                source: word(0) as i32,
                destination: word(1) as i32,
                context: word(3) as i32,
                tag: word(4) as i32,
                wait_id: word(5) as i32,
                crc: word(7) as i32,
            },
            number: word(2),
            encoding: word(6) as i32,
            fragments: word(8) & 0x00ff_ffff,
        })
    }
}
