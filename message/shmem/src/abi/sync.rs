//! Point-to-point synchronization: waiting for values of this PE's symmetric objects, and testing
//! them.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use crate::abi::export::export;
use crate::abi::types::sync_types;
use crate::fatal::fatal;
use crate::{job, wait};

/// An integer that another PE may change at any time.
trait Value: Copy + PartialOrd {
    /// Reads the value.
    ///
    /// # Safety
    /// The object is readable and aligned.
    unsafe fn load(at: *const Self) -> Self;
}

macro_rules! value {
    ($($type:ty: $atomic:ty),*) => {$(
        impl Value for $type {
            #[inline(always)]
            unsafe fn load(at: *const Self) -> Self {
                // SAFETY: this function has the contract of the reference.
                unsafe { &*at.cast::<$atomic>() }.load(Acquire) as Self
            }
        }
    )*};
}
value!(i16: AtomicU16, u16: AtomicU16, i32: AtomicU32, u32: AtomicU32, i64: AtomicU64,
    u64: AtomicU64);

/// Returns true if the comparison holds. The operators are `SHMEM_CMP_EQ` to `SHMEM_CMP_LE`.
#[inline(always)]
fn holds<T: PartialOrd>(f: &str, value: T, operator: c_int, other: T) -> bool {
    match operator {
        0 => value == other,
        1 => value != other,
        2 => value > other,
        3 => value >= other,
        4 => value < other,
        5 => value <= other,
        _ => fatal!(f, "{operator} is no comparison"),
    }
}

/// The first object for the next `test_any`.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The objects of a call: `n` of them, each with the value that it is compared with, without those
/// that `status` excludes.
#[derive(Clone, Copy)]
struct Objects<T> {
    f: &'static str,
    at: *const T,
    n: usize,
    status: *const c_int,
    operator: c_int,
    /// One value, or one for each object.
    values: *const T,
    is_vector: bool,
}

impl<T: Value> Objects<T> {
    /// Returns true if the object is not excluded.
    fn is_in(&self, n: usize) -> bool {
        // SAFETY: the standard's contract: null, or one number for each object.
        self.status.is_null() || unsafe { *self.status.add(n) } == 0
    }

    /// Returns true if the comparison of an object holds.
    fn holds(&self, n: usize) -> bool {
        let at = if self.is_vector { n } else { 0 };
        // SAFETY: the standard's contract: the objects and the values exist.
        let (value, other) = unsafe { (T::load(self.at.add(n)), *self.values.add(at)) };
        holds(self.f, value, self.operator, other)
    }

    /// The objects that are not excluded.
    fn all(&self) -> impl Iterator<Item = usize> {
        (0..self.n).filter(|&n| self.is_in(n))
    }

    fn test_all(&self) -> bool {
        self.all().all(|n| self.holds(n))
    }

    /// Returns an object whose comparison holds. The search begins behind the object of the former
    /// call, so that no object is passed over for ever.
    fn test_any(&self) -> Option<usize> {
        let first = NEXT.load(Relaxed) % self.n.max(1);
        let mut in_turn = (first..self.n).chain(0..first);
        let found = in_turn.find(|&n| self.is_in(n) && self.holds(n))?;
        NEXT.store(found + 1, Relaxed);
        Some(found)
    }

    /// Writes the indices of the objects whose comparisons hold, and returns their number.
    unsafe fn test_some(&self, indices: *mut usize) -> usize {
        let mut found = 0;
        for n in self.all().filter(|&n| self.holds(n)) {
            // SAFETY: the standard's contract: room for an index of each object.
            unsafe { *indices.add(found) = n };
            found += 1;
        }
        found
    }

    fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }
}

/// Exports the functions of a type on several objects, compared with one value or with one each.
macro_rules! several {
    ($name:ident $type:ty, $suffix:literal, $vector:literal, $values:ty, $to:expr) => {
        export!([stringify!($name), "_wait_until_all", $suffix] (at: *const $type, n: usize,
            status: *const c_int, operator: c_int, values: $values) {
            let f = concat!("shmem_", stringify!($name), "_wait_until_all", $suffix);
            let values: *const $type = $to(&values);
            let objects = Objects { f, at, n, status, operator, values, is_vector: $vector };
            wait::until(job::get(f), || objects.test_all().then_some(()));
        });
        export!([stringify!($name), "_wait_until_any", $suffix] (at: *const $type, n: usize,
            status: *const c_int, operator: c_int, values: $values) -> usize {
            let f = concat!("shmem_", stringify!($name), "_wait_until_any", $suffix);
            let values: *const $type = $to(&values);
            let objects = Objects { f, at, n, status, operator, values, is_vector: $vector };
            if objects.is_empty() {
                return usize::MAX;
            }
            wait::until(job::get(f), || objects.test_any())
        });
        export!([stringify!($name), "_wait_until_some", $suffix] (at: *const $type, n: usize,
            indices: *mut usize, status: *const c_int, operator: c_int, values: $values) -> usize {
            let f = concat!("shmem_", stringify!($name), "_wait_until_some", $suffix);
            let values: *const $type = $to(&values);
            let objects = Objects { f, at, n, status, operator, values, is_vector: $vector };
            if objects.is_empty() {
                return 0;
            }
            wait::until(job::get(f), || {
                // SAFETY: the standard's contract: room for an index of each object.
                let found = unsafe { objects.test_some(indices) };
                (found > 0).then_some(found)
            })
        });
        export!([stringify!($name), "_test_all", $suffix] (at: *const $type, n: usize,
            status: *const c_int, operator: c_int, values: $values) -> c_int {
            let f = concat!("shmem_", stringify!($name), "_test_all", $suffix);
            let values: *const $type = $to(&values);
            Objects { f, at, n, status, operator, values, is_vector: $vector }.test_all().into()
        });
        export!([stringify!($name), "_test_any", $suffix] (at: *const $type, n: usize,
            status: *const c_int, operator: c_int, values: $values) -> usize {
            let f = concat!("shmem_", stringify!($name), "_test_any", $suffix);
            let values: *const $type = $to(&values);
            let objects = Objects { f, at, n, status, operator, values, is_vector: $vector };
            objects.test_any().unwrap_or(usize::MAX)
        });
        export!([stringify!($name), "_test_some", $suffix] (at: *const $type, n: usize,
            indices: *mut usize, status: *const c_int, operator: c_int, values: $values) -> usize {
            let f = concat!("shmem_", stringify!($name), "_test_some", $suffix);
            let values: *const $type = $to(&values);
            let objects = Objects { f, at, n, status, operator, values, is_vector: $vector };
            // SAFETY: the standard's contract: room for an index of each object.
            unsafe { objects.test_some(indices) }
        });
    };
}

/// Exports the functions of a type.
macro_rules! typed {
    ($name:ident $type:ty) => {
        export!([stringify!($name), "_wait_until"]
            (at: *const $type, operator: c_int, value: $type) {
            let f = concat!("shmem_", stringify!($name), "_wait_until");
            // SAFETY: the standard's contract: a symmetric object.
            let is_over = || holds(f, unsafe { <$type>::load(at) }, operator, value).then_some(());
            wait::until(job::get(f), is_over);
        });
        export!([stringify!($name), "_test"]
            (at: *const $type, operator: c_int, value: $type) -> c_int {
            let f = concat!("shmem_", stringify!($name), "_test");
            // SAFETY: the standard's contract: a symmetric object.
            holds(f, unsafe { <$type>::load(at) }, operator, value).into()
        });
        several!($name $type, "", false, $type, |value: &$type| std::ptr::from_ref(value));
        several!($name $type, "_vector", true, *const $type, |values: &*const $type| *values);
    };
}
sync_types!(typed);

/// Exports the functions without an operator, of versions before 1.4: they wait for a change.
macro_rules! old {
    ([$($name:tt)*] $type:ty) => {
        export!([$($name)*] (at: *const $type, value: $type) {
            let f = concat!("shmem_", $($name)*);
            // SAFETY: the standard's contract: a symmetric object.
            wait::until(job::get(f), || (unsafe { <$type>::load(at) } != value).then_some(()));
        });
    };
}
old!([stringify!(short), "_wait"] i16);
old!([stringify!(int), "_wait"] i32);
old!([stringify!(long), "_wait"] i64);
old!([stringify!(longlong), "_wait"] i64);
old!(["wait"] i64);
export!(["wait_until"] (at: *const i64, operator: c_int, value: i64) {
    let f = "shmem_wait_until";
    // SAFETY: the standard's contract: a symmetric object.
    let is_over = || holds(f, unsafe { <i64>::load(at) }, operator, value).then_some(());
    wait::until(job::get(f), is_over);
});
export!(["signal_wait_until"] (at: *const u64, operator: c_int, value: u64) -> u64 {
    let f = "shmem_signal_wait_until";
    wait::until(job::get(f), || {
        // SAFETY: the standard's contract: a symmetric object.
        let found = unsafe { <u64>::load(at) };
        holds(f, found, operator, value).then_some(found)
    })
});
