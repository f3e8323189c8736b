//! Standard output and error of spawned tasks. It goes as messages to the task's output sink, or
//! into the daemon's log.

use pvm::parcel::Data;
use pvm::tid::Tid;
use pvm::wire::Sink;

use crate::daemon::Daemon;
use crate::event::Action;
use crate::task_message::TaskMessage;

/// Codes that an output message has in place of a length (`pvmproto.h`: TO_EOF, TO_SPAWN,
/// TO_NEW).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputEvent {
    /// The output has ended.
    End = 0,
    /// The task was spawned.
    Spawned = -1,
    /// The task is new.
    New = -2,
}

/// The content of an output message.
#[derive(Debug)]
pub(crate) enum OutputItem<'a> {
    /// Output of the task.
    Bytes(&'a [u8]),
    /// An event.
    Event(OutputEvent),
}

impl Daemon {
    /// Registers the output of a task that will be started.
    pub(crate) fn begin_output(&mut self, tid: Tid) {
        if let Some(task) = self.tasks.get(tid) {
            let sink = task.inheritance.output;
            self.outputs.0.insert(tid, (sink, task.parent, Vec::new()));
        }
    }

    /// Forgets the output of a task that was not started.
    pub(crate) fn forget_output(&mut self, tid: Tid) {
        self.outputs.0.remove(&tid);
    }

    /// Redirects the task's output (pvm_setopt of `PvmSelfOutputTid`).
    pub(crate) fn redirect_output(&mut self, tid: Tid, sink: Sink) {
        if let Some((old, ..)) = self.outputs.0.get_mut(&tid) {
            *old = sink;
        }
    }

    /// Passes on output of a task, or an event of its output.
    pub(crate) fn output(&mut self, tid: Tid, item: OutputItem<'_>) {
        let Some((sink, parent, _)) = self.outputs.0.get(&tid) else { return };
        let (sink, parent) = (*sink, *parent);
        if self.is_taken(sink) {
            let bytes = message(tid, &item, sink, parent);
            self.route(TaskMessage::Whole(bytes));
        } else if let Some((_, _, line)) = self.outputs.0.get_mut(&tid) {
            match item {
                OutputItem::Bytes(bytes) => line.extend_from_slice(bytes),
                OutputItem::Event(OutputEvent::End) if !line.is_empty() => line.push(b'\n'),
                OutputItem::Event(_) => {}
            }
            while let Some(end) = line.iter().position(|&byte| byte == b'\n') {
                let text: Vec<u8> = line.drain(..=end).collect();
                let text = String::from_utf8_lossy(&text[..end]);
                self.actions.push(Action::LogOutput(format!("[{tid}] {text}")));
            }
        }
    }

    /// Returns true if a task receives this output; otherwise it goes into the log.
    fn is_taken(&self, sink: Sink) -> bool {
        let to = Tid(sink.tid as u32);
        to.is_task() && (to.host() != self.host || self.tasks.get(to).is_some())
    }

    /// Announces all tasks of a spawn to the receiver of their output, before the spawner learns
    /// of them. So the receiver does not take the end of the first task for the end of all.
    pub(crate) fn announce_spawned(&mut self, slots: &[i32], sink: Sink, parent: i32) {
        if self.is_taken(sink) {
            for slot in slots.iter().filter(|slot| **slot > 0) {
                let spawned = OutputItem::Event(OutputEvent::Spawned);
                self.route(TaskMessage::Whole(message(Tid(*slot as u32), &spawned, sink, parent)));
            }
        }
    }

    /// Announces the end of a task's output and forgets it.
    pub(crate) fn end_output(&mut self, tid: Tid) {
        self.output(tid, OutputItem::Event(OutputEvent::End));
        self.outputs.0.remove(&tid);
    }
}

/// Returns a message to the receiver of the task's output.
fn message(tid: Tid, item: &OutputItem<'_>, sink: Sink, parent: i32) -> Vec<u8> {
    let data = Data::default().int(tid.as_int());
    let data = match *item {
        OutputItem::Bytes(bytes) => data.int(bytes.len() as i32).bytes(bytes),
        OutputItem::Event(OutputEvent::End) => data.int(OutputEvent::End as i32),
        OutputItem::Event(event) => data.int(event as i32).int(parent),
    };
    data.message(sink, 0)
}
