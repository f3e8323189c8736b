//! The used part of PMIx's client interface, declared by hand and loaded at run time as in
//! [`ucp`](crate::ucx::ucp). [`wireup`](crate::wireup) describes the purpose. The structures are
//! those of PMIx 2 to 6.

#![allow(non_camel_case_types, non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::declare::{constants, functions, structures};
use crate::signals;

/// File name of the library. It contains the ABI version.
const LIBRARY: &str = "libpmix.so.2";

/// Negative for errors.
pub type pmix_status_t = c_int;
/// Callback of PMIx for the end of an operation, on a thread of PMIx.
pub type pmix_op_cbfunc_t = unsafe extern "C" fn(status: pmix_status_t, of: *mut c_void);

constants! {
    PMIX_SUCCESS: pmix_status_t = 0;
    PMIX_ERR_PARTIAL_SUCCESS: pmix_status_t = -52;
    PMIX_RANK_WILDCARD: u32 = u32::MAX - 1;
    PMIX_GLOBAL: u8 = 3;
    PMIX_BOOL: u16 = 1;
    PMIX_STRING: u16 = 3;
    PMIX_INT: u16 = 6;
    PMIX_UINT16: u16 = 13;
    PMIX_UINT32: u16 = 14;
    PMIX_BYTE_OBJECT: u16 = 27;
}

/// `PMIX_JOB_SIZE`: processes in the job, `PMIX_UINT32`.
pub const JOB_SIZE: &CStr = c"pmix.job.size";
/// `PMIX_LOCAL_RANK`: which of the job's processes on its node, `PMIX_UINT16`.
pub const LOCAL_RANK: &CStr = c"pmix.lrank";
/// `PMIX_HOSTNAME`: a process's host, `PMIX_STRING`.
pub const HOSTNAME: &CStr = c"pmix.hname";
/// `PMIX_COLLECT_DATA`: a fence brings all that was put, `PMIX_BOOL`.
pub const COLLECT_DATA: &CStr = c"pmix.collect";
/// `PMIX_IMMEDIATE`: do not wait for absent data, `PMIX_BOOL`.
pub const IMMEDIATE: &CStr = c"pmix.immediate";
/// `PMIX_TIMEOUT`: in seconds, `PMIX_INT`.
pub const TIMEOUT: &CStr = c"pmix.timeout";

structures! {
    /// Bytes.
    pub struct pmix_byte_object_t {
        bytes: *mut c_char,
        size: usize,
    }
    /// A process.
    pub struct pmix_proc_t {
        nspace: [c_char; 256],
        rank: u32,
    }
    /// A value and its type.
    pub struct pmix_value_t {
        r#type: u16,
        data: Data,
    }
    /// A value and its key.
    pub struct pmix_info_t {
        key: [c_char; 512],
        flags: u32,
        value: pmix_value_t,
    }
}

/// The used members of the union of values.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    /// `PMIX_BOOL`.
    pub flag: bool,
    /// `PMIX_INT`.
    pub int: c_int,
    /// `PMIX_UINT16`.
    pub uint16: u16,
    /// `PMIX_UINT32`.
    pub uint32: u32,
    /// `PMIX_STRING`.
    pub string: *mut c_char,
    /// `PMIX_BYTE_OBJECT`.
    pub bo: pmix_byte_object_t,
    /// The largest type has three words.
    pub words: [usize; 3],
}

functions! {
    /// PMIx's functions, as pmix.h describes them.
    pub struct Pmix {
        PMIx_Init: fn(process: *mut pmix_proc_t, info: *const pmix_info_t, count: usize)
            -> pmix_status_t;
        PMIx_Finalize: fn(info: *const pmix_info_t, count: usize) -> pmix_status_t;
        PMIx_Abort: fn(status: c_int, message: *const c_char, processes: *const pmix_proc_t,
            count: usize) -> pmix_status_t;
        PMIx_Put: fn(scope: u8, key: *const c_char, value: *mut pmix_value_t) -> pmix_status_t;
        PMIx_Commit: fn() -> pmix_status_t;
        PMIx_Fence_nb: fn(processes: *const pmix_proc_t, count: usize, info: *const pmix_info_t,
            infos: usize, over: pmix_op_cbfunc_t, of: *mut c_void) -> pmix_status_t;
        PMIx_Get: fn(process: *const pmix_proc_t, key: *const c_char, info: *const pmix_info_t,
            count: usize, value: *mut *mut pmix_value_t) -> pmix_status_t;
        PMIx_Error_string: fn(status: pmix_status_t) -> *const c_char;
    }
}

impl pmix_info_t {
    /// A value of a type and its key.
    pub fn of(key: &CStr, r#type: u16, data: Data) -> Self {
        let mut info = Self::empty();
        for (to, from) in info.key.iter_mut().zip(key.to_bytes()) {
            *to = *from as c_char;
        }
        info.value = pmix_value_t { r#type, data };
        info
    }
}

impl Pmix {
    /// PMIx, loaded at the first call. The error is one line.
    pub fn get() -> Result<&'static Self, &'static str> {
        static PMIX: OnceLock<Result<Pmix, String>> = OnceLock::new();
        PMIX.get_or_init(Self::load).as_ref().map_err(String::as_str)
    }

    fn load() -> Result<Self, String> {
        // SAFETY: it has no constructors that change the process.
        let library = signals::undisturbed(|| unsafe { libloading::Library::new(LIBRARY) });
        let library = library.map_err(|error| {
            format!(
                "PMIx, by which this job's processes find each other, is missing here: {error}; \
                 install it (Debian, Ubuntu: libpmix2; Fedora, RHEL: pmix)"
            )
        })?;
        let pmix = Self::of(&library)
            .map_err(|error| format!("this {LIBRARY} is none that we know: {error}"));
        // It has threads: it stays.
        std::mem::forget(library);
        pmix
    }

    /// PMIx's word for a status.
    pub fn reason(&self, status: pmix_status_t) -> &'static str {
        // SAFETY: a string that PMIx has for each status, or for any other.
        let text = unsafe { CStr::from_ptr((self.PMIx_Error_string)(status)) };
        text.to_str().unwrap_or("unknown error")
    }
}

/// A value that PMIx has allocated.
pub struct Value(*mut pmix_value_t);

impl Value {
    /// Takes ownership of a result of `PMIx_Get`.
    ///
    /// # Safety
    /// `value` must be a result of `PMIx_Get`, and nothing else may free it.
    pub unsafe fn new(value: *mut pmix_value_t) -> Self {
        Self(value)
    }

    /// An unsigned number, if it is one.
    pub fn number(&self) -> Option<u32> {
        // SAFETY: `new` requires a value that PMIx allocated. Its type selects the valid union
        // field.
        unsafe {
            match (*self.0).r#type {
                PMIX_UINT16 => Some((*self.0).data.uint16.into()),
                PMIX_UINT32 => Some((*self.0).data.uint32),
                _ => None,
            }
        }
    }

    /// A string or bytes, if it is one.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        // SAFETY: `new` requires a value that PMIx allocated. Its type selects the valid union
        // field.
        unsafe {
            match (*self.0).r#type {
                PMIX_STRING => {
                    let string = (*self.0).data.string;
                    (!string.is_null()).then(|| CStr::from_ptr(string).to_bytes().to_vec())
                }
                PMIX_BYTE_OBJECT if (*self.0).data.bo.size == 0 => Some(Vec::new()),
                PMIX_BYTE_OBJECT => {
                    let bo = (*self.0).data.bo;
                    let bytes = || std::slice::from_raw_parts(bo.bytes.cast::<u8>(), bo.size);
                    (!bo.bytes.is_null()).then(|| bytes().to_vec())
                }
                _ => None,
            }
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: from PMIx, which allocates by malloc; freed as its macro frees it, which is
        // no function of all versions.
        unsafe {
            match (*self.0).r#type {
                PMIX_STRING => libc::free((*self.0).data.string.cast::<c_void>()),
                PMIX_BYTE_OBJECT => libc::free((*self.0).data.bo.bytes.cast::<c_void>()),
                _ => {}
            }
            libc::free(self.0.cast());
        }
    }
}
