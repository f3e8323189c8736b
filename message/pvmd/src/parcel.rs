//! Messages that the daemon makes: an envelope, and data in XDR as stock PVM packs them.

use pvm::envelope::{Envelope, SIZE, What};
use pvm::message::Header;
use pvm::signature::XDR;
use pvm::tid::{PVMD, Tid};
use pvm::wire::{Letter, Sink};

/// Data in the making.
#[derive(Debug, Default)]
pub struct Data(Vec<u8>);

impl Data {
    /// pvm_pkint.
    pub fn int(mut self, number: i32) -> Data {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// pvm_pkbyte: padded to a word.
    pub fn bytes(mut self, bytes: &[u8]) -> Data {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// A message with these data, from its sender `source` to nobody in particular.
    pub fn parcel(self, source: Tid) -> Vec<u8> {
        let header = Header { source: source.as_int(), ..Header::default() };
        enclose(What::Message, header, XDR, &self.0)
    }

    /// A message with these data, from the daemon to where `sink` says.
    pub fn message(self, sink: Sink, wait_id: i32) -> Vec<u8> {
        let header = Header {
            context: sink.context,
            tag: sink.tag,
            wait_id,
            crc: 0,
            source: PVMD.as_int(),
            destination: sink.tid,
        };
        enclose(What::Message, header, XDR, &self.0)
    }
}

/// A letter to a task.
pub fn letter(to: Tid, letter: &Letter) -> Vec<u8> {
    let header = Header { source: PVMD.as_int(), destination: to.as_int(), ..Header::default() };
    // Postcard refuses only what has no length, and a letter's parts do.
    let data = postcard::to_allocvec(letter).expect("a letter");
    enclose(What::Letter, header, 0, &data)
}

fn enclose(what: What, header: Header, encoding: i32, data: &[u8]) -> Vec<u8> {
    let envelope = Envelope { what, header, number: 0, encoding, fragments: 1 };
    [&envelope.to_bytes()[..], data].concat()
}

/// Where a parcel goes. Nothing if it has no envelope, or it is not a program's message.
pub fn destination(bytes: &[u8]) -> Option<Tid> {
    let envelope = Envelope::parse(bytes).ok()?;
    (envelope.what == What::Message).then_some(Tid(envelope.header.destination as u32))
}

/// The same parcel, from `source` to `destination`: what a task says of itself is not asked.
pub fn addressed(mut bytes: Vec<u8>, source: Tid, destination: Tid) -> Vec<u8> {
    debug_assert!(bytes.len() >= SIZE);
    bytes[..4].copy_from_slice(&source.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&destination.0.to_le_bytes());
    bytes
}
