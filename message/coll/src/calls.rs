//! The MPI functions that this library exports. Wrong calls, and calls that it does not handle, are
//! passed to the MPI.
//!
//! The functions also exist under the names of the profiling interface. Tools before this library
//! call those, and so do Open MPI's Fortran functions.

use std::ffi::{c_char, c_int};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::abi::{Handle, SUCCESS};
use crate::assist;
use crate::both::both;
use crate::buffer::{Elements, Failed};
use crate::buffered;
use crate::counts;
use crate::exchange::Block;
use crate::kernel::Kernel;
use crate::mpi::{Mpi, mpi};
use crate::reduce::Receivers;
use crate::registry;
use crate::team::{self, Team};
use crate::wait;

/// Number of operations that this rank has done in place: `libnagaya-traffic.so` reports it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name of a symbol")]
pub static nagaya_coll_in_place: AtomicU64 = AtomicU64::new(0);

/// Counts an operation. If threads count at once, one of them may be lost: an atomic addition
/// would cost a short operation some percent of its time.
#[inline]
fn count_in_place() {
    nagaya_coll_in_place.store(nagaya_coll_in_place.load(Relaxed) + 1, Relaxed);
}

/// The result of a call; `None` if the call is passed to the MPI.
type Answer = Option<Result<(), Failed>>;

#[inline]
fn answer(answer: Answer, pass_on: impl FnOnce() -> c_int) -> c_int {
    match answer {
        Some(Ok(())) => {
            count_in_place();
            wait::finish();
            SUCCESS
        }
        Some(Err(error)) => error,
        None => pass_on(),
    }
}

fn rank_of(team: &Team, root: c_int) -> Option<usize> {
    usize::try_from(root).ok().filter(|&root| root < team.ranks)
}

both! { MPI_Init PMPI_Init (argc: *mut c_int, argv: *mut *mut *mut c_char) {
    registry::register();
    assist::register();
    // SAFETY: MPI's function gets the arguments of its caller.
    unsafe { (mpi().init)(argc, argv) }
} }

both! { MPI_Init_thread PMPI_Init_thread (
    argc: *mut c_int,
    argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) {
    registry::register();
    assist::register();
    // SAFETY: MPI's function gets the arguments of its caller.
    unsafe { (mpi().init_thread)(argc, argv, required, provided) }
} }

both! { MPI_Finalize PMPI_Finalize () {
    let mpi = mpi();
    buffered::finish(mpi);
    // SAFETY: the call is the caller's.
    unsafe { (mpi.finalize)() }
} }

both! { MPI_Barrier PMPI_Barrier (comm: Handle) {
    let mpi = mpi();
    match team::of(mpi.handle(comm)) {
        Some(team) => {
            team.barrier();
            count_in_place();
            wait::progress();
            SUCCESS
        }
        // SAFETY: MPI's function gets the arguments of its caller.
        None => unsafe { (mpi.barrier)(comm) },
    }
} }

#[inline]
fn bcast(
    mpi: &Mpi,
    buffer: *mut u8,
    count: i64,
    kind: Handle,
    root: c_int,
    comm: Handle,
) -> Answer {
    let team = team::of(mpi.handle(comm))?;
    let (count, root) = (usize::try_from(count).ok()?, rank_of(team, root)?);
    Some(Elements::new(mpi, buffer, count, kind).and_then(|data| team.bcast(mpi, data, root)))
}

#[inline]
fn allreduce(
    mpi: &Mpi,
    [from, to]: [*mut u8; 2],
    count: i64,
    kind: Handle,
    operator: Handle,
    comm: Handle,
) -> Answer {
    let team = team::of(mpi.handle(comm))?;
    let count = usize::try_from(count).ok().filter(|&count| count > 0)?;
    let kernel = match Kernel::new(mpi, kind, operator) {
        Ok(kernel) => kernel?,
        Err(error) => return Some(Err(error)),
    };
    let from = if from.addr() == mpi.in_place() { to } else { from };
    Some(team.reduce(mpi, &kernel, from, to, count, Receivers::All))
}

#[inline]
fn reduce(
    mpi: &Mpi,
    [from, to]: [*mut u8; 2],
    count: i64,
    kind: Handle,
    operator: Handle,
    root: c_int,
    comm: Handle,
) -> Answer {
    let team = team::of(mpi.handle(comm))?;
    let root = rank_of(team, root)?;
    let count = usize::try_from(count).ok().filter(|&count| count > 0)?;
    let kernel = match Kernel::new(mpi, kind, operator) {
        Ok(kernel) => kernel?,
        Err(error) => return Some(Err(error)),
    };
    let from = if from.addr() == mpi.in_place() { to } else { from };
    Some(team.reduce(mpi, &kernel, from, to, count, Receivers::Root(root)))
}

/// A buffer, and the count and type of each rank's part of it.
type Parts = (*mut u8, i64, Handle);

#[inline]
fn exchange(mpi: &Mpi, [input, output]: [Parts; 2], comm: Handle, block: Block) -> Answer {
    let team = team::of(mpi.handle(comm))?;
    let elements = |(address, count, kind): Parts, parts: usize| {
        let count = usize::try_from(count).ok()?.checked_mul(parts)?;
        Some(Elements::new(mpi, address, count, kind))
    };
    let parts = if block == Block::Whole { 1 } else { team.ranks };
    let is_in_place = input.0.addr() == mpi.in_place();
    let input = if is_in_place { None } else { Some(elements(input, parts)?) };
    let output = elements(output, team.ranks)?;
    Some(input.transpose().and_then(|input| team.exchange(mpi, input, output?, block)))
}

/// Defines the operations with counts of one type.
macro_rules! calls {
    ($count:ty, $mpis:expr; $bcast:ident $pbcast:ident, $reduce:ident $preduce:ident,
     $allreduce:ident $pallreduce:ident, $allgather:ident $pallgather:ident,
     $alltoall:ident $palltoall:ident) => {
        both! { $bcast $pbcast (
            buffer: *mut u8, count: $count, kind: Handle, root: c_int, comm: Handle,
        ) {
            let mpi = mpi();
            answer(bcast(mpi, buffer, count.into(), kind, root, comm), || {
                // SAFETY: MPI's function gets the arguments of its caller.
                unsafe { ($mpis(mpi).bcast)(buffer, count, kind, root, comm) }
            })
        } }

        both! { $reduce $preduce (
            from: *mut u8, to: *mut u8, count: $count, kind: Handle, operator: Handle,
            root: c_int, comm: Handle,
        ) {
            let mpi = mpi();
            answer(reduce(mpi, [from, to], count.into(), kind, operator, root, comm), || {
                // SAFETY: MPI's function gets the arguments of its caller.
                unsafe { ($mpis(mpi).reduce)(from, to, count, kind, operator, root, comm) }
            })
        } }

        both! { $allreduce $pallreduce (
            from: *mut u8, to: *mut u8, count: $count, kind: Handle, operator: Handle,
            comm: Handle,
        ) {
            let mpi = mpi();
            answer(allreduce(mpi, [from, to], count.into(), kind, operator, comm), || {
                // SAFETY: MPI's function gets the arguments of its caller.
                unsafe { ($mpis(mpi).allreduce)(from, to, count, kind, operator, comm) }
            })
        } }

        calls!(@exchange $count, $mpis; $allgather $pallgather allgather, Block::Whole);
        calls!(@exchange $count, $mpis; $alltoall $palltoall alltoall, Block::Own);
    };
    (@exchange $count:ty, $mpis:expr; $name:ident $profiled:ident $operation:ident, $block:expr) => {
        both! { $name $profiled (
            from: *mut u8, gives: $count, given: Handle, to: *mut u8, takes: $count,
            taken: Handle, comm: Handle,
        ) {
            let mpi = mpi();
            let parts = [(from, gives.into(), given), (to, takes.into(), taken)];
            answer(exchange(mpi, parts, comm, $block), || {
                // SAFETY: MPI's function gets the arguments of its caller.
                unsafe { ($mpis(mpi).$operation)(from, gives, given, to, takes, taken, comm) }
            })
        } }
    };
}

calls! {
    c_int, |mpi: &'static Mpi| &mpi.short;
    MPI_Bcast PMPI_Bcast, MPI_Reduce PMPI_Reduce, MPI_Allreduce PMPI_Allreduce,
    MPI_Allgather PMPI_Allgather, MPI_Alltoall PMPI_Alltoall
}
calls! {
    i64, |mpi: &'static Mpi| mpi.long.as_ref().unwrap_or(&counts::OPERATIONS);
    MPI_Bcast_c PMPI_Bcast_c, MPI_Reduce_c PMPI_Reduce_c, MPI_Allreduce_c PMPI_Allreduce_c,
    MPI_Allgather_c PMPI_Allgather_c, MPI_Alltoall_c PMPI_Alltoall_c
}
