//! The settings of a task: options of pvm_setopt, and the destinations of trace events and output
//! for the task itself and for its children.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::AtomicI32;

use pvm::event::Event;
use pvm::wire::{Inheritance, Sink};

/// Bytes of a trace mask, with the terminating zero.
pub const MASK_SIZE: usize = 36;

/// `struct Pvmtracer`: destinations of trace events and output, of this task or of its children.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tracer {
    pub(super) trace_tid: c_int,
    pub(super) trace_context: c_int,
    pub(super) trace_tag: c_int,
    pub(super) output_tid: c_int,
    pub(super) output_context: c_int,
    pub(super) output_tag: c_int,
    pub(super) trace_buffer: c_int,
    pub(super) trace_options: c_int,
    pub(super) mask: [u8; MASK_SIZE],
}

impl Tracer {
    /// No tracing, and output into the daemon's log.
    pub const NONE: Tracer = Tracer {
        trace_tid: 0,
        trace_context: 0,
        trace_tag: 0,
        output_tid: 0,
        output_context: 0,
        output_tag: 0,
        trace_buffer: 0,
        trace_options: 0,
        mask: [0; MASK_SIZE],
    };

    /// Reads the settings that a task inherits from its parent.
    pub fn of(inheritance: &Inheritance) -> Tracer {
        let Inheritance { output, trace, .. } = inheritance;
        Tracer {
            trace_tid: trace.tid,
            trace_context: trace.context,
            trace_tag: trace.tag,
            output_tid: output.tid,
            output_context: output.context,
            output_tag: output.tag,
            trace_buffer: inheritance.trace_buffer,
            trace_options: inheritance.trace_options,
            mask: mask_of(inheritance.trace_mask.as_bytes()).unwrap_or(NOTHING),
        }
    }

    /// Returns the settings that a child inherits.
    pub fn inheritance(&self, context: c_int) -> Inheritance {
        let mask = self.mask.split(|byte| *byte == 0).next().unwrap_or_default();
        Inheritance {
            output: Sink {
                tid: self.output_tid,
                context: self.output_context,
                tag: self.output_tag,
            },
            trace: Sink { tid: self.trace_tid, context: self.trace_context, tag: self.trace_tag },
            trace_buffer: self.trace_buffer,
            trace_options: self.trace_options,
            trace_mask: String::from_utf8_lossy(mask).into_owned(),
            context,
        }
    }
}

/// The mask that traces no event.
const NOTHING: [u8; MASK_SIZE] = {
    let mut mask = [b'@'; MASK_SIZE];
    mask[MASK_SIZE - 1] = 0;
    mask
};

/// Returns a mask from its text without the zero; `None` if the length is wrong.
pub fn mask_of(text: &[u8]) -> Option<[u8; MASK_SIZE]> {
    let mut mask = NOTHING;
    (text.len() == MASK_SIZE - 1).then(|| mask[..MASK_SIZE - 1].copy_from_slice(text))?;
    Some(mask)
}

/// Settings that are visible to C programs; the library uses them under its lock.
#[repr(transparent)]
pub struct Shared(pub(super) UnsafeCell<Tracer>);

// SAFETY: the library accesses it under its lock. A program that accesses it from several threads
// must synchronize them itself, as with libpvm.
unsafe impl Sync for Shared {}

/// The settings for children.
#[unsafe(no_mangle)]
pub static pvmctrc: Shared = Shared(UnsafeCell::new(Tracer::NONE));

/// The context of messages.
#[unsafe(no_mangle)]
pub static pvmmyctx: AtomicI32 = AtomicI32::new(0);

/// The options of pvm_setopt that are not part of [`Task`](crate::task::Task).
pub struct Options {
    pub(super) debug_mask: c_int,
    /// True if reserved tids and tags may be used.
    pub reserved: bool,
    pub(super) reserved_as: c_int,
    /// True if pvm_catchout prints the tid before each line.
    pub show_tids: bool,
    pub(super) show_tids_as: c_int,
    pub(super) no_reset: c_int,
    /// The destinations of this task.
    pub own: Tracer,
}

impl Default for Options {
    fn default() -> Options {
        let mask = std::env::var("PVMTASKDEBUG").ok();
        Options {
            debug_mask: mask.and_then(|mask| number(&mask)).unwrap_or(0),
            reserved: false,
            reserved_as: 0,
            show_tids: true,
            show_tids_as: 1,
            no_reset: 0,
            own: Tracer::NONE,
        }
    }
}

/// Parses a number of an environment variable, as libpvm does: decimal, octal or hexadecimal.
pub fn number(text: &str) -> Option<c_int> {
    let text = text.trim_start();
    let (digits, radix) = match text.strip_prefix('0') {
        None => (text, 10),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(rest) => (rest, 16),
            None => (text, 8),
        },
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    u32::from_str_radix(&digits[..end], radix).ok().map(|number| number as c_int)
}

impl Tracer {
    /// Sets the sink of trace events, the trace buffer in bytes, and the trace options.
    pub fn set_trace(&mut self, sink: Sink, buffer: c_int, options: c_int) {
        (self.trace_tid, self.trace_context, self.trace_tag) = (sink.tid, sink.context, sink.tag);
        (self.trace_buffer, self.trace_options) = (buffer, options);
    }

    /// Sets the sink of output.
    pub fn set_output(&mut self, sink: Sink) {
        (self.output_tid, self.output_context, self.output_tag) =
            (sink.tid, sink.context, sink.tag);
    }

    /// Returns true if another task receives trace events.
    pub fn traces(&self, tid: c_int) -> bool {
        self.trace_tid > 0 && self.trace_tid != tid
    }

    /// Returns true if an event is traced.
    pub fn traces_event(&self, event: Event) -> bool {
        // Four events a byte.
        self.mask[event as usize / 4] & 1 << (event as usize % 4) != 0
    }

    /// Returns true if any event is traced.
    pub fn traces_some(&self) -> bool {
        self.mask[..MASK_SIZE - 1].iter().any(|byte| byte & 0xf != 0)
    }

    /// Returns the sink of trace events.
    pub fn trace_sink(&self) -> Sink {
        Sink { tid: self.trace_tid, context: self.trace_context, tag: self.trace_tag }
    }

    /// Returns the size of the trace buffer in bytes.
    pub fn trace_buffer(&self) -> c_int {
        self.trace_buffer
    }

    /// Returns the trace options.
    pub fn trace_options(&self) -> c_int {
        self.trace_options
    }

    /// Sets the mask of traced events.
    pub fn set_mask(&mut self, mask: [u8; MASK_SIZE]) {
        self.mask = mask;
    }

    /// Sets the size of the trace buffer in bytes.
    pub fn set_buffer(&mut self, bytes: c_int) {
        self.trace_buffer = bytes;
    }

    /// Sets the trace options.
    pub fn set_options(&mut self, options: c_int) {
        self.trace_options = options;
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_as_libpvm_reads_them() {
        assert_eq!(number("12"), Some(12));
        assert_eq!(number("0x1f"), Some(31));
        assert_eq!(number("017"), Some(15));
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("7ff"), Some(7));
        assert_eq!(number("x"), None);
    }
}
