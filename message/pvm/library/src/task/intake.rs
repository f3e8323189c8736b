//! Messages that arrive in a task's receive buffer: messages for its program, in order, and the
//! daemon's answers and notices.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use fcp::arrived::Arrived;
use fcp::loan::Loan;
use pvm::buffers::Buffers;
use pvm::envelope::{Envelope, Part, SIZE, What};
use pvm::error::Error;
use pvm::fragment::{Block, Fragment};
use pvm::message::Message;
use pvm::tid::{PVMD, Tid};
use pvm::wire::{Answer, Control, Notice};
use sync::ring::Kind;

use super::handlers::{Handler, Handlers};
use super::neighbours::Coming;
use super::order::Order;
use super::parts::Parts;

/// The arrived messages.
#[derive(Debug)]
pub struct Intake {
    /// Buffers of messages that the program has not received yet, in order.
    pub arrived: VecDeque<i32>,
    /// Buffers of messages that a handler takes, in order.
    pub to_handle: VecDeque<(Handler, i32)>,
    /// Handlers.
    pub handlers: Handlers,
    /// Answers that were not taken yet.
    pub answers: HashMap<u32, Result<Answer, i32>>,
    /// Notices of the daemon.
    pub notices: VecDeque<Notice>,
    /// Number of messages that have arrived for the program or its handlers.
    pub taken: u64,
    /// Number of messages dropped because they were malformed.
    pub dropped: u64,
    order: Order<Message>,
    parts: Parts,
    daemon: Tid,
}

impl Intake {
    /// Returns an empty intake for a task of this host.
    pub fn new(host: u16, handlers: Handlers) -> Intake {
        Intake {
            arrived: VecDeque::new(),
            to_handle: VecDeque::new(),
            handlers,
            answers: HashMap::new(),
            notices: VecDeque::new(),
            taken: 0,
            dropped: 0,
            order: Order::new(host),
            parts: Parts::default(),
            daemon: Tid::daemon(host),
        }
    }

    /// Processes a message in the receive buffer.
    #[inline]
    pub fn take(&mut self, arrived: &mut Arrived<'_>, buffers: &mut Buffers) {
        if self.take_piece(arrived, buffers).is_err() {
            self.dropped += 1;
        }
    }

    #[inline]
    fn take_piece(
        &mut self,
        arrived: &mut Arrived<'_>,
        buffers: &mut Buffers,
    ) -> Result<(), Error> {
        let fcp = arrived.header();
        let length = fcp.length as usize;
        let mut head = [0; SIZE];
        if length < SIZE {
            return Err(Error::BadMsg);
        }
        arrived.read(0, &mut head);
        let sender = Tid(fcp.source);
        match What::of(&head)? {
            What::Message if fcp.kind == Kind::Lent => {
                let mut table = vec![0; length - SIZE];
                arrived.read(SIZE, &mut table);
                let block: Arc<dyn Block> = match arrived.advance() {
                    Some(advance) => Arc::new(Coming(advance)),
                    None => Arc::new(Lent(arrived.loan().ok_or(Error::BadMsg)?)),
                };
                let envelope = Envelope::parse(&head)?;
                let message = in_block(&envelope, &table, block, 0, buffers)?;
                self.take_in_order(sender, &envelope, message, buffers)
            }
            What::Message => {
                let read = |at: usize, to: &mut [u8]| arrived.read(at, to);
                self.take_message(sender, &head, length, read, buffers)
            }
            What::Control if fcp.kind == Kind::Lent => {
                let loan = arrived.loan().ok_or(Error::BadMsg)?;
                self.take_control(sender, SIZE + loan.len(), |to| to.copy_from_slice(&loan))
            }
            What::Control => self.take_control(sender, length, |to| arrived.read(SIZE, to)),
            What::Part => {
                let part = Part::parse(&head);
                if part.source as u32 != sender.0 && !self.is_daemon(sender) {
                    return Err(Error::BadMsg);
                }
                let read = |to: &mut [u8]| arrived.read(SIZE, to);
                match self.parts.add(part, length - SIZE, read) {
                    Some(whole) => self.take_whole(sender, whole, buffers),
                    None => Ok(()),
                }
            }
        }
    }

    fn is_daemon(&self, tid: Tid) -> bool {
        tid == self.daemon || tid == PVMD
    }

    /// Processes a complete message: envelope, fragment lengths, data.
    pub fn take_whole(
        &mut self,
        sender: Tid,
        whole: Vec<u8>,
        buffers: &mut Buffers,
    ) -> Result<(), Error> {
        let head = *whole.first_chunk().ok_or(Error::BadMsg)?;
        if What::of(&head)? == What::Control {
            return self.take_control(sender, whole.len(), |to| to.copy_from_slice(&whole[SIZE..]));
        }
        let envelope = Envelope::parse(&head)?;
        let message = parse_block(&envelope, whole, buffers)?;
        self.take_in_order(sender, &envelope, message, buffers)
    }

    /// Processes a message that arrived over the fabric: its head and its data.
    pub fn take_far(&mut self, sender: Tid, head: &[u8], data: Vec<u8>, buffers: &mut Buffers) {
        let taken = match head.split_at_checked(SIZE) {
            // The head precedes the data in the payload.
            None => self.take_far_whole(sender, data, buffers),
            Some((envelope, table)) => Envelope::parse(envelope).and_then(|envelope| {
                let message = in_block(&envelope, table, Arc::new(data), 0, buffers)?;
                self.take_in_order(sender, &envelope, message, buffers)
            }),
        };
        if taken.is_err() {
            self.dropped += 1;
        }
    }

    /// Processes a complete message that arrived over the fabric, or a part of one.
    fn take_far_whole(
        &mut self,
        sender: Tid,
        data: Vec<u8>,
        buffers: &mut Buffers,
    ) -> Result<(), Error> {
        let head = *data.first_chunk().ok_or(Error::BadMsg)?;
        if What::of(&head)? != What::Part {
            return self.take_whole(sender, data, buffers);
        }
        let part = Part::parse(&head);
        if part.source as u32 != sender.0 {
            return Err(Error::BadMsg);
        }
        let data = &data[SIZE..];
        match self.parts.add(part, data.len(), |to| to.copy_from_slice(data)) {
            Some(whole) => self.take_whole(sender, whole, buffers),
            None => Ok(()),
        }
    }

    #[inline]
    fn take_message(
        &mut self,
        sender: Tid,
        head: &[u8; SIZE],
        length: usize,
        read: impl Fn(usize, &mut [u8]),
        buffers: &mut Buffers,
    ) -> Result<(), Error> {
        let envelope = Envelope::parse(head)?;
        let mut message = buffers.blank(envelope.encoding);
        message.header = envelope.header;
        if envelope.fragments == 1 {
            message.receive(length - SIZE, |to| read(SIZE, to));
        } else {
            let table = 4 * envelope.fragments as usize;
            let mut at = SIZE + table;
            if at > length {
                return Err(Error::BadMsg);
            }
            let mut lengths = vec![0; table];
            read(SIZE, &mut lengths);
            for size in lengths.chunks_exact(4) {
                let size = u32::from_le_bytes(size.try_into().expect("4 bytes")) as usize;
                if size > length - at {
                    return Err(Error::BadMsg);
                }
                message.receive(size, |to| read(at, to));
                at += size;
            }
            if at != length {
                return Err(Error::BadMsg);
            }
        }
        self.take_in_order(sender, &envelope, message, buffers)
    }

    #[inline]
    fn take_in_order(
        &mut self,
        sender: Tid,
        envelope: &Envelope,
        message: Message,
        buffers: &mut Buffers,
    ) -> Result<(), Error> {
        let source = Tid(message.header.source as u32);
        // Only a daemon may forward messages of other tasks.
        if source != sender && !self.is_daemon(sender) {
            return Err(Error::BadMsg);
        }
        if let Some(message) = self.order.accept(source, envelope.number, message) {
            self.deliver(message, buffers);
            while let Some(message) = self.order.next(source) {
                self.deliver(message, buffers);
            }
        }
        Ok(())
    }

    /// Queues a message for its handler, or for the program.
    #[inline]
    pub fn deliver(&mut self, message: Message, buffers: &mut Buffers) {
        let id = buffers.insert(message);
        let _ = self.deliver_buffer(id, buffers);
    }

    /// Does the same as [`Intake::deliver`] for a message in a buffer.
    #[inline]
    pub fn deliver_buffer(&mut self, id: i32, buffers: &mut Buffers) -> Result<(), Error> {
        let message = buffers.message(id)?;
        match self.handlers.find(&message.header) {
            Some(handler) => self.to_handle.push_back((handler, id)),
            None => {
                message.waits = true;
                self.arrived.push_back(id);
            }
        }
        self.taken += 1;
        Ok(())
    }

    /// Returns the number of queued messages.
    pub fn waiting(&self) -> usize {
        self.arrived.len() + self.to_handle.len()
    }

    #[cold]
    fn take_control(
        &mut self,
        sender: Tid,
        length: usize,
        read: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        if !self.is_daemon(sender) {
            return Err(Error::BadMsg);
        }
        let mut bytes = vec![0; length - SIZE];
        read(&mut bytes);
        match postcard::from_bytes(&bytes).map_err(|_| Error::BadMsg)? {
            Control::Answer(id, answer) => {
                self.answers.insert(id, answer);
            }
            Control::Notice(notice) => self.notices.push_back(notice),
        }
        Ok(())
    }

    /// Handles the end of the tasks that `fits` selects: queues their held messages, and drops
    /// incomplete ones.
    pub fn gone(&mut self, fits: impl Fn(Tid) -> bool, buffers: &mut Buffers) {
        self.parts.forget(&fits);
        for message in self.order.flush(fits) {
            self.deliver(message, buffers);
        }
    }
}

/// Parses a message that was stored elsewhere, such as in a mailbox. Errors: BadMsg.
pub fn message_of(bytes: Vec<u8>, buffers: &mut Buffers) -> Result<Message, Error> {
    let envelope = Envelope::parse(&bytes)?;
    parse_block(&envelope, bytes, buffers)
}

/// The data of a message, in the buffer that its sender exposes.
struct Lent(Loan);

impl Block for Lent {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.0[range]
    }
}

/// Returns a message whose fragments lie in the block in which it arrived, behind envelope and
/// lengths.
fn parse_block(
    envelope: &Envelope,
    block: Vec<u8>,
    buffers: &mut Buffers,
) -> Result<Message, Error> {
    let lengths = match envelope.fragments {
        1 => 0,
        n => 4 * n as usize,
    };
    let end = SIZE + lengths;
    let table = block.get(SIZE..end).ok_or(Error::BadMsg)?.to_vec();
    in_block(envelope, &table, Arc::new(block), end, buffers)
}

/// Returns a message whose fragments fill a block from `at` on. `table` has their lengths; it is
/// empty for one fragment.
fn in_block(
    envelope: &Envelope,
    table: &[u8],
    block: Arc<dyn Block>,
    mut at: usize,
    buffers: &mut Buffers,
) -> Result<Message, Error> {
    let mut message = buffers.blank(envelope.encoding);
    message.header = envelope.header;
    let end = block.length();
    let whole = ((end - at) as u32).to_le_bytes();
    let table = if envelope.fragments == 1 { &whole[..] } else { table };
    if table.len() != 4 * envelope.fragments as usize {
        return Err(Error::BadMsg);
    }
    for size in table.chunks_exact(4) {
        let size = u32::from_le_bytes(size.try_into().expect("4 bytes")) as usize;
        let fragment = Fragment::in_block(block.clone(), at, size).ok_or(Error::BadMsg)?;
        message.receive_fragment(fragment);
        at += size;
    }
    if at == end { Ok(message) } else { Err(Error::BadMsg) }
}
