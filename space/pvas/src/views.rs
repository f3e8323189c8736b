//! Views: mappings of the memory of other domains' segments, at their addresses.

use std::ops::Range;

use control::{Control, Protection};
use nagaya_layout::SpaceLayout;
use pager::holes::Holes;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};

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

    /// Maps views of the segments of these IDs, in which nothing is mapped yet, with these rights.
    pub fn map(
        &mut self,
        layout: &SpaceLayout,
        memory: &Memory,
        ids: Range<u32>,
        rights: ProtFlags,
    ) -> Result<(), Error> {
        if ids.is_empty() {
            return Ok(());
        }
        let view = map_view(layout, memory, ids, rights)?;
        self.mapped.push((view.start, view.len()));
        self.holes.watch(view).map_err(Error::Views)
    }
}

/// The rights of a process that may do everything with the memory of tasks.
pub(crate) const ALL_RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Returns the rights of a domain's tasks in the memory of the other domains.
pub(crate) fn rights(control: Control) -> ProtFlags {
    match control.protection() {
        None => ALL_RIGHTS,
        Some(Protection::Writes) => ProtFlags::READ,
        Some(Protection::All) => ProtFlags::empty(),
    }
}

/// Takes back the rights that tasks of this mm have opened in the view of segment `id`, except in
/// its export area.
pub(crate) fn close(control: Control, id: u32) -> Result<(), Error> {
    let layout = control.layout();
    let segment = layout.segment(id).ok_or(Error::NoTask(id))?;
    let (start, size) = (segment.task_block(), segment.end() - segment.task_block());
    // SAFETY: the range is a view, in which this process has no object. A task that uses it loses
    // the rights that it had been given by a task that has ended.
    unsafe { mprotect(start as *mut _, size as usize, protection(rights(control))) }
        .map_err(|errno| Error::System("mprotect of other domains' segments", errno))
}

/// Returns the same rights for mprotect.
fn protection(rights: ProtFlags) -> MprotectFlags {
    MprotectFlags::from_bits_truncate(rights.bits())
}

/// Maps views of the segments of these IDs, none of which is mapped. Returns the address range.
pub(crate) fn map_view(
    layout: &SpaceLayout,
    memory: &Memory,
    ids: Range<u32>,
    rights: ProtFlags,
) -> Result<Range<usize>, Error> {
    let start = layout.base() + u64::from(ids.start) * layout.segment_size();
    let size = (ids.len() as u64 * layout.segment_size()) as usize;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let offset = start - layout.base();
    // SAFETY: MAP_FIXED_NOREPLACE replaces no existing mapping, and the advices apply to the new
    // mapping.
    unsafe {
        mmap(start as *mut _, size, rights, flags, memory.file(), offset)
            .map_err(|errno| Error::System("mmap of other domains' segments", errno))?;
        // A fork or a core file of one task must not include the other segments.
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            libc::madvise(start as *mut _, size, advice);
        }
    }
    Ok(start as usize..start as usize + size)
}
