//! A rank's data as bytes in a row. What has gaps is packed by who gives it, and unpacked by who
//! takes it: so each rank's types are its own affair, as the standard has it.

use std::ffi::c_int;
use std::ptr;

use crate::mpi::{Handle, Mpi, SUCCESS};

/// An error of the MPI's, as its functions return it.
pub type Failed = c_int;

/// Most bytes that are packed at once: MPI counts them as an `int`.
const PIECE: usize = 1 << 30;

/// So many elements of a type in the program's memory.
#[derive(Clone, Copy)]
pub struct Elements {
    pub address: *mut u8,
    pub count: usize,
    pub kind: Handle,
    /// Bytes of one, without gaps.
    size: usize,
    /// Whether they lie in a row, without gaps.
    is_dense: bool,
}

fn check(status: c_int) -> Result<(), Failed> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

impl Elements {
    /// As a call names them.
    #[inline]
    pub fn new(mpi: &Mpi, address: *mut u8, count: usize, kind: Handle) -> Result<Self, Failed> {
        let kind = mpi.handle(kind);
        let (size, is_dense) = match mpi.types.named(kind) {
            Some(named) => (named.size, true),
            None => (size_of_type(mpi, kind)?, is_dense(mpi, kind)?),
        };
        Ok(Self { address, count, kind, size, is_dense })
    }

    /// How many bytes they are, without gaps.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.count * self.size
    }

    /// For others to read.
    #[inline]
    pub fn given(&self, mpi: &Mpi, comm: Handle) -> Result<Given, Failed> {
        if self.is_dense {
            return Ok(Given { address: self.address, _packed: Vec::new() });
        }
        let mut packed = vec![0; self.bytes()];
        let (mut from, mut to) = (self.address, packed.as_mut_slice());
        let extent = extent(mpi, self.kind)?;
        for count in self.pieces() {
            let (piece, rest) = to.split_at_mut(count * self.size);
            let (length, mut at) = (piece.len() as c_int, 0);
            // SAFETY: the program's elements, and room for what they are.
            check(unsafe {
                let to = piece.as_mut_ptr();
                (mpi.pack)(from, count as c_int, self.kind, to, length, &mut at, comm)
            })?;
            assert_eq!(at, length, "what MPI packs is not what it counts");
            from = from.wrapping_offset(count as isize * extent);
            to = rest;
        }
        Ok(Given { address: packed.as_mut_ptr(), _packed: packed })
    }

    /// For what comes.
    #[inline]
    pub fn taken(&self) -> Taken {
        if self.is_dense {
            return Taken { address: self.address, packed: Vec::new() };
        }
        let mut packed = vec![0; self.bytes()];
        Taken { address: packed.as_mut_ptr(), packed }
    }

    /// Brings what has come to where it belongs.
    #[inline]
    pub fn put(&self, mpi: &Mpi, comm: Handle, taken: Taken) -> Result<(), Failed> {
        if self.is_dense {
            return Ok(());
        }
        let (mut from, mut to) = (taken.packed.as_slice(), self.address);
        let extent = extent(mpi, self.kind)?;
        for count in self.pieces() {
            let (piece, rest) = from.split_at(count * self.size);
            let mut at = 0;
            // SAFETY: the program's elements, and all of their bytes.
            check(unsafe {
                let (from, length) = (piece.as_ptr(), piece.len() as c_int);
                (mpi.unpack)(from, length, &mut at, to, count as c_int, self.kind, comm)
            })?;
            to = to.wrapping_offset(count as isize * extent);
            from = rest;
        }
        Ok(())
    }

    /// Counts that can be packed at once.
    fn pieces(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, most) = (self.count, (PIECE / self.size.max(1)).max(1));
        (0..count).step_by(most).map(move |first| most.min(count - first))
    }
}

/// Bytes that others may read.
pub struct Given {
    /// Where.
    pub address: *mut u8,
    /// Keeps them.
    _packed: Vec<u8>,
}

/// Room for bytes.
pub struct Taken {
    /// Where.
    pub address: *mut u8,
    packed: Vec<u8>,
}

fn size_of_type(mpi: &Mpi, kind: Handle) -> Result<usize, Failed> {
    let mut size = 0;
    // SAFETY: writes a number.
    check(unsafe { (mpi.type_size)(kind, &mut size) })?;
    Ok(size.max(0) as usize)
}

fn extent(mpi: &Mpi, kind: Handle) -> Result<isize, Failed> {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: writes two numbers.
    check(unsafe { (mpi.type_get_extent)(kind, &mut lower, &mut extent) })?;
    Ok(extent)
}

/// Whether elements of this type, of which all ranks have the same one, lie in a row without
/// gaps, in whatever order inside: then how many bytes one is.
pub fn size_in_a_row(mpi: &Mpi, kind: Handle) -> Result<Option<usize>, Failed> {
    let size = size_of_type(mpi, kind)?;
    let mut bounds = [0isize; 4];
    let [lower, extent, true_lower, true_extent] = &mut bounds;
    // SAFETY: each writes two numbers.
    unsafe {
        check((mpi.type_get_extent)(kind, lower, extent))?;
        check((mpi.type_get_true_extent)(kind, true_lower, true_extent))?;
    }
    let whole = size as isize;
    Ok((size > 0 && bounds == [0, whole, 0, whole]).then_some(size))
}

/// Whether the bytes of a type lie in the order that it names them, without gaps: one of MPI's
/// own, or so many of such in a row. (Of others it is not asked: they are packed.)
fn is_dense(mpi: &Mpi, kind: Handle) -> Result<bool, Failed> {
    let [named, dup, contiguous] = mpi.combiners();
    let Envelope { numbers, others, kinds, combiner } = Envelope::of(mpi, kind)?;
    if combiner == named {
        return Ok(size_in_a_row(mpi, kind)?.is_some());
    }
    let is_row = combiner == dup || combiner == contiguous;
    if !is_row || numbers > 1 || others != 0 || kinds != 1 {
        return Ok(false);
    }
    let (mut count, mut of): (c_int, Handle) = (0, 0);
    // SAFETY: room for as much as was said.
    check(unsafe {
        (mpi.type_get_contents)(kind, numbers as c_int, 0, 1, &mut count, ptr::null_mut(), &mut of)
    })?;
    let of = &mut mpi.handle(of);
    let is_own = mpi.types.named(*of).is_some();
    let answer = if is_own { Ok(true) } else { is_dense(mpi, *of) };
    if !is_own && !is_named(mpi, *of) {
        // SAFETY: a handle that was made for us.
        unsafe { (mpi.type_free)(of) };
    }
    answer
}

fn is_named(mpi: &Mpi, kind: Handle) -> bool {
    Envelope::of(mpi, kind).map_or(true, |envelope| envelope.combiner == mpi.combiners()[0])
}

/// How a type was made: from how many numbers, addresses and large counts, and types.
struct Envelope {
    numbers: i64,
    others: i64,
    kinds: i64,
    combiner: c_int,
}

impl Envelope {
    fn of(mpi: &Mpi, kind: Handle) -> Result<Self, Failed> {
        let mut combiner = 0;
        if let Some(get) = mpi.type_get_envelope_c {
            let [mut numbers, mut addresses, mut counts, mut kinds] = [0; 4];
            // SAFETY: writes five numbers.
            check(unsafe {
                get(kind, &mut numbers, &mut addresses, &mut counts, &mut kinds, &mut combiner)
            })?;
            return Ok(Self { numbers, others: addresses + counts, kinds, combiner });
        }
        let [mut numbers, mut addresses, mut kinds] = [0; 3];
        let get = mpi.type_get_envelope;
        // SAFETY: writes four numbers.
        check(unsafe { get(kind, &mut numbers, &mut addresses, &mut kinds, &mut combiner) })?;
        let [numbers, others, kinds] = [numbers, addresses, kinds].map(i64::from);
        Ok(Self { numbers, others, kinds, combiner })
    }
}
