//! `include/pvas_delegate.h`. Each function converts its arguments, calls, and returns errors as
//! errno.

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
use crate::requester::{Request, Route};

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
    // SAFETY: the address of this thread's errno is valid as long as the thread runs.
    unsafe { *libc::__errno_location() = error.errno().raw_os_error() };
}

/// Returns a result as C gets it.
#[inline]
fn answer<T: From<i8>>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| {
        fail(error);
        T::from(-1)
    })
}

/// Returns the time in `timeout_ms` milliseconds; `None`, without limit, if that is negative.
fn until(timeout_ms: c_int) -> Option<Instant> {
    let time = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    time.map(|time| Instant::now() + time)
}

/// Returns the caller's payload.
///
/// # Safety If `length` is not 0 and `payload` not null, `length` bytes lie there and do not change
/// during the call.
unsafe fn given<'a>(payload: *const c_void, length: usize) -> Result<&'a [u8], Error> {
    match (payload.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::Null("payload")),
        // SAFETY: not null, and the caller guarantees `length` bytes.
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
    /// The library's [`Job`].
    job: *const c_void,
}

/// A deferred request as C has it. C sees the first field.
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

    /// Returns the library's job.
    ///
    /// # Safety
    /// `this` is null, or the job of a callback that has not returned, or a deferred one.
    unsafe fn job<'a>(this: *const Self) -> Result<&'a Job<'a>, Error> {
        // SAFETY: the caller guarantees a live `CJob`, whose `job` was made from a live `Job`.
        unsafe { this.as_ref().and_then(|this| this.job.cast::<Job<'_>>().as_ref()) }
            .ok_or(Error::Null("job"))
    }
}

/// `pvas_delegate_operation`.
type Callback = unsafe extern "C" fn(job: *const CJob, context: *mut c_void) -> c_long;

/// The context that C gets back with each call.
struct Context(*mut c_void);
// SAFETY: by registering the context, the caller allows all serving threads to use it.
unsafe impl Send for Context {}
// SAFETY: see `Send`.
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
/// Any serving thread may call the callback with this context.
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
                // SAFETY: the caller of pvas_delegate_register allows the call from this thread,
                // and
                // `given` lives until it returns.
                match checked(unsafe { callback(&raw const given, context.pointer()) }) {
                    result @ 0.. => Ok(result),
                    errno => Err(Errno::from_raw_os_error(-errno as i32)),
                }
            })
        });
        delegatee::this()?.register(number, operation)?;
        Ok(0)
    })())
}

/// Returns an operation's result, or EIO if it is neither a result nor an errno.
fn checked(result: c_long) -> c_long {
    if result < -4095 { -c_long::from(libc::EIO) } else { result }
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is of a callback that has not returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_keep(job: *const CJob) -> *const CJob {
    // SAFETY: by this function's contract.
    match unsafe { CJob::job(job) }.and_then(|job| Ok(job.keep()?)) {
        Ok(kept) => {
            let mut made = Box::new(CKept { given: CJob::of(kept.job()), kept });
            made.given = CJob::of(made.kept.job()); // its address after the move
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
    // SAFETY: from `Box::into_raw` in pvas_delegate_keep, and the caller answers once.
    let made = unsafe { Box::from_raw(job.cast_mut().cast::<CKept>()) };
    made.kept.answer(checked(result));
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
/// The job is of a callback that has not returned; `length` bytes can be written at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_read(
    job: *const CJob,
    to: *mut c_void,
    from: *const c_void,
    length: usize,
) -> c_int {
    answer((|| {
        // SAFETY: by this function's contract.
        let job = unsafe { CJob::job(job)? };
        if length > 0 {
            // SAFETY: the caller guarantees `length` bytes at `to`.
            let to = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), length) };
            job.memory.read(from as u64, to)?;
        }
        Ok(0)
    })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is of a callback that has not returned; `length` bytes can be read at `from`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_write(
    job: *const CJob,
    to: *mut c_void,
    from: *const c_void,
    length: usize,
) -> c_int {
    answer((|| {
        // SAFETY: by this function's contract.
        let (job, from) = unsafe { (CJob::job(job)?, given(from, length)?) };
        job.memory.write(to as u64, from)?;
        Ok(0)
    })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The job is of a callback that has not returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_check(
    job: *const CJob,
    at: *const c_void,
    length: usize,
    access: c_int,
) -> c_int {
    answer((|| {
        // SAFETY: by this function's contract.
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
/// The job is of a callback that has not returned, or a deferred one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_cancelled(job: *const CJob) -> c_int {
    // SAFETY: by this function's contract.
    answer(unsafe { CJob::job(job) }.map(|job| c_int::from(job.is_cancelled())))
}

/// See `include/pvas_delegate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_delegate_find(pvid: c_int, timeout_ms: c_int) -> *const Route {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let route = match u32::try_from(pvid) {
        Ok(id) => Route::find(id, timeout),
        Err(_) if pvid == SERVER => Route::find_server(timeout),
        Err(_) => Err(Error::Invalid("the delegatee's ID")),
    };
    match route {
        Ok(route) => Arc::into_raw(Arc::new(route)),
        Err(error) => {
            fail(error);
            std::ptr::null()
        }
    }
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The route is from `pvas_delegate_find` and not yet released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_release(route: *const Route) {
    if !route.is_null() {
        // SAFETY: from `Arc::into_raw` in pvas_delegate_find, and the caller releases once.
        drop(unsafe { Arc::from_raw(route) });
    }
}

/// Returns the caller's route.
///
/// # Safety
/// The route is from `pvas_delegate_find` and not yet released, or null.
unsafe fn route<'a>(route: *const Route) -> Result<&'a Route, Error> {
    // SAFETY: null, or a live route by this function's contract.
    unsafe { route.as_ref() }.ok_or(Error::Null("delegatee"))
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The route is from `pvas_delegate_find` and not yet released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_pass_fd(route: *const Route, fd: c_int) -> c_int {
    answer((|| {
        // SAFETY: by this function's contract.
        let route = unsafe { self::route(route)? };
        // SAFETY: F_GETFD takes no argument in memory.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(Error::System(Errno::BADF));
        }
        // SAFETY: it is open, as fcntl has just shown, and the caller keeps it open during the
        // call.
        route.pass(unsafe { BorrowedFd::borrow_raw(fd) })
    })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The route is from `pvas_delegate_find` and not yet released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_close_fd(route: *const Route, number: c_int) -> c_int {
    // SAFETY: by this function's contract.
    answer(unsafe { self::route(route) }.and_then(|route| route.close_passed(number)).map(|()| 0))
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The route is from `pvas_delegate_find`; the payload is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_call(
    route: *const Route,
    operation: u32,
    payload: *const c_void,
    length: usize,
) -> c_long {
    // SAFETY: by this function's contract.
    answer((|| unsafe { self::route(route)?.call(operation, given(payload, length)?) })())
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The route is from `pvas_delegate_find`; the payload is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_submit(
    route: *const Route,
    operation: u32,
    payload: *const c_void,
    length: usize,
    timeout_ms: c_int,
) -> *mut Request {
    let submit = || {
        // SAFETY: by this function's contract.
        let payload = unsafe {
            self::route(route)?;
            given(payload, length)?
        };
        // SAFETY: `route` is from `Arc::into_raw`, and was checked not to be null. The request gets
        // a reference count of its own; the caller keeps the one that it has.
        let shared = unsafe {
            Arc::increment_strong_count(route);
            Arc::from_raw(route)
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

/// Takes the answer by `by`. If there is one, frees the request.
///
/// # Safety
/// The request is from `pvas_delegate_submit` and not answered yet, or null. `result` is null, or a
/// number can be written there.
unsafe fn take(
    request: *mut Request,
    result: *mut c_long,
    by: impl FnOnce(&mut Request) -> Option<Result<i64, Error>>,
) -> Result<c_int, Error> {
    // SAFETY: null, or a live request by this function's contract, which one thread uses.
    let answer = by(unsafe { request.as_mut() }.ok_or(Error::Null("request"))?);
    let Some(answer) = answer else { return Ok(0) };
    // SAFETY: from `Box::into_raw` in `pvas_delegate_submit`, and it is answered once.
    drop(unsafe { Box::from_raw(request) });
    let answer = answer.unwrap_or_else(|error| {
        fail(error);
        -i64::from(error.errno().raw_os_error())
    });
    if !result.is_null() {
        // SAFETY: not null, so by this function's contract a number can be written there.
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
    // SAFETY: by this function's contract.
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
    // SAFETY: by this function's contract.
    answer(unsafe { take(request, result, |request| request.wait(until(timeout_ms))) })
}

/// See `include/pvas_delegate.h`.
///
/// # Safety
/// The request is from `pvas_delegate_submit` and not answered yet, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_delegate_cancel(request: *mut Request) -> c_int {
    // SAFETY: by this function's contract.
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
