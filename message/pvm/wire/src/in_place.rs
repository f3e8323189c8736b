//! In-place encoding: the message refers to the items in the caller's memory. They are read when
//! the message is sent, and are raw from then on.

use crate::error::Error;
use crate::fragment::Fragment;
use crate::items::Source;
use crate::message::Message;

pub(crate) fn pack(message: &mut Message, source: &Source) -> Result<(), Error> {
    if !source.contiguous() {
        return Err(Error::NotImpl);
    }
    if !source.at.is_null() && source.len() > 0 {
        let size = source.len() * source.kind.size();
        message.fragments.push(Fragment::in_place(source.at, size));
    }
    Ok(())
}
