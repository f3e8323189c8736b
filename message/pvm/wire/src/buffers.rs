//! A task's message buffers: the table of them, and which of them are active.

use std::ffi::CStr;

use crate::constants::{PvmDataDefault, PvmDataInPlace, PvmDataRaw, PvmDataTrace};
use crate::error::Error;
use crate::items::{Kind, Source, Target};
use crate::message::{Codec, Header, Message};
use crate::signature::{IN_PLACE, TRACE, XDR, signature};
use crate::trace;

/// The fragment size of a task that sets none, in bytes, headers included.
pub const FRAGMENT_SIZE: usize = 4080;

/// Messages that are kept for their memory.
const IDLE_MAX: usize = 8;

/// What pvm_getminfo says of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Bytes of data.
    pub length: i32,
    /// Encoding.
    pub encoding: i32,
    /// The rest.
    pub header: Header,
}

/// The message buffers of a task. Numbers are given in the order in which libpvm gives them.
#[derive(Debug)]
pub struct Buffers {
    slots: Vec<Option<Message>>,
    /// Free numbers; the last is next.
    free: Vec<usize>,
    /// How many slots the table will have when it grows next.
    next_size: usize,
    /// Messages that are no more, for their memory.
    idle: Vec<Message>,
    sending: Option<usize>,
    receiving: Option<usize>,
    /// The tid of the task: the source of what it packs.
    pub tid: i32,
    /// [`PvmFragSize`](crate::constants::PvmFragSize).
    pub fragment_size: usize,
    clock: fn() -> (i32, i32),
}

impl Buffers {
    /// No buffers yet. `clock` gives seconds and microseconds since 1970, for trace events.
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

    /// An empty message, in memory of a former one if there is some.
    pub fn blank(&mut self, encoding: i32) -> Message {
        match self.idle.pop() {
            Some(mut message) => {
                message.renew(encoding, self.fragment_size);
                message
            }
            None => Message::new(encoding, self.fragment_size),
        }
    }

    /// Copies what lies in blocks, so that these can go.
    pub fn own(&mut self) {
        self.slots.iter_mut().flatten().for_each(Message::own);
    }

    /// Gives a message a number.
    pub fn insert(&mut self, message: Message) -> i32 {
        if self.free.is_empty() {
            let old = self.slots.len();
            self.slots.resize_with(self.next_size, || None);
            // Number 0 is nobody's: it stands for "no buffer".
            self.free.extend(old.max(1)..self.slots.len());
            // 8, 13, 21, 34 …
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

    /// The buffer with this number.
    ///
    /// Errors: BadParam for 0 and less, NoSuchBuf.
    pub fn message(&mut self, id: i32) -> Result<&mut Message, Error> {
        if id <= 0 {
            return Err(Error::BadParam);
        }
        let index = self.index(id)?;
        Ok(self.slots[index].as_mut().expect("index looked"))
    }

    /// Takes a message out of its buffer, which stays its own; [`Buffers::put_back`] ends that.
    ///
    /// Errors: as [`Buffers::message`].
    pub fn take(&mut self, id: i32) -> Result<Message, Error> {
        self.message(id)?;
        Ok(self.slots[id as usize].take().expect("message looked"))
    }

    /// Puts a message back that was taken.
    pub fn put_back(&mut self, id: i32, message: Message) {
        self.slots[id as usize] = Some(message);
    }

    /// The active send buffer. Errors: NoBuf.
    pub fn sending(&mut self) -> Result<&mut Message, Error> {
        let index = self.sending.ok_or(Error::NoBuf)?;
        self.slots[index].as_mut().ok_or(Error::NoBuf)
    }

    /// The active receive buffer. Errors: NoBuf.
    pub fn receiving(&mut self) -> Result<&mut Message, Error> {
        let index = self.receiving.ok_or(Error::NoBuf)?;
        self.slots[index].as_mut().ok_or(Error::NoBuf)
    }

    /// pvm_mkbuf: a new buffer's number. Errors: BadParam for an unknown encoding.
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

    /// pvm_initsend: a new active send buffer; the old one is freed. Errors: BadParam.
    pub fn initsend(&mut self, encoding: i32) -> Result<i32, Error> {
        let id = self.mkbuf(encoding)?;
        if let Some(old) = self.sending {
            self.freebuf(old as i32)?;
        }
        self.setsbuf(id)?;
        Ok(id)
    }

    /// pvm_freebuf; 0 is no buffer and no error. Errors: BadParam if negative, NoSuchBuf.
    pub fn freebuf(&mut self, id: i32) -> Result<(), Error> {
        if id == 0 {
            return Ok(());
        }
        let index = self.index(id)?;
        self.forget(index);
        if let Some(mut message) = self.slots[index].take()
            && self.idle.len() < IDLE_MAX
        {
            // Now, so that neither much memory nor the caller's is kept.
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

    /// pvm_setsbuf: the number of the send buffer that was active. 0 makes none active. The
    /// active receive buffer is no more if it becomes the send buffer.
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

    /// pvm_setrbuf, as [`Buffers::setsbuf`]. Unpacking begins at the start, unless the buffer
    /// was being unpacked before.
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

    /// pvm_getsbuf: the active send buffer's number, or 0.
    pub fn getsbuf(&self) -> i32 {
        self.sending.map_or(0, |index| index as i32)
    }

    /// pvm_getrbuf: the active receive buffer's number, or 0.
    pub fn getrbuf(&self) -> i32 {
        self.receiving.map_or(0, |index| index as i32)
    }

    /// Makes other buffers active, those of another thread, and returns those that were.
    /// Numbers of buffers that are no more are 0.
    pub fn swap_active(&mut self, (sending, receiving): (i32, i32)) -> (i32, i32) {
        let old = (self.getsbuf(), self.getrbuf());
        self.sending = self.index(sending).ok().filter(|index| *index != 0);
        self.receiving = self.index(receiving).ok().filter(|index| *index != 0);
        old
    }

    /// What pvm_recv does with a message that has come: it becomes the active receive buffer,
    /// and the one before is freed.
    pub fn receive(&mut self, message: Message) -> Result<i32, Error> {
        if let Some(old) = self.receiving {
            self.freebuf(old as i32)?;
        }
        let id = self.insert(message);
        self.setrbuf(id)?;
        Ok(id)
    }

    /// pvm_getminfo and pvm_bufinfo. Errors: BadParam for 0 and less, NoSuchBuf.
    pub fn info(&mut self, id: i32) -> Result<Info, Error> {
        let message = self.message(id)?;
        Ok(Info {
            length: message.length() as i32,
            encoding: message.encoding(),
            header: message.header,
        })
    }

    /// pvm_setminfo: sets the header, its checksum apart. Errors: BadParam, NoSuchBuf.
    pub fn set_info(&mut self, id: i32, header: Header) -> Result<(), Error> {
        let message = self.message(id)?;
        let crc = message.header.crc;
        message.header = Header { crc, ..header };
        Ok(())
    }

    /// pvm_pkbyte and its kind. Errors: BadParam for a negative count, NoBuf, those of
    /// [`Message::pack`].
    pub fn pack(&mut self, source: &Source) -> Result<(), Error> {
        if source.count < 0 {
            return Err(Error::BadParam);
        }
        self.sending()?.pack(source)
    }

    /// pvm_upkbyte and its kind. Errors: BadParam for a negative count, NoBuf, those of
    /// [`Message::unpack`].
    pub fn unpack(&mut self, target: &mut Target) -> Result<(), Error> {
        if target.count() < 0 {
            return Err(Error::BadParam);
        }
        self.receiving()?.unpack(target)
    }

    /// pvm_pkstr: its length with the final 0, then its bytes; in a trace event only these.
    ///
    /// Errors: NoBuf; NotImpl in place, where nobody would keep the length.
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
            // SAFETY: one int, which lives longer than the source.
            let source = unsafe { Source::new(Kind::Int, (&raw const length).cast(), 1, 1) };
            message.pack(&source)?;
        }
        // SAFETY: as many bytes, which live longer than the source.
        message.pack(&unsafe { Source::new(Kind::Byte, bytes.as_ptr(), length, 1) })
    }

    /// pvm_upkstr.
    ///
    /// Errors: NoBuf, those of [`Message::unpack`].
    ///
    /// # Safety
    /// There must be room at `at` for the string that comes.
    pub unsafe fn unpack_string(&mut self, at: *mut u8) -> Result<(), Error> {
        let message = self.receiving()?;
        let mut length = 0;
        // SAFETY: one int, which lives longer than the target.
        let mut target = unsafe { Target::new(Kind::Int, (&raw mut length).cast(), 1, 1) };
        message.unpack(&mut target)?;
        // SAFETY: there is room, as our caller promises.
        message.unpack(&mut unsafe { Target::new(Kind::Byte, at, length, 1) })
    }

    /// pvm_pkmesg: packs a message into the active send buffer.
    ///
    /// Errors: BadParam for 0 and less and for the active send buffer itself, NoSuchBuf,
    /// NoBuf, those of [`Message::pack`].
    pub fn pack_message(&mut self, id: i32) -> Result<(), Error> {
        self.with_inner(id, |outer, inner| outer.pack_message(inner))
    }

    /// pvm_pkmesgbody: packs a message's data into the active send buffer.
    ///
    /// Errors: as [`Buffers::pack_message`]; Mismatch if the encodings differ.
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

    /// pvm_upkmesg: the number of the message that was packed into this one.
    ///
    /// Errors: NoBuf, those of [`Message::unpack`], BadMsg for impossible lengths.
    pub fn unpack_message(&mut self) -> Result<i32, Error> {
        let fragment_size = self.fragment_size;
        let inner = self.receiving()?.unpack_message(fragment_size)?;
        Ok(self.insert(inner))
    }
}
