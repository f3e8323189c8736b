//! The functions of the loaded MPI library that this library needs.

use loaded::Library;

use crate::abi::Operations;

/// Returns the function of this name. Ends the process if the MPI lacks it.
///
/// # Safety
/// `F` is the type of a pointer to this function by MPI's standard.
pub unsafe fn function<F: Copy>(library: Library, name: &str) -> F {
    // SAFETY: this function has the contract of `optional`.
    unsafe { library.optional(name) }
        .unwrap_or_else(|| die(&format!("{name} is missing: is this an MPI?")))
}

/// Returns the operations whose names end in `end`, if the MPI has them all.
///
/// # Safety
/// `Count` is the type of their counts by MPI's standard.
pub unsafe fn operations<Count>(library: Library, end: &str) -> Option<Operations<Count>> {
    let name = |name: &str| format!("PMPI_{name}{end}");
    // SAFETY: `Operations` has the types of the standard for this type of counts.
    unsafe {
        Some(Operations {
            bcast: library.optional(&name("Bcast"))?,
            reduce: library.optional(&name("Reduce"))?,
            allreduce: library.optional(&name("Allreduce"))?,
            allgather: library.optional(&name("Allgather"))?,
            alltoall: library.optional(&name("Alltoall"))?,
        })
    }
}

/// Ends the process with a line, when there is no MPI to pass calls to.
pub fn die(why: &str) -> ! {
    proc::error_line!("nagaya-coll: {why}");
    std::process::abort()
}
