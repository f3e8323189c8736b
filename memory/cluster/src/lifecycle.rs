//! The start and end of tasks. Each machine announces its tasks to the others, and a segment is
//! reset everywhere before another task gets it.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use coherence::message::{NodeId, Page};

use crate::agent::Agent;
use crate::blocks::{block_of, pages_of};
use crate::changes::{Then, What};
use crate::frame::Message;

impl Agent {
    /// Announces tasks that have started, and other events of the space.
    pub(super) fn check_tasks(&mut self) {
        for id in self.plan.own_ids() {
            let Some(identity) = self.control.identity(id) else { continue };
            let generation = u64::from(identity.generation);
            if self.tasks.announced.insert(id, generation) != Some(generation) {
                self.broadcast(Message::Task { id, generation, lives: true });
            }
        }
        let now = self.control.event().load(Ordering::Acquire);
        if now != self.tasks.events {
            self.tasks.events = now;
            self.broadcast(Message::Event);
        }
    }

    /// Announces new tasks before other machines see memory that these have written. A task that
    /// has not been announced counts as dead.
    pub(super) fn announce_tasks(&mut self) {
        if self.control.event().load(Ordering::Acquire) != self.tasks.events {
            self.check_tasks();
        }
    }

    /// Handles another machine's message about a task or an event.
    pub(super) fn handle_task_message(&mut self, from: NodeId, message: Message) {
        match message {
            Message::Task { id, generation, lives } => {
                let is_its = self.plan.ids.get(from as usize).is_some_and(|ids| ids.contains(&id));
                if !is_its {
                    return self.protocol_violation(from, "news of a task of another machine");
                }
                self.control.mirror(id, generation, lives);
                self.tasks.events = self.tasks.events.wrapping_add(1);
                if !lives {
                    self.send_message(from, Message::Forgotten { id });
                }
            }
            Message::Forgotten { id } => {
                if let Some((by, _)) = self.tasks.ending.get_mut(&id) {
                    by.retain(|other| *other != from);
                    if by.is_empty() {
                        self.tasks.ending.remove(&id);
                    }
                }
            }
            _ => {
                self.control.announce();
                self.tasks.events = self.tasks.events.wrapping_add(1);
            }
        }
    }

    /// Returns true if a task of this machine runs. It maps and unmaps its memory itself then.
    pub(super) fn runs(&self, id: u32) -> bool {
        self.control.is_announced(id) && !self.tasks.gone.contains(&id)
    }

    /// A task of this machine has ended. `done` is dropped when all other machines know.
    pub(super) fn ended(&mut self, id: u32, done: Sender<()>) {
        self.tasks.gone.insert(id);
        self.control.ask(id).forget();
        self.tasks.fetches.retain(|(other, _)| *other != id);
        self.tasks.changing.remove(&id);
        let Some(generation) = self.tasks.announced.remove(&id) else { return };
        self.broadcast(Message::Task { id, generation, lives: false });
        let others: Vec<NodeId> = self.plan.others().collect();
        if !others.is_empty() {
            self.tasks.ending.insert(id, (others, done));
        }
    }

    /// Resets the published blocks of a task that has ended. `done` is dropped afterwards.
    pub(super) fn cleared(&mut self, id: u32, done: Sender<()>) {
        let segment = self.segment(id);
        let blocks = block_of(segment.start)..block_of(segment.end);
        let mut published = self.blocks.published.range(blocks);
        let (Some(&first), last) = (published.next(), published.next_back()) else { return };
        let last = last.copied().unwrap_or(first);
        let pages = pages_of(first).start..pages_of(last).end;
        self.change(What::Reset, pages, Then::Unpublish(done));
    }

    /// Memory was mapped for a task that is about to start.
    pub(super) fn loaded(&mut self, id: u32) {
        self.tasks.gone.remove(&id);
        let segment = self.segment(id);
        self.scan_published(segment);
    }

    /// Returns the pages of a task's segment.
    pub(super) fn segment(&self, id: u32) -> Range<Page> {
        let first = u64::from(id) * self.segment_pages;
        first..first + self.segment_pages
    }
}
