//! What children write to standard output and error: messages to whom they were told, or
//! lines of the daemon's log.

use std::collections::BTreeMap;

use pvm::parcel::Data;
use pvm::tid::Tid;
use pvm::wire::Sink;

use crate::daemon::Daemon;
use crate::event::Action;
use crate::load::Load;

/// What a message of output says instead of a length (`pvmproto.h`: TO_EOF, TO_SPAWN, TO_NEW).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputEvent {
    /// There is no more.
    End = 0,
    /// The task was spawned.
    Spawned = -1,
    /// There is a new task.
    New = -2,
}

/// What is to be said of a task's output.
#[derive(Debug)]
pub(crate) enum Say<'a> {
    /// This came.
    Bytes(&'a [u8]),
    /// This happened.
    Event(OutputEvent),
}

/// Whose output is read, and where it goes; a task's end does not end its output.
#[derive(Debug, Default)]
pub(crate) struct Outputs(BTreeMap<Tid, (Sink, i32, Vec<u8>)>);

impl Daemon {
    /// The task's output will be read once it is started.
    pub(crate) fn begin_output(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.get(tid) {
            let sink = task.inheritance.output;
            self.outputs.0.insert(tid, (sink, task.parent, Vec::new()));
        }
    }

    /// The task was not started.
    pub(crate) fn forget_output(&mut self, tid: Tid) {
        self.outputs.0.remove(&tid);
    }

    /// The task's output goes elsewhere from now on (pvm_setopt of `PvmSelfOutputTid`).
    pub(crate) fn turn_output(&mut self, tid: Tid, sink: Sink) {
        if let Some((old, ..)) = self.outputs.0.get_mut(&tid) {
            *old = sink;
        }
    }

    /// Passes on what a task writes, or what happened to its output.
    pub(crate) fn output(&mut self, tid: Tid, say: Say<'_>) {
        let Some((sink, parent, _)) = self.outputs.0.get(&tid) else { return };
        let (sink, parent) = (*sink, *parent);
        if self.is_taken(sink) {
            let bytes = message(tid, &say, sink, parent);
            self.route(Load::Whole(bytes));
        } else if let Some((_, _, line)) = self.outputs.0.get_mut(&tid) {
            match say {
                Say::Bytes(bytes) => line.extend_from_slice(bytes),
                Say::Event(OutputEvent::End) if !line.is_empty() => line.push(b'\n'),
                Say::Event(_) => {}
            }
            while let Some(end) = line.iter().position(|&byte| byte == b'\n') {
                let text: Vec<u8> = line.drain(..=end).collect();
                let text = String::from_utf8_lossy(&text[..end]);
                self.actions.push(Action::LogOutput(format!("[{tid}] {text}")));
            }
        }
    }

    /// Whether some task takes this output; else it goes into the log.
    fn is_taken(&self, sink: Sink) -> bool {
        let to = Tid(sink.tid as u32);
        to.is_task() && (to.host() != self.host || self.tasks.get(to).is_some())
    }

    /// Says of all tasks of a spawn that they were spawned, to who takes their output, before
    /// the spawner learns of them. So nobody takes the end of the first for the end of all.
    pub(crate) fn say_spawned(&mut self, slots: &[i32], sink: Sink, parent: i32) {
        if self.is_taken(sink) {
            for slot in slots.iter().filter(|slot| **slot > 0) {
                let spawned = Say::Event(OutputEvent::Spawned);
                self.route(Load::Whole(message(Tid(*slot as u32), &spawned, sink, parent)));
            }
        }
    }

    /// There is no more.
    pub(crate) fn end_output(&mut self, tid: Tid) {
        self.output(tid, Say::Event(OutputEvent::End));
        self.outputs.0.remove(&tid);
    }
}

/// A message to who takes the task's output.
fn message(tid: Tid, say: &Say<'_>, sink: Sink, parent: i32) -> Vec<u8> {
    let data = Data::default().int(tid.as_int());
    let data = match *say {
        Say::Bytes(bytes) => data.int(bytes.len() as i32).bytes(bytes),
        Say::Event(OutputEvent::End) => data.int(OutputEvent::End as i32),
        Say::Event(event) => data.int(event as i32).int(parent),
    };
    data.message(sink, 0)
}
