//! The daemon's trace events: the start and end of tasks. Tasks send all other events
//! themselves. The end of a task that the daemon started is sent after its process has ended,
//! since its status is unknown before.

use pvm::event::{self, Event, Id, Phase, Record};
use pvm::parcel::Data;
use pvm::tid::Tid;
use pvm::wire::Sink;

use crate::daemon::{Daemon, SpawnTrace};
use crate::task_message::TaskMessage;
use crate::tasks::{Task, Usage};

/// Parent and flags of a task that was not spawned.
const NOBODY: i32 = -1;

impl Daemon {
    fn trace(
        &mut self,
        sink: Sink,
        tid: Tid,
        event: Event,
        fill: impl FnOnce(&mut Record) -> &mut Record,
    ) {
        if sink.tid <= 0 {
            return;
        }
        let (is_first, known) = match self.tracers.known.get_mut(&sink.tid) {
            Some(known) => (false, known),
            None => (true, self.tracers.known.entry(sink.tid).or_default()),
        };
        let is_new = !known.contains(&event);
        if is_new {
            known.push(event);
        }
        if is_first {
            self.route(TaskMessage::Whole(event::identifiers().message(sink, 0)));
        }
        let time = (self.now.seconds as i32, self.now.microseconds);
        let happened = (event, Phase::Moment);
        let mut record = Record::new(Data::default(), happened, is_new, time, tid.as_int());
        fill(&mut record);
        self.route(TaskMessage::Whole(record.end().message(sink, 0)));
    }

    /// Sends the events of tasks spawned here, except those already announced.
    pub(crate) fn trace_spawned(&mut self, tids: &[Tid], spawn: SpawnTrace) {
        let mut new = Vec::new();
        for &tid in tids {
            let Some(task) = self.tasks.get_mut(tid) else { continue };
            if !std::mem::replace(&mut task.told, true) {
                let (parent, name) = (task.parent, task.name.clone());
                self.trace_new(tid, parent, spawn.flags, &name);
                new.push(tid);
            }
        }
        for tid in new.into_iter().filter(|_| spawn.by_parent) {
            self.trace_parent(tid);
        }
    }

    /// Sends the event of a task that enrolled by itself.
    pub(crate) fn trace_come(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get(tid) else { return };
        let name = if task.name.is_empty() { "-" } else { &task.name }.to_string();
        self.trace_new(tid, NOBODY, NOBODY, &name);
    }

    fn trace_new(&mut self, tid: Tid, parent: i32, flags: i32, name: &str) {
        let Some(task) = self.tasks.get(tid) else { return };
        let sink = task.inheritance.trace;
        self.trace(sink, tid, Event::NEWTASK, |record| {
            record.int(Id::PT, parent).int(Id::TF, flags).string(Id::TN, name)
        });
    }

    fn trace_parent(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get(tid) else { return };
        let (sink, parent) = (task.inheritance.trace, task.parent);
        self.trace(sink, tid, Event::SPNTASK, |record| record.int(Id::PT, parent));
    }

    /// Handles a change of the task's tracer from `old`. The new one is notified as of a new
    /// task.
    pub(crate) fn tracer_changed(&mut self, tid: Tid, old: Sink) {
        let Some(task) = self.tasks.get(tid) else { return };
        if task.inheritance.trace == old {
            return;
        }
        let (parent, name) = (task.parent, task.name.clone());
        self.trace_end(old, tid, Usage::default());
        self.trace_parent(tid);
        self.trace_new(tid, parent, 0, &name);
    }

    /// Sends the event of a task's end, now or when its process ends.
    pub(crate) fn trace_ended(&mut self, task: &Task) {
        let sink = task.inheritance.trace;
        let is_child = task.cookie.is_some() && task.tasker.is_none() && task.pid != 0;
        match task.usage {
            Some(usage) => self.trace_end(sink, task.tid, usage),
            None if is_child && !task.exits => drop(self.tracers.ending.insert(task.tid, sink)),
            None => self.trace_end(sink, task.tid, Usage::default()),
        }
    }

    /// Handles the end of the process that the daemon started for a task.
    pub(crate) fn reaped(&mut self, tid: Tid, usage: Usage) {
        if let Some(task) = self.tasks.get_mut(tid) {
            task.usage = Some(usage);
        } else if let Some(sink) = self.tracers.ending.remove(&tid) {
            self.trace_end(sink, tid, usage);
        }
    }

    /// Forgets a task that has ended, in case it was a tracer.
    pub(crate) fn forget_tracer(&mut self, tid: Tid) {
        self.tracers.known.remove(&tid.as_int());
    }

    fn trace_end(&mut self, sink: Sink, tid: Tid, usage: Usage) {
        let Usage { status, user: (user, user_us), system: (system, system_us) } = usage;
        self.trace(sink, tid, Event::ENDTASK, |record| {
            record.int(Id::TST, status).int(Id::TUS, user).int(Id::TUU, user_us);
            record.int(Id::TSS, system).int(Id::TSU, system_us)
        });
    }
}
