//! Collective operations of teams. A wrong team is no error of the job: the functions return -1.

use std::ffi::{c_int, c_void};

use outbox::kernel::{self, Loop};
use outbox::number::{Complex, Kind, LongDouble, Operation};

use crate::abi::export::export;
use crate::abi::types::rma_types;
use crate::collectives::channel::{self, Channel};
use crate::collectives::reduce::Kernel;
use crate::collectives::spread::Call;
use crate::fatal::fatal;
use crate::rma;
use crate::strides::Strides;
use crate::team::{self, Handle};

/// Calls an operation of a team. Returns the result of the C function.
#[inline(always)]
fn on_team(f: &'static str, team: Handle, operation: impl FnOnce(&mut Channel)) -> c_int {
    let Some(team) = team::get(f, team) else { return -1 };
    operation(&mut channel::of(f, team));
    0
}

/// Returns the arguments of an operation on `n` elements of `size` bytes.
#[inline(always)]
pub fn call(
    f: &'static str,
    dest: *mut c_void,
    source: *const c_void,
    n: usize,
    size: usize,
) -> Call {
    // A size that saturates is not in symmetric memory.
    Call { f, dest: dest.cast(), source: source.cast(), bytes: n.saturating_mul(size) }
}

/// Broadcasts from a PE of the team. The names of arguments are those of the standard.
pub fn broadcast(channel: &mut Channel, call: Call, root: c_int, is_full: bool) {
    let Some(root) = usize::try_from(root).ok().filter(|&root| root < channel.n()) else {
        fatal!(call.f, "PE_root {root} does not exist; there are {} PEs", channel.n())
    };
    // SAFETY: the standard's contract of the caller.
    unsafe { channel.broadcast(call, root, is_full) }
}

/// Exchanges elements at a distance.
pub fn alltoalls(channel: &mut Channel, call: Call, size: usize, [target, source]: [isize; 2]) {
    if target < 1 || source < 1 {
        fatal!(call.f, "a stride is less than 1: dst {target}, sst {source}");
    }
    let strides = Strides { element: size, target, source, n: call.bytes / size };
    // SAFETY: the standard's contract of the caller.
    unsafe { channel.alltoalls(call.f, call.dest, call.source, strides) }
}

export!(["barrier_all"] () {
    let f = "shmem_barrier_all";
    rma::quiet();
    channel::of(f, team::world(f)).sync(f);
});
export!(["sync_all"] () {
    let f = "shmem_sync_all";
    channel::of(f, team::world(f)).sync(f);
});
export!(["team_sync"] (team: Handle) -> c_int {
    on_team("shmem_team_sync", team, |channel| channel.sync("shmem_team_sync"))
});

/// Exports the operations that move elements of a size.
macro_rules! moves {
    ($size:expr, [$($broadcast:tt)*], [$($collect:tt)*], [$($fcollect:tt)*], [$($alltoall:tt)*],
        [$($alltoalls:tt)*]) => {
        export!([$($broadcast)*] (team: Handle, dest: *mut c_void, source: *const c_void,
            n: usize, root: c_int) -> c_int {
            let call = call(concat!("shmem_", $($broadcast)*), dest, source, n, $size);
            on_team(call.f, team, |channel| broadcast(channel, call, root, true))
        });
        export!([$($collect)*] (team: Handle, dest: *mut c_void, source: *const c_void,
            n: usize) -> c_int {
            let call = call(concat!("shmem_", $($collect)*), dest, source, n, $size);
            // SAFETY: the standard's contract of this function.
            on_team(call.f, team, |channel| unsafe { channel.collect(call, false) })
        });
        export!([$($fcollect)*] (team: Handle, dest: *mut c_void, source: *const c_void,
            n: usize) -> c_int {
            let call = call(concat!("shmem_", $($fcollect)*), dest, source, n, $size);
            // SAFETY: the standard's contract of this function.
            on_team(call.f, team, |channel| unsafe { channel.collect(call, true) })
        });
        export!([$($alltoall)*] (team: Handle, dest: *mut c_void, source: *const c_void,
            n: usize) -> c_int {
            let call = call(concat!("shmem_", $($alltoall)*), dest, source, n, $size);
            // SAFETY: the standard's contract of this function.
            on_team(call.f, team, |channel| unsafe { channel.alltoall(call) })
        });
        export!([$($alltoalls)*] (team: Handle, dest: *mut c_void, source: *const c_void,
            dst: isize, sst: isize, n: usize) -> c_int {
            let call = call(concat!("shmem_", $($alltoalls)*), dest, source, n, $size);
            on_team(call.f, team, |channel| alltoalls(channel, call, $size, [dst, sst]))
        });
    };
}

macro_rules! moves_row {
    ($name:ident $type:ty) => {
        moves!(
            size_of::<$type>(),
            [stringify!($name), "_broadcast"],
            [stringify!($name), "_collect"],
            [stringify!($name), "_fcollect"],
            [stringify!($name), "_alltoall"],
            [stringify!($name), "_alltoalls"]
        );
    };
}
rma_types!(moves_row);
moves!(1, ["broadcastmem"], ["collectmem"], ["fcollectmem"], ["alltoallmem"], ["alltoallsmem"]);

/// A type of elements.
pub trait Number {
    /// Its kind.
    const KIND: Kind;
}
macro_rules! kinds {
    ($($type:ty: $kind:ident),*) => {
        $(impl Number for $type { const KIND: Kind = Kind::$kind; })*
    };
}
kinds!(i8: I8, i16: I16, i32: I32, i64: I64, u8: U8, u16: U16, u32: U32, u64: U64, f32: F32,
    f64: F64, LongDouble: LongDouble, Complex<f32>: Complex32, Complex<f64>: Complex64);

/// Returns the kernel of an operation on a type, which must exist.
pub const fn kernel<T: Number>(operation: Operation) -> Kernel {
    match kernel::find(operation, T::KIND) {
        Some(run) => Kernel { size: T::KIND.size(), run: run as Loop },
        None => panic!("the type has no such operation"),
    }
}

/// Exports a reduction.
macro_rules! reduce {
    ($operation:ident $type:ty, [$($name:tt)*]) => {
        export!([$($name)*] (team: Handle, dest: *mut c_void, source: *const c_void,
            n: usize) -> c_int {
            const KERNEL: Kernel = kernel::<$type>(Operation::$operation);
            let call = call(concat!("shmem_", $($name)*), dest, source, n, KERNEL.size);
            // SAFETY: the standard's contract of this function.
            on_team(call.f, team, |channel| unsafe { channel.reduce(call, KERNEL) })
        });
    };
}

/// Exports a prefix sum.
macro_rules! scan {
    ($type:ty, $is_inclusive:expr, [$($name:tt)*]) => {
        export!([$($name)*] (team: Handle, dest: *mut c_void, source: *const c_void,
            n: usize) -> c_int {
            const KERNEL: Kernel = kernel::<$type>(Operation::Sum);
            let call = call(concat!("shmem_", $($name)*), dest, source, n, KERNEL.size);
            // SAFETY: the standard's contract of this function.
            on_team(call.f, team, |channel| unsafe { channel.scan(call, KERNEL, $is_inclusive) })
        });
    };
}

macro_rules! sums {
    ($name:ident $type:ty) => {
        reduce!(Sum $type, [stringify!($name), "_sum_reduce"]);
        reduce!(Product $type, [stringify!($name), "_prod_reduce"]);
        scan!($type, true, [stringify!($name), "_sum_inscan"]);
        scan!($type, false, [stringify!($name), "_sum_exscan"]);
    };
}

macro_rules! ordered {
    ($name:ident $type:ty) => {
        reduce!(Max $type, [stringify!($name), "_max_reduce"]);
        reduce!(Min $type, [stringify!($name), "_min_reduce"]);
        sums!($name $type);
    };
}

macro_rules! bits {
    ($name:ident $type:ty) => {
        reduce!(And $type, [stringify!($name), "_and_reduce"]);
        reduce!(Or $type, [stringify!($name), "_or_reduce"]);
        reduce!(Xor $type, [stringify!($name), "_xor_reduce"]);
    };
}

crate::abi::types::value_types!(ordered);
ordered!(longdouble LongDouble);
sums!(complexf Complex<f32>);
sums!(complexd Complex<f64>);
crate::abi::types::bit_types!(bits);
