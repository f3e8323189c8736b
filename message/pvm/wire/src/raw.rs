//! Raw encoding: the bytes of items as they are in memory, without padding.

use crate::error::Error;
use crate::items::{Source, Target};
use crate::message::Message;

pub(crate) fn pack(message: &mut Message, source: &Source) {
    if source.contiguous() {
        message.append(source.all());
    } else {
        for i in 0..source.len() {
            message.append(source.item(i));
        }
    }
}

pub(crate) fn unpack(message: &mut Message, target: &mut Target) -> Result<(), Error> {
    let size = target.kind.size();
    if target.contiguous() {
        return message.take(target.len() * size, |done, piece| {
            target.write_with(done / size, done % size, piece.len, |to| piece.read(to))
        });
    }
    for i in 0..target.len() {
        message
            .take(size, |done, piece| target.write_with(i, done, piece.len, |to| piece.read(to)))?;
    }
    Ok(())
}
