//! What stands before a message's data on its way to a task: through a receive buffer, over
//! the fabric, or in the daemon's hands.
//!
//! Nine 32-bit words, little-endian, so that with FCP's own two a message of up to 20 bytes is
//! one cache line:
//! ```text
//! source │ destination │ number │ context │ tag │ wait ID │ encoding │ checksum │ what, fragments
//! lengths of the fragments, if there are several; then the data
//! ```
//! Messages between two tasks are *numbered*, from 1: when the route between them changes
//! (through the daemons, then direct), the receiver puts them back in order. Number 0 is of no
//! order: daemons always take the same way.

use crate::error::Error;
use crate::message::Header;

/// Bytes of an envelope without fragment lengths.
pub const SIZE: usize = 36;
/// Most bytes of a message, envelope included, that goes into a receive buffer whole. The data
/// of longer ones are lent.
pub const INLINE_MAX: usize = 8192;
/// Most bytes of fragment lengths that go with lent data. What has more goes in parts.
pub const TABLE_MAX: usize = 32_768;
/// Most fragments of a message.
pub const FRAGMENTS_MAX: usize = (1 << 24) - 1;

/// Whose a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// The program's.
    Message = 0,
    /// The library's: a [`Letter`](crate::wire::Letter) of the daemon.
    Letter = 1,
    /// A part of one that is too long to come in one piece: a [`Part`] and bytes.
    Part = 2,
}

impl What {
    /// What `bytes`, which begin with an envelope or a part, are. Errors: BadMsg.
    #[inline]
    pub fn of(bytes: &[u8; SIZE]) -> Result<What, Error> {
        match bytes[SIZE - 1] {
            0 => Ok(What::Message),
            1 => Ok(What::Letter),
            2 => Ok(What::Part),
            _ => Err(Error::BadMsg),
        }
    }
}

/// What stands before a part of a message: envelope, lengths and data of the whole message
/// are cut into parts, which go the same way, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Who sends the message.
    pub source: i32,
    /// To whom.
    pub destination: i32,
    /// Which of the sender's messages in parts it is.
    pub serial: u32,
    /// Where the part begins.
    pub offset: u32,
    /// Bytes of the whole.
    pub total: u32,
}

impl Part {
    /// As it goes.
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

    /// Reads it; that it is one, [`What::of`] has said.
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
    /// Whose it is.
    pub what: What,
    /// The message's header.
    pub header: Header,
    /// Its number between the two tasks, or 0.
    pub number: u32,
    /// How its data are encoded, as it is sent.
    pub encoding: i32,
    /// How many fragments; their lengths follow if more than one.
    pub fragments: u32,
}

impl Envelope {
    /// As it goes.
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

    /// Bytes of the lengths of fragments that follow.
    pub fn table_size(&self) -> usize {
        if self.fragments == 1 { 0 } else { 4 * self.fragments as usize }
    }

    /// Reads the envelope that `bytes` begin with. Errors: BadMsg.
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
