//! The size and the receiver that the arguments of a call give.

use std::ffi::c_int;

use crate::counts::Counts;
use crate::mpi::{Mpi, Word};

/// The type of a function's counts.
#[derive(Clone, Copy)]
pub enum Count {
    /// `int`. The upper half of the word is undefined.
    Int,
    /// `MPI_Count`, with 64 bits.
    Large,
}

/// The counted effects of a call.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// Nothing with a size: a barrier, a wait, a test.
    Plain,
    /// A message: its data, the receiver's rank and the communicator.
    Message(Data, Word, Word),
    /// Data without a receiver that is known: a receive, or a part in a collective operation.
    Data(Data),
    /// A part for each rank of a communicator.
    ToAll(Data, Word),
    /// Parts of several sizes: the address of their counts, the type, the communicator.
    Parts(Counted, Word, Word),
    /// Parts of several sizes and types: the addresses of their counts and types, the communicator.
    PartsOfTypes(Counted, Word, Word),
    /// A new persistent request: the effect of each start, and the address of the request.
    Persistent(&'a What<'a>, Word),
    /// The start of some persistent requests: their number and address.
    Start(usize, Word),
}

/// Elements of a type.
#[derive(Clone, Copy)]
pub struct Data {
    /// The number of elements.
    count: u64,
    kind: Word,
}

/// An array of counts.
#[derive(Clone, Copy)]
pub struct Counted {
    of: Count,
    address: Word,
}

/// Returns true if a buffer's address is `MPI_IN_PLACE`: 1, or -1 in MPICH.
fn is_in_place(buffer: Word) -> bool {
    buffer == 1 || buffer == Word::MAX
}

impl Count {
    /// Returns the count in an argument; 0 for a negative one.
    pub fn value(self, word: Word) -> u64 {
        let count = match self {
            Self::Int => i64::from(word as c_int),
            Self::Large => word as i64,
        };
        count.max(0).cast_unsigned()
    }

    /// Elements of a type.
    pub fn data(self, count: Word, kind: Word) -> Data {
        Data { count: self.value(count), kind }
    }

    /// An array of counts at an address.
    pub fn array(self, address: Word) -> Counted {
        Counted { of: self, address }
    }
}

impl Data {
    /// No elements.
    pub const NONE: Self = Self { count: 0, kind: 0 };

    /// This data, this number of times.
    pub fn times(self, times: u64) -> Self {
        Self { count: self.count.saturating_mul(times), ..self }
    }

    /// This rank's data in an operation that may be in place (`MPI_IN_PLACE`): then `other` is.
    pub fn unless_in_place(self, buffer: Word, other: Data) -> Self {
        if is_in_place(buffer) { other } else { self }
    }

    fn bytes(self, mpi: &Mpi) -> u64 {
        if self.count == 0 { 0 } else { self.count.saturating_mul(mpi.type_bytes(self.kind)) }
    }
}

impl Counted {
    /// Returns the count with this index.
    ///
    /// # Safety
    /// The array has such a count.
    unsafe fn at(self, index: usize) -> u64 {
        // SAFETY: the count exists by this function's contract, and has the type `of`.
        let word = unsafe {
            match self.of {
                Count::Int => *(self.address as *const c_int).add(index) as Word,
                Count::Large => *(self.address as *const Word).add(index),
            }
        };
        self.of.value(word)
    }
}

impl What<'_> {
    /// The parts of an operation that may be in place (`MPI_IN_PLACE`): then `other` is.
    pub fn unless_in_place(self, buffer: Word, other: Self) -> Self {
        if is_in_place(buffer) { other } else { self }
    }

    /// Counts messages, and returns the size of the call in bytes.
    ///
    /// # Safety
    /// The call that has these arguments has succeeded.
    pub unsafe fn count(self, mpi: &Mpi, counts: &mut Counts) -> u64 {
        // SAFETY: the call has succeeded by this function's contract.
        let bytes = unsafe { self.bytes(mpi) };
        match self {
            Self::Message(_, to, comm) => {
                counts.message(mpi, to as c_int, comm, bytes);
                bytes
            }
            Self::Persistent(what, request) => {
                // SAFETY: the call has written the request.
                let request = unsafe { mpi.handle_at(request, 0) };
                match *what {
                    Self::Message(_, to, comm) => {
                        counts.keep_message(mpi, request, to as c_int, comm, bytes);
                    }
                    _ => counts.keep(request, bytes),
                }
                0
            }
            Self::Start(requests, address) => (0..requests)
                // SAFETY: the caller has started this number of requests.
                .map(|index| counts.started(unsafe { mpi.handle_at(address, index) }))
                .sum(),
            _ => bytes,
        }
    }

    /// Returns the size that the arguments give, in bytes.
    ///
    /// # Safety
    /// The call that has these arguments has succeeded.
    unsafe fn bytes(self, mpi: &Mpi) -> u64 {
        match self {
            Self::Plain | Self::Start(..) => 0,
            // A message to MPI_PROC_NULL is none.
            Self::Message(_, to, _) if (to as c_int) < 0 => 0,
            Self::Data(data) | Self::Message(data, ..) => data.bytes(mpi),
            Self::ToAll(data, comm) => data.bytes(mpi).saturating_mul(mpi.peers(comm)),
            // SAFETY: the call has succeeded by this function's contract.
            Self::Persistent(what, _) => unsafe { what.bytes(mpi) },
            Self::Parts(Counted { address: 0, .. }, ..)
            | Self::PartsOfTypes(Counted { address: 0, .. }, ..) => 0,
            Self::Parts(parts, kind, comm) => {
                let ranks = 0..mpi.peers(comm) as usize;
                // SAFETY: by MPI's standard there is a count for each rank.
                let count = ranks.map(|rank| unsafe { parts.at(rank) }).sum();
                Data { count, kind }.bytes(mpi)
            }
            Self::PartsOfTypes(parts, kinds, comm) => (0..mpi.peers(comm) as usize)
                // SAFETY: by MPI's standard there is a count and a type for each rank.
                .map(|rank| unsafe { (parts.at(rank), mpi.handle_at(kinds, rank)) })
                .map(|(count, kind)| Data { count, kind }.bytes(mpi))
                .sum(),
        }
    }
}
