//! Segments: those that a task has made, in a table of its own memory, and the search for those of
//! others.
//!
//! A segid names the task, the record in its table, and the use of that record:
//! ```text
//! bit 0        22             38                63
//!     │ PID    │ record       │ use             │ 0
//! ```
//! The PID leads to the task by the space's PID table, and a name in its export area to the table.
//! Only the task writes the table, one thread at a time. Others *copy* records by process_vm_readv,
//! because the table is in memory that disappears with its task at any instant.
//!
//! A record is valid while it holds its segid. That is written last when a segment is made, and
//! cleared first when it is removed, so a killed task leaves no half record. A reader copies the
//! body, then the segid. It has got the segid after the segment was made, so the body was complete.
//! If the record still holds the segid, nothing has changed since: no segid is used twice.
//!
//! Uses are counted from a number that depends on the time at which the table was made. So an old
//! segid names nothing in a later task with the same PID.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use control::{ThisTask, export};
use nagaya_layout::PIDS_MAX;
use rustix::io::Errno;

use crate::access::Creator;

/// Largest number of segments that one task has at a time.
pub const SEGMENTS_MAX: usize = 1 << RECORD_BITS;

/// Name of the table in a task's export area. The number changes with the layout of [`Record`].
const TABLE_NAME: &[u8] = b"nagaya.xpmem.1";

const PID_BITS: u32 = PIDS_MAX.ilog2();
const RECORD_BITS: u32 = 16;
const USE_BITS: u32 = 63 - PID_BITS - RECORD_BITS;
/// Largest number of uses of a record: with more, a segid would repeat.
const USES_MAX: u32 = 1 << USE_BITS;

/// The parts of a segid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    pid: u32,
    record: usize,
    /// Below `USES_MAX`.
    turn: u32,
}

impl Name {
    fn of(segid: u64) -> Self {
        let bits = |from: u32, count: u32| (segid >> from) as u32 & ((1 << count) - 1);
        Self {
            pid: bits(0, PID_BITS),
            record: bits(PID_BITS, RECORD_BITS) as usize,
            turn: bits(PID_BITS + RECORD_BITS, USE_BITS),
        }
    }

    fn segid(self) -> u64 {
        debug_assert!(self.pid >> PID_BITS == 0 && self.record < SEGMENTS_MAX, "{self:?}");
        debug_assert!(self.turn < USES_MAX, "{self:?}");
        u64::from(self.pid)
            | (self.record as u64) << PID_BITS
            | u64::from(self.turn) << (PID_BITS + RECORD_BITS)
    }
}

/// One entry of the table. An entry that was never used is zero.
#[repr(C)]
struct Record {
    /// 0 while there is no segment.
    segid: AtomicU64,
    body: Body,
    /// Number of segments that the record has held. Only its task uses it.
    uses: AtomicU32,
}

#[repr(C)]
#[derive(Default)]
struct Body {
    start: AtomicU64,
    size: AtomicU64,
    mode: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
}

/// A segment as another task sees it.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// Its segid.
    pub segid: u64,
    /// Address of its first byte.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, 0 to 0777.
    pub mode: u32,
    /// User and group to which the permissions refer.
    pub creator: Creator,
    /// Address of its record, in the memory of its task.
    record: u64,
}

impl Segment {
    /// Returns the ID of the task that has made it, if that lives.
    pub fn owner(&self, task: &ThisTask) -> Option<u32> {
        task.task_of(Name::of(self.segid).pid)
    }
}

/// The table of the calling task.
pub struct Segments {
    records: &'static [Record],
    /// The number of the first use of each record.
    first_use: u32,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Records that were used before.
    again: Vec<usize>,
    /// Index of the first record that was never used.
    fresh: usize,
}

impl Segments {
    /// Makes an empty table that the other tasks can find. Error: ENOMEM (also if 255 names are
    /// exported already).
    pub fn publish(task: &ThisTask) -> Result<Self, Errno> {
        let bytes = SEGMENTS_MAX * size_of::<Record>();
        // SAFETY: without MAP_FIXED, the kernel chooses unused addresses. (Pages are populated when
        // records are used.)
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Errno::NOMEM);
        }
        if export::export(&task.control, task.id, TABLE_NAME, at as u64, bytes as u64).is_err() {
            // SAFETY: mapped above, and the failed export gave nobody the address.
            unsafe { libc::munmap(at, bytes) };
            return Err(Errno::NOMEM);
        }
        // SAFETY: the mapping has room for `SEGMENTS_MAX` records, is page-aligned, zero (a valid
        // record), and never unmapped. Records consist of atomics.
        let records = unsafe { std::slice::from_raw_parts(at.cast::<Record>(), SEGMENTS_MAX) };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // About milliseconds; the numbers repeat after nine hours.
        let first_use = ((now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) >> 20) as u32;
        Ok(Self { records, first_use, free: Mutex::default() })
    }

    /// Makes a segment known. Returns its segid. Error: ENOMEM (there are `SEGMENTS_MAX` segments).
    pub fn make(&self, start: u64, size: u64, mode: u32, creator: Creator) -> Result<u64, Errno> {
        let mut free = self.free.lock().expect("no panic while held");
        let index = match free.again.pop() {
            Some(index) => index,
            None if free.fresh == SEGMENTS_MAX => return Err(Errno::NOMEM),
            None => {
                free.fresh += 1;
                free.fresh - 1
            }
        };
        let record = &self.records[index];
        let uses = record.uses.fetch_add(1, Ordering::Relaxed);
        let turn = self.first_use.wrapping_add(uses) % USES_MAX;
        let segid = Name { pid: std::process::id(), record: index, turn }.segid();
        let Body { start: start_, size: size_, mode: mode_, uid, gid } = &record.body;
        start_.store(start, Ordering::Relaxed);
        size_.store(size, Ordering::Relaxed);
        mode_.store(mode, Ordering::Relaxed);
        uid.store(creator.uid, Ordering::Relaxed);
        gid.store(creator.gid, Ordering::Relaxed);
        record.segid.store(segid, Ordering::Release);
        Ok(segid)
    }

    /// Removes a segment that this task has made. Error: ENOENT.
    pub fn remove(&self, segid: u64) -> Result<(), Errno> {
        let mut free = self.free.lock().expect("no panic while held");
        let index = Name::of(segid).record;
        let record = &self.records[index];
        if record.segid.load(Ordering::Relaxed) != segid {
            return Err(Errno::NOENT);
        }
        record.segid.store(0, Ordering::Relaxed);
        // The next writes of `make` to this record must not become visible before.
        fence(Ordering::Release);
        if record.uses.load(Ordering::Relaxed) < USES_MAX {
            free.again.push(index);
        }
        Ok(())
    }
}

/// Checks that the caller has made `segid`. Errors: EACCES (another task has made it), ENOENT (no
/// living task has made it).
pub fn check_owner(task: &ThisTask, segid: u64) -> Result<(), Errno> {
    let pid = Name::of(segid).pid;
    if pid == std::process::id() {
        return Ok(());
    }
    Err(if task.task_of(pid).is_some() { Errno::ACCESS } else { Errno::NOENT })
}

/// Finds a segment of any task. Error: ENOENT.
pub fn find(task: &ThisTask, segid: u64) -> Result<Segment, Errno> {
    let name = Name::of(segid);
    let id = task.task_of(name.pid).ok_or(Errno::NOENT)?;
    let (table, bytes) = export::import(&task.control, id, TABLE_NAME, Some(Duration::ZERO))
        .map_err(|_| Errno::NOENT)?;
    let offset = (name.record * size_of::<Record>()) as u64;
    if offset + size_of::<Record>() as u64 > bytes {
        return Err(Errno::NOENT);
    }
    let record = table.checked_add(offset).ok_or(Errno::NOENT)?;
    let mut body = [0; size_of::<Body>()];
    copy(name.pid, record + size_of::<AtomicU64>() as u64, &mut body)?;
    check_segid(name.pid, record, segid)?;
    let word = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().expect("eight"));
    let half = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().expect("four"));
    Ok(Segment {
        segid,
        start: word(std::mem::offset_of!(Body, start)),
        size: word(std::mem::offset_of!(Body, size)),
        mode: half(std::mem::offset_of!(Body, mode)),
        creator: Creator {
            uid: half(std::mem::offset_of!(Body, uid)),
            gid: half(std::mem::offset_of!(Body, gid)),
        },
        record,
    })
}

impl Segment {
    /// Checks that its task lives and has not removed it. Error: ENOENT.
    pub fn check_exists(&self, task: &ThisTask) -> Result<(), Errno> {
        let pid = Name::of(self.segid).pid;
        task.task_of(pid).ok_or(Errno::NOENT)?;
        check_segid(pid, self.record, self.segid)
    }
}

fn check_segid(pid: u32, record: u64, segid: u64) -> Result<(), Errno> {
    let mut found = [0; size_of::<u64>()];
    copy(pid, record, &mut found)?;
    if u64::from_ne_bytes(found) == segid { Ok(()) } else { Err(Errno::NOENT) }
}

/// Copies from the memory of another task, which may end during the copy. Error: ENOENT.
fn copy(pid: u32, from: u64, to: &mut [u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from as *mut _, iov_len: to.len() };
    // SAFETY: the call writes `to` only, and fails on remote addresses that it cannot read.
    let copied = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
    if copied == to.len() as isize { Ok(()) } else { Err(Errno::NOENT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segids_are_positive_and_contain_their_parts() {
        for pid in [1, 4711, PIDS_MAX as u32 - 1] {
            for record in [0, 1, SEGMENTS_MAX - 1] {
                for turn in [0, 1, USES_MAX - 1] {
                    let name = Name { pid, record, turn };
                    assert!(name.segid() as i64 > 0);
                    assert_eq!(Name::of(name.segid()), name);
                }
            }
        }
    }
}
