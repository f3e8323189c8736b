//! The MPI that the program uses: its functions by the names of the profiling interface, and its
//! constants.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use loaded::{Abi, Library};

use crate::abi::{Cancel, CopyAttribute, DeleteAttribute, Free, Handle, Operations, Query};
use crate::library::{die, function, operations};
use crate::types::Types;

/// The MPI's functions and constants.
pub struct Mpi {
    /// The binary interface.
    pub abi: Abi,
    /// The predefined types and operators.
    pub types: Types,
    library: Library,
    pub barrier: unsafe extern "C" fn(Handle) -> c_int,
    /// The operations with counts of type `int`.
    pub short: Operations<c_int>,
    /// The operations with 64-bit counts, since MPI 4.
    pub long: Option<Operations<i64>>,
    pub init: unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int,
    pub init_thread:
        unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int,
    pub finalize: unsafe extern "C" fn() -> c_int,
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
    /// Since MPI 4, where the function above refuses types with large counts.
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
    pub type_create_hindexed:
        unsafe extern "C" fn(c_int, *const c_int, *const isize, Handle, *mut Handle) -> c_int,
    pub type_commit: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub type_free: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub pack:
        unsafe extern "C" fn(*const u8, c_int, Handle, *mut u8, c_int, *mut c_int, Handle) -> c_int,
    pub unpack:
        unsafe extern "C" fn(*const u8, c_int, *mut c_int, *mut u8, c_int, Handle, Handle) -> c_int,
    pub grequest_start:
        unsafe extern "C" fn(Query, Free, Cancel, *mut c_void, *mut Handle) -> c_int,
    pub test: unsafe extern "C" fn(*mut Handle, *mut c_int, *mut c_void) -> c_int,
    pub get_status: unsafe extern "C" fn(Handle, *mut c_int, *mut c_void) -> c_int,
    pub wait: unsafe extern "C" fn(*mut Handle, *mut c_void) -> c_int,
    pub waitall: unsafe extern "C" fn(c_int, *mut Handle, *mut c_void) -> c_int,
    pub send: unsafe extern "C" fn(*const u8, c_int, Handle, c_int, c_int, Handle) -> c_int,
    pub isend:
        unsafe extern "C" fn(*const u8, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int,
}

/// Returns the MPI that the program uses.
pub fn mpi() -> &'static Mpi {
    static MPI: OnceLock<Mpi> = OnceLock::new();
    MPI.get_or_init(Mpi::load)
}

impl Mpi {
    fn load() -> Self {
        let library = Library::find().unwrap_or_else(|| die("no MPI is loaded"));
        // Nothing is known of the standard's handles either.
        let abi = library.abi().unwrap_or(Abi::Standard);
        let types = Types::new(abi, |name| library.object(name));
        // SAFETY: the types are those of MPI's standard, with handles in whole registers.
        unsafe {
            Self {
                abi,
                types,
                library,
                barrier: function(library, "PMPI_Barrier"),
                short: operations(library, "").unwrap_or_else(|| die("this is no MPI")),
                long: operations(library, "_c"),
                init: function(library, "PMPI_Init"),
                init_thread: function(library, "PMPI_Init_thread"),
                finalize: function(library, "PMPI_Finalize"),
                initialized: function(library, "PMPI_Initialized"),
                finalized: function(library, "PMPI_Finalized"),
                comm_rank: function(library, "PMPI_Comm_rank"),
                comm_size: function(library, "PMPI_Comm_size"),
                comm_test_inter: function(library, "PMPI_Comm_test_inter"),
                comm_group: function(library, "PMPI_Comm_group"),
                group_free: function(library, "PMPI_Group_free"),
                group_translate_ranks: function(library, "PMPI_Group_translate_ranks"),
                comm_create_keyval: function(library, "PMPI_Comm_create_keyval"),
                comm_get_attr: function(library, "PMPI_Comm_get_attr"),
                comm_set_attr: function(library, "PMPI_Comm_set_attr"),
                comm_call_errhandler: function(library, "PMPI_Comm_call_errhandler"),
                reduce_local: function(library, "PMPI_Reduce_local"),
                type_size: function(library, "PMPI_Type_size_x"),
                type_get_extent: function(library, "PMPI_Type_get_extent"),
                type_get_true_extent: function(library, "PMPI_Type_get_true_extent"),
                type_get_envelope: function(library, "PMPI_Type_get_envelope"),
                type_get_envelope_c: library.optional("PMPI_Type_get_envelope_c"),
                type_get_contents: function(library, "PMPI_Type_get_contents"),
                type_create_hindexed: function(library, "PMPI_Type_create_hindexed"),
                type_commit: function(library, "PMPI_Type_commit"),
                type_free: function(library, "PMPI_Type_free"),
                pack: function(library, "PMPI_Pack"),
                unpack: function(library, "PMPI_Unpack"),
                grequest_start: function(library, "PMPI_Grequest_start"),
                test: function(library, "PMPI_Test"),
                get_status: function(library, "PMPI_Request_get_status"),
                wait: function(library, "PMPI_Wait"),
                waitall: function(library, "PMPI_Waitall"),
                send: function(library, "PMPI_Send"),
                isend: function(library, "PMPI_Isend"),
            }
        }
    }

    /// Returns true if this library does not know the MPI's handles and constants, and passes every
    /// call to the MPI.
    #[inline]
    pub fn is_unknown(&self) -> bool {
        self.abi == Abi::Standard
    }

    /// Returns a handle that can be compared.
    #[inline]
    pub fn handle(&self, handle: Handle) -> Handle {
        self.abi.handle(handle)
    }

    fn choose<T>(&self, open_mpi: T, mpich: T) -> T {
        if self.abi == Abi::OpenMpi { open_mpi } else { mpich }
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

    /// `MPI_PROC_NULL`.
    pub fn proc_null(&self) -> c_int {
        self.choose(-2, -1)
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

    /// Returns true between `MPI_Init` and `MPI_Finalize`.
    pub fn is_running(&self) -> bool {
        let (mut begun, mut ended): (c_int, c_int) = (0, 0);
        // SAFETY: both may be called at any time, and write one number each.
        unsafe {
            (self.initialized)(&mut begun);
            (self.finalized)(&mut ended);
        }
        begun != 0 && ended == 0
    }
}
