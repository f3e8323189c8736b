//! The MPI behind this library: the functions and constants that counting needs.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use loaded::{Abi, Library};

/// An argument of a function of MPI: a number, a handle or an address, in a register or a slot of
/// the stack. The upper half of a 32-bit one is undefined.
pub type Word = usize;

/// `MPI_SUCCESS`.
pub const SUCCESS: c_int = 0;

/// The MPI's functions and constants.
pub struct Mpi {
    abi: Abi,
    comm_world: Word,
    type_null: Word,
    type_size: unsafe extern "C" fn(Word, *mut c_int) -> c_int,
    comm_size: unsafe extern "C" fn(Word, *mut c_int) -> c_int,
    comm_rank: unsafe extern "C" fn(Word, *mut c_int) -> c_int,
    comm_test_inter: unsafe extern "C" fn(Word, *mut c_int) -> c_int,
    comm_group: unsafe extern "C" fn(Word, *mut Word) -> c_int,
    comm_remote_group: unsafe extern "C" fn(Word, *mut Word) -> c_int,
    group_size: unsafe extern "C" fn(Word, *mut c_int) -> c_int,
    group_free: unsafe extern "C" fn(*mut Word) -> c_int,
    translate: unsafe extern "C" fn(Word, c_int, *const c_int, Word, *mut c_int) -> c_int,
}

/// Returns the MPI that the program uses.
pub fn mpi() -> Option<&'static Mpi> {
    static MPI: OnceLock<Option<Mpi>> = OnceLock::new();
    MPI.get_or_init(Mpi::load).as_ref()
}

impl Mpi {
    fn load() -> Option<Self> {
        let library = Library::find()?;
        let abi = library.abi()?;
        let open_mpis = |name: &str| library.object(name).unwrap_or_default();
        let (comm_world, type_null) = match abi {
            Abi::Standard => (0x101, 0x200),
            Abi::Mpich => (0x4400_0000, 0x0c00_0000),
            Abi::OpenMpi => (open_mpis("ompi_mpi_comm_world"), open_mpis("ompi_mpi_datatype_null")),
        };
        // SAFETY: the types are those of MPI's standard, with handles in whole registers.
        unsafe {
            Some(Self {
                abi,
                comm_world,
                type_null,
                type_size: library.optional("PMPI_Type_size")?,
                comm_size: library.optional("PMPI_Comm_size")?,
                comm_rank: library.optional("PMPI_Comm_rank")?,
                comm_test_inter: library.optional("PMPI_Comm_test_inter")?,
                comm_group: library.optional("PMPI_Comm_group")?,
                comm_remote_group: library.optional("PMPI_Comm_remote_group")?,
                group_size: library.optional("PMPI_Group_size")?,
                group_free: library.optional("PMPI_Group_free")?,
                translate: library.optional("PMPI_Group_translate_ranks")?,
            })
        }
    }

    /// Returns a handle that can be compared.
    pub fn handle(&self, word: Word) -> Word {
        self.abi.handle(word)
    }

    /// Returns the handle with this index in a variable of the program.
    ///
    /// # Safety
    /// `address` is that of a valid array of handles, such as requests.
    pub unsafe fn handle_at(&self, address: Word, index: usize) -> Word {
        // SAFETY: this function has the contract of `Abi::handle_at`.
        unsafe { self.abi.handle_at(address as *const Word, index) }
    }

    /// Returns the size of a type's data in bytes; 0 if it is unknown.
    pub fn type_bytes(&self, kind: Word) -> u64 {
        if self.handle(kind) == self.type_null {
            return 0;
        }
        let mut bytes: c_int = 0;
        // SAFETY: the type was an argument of a call that has succeeded. MPI writes one number.
        let asked = unsafe { (self.type_size)(kind, &mut bytes) };
        if asked == SUCCESS { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// Returns this process's rank in `MPI_COMM_WORLD`, and the number of ranks.
    pub fn world(&self) -> (u32, u32) {
        let (mut rank, mut ranks): (c_int, c_int) = (0, 0);
        // SAFETY: called between MPI_Init and MPI_Finalize. Each writes one number.
        unsafe {
            (self.comm_rank)(self.comm_world, &mut rank);
            (self.comm_size)(self.comm_world, &mut ranks);
        }
        (rank.cast_unsigned(), ranks.cast_unsigned())
    }

    /// Returns the number of ranks that get a part in an operation on a communicator.
    pub fn peers(&self, comm: Word) -> u64 {
        self.group_of_peers(comm).map_or(0, |group| self.ranks_of(group).max(0) as u64)
    }

    /// Returns the rank in `MPI_COMM_WORLD` of each rank to which this one can send by a
    /// communicator; -1 for a rank of another job.
    pub fn world_ranks(&self, comm: Word) -> Vec<c_int> {
        let Some(group) = self.group_of_peers(comm) else { return Vec::new() };
        let count = self.count_of(group);
        let all: Vec<c_int> = (0..count).collect();
        let mut found = vec![-1; all.len()];
        let (mut group, mut world): (Word, Word) = (group, 0);
        // SAFETY: MPI writes a handle, and a number for each rank.
        unsafe {
            (self.comm_group)(self.comm_world, &mut world);
            (self.translate)(group, count, all.as_ptr(), world, found.as_mut_ptr());
            (self.group_free)(&mut world);
            (self.group_free)(&mut group);
        }
        found.into_iter().map(|rank| rank.max(-1)).collect()
    }

    /// Returns true if the handle is that of `MPI_COMM_WORLD`.
    pub fn is_world(&self, comm: Word) -> bool {
        self.handle(comm) == self.comm_world
    }

    fn group_of_peers(&self, comm: Word) -> Option<Word> {
        let (mut is_inter, mut group): (c_int, Word) = (0, 0);
        // SAFETY: the communicator was an argument of a call that has succeeded. Each function
        // writes one number or handle.
        let asked = unsafe {
            (self.comm_test_inter)(comm, &mut is_inter);
            if is_inter == 0 {
                (self.comm_group)(comm, &mut group)
            } else {
                (self.comm_remote_group)(comm, &mut group)
            }
        };
        (asked == SUCCESS).then_some(group)
    }

    fn count_of(&self, group: Word) -> c_int {
        let mut count: c_int = 0;
        // SAFETY: MPI writes one number.
        unsafe { (self.group_size)(group, &mut count) };
        count.max(0)
    }

    /// Returns the size of a group, and frees it.
    fn ranks_of(&self, mut group: Word) -> c_int {
        let count = self.count_of(group);
        // SAFETY: the group is ours.
        unsafe { (self.group_free)(&mut group) };
        count
    }
}

/// A function of the MPI, found at its first call.
pub struct Next {
    /// The name in the profiling interface.
    name: &'static str,
    address: AtomicUsize,
}

impl Next {
    /// The function with this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// Returns the address of the function behind this library's. Ends the process if there is
    /// none: the program calls a function that its MPI lacks.
    #[inline]
    pub fn address(&self) -> usize {
        match self.address.load(Acquire) {
            0 => self.find(),
            address => address,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        // Another library, such as libnagaya-coll.so, may stand between.
        let next = Library::NEXT.address(self.name);
        let found = next.or_else(|| Library::find()?.address(self.name)).unwrap_or_else(|| {
            let why =
                if Library::find().is_some() { "this MPI lacks it" } else { "no MPI is loaded" };
            proc::error_line!("nagaya-traffic: {} is missing: {why}", self.name);
            std::process::abort()
        });
        self.address.store(found, Release);
        found
    }
}
