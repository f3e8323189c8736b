//! Sending of messages. A small message to a task of this host is copied into the receiver's
//! buffer. The data of a large one are copied into a buffer that this task exposes, once for all
//! receivers. If all such buffers are in use, the message goes in parts. Messages to other hosts,
//! and to tasks that have not joined the window yet, go through the daemon, which forwards exposed
//! buffers, too.

use fcp::error::Refused;
use fcp::lend::Lendable;
use pvm::buffers::Buffers;
use pvm::envelope::{FRAGMENTS_MAX, INLINE_MAX, Part, TABLE_MAX};
use pvm::error::Error;
use pvm::fragment::Fragment;
use pvm::message::Message;
use pvm::tid::{PVMD, Tid};
use pvm::wire::{Parcel, Request};
use sync::ring::Kind;
use sync::wait::Backoff;

use super::head::{Head, gather, whole};
use super::neighbours::is_neighbour;
use super::{Enrolled, Task};

/// Smallest message in bytes for which a pipelined copy by sender and receiver is faster than two
/// successive copies.
const PIPELINED_BYTES_MIN: usize = 128 << 10;
/// Largest part of a message to another host in bytes. A longer message goes in parts.
const FAR_PART_BYTES: usize = 64 << 10;
/// Most fragments of such a message that are sent without gathering them first.
const PIECES: usize = 6;

impl Task {
    /// Sends the message in buffer `id`, which keeps it. A message to a task that has ended is
    /// dropped without an error.
    ///
    /// Errors: BadParam and NoSuchBuf for the buffer; BadMsg for too many fragments; SysErr if
    /// the message needs the daemon, which has ended.
    #[inline]
    pub fn send(&mut self, id: i32, to: Tid, tag: i32) -> Result<(), Error> {
        let context = self.context;
        let near = self.is_near(to);
        let Task { enrolled, buffers, .. } = self;
        let enrolled = enrolled.as_mut().ok_or(Error::SysErr)?;
        let message = buffers.message(id)?;
        message.address(to.as_int(), tag);
        message.header.context = context;
        if near && message.fragments().len() <= PIECES {
            let number = *enrolled.sent.of(to);
            let head = Head::new(message, enrolled.welcome.tid, number);
            if head.size <= INLINE_MAX {
                let mut pieces: [&[u8]; PIECES + 2] = [&[]; PIECES + 2];
                let count = gather(&mut pieces, &head, message);
                let parts = &pieces[..count];
                match enrolled.port.try_send(to.place(), Some(to.0), Kind::Inline, parts) {
                    Ok(()) => {
                        *enrolled.sent.of(to) = number.wrapping_add(1);
                        return Ok(());
                    }
                    Err(Refused::Forked) => return Err(Error::SysErr),
                    Err(_) => {}
                }
            }
        }
        self.send_slowly(id, &[to])
    }

    /// Sends the message in buffer `id` to each of these tasks.
    ///
    /// Errors: those of [`Task::send`].
    pub fn multicast(&mut self, id: i32, to: &[Tid], tag: i32) -> Result<(), Error> {
        let context = self.context;
        let message = self.buffers.message(id)?;
        message.address(0, tag);
        message.header.context = context;
        self.send_slowly(id, to)
    }

    /// Sends a message outside the buffers to its destination. Errors: those of [`Task::send`].
    pub fn send_unbuffered(&mut self, mut message: Message) -> Result<(), Error> {
        let to = Tid(message.header.destination as u32);
        self.send_to_each(&mut message, &[to])
    }

    #[cold]
    fn send_slowly(&mut self, id: i32, to: &[Tid]) -> Result<(), Error> {
        let mut message = self.buffers.take(id)?;
        let sent = self.send_to_each(&mut message, to);
        self.buffers.put_back(id, message);
        sent
    }

    pub(super) fn send_to_each(&mut self, message: &mut Message, to: &[Tid]) -> Result<(), Error> {
        if message.fragments().len() > FRAGMENTS_MAX {
            return Err(Error::BadMsg);
        }
        message.settle()?;
        let mut memory = None;
        for tid in to {
            message.header.destination = tid.as_int();
            self.send_to(message, *tid, to.len() == 1, &mut memory)?;
        }
        Ok(())
    }

    fn send_to(
        &mut self,
        message: &Message,
        to: Tid,
        alone: bool,
        memory: &mut Option<Lendable>,
    ) -> Result<(), Error> {
        let near = self.is_near(to);
        let direct = self.route != pvm::constants::PvmDontRoute;
        let Task { enrolled, buffers, .. } = self;
        let enrolled = enrolled.as_mut().ok_or(Error::SysErr)?;
        let own = enrolled.welcome.tid;
        if to == own {
            return enrolled.intake.take_whole(own, whole(message, own, 0), buffers);
        }
        if !to.is_task() {
            let bytes = whole(message, own, 0);
            return self.tell(0, Request::PlugIn(message.header.tag, Parcel { bytes }));
        }
        let number = *enrolled.sent.of(to);
        let sent = match near {
            true => enrolled.send_near(message, to, number, alone, memory, buffers),
            false if direct && to.host() != own.host() => {
                match enrolled.send_far(message, to, number, buffers)? {
                    true => Ok(()),
                    false => Err(Refused::Gone),
                }
            }
            false => Err(Refused::Gone),
        };
        match sent {
            Ok(()) => {}
            Err(Refused::Forked) => return Err(Error::SysErr),
            // The receiver has ended, so the message is dropped.
            Err(Refused::Dead) => return self.check_daemon(),
            Err(_) => {
                let enrolled = self.enrolled.as_mut().ok_or(Error::SysErr)?;
                enrolled.send_by_daemon(message, to, number, memory, &mut self.buffers)?;
            }
        }
        *self.enrolled()?.sent.of(to) = number.wrapping_add(1);
        Ok(())
    }

    /// Returns true if messages to this task go directly into its receive buffer. That ends when
    /// the daemon leaves the window: the virtual machine has ended, and senders get an error.
    #[inline]
    fn is_near(&self, to: Tid) -> bool {
        let Some(enrolled) = &self.enrolled else { return false };
        let own = enrolled.welcome.tid;
        self.route != pvm::constants::PvmDontRoute
            && to.is_task()
            && own.host() == to.host()
            && own != to
            && enrolled.pvmd.is_some_and(|pvmd| enrolled.port.members().has_entry(pvmd))
    }
}

impl Enrolled {
    /// Sends to a task of this host, the only receiver if `alone`. Waits for room, and processes
    /// arriving messages meanwhile.
    fn send_near(
        &mut self,
        message: &Message,
        to: Tid,
        number: u32,
        alone: bool,
        memory: &mut Option<Lendable>,
        buffers: &mut Buffers,
    ) -> Result<(), Refused> {
        let head = Head::new(message, self.welcome.tid, number);
        if head.size <= INLINE_MAX {
            let whole = whole(message, self.welcome.tid, number);
            return self.send_waiting(to, &[&whole], buffers);
        }
        let pipelined = head.size >= PIPELINED_BYTES_MIN && head.table.len() <= TABLE_MAX;
        if memory.is_none() && alone && pipelined && self.is_neighbour(to) {
            let pieces: Vec<&[u8]> = message.fragments().iter().map(Fragment::bytes).collect();
            let Enrolled { port, intake, .. } = self;
            let parts = [&head.envelope[..], &head.table];
            let id = Some(to.0);
            let sent =
                port.send_in_advance(to.place(), id, &parts, &pieces, None, |mut arrived| {
                    intake.take(&mut arrived, buffers);
                });
            match sent {
                // Memory is exhausted, or the table of exposed buffers is full.
                Err(Refused::OutOfReach) => {}
                sent => return sent,
            }
        }
        if let Some(memory) = self.lendable(message, &head, memory) {
            let Enrolled { port, intake, .. } = self;
            let parts = [&head.envelope[..], &head.table];
            let all = 0..memory.len();
            let id = Some(to.0);
            let sent =
                port.send_lent(to.place(), id, &parts, (memory, all), None, |mut arrived| {
                    intake.take(&mut arrived, buffers);
                });
            match sent {
                // The table of exposed buffers is full.
                Err(Refused::Full) => {}
                sent => return sent,
            }
        }
        let part_size = self.part_size;
        self.send_in_parts(message, to, &head, part_size, |own, pieces| {
            own.send_waiting(to, pieces, buffers)
        })
    }

    /// Returns true if a task of this host shares our address space.
    fn is_neighbour(&self, tid: Tid) -> bool {
        self.welcome.space && self.port.members().pid(tid.place()).is_some_and(is_neighbour)
    }

    /// Sends through the daemon, to any task.
    fn send_by_daemon(
        &mut self,
        message: &Message,
        to: Tid,
        number: u32,
        memory: &mut Option<Lendable>,
        buffers: &mut Buffers,
    ) -> Result<(), Error> {
        let own = self.welcome.tid;
        let head = Head::new(message, own, number);
        if head.size <= INLINE_MAX {
            let bytes = whole(message, own, number);
            return self.tell(0, Request::Route(Parcel { bytes }), buffers);
        }
        if let Some(memory) = self.lendable(message, &head, memory) {
            match self.port.lend(PVMD.place(), Some(PVMD.0), (memory, 0..memory.len())) {
                Ok(terms) => {
                    let bytes = [&head.envelope[..], &head.table].concat();
                    let request = Request::RouteExposed(Parcel { bytes }, terms.bytes());
                    return self.tell(0, request, buffers);
                }
                // The table of exposed buffers is full.
                Err(Refused::Full) => {}
                Err(_) => return Err(Error::SysErr),
            }
        }
        let part_size = self.part_size;
        self.send_in_parts(message, to, &head, part_size, |own, pieces| {
            let bytes = pieces.concat();
            own.tell(0, Request::Route(Parcel { bytes }), buffers)
        })
    }

    /// Sends to a task of another host by a direct route. Returns false if there is none yet, and
    /// requests one.
    fn send_far(
        &mut self,
        message: &Message,
        to: Tid,
        number: u32,
        buffers: &mut Buffers,
    ) -> Result<bool, Error> {
        self.find_far(to, buffers)?;
        if !self.far.is_open() {
            return Ok(false);
        }
        self.take_far(buffers)?;
        let head = Head::new(message, self.welcome.tid, number);
        let data = || {
            let mut data = Vec::with_capacity(head.data());
            for fragment in message.fragments() {
                data.extend(fragment.bytes());
            }
            data
        };
        let sent = match head.size > FAR_PART_BYTES {
            true => self.send_far_in_parts(message, to, &head),
            false => self.far.send(to, &[&head.envelope, &head.table], data),
        };
        let mut backoff = Backoff::default();
        while self.far.is_full() {
            self.take_far(buffers)?;
            while let Some(mut arrived) = self.port.try_receive().map_err(|_| Error::SysErr)? {
                self.intake.take(&mut arrived, buffers);
            }
            backoff.pause();
        }
        Ok(sent)
    }

    /// Sends a long message directly in parts: the receiver takes a part while this task copies and
    /// encrypts the next. Returns false if there is no direct route, or no longer.
    fn send_far_in_parts(&mut self, message: &Message, to: Tid, head: &Head) -> bool {
        let sent = self.send_in_parts(message, to, head, FAR_PART_BYTES, |own, pieces| {
            let is_sent = own.far.send(to, &[], || pieces.concat());
            is_sent.then_some(()).ok_or(())
        });
        sent.is_ok()
    }

    /// Returns the message's data in a buffer that can be exposed, if there is one. The copy is
    /// made once for all receivers.
    fn lendable<'a>(
        &mut self,
        message: &Message,
        head: &Head,
        memory: &'a mut Option<Lendable>,
    ) -> Option<&'a Lendable> {
        if memory.is_none() && head.table.len() <= TABLE_MAX {
            let mut block = self.port.block(head.data())?;
            let mut at = 0;
            for fragment in message.fragments() {
                let bytes = fragment.bytes();
                block[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            }
            *memory = Some(block.share());
        }
        memory.as_ref()
    }

    fn send_waiting(
        &mut self,
        to: Tid,
        parts: &[&[u8]],
        buffers: &mut Buffers,
    ) -> Result<(), Refused> {
        let Enrolled { port, intake, .. } = self;
        port.send(to.place(), Some(to.0), Kind::Inline, parts, None, |mut arrived| {
            intake.take(&mut arrived, buffers);
        })
    }

    /// Sends a message in parts; `send` takes the pieces of one part.
    fn send_in_parts<E>(
        &mut self,
        message: &Message,
        to: Tid,
        head: &Head,
        part_size: usize,
        mut send: impl FnMut(&mut Enrolled, &[&[u8]]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut part = Part {
            source: self.welcome.tid.as_int(),
            destination: to.as_int(),
            serial: self.next_serial,
            offset: 0,
            total: head.size as u32,
        };
        self.next_serial = self.next_serial.wrapping_add(1);
        let fragments = message.fragments().iter().map(|fragment| fragment.bytes());
        let mut left = [&head.envelope[..], &head.table].into_iter().chain(fragments).peekable();
        let mut taken = 0;
        while (part.offset as usize) < head.size {
            let bytes = part.to_bytes();
            let mut pieces: [&[u8]; PIECES + 1] = [&[]; PIECES + 1];
            pieces[0] = &bytes;
            let (mut count, mut size) = (1, 0);
            while count < pieces.len() && size < part_size {
                let Some(bytes) = left.peek() else { break };
                let end = bytes.len().min(taken + part_size - size);
                pieces[count] = &bytes[taken..end];
                size += end - taken;
                count += 1;
                taken = end;
                if taken == bytes.len() {
                    left.next();
                    taken = 0;
                }
            }
            if size > 0 {
                send(self, &pieces[..count])?;
            }
            part.offset += size as u32;
        }
        Ok(())
    }
}
