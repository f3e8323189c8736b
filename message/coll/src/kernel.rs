//! The loops of reductions: this library's for common operators on common numbers, the MPI's for
//! all others.

use std::ffi::c_int;

use outbox::kernel::{self, Loop};
use outbox::number::{self, Operation};
use outbox::spread::copy;

use crate::abi::{Handle, SUCCESS};
use crate::buffer::{Failed, contiguous_size};
use crate::mpi::Mpi;
use crate::types::{Function, Number, Operator};

/// The loop that combines elements of one type by one operator.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Bytes of an element.
    pub size: usize,
    /// True if the order of operands does not matter.
    pub is_commutative: bool,
    own: Option<Loop>,
    kind: Handle,
    operator: Handle,
}

impl Kernel {
    /// Returns the kernel of a type and an operator. `None`: the MPI runs the operation, or returns
    /// the error. All ranks get the same result, since they must pass the same operator.
    #[inline]
    pub fn new(mpi: &Mpi, kind: Handle, operator: Handle) -> Result<Option<Self>, Failed> {
        let (kind, operator) = (mpi.handle(kind), mpi.handle(operator));
        let named = mpi.types.named(kind);
        let kernel = match (mpi.types.function(operator), named) {
            (Function::Predefined(function), Some(named)) if function.is_for(named.class) => {
                let own = named.number.and_then(|number| own_loop(function, number));
                Self { size: named.size, is_commutative: true, own, kind, operator }
            }
            (Function::User, _) => {
                let size = match named {
                    Some(named) => Some(named.size),
                    None => contiguous_size(mpi, kind)?,
                };
                let Some(size) = size else { return Ok(None) };
                Self { size, is_commutative: false, own: None, kind, operator }
            }
            _ => return Ok(None),
        };
        Ok(Some(kernel))
    }

    /// Computes `to = left op right` for `count` elements.
    ///
    /// # Safety
    /// All three have `count` elements. `to` is `right`, or overlaps neither.
    #[inline]
    pub unsafe fn combine(
        &self,
        mpi: &Mpi,
        to: *mut u8,
        left: *const u8,
        right: *const u8,
        count: usize,
    ) -> Result<(), Failed> {
        if let Some(own) = self.own {
            // SAFETY: this function has the contract of the loop.
            unsafe { own(to, left, right, count) };
            return Ok(());
        }
        if !std::ptr::eq(to, right) {
            // SAFETY: both have `count` elements, and `to` does not overlap `right` if it is not
            // `right`.
            unsafe { copy(right, to, count * self.size) };
        }
        // SAFETY: both have `count` elements. Pieces are small, so the count fits into an `int`.
        let status =
            unsafe { (mpi.reduce_local)(left, to, count as c_int, self.kind, self.operator) };
        if status == SUCCESS { Ok(()) } else { Err(status) }
    }
}

fn own_loop(operator: Operator, number: Number) -> Option<Loop> {
    let operation = match operator {
        Operator::Sum => Operation::Sum,
        Operator::Prod => Operation::Product,
        Operator::Max => Operation::Max,
        Operator::Min => Operation::Min,
        _ => return None,
    };
    let number = match number {
        Number::I32 => number::Kind::I32,
        Number::I64 => number::Kind::I64,
        Number::U32 => number::Kind::U32,
        Number::U64 => number::Kind::U64,
        Number::F32 => number::Kind::F32,
        Number::F64 => number::Kind::F64,
    };
    kernel::find(operation, number)
}
