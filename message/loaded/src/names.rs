//! The names of a library before the MPI exist for a program exactly if its MPI has them.
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
//! names, also those that the MPI lacks.
//!
//! The code runs while the library is relocated, as the resolver of its own indirect function.
//! That function's relocation comes after all others of the library. The library must be linked
//! with `-z separate-code`: its symbol table is written, and must be apart from its code.

use std::ffi::CStr;

use libc::{Elf64_Sym, PF_X, PROT_READ, PROT_WRITE};
use object::elf::{STB_GLOBAL, STT_GNU_IFUNC};

use crate::elf::{self, Object};

/// The type and binding of a symbol that is an indirect function, bound globally.
const INDIRECT: u8 = STB_GLOBAL << 4 | STT_GNU_IFUNC;
const PAGE: usize = 4096;

/// An address in the library that contains this code.
static IN_THIS_LIBRARY: u8 = 0;

/// A function that the library exports. [`name!`](crate::name) makes it.
pub struct Name {
    /// The exported name.
    pub own: &'static CStr,
    /// The name of the MPI's function in the profiling interface.
    pub mpis: &'static CStr,
    /// Returns the function's address; null if the MPI has none.
    pub resolve: extern "C" fn() -> usize,
}

/// Makes the [`Name`] of an exported function: its name, that of the MPI's function in the
/// profiling interface, and the function.
#[macro_export]
macro_rules! name {
    ($own:expr, $mpis:expr, $function:expr) => {{
        const OWN: &::std::ffi::CStr = $crate::names::terminated(concat!($own, "\0"));
        const MPIS: &::std::ffi::CStr = $crate::names::terminated(concat!($mpis, "\0"));
        extern "C" fn resolve() -> usize {
            $crate::names::resolved(OWN, MPIS, $function as *const () as usize)
        }
        $crate::names::Name { own: OWN, mpis: MPIS, resolve }
    }};
}

/// Places the calling library before the MPI: defines the symbol [`MARKER`](crate::MARKER), and
/// lets only those of the library's names exist that the MPI has. The argument is an iterator over
/// the `Name`s of all functions that the library exports; it can be cloned and allocates nothing.
#[macro_export]
macro_rules! stand_before_mpi {
    ($names:expr) => {
        /// Tells other libraries that this one is not the MPI.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals, reason = "the name of a symbol")]
        pub static nagaya_stands_before_mpi: u8 = 1;

        ::std::arch::global_asm!(
            ".pushsection .text.nagaya_at_load, \"ax\", @progbits",
            ".type nagaya_at_load, @gnu_indirect_function",
            "nagaya_at_load:",
            "jmp {at_load}",
            ".size nagaya_at_load, . - nagaya_at_load",
            ".popsection",
            ".pushsection .data.rel.ro.nagaya_loaded, \"aw\", @progbits",
            ".balign 8",
            ".globl nagaya_loaded",
            ".hidden nagaya_loaded",
            "nagaya_loaded: .quad nagaya_at_load",
            ".popsection",
            at_load = sym nagaya_names_at_load,
        );

        unsafe extern "C" {
            static nagaya_loaded: usize;
        }

        /// Keeps the relocation, to which nothing else refers.
        #[used]
        static NAGAYA_LOADED: $crate::names::Reference =
            $crate::names::Reference(&raw const nagaya_loaded);

        /// Returns the address of an indirect function that no caller uses.
        extern "C" fn nagaya_names_at_load() -> usize {
            $crate::names::at_load($names);
            nagaya_names_at_load as *const () as usize
        }
    };
}

/// A pointer of which only the relocation has an effect.
pub struct Reference(#[allow(dead_code, reason = "see above")] pub *const usize);

// SAFETY: the pointer is never read.
unsafe impl Sync for Reference {}

/// Returns the string of a literal that ends with a zero.
pub const fn terminated(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name has no zero byte"),
    }
}

fn is_own(object: &Object) -> bool {
    object.segment(&raw const IN_THIS_LIBRARY as usize).is_some()
}

fn stands_before(object: &Object) -> bool {
    object.symbol(crate::MARKER).is_some()
}

/// Returns the loaded MPI: the first object with a function of the profiling interface that does
/// not stand before the MPI itself.
fn loaded_mpi() -> Option<Object> {
    let mut mpi = None;
    elf::for_each(|object| {
        if !stands_before(&object) && object.symbol(c"PMPI_Barrier").is_some() {
            mpi = Some(object);
        }
        mpi.is_some()
    });
    mpi
}

/// Returns the address for an indirect function: `function`, if the MPI has it. Otherwise, returns
/// the address that the name has without the libraries that stand before the MPI.
pub fn resolved(own: &CStr, mpis: &CStr, function: usize) -> usize {
    if loaded_mpi().is_some_and(|mpi| mpi.symbol(mpis).is_some()) {
        return function;
    }
    let mut others = 0;
    elf::for_each(|object| {
        if !stands_before(&object) {
            others = object.function(own).unwrap_or(0);
        }
        others != 0
    });
    others
}

/// Hides names of the calling library, or makes them indirect.
pub fn at_load(names: impl Iterator<Item = &'static Name> + Clone) {
    let mut own = None;
    elf::for_each(|object| {
        if is_own(&object) {
            own = Some(object);
        }
        own.is_some()
    });
    if let Some(own) = own {
        set_names(names, &own, loaded_mpi().as_ref());
    }
}

fn set_names(
    names: impl Iterator<Item = &'static Name> + Clone,
    own: &Object,
    mpi: Option<&Object>,
) {
    let symbols = || names.clone().filter_map(|name| Some((name, own.symbol(name.own)?)));
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
