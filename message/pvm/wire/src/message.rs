//! A message: a header, fragments, and where packing or unpacking stands.

use crate::error::Error;
use crate::fragment::{Fragment, HEADER_SIZE_MAX};
use crate::signature::{IN_PLACE, TRACE, XDR, signature};

/// The longest message, in bytes; lengths are `int` in PVM.
pub const MESSAGE_SIZE_MAX: usize = i32::MAX as usize;

/// What a message says besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Context.
    pub context: i32,
    /// Tag.
    pub tag: i32,
    /// Wait ID: which request a reply belongs to.
    pub wait_id: i32,
    /// Checksum; 0 where nobody computes it.
    pub crc: i32,
    /// Tid of the sender.
    pub source: i32,
    /// Tid of the receiver.
    pub destination: i32,
}

/// How items become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Raw,
    Xdr,
    InPlace,
    Trace,
    /// Another machine's memory: only its bytes can be read.
    Alien,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    New,
    Packing,
    Unpacking,
}

/// A place in a message; `fragment` may be one past the last: the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub fragment: usize,
    pub at: usize,
}

/// Bytes that are unpacked, of a fragment and what lies behind it in its block.
pub(crate) struct Piece<'a> {
    fragment: &'a Fragment,
    at: usize,
    pub len: usize,
}

impl Piece<'_> {
    /// Copies them; waits until they are there. Errors: BadMsg if they never will be.
    pub fn read(&self, to: &mut [u8]) -> Result<(), Error> {
        self.fragment.read(self.at, to)
    }
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// What it says besides its data.
    pub header: Header,
    /// It has come, and waits to be received.
    pub waits: bool,
    pub(crate) encoding: i32,
    pub(crate) codec: Codec,
    pub(crate) mode: Mode,
    pub(crate) fragments: Vec<Fragment>,
    /// Where bytes are unpacked next.
    pub(crate) cursor: Position,
    /// Where XDR is packed or unpacked next. It differs from `cursor` only after errors and
    /// after packing begins anew.
    pub(crate) xdr: Position,
    /// As last computed: an unpacked message keeps the length that it came with.
    pub(crate) length: usize,
    fragment_size: usize,
    /// Memory of former fragments: a task that sends and receives small messages needs no
    /// allocator.
    spare: Vec<Vec<u8>>,
}

/// Memory that is kept for messages to come: pieces of a message, and bytes of a piece.
const SPARE_MAX: usize = 2;
const SPARE_SIZE_MAX: usize = 1 << 16;

impl Message {
    /// An empty message. `encoding` is [`XDR`], [`IN_PLACE`], [`TRACE`] or a machine's
    /// signature; `fragment_size` in bytes, headers included.
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

    /// Waits until all of it is there. Errors: BadMsg if it never will be: its sender has died.
    pub fn settle(&self) -> Result<(), Error> {
        self.fragments.iter().try_for_each(Fragment::settle)
    }

    /// Whether it may be that not all of it ever comes.
    pub fn is_uncertain(&self) -> bool {
        self.fragments.iter().any(Fragment::is_uncertain)
    }

    /// Copies what lies in a block.
    pub fn own(&mut self) {
        self.fragments.iter_mut().for_each(Fragment::leave_block);
    }

    /// Makes it as a new one, in the memory that it has.
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

    /// Appends a fragment of `length` bytes that `fill` writes, to a message that comes: one
    /// that is new, or has only such fragments.
    pub fn receive(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.resize(length, 0);
        fill(&mut memory);
        self.length += length;
        self.fragments.push(Fragment::full(memory));
    }

    /// As [`Message::receive`], of a fragment that is there.
    pub fn receive_fragment(&mut self, fragment: Fragment) {
        self.length += fragment.len();
        self.fragments.push(fragment);
    }

    /// A message that has come, ready to be unpacked once it is the active receive buffer.
    /// `fragment_size` is for what is packed after it, should it become a send buffer.
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

    /// What the message says its encoding is.
    pub fn encoding(&self) -> i32 {
        self.encoding
    }

    /// What the encoding is on its way: what lay in place is raw once it is sent.
    pub fn encoding_sent(&self) -> i32 {
        match self.codec {
            Codec::InPlace => signature(),
            _ => self.encoding,
        }
    }

    /// The fragments; an empty message may have an empty one.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// Bytes of data. Of a message packed in place that PVM never counts them: 0.
    pub fn length(&mut self) -> usize {
        if self.mode == Mode::Packing {
            self.compute_length();
        }
        self.length
    }

    fn compute_length(&mut self) {
        self.length = self.fragments.iter().map(Fragment::len).sum();
    }

    /// Makes it ready to be packed. A message that was unpacked is continued by bytes and raw
    /// items; XDR begins again at the first fragment, as in libpvm.
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

    /// Makes it ready to be unpacked: from the start, unless it is being unpacked already.
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

    /// Unpacking will begin at the start once more, when it becomes the active receive buffer.
    pub fn rewind(&mut self) {
        if self.mode == Mode::Unpacking {
            self.mode = Mode::New;
        }
    }

    /// Makes it ready to be sent: every message on its way has a fragment.
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

    /// Appends bytes, in new fragments where the last is full.
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

    /// Bytes that are left after a position in its fragment.
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

    /// Unpacks `size` bytes at the cursor, in as many pieces as they come; `write` learns how
    /// many came before each.
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
            // What lies behind it in the same block comes with it.
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

    /// Whether the next fragment lies right behind this one.
    fn is_continued(&self, fragment: usize) -> bool {
        let next = self.fragments.get(fragment + 1);
        next.is_some_and(|next| self.fragments[fragment].is_followed_by(next))
    }

    /// Waits until the fragment at a position is there, if that is one.
    pub(crate) fn settle_at(&self, position: Position) -> Result<(), Error> {
        self.fragments.get(position.fragment).map_or(Ok(()), Fragment::settle)
    }

    /// Bytes that are left to unpack.
    pub(crate) fn remaining(&self) -> usize {
        let later = self.fragments.iter().skip(self.cursor.fragment + 1);
        self.left(self.cursor) + later.map(Fragment::len).sum::<usize>()
    }
}
