//! The result of a failed call, and the line that explains it.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use nagaya_fcp::error::{Broken, Refused, WindowError};

/// `FCP_EINVAL` and the other error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Invalid = -1,
    Window = -2,
    Gone = -3,
    Dead = -4,
    TimedOut = -5,
    TooLong = -6,
    Forked = -7,
    Corrupt = -8,
    Busy = -9,
}

/// A call that failed.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub reason: String,
}

impl Code {
    const ALL: [Self; 9] = [
        Self::Invalid,
        Self::Window,
        Self::Gone,
        Self::Dead,
        Self::TimedOut,
        Self::TooLong,
        Self::Forked,
        Self::Corrupt,
        Self::Busy,
    ];

    fn text(self) -> &'static CStr {
        match self {
            Self::Invalid => c"an argument is invalid",
            Self::Window => c"the window, or a place in it, is not available",
            Self::Gone => c"no member has this ID; FCP_procs lists the members",
            Self::Dead => c"the receiver has ended",
            Self::TimedOut => c"the time limit has passed",
            Self::TooLong => c"the message is too long for the protocol",
            Self::Forked => c"the port is the parent's; a child makes its own by FCP_alloc",
            Self::Corrupt => c"a process has overwritten the receive buffer; free the port",
            Self::Busy => c"another thread uses the port; give each thread a port of its own",
        }
    }
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Self { code, reason: code.text().to_string_lossy().into_owned() }
    }
}

impl From<WindowError> for Failure {
    fn from(error: WindowError) -> Self {
        Self { code: Code::Window, reason: error.to_string() }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::from(match refused {
            Refused::TooLong => Code::TooLong,
            Refused::Full => Code::TimedOut,
            // `Mail` sends parts instead, so no caller sees `OutOfReach`.
            Refused::Dead | Refused::OutOfReach => Code::Dead,
            Refused::Gone => Code::Gone,
            Refused::Forked => Code::Forked,
        })
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        Self::from(match broken {
            Broken::Corrupt => Code::Corrupt,
            Broken::Forked => Code::Forked,
        })
    }
}

/// Returns the failure of an invalid argument.
pub fn invalid(reason: impl Into<String>) -> Failure {
    Failure { code: Code::Invalid, reason: reason.into() }
}

thread_local! {
    static REASON: RefCell<CString> = RefCell::default();
}

/// Returns the result as C gets it, and stores the reason for `FCP_reason`.
pub fn answer<T: From<i32>>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|Failure { code, reason }| {
        let line = CString::new(reason.replace('\0', "?")).expect("no NUL is left");
        REASON.with(|reason| *reason.borrow_mut() = line);
        T::from(code as i32)
    })
}

/// See `include/fcp.h`.
#[unsafe(no_mangle)]
pub extern "C" fn FCP_strerror(error: c_int) -> *const c_char {
    let known = Code::ALL.into_iter().find(|code| *code as c_int == error);
    let other = if error >= 0 { c"no error" } else { c"not an error of FCP" };
    known.map_or(other, Code::text).as_ptr()
}

/// See `include/fcp.h`.
#[unsafe(no_mangle)]
pub extern "C" fn FCP_reason() -> *const c_char {
    REASON.with(|reason| reason.borrow().as_ptr())
}
