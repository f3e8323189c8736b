//! A rank's data as contiguous bytes. The sender packs data with gaps, and the receiver unpacks it.
//! So each rank may use its own types, as MPI's standard allows.

use std::ffi::c_int;
use std::ptr;

use crate::abi::{Handle, SUCCESS};
use crate::mpi::Mpi;

/// An error code of the MPI.
pub type Failed = c_int;

/// Most bytes that are packed at once. MPI counts them by an `int`.
const PIECE: usize = 1 << 30;

/// Elements of one type in the program's memory.
#[derive(Clone, Copy)]
pub struct Elements {
    pub address: *mut u8,
    pub count: usize,
    pub kind: Handle,
    /// Bytes of an element, without gaps.
    size: usize,
    /// True if the elements are contiguous, without gaps.
    is_dense: bool,
}

fn check(status: c_int) -> Result<(), Failed> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

impl Elements {
    /// Returns the elements that a call names.
    #[inline]
    pub fn new(mpi: &Mpi, address: *mut u8, count: usize, kind: Handle) -> Result<Self, Failed> {
        let kind = mpi.handle(kind);
        let (size, is_dense) = match mpi.types.named(kind) {
            Some(named) => (named.size, true),
            None => (size_of_type(mpi, kind)?, is_dense(mpi, kind)?),
        };
        Ok(Self { address, count, kind, size, is_dense })
    }

    /// Returns the number of bytes, without gaps.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.count * self.size
    }

    /// Returns the elements as contiguous bytes, which other ranks may read.
    #[inline]
    pub fn source(&self, mpi: &Mpi, comm: Handle) -> Result<Source, Failed> {
        if self.is_dense {
            return Ok(Source { address: self.address, _packed: Vec::new() });
        }
        let mut packed = vec![0; self.bytes()];
        let (mut from, mut to) = (self.address, packed.as_mut_slice());
        let extent = extent(mpi, self.kind)?;
        for count in self.pieces() {
            let (piece, rest) = to.split_at_mut(count * self.size);
            let (length, mut at) = (piece.len() as c_int, 0);
            // SAFETY: the program passed these elements, and `piece` has room for their bytes.
            call_with_address(mpi, from, count as c_int, self.kind, |from, count, kind| unsafe {
                (mpi.pack)(from, count, kind, piece.as_mut_ptr(), length, &mut at, comm)
            })?;
            assert_eq!(at, length, "MPI packs as many bytes as it counts");
            from = from.wrapping_offset(count as isize * extent);
            to = rest;
        }
        Ok(Source { address: packed.as_mut_ptr(), _packed: packed })
    }

    /// Returns contiguous memory for data that arrives for these elements.
    #[inline]
    pub fn target(&self) -> Target {
        if self.is_dense {
            return Target { address: self.address, packed: Vec::new() };
        }
        let mut packed = vec![0; self.bytes()];
        Target { address: packed.as_mut_ptr(), packed }
    }

    /// Unpacks the data in `target` into the elements.
    #[inline]
    pub fn unpack(&self, mpi: &Mpi, comm: Handle, target: Target) -> Result<(), Failed> {
        if self.is_dense {
            return Ok(());
        }
        let (mut from, mut to) = (target.packed.as_slice(), self.address);
        let extent = extent(mpi, self.kind)?;
        for count in self.pieces() {
            let (piece, rest) = from.split_at(count * self.size);
            let mut at = 0;
            // SAFETY: the program passed these elements, and `piece` has all of their bytes.
            call_with_address(mpi, to, count as c_int, self.kind, |to, count, kind| unsafe {
                let (from, length) = (piece.as_ptr(), piece.len() as c_int);
                (mpi.unpack)(from, length, &mut at, to, count, kind, comm)
            })?;
            to = to.wrapping_offset(count as isize * extent);
            from = rest;
        }
        Ok(())
    }

    /// Returns the counts of the pieces that are packed at once.
    fn pieces(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, most) = (self.count, (PIECE / self.size.max(1)).max(1));
        (0..count).step_by(most).map(move |first| most.min(count - first))
    }
}

/// Contiguous bytes that other ranks may read.
pub struct Source {
    /// Address of the bytes.
    pub address: *mut u8,
    /// Owns the bytes, if they were packed.
    _packed: Vec<u8>,
}

/// Contiguous memory for data that arrives.
pub struct Target {
    /// Address of the memory.
    pub address: *mut u8,
    packed: Vec<u8>,
}

/// Passes address, count and type of elements to a function of the MPI.
///
/// MPI_Pack and MPI_Unpack of MPICH 4 refuse MPI_BOTTOM, which is null, as address of a type with
/// absolute addresses. They get such elements by a type that begins before them.
fn call_with_address(
    mpi: &Mpi,
    address: *mut u8,
    count: c_int,
    kind: Handle,
    function: impl FnOnce(*mut u8, c_int, Handle) -> c_int,
) -> Result<(), Failed> {
    const SHIFT: usize = 1 << 12;
    if !address.is_null() {
        return check(function(address, count, kind));
    }
    let (offset, mut shifted) = (-(SHIFT as isize), 0);
    // SAFETY: MPI reads one count and one displacement, and writes a handle.
    check(unsafe { (mpi.type_create_hindexed)(1, &count, &offset, kind, &mut shifted) })?;
    // SAFETY: MPI_Type_create_hindexed made this type.
    let committed = check(unsafe { (mpi.type_commit)(&mut shifted) });
    let start = ptr::without_provenance_mut(SHIFT);
    let result = committed.and_then(|()| check(function(start, 1, shifted)));
    // SAFETY: the type was made above, and the call that used it has returned.
    unsafe { (mpi.type_free)(&mut shifted) };
    result
}

fn size_of_type(mpi: &Mpi, kind: Handle) -> Result<usize, Failed> {
    let mut size = 0;
    // SAFETY: MPI writes one number.
    check(unsafe { (mpi.type_size)(kind, &mut size) })?;
    Ok(size.max(0) as usize)
}

fn extent(mpi: &Mpi, kind: Handle) -> Result<isize, Failed> {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: MPI writes two numbers.
    check(unsafe { (mpi.type_get_extent)(kind, &mut lower, &mut extent) })?;
    Ok(extent)
}

/// Returns the bytes of an element if elements of this type are contiguous without gaps. The order
/// of the bytes within an element does not matter, since all ranks use the same type.
pub fn contiguous_size(mpi: &Mpi, kind: Handle) -> Result<Option<usize>, Failed> {
    let size = size_of_type(mpi, kind)?;
    let mut bounds = [0isize; 4];
    let [lower, extent, true_lower, true_extent] = &mut bounds;
    // SAFETY: each call writes two numbers.
    unsafe {
        check((mpi.type_get_extent)(kind, lower, extent))?;
        check((mpi.type_get_true_extent)(kind, true_lower, true_extent))?;
    }
    let whole = size as isize;
    Ok((size > 0 && bounds == [0, whole, 0, whole]).then_some(size))
}

/// Returns true if the bytes of a type are in the order of its definition, without gaps: a
/// predefined type, or an array of one. Other types are packed.
fn is_dense(mpi: &Mpi, kind: Handle) -> Result<bool, Failed> {
    let [named, dup, contiguous] = mpi.combiners();
    let Envelope { numbers, others, kinds, combiner } = Envelope::of(mpi, kind)?;
    if combiner == named {
        return Ok(contiguous_size(mpi, kind)?.is_some());
    }
    let is_array = combiner == dup || combiner == contiguous;
    if !is_array || numbers > 1 || others != 0 || kinds != 1 {
        return Ok(false);
    }
    let (mut count, mut of): (c_int, Handle) = (0, 0);
    // SAFETY: `Envelope::of` returned these numbers of items for this type.
    check(unsafe {
        (mpi.type_get_contents)(kind, numbers as c_int, 0, 1, &mut count, ptr::null_mut(), &mut of)
    })?;
    let of = &mut mpi.handle(of);
    let is_predefined = mpi.types.named(*of).is_some();
    let answer = if is_predefined { Ok(true) } else { is_dense(mpi, *of) };
    if !is_predefined && !is_named(mpi, *of) {
        // SAFETY: MPI_Type_get_contents made this handle for the caller.
        unsafe { (mpi.type_free)(of) };
    }
    answer
}

fn is_named(mpi: &Mpi, kind: Handle) -> bool {
    Envelope::of(mpi, kind).map_or(true, |envelope| envelope.combiner == mpi.combiners()[0])
}

/// The envelope of a type: the numbers of integers, of addresses and large counts, and of types.
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
            // SAFETY: MPI writes five numbers.
            check(unsafe {
                get(kind, &mut numbers, &mut addresses, &mut counts, &mut kinds, &mut combiner)
            })?;
            return Ok(Self { numbers, others: addresses + counts, kinds, combiner });
        }
        let [mut numbers, mut addresses, mut kinds] = [0; 3];
        let get = mpi.type_get_envelope;
        // SAFETY: MPI writes four numbers.
        check(unsafe { get(kind, &mut numbers, &mut addresses, &mut kinds, &mut combiner) })?;
        let [numbers, others, kinds] = [numbers, addresses, kinds].map(i64::from);
        Ok(Self { numbers, others, kinds, combiner })
    }
}
