//! The library's names exist for a program exactly if its MPI has them.
//!
//! A program may look for a function by a weak symbol or dlsym(3), for example for the functions
//! with large counts, which only MPI 4 has. It must not find this library's function if the MPI has
//! none. The dynamic linker searches a preloaded library first, so the names are in its symbol
//! table. At load, before the program is bound, this module hides them again:
//!
//! - If an MPI is loaded, as with programs that are linked to it, the names that it lacks lose
//!   their value. The dynamic linker then searches the libraries that follow.
//! - If no MPI is loaded, a plug-in may load one later, as in Python. All names become indirect
//!   functions (STT_GNU_IFUNC). The dynamic linker resolves their addresses each time it binds a
//!   name. They are null as long as no MPI has the function.
//!
//! The names are not indirect functions from the start: the dynamic linker would report an error
//! for libraries that it binds earlier, such as an MPI's for Fortran. Such a library sees all
//! names, so each function works under every MPI (`counts`).
//!
//! The code runs while the library is relocated, as the resolver of its own indirect function.
//! That function's relocation comes after all others of the library.

use std::arch::global_asm;
use std::ffi::CStr;

use libc::{Elf64_Sym, PF_X, PROT_READ, PROT_WRITE};
use object::elf::{STB_GLOBAL, STT_GNU_IFUNC};

use crate::elf::{self, Object};

/// The type and binding of a symbol that is an indirect function, bound globally.
const INDIRECT: u8 = STB_GLOBAL << 4 | STT_GNU_IFUNC;
const PAGE: usize = 4096;

global_asm!(
    ".pushsection .text.nagaya_coll_at_load, \"ax\", @progbits",
    ".type nagaya_coll_at_load, @gnu_indirect_function",
    "nagaya_coll_at_load:",
    "jmp {at_load}",
    ".size nagaya_coll_at_load, . - nagaya_coll_at_load",
    ".popsection",
    ".pushsection .data.rel.ro.nagaya_coll_loaded, \"aw\", @progbits",
    ".balign 8",
    ".globl nagaya_coll_loaded",
    ".hidden nagaya_coll_loaded",
    "nagaya_coll_loaded: .quad nagaya_coll_at_load",
    ".popsection",
    at_load = sym at_load,
);

unsafe extern "C" {
    static nagaya_coll_loaded: usize;
}

/// Keeps the relocation, to which nothing else refers.
#[used]
static LOADED: Reference = Reference(&raw const nagaya_coll_loaded);

struct Reference(#[allow(dead_code, reason = "only its relocation matters")] *const usize);

// SAFETY: the pointer is never read; only its relocation has an effect.
unsafe impl Sync for Reference {}

/// A function that this library exports.
struct Name {
    own: &'static CStr,
    /// The name of the MPI's function in the profiling interface.
    mpis: &'static CStr,
    /// Returns the function's address; null if the MPI has none.
    resolve: extern "C" fn() -> usize,
}

macro_rules! names {
    ($($function:ident $profiled:ident),* $(,)?) => {
        [$(names!(@one $function, $profiled), names!(@one $profiled, $profiled)),*]
    };
    (@one $name:ident, $profiled:ident) => {{
        const OWN: &CStr = terminated(concat!(stringify!($name), "\0"));
        const MPIS: &CStr = terminated(concat!(stringify!($profiled), "\0"));
        extern "C" fn resolve() -> usize {
            resolved(OWN, MPIS, all::$name as *const () as usize)
        }
        Name { own: OWN, mpis: MPIS, resolve }
    }};
}

const fn terminated(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has no zero byte"),
    }
}

/// All functions that the library exports.
static NAMES: [Name; 36] = names! {
    MPI_Init PMPI_Init, MPI_Init_thread PMPI_Init_thread, MPI_Finalize PMPI_Finalize,
    MPI_Barrier PMPI_Barrier,
    MPI_Bcast PMPI_Bcast, MPI_Reduce PMPI_Reduce, MPI_Allreduce PMPI_Allreduce,
    MPI_Allgather PMPI_Allgather, MPI_Alltoall PMPI_Alltoall,
    MPI_Bcast_c PMPI_Bcast_c, MPI_Reduce_c PMPI_Reduce_c, MPI_Allreduce_c PMPI_Allreduce_c,
    MPI_Allgather_c PMPI_Allgather_c, MPI_Alltoall_c PMPI_Alltoall_c,
    MPI_Send PMPI_Send, MPI_Isend PMPI_Isend, MPI_Wait PMPI_Wait, MPI_Waitall PMPI_Waitall,
};

mod all {
    pub use crate::calls::*;
    pub use crate::messages::*;
}

fn is_own(object: &Object) -> bool {
    object.segment(&raw const LOADED as usize).is_some()
}

/// Returns the loaded MPI: the first object with a function of the profiling interface that does
/// not stand before the MPI itself.
fn loaded_mpi() -> Option<Object> {
    let mut mpi = None;
    elf::for_each(|object| {
        let is_before = object.symbol(loaded::MARKER).is_some();
        if !is_before && object.symbol(c"PMPI_Barrier").is_some() {
            mpi = Some(object);
        }
        mpi.is_some()
    });
    mpi
}

/// Returns the address for an indirect function: `function`, if the MPI has it. Otherwise, returns
/// the address that the name has without this library.
fn resolved(own: &CStr, mpis: &CStr, function: usize) -> usize {
    if loaded_mpi().is_some_and(|mpi| mpi.symbol(mpis).is_some()) {
        return function;
    }
    let mut others = 0;
    elf::for_each(|object| {
        if !is_own(&object) {
            others = object.function(own).unwrap_or(0);
        }
        others != 0
    });
    others
}

/// Hides names or makes them indirect. Returns the address of an indirect function that no caller
/// uses.
extern "C" fn at_load() -> usize {
    let mut own = None;
    elf::for_each(|object| {
        if is_own(&object) {
            own = Some(object);
        }
        own.is_some()
    });
    if let Some(own) = own {
        set_names(&own, loaded_mpi().as_ref());
    }
    at_load as *const () as usize
}

fn set_names(own: &Object, mpi: Option<&Object>) {
    let symbols = || NAMES.iter().filter_map(|name| Some((name, own.symbol(name.own)?)));
    let Some(first) = symbols().map(|(_, symbol)| symbol).min() else { return };
    let Some(last) = symbols().map(|(_, symbol)| symbol).max() else { return };
    let is_code = |symbol: *mut Elf64_Sym| {
        own.segment(symbol as usize).is_none_or(|segment| segment.p_flags & PF_X != 0)
    };
    // No page becomes writable and executable at once. (A linker option keeps the two apart.)
    if is_code(first) || is_code(last) {
        return;
    }
    let start = first as usize / PAGE * PAGE;
    let bytes = (last.wrapping_add(1) as usize).next_multiple_of(PAGE) - start;
    let protect = |protection| {
        // SAFETY: these pages hold this library's symbol table and other data of the same segment,
        // which stays readable.
        unsafe { libc::mprotect(start as *mut _, bytes, protection) }
    };
    if protect(PROT_READ | PROT_WRITE) != 0 {
        return;
    }
    for (name, symbol) in symbols() {
        // SAFETY: `Object::symbol` returned this entry of the library's symbol table, and `protect`
        // made it writable. Only the dynamic linker reads it, and it waits for this function.
        let symbol = unsafe { &mut *symbol };
        match mpi {
            Some(mpi) if mpi.symbol(name.mpis).is_some() => {}
            Some(_) => (symbol.st_value, symbol.st_shndx) = (0, 0),
            None => {
                symbol.st_info = INDIRECT;
                symbol.st_value = (name.resolve as *const () as usize - own.base) as u64;
            }
        }
    }
    protect(PROT_READ);
}
