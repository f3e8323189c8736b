//! Memory whose pages somebody else provides: the threads of a program use it as they use any
//! memory, and whenever one cannot go on, whoever holds the [`Region`] is told, brings the
//! page, and lets it go on. It knows no protocol: who may do what with which page is said by
//! its user.
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
//! [`region`] is the memory in its two views, `userfault` the kernel's userfaultfd(2), which
//! stops threads and tells who was stopped; `everywhere` is a region of all addresses, of which few
//! are in use; [`shared`] is memory that others map; [`holes`] only
//! makes a page that is not there an error; [`error`] says what is missing where these cannot
//! be had.
//!
//! # For those who use it
//! - The thread that answers must never touch a page through the programs' view: nobody would
//!   answer *it*. That includes what it hands to system calls.
//! - A forked child has neither view.
//! - Dropped, the region is gone, and threads that are stopped in it get SIGSEGV.

pub mod error;
mod everywhere;
pub mod holes;
mod pages;
pub mod ranges;
pub mod region;
pub mod shared;
mod userfault;

pub use error::PagerError;
pub use ranges::Ranges;
pub use region::{Access, Fault, Place, Region, Stops};
pub use shared::Shared;

/// Checks whether this process can have memory that stops its threads, as `stops` says. The error
/// names the missing right or kernel feature. Keeps nothing.
pub fn check(stops: Stops) -> Result<(), PagerError> {
    userfault::Userfault::new(stops).map(drop)
}
