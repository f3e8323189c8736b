//! The trace of a run, as Perfetto (ui.perfetto.dev) and Chrome show it.
//!
//! Nodes are processes. The tasks of a node are threads, and one more thread is the protocol.
//! Messages are arrows. Rides, and reports of their fates, are instants at the protocol of the node
//! that receives them. The format is that of Chrome's JSON trace events, with times in
//! microseconds. Each event is written when it happens, until the trace has reached its limit.

use std::io::{self, Write};

use coherence::message::Header;
use coherence::ride::Ride;
use serde::Serialize;

/// A trace in progress.
pub struct Trace {
    out: Box<dyn Write>,
    limit_bytes: u64,
    bytes: u64,
    events: u64,
    left_out: u64,
    /// The time of the first event that was left out.
    cut_at_us: Option<f64>,
    /// The first error.
    error: Option<io::Error>,
}

/// The size of a finished trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// Number of events in it.
    pub events: u64,
    /// Number of later events, which did not fit.
    pub left_out: u64,
    /// The simulated time of the first of these, in microseconds.
    pub cut_at_us: Option<f64>,
}

/// An event of the format. Absent members are not written.
#[derive(Default, Serialize)]
struct Event<'a> {
    #[serde(rename = "ph")]
    phase: &'a str,
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
    #[serde(rename = "bp", skip_serializing_if = "Option::is_none")]
    binding_point: Option<&'a str>,
    #[serde(rename = "cat", skip_serializing_if = "Option::is_none")]
    category: Option<&'a str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(rename = "pid")]
    node: u32,
    #[serde(rename = "tid")]
    thread: u32,
    #[serde(rename = "ts", skip_serializing_if = "Option::is_none")]
    at_us: Option<f64>,
    #[serde(rename = "dur", skip_serializing_if = "Option::is_none")]
    duration_us: Option<f64>,
    #[serde(rename = "args", skip_serializing_if = "Option::is_none")]
    arguments: Option<Arguments<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Name { name: &'a str },
    Ride { page: u64, fate: &'a str, by: &'a str, with: &'a str, from: u32 },
}

fn microseconds(ns: u64) -> Option<f64> {
    Some(ns as f64 / 1000.0)
}

impl Trace {
    /// Starts a trace of about `limit_bytes` at most: later events are left out. An error of the
    /// writer ends it: see [`finish`](Self::finish).
    pub fn new(out: impl Write + 'static, limit_bytes: u64) -> Self {
        let out = Box::new(out);
        let (bytes, events, left_out) = (0, 0, 0);
        let mut trace =
            Self { out, limit_bytes, bytes, events, left_out, cut_at_us: None, error: None };
        trace.write(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        trace
    }

    /// Names the nodes and their threads.
    pub(crate) fn name_threads(&mut self, nodes: u32, tasks: u32) {
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
        let arguments = Some(Arguments::Name { name });
        self.event(&Event { phase: "M", name: what, node, thread, arguments, ..Event::default() });
    }

    /// Records an activity of a thread.
    pub(crate) fn span(&mut self, node: u32, thread: u32, name: &str, from: u64, to: u64) {
        self.event(&Event {
            phase: "X",
            name,
            node,
            thread,
            at_us: microseconds(from),
            duration_us: microseconds(to - from),
            ..Event::default()
        });
    }

    /// Records that a message leaves.
    pub(crate) fn leave(&mut self, node: u32, thread: u32, number: u64, name: &str, at: u64) {
        self.event(&Event {
            phase: "s",
            category: Some("message"),
            name,
            id: Some(number),
            node,
            thread,
            at_us: microseconds(at),
            ..Event::default()
        });
    }

    /// Records that a message arrives.
    pub(crate) fn arrive(&mut self, node: u32, thread: u32, number: u64, name: &str, at: u64) {
        self.event(&Event {
            phase: "f",
            binding_point: Some("e"),
            category: Some("message"),
            name,
            id: Some(number),
            node,
            thread,
            at_us: microseconds(at),
            ..Event::default()
        });
    }

    /// Records a page that a message carries, or the reported fate of one.
    pub(crate) fn ride(&mut self, thread: u32, message: &Header, ride: &Ride, at: u64) {
        let (page, fate) = (ride.page, ride.fate.name());
        self.event(&Event {
            phase: "i",
            scope: Some("t"),
            category: Some("ride"),
            name: &format!("page {page} {fate}"),
            node: message.to,
            thread,
            at_us: microseconds(at),
            arguments: Some(Arguments::Ride {
                page,
                fate,
                by: ride.by.name(),
                with: message.op.name(),
                from: message.from,
            }),
            ..Event::default()
        });
    }

    fn event(&mut self, event: &Event<'_>) {
        if self.error.is_some() {
            return;
        }
        // Names have no time, and stand before all other events.
        if event.at_us.is_some() && self.bytes >= self.limit_bytes {
            self.left_out += 1;
            self.cut_at_us = self.cut_at_us.or(event.at_us);
            return;
        }
        if self.events > 0 {
            self.write(b",\n");
        }
        self.events += 1;
        let text = serde_json::to_vec(event).expect("numbers and strings only");
        self.write(&text);
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.bytes += bytes.len() as u64;
            self.error = self.out.write_all(bytes).err();
        }
    }

    /// Writes the end of the trace.
    ///
    /// # Errors
    /// The first error of the writer.
    pub fn finish(mut self) -> io::Result<Written> {
        self.write(b"\n]}\n");
        if let Some(error) = self.error {
            return Err(error);
        }
        self.out.flush()?;
        let Self { bytes, events, left_out, cut_at_us, .. } = self;
        Ok(Written { bytes, events, left_out, cut_at_us })
    }
}
