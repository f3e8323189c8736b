//! Packing and unpacking by a message's encoding: raw, XDR, in place or trace.

use crate::error::Error;
use crate::fragment::Fragment;
use crate::items::{Kind, Source, Target};
use crate::message::{Codec, MESSAGE_SIZE_MAX, Message};
use crate::{in_place, raw, trace, xdr};

impl Message {
    /// Packs an array.
    ///
    /// Errors: NotImpl for a stride other than 1 in place; BadMsg for another machine's
    /// message, Overflow for some of the longs that XDR cannot represent; NoMem.
    pub fn pack(&mut self, source: &Source) -> Result<(), Error> {
        let size = source.len().saturating_mul(source.kind.size().max(4));
        let now: usize = self.fragments.iter().map(Fragment::len).sum();
        if size.saturating_add(now) > MESSAGE_SIZE_MAX {
            return Err(Error::NoMem);
        }
        match self.codec {
            Codec::Raw => raw::pack(self, source),
            Codec::Xdr => xdr::pack(self, source)?,
            Codec::InPlace => in_place::pack(self, source)?,
            Codec::Trace => trace::pack(self, source)?,
            Codec::Alien => return Err(Error::BadMsg),
        }
        Ok(())
    }

    /// Unpacks an array. Items that were unpacked before an error stay in the target.
    ///
    /// Errors: NoData if the message ends early. BadMsg for numbers in another machine's format,
    /// for a message packed in place that was never sent, and for a message whose sender died
    /// during the transfer.
    pub fn unpack(&mut self, target: &mut Target) -> Result<(), Error> {
        match self.codec {
            Codec::Raw => raw::unpack(self, target),
            Codec::Xdr | Codec::Trace => xdr::unpack(self, target),
            Codec::Alien if target.kind == Kind::Byte => raw::unpack(self, target),
            Codec::Alien | Codec::InPlace => Err(Error::BadMsg),
        }
    }

    /// Packs items that the caller frees after the call: in place, the message keeps a copy.
    pub(crate) fn pack_copy(&mut self, source: &Source) -> Result<(), Error> {
        if self.codec != Codec::InPlace {
            return self.pack(source);
        }
        if !source.contiguous() {
            return Err(Error::NotImpl);
        }
        self.fragments.push(Fragment::full(source.all().to_vec()));
        Ok(())
    }
}
