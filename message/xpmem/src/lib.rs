//! libxpmem.so.0: the calls of XPMEM's user library (github.com/hpc/xpmem) for the tasks
//! of one space, without its kernel module.
//!
//! XPMEM lets a process *make* a segment of its memory known under a segid, and others
//! *get* an access permit (apid) to it and *attach* it. The module then maps the pages
//! into the attaching process, one fault a page. In a space everything is mapped already:
//! an attachment is the address itself. What is left is bookkeeping, with the meaning,
//! the permissions and the errors of the module: `segment` holds what a task has made
//! and how others find it, `permit` what it has got and attached, `access` who may.
//!
//! Outside a space all calls fail with ENOENT, which is what the real library answers
//! where there is no `/dev/xpmem`. The contract is `include/xpmem.h`.

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

/// What `xpmem_version` says: the interface of XPMEM 2.6.5, major number << 16.
const VERSION: c_int = 0x0002_6005;
/// `XPMEM_PERMIT_MODE`, the only permit type.
const PERMIT_MODE: c_int = 1;
/// `XPMEM_RDONLY`.
const RDONLY: c_int = 1;
/// `XPMEM_RDWR`.
const RDWR: c_int = 2;
/// `XPMEM_MAXADDR_SIZE`: all from an address on.
const MAXADDR_SIZE: u64 = u64::MAX;
/// Addresses of programs end here (TASK_SIZE of x86-64 with four levels of page tables).
const ADDRESS_END: u64 = (1 << 47) - PAGE_SIZE;

const PAGE_SIZE: u64 = nagaya_layout::PAGE_SIZE;

/// What this process knows: as `/dev/xpmem`, opened by the first call, would.
struct Process {
    creator: Creator,
    /// None before the first segment is made.
    segments: OnceLock<Segments>,
    making_segments: Mutex<()>,
    permits: Mutex<Permits>,
}

/// The calling task and its state. Error: ENOENT outside a space, and in a child by
/// fork(2) or vfork(2), which has left it.
fn open() -> Result<(ThisTask, &'static Process), Errno> {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    let task = control::this_task().ok_or(Errno::NOENT)?;
    let process = PROCESS.get_or_init(|| Process {
        creator: Creator::current(),
        segments: OnceLock::new(),
        making_segments: Mutex::default(),
        permits: Mutex::default(),
    });
    Ok((task, process))
}

impl Process {
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

/// A segid or apid as C passes it. Error: EINVAL unless positive.
fn positive(id: i64) -> Result<u64, Errno> {
    u64::try_from(id).ok().filter(|&id| id > 0).ok_or(Errno::INVAL)
}

fn answer<T: From<i8>>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(|errno| {
        // SAFETY: errno of this thread.
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
        // The module takes 0 for read and write as well.
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
        // Memory of a space has one address; an attachment elsewhere cannot be made.
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
        // The module has nothing to say against an address where nothing is mapped.
        let mut resident = 0;
        let page = nagaya_layout::align_down(address, PAGE_SIZE) as *mut c_void;
        // SAFETY: writes one byte for the one page, or fails.
        let mapped = unsafe { libc::mincore(page, PAGE_SIZE as usize, &mut resident) } == 0;
        if mapped { Err(Errno::INVAL) } else { Ok(0) }
    };
    answer(detach())
}
