//! A job: the tasks that one `spawn ->` or `spawn -@` has started, and their output and events.
//!
//! The pvmd of a child sends the child's output in messages of the child's tid, a length and
//! bytes. Length 0 is the end of the output. -2 announces a child of the child, whose output will
//! follow, and -1 the start of that child. A child is finished when both -1 and the end have
//! arrived, in any order. If the job is traced, messages also report the ends of its tasks, which
//! the job awaits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};

use pvm::tid::Tid;

use crate::events::{Change, Record};

/// The content of an output message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A task will be started.
    Created,
    /// It has been started.
    Spawned,
    /// It wrote this.
    Output(Vec<u8>),
    /// It will write no more.
    End,
}

/// The state of a task in a job.
#[derive(Debug, Default)]
struct Child {
    spawned: bool,
    ended: bool,
    /// A line that has not ended.
    line: Vec<u8>,
}

/// The destination of a job's output.
#[derive(Debug)]
pub enum To {
    /// Nowhere; it is only traced.
    Nowhere,
    /// To the console.
    Console,
    /// Into a file.
    File(File),
}

impl To {
    /// Writes text. Appends the console's part to `out`.
    fn write(&mut self, text: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            To::Nowhere => Ok(()),
            To::Console => {
                out.extend_from_slice(text);
                Ok(())
            }
            // In one call: others may write into the same file.
            To::File(file) => file.write_all(text),
        }
    }
}

/// A trace: where it goes, and the kinds of events that it has described.
#[derive(Debug)]
struct Trace {
    to: To,
    kinds: Vec<(String, String)>,
}

/// A job.
#[derive(Debug)]
pub struct Job {
    number: i32,
    children: BTreeMap<Tid, Child>,
    /// Tasks that have begun and not ended, according to the trace.
    living: BTreeSet<Tid>,
    output: To,
    trace: Option<Trace>,
}

/// An entry of a trace.
#[derive(Clone, Copy, Debug)]
pub enum Traced<'a> {
    /// Text as it is.
    Heading(&'a str),
    /// An event.
    Record(&'a Record),
}

/// Longest line that is kept until it ends, in bytes; then it is printed as it is.
const LINE_MAX: usize = 1 << 20;

impl Job {
    /// A job with this number.
    pub fn new(number: i32, output: To, trace: Option<To>) -> Job {
        let trace = trace.map(|to| Trace { to, kinds: Vec::new() });
        Job { number, children: BTreeMap::new(), living: BTreeSet::new(), output, trace }
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Returns true if the job is traced.
    pub fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    /// Its tasks that may still write.
    pub fn tasks(&self) -> Vec<Tid> {
        self.children.keys().copied().collect()
    }

    /// Adds a task to the job before its first message arrives.
    pub fn expect(&mut self, tid: Tid) {
        self.children.entry(tid).or_default();
    }

    /// Receives a message, and appends the console's part to `out`. Lines start with `[JOB:TID]`
    /// if `named`; `now` is the time, for events. Returns true if the job is finished.
    pub fn take(
        &mut self,
        tid: Tid,
        event: Event,
        named: bool,
        now: (i32, i32),
        out: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let mut lines = Vec::new();
        let mut notices = Vec::new();
        let child = self.children.entry(tid).or_default();
        match event {
            Event::Created => notices.push("CREATION"),
            Event::Spawned => {
                child.spawned = true;
                notices.push("GOTSPAWN");
            }
            Event::Output(bytes) => {
                child.line.extend_from_slice(&bytes);
                while let Some(end) = child.line.iter().position(|&byte| byte == b'\n') {
                    let rest = child.line.split_off(end + 1);
                    child.line.truncate(end);
                    lines.push(std::mem::replace(&mut child.line, rest));
                }
                if child.line.len() > LINE_MAX {
                    lines.push(std::mem::take(&mut child.line));
                }
            }
            Event::End => {
                if !child.line.is_empty() {
                    lines.push(std::mem::take(&mut child.line));
                }
                child.ended = true;
                notices.push("GOTEOF");
            }
        }
        let done = child.spawned && child.ended;
        if done {
            self.children.remove(&tid);
        }
        let events =
            lines.iter().map(Vec::as_slice).chain(notices.iter().map(|notice| notice.as_bytes()));
        for event in events {
            self.trace(tid, Traced::Record(&Record::output(tid, event, now)), named, out)?;
        }
        if done && named {
            lines.push(b"EOF".to_vec());
        }
        let number = self.number;
        let mut text = Vec::new();
        for line in lines {
            if named {
                text.extend_from_slice(format!("[{number}:{tid}] ").as_bytes());
            }
            text.extend_from_slice(&line);
            text.push(b'\n');
        }
        self.output.write(&text, out)?;
        Ok(done && self.is_over())
    }

    fn is_over(&self) -> bool {
        self.children.is_empty() && self.living.is_empty()
    }

    /// Appends to the trace, if there is one. Returns true if the job is finished.
    pub fn trace(
        &mut self,
        tid: Tid,
        what: Traced<'_>,
        named: bool,
        out: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let Some(trace) = &mut self.trace else { return Ok(false) };
        let text = match what {
            Traced::Heading(text) => text.to_owned(),
            Traced::Record(record) => trace.describe(record),
        };
        let text = match (&trace.to, named) {
            (To::Console, true) => {
                let number = self.number;
                text.lines().map(|line| format!("[T{number}:{tid}] {line}\n")).collect()
            }
            _ => text,
        };
        trace.to.write(text.as_bytes(), out)?;
        let Traced::Record(record) = what else { return Ok(false) };
        let ended = match (record.change(), record.tid()) {
            (Some(Change::Begins), Some(tid)) => {
                self.living.insert(tid);
                false
            }
            (Some(Change::Ends), Some(tid)) => self.living.remove(&tid),
            _ => false,
        };
        Ok(ended && self.is_over())
    }

    /// Drops all later events of the job. Returns true if the job is finished.
    pub fn end_trace(&mut self) -> bool {
        self.trace = None;
        !std::mem::take(&mut self.living).is_empty() && self.is_over()
    }
}

impl Trace {
    /// An event's line; its kind before, if it is the first of it.
    fn describe(&mut self, record: &Record) -> String {
        let kind = (record.name.clone(), record.description(0));
        let same_name = self.kinds.iter().filter(|(name, _)| *name == record.name);
        let known = same_name.clone().position(|known| *known == kind);
        let index = known.unwrap_or(same_name.count());
        let mut text = String::new();
        if known.is_none() {
            text = record.description(index);
            self.kinds.push(kind);
        }
        text + &record.line(index)
    }
}
