//! Messages packed into messages (pvm_pkmesg, pvm_pkmesgbody, pvm_upkmesg): eight numbers of the
//! header, then each fragment after its length.

use crate::error::Error;
use crate::fragment::Fragment;
use crate::items::{Kind, Source, Target};
use crate::message::{Codec, Message, Position};

fn put(outer: &mut Message, kind: Kind, bytes: &[u8]) -> Result<(), Error> {
    let count = (bytes.len() / kind.size()) as i32;
    // SAFETY: `bytes` holds `count` items and outlives the source. `pack_copy` keeps no pointer.
    outer.pack_copy(&unsafe { Source::new(kind, bytes.as_ptr(), count, 1) })
}

fn put_int(outer: &mut Message, number: i32) -> Result<(), Error> {
    put(outer, Kind::Int, &number.to_ne_bytes())
}

fn take_int(outer: &mut Message) -> Result<i32, Error> {
    let mut number = 0;
    // SAFETY: `number` is one `int` and outlives `target`.
    let mut target = unsafe { Target::new(Kind::Int, (&raw mut number).cast(), 1, 1) };
    outer.unpack(&mut target)?;
    Ok(number)
}

impl Message {
    /// Packs another message, header and data.
    ///
    /// Errors: those of [`Message::pack`] and [`Message::settle`].
    pub fn pack_message(&mut self, inner: &mut Message) -> Result<(), Error> {
        inner.settle()?;
        let length = inner.length() as i32;
        let encoding = inner.encoding;
        let h = &inner.header;
        for number in
            [length, h.context, h.tag, h.wait_id, encoding, h.crc, h.source, h.destination]
        {
            put_int(self, number)?;
        }
        for fragment in &inner.fragments {
            put_int(self, fragment.len() as i32)?;
            put(self, Kind::Byte, fragment.bytes())?;
        }
        Ok(())
    }

    /// Packs another message's data, as if its items had been packed here.
    ///
    /// libpvm shares memory between the two messages. Here it is copied, so that neither message
    /// can write into the other. In-place data stays in the caller's memory.
    ///
    /// Errors: Mismatch if the encodings differ, those of [`Message::settle`].
    pub fn pack_body(&mut self, inner: &Message) -> Result<(), Error> {
        inner.settle()?;
        if self.encoding != inner.encoding {
            return Err(Error::Mismatch);
        }
        if inner.fragments.is_empty() {
            return Ok(());
        }
        if self.fragments.last().is_some_and(|last| last.len() == 0) {
            self.fragments.pop();
        }
        self.fragments.extend(inner.fragments.iter().cloned());
        self.xdr = Position { fragment: self.fragments.len() - 1, at: self.last().len() };
        Ok(())
    }

    /// Unpacks a message that was packed with [`Message::pack_message`].
    ///
    /// Errors: those of [`Message::unpack`], BadMsg for impossible lengths.
    pub fn unpack_message(&mut self, fragment_size: usize) -> Result<Message, Error> {
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = take_int(self)?;
        }
        let [length, context, tag, wait_id, encoding, crc, source, destination] = numbers;
        let mut left = usize::try_from(length).map_err(|_| Error::BadMsg)?;
        let mut inner = Message::new(encoding, fragment_size);
        inner.header.context = context;
        inner.header.tag = tag;
        inner.header.wait_id = wait_id;
        inner.header.crc = crc;
        inner.header.source = source;
        inner.header.destination = destination;
        while left > 0 {
            let size = take_int(self)?;
            let bytes = usize::try_from(size).map_err(|_| Error::BadMsg)?;
            // Check the length before allocating memory for it.
            if self.codec != Codec::Alien && bytes > self.remaining() {
                return Err(Error::NoData);
            }
            let mut data = vec![0; bytes];
            // SAFETY: `data` has `size` bytes and outlives `target`.
            let mut target = unsafe { Target::new(Kind::Byte, data.as_mut_ptr(), size, 1) };
            self.unpack(&mut target)?;
            inner.fragments.push(Fragment::full(data));
            inner.length += bytes;
            left = left.saturating_sub(bytes);
        }
        Ok(inner)
    }
}
