//! What happened, as Perfetto (ui.perfetto.dev) and Chrome show it: nodes as processes, tasks as
//! threads beside one for the protocol, messages as arrows, rides as
//! instants on the protocol of the node where they or word of them came. The format is that of
//! Chrome's JSON trace events; times in it are microseconds.

use std::fmt::Write;

use coherence::message::Header;
use coherence::ride::Ride;

/// A trace that is being drawn.
#[derive(Clone, Debug)]
pub struct Trace {
    text: String,
}

impl Default for Trace {
    fn default() -> Self {
        Self { text: String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n") }
    }
}

impl Trace {
    /// Names nodes and tasks.
    pub(crate) fn begin(&mut self, nodes: u32, tasks: u32) {
        for node in 0..nodes {
            self.name("process_name", node, 0, &format!("node {node}"));
            for task in 0..tasks {
                let number = u64::from(node) * u64::from(tasks) + u64::from(task);
                self.name("thread_name", node, task, &format!("task {number}"));
            }
            self.name("thread_name", node, tasks, "protocol");
        }
    }

    fn name(&mut self, what: &str, node: u32, thread: u32, name: &str) {
        self.event(format_args!(
            "\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{node},\"tid\":{thread},\
             \"args\":{{\"name\":\"{name}\"}}"
        ));
    }

    /// A thread was at something.
    pub(crate) fn span(&mut self, node: u32, thread: u32, name: &str, from: u64, to: u64) {
        let (from, took) = (Micros(from), Micros(to - from));
        self.event(format_args!(
            "\"ph\":\"X\",\"name\":\"{name}\",\"pid\":{node},\"tid\":{thread},\
             \"ts\":{from},\"dur\":{took}"
        ));
    }

    /// A message left.
    pub(crate) fn leave(&mut self, node: u32, thread: u32, number: u64, name: &str, at: u64) {
        let at = Micros(at);
        self.event(format_args!(
            "\"ph\":\"s\",\"cat\":\"message\",\"name\":\"{name}\",\"id\":{number},\
             \"pid\":{node},\"tid\":{thread},\"ts\":{at}"
        ));
    }

    /// And arrived.
    pub(crate) fn arrive(&mut self, node: u32, thread: u32, number: u64, name: &str, at: u64) {
        let at = Micros(at);
        self.event(format_args!(
            "\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"message\",\"name\":\"{name}\",\"id\":{number},\
             \"pid\":{node},\"tid\":{thread},\"ts\":{at}"
        ));
    }

    /// A page rode along with a message; or word came of what became of one that did.
    pub(crate) fn ride(&mut self, thread: u32, message: &Header, ride: &Ride, at: u64) {
        let Header { op, from, to, .. } = message;
        let (page, fate, by, op, at) =
            (ride.page, ride.fate.name(), ride.by.name(), op.name(), Micros(at));
        self.event(format_args!(
            "\"ph\":\"i\",\"s\":\"t\",\"cat\":\"ride\",\"name\":\"page {page} {fate}\",\
             \"pid\":{to},\"tid\":{thread},\"ts\":{at},\
             \"args\":{{\"page\":{page},\"fate\":\"{fate}\",\"by\":\"{by}\",\"with\":\"{op}\",\"from\":{from}}}"
        ));
    }

    fn event(&mut self, fields: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{{{fields}}},").expect("into a string");
    }

    /// The whole file's text.
    pub fn finish(mut self) -> String {
        // The list must not end with a comma.
        if self.text.ends_with(",\n") {
            self.text.truncate(self.text.len() - 2);
        }
        self.text.push_str("\n]}\n");
        self.text
    }
}

struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
