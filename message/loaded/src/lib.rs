//! The MPI library that is loaded in this process, for libraries that stand before it
//! (LD_PRELOAD): its symbols by name, and its binary interface.
//!
//! Several of Nagaya's libraries may stand before the MPI, and each has some of its names. Each
//! calls [`stand_before_mpi!`]. It defines the symbol [`MARKER`], by which the others know that the
//! library is not the MPI, and hides names that the MPI lacks.
//!
//! | module | topic |
//! |---|---|
//! | `names` | which of the library's names a program sees |
//! | `elf` | symbols of loaded objects |

mod elf;
pub mod names;

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::transmute_copy;
use std::ptr;

/// A symbol of libraries that stand before the MPI.
pub const MARKER: &CStr = c"nagaya_stands_before_mpi";

/// The binary interfaces of MPI libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// Open MPI: handles are addresses.
    OpenMpi,
    /// MPICH and Intel MPI: handles are numbers of 32 bits.
    Mpich,
    /// The interface that MPI 5 standardises: handles are small numbers in pointers.
    Standard,
}

impl Abi {
    /// Returns a handle that can be compared: the upper half of a register with a 32-bit handle is
    /// undefined.
    #[inline]
    pub fn handle(self, word: usize) -> usize {
        if self == Self::Mpich { word as u32 as usize } else { word }
    }

    /// Returns the size of a handle in bytes.
    #[inline]
    pub fn handle_bytes(self) -> usize {
        if self == Self::Mpich { size_of::<u32>() } else { size_of::<usize>() }
    }

    /// Returns the handle with this index in an array.
    ///
    /// # Safety
    /// An array of handles of this interface with such an element is at `address`.
    #[inline]
    pub unsafe fn handle_at(self, address: *const usize, index: usize) -> usize {
        // SAFETY: the element exists by this function's contract, and its size is that of a handle.
        unsafe {
            match self {
                Self::Mpich => address.cast::<u32>().add(index).read() as usize,
                Self::OpenMpi | Self::Standard => address.add(index).read(),
            }
        }
    }
}

/// A handle of dlopen(3) through which the MPI's symbols are found.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: dlsym may be called by any thread.
unsafe impl Send for Library {}
// SAFETY: dlsym may be called by several threads at once.
unsafe impl Sync for Library {}

impl Library {
    /// The libraries behind the calling one, in the order of the dynamic linker.
    pub const NEXT: Self = Self(libc::RTLD_NEXT);

    /// Finds the MPI. If the program is linked to it, the dynamic linker finds it behind this
    /// library. If it was loaded with a plug-in, as in Python, only its own handle finds it.
    pub fn find() -> Option<Self> {
        if Self::NEXT.address("PMPI_Barrier").is_some_and(|address| !stands_before(address)) {
            return Some(Self::NEXT);
        }
        let mut found = None;
        // SAFETY: `look` expects a pointer to such an option, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(&mut found).cast()) };
        found
    }

    /// Returns the address of a symbol.
    pub fn address(self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle belongs to a library that stays loaded; `name` ends with a zero.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address as usize)
    }

    /// Returns the address of a variable. A copy relocation may have placed it in the program.
    pub fn object(self, name: &str) -> Option<usize> {
        Self(libc::RTLD_DEFAULT).address(name).or_else(|| self.address(name))
    }

    /// Returns the function of this name, if the MPI has it.
    ///
    /// # Safety
    /// `F` is the type of a pointer to this function by MPI's standard.
    pub unsafe fn optional<F: Copy>(self, name: &str) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: `F` is a pointer of this size to the function, as this function requires.
        self.address(name).map(|address| unsafe { transmute_copy(&address) })
    }

    /// Returns the MPI's binary interface; `None` if it is unknown.
    pub fn abi(self) -> Option<Abi> {
        // The standard interface has its own handles, also in Open MPI.
        Some(match self.file()? {
            file if file.contains("mpi_abi") => Abi::Standard,
            _ if self.object("ompi_mpi_comm_world").is_some() => Abi::OpenMpi,
            _ => Abi::Mpich,
        })
    }

    /// Returns the path of the file that has the MPI.
    fn file(self) -> Option<String> {
        let info = loaded_object(self.address("PMPI_Barrier")?)?;
        if info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: dladdr(3) returned the name of a loaded file.
        Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
    }
}

/// Describes the loaded object that contains `address`.
fn loaded_object(address: usize) -> Option<libc::Dl_info> {
    // SAFETY: all fields may be zero.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr(3) writes into `info` only, and accepts any address.
    let is_known = unsafe { libc::dladdr(address as *const c_void, &mut info) } != 0;
    is_known.then_some(info)
}

/// Returns true if `address` is in a library that stands before the MPI.
fn stands_before(address: usize) -> bool {
    let Some(info) = loaded_object(address) else { return false };
    // SAFETY: dladdr(3) returned the name of a loaded file. RTLD_NOLOAD runs no code.
    let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // SAFETY: dlsym accepts a handle of dlopen, and the marker ends with a zero.
    !handle.is_null() && !unsafe { libc::dlsym(handle, MARKER.as_ptr()) }.is_null()
}

/// Ends the search of dl_iterate_phdr(3) at the first loaded object that has an MPI.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes its own description of a loaded object.
    let name = unsafe { (*info).dlpi_name };
    // SAFETY: a name that is not null ends with a zero.
    if name.is_null() || unsafe { *name } == 0 {
        return 0;
    }
    // SAFETY: with RTLD_NOLOAD, dlopen(3) runs no code. The handle is kept, and with it the MPI.
    let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() || Library(handle).address("PMPI_Barrier").is_none_or(stands_before) {
        return 0;
    }
    // SAFETY: `find` passes a pointer to such an option.
    unsafe { *found.cast::<Option<Library>>() = Some(Library(handle)) };
    1
}
