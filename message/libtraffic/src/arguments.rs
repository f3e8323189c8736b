//! The size and the receiver that the arguments of a call give.

use std::ffi::c_int;

use crate::counts::Counts;
use crate::mpi::{Mpi, Word};

/// The counted effects of a call.
#[derive(Clone, Copy)]
pub enum What {
    /// Nothing with a size: a barrier, a wait, a test.
    Plain,
    /// A message: its data, the receiver's rank and the communicator.
    Message(Data, Word, Word),
    /// Data without a receiver that is known: a receive, or a part in a collective operation.
    Data(Data),
    /// A part for each rank of a communicator.
    ToAll(Data, Word),
    /// Parts of several sizes: the address of their counts, the type, the communicator.
    Parts(Word, Word, Word),
    /// A persistent request that sends: its message, and the address of the request.
    Persistent(Data, Word, Word, Word),
    /// The start of some persistent requests: their number and address.
    Start(usize, Word),
}

/// Elements of a type.
#[derive(Clone, Copy)]
pub struct Data {
    /// The number of elements, of which the lower half counts.
    count: Word,
    kind: Word,
}

/// Returns true if a buffer's address is `MPI_IN_PLACE`: 1, or -1 in MPICH.
pub fn is_in_place(buffer: Word) -> bool {
    buffer == 1 || buffer == Word::MAX
}

impl Data {
    /// No elements.
    pub const NONE: Self = Self { count: 0, kind: 0 };

    /// Elements of a type.
    pub fn new(count: Word, kind: Word) -> Self {
        Self { count, kind }
    }

    /// This rank's data in an operation that may be in place (`MPI_IN_PLACE`): then `other` is.
    pub fn unless_in_place(self, buffer: Word, other: Data) -> Self {
        if is_in_place(buffer) { other } else { self }
    }

    fn bytes(self, mpi: &Mpi) -> u64 {
        match u64::try_from(self.count as c_int) {
            Ok(count @ 1..) => count.saturating_mul(mpi.type_bytes(self.kind)),
            _ => 0,
        }
    }
}

impl What {
    /// Counts messages, and returns the size of the call in bytes.
    ///
    /// # Safety
    /// The call that has these arguments has succeeded.
    pub unsafe fn count(self, mpi: &Mpi, counts: &mut Counts) -> u64 {
        match self {
            Self::Plain => 0,
            Self::Data(data) => data.bytes(mpi),
            Self::ToAll(data, comm) => data.bytes(mpi).saturating_mul(mpi.peers(comm)),
            Self::Message(_, to, _) | Self::Persistent(_, to, ..) if (to as c_int) < 0 => 0,
            Self::Message(data, to, comm) => {
                let bytes = data.bytes(mpi);
                counts.message(mpi, to as c_int, comm, bytes);
                bytes
            }
            Self::Parts(parts, kind, comm) => {
                if parts == 0 {
                    return 0;
                }
                let peers = mpi.peers(comm) as usize;
                // SAFETY: by MPI's standard there is a count for each rank.
                let parts = unsafe { std::slice::from_raw_parts(parts as *const c_int, peers) };
                let sum: u64 = parts.iter().map(|&part| part.max(0) as u64).sum();
                if sum == 0 { 0 } else { sum.saturating_mul(mpi.type_bytes(kind)) }
            }
            Self::Persistent(data, to, comm, request) => {
                let bytes = data.bytes(mpi);
                // SAFETY: the call has written the request.
                let request = unsafe { mpi.handle_at(request, 0) };
                counts.keep(mpi, request, to as c_int, comm, bytes);
                0
            }
            Self::Start(requests, address) => (0..requests)
                // SAFETY: the caller has started this number of requests.
                .map(|index| counts.started(unsafe { mpi.handle_at(address, index) }))
                .sum(),
        }
    }
}
