//! Messages that daemons pass on.

use fcp::loan::Terms;
use pvm::envelope::{Envelope, Part, SIZE, What};
use pvm::tid::Tid;

/// A message between tasks, in one of three forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskMessage {
    /// Envelope, fragment lengths and data; or a part of such a message.
    Whole(Vec<u8>),
    /// Envelope and fragment lengths; the data in a second buffer.
    Split(Vec<u8>, Vec<u8>),
    /// Envelope and fragment lengths; the data is a buffer exposed to this daemon.
    Exposed(Vec<u8>, Terms),
}

impl TaskMessage {
    /// Returns the bytes with the envelope.
    fn head(&mut self) -> &mut Vec<u8> {
        match self {
            TaskMessage::Whole(head)
            | TaskMessage::Split(head, _)
            | TaskMessage::Exposed(head, _) => head,
        }
    }

    /// Returns the destination. `None` if there is no envelope, or it is no message of a
    /// program.
    pub fn destination(&mut self) -> Option<Tid> {
        let is_whole = matches!(self, TaskMessage::Whole(_));
        let head: &[u8; SIZE] = self.head().first_chunk()?;
        match What::of(head).ok()? {
            What::Message => Some(Tid(Envelope::parse(head).ok()?.header.destination as u32)),
            What::Part if is_whole => Some(Tid(Part::parse(head).destination as u32)),
            What::Part | What::Control => None,
        }
    }

    /// Sets the source. A task could forge the one that it sent.
    pub fn sent_by(mut self, source: Tid) -> TaskMessage {
        // Messages and parts both begin with the source.
        if let Some(word) = self.head().first_chunk_mut() {
            *word = source.0.to_le_bytes();
        }
        self
    }
}

/// Returns the bytes of a message before its data. `None` if they are incomplete, or the message
/// is a part.
pub fn head_size(bytes: &[u8]) -> Option<usize> {
    let size = SIZE + Envelope::parse(bytes).ok()?.table_size();
    (size <= bytes.len()).then_some(size)
}
