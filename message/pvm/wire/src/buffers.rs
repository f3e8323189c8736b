//! A task's table of message buffers, and the active send and receive buffers.

use std::ffi::CStr;

use crate::constants::{PvmDataDefault, PvmDataInPlace, PvmDataRaw, PvmDataTrace};
use crate::error::Error;
use crate::items::{Kind, Source, Target};
use crate::message::{Codec, Header, Message};
use crate::signature::{IN_PLACE, TRACE, XDR, signature};
use crate::trace;

/// The default fragment size, in bytes, headers included.
pub const FRAGMENT_SIZE: usize = 4080;

/// Most freed messages that are kept for their memory.
const IDLE_MAX: usize = 8;

/// The result of pvm_getminfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Bytes of data.
    pub length: i32,
    /// Encoding.
    pub encoding: i32,
    /// The other attributes.
    pub header: Header,
}

/// The message buffers of a task. Buffer numbers are assigned in libpvm's order.
#[derive(Debug)]
pub struct Buffers {
    slots: Vec<Option<Message>>,
    /// Free numbers; the last one is assigned next.
    free: Vec<usize>,
    /// Size of the table after it grows next.
    next_size: usize,
    /// Freed messages, kept for their memory.
    idle: Vec<Message>,
    sending: Option<usize>,
    receiving: Option<usize>,
    /// The tid of the task, which becomes the source of messages that it packs.
    pub tid: i32,
    /// [`PvmFragSize`](crate::constants::PvmFragSize).
    pub fragment_size: usize,
    clock: fn() -> (i32, i32),
}

impl Buffers {
    /// Returns an empty table. `clock` returns seconds and microseconds since 1970, for trace
    /// events.
    pub fn new(tid: i32, clock: fn() -> (i32, i32)) -> Buffers {
        Buffers {
            slots: Vec::new(),
            free: Vec::new(),
            next_size: 8,
            idle: Vec::new(),
            sending: None,
            receiving: None,
            tid,
            fragment_size: FRAGMENT_SIZE,
            clock,
        }
    }

    /// Returns an empty message. Reuses a freed one if there is one.
    pub fn blank(&mut self, encoding: i32) -> Message {
        match self.idle.pop() {
            Some(mut message) => {
                message.renew(encoding, self.fragment_size);
                message
            }
            None => Message::new(encoding, self.fragment_size),
        }
    }

    /// Copies the data that lies in blocks, so that the blocks can be freed.
    pub fn own(&mut self) {
        self.slots.iter_mut().flatten().for_each(Message::own);
    }

    /// Assigns a number to a message and stores it.
    pub fn insert(&mut self, message: Message) -> i32 {
        if self.free.is_empty() {
            let old = self.slots.len();
            self.slots.resize_with(self.next_size, || None);
            // Number 0 is never assigned: it stands for "no buffer".
            self.free.extend(old.max(1)..self.slots.len());
            // Table sizes: 8, 13, 21, 34 …
            self.next_size = if old == 0 { 13 } else { self.next_size + old };
        }
        let id = self.free.pop().expect("the table has grown");
        self.slots[id] = Some(message);
        id as i32
    }

    fn index(&self, id: i32) -> Result<usize, Error> {
        let index = usize::try_from(id).map_err(|_| Error::BadParam)?;
        match self.slots.get(index) {
            Some(Some(_)) => Ok(index),
            _ => Err(Error::NoSuchBuf),
        }
    }

    /// Returns the buffer with this number.
    ///
    /// Errors: BadParam for 0 and less; NoSuchBuf.
    pub fn message(&mut self, id: i32) -> Result<&mut Message, Error> {
        if id <= 0 {
            return Err(Error::BadParam);
        }
        let index = self.index(id)?;
        Ok(self.slots[index].as_mut().expect("index looked"))
    }

    /// Takes a message out of its buffer, which keeps its number until [`Buffers::put_back`].
    ///
    /// Errors: those of [`Buffers::message`].
    pub fn take(&mut self, id: i32) -> Result<Message, Error> {
        self.message(id)?;
        Ok(self.slots[id as usize].take().expect("message looked"))
    }

    /// Puts back a message that was taken out.
    pub fn put_back(&mut self, id: i32, message: Message) {
        self.slots[id as usize] = Some(message);
    }

    /// Returns the active send buffer. Errors: NoBuf.
    pub fn sending(&mut self) -> Result<&mut Message, Error> {
        let index = self.sending.ok_or(Error::NoBuf)?;
        self.slots[index].as_mut().ok_or(Error::NoBuf)
    }

    /// Returns the active receive buffer. Errors: NoBuf.
    pub fn receiving(&mut self) -> Result<&mut Message, Error> {
        let index = self.receiving.ok_or(Error::NoBuf)?;
        self.slots[index].as_mut().ok_or(Error::NoBuf)
    }

    /// Executes pvm_mkbuf: returns a new buffer's number. Errors: BadParam for an unknown
    /// encoding.
    pub fn mkbuf(&mut self, encoding: i32) -> Result<i32, Error> {
        let encoding = match encoding {
            PvmDataDefault => XDR,
            PvmDataRaw => signature(),
            PvmDataInPlace => IN_PLACE,
            PvmDataTrace => TRACE,
            _ => return Err(Error::BadParam),
        };
        let mut message = self.blank(encoding);
        message.header.source = self.tid;
        if message.codec == Codec::Trace {
            message.begin_packing();
            trace::begin(&mut message, (self.clock)());
        }
        Ok(self.insert(message))
    }

    /// Ends the user's trace event in the active send buffer, before it is sent. Errors: NoBuf.
    pub fn end_event(&mut self) -> Result<(), Error> {
        let message = self.sending()?;
        if message.codec == Codec::Trace {
            trace::end(message);
        }
        Ok(())
    }

    /// Executes pvm_initsend: frees the active send buffer and activates a new one. Errors:
    /// BadParam.
    pub fn initsend(&mut self, encoding: i32) -> Result<i32, Error> {
        let id = self.mkbuf(encoding)?;
        if let Some(old) = self.sending {
            self.freebuf(old as i32)?;
        }
        self.setsbuf(id)?;
        Ok(id)
    }

    /// Executes pvm_freebuf; 0 is ignored. Errors: BadParam if negative, NoSuchBuf.
    pub fn freebuf(&mut self, id: i32) -> Result<(), Error> {
        if id == 0 {
            return Ok(());
        }
        let index = self.index(id)?;
        self.forget(index);
        if let Some(mut message) = self.slots[index].take()
            && self.idle.len() < IDLE_MAX
        {
            // Renew it now, to free large memory and to drop pointers to the caller's memory.
            message.renew(XDR, self.fragment_size);
            self.idle.push(message);
        }
        self.free.push(index);
        Ok(())
    }

    fn forget(&mut self, index: usize) {
        if self.sending == Some(index) {
            self.sending = None;
        }
        if self.receiving == Some(index) {
            self.receiving = None;
        }
    }

    /// Executes pvm_setsbuf: returns the number of the former active send buffer. 0 deactivates
    /// it. If the active receive buffer becomes the send buffer, no receive buffer is active.
    ///
    /// Errors: BadParam if negative, NoSuchBuf, those of [`Message::settle`].
    pub fn setsbuf(&mut self, id: i32) -> Result<i32, Error> {
        let old = self.getsbuf();
        if id == 0 {
            self.sending = None;
            return Ok(old);
        }
        let index = self.index(id)?;
        self.slots[index].as_ref().map_or(Ok(()), Message::settle)?;
        self.forget(index);
        self.sending = Some(index);
        self.sending()?.begin_packing();
        Ok(old)
    }

    /// Executes pvm_setrbuf, as [`Buffers::setsbuf`]. Unpacking starts at the beginning, unless
    /// the buffer was being unpacked before.
    pub fn setrbuf(&mut self, id: i32) -> Result<i32, Error> {
        let old = self.getrbuf();
        if id == 0 {
            self.receiving = None;
            return Ok(old);
        }
        let index = self.index(id)?;
        self.forget(index);
        self.receiving = Some(index);
        self.receiving()?.begin_unpacking();
        Ok(old)
    }

    /// Executes pvm_getsbuf: returns the active send buffer's number, or 0.
    pub fn getsbuf(&self) -> i32 {
        self.sending.map_or(0, |index| index as i32)
    }

    /// Executes pvm_getrbuf: returns the active receive buffer's number, or 0.
    pub fn getrbuf(&self) -> i32 {
        self.receiving.map_or(0, |index| index as i32)
    }

    /// Activates the send and receive buffer of another thread, and returns the former ones. A
    /// number without a buffer counts as 0.
    pub fn swap_active(&mut self, (sending, receiving): (i32, i32)) -> (i32, i32) {
        let old = (self.getsbuf(), self.getrbuf());
        self.sending = self.index(sending).ok().filter(|index| *index != 0);
        self.receiving = self.index(receiving).ok().filter(|index| *index != 0);
        old
    }

    /// Delivers a message as pvm_recv does: it becomes the active receive buffer, and the former
    /// one is freed.
    pub fn receive(&mut self, message: Message) -> Result<i32, Error> {
        if let Some(old) = self.receiving {
            self.freebuf(old as i32)?;
        }
        let id = self.insert(message);
        self.setrbuf(id)?;
        Ok(id)
    }

    /// Executes pvm_getminfo and pvm_bufinfo. Errors: BadParam for 0 and less, NoSuchBuf.
    pub fn info(&mut self, id: i32) -> Result<Info, Error> {
        let message = self.message(id)?;
        Ok(Info {
            length: message.length() as i32,
            encoding: message.encoding(),
            header: message.header,
        })
    }

    /// Executes pvm_setminfo: sets the header except its checksum. Errors: BadParam, NoSuchBuf.
    pub fn set_info(&mut self, id: i32, header: Header) -> Result<(), Error> {
        let message = self.message(id)?;
        let crc = message.header.crc;
        message.header = Header { crc, ..header };
        Ok(())
    }

    /// Executes pvm_pkbyte and related calls. Errors: BadParam for a negative count, NoBuf,
    /// those of [`Message::pack`].
    pub fn pack(&mut self, source: &Source) -> Result<(), Error> {
        if source.count < 0 {
            return Err(Error::BadParam);
        }
        self.sending()?.pack(source)
    }

    /// Executes pvm_upkbyte and related calls. Errors: BadParam for a negative count, NoBuf,
    /// those of [`Message::unpack`].
    pub fn unpack(&mut self, target: &mut Target) -> Result<(), Error> {
        if target.count() < 0 {
            return Err(Error::BadParam);
        }
        self.receiving()?.unpack(target)
    }

    /// Executes pvm_pkstr: packs the length with the final 0, then the bytes. A trace event gets
    /// only the bytes.
    ///
    /// Errors: NoBuf; NotImpl in place, since no caller keeps the length in memory.
    pub fn pack_string(&mut self, string: &CStr) -> Result<(), Error> {
        let message = self.sending()?;
        if message.codec == Codec::InPlace {
            return Err(Error::NotImpl);
        }
        let mut bytes = string.to_bytes_with_nul();
        if message.codec == Codec::Trace {
            bytes = string.to_bytes();
        }
        let length = i32::try_from(bytes.len()).map_err(|_| Error::NoMem)?;
        if message.codec != Codec::Trace {
            // SAFETY: `length` is one `int` and outlives `source`. The message is not packed in
            // place, checked above, so it keeps no pointer.
            let source = unsafe { Source::new(Kind::Int, (&raw const length).cast(), 1, 1) };
            message.pack(&source)?;
        }
        // SAFETY: `bytes` has `length` bytes, computed above, and outlives the source. The
        // message is not packed in place, so it keeps no pointer.
        message.pack(&unsafe { Source::new(Kind::Byte, bytes.as_ptr(), length, 1) })
    }

    /// Executes pvm_upkstr.
    ///
    /// Errors: NoBuf, those of [`Message::unpack`].
    ///
    /// # Safety
    ///
    /// `at` must point to writable memory with room for the received string. Nobody else may use
    /// that memory during the call.
    pub unsafe fn unpack_string(&mut self, at: *mut u8) -> Result<(), Error> {
        let message = self.receiving()?;
        let mut length = 0;
        // SAFETY: `length` is one `int` and outlives `target`.
        let mut target = unsafe { Target::new(Kind::Int, (&raw mut length).cast(), 1, 1) };
        message.unpack(&mut target)?;
        // SAFETY: `at` has room for the `length` bytes of the string, which `unpack_string`
        // requires.
        message.unpack(&mut unsafe { Target::new(Kind::Byte, at, length, 1) })
    }

    /// Executes pvm_pkmesg: packs a message into the active send buffer.
    ///
    /// Errors: BadParam for 0 and less and for the active send buffer itself; NoSuchBuf; NoBuf;
    /// those of [`Message::pack`].
    pub fn pack_message(&mut self, id: i32) -> Result<(), Error> {
        self.with_inner(id, |outer, inner| outer.pack_message(inner))
    }

    /// Executes pvm_pkmesgbody: packs a message's data into the active send buffer.
    ///
    /// Errors: those of [`Buffers::pack_message`]; Mismatch if the encodings differ.
    pub fn pack_body(&mut self, id: i32) -> Result<(), Error> {
        self.with_inner(id, |outer, inner| outer.pack_body(inner))
    }

    fn with_inner(
        &mut self,
        id: i32,
        pack: impl FnOnce(&mut Message, &mut Message) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.message(id)?;
        let outer = self.sending.ok_or(Error::NoBuf)?;
        let inner = self.index(id)?;
        let Ok([Some(outer), Some(inner)]) = self.slots.get_disjoint_mut([outer, inner]) else {
            return Err(Error::BadParam);
        };
        pack(outer, inner)
    }

    /// Executes pvm_upkmesg: unpacks a message that was packed into the active receive buffer,
    /// and returns its number.
    ///
    /// Errors: NoBuf, those of [`Message::unpack`], BadMsg for impossible lengths.
    pub fn unpack_message(&mut self) -> Result<i32, Error> {
        let fragment_size = self.fragment_size;
        let inner = self.receiving()?.unpack_message(fragment_size)?;
        Ok(self.insert(inner))
    }
}
