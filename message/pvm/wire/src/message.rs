//! A message: a header, fragments, and the position of packing or unpacking.

use crate::error::Error;
use crate::fragment::{Fragment, HEADER_SIZE_MAX};
use crate::signature::{IN_PLACE, TRACE, XDR, signature};

/// The longest message, in bytes; lengths are `int` in PVM.
pub const MESSAGE_SIZE_MAX: usize = i32::MAX as usize;

/// A message's attributes besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Context.
    pub context: i32,
    /// Tag.
    pub tag: i32,
    /// Wait ID: identifies the request to which a reply belongs.
    pub wait_id: i32,
    /// Checksum; 0 if it is not computed.
    pub crc: i32,
    /// Tid of the sender.
    pub source: i32,
    /// Tid of the receiver.
    pub destination: i32,
}

/// The conversion between items and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Raw,
    Xdr,
    InPlace,
    Trace,
    /// The representation of another machine: only bytes can be unpacked.
    Alien,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    New,
    Packing,
    Unpacking,
}

/// A position in a message. `fragment` may be one past the last: the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub fragment: usize,
    pub at: usize,
}

/// Bytes to unpack: of a fragment, and possibly of those behind it in its block.
pub(crate) struct Piece<'a> {
    fragment: &'a Fragment,
    at: usize,
    pub len: usize,
}

impl Piece<'_> {
    /// Copies the bytes; waits until they have arrived. Errors: BadMsg if their sender died.
    pub fn read(&self, to: &mut [u8]) -> Result<(), Error> {
        self.fragment.read(self.at, to)
    }
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its attributes besides its data.
    pub header: Header,
    /// True if it has arrived and waits to be received.
    pub waits: bool,
    pub(crate) encoding: i32,
    pub(crate) codec: Codec,
    pub(crate) mode: Mode,
    pub(crate) fragments: Vec<Fragment>,
    /// The position of the next bytes to unpack.
    pub(crate) cursor: Position,
    /// The position of the next XDR item to pack or unpack. It differs from `cursor` only after
    /// errors and after packing has restarted.
    pub(crate) xdr: Position,
    /// The length as last computed. A message being unpacked keeps the length that it arrived
    /// with.
    pub(crate) length: usize,
    fragment_size: usize,
    /// Memory of former fragments, so that small messages need no allocation.
    spare: Vec<Vec<u8>>,
}

/// Limits of the memory kept for later messages: buffers of a message, and bytes of a buffer.
const SPARE_MAX: usize = 2;
const SPARE_SIZE_MAX: usize = 1 << 16;

impl Message {
    /// Returns an empty message. `encoding` is [`XDR`], [`IN_PLACE`], [`TRACE`] or a machine's
    /// signature. `fragment_size` is in bytes, headers included.
    pub fn new(encoding: i32, fragment_size: usize) -> Message {
        let mut message = Message {
            header: Header::default(),
            waits: false,
            encoding,
            codec: Codec::Raw,
            mode: Mode::New,
            fragments: Vec::new(),
            cursor: Position::default(),
            xdr: Position::default(),
            length: 0,
            fragment_size,
            spare: Vec::new(),
        };
        message.set_encoding(encoding);
        message
    }

    /// Waits until all of it has arrived. Errors: BadMsg if the sender has died.
    pub fn settle(&self) -> Result<(), Error> {
        self.fragments.iter().try_for_each(Fragment::settle)
    }

    /// Returns true if some of it may never arrive.
    pub fn is_uncertain(&self) -> bool {
        self.fragments.iter().any(Fragment::is_uncertain)
    }

    /// Copies the bytes that lie in blocks.
    pub fn own(&mut self) {
        self.fragments.iter_mut().for_each(Fragment::leave_block);
    }

    /// Resets it to an empty message, and keeps its memory.
    pub fn renew(&mut self, encoding: i32, fragment_size: usize) {
        for fragment in self.fragments.drain(..) {
            if self.spare.len() < SPARE_MAX
                && let Some(memory) = fragment.into_memory()
                && memory.capacity() <= SPARE_SIZE_MAX
            {
                self.spare.push(memory);
            }
        }
        self.header = Header::default();
        self.waits = false;
        self.mode = Mode::New;
        self.cursor = Position::default();
        self.xdr = Position::default();
        self.length = 0;
        self.fragment_size = fragment_size;
        self.set_encoding(encoding);
    }

    /// Appends a fragment of `length` bytes, which `fill` writes, to an incoming message. The
    /// message must be new or have only such fragments.
    pub fn receive(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.resize(length, 0);
        fill(&mut memory);
        self.length += length;
        self.fragments.push(Fragment::full(memory));
    }

    /// Does the same as [`Message::receive`] with an existing fragment.
    pub fn receive_fragment(&mut self, fragment: Fragment) {
        self.length += fragment.len();
        self.fragments.push(fragment);
    }

    /// Returns an incoming message, which can be unpacked once it is the active receive buffer.
    /// `fragment_size` applies to data packed after it, if it becomes a send buffer.
    pub fn received(
        header: Header,
        encoding: i32,
        fragments: Vec<Fragment>,
        fragment_size: usize,
    ) -> Message {
        let mut message = Message::new(encoding, fragment_size);
        message.header = header;
        message.fragments = fragments;
        message.compute_length();
        message
    }

    pub(crate) fn set_encoding(&mut self, encoding: i32) {
        self.encoding = encoding;
        self.codec = match encoding {
            XDR => Codec::Xdr,
            IN_PLACE => Codec::InPlace,
            TRACE => Codec::Trace,
            own if own == signature() => Codec::Raw,
            _ => Codec::Alien,
        };
    }

    /// Returns the message's encoding.
    pub fn encoding(&self) -> i32 {
        self.encoding
    }

    /// Returns the encoding when sent: in-place data becomes raw.
    pub fn encoding_sent(&self) -> i32 {
        match self.codec {
            Codec::InPlace => signature(),
            _ => self.encoding,
        }
    }

    /// Returns the fragments; an empty message may have an empty one.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Returns the bytes of data. PVM never counts those of a message packed in place: 0.
    pub fn length(&mut self) -> usize {
        if self.mode == Mode::Packing {
            self.compute_length();
        }
        self.length
    }

    fn compute_length(&mut self) {
        self.length = self.fragments.iter().map(Fragment::len).sum();
    }

    /// Prepares it for packing. After unpacking, bytes and raw items are appended; XDR restarts
    /// at the first fragment, as in libpvm.
    pub fn begin_packing(&mut self) {
        match self.codec {
            Codec::InPlace | Codec::Alien => return,
            Codec::Raw | Codec::Xdr | Codec::Trace => {}
        }
        if self.mode != Mode::Packing {
            self.mode = Mode::Packing;
            if self.fragments.is_empty() {
                self.extend();
            }
            self.xdr = Position::default();
        }
    }

    /// Prepares it for unpacking from the start, unless it is being unpacked already.
    pub fn begin_unpacking(&mut self) {
        if self.codec == Codec::InPlace {
            return;
        }
        if self.mode != Mode::Unpacking {
            self.mode = Mode::Unpacking;
            self.cursor = Position::default();
            self.xdr = Position::default();
        }
    }

    /// Makes the next activation as receive buffer restart unpacking at the start.
    pub fn rewind(&mut self) {
        if self.mode == Mode::Unpacking {
            self.mode = Mode::New;
        }
    }

    /// Prepares it for sending. Every message that is sent has a fragment.
    pub fn address(&mut self, destination: i32, tag: i32) {
        self.header.destination = destination;
        self.header.tag = tag;
        if self.fragments.is_empty() {
            self.fragments.push(Fragment::new(0));
        }
    }

    pub(crate) fn extend(&mut self) {
        let capacity = self.fragment_size.saturating_sub(HEADER_SIZE_MAX).max(16);
        let memory = self.spare.pop().unwrap_or_default();
        self.fragments.push(Fragment::in_memory(memory, capacity));
    }

    pub(crate) fn last(&mut self) -> &mut Fragment {
        self.fragments.last_mut().expect("begin_packing made one")
    }

    /// Appends bytes; allocates new fragments when the last is full.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.last().room();
            if room == 0 {
                self.extend();
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.last().append(now);
            bytes = later;
        }
    }

    fn len_of(&self, fragment: usize) -> usize {
        self.fragments.get(fragment).map_or(0, Fragment::len)
    }

    /// Returns the bytes left after a position in its fragment.
    pub(crate) fn left(&self, position: Position) -> usize {
        self.len_of(position.fragment).saturating_sub(position.at)
    }

    /// Moves the cursor to the next fragment with data.
    pub(crate) fn next_fragment(&mut self) -> Result<(), Error> {
        self.cursor.at = 0;
        let end = self.fragments.len();
        let from = (self.cursor.fragment + 1).min(end);
        self.cursor.fragment = (from..end).find(|&i| self.len_of(i) > 0).unwrap_or(end);
        if self.cursor.fragment == end {
            return Err(Error::NoData);
        }
        Ok(())
    }

    /// Unpacks `size` bytes at the cursor, in one or more pieces. `write` gets each piece and
    /// the number of bytes before it.
    pub(crate) fn take(
        &mut self,
        size: usize,
        mut write: impl FnMut(usize, Piece<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < size {
            let Position { fragment, at } = self.cursor;
            let mut len = self.left(self.cursor).min(size - done);
            if len == 0 {
                self.next_fragment()?;
                continue;
            }
            let mut end = Position { fragment, at: at + len };
            // Extend the piece over adjacent fragments of the same block.
            while done + len < size && self.is_continued(end.fragment) {
                let more = self.len_of(end.fragment + 1).min(size - done - len);
                end = Position { fragment: end.fragment + 1, at: more };
                len += more;
            }
            write(done, Piece { fragment: &self.fragments[fragment], at, len })?;
            self.cursor = end;
            done += len;
        }
        Ok(())
    }

    /// Returns true if the next fragment directly follows this one in memory.
    fn is_continued(&self, fragment: usize) -> bool {
        let next = self.fragments.get(fragment + 1);
        next.is_some_and(|next| self.fragments[fragment].is_followed_by(next))
    }

    /// Waits until the fragment at a position has arrived, if there is one.
    pub(crate) fn settle_at(&self, position: Position) -> Result<(), Error> {
        self.fragments.get(position.fragment).map_or(Ok(()), Fragment::settle)
    }

    /// Returns the bytes left to unpack.
    pub(crate) fn remaining(&self) -> usize {
        let later = self.fragments.iter().skip(self.cursor.fragment + 1);
        self.left(self.cursor) + later.map(Fragment::len).sum::<usize>()
    }
}
