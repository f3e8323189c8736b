//! Messages of PVM's internal protocols, between daemons, tasks and plug-ins: an envelope, and
//! data in XDR as stock PVM packs it.

use crate::envelope::{Envelope, SIZE, What};
use crate::error::Error;
use crate::message::Header;
use crate::signature::XDR;
use crate::tid::{PVMD, Tid};
use crate::wire::Sink;

/// Data under construction.
#[derive(Debug, Default)]
pub struct Data(Vec<u8>);

impl Data {
    /// Appends a number, as pvm_pkint.
    pub fn int(mut self, number: i32) -> Data {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// Appends bytes, as pvm_pkbyte: padded to a word.
    pub fn bytes(mut self, bytes: &[u8]) -> Data {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends a string, as pvm_pkstr: the length with the final 0, then the bytes with it.
    pub fn string(self, text: &str) -> Data {
        let bytes = [text.as_bytes(), b"\0"].concat();
        self.int(bytes.len() as i32).bytes(&bytes)
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends other data.
    pub fn and(mut self, Data(other): &Data) -> Data {
        self.0.extend(other);
        self
    }

    /// Returns a message with these data, from `source`, without a receiver.
    pub fn parcel(self, source: Tid) -> Vec<u8> {
        let header = Header { source: source.as_int(), ..Header::default() };
        enclose(What::Message, header, XDR, &self.0)
    }

    /// Returns a message with these data, from the daemon to `sink`.
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

/// Returns a control message of the daemon to a task. `data` is a
/// [`Control`](crate::wire::Control) in postcard's encoding.
pub fn control(to: Tid, data: &[u8]) -> Vec<u8> {
    let header = Header { source: PVMD.as_int(), destination: to.as_int(), ..Header::default() };
    enclose(What::Control, header, 0, data)
}

fn enclose(what: What, header: Header, encoding: i32, data: &[u8]) -> Vec<u8> {
    let envelope = Envelope { what, header, number: 0, encoding, fragments: 1 };
    [&envelope.to_bytes()[..], data].concat()
}

/// Returns the receiver in a message's envelope, if it has one.
pub fn addressee(bytes: &[u8]) -> Option<Tid> {
    let envelope = Envelope::parse(bytes).ok()?;
    Some(Tid(envelope.header.destination as u32))
}

/// Reads the data of a program's message in XDR.
#[derive(Debug)]
pub struct Reader<'a> {
    wait_id: i32,
    data: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of a message. Errors: BadMsg, also if it is not in XDR.
    pub fn new(bytes: &'a [u8]) -> Result<Reader<'a>, Error> {
        let envelope = Envelope::parse(bytes)?;
        let lengths = if envelope.fragments > 1 { 4 * envelope.fragments as usize } else { 0 };
        let data = bytes.get(SIZE + lengths..).ok_or(Error::BadMsg)?;
        if envelope.encoding != XDR {
            return Err(Error::BadMsg);
        }
        Ok(Reader { wait_id: envelope.header.wait_id, data })
    }

    /// Returns true if all data was read.
    pub fn is_at_end(&self) -> bool {
        self.data.is_empty()
    }

    /// Returns the message's wait ID.
    pub fn wait_id(&self) -> i32 {
        self.wait_id
    }

    /// Reads a number, as pvm_upkint. Errors: BadMsg.
    pub fn int(&mut self) -> Result<i32, Error> {
        let (word, rest) = self.data.split_first_chunk().ok_or(Error::BadMsg)?;
        self.data = rest;
        Ok(i32::from_be_bytes(*word))
    }

    /// Reads a string, as pvm_upkstr. Errors: BadMsg.
    pub fn string(&mut self) -> Result<String, Error> {
        let length = usize::try_from(self.int()?).map_err(|_| Error::BadMsg)?;
        let padded = length.checked_next_multiple_of(4).ok_or(Error::BadMsg)?;
        let (bytes, rest) = self.data.split_at_checked(padded).ok_or(Error::BadMsg)?;
        self.data = rest;
        let text = bytes[..length].split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}
