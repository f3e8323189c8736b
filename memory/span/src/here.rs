//! Facts about this node that the program's threads need. They cannot use thread-local variables.

use std::ops::Range;
use std::sync::OnceLock;

use crate::addresses::END;
use crate::call::Call;
use crate::exe::Exe;
use crate::processors;
use crate::request_table::RequestTable;
use crate::slot::Slot;

static HERE: OnceLock<Here> = OnceLock::new();

/// Makes or answers a call for the slot's thread, which was caught with this frame, or by a jump.
pub type Answer = unsafe fn(&Here, &Slot, *mut libc::ucontext_t, Call) -> i64;

/// This node.
pub struct Here {
    /// The slots of the threads.
    pub table: &'static RequestTable,
    /// Its number; the origin's is 0.
    pub node: u32,
    /// The number of nodes.
    pub nodes: u32,
    /// The number of processors of all nodes.
    pub processors: u32,
    /// The numbers of each node's processors, as the program sees them.
    pub processors_of: Vec<Range<u32>>,
    /// Addresses of this process that are not the program's: code there is Nagaya's.
    pub ours: Vec<Range<u64>>,
    /// Names of mappings are recorded for a report.
    pub names: bool,
    /// The program's file.
    pub exe: Exe,
    /// The entry of a new kernel thread at the origin: `shadow::first`.
    pub thread_entry: extern "C" fn(usize) -> !,
    /// Makes or answers a system call: `calls::answer`.
    pub answer: Answer,
    /// Handles the flags of a thread's slot on its way back: `leave::before_leaving`.
    pub before_leaving: unsafe extern "C" fn(*mut libc::ucontext_t),
}

impl Here {
    /// Returns true if this is the address of an instruction of the program.
    pub fn is_program(&self, address: u64) -> bool {
        address < END && !self.ours.iter().any(|ours| ours.contains(&address))
    }

    /// Returns true if the thread's affinity mask has a processor of that node.
    pub fn lets_on(&self, slot: &Slot, node: usize) -> bool {
        processors::has_any(&slot.processors, &self.processors_of[node])
    }

    /// Makes this the node of the process.
    ///
    /// # Panics
    /// The process has one already.
    pub fn set(self) -> &'static Self {
        assert!(HERE.set(self).is_ok(), "a process is one node");
        Self::get()
    }

    /// Returns the node of the process.
    ///
    /// # Panics
    /// [`set`](Self::set) has not been called.
    pub fn get() -> &'static Self {
        HERE.get().expect("the node begins before its threads")
    }
}
