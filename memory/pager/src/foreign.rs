//! Other mappings in the programs' view of a region, and the return of the region's memory there.

use std::ops::Range;
use std::ptr::with_exposed_provenance_mut;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

use crate::error::PagerError;
use crate::region::Region;

impl Region {
    /// Maps open pages of the programs' view again over a foreign mapping. They start without
    /// access.
    ///
    /// # Panics
    /// Pages beyond the region.
    pub fn restore(&self, pages: Range<u64>) -> Result<(), PagerError> {
        assert!(pages.end <= self.pages(), "beyond the region's end");
        let view = self.view(pages);
        self.show(view.clone(), ProtFlags::empty())?;
        if !self.is_watched {
            return Ok(());
        }
        let system =
            |why| PagerError::System { doing: "register shared memory with userfaultfd", why };
        self.userfault.register(view).map_err(system)
    }

    /// Maps this part of the programs' view over a foreign mapping.
    pub(crate) fn show(&self, view: Range<usize>, to: ProtFlags) -> Result<(), PagerError> {
        let start = with_exposed_provenance_mut(view.start);
        let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
        let offset = (view.start - self.place.start) as u64;
        let system = |doing| move |why| PagerError::System { doing, why };
        // SAFETY: `view` is inside the region's address range, and threads may use it so.
        unsafe {
            mmap(start, view.len(), to, flags, &self.memory, offset)
                .map_err(system("map shared memory again"))?;
            madvise(start, view.len(), Advice::LinuxDontFork)
                .map_err(system("keep shared memory from children"))
        }
    }

    /// Maps an empty file over these pages in the programs' view, until
    /// [`restore`](Self::restore). An access then gives SIGBUS, and a system call EFAULT. Forked
    /// children inherit the mapping.
    ///
    /// # Panics
    /// Pages beyond the region.
    pub fn lay_end(&self, pages: Range<u64>) -> Result<(), PagerError> {
        assert!(pages.end <= self.pages(), "beyond the region's end");
        let system = |doing| move |why| PagerError::System { doing, why };
        let empty = match self.empty.get() {
            Some(empty) => empty,
            None => {
                let new = memfd_create("nagaya-end", MemfdFlags::CLOEXEC)
                    .map_err(system("make an empty file"))?;
                self.empty.get_or_init(|| new)
            }
        };
        let view = self.view(pages);
        let start = with_exposed_provenance_mut(view.start);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: replaces a part of the programs' view, which the region mapped and no reference
        // covers.
        match unsafe { mmap(start, view.len(), protection, flags, empty, 0) } {
            Ok(_) => Ok(()),
            Err(Errno::NOMEM) => Err(PagerError::Mappings),
            Err(why) => Err(system("map an empty file")(why)),
        }
    }
}
