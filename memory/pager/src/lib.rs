//! Memory whose pages the holder of a [`Region`] provides. Threads of a program use it as any
//! memory. A thread that lacks access to a page stops; the holder reads the fault, installs the
//! page and resumes the thread. The crate knows no protocol: its user decides the access to each
//! page.
//!
//! ```no_run
//! use pager::{Access, Place, Region, Stops};
//!
//! let place = Place { start: 0x5800_0000_0000, page_bytes: 8192 };
//! let mut region = Region::new(place, Stops::All)?;
//! region.grow(100)?;
//! // Threads may use 0x5800_0000_0000 and the 100 pages from there; another thread:
//! let mut faults = Vec::new();
//! loop {
//!     region.faults(&mut faults)?;
//!     for fault in faults.drain(..) {
//!         region.write(fault.page, 0, b"what it should hold")?;
//!         region.allow(fault.page, fault.wants)?;
//!     }
//! }
//! # Ok::<(), pager::PagerError>(())
//! ```
//!
//! [`region`] is the memory in its two views. `userfault` wraps the kernel's userfaultfd(2), which
//! stops threads and reports faults. `everywhere` is a region of all addresses, of which few are in
//! use. [`shared`] is memory that other processes map. [`holes`] makes an access to a missing page
//! an error. [`error`] names the right or the kernel feature that is missing.
//!
//! # Rules for users
//! - The thread that resolves faults must never touch a page through the programs' view, not even
//!   in a system call: no thread would resolve its fault.
//! - A forked child has neither view.
//! - Dropping the region unmaps it. Threads that are stopped in it get SIGSEGV.

mod access;
pub mod error;
mod everywhere;
mod foreign;
pub mod holes;
mod pages;
pub mod ranges;
pub mod region;
pub mod shared;
mod userfault;

pub use access::{Access, Fault, Place, Stops};
pub use error::PagerError;
pub use ranges::Ranges;
pub use region::Region;
pub use shared::Shared;

/// Checks whether this process can have memory that stops its threads, as `stops` says. The error
/// names the missing right or kernel feature. Keeps nothing.
pub fn check(stops: Stops) -> Result<(), PagerError> {
    userfault::Userfault::new(stops).map(drop)
}
