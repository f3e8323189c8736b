//! Trace events of this library's calls, sent by libpvm3. Without a tracer, a call reads only one
//! word.

use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering::Relaxed;

use pvm::event::{Event, Id};

use crate::pvm3::{nagaya_pvm_trace_entry, nagaya_pvm_trace_exit, nagaya_pvm_traced};

/// A call on a group, and its trace event.
pub struct Traced {
    event: Event,
    group: *const c_char,
    argument: Option<(Id, c_int)>,
    gives: Id,
}

/// Returns the description of a call on this group, without other arguments. Its result is a
/// condition code, unless [`Traced::gives`] changes that.
///
/// # Safety
/// `group` is a null-terminated string or null, and stays valid while the call runs.
pub unsafe fn traced(event: Event, group: *const c_char) -> Traced {
    Traced { event, group, argument: None, gives: Id::CC }
}

impl Traced {
    /// Adds an argument.
    pub fn with(self, id: Id, value: c_int) -> Traced {
        Traced { argument: Some((id, value)), ..self }
    }

    /// Sets the kind of the result.
    pub fn gives(self, gives: Id) -> Traced {
        Traced { gives, ..self }
    }

    /// Runs the call.
    #[inline]
    pub fn run(self, run: impl FnOnce() -> c_int) -> c_int {
        self.run_listing(|_| run())
    }

    /// Runs a call that lists tasks.
    #[inline]
    pub fn run_listing(self, run: impl FnOnce(&mut Vec<c_int>) -> c_int) -> c_int {
        let depth = nagaya_pvm_traced.load(Relaxed).then(|| self.begin());
        let mut list = Vec::new();
        let result = run(&mut list);
        if let Some(depth) = depth {
            self.end(depth, result, &list);
        }
        result
    }

    #[cold]
    fn begin(&self) -> c_int {
        let (id, value) = self.argument.map_or((-1, 0), |(id, value)| (id as c_int, value));
        // SAFETY: `group` is a string or null and still valid, required by `traced`.
        unsafe { nagaya_pvm_trace_entry(self.event as c_int, self.group, id, value) }
    }

    #[cold]
    fn end(&self, depth: c_int, result: c_int, list: &[c_int]) {
        let (event, id) = (self.event as c_int, self.gives as c_int);
        let count = list.len() as c_int;
        // SAFETY: `list` has `count` tids.
        unsafe { nagaya_pvm_trace_exit(event, depth, id, result, list.as_ptr(), count) };
    }
}
