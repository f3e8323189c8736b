//! libxpmem.so.0: the calls of XPMEM's user library (github.com/hpc/xpmem) for the tasks of one
//! space, without its kernel module.
//!
//! With XPMEM, a process *makes* a segment of its memory known under a segid. Others *get* an
//! access permit (apid) to it and *attach* it. The module then maps the pages into the attaching
//! process, by one fault for each page. In a space everything is mapped already: an attachment is
//! the address itself. What remains is bookkeeping with the meaning, the permissions and the errors
//! of the module.
//! `segment` has the segments that a task has made, and finds those of others. `permit` has the
//! task's permits and attachments. `access` checks permissions.
//!
//! Outside a space, and in a protected job, all calls fail with ENOENT, as those of the real
//! library without `/dev/xpmem`.
//! The contract is `include/xpmem.h`.

mod access;
mod permit;
mod segment;

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock};

use control::ThisTask;
use rustix::io::Errno;

use access::Creator;
use permit::Permits;
use segment::Segments;

/// The result of `xpmem_version`: the interface of XPMEM 2.6.5, with the major number in the upper
/// half.
const VERSION: c_int = 0x0002_6005;
/// `XPMEM_PERMIT_MODE`, the only permit type.
const PERMIT_MODE: c_int = 1;
/// `XPMEM_RDONLY`.
const RDONLY: c_int = 1;
/// `XPMEM_RDWR`.
const RDWR: c_int = 2;
/// `XPMEM_MAXADDR_SIZE`: all memory from an address on.
const MAXADDR_SIZE: u64 = u64::MAX;
/// End of the addresses of programs (TASK_SIZE of x86-64 with four levels of page tables).
const ADDRESS_END: u64 = (1 << 47) - PAGE_SIZE;

const PAGE_SIZE: u64 = nagaya_layout::PAGE_SIZE;

/// The state of this process, which the module keeps for an open `/dev/xpmem`.
struct Process {
    creator: Creator,
    /// Empty before the first segment is made.
    segments: OnceLock<Segments>,
    making_segments: Mutex<()>,
    permits: Mutex<Permits>,
}

/// Returns the calling task and its state. Error: ENOENT outside a space, in a child by fork(2) or
/// vfork(2), which has left it, and in a protected job, whose tasks cannot write each other's
/// memory.
fn open() -> Result<(ThisTask, &'static Process), Errno> {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    let task = control::this_task().filter(|task| task.control.protection().is_none());
    let task = task.ok_or(Errno::NOENT)?;
    let process = PROCESS.get_or_init(|| Process {
        creator: Creator::current(),
        segments: OnceLock::new(),
        making_segments: Mutex::default(),
        permits: Mutex::default(),
    });
    Ok((task, process))
}

impl Process {
    /// Returns the table of segments. The first call makes and publishes it.
    fn segments(&self, task: &ThisTask) -> Result<&Segments, Errno> {
        if let Some(segments) = self.segments.get() {
            return Ok(segments);
        }
        let _one = self.making_segments.lock().expect("no panic while held");
        if let Some(segments) = self.segments.get() {
            return Ok(segments);
        }
        let made = Segments::publish(task)?;
        Ok(self.segments.get_or_init(|| made))
    }
}

/// Converts a segid or apid of a C caller. Error: EINVAL unless it is positive.
fn positive(id: i64) -> Result<u64, Errno> {
    u64::try_from(id).ok().filter(|&id| id > 0).ok_or(Errno::INVAL)
}

fn answer<T: From<i8>>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(|errno| {
        // SAFETY: the address of this thread's errno is valid as long as the thread runs.
        unsafe { *libc::__errno_location() = errno.raw_os_error() };
        T::from(-1)
    })
}

/// See `include/xpmem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn xpmem_init() -> c_int {
    answer(open().map(|_| 0))
}

/// See `include/xpmem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn xpmem_version() -> c_int {
    answer(open().map(|_| VERSION))
}

/// See `include/xpmem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn xpmem_make(
    vaddr: *mut c_void,
    size: usize,
    permit_type: c_int,
    permit_value: *mut c_void,
) -> i64 {
    let make = || {
        let (task, process) = open()?;
        let (start, mode) = (vaddr as u64, permit_value as u64);
        if permit_type != PERMIT_MODE || mode & !0o777 != 0 || size == 0 {
            return Err(Errno::INVAL);
        }
        let left = ADDRESS_END.checked_sub(start).ok_or(Errno::INVAL)?;
        let size = match size as u64 {
            MAXADDR_SIZE => left,
            size if size > left => return Err(Errno::INVAL),
            size => size,
        };
        if !(start | size).is_multiple_of(PAGE_SIZE) {
            return Err(Errno::INVAL);
        }
        let segments = process.segments(&task)?;
        Ok(segments.make(start, size, mode as u32, process.creator)? as i64)
    };
    answer(make())
}

/// See `include/xpmem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn xpmem_remove(segid: i64) -> c_int {
    let remove = || {
        let (task, process) = open()?;
        let segid = positive(segid)?;
        segment::check_owner(&task, segid)?;
        process.segments.get().ok_or(Errno::NOENT)?.remove(segid)?;
        Ok(0)
    };
    answer(remove())
}

/// See `include/xpmem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn xpmem_get(
    segid: i64,
    flags: c_int,
    permit_type: c_int,
    _permit_value: *mut c_void,
) -> i64 {
    let get = || {
        let (task, process) = open()?;
        let segid = positive(segid)?;
        // The module accepts 0 as read and write, too.
        if !(0..=RDWR).contains(&flags) || permit_type != PERMIT_MODE {
            return Err(Errno::INVAL);
        }
        let segment = segment::find(&task, segid)?;
        let write = flags != RDONLY;
        access::check(segment.mode, segment.creator, write)?;
        let apid = process.permits.lock().expect("no panic while held").add(segment, write)?;
        Ok(apid as i64)
    };
    answer(get())
}

/// See `include/xpmem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn xpmem_release(apid: i64) -> c_int {
    let release = || {
        let (task, process) = open()?;
        let apid = positive(apid)?;
        permit::check_owner(&task, apid)?;
        process.permits.lock().expect("no panic while held").release(apid)?;
        Ok(0)
    };
    answer(release())
}

/// `struct xpmem_addr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Address {
    apid: i64,
    offset: libc::off_t,
}

/// See `include/xpmem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn xpmem_attach(addr: Address, size: usize, vaddr: *mut c_void) -> *mut c_void {
    let attach = || {
        let (task, process) = open()?;
        let apid = positive(addr.apid)?;
        let wanted = vaddr as u64;
        if wanted > ADDRESS_END || !(wanted | addr.offset as u64).is_multiple_of(PAGE_SIZE) {
            return Err(Errno::INVAL);
        }
        let size = nagaya_layout::align_up(size as u64, PAGE_SIZE).ok_or(Errno::INVAL)?;
        permit::check_owner(&task, apid)?;
        let mut permits = process.permits.lock().expect("no panic while held");
        let range = permits.range(&task, apid, addr.offset, size)?;
        // Memory of a space has one address, so an attachment at another one is impossible.
        if wanted != 0 && wanted != range.start {
            return Err(Errno::INVAL);
        }
        permits.attach(apid, &range);
        Ok(range.start as i64)
    };
    answer(attach()) as *mut c_void
}

/// See `include/xpmem.h`.
#[unsafe(no_mangle)]
pub extern "C" fn xpmem_detach(vaddr: *mut c_void) -> c_int {
    let detach = || {
        let (_, process) = open()?;
        let address = vaddr as u64;
        if process.permits.lock().expect("no panic while held").detach(address) {
            return Ok(0);
        }
        // The module accepts an address where nothing is mapped.
        let mut resident = 0;
        let page = nagaya_layout::align_down(address, PAGE_SIZE) as *mut c_void;
        // SAFETY: mincore writes one byte for the one page into `resident`, or fails.
        let mapped = unsafe { libc::mincore(page, PAGE_SIZE as usize, &mut resident) } == 0;
        if mapped { Err(Errno::INVAL) } else { Ok(0) }
    };
    answer(detach())
}
