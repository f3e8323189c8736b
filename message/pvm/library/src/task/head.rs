//! The form in which a message leaves a task: head, table of fragments, data.

use pvm::envelope::{Envelope, SIZE, What};
use pvm::message::Message;
use pvm::tid::Tid;

/// The bytes that precede a message's data: the envelope and the table of fragments.
pub struct Head {
    /// The envelope's bytes.
    pub envelope: [u8; SIZE],
    /// Lengths of the fragments, if there are several.
    pub table: Vec<u8>,
    /// Total bytes, with the data.
    pub size: usize,
}

impl Head {
    /// Encodes the head of message `number` from `source`.
    #[inline]
    pub fn new(message: &Message, source: Tid, number: u32) -> Head {
        let fragments = message.fragments();
        let mut header = message.header;
        header.source = source.as_int();
        let envelope = Envelope {
            what: What::Message,
            header,
            number,
            encoding: message.encoding_sent(),
            fragments: fragments.len() as u32,
        };
        let mut table = Vec::new();
        let mut size = SIZE;
        for fragment in fragments {
            let length = fragment.len();
            size += length;
            if fragments.len() != 1 {
                table.extend((length as u32).to_le_bytes());
            }
        }
        size += table.len();
        Head { envelope: envelope.to_bytes(), table, size }
    }

    /// Returns the bytes of data.
    pub fn data(&self) -> usize {
        self.size - SIZE - self.table.len()
    }
}

/// Lists the pieces of a message in the order of transmission. Returns their count.
#[inline]
pub fn gather<'a>(pieces: &mut [&'a [u8]], head: &'a Head, message: &'a Message) -> usize {
    pieces[0] = &head.envelope;
    let mut count = 1;
    if !head.table.is_empty() {
        pieces[1] = &head.table;
        count = 2;
    }
    for fragment in message.fragments() {
        pieces[count] = fragment.bytes();
        count += 1;
    }
    count
}

/// Copies a message into one piece of memory.
pub fn whole(message: &Message, source: Tid, number: u32) -> Vec<u8> {
    let head = Head::new(message, source, number);
    let mut whole = Vec::with_capacity(head.size);
    whole.extend(head.envelope);
    whole.extend(head.table);
    for fragment in message.fragments() {
        whole.extend(fragment.bytes());
    }
    whole
}
