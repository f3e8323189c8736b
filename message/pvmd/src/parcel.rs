//! Messages in the daemon's hands: those that it makes, and where others' go.

use pvm::envelope::{Envelope, SIZE, What};
use pvm::message::Header;
use pvm::tid::{PVMD, Tid};
use pvm::wire::Letter;

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
