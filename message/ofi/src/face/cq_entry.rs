//! A completion in libfabric's largest format (`fi_cq_tagged_entry`).

use std::ffi::c_void;

use crate::abi;
use crate::engine::completion::Completion;

/// Returns a completion in that format.
pub fn entry(done: &Completion) -> abi::CqTaggedEntry {
    abi::CqTaggedEntry {
        op_context: done.context as *mut c_void,
        flags: done.flags,
        len: done.length as usize,
        buf: done.buffer as *mut c_void,
        data: done.data,
        tag: done.tag,
    }
}
