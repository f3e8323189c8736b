//! `include/pvas_delegate.h`. Each function converts, calls, and turns errors into errno.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::os::fd::BorrowedFd;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::delegatee::{self, Job, Operation};
use crate::error::Error;
use crate::io::{self, Whose};
use crate::kept::Kept;
use crate::passed;
use crate::requester::{Request, Way};

/// `PVAS_DELEGATE_FILES`, `PVAS_DELEGATE_SOCKETS`, `PVAS_DELEGATE_PASSED`.
const FILES: u32 = 1;
const SOCKETS: u32 = 2;
const PASSED: u32 = 4;
/// `PVAS_DELEGATE_SERVER`.
const SERVER: c_int = -2;

thread_local! {
    static REASON: RefCell<Option<CString>> = const { RefCell::new(None) };
}

fn fail(error: Error) {
    REASON.with(|reason| *reason.borrow_mut() = CString::new(error.to_string()).ok());
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() = error.errno().raw_os_error() };
}

/// What C gets.
#[inline]
fn answer<T: From<i8>>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| {
        fail(error);
        T::from(-1)
    })
}

/// When so many milliseconds are over; never, if they are less than 0.
fn until(timeout_ms: c_int) -> Option<Instant> {
    let time = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    time.map(|time| Instant::now() + time)
}

/// # Safety
/// So many bytes are there, and stay during the call.
unsafe fn given<'a>(payload: *const c_void, length: usize) -> Result<&'a [u8], Error> {
    match (payload.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::Null("payload")),
        // SAFETY: as the caller says.
        _ => Ok(unsafe { slice::from_raw_parts(payload.cast(), length) }),
    }
}

/// `struct pvas_delegate_job`.
#[repr(C)]
#[derive(Debug)]
pub struct CJob {
    requester: c_int,
    operation: u32,
    payload: *const c_void,
    length: usize,
    /// Of the library.
    job: *const c_void,
}

/// A request that is kept, as C has it. The first field is what C sees.
#[repr(C)]
#[derive(Debug)]
struct CKept {
    given: CJob,
    kept: Kept,
}

impl CJob {
    fn of(job: &Job<'_>) -> Self {
        Self {
            requester: job.requester.id as c_int,
            operation: job.operation,
            payload: job.payload.as_ptr().cast(),
            length: job.payload.len(),
            job: std::ptr::from_ref(job).cast(),
        }
    }

    /// # Safety
    /// The job is the one that a callback got, which has not returned.
    unsafe fn job<'a>(this: *const Self) -> Result<&'a Job<'a>, Error> {
        // SAFETY: as the caller says.
        unsafe { this.as_ref().and_then(|this| this.job.cast::<Job<'_>>().as_ref()) }
            .ok_or(Error::Null("job"))
    }
}

/// `pvas_delegate_operation`.
type Callback = unsafe extern "C" fn(job: *const CJob, context: *mut c_void) -> c_long;

/// What C wants back with each call.
struct Context(*mut c_void);
// SAFETY: the caller's, who says by registering it that all threads that serve may use it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// See `include/pvas_delegate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_delegate_open(requests: usize, flags: u32) -> c_int {
    answer((|| {
        if flags & !(FILES | SOCKETS | PASSED) != 0 || flags == PASSED {
            return Err(Error::Invalid("flags"));
        }
        let requests = if requests == 0 { 256 } else { requests };
        let whose = match flags & PASSED {
            0 => Whose::Ours,
            _ => Whose::Passed,
        };
        delegatee::open(u32::try_from(requests).unwrap_or(u32::MAX), |delegatee| {
            if whose == Whose::Passed {
                passed::accept(delegatee)?;
            }
            if flags & FILES != 0 {
                io::serve_files(delegatee, whose)?;
            }
            if flags & SOCKETS != 0 {
                io::serve_sockets(delegatee, whose)?;
            }
            Ok(())
        })?;
        Ok(0)
    })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The callback may be called with this context by every thread that serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_register(
    number: u32,
    callback: Option<Callback>,
    context: *mut c_void,
) -> c_int {
    answer((|| {
        if number >= io::PREADV {
            return Err(Error::Invalid("the number of the operation"));
        }
        let context = Context(context);
        let operation = callback.map(|callback| -> Operation {
            Box::new(move |job: &Job<'_>| {
                let given = CJob::of(job);
                // SAFETY: as the caller of pvas_delegate_register says.
                match said(unsafe { callback(&raw const given, context.pointer()) }) {
                    result @ 0.. => Ok(result),
                    errno => Err(Errno::from_raw_os_error(-errno as i32)),
                }
            })
        });
        delegatee::this()?.register(number, operation)?;
        Ok(0)
    })())
}

/// What an operation has said, or that it made no sense.
fn said(result: c_long) -> c_long {
    if result < -4095 { -c_long::from(libc::EIO) } else { result }
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is a callback's that has not returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_keep(job: *const CJob) -> *const CJob {
    // SAFETY: the caller's job.
    match unsafe { CJob::job(job) }.and_then(|job| Ok(job.keep()?)) {
        Ok(kept) => {
            let mut made = Box::new(CKept { given: CJob::of(kept.job()), kept });
            made.given = CJob::of(made.kept.job()); // where it lies now
            Box::into_raw(made).cast()
        }
        Err(error) => {
            fail(error);
            std::ptr::null()
        }
    }
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is from `pvas_delegate_keep` and not answered yet, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_answer(job: *const CJob, result: c_long) -> c_int {
    if job.is_null() {
        return answer(Err(Error::Null("job")));
    }
    // SAFETY: made by pvas_delegate_keep, and answered once.
    let made = unsafe { Box::from_raw(job.cast_mut().cast::<CKept>()) };
    made.kept.answer(said(result));
    0
}

/// See `include/pvas_delegate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_delegate_serve(timeout_ms: c_int) -> c_int {
    answer(delegatee::this().and_then(|this| this.serve(until(timeout_ms))).map(c_int::from))
}

/// See `include/pvas_delegate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_delegate_close() -> c_int {
    answer(delegatee::this().and_then(|this| this.close()).map(|()| 0))
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is a callback's that has not returned; `to` is a place for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_read(
    job: *const CJob,
    to: *mut c_void,
    from: *const c_void,
    length: usize,
) -> c_int {
    answer((|| {
        // SAFETY: the caller's job and memory.
        let job = unsafe { CJob::job(job)? };
        if length > 0 {
            // SAFETY: as above.
            let to = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), length) };
            job.memory.read(from as u64, to)?;
        }
        Ok(0)
    })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is a callback's that has not returned; so many bytes are at `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_write(
    job: *const CJob,
    to: *mut c_void,
    from: *const c_void,
    length: usize,
) -> c_int {
    answer((|| {
        // SAFETY: the caller's job and memory.
        let (job, from) = unsafe { (CJob::job(job)?, given(from, length)?) };
        job.memory.write(to as u64, from)?;
        Ok(0)
    })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is a callback's that has not returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_check(
    job: *const CJob,
    at: *const c_void,
    length: usize,
    access: c_int,
) -> c_int {
    answer((|| {
        // SAFETY: the caller's job.
        let memory = unsafe { CJob::job(job)? }.memory;
        match access {
            libc::PROT_READ => memory.readable(at as u64, length as u64)?,
            libc::PROT_WRITE => memory.writable(at as u64, length as u64)?,
            _ => return Err(Error::Invalid("access")),
        }
        Ok(0)
    })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is a callback's that has not returned, or one that is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_cancelled(job: *const CJob) -> c_int {
    // SAFETY: the caller's job.
    answer(unsafe { CJob::job(job) }.map(|job| c_int::from(job.is_cancelled())))
}

/// See `include/pvas_delegate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_delegate_find(pvid: c_int, timeout_ms: c_int) -> *const Way {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let way = match u32::try_from(pvid) {
        Ok(id) => Way::find(id, timeout),
        Err(_) if pvid == SERVER => Way::find_server(timeout),
        Err(_) => Err(Error::Invalid("the delegatee's ID")),
    };
    match way {
        Ok(way) => Arc::into_raw(Arc::new(way)),
        Err(error) => {
            fail(error);
            std::ptr::null()
        }
    }
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The way is from `pvas_delegate_find` and not yet released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_release(way: *const Way) {
    if !way.is_null() {
        // SAFETY: the caller's share of it.
        drop(unsafe { Arc::from_raw(way) });
    }
}

/// # Safety
/// The way is from `pvas_delegate_find` and not yet released, or null.
unsafe fn way<'a>(way: *const Way) -> Result<&'a Way, Error> {
    // SAFETY: as the caller says.
    unsafe { way.as_ref() }.ok_or(Error::Null("delegatee"))
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The way is from `pvas_delegate_find` and not yet released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_pass_fd(way: *const Way, fd: c_int) -> c_int {
    answer((|| {
        // SAFETY: as the caller says.
        let way = unsafe { self::way(way)? };
        // SAFETY: no arguments in memory.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(Error::System(Errno::BADF));
        }
        // SAFETY: it is open, and the caller's meanwhile.
        way.pass(unsafe { BorrowedFd::borrow_raw(fd) })
    })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The way is from `pvas_delegate_find` and not yet released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_close_fd(way: *const Way, number: c_int) -> c_int {
    // SAFETY: as the caller says.
    answer(unsafe { self::way(way) }.and_then(|way| way.close_passed(number)).map(|()| 0))
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The way is from `pvas_delegate_find`; the payload is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_call(
    way: *const Way,
    operation: u32,
    payload: *const c_void,
    length: usize,
) -> c_long {
    // SAFETY: as the caller says.
    answer((|| unsafe { self::way(way)?.call(operation, given(payload, length)?) })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The way is from `pvas_delegate_find`; the payload is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_submit(
    way: *const Way,
    operation: u32,
    payload: *const c_void,
    length: usize,
    timeout_ms: c_int,
) -> *mut Request {
    let submit = || {
        // SAFETY: as the caller says.
        let payload = unsafe {
            self::way(way)?;
            given(payload, length)?
        };
        // SAFETY: the caller keeps its share; the request gets one of its own.
        let shared = unsafe {
            Arc::increment_strong_count(way);
            Arc::from_raw(way)
        };
        let until = if timeout_ms < 0 { None } else { until(timeout_ms) };
        shared.submit(operation, payload, until)
    };
    match submit() {
        Ok(request) => Box::into_raw(Box::new(request)),
        Err(error) => {
            fail(error);
            std::ptr::null_mut()
        }
    }
}

/// Gives the answer, and frees the request, if there is one.
///
/// # Safety
/// The request is from `pvas_delegate_submit` and not answered yet, or null; `result` is
/// null or a place for a number.
unsafe fn take(
    request: *mut Request,
    result: *mut c_long,
    by: impl FnOnce(&mut Request) -> Option<Result<i64, Error>>,
) -> Result<c_int, Error> {
    // SAFETY: as the caller says; one thread has it.
    let answer = by(unsafe { request.as_mut() }.ok_or(Error::Null("request"))?);
    let Some(answer) = answer else { return Ok(0) };
    // SAFETY: made by `pvas_delegate_submit`, and answered once.
    drop(unsafe { Box::from_raw(request) });
    let answer = answer.unwrap_or_else(|error| {
        fail(error);
        -i64::from(error.errno().raw_os_error())
    });
    if !result.is_null() {
        // SAFETY: a place for a number.
        unsafe { *result = answer };
    }
    Ok(1)
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// See [`take`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_test(request: *mut Request, result: *mut c_long) -> c_int {
    // SAFETY: as the caller says.
    answer(unsafe { take(request, result, Request::test) })
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// See [`take`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_wait(
    request: *mut Request,
    result: *mut c_long,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: as the caller says.
    answer(unsafe { take(request, result, |request| request.wait(until(timeout_ms))) })
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The request is from `pvas_delegate_submit` and not answered yet, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_cancel(request: *mut Request) -> c_int {
    // SAFETY: as the caller says.
    let request = unsafe { request.as_ref() }.ok_or(Error::Null("request"));
    answer(request.map(|request| {
        request.cancel();
        0
    }))
}

/// See `include/pvas_delegate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_delegate_error() -> *const c_char {
    REASON.with(|last| last.borrow().as_ref().map_or(c"no error".as_ptr(), |line| line.as_ptr()))
}
