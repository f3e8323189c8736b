//! Tracing: a task sends its tracer an event at the start of each call, with the arguments, and
//! one at its end, with the results (`pvmtev.h`). Only calls of the program are traced, not calls
//! that the library makes. Calls of a message handler are traced if the handler is.
//!
//! [`traced`] describes the records of a function. Without a tracer, a call only reads one word
//! ([`nagaya_pvm_traced`]).

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pvm::constants::{PvmTraceCount, PvmTraceTime};
use pvm::event::{self, COUNT, EVENTS, Event, Id, Phase, Record};
use pvm::parcel::Data;

use super::settings::Tracer;
use super::state::{State, clock};
use crate::task::handlers::Pattern;
use crate::task::message_of;

/// True if calls are traced; libgpvm3 reads it, too.
#[unsafe(no_mangle)]
pub static nagaya_pvm_traced: AtomicBool = AtomicBool::new(false);

/// Returns true if calls are traced.
#[inline]
pub fn is_on() -> bool {
    nagaya_pvm_traced.load(Relaxed)
}

/// A function of the library, and its trace records.
pub trait Called {
    /// Returns its name, for errors.
    fn name(&self) -> &str;
    /// Returns its event, if it can be traced.
    fn event(&self) -> Option<Event>;
    /// Adds its arguments to the record.
    fn entry(&self, record: &mut Record, state: &mut State);
    /// Adds its results to the record.
    fn exit(&self, record: &mut Record, state: &mut State, result: c_int);
}

/// A function that is not traced.
impl Called for &str {
    fn name(&self) -> &str {
        self
    }

    fn event(&self) -> Option<Event> {
        None
    }

    fn entry(&self, _: &mut Record, _: &mut State) {}

    fn exit(&self, _: &mut Record, _: &mut State, _: c_int) {}
}

/// The description that [`traced`] returns.
pub struct Traced<'a, Entry, Exit> {
    name: &'a str,
    event: Event,
    entry: Entry,
    exit: Exit,
}

/// Returns the description of a traced function without arguments, whose result is a condition
/// code. The methods of [`Traced`] change that.
pub fn traced(name: &str, event: Event) -> Traced<'_, impl Entry, impl Exit> {
    Traced { name, event, entry: |_: &mut Record, _: &mut State| {}, exit: gives(Id::CC) }
}

fn gives(id: Id) -> impl Exit {
    move |record: &mut Record, _: &mut State, result: c_int| {
        record.int(id, result);
    }
}

/// A function that adds the arguments of a call to a record.
pub trait Entry: Fn(&mut Record, &mut State) {}
impl<T: Fn(&mut Record, &mut State)> Entry for T {}

/// A function that adds the results of a call to a record.
pub trait Exit: Fn(&mut Record, &mut State, c_int) {}
impl<T: Fn(&mut Record, &mut State, c_int)> Exit for T {}

impl<'a, E: Entry, X: Exit> Traced<'a, E, X> {
    /// Sets the arguments.
    pub fn with(self, entry: impl Fn(&mut Record) -> &mut Record) -> Traced<'a, impl Entry, X> {
        self.with_state(move |record, _| {
            entry(record);
        })
    }

    /// Sets arguments that depend on the library's state.
    pub fn with_state<F: Fn(&mut Record, &mut State)>(self, entry: F) -> Traced<'a, F, X> {
        let Traced { name, event, exit, .. } = self;
        Traced { name, event, entry, exit }
    }

    /// Sets the kind of the result.
    pub fn gives(self, id: Id) -> Traced<'a, E, impl Exit> {
        self.tells(gives(id))
    }

    /// Sets the results.
    pub fn tells<F: Fn(&mut Record, &mut State, c_int)>(self, exit: F) -> Traced<'a, E, F> {
        let Traced { name, event, entry, .. } = self;
        Traced { name, event, entry, exit }
    }
}

impl<E: Entry, X: Exit> Called for Traced<'_, E, X> {
    fn name(&self) -> &str {
        self.name
    }

    fn event(&self) -> Option<Event> {
        Some(self.event)
    }

    fn entry(&self, record: &mut Record, state: &mut State) {
        (self.entry)(record, state);
    }

    fn exit(&self, record: &mut Record, state: &mut State, result: c_int) {
        (self.exit)(record, state, result);
    }
}

/// The nesting of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Not determined, since calls are not traced.
    Unknown,
    /// Made by the program.
    Outer,
    /// Made within another call.
    Inner,
}

impl State {
    /// Updates the flag of tracing after a change of the settings.
    pub fn look_at_tracing(&mut self) {
        let tid = self.task.tid().map_or(0, |tid| tid.as_int());
        let on = tid != 0 && self.options.own.traces(tid) && self.options.own.traces_some();
        nagaya_pvm_traced.store(on, Relaxed);
    }

    fn traces(&self, event: Event) -> bool {
        let own = &self.options.own;
        self.task.tid().is_some_and(|tid| own.traces(tid.as_int())) && own.traces_event(event)
    }

    /// Records the start of a thread's call.
    #[cold]
    pub fn call_begins(&mut self, thread: usize, called: &impl Called) -> Depth {
        if self.tracing.inside.iter().any(|(other, _)| *other == thread) {
            return Depth::Inner;
        }
        self.tracing.inside.push((thread, Instant::now()));
        if let Some(event) = called.event().filter(|event| self.traces(*event)) {
            self.tell_event(event, Phase::Entry, |record, state| called.entry(record, state));
        }
        Depth::Outer
    }

    /// Records the end of a call with this result.
    #[cold]
    pub fn call_ends(&mut self, thread: usize, called: &impl Called, result: c_int) {
        let inside = &mut self.tracing.inside;
        let at = inside.iter().position(|(other, _)| *other == thread);
        let since = at.map(|at| inside.swap_remove(at).1);
        let Some(event) = called.event().filter(|event| self.traces(*event)) else { return };
        if event == Event::HALT {
            // Like stock PVM, trace only the start of pvm_exit.
            return;
        }
        self.tracing.totals[event as usize] += since.map_or(Duration::ZERO, |then| then.elapsed());
        self.tell_event(event, Phase::Exit, |record, state| called.exit(record, state, result));
    }

    /// Records the start of a message handler for the message in buffer `id`. If it is traced, its
    /// calls are, too. Returns the state for [`State::handler_ends`].
    pub fn handler_begins(&mut self, pattern: Pattern, id: c_int) -> Option<(usize, Instant)> {
        if !is_on() || !self.traces(Event::MHF_INVOKE) {
            return None;
        }
        let info = self.task.buffers.info(id).ok()?;
        self.tell_event(Event::MHF_INVOKE, Phase::Entry, |record, _| {
            let Pattern { source, tag, context } = pattern;
            record.int(Id::RST, source).int(Id::RMC, tag).int(Id::RCX, context);
            record.int(Id::MB, id).int(Id::MNB, info.length).int(Id::MC, info.header.tag);
            record.int(Id::MCX, info.header.context).int(Id::SRC, info.header.source);
        });
        let thread = self.thread;
        let inside = &mut self.tracing.inside;
        let at = inside.iter().position(|(other, _)| *other == thread)?;
        Some(inside.swap_remove(at))
    }

    /// Records the end of the handler.
    pub fn handler_ends(&mut self, outer: Option<(usize, Instant)>) {
        self.tracing.inside.extend(outer);
    }

    fn tell_event(
        &mut self,
        event: Event,
        phase: Phase,
        fill: impl FnOnce(&mut Record, &mut State),
    ) {
        if matches!(self.options.own.trace_options(), PvmTraceTime | PvmTraceCount) {
            self.tracing.counts[event as usize] += c_int::from(phase == Phase::Entry);
            return;
        }
        let size = self.options.own.trace_buffer();
        let mut gathered = std::mem::take(&mut self.tracing.gathered);
        if gathered.is_empty() && size > 0 {
            gathered = event::buffer();
        }
        let mut record = self.new_record(gathered, (event, phase));
        fill(&mut record, self);
        self.tracing.gathered = record.end();
        if self.tracing.gathered.len() >= size.max(0) as usize {
            self.send_events();
        }
    }

    fn new_record(&mut self, before: Data, (event, phase): (Event, Phase)) -> Record {
        // Records of sums are described each time.
        let bit = if phase == Phase::Moment { 0 } else { phase as i32 };
        let described = &mut self.tracing.described[event as usize];
        let is_new = *described & bit == 0;
        *described |= bit;
        let tid = self.task.tid().map_or(0, |tid| tid.as_int());
        Record::new(before, (event, phase), is_new, clock(), tid)
    }

    /// Sends the buffered records: before settings change, and at the task's end.
    pub fn send_events(&mut self) {
        let Some(tid) = self.task.tid() else { return };
        let own: Tracer = self.options.own;
        if !own.traces(tid.as_int()) {
            return;
        }
        let mut data = match own.trace_options() {
            PvmTraceTime => self.sums(Event::TIMING),
            PvmTraceCount => self.sums(Event::PROFILING),
            _ => std::mem::take(&mut self.tracing.gathered),
        };
        if data.is_empty() {
            return;
        }
        if own.trace_buffer() > 0 && !matches!(own.trace_options(), PvmTraceTime | PvmTraceCount) {
            data = event::buffer_end(data);
        }
        let sink = own.trace_sink();
        let message = message_of(data.message(sink, 0), &mut self.task.buffers);
        // The loss of trace events is no error of the program.
        let _ = message.and_then(|message| self.task.send_unbuffered(message));
    }

    /// Returns the number and duration of the program's calls since the last request.
    fn sums(&mut self, event: Event) -> Data {
        let counts = std::mem::replace(&mut self.tracing.counts, [0; COUNT]);
        let totals = std::mem::replace(&mut self.tracing.totals, [Duration::ZERO; COUNT]);
        let called: Vec<usize> = (0..COUNT).filter(|event| counts[*event] > 0).collect();
        let each = |number: &dyn Fn(usize) -> i32| -> Vec<i32> {
            called.iter().map(|event| number(*event)).collect()
        };
        let names: Vec<String> = called.iter().map(|event| EVENTS[*event].name()).collect();
        let mut record = self.new_record(Data::default(), (event, Phase::Moment));
        record.int(Id::VCT, called.len() as i32).strings(Id::VID, &names);
        if event == Event::TIMING {
            record.ints(Id::TGS, &each(&|event| totals[event].as_secs() as i32));
            record.ints(Id::TGU, &each(&|event| totals[event].subsec_micros() as i32));
        }
        record.ints(Id::PRF, &each(&|event| counts[event]));
        record.end()
    }
}

/// Returns a string of a C program for a record; null becomes an empty string.
///
/// # Safety
/// `string` is null or a string.
pub unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: `string` is null or a string, required of the caller. Null is handled separately.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// Returns the strings of a C program.
///
/// # Safety
/// `strings` is null or has `count` strings.
pub unsafe fn texts(strings: *const *const c_char, count: c_int) -> Vec<String> {
    if strings.is_null() || count <= 0 {
        return Vec::new();
    }
    // SAFETY: `strings` is null or has `count` strings, required of the caller. Null is handled
    // separately.
    let strings = unsafe { std::slice::from_raw_parts(strings, count as usize) };
    // SAFETY: `strings` is null or has `count` strings, required of the caller.
    strings.iter().map(|string| unsafe { text(*string) }).collect()
}

/// Returns the numbers of a C program.
///
/// # Safety
/// `numbers` is null or has `count` numbers, which stay unchanged while the result is used.
pub unsafe fn numbers<'a>(numbers: *const c_int, count: c_int) -> &'a [c_int] {
    if numbers.is_null() || count <= 0 {
        return &[];
    }
    // SAFETY: `numbers` is null or has `count` numbers, which stay unchanged while the result is
    // used, required of the caller. Null is handled separately.
    unsafe { std::slice::from_raw_parts(numbers, count as usize) }
}
