//! Letters from task to task. A node has at most so much with a task that has not received it:
//! then senders wait.

use coherence::scope::event::Task;

use super::{Agent, Seat};
use crate::frame::{Address, Frame};
use crate::mail::{Letter, cost};

/// A letter that a task wants to send, and waits for.
pub(super) struct Post {
    pub task: Task,
    /// To this task.
    pub to: u32,
    pub tag: i32,
    /// Where it lies: in the task's private memory.
    pub at: usize,
    pub bytes: usize,
}

impl Agent {
    /// Sends what tasks want to send, if those that it is for have room.
    pub(super) fn post_what_may_go(&mut self) {
        let mut at = 0;
        while let Some(post) = self.posts.get(at) {
            match self.unreceived.has_room(post.to) {
                true => {
                    let post = self.posts.remove(at);
                    self.post(&post);
                }
                false => at += 1,
            }
        }
    }

    fn post(&mut self, &Post { task, to, tag, at, bytes }: &Post) {
        // SAFETY: the task waits, and its letter is in its private memory.
        let text = unsafe { super::requests::bytes_of(at, bytes) }.to_vec();
        let from = self.world.neighbours()[task as usize];
        let address = Address { from, to, tag };
        let node = self.world.members[to as usize].node;
        self.unreceived.add(to, cost(text.len()));
        self.reply(task, Ok([0, 0]));
        match node == self.options.me {
            true => self.came(Letter { address, text }),
            false => self.send(node, Frame::Letter(address), text),
        }
    }

    /// A letter for a task of this node.
    pub(super) fn came(&mut self, letter: Letter) {
        let local = self.world.members[letter.address.to as usize].local;
        if let Some(letter) = self.seats[local as usize].letters.put(letter) {
            self.deliver(local, letter);
        }
    }

    /// The task gets what it waits for.
    pub(super) fn deliver(&mut self, task: Task, letter: Letter) {
        let (from, bytes) = (letter.address.from, cost(letter.text.len()));
        let seat: &mut Seat = &mut self.seats[task as usize];
        seat.letter = letter.text;
        let answer = [seat.letter.as_ptr().expose_provenance() as u64, seat.letter.len() as u64];
        self.reply(task, Ok(answer));
        let node = self.world.members[from as usize].node;
        let task = self.world.neighbours()[task as usize];
        if let Some(bytes) = self.received.add((task, node), bytes) {
            if node != self.options.me {
                return self.send(node, Frame::Received { task, bytes }, Vec::new());
            }
            self.unreceived.remove(task, bytes).expect("it was sent");
            self.post_what_may_go();
        }
    }
}
