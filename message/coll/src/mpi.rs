//! The MPI that the program uses: its binary interface, and its functions by the names that the
//! profiling interface gives them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write as _;
use std::mem::transmute_copy;
use std::ptr;
use std::sync::OnceLock;

use crate::narrow;
use crate::types::Types;

/// A communicator, type or operator: a pointer in Open MPI, a number in MPICH.
pub type Handle = usize;

/// `MPI_SUCCESS`.
pub const SUCCESS: c_int = 0;

/// What handles and constants look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abi {
    /// Open MPI's: handles are addresses.
    OpenMpi,
    /// MPICH's, and Intel MPI's: handles are numbers of 32 bits.
    Mpich,
}

/// A callback for communicators that are duplicated.
pub type CopyAttribute =
    extern "C" fn(Handle, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// A callback for communicators that are freed.
pub type DeleteAttribute = extern "C" fn(Handle, c_int, *mut c_void, *mut c_void) -> c_int;

type Query = extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Free = extern "C" fn(*mut c_void) -> c_int;
type Cancel = extern "C" fn(*mut c_void, c_int) -> c_int;
/// Two buffers and whom they belong to: MPI_Allgather and MPI_Alltoall.
type Exchange<Count> =
    unsafe extern "C" fn(*const u8, Count, Handle, *mut u8, Count, Handle, Handle) -> c_int;
type Reduce<Count> =
    unsafe extern "C" fn(*const u8, *mut u8, Count, Handle, Handle, c_int, Handle) -> c_int;
type Allreduce<Count> =
    unsafe extern "C" fn(*const u8, *mut u8, Count, Handle, Handle, Handle) -> c_int;
type Bcast<Count> = unsafe extern "C" fn(*mut u8, Count, Handle, c_int, Handle) -> c_int;

/// The operations that we do, with counts of one type.
pub struct Operations<Count> {
    pub bcast: Bcast<Count>,
    pub reduce: Reduce<Count>,
    pub allreduce: Allreduce<Count>,
    pub allgather: Exchange<Count>,
    pub alltoall: Exchange<Count>,
}

/// The MPI's functions, and what else there is to know of it.
pub struct Mpi {
    /// `None`: one that we do not know. Everything is handed to it.
    pub abi: Option<Abi>,
    /// Its types and operators.
    pub types: Types,
    library: Library,
    pub barrier: unsafe extern "C" fn(Handle) -> c_int,
    /// Those that count in `int`.
    pub short: Operations<c_int>,
    /// Those that count in 64 bits, from MPI 4 on.
    pub long: Operations<i64>,
    pub init: unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int,
    pub init_thread:
        unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int,
    pub initialized: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub finalized: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub comm_rank: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub comm_size: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub comm_test_inter: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub comm_group: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    pub group_free: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub group_translate_ranks:
        unsafe extern "C" fn(Handle, c_int, *const c_int, Handle, *mut c_int) -> c_int,
    pub comm_create_keyval:
        unsafe extern "C" fn(CopyAttribute, DeleteAttribute, *mut c_int, *mut c_void) -> c_int,
    pub comm_get_attr: unsafe extern "C" fn(Handle, c_int, *mut c_void, *mut c_int) -> c_int,
    pub comm_set_attr: unsafe extern "C" fn(Handle, c_int, *mut c_void) -> c_int,
    pub comm_call_errhandler: unsafe extern "C" fn(Handle, c_int) -> c_int,
    pub reduce_local: unsafe extern "C" fn(*const u8, *mut u8, c_int, Handle, Handle) -> c_int,
    pub type_size: unsafe extern "C" fn(Handle, *mut i64) -> c_int,
    pub type_get_extent: unsafe extern "C" fn(Handle, *mut isize, *mut isize) -> c_int,
    pub type_get_true_extent: unsafe extern "C" fn(Handle, *mut isize, *mut isize) -> c_int,
    pub type_get_envelope:
        unsafe extern "C" fn(Handle, *mut c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int,
    /// From MPI 4 on, whose types with large counts the function above refuses.
    pub type_get_envelope_c: Option<
        unsafe extern "C" fn(Handle, *mut i64, *mut i64, *mut i64, *mut i64, *mut c_int) -> c_int,
    >,
    pub type_get_contents: unsafe extern "C" fn(
        Handle,
        c_int,
        c_int,
        c_int,
        *mut c_int,
        *mut isize,
        *mut Handle,
    ) -> c_int,
    pub type_free: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub pack:
        unsafe extern "C" fn(*const u8, c_int, Handle, *mut u8, c_int, *mut c_int, Handle) -> c_int,
    pub unpack:
        unsafe extern "C" fn(*const u8, c_int, *mut c_int, *mut u8, c_int, Handle, Handle) -> c_int,
    pub grequest_start:
        unsafe extern "C" fn(Query, Free, Cancel, *mut c_void, *mut Handle) -> c_int,
    pub test: unsafe extern "C" fn(*mut Handle, *mut c_int, *mut c_void) -> c_int,
}

/// Where the MPI's symbols are looked for: a handle of dlopen's.
#[derive(Clone, Copy)]
struct Library(*mut c_void);

// SAFETY: dlsym may be called by any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The MPI is behind us where the program is linked to it. Where it came with a plug-in, as
    /// in Python, only a handle of its own finds it.
    fn find() -> Option<Self> {
        let next = Self(libc::RTLD_NEXT);
        if next.address("PMPI_Barrier").is_some() {
            return Some(next);
        }
        let mut found = None;
        // SAFETY: the callback gets what it is given here, while this lives.
        unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(&mut found).cast()) };
        found
    }

    fn address(self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: a handle of a library that is loaded, and a name.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address as usize)
    }

    /// The address of an object: a program that is linked to it may have it in its own memory.
    fn object(self, name: &str) -> Option<usize> {
        Self(libc::RTLD_DEFAULT).address(name).or_else(|| self.address(name))
    }

    /// The function of this name, if it is there.
    ///
    /// # Safety
    /// `F` is the type of a pointer to it, and the standard says so.
    unsafe fn optional<F: Copy>(self, name: &str) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: the caller's promise.
        self.address(name).map(|address| unsafe { transmute_copy(&address) })
    }

    /// # Safety
    /// As `optional`.
    unsafe fn function<F: Copy>(self, name: &str) -> F {
        // SAFETY: the caller's promise.
        unsafe { self.optional(name) }
            .unwrap_or_else(|| die(&format!("{name} is missing: is this an MPI?")))
    }

    /// The operations whose names end so, if they are there.
    ///
    /// # Safety
    /// Their counts are of this type.
    unsafe fn operations<Count>(self, end: &str) -> Option<Operations<Count>> {
        let name = |name: &str| format!("PMPI_{name}{end}");
        // SAFETY: the types are those of the standard.
        unsafe {
            Some(Operations {
                bcast: self.optional(&name("Bcast"))?,
                reduce: self.optional(&name("Reduce"))?,
                allreduce: self.optional(&name("Allreduce"))?,
                allgather: self.optional(&name("Allgather"))?,
                alltoall: self.optional(&name("Alltoall"))?,
            })
        }
    }

    /// In which file its MPI is.
    fn file(self) -> Option<String> {
        let address = self.address("PMPI_Barrier")?;
        // SAFETY: all fields may be zero, and dladdr fills them.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: writes into `info` only.
        let known = unsafe { libc::dladdr(address as *const c_void, &mut info) };
        if known == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the name of a loaded file.
        Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned())
    }
}

/// Ends the search at the first loaded file that has an MPI.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader's, which says so of a loaded file.
    let name = unsafe { (*info).dlpi_name };
    // SAFETY: a string, or null.
    if name.is_null() || unsafe { *name } == 0 {
        return 0;
    }
    // SAFETY: with RTLD_NOLOAD it finds what is loaded. The handle is kept: so is the MPI.
    let handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let ours = crate::calls::PMPI_Barrier as *const () as usize;
    match Library(handle).address("PMPI_Barrier") {
        Some(theirs) if !handle.is_null() && theirs != ours => {}
        _ => return 0,
    }
    // SAFETY: what `find` has given.
    unsafe { *found.cast::<Option<Library>>() = Some(Library(handle)) };
    1
}

/// There is no MPI to hand a call to, or it cannot go on.
pub fn die(why: &str) -> ! {
    let _ = writeln!(std::io::stderr(), "nagaya-coll: {why}");
    std::process::abort()
}

/// The MPI that the program uses.
pub fn mpi() -> &'static Mpi {
    static MPI: OnceLock<Mpi> = OnceLock::new();
    MPI.get_or_init(Mpi::load)
}

impl Mpi {
    fn load() -> Self {
        let library = Library::find().unwrap_or_else(|| die("no MPI is loaded"));
        // The ABI that MPI 5 standardises has handles of its own, also in Open MPI.
        let is_standard = library.file().is_none_or(|file| file.contains("mpi_abi"));
        let is_open_mpi = library.object("ompi_mpi_comm_world").is_some();
        let abi = match (is_standard, is_open_mpi) {
            (true, _) => None,
            (false, true) => Some(Abi::OpenMpi),
            (false, false) => Some(Abi::Mpich),
        };
        let types = Types::new(abi, |name| library.object(name));
        // SAFETY: the types are those of the standard, with handles as a register holds them.
        unsafe {
            Self {
                abi,
                types,
                library,
                barrier: library.function("PMPI_Barrier"),
                short: library.operations("").unwrap_or_else(|| die("this is no MPI")),
                long: library.operations("_c").unwrap_or(narrow::OPERATIONS),
                init: library.function("PMPI_Init"),
                init_thread: library.function("PMPI_Init_thread"),
                initialized: library.function("PMPI_Initialized"),
                finalized: library.function("PMPI_Finalized"),
                comm_rank: library.function("PMPI_Comm_rank"),
                comm_size: library.function("PMPI_Comm_size"),
                comm_test_inter: library.function("PMPI_Comm_test_inter"),
                comm_group: library.function("PMPI_Comm_group"),
                group_free: library.function("PMPI_Group_free"),
                group_translate_ranks: library.function("PMPI_Group_translate_ranks"),
                comm_create_keyval: library.function("PMPI_Comm_create_keyval"),
                comm_get_attr: library.function("PMPI_Comm_get_attr"),
                comm_set_attr: library.function("PMPI_Comm_set_attr"),
                comm_call_errhandler: library.function("PMPI_Comm_call_errhandler"),
                reduce_local: library.function("PMPI_Reduce_local"),
                type_size: library.function("PMPI_Type_size_x"),
                type_get_extent: library.function("PMPI_Type_get_extent"),
                type_get_true_extent: library.function("PMPI_Type_get_true_extent"),
                type_get_envelope: library.function("PMPI_Type_get_envelope"),
                type_get_envelope_c: library.optional("PMPI_Type_get_envelope_c"),
                type_get_contents: library.function("PMPI_Type_get_contents"),
                type_free: library.function("PMPI_Type_free"),
                pack: library.function("PMPI_Pack"),
                unpack: library.function("PMPI_Unpack"),
                grequest_start: library.function("PMPI_Grequest_start"),
                test: library.function("PMPI_Test"),
            }
        }
    }

    /// The handle as we compare it: of a number the upper half of a register is nobody's.
    #[inline]
    pub fn handle(&self, handle: Handle) -> Handle {
        match self.abi {
            Some(Abi::Mpich) => handle as u32 as Handle,
            _ => handle,
        }
    }

    fn choose<T>(&self, open_mpi: T, mpich: T) -> T {
        if self.abi == Some(Abi::OpenMpi) { open_mpi } else { mpich }
    }

    /// `MPI_IN_PLACE`.
    #[inline]
    pub fn in_place(&self) -> usize {
        self.choose(1, usize::MAX)
    }

    /// `MPI_COMM_NULL`.
    pub fn comm_null(&self) -> Handle {
        self.choose(self.library.object("ompi_mpi_comm_null").unwrap_or(0), 0x0400_0000)
    }

    /// `MPI_COMM_WORLD`.
    pub fn comm_world(&self) -> Handle {
        self.choose(self.library.object("ompi_mpi_comm_world").unwrap_or(0), 0x4400_0000)
    }

    /// `MPI_STATUS_IGNORE`.
    pub fn status_ignore(&self) -> *mut c_void {
        ptr::without_provenance_mut(self.choose(0, 1))
    }

    /// `MPI_ERR_TRUNCATE`.
    pub fn err_truncate(&self) -> c_int {
        self.choose(15, 14)
    }

    /// `MPI_COMBINER_NAMED`, `MPI_COMBINER_DUP` and `MPI_COMBINER_CONTIGUOUS`.
    pub fn combiners(&self) -> [c_int; 3] {
        self.choose([0, 1, 2], [1, 2, 3])
    }

    /// Between `MPI_Init` and `MPI_Finalize`.
    pub fn is_running(&self) -> bool {
        let (mut begun, mut ended): (c_int, c_int) = (0, 0);
        // SAFETY: both may be called at any time, and set one number each.
        unsafe {
            (self.initialized)(&mut begun);
            (self.finalized)(&mut ended);
        }
        begun != 0 && ended == 0
    }
}
