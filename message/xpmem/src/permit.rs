//! Access permits and attachments of the calling task, in a private table.
//!
//! An apid is the PID and, from bit 32 on, the number of the permit.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use control::ThisTask;
use rustix::io::Errno;

use crate::segment::Segment;

/// Largest number of permits that one task can get in its life.
const PERMITS_MAX: u32 = i32::MAX as u32;

struct Permit {
    segment: Segment,
    write: bool,
}

/// The end of an attachment, and its permit.
struct Attachment {
    end: u64,
    apid: u64,
}

/// The permits and attachments of the task.
#[derive(Default)]
pub struct Permits {
    permits: HashMap<u64, Permit>,
    /// By first address and a serial number: an address can be attached several times.
    attachments: BTreeMap<(u64, u64), Attachment>,
    permits_ever: u32,
    attachments_ever: u64,
}

/// Checks that `apid` is the caller's. Errors: EACCES (it is another task's), ENOENT (it is no
/// task's).
pub fn check_owner(task: &ThisTask, apid: u64) -> Result<(), Errno> {
    let pid = apid as u32;
    if pid == std::process::id() {
        return Ok(());
    }
    Err(if task.task_of(pid).is_some() { Errno::ACCESS } else { Errno::NOENT })
}

impl Permits {
    /// Returns a new permit to a segment. Error: EBUSY (all numbers are used).
    pub fn add(&mut self, segment: Segment, write: bool) -> Result<u64, Errno> {
        if self.permits_ever == PERMITS_MAX {
            return Err(Errno::BUSY);
        }
        self.permits_ever += 1;
        let apid = u64::from(self.permits_ever) << 32 | u64::from(std::process::id());
        self.permits.insert(apid, Permit { segment, write });
        Ok(apid)
    }

    /// Releases a permit and its attachments. Error: ENOENT.
    pub fn release(&mut self, apid: u64) -> Result<(), Errno> {
        self.permits.remove(&apid).ok_or(Errno::NOENT)?;
        self.attachments.retain(|_, attachment| attachment.apid != apid);
        Ok(())
    }

    /// Returns the addresses of `size` bytes from `offset` of a permit's segment.
    ///
    /// Errors: ENOENT (there is no such permit, the segment was removed, or its task has ended),
    /// EACCES (the permit is for reading only, but each attachment can be written), EINVAL (the
    /// range is empty or not within the segment).
    pub fn range(
        &self,
        task: &ThisTask,
        apid: u64,
        offset: i64,
        size: u64,
    ) -> Result<Range<u64>, Errno> {
        let permit = self.permits.get(&apid).ok_or(Errno::NOENT)?;
        let segment = &permit.segment;
        segment.check_exists(task)?;
        if !permit.write {
            return Err(Errno::ACCESS);
        }
        let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
        let within = offset.checked_add(size).is_some_and(|end| end <= segment.size);
        if size == 0 || !within {
            return Err(Errno::INVAL);
        }
        // The values of a peer are not trusted: their sum may overflow.
        let start = segment.start.checked_add(offset).ok_or(Errno::INVAL)?;
        // Static data of a program that is linked to fixed addresses.
        let start = segment.owner(task).map_or(start, |id| task.found_at(id, start));
        Ok(start..start.checked_add(size).ok_or(Errno::INVAL)?)
    }

    /// Adds an attachment.
    pub fn attach(&mut self, apid: u64, range: &Range<u64>) {
        debug_assert!(range.start < range.end, "an empty attachment");
        self.attachments_ever += 1;
        let attachment = Attachment { end: range.end, apid };
        self.attachments.insert((range.start, self.attachments_ever), attachment);
    }

    /// Removes the attachment that contains `address`: of several, the one that begins last, and of
    /// those the newest. Returns false if there is none.
    pub fn detach(&mut self, address: u64) -> bool {
        let mut before = self.attachments.range(..=(address, u64::MAX)).rev();
        let Some((&key, _)) = before.find(|(_, attachment)| address < attachment.end) else {
            return false;
        };
        self.attachments.remove(&key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_detached_as_often_as_it_was_attached() {
        let mut permits = Permits::default();
        permits.attach(1, &(0x1000..0x5000));
        permits.attach(1, &(0x1000..0x2000));
        permits.attach(1, &(0x8000..0x9000));
        assert!(permits.detach(0x1000));
        // The larger of the two remains.
        assert!(permits.detach(0x4fff));
        assert!(!permits.detach(0x1000));
        assert!(!permits.detach(0x9000));
        assert!(permits.detach(0x8fff));
        assert!(!permits.detach(0x8000));
    }
}
