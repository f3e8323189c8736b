//! Messages from task to task. Senders wait while their node has sent more to a task than it has
//! received, up to a limit.

use coherence::scope::event::Task;

use super::Agent;
use super::requests::bytes_of;
use super::tasks::PendingSend;
use crate::frame::{Address, Frame};
use crate::mailbox::{Message, cost};

impl Agent {
    /// Sends pending messages whose receivers have room.
    pub(super) fn send_pending(&mut self) {
        let mut at = 0;
        while let Some(pending) = self.pending_sends.get(at) {
            match self.unreceived.has_room(pending.to) {
                true => {
                    let pending = self.pending_sends.remove(at);
                    self.send_letter(&pending);
                }
                false => at += 1,
            }
        }
    }

    fn send_letter(&mut self, &PendingSend { task, to, tag, at, bytes }: &PendingSend) {
        // SAFETY: the sender waits for `reply` below, and `Task::send` borrows the text until then.
        let text = unsafe { bytes_of(at, bytes) }.to_vec();
        let from = self.world.neighbours()[task as usize];
        let address = Address { from, to, tag };
        let node = self.world.members[to as usize].node;
        self.unreceived.add(to, cost(text.len()));
        self.reply(task, Ok([0, 0]));
        match node == self.options.me {
            true => self.deliver_or_keep(Message { address, text }),
            false => self.send(node, Frame::Message(address), text),
        }
    }

    /// Delivers a message to a task of this node, or keeps it until the task wants it.
    pub(super) fn deliver_or_keep(&mut self, message: Message) {
        let local = self.world.members[message.address.to as usize].local;
        if let Some(message) = self.tasks[local as usize].mailbox.put(message) {
            self.deliver(local, message);
        }
    }

    /// Delivers a message to a task that waits for it.
    pub(super) fn deliver(&mut self, task: Task, message: Message) {
        let (from, bytes) = (message.address.from, cost(message.text.len()));
        let state = &mut self.tasks[task as usize];
        state.message = message.text;
        let answer =
            [state.message.as_ptr().expose_provenance() as u64, state.message.len() as u64];
        self.reply(task, Ok(answer));
        let node = self.world.members[from as usize].node;
        let task = self.world.neighbours()[task as usize];
        if let Some(bytes) = self.received.add((task, node), bytes) {
            if node != self.options.me {
                return self.send(node, Frame::Received { task, bytes }, Vec::new());
            }
            self.unreceived.remove(task, bytes).expect("this node has counted what it sent");
            self.send_pending();
        }
    }
}
