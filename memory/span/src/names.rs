//! Names of mappings, for reports.

use crate::context::Context;
use crate::here::Here;
use crate::raw;
use crate::request::Request;
use crate::slot::Slot;

/// Records the file or stack that was mapped; `a` are the arguments of mmap(2).
pub fn name(here: &Here, slot: &Slot, start: u64, bytes: u64, a: [u64; 6]) {
    let (flags, descriptor, offset) = (a[3] as i32, a[4] as i32, a[5]);
    let ask = |name| here.table.request(slot, Request::Name { start, bytes, offset, name });
    if flags & libc::MAP_ANONYMOUS == 0 {
        // The slot's context is not in use during mmap(2).
        let room = size_of::<Context>();
        let name = raw::name_of(descriptor, slot.context().cast(), room);
        if name > 0 {
            ask(name as u32);
        }
    } else if flags & libc::MAP_STACK != 0 {
        ask(0);
    }
}
