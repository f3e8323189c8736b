//! Views: mappings of the memory of other domains' segments, at their addresses.

use std::ops::Range;

use nagaya_layout::SpaceLayout;
use pager::holes::Holes;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::error::Error;
use crate::memory::Memory;

/// Views of other domains' segments in this mm. They are unmapped when this value is dropped.
pub(crate) struct Views {
    holes: Holes,
    /// Address and size.
    mapped: Vec<(usize, usize)>,
}

impl Drop for Views {
    fn drop(&mut self) {
        for &(start, size) in &self.mapped {
            // SAFETY: `map_view` mapped this range. The views are dropped only after the domain's
            // tasks have ended.
            unsafe { libc::munmap(start as *mut _, size) };
        }
    }
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Views")
    }
}

impl Views {
    /// Begins without views.
    pub fn new() -> Result<Self, Error> {
        let holes = Holes::new().map_err(Error::Views)?;
        Ok(Self { holes, mapped: Vec::new() })
    }

    /// Maps views of the segments of these IDs, in which nothing is mapped yet.
    pub fn map(
        &mut self,
        layout: &SpaceLayout,
        memory: &Memory,
        ids: Range<u32>,
    ) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let view = map_view(layout, memory, ids)?;
        self.mapped.push((view.start, view.len()));
        self.holes.watch(view).map_err(Error::Views)
    }
}

/// Maps views of the segments of these IDs, none of which is mapped. Returns the address range.
pub(crate) fn map_view(
    layout: &SpaceLayout,
    memory: &Memory,
    ids: Range<u32>,
) -> Result<Range<usize>, Error> {
    let start = layout.base() + u64::from(ids.start) * layout.segment_size();
    let size = (ids.len() as u64 * layout.segment_size()) as usize;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let offset = start - layout.base();
    // SAFETY: MAP_FIXED_NOREPLACE replaces no existing mapping, and the advices apply to the new
    // mapping.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        mmap(start as *mut _, size, protection, flags, memory.file(), offset)
            .map_err(|errno| Error::System("mmap of other domains' segments", errno))?;
        // A fork or a core file of one task must not include the other segments.
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            libc::madvise(start as *mut _, size, advice);
        }
    }
    Ok(start as usize..start as usize + size)
}
