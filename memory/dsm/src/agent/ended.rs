//! Tasks whose process ends with status 0 without having left. They leave then, as if they had
//! asked for it. A task that waits for what such a task would still have to do waits in vain: the
//! agent of that task ends the job.

use coherence::scope::event::Task;

use super::Agent;
use crate::frame::Frame;

/// A task that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// Its rank.
    pub task: u32,
    /// How many barriers it has reached.
    pub barriers: u64,
}

impl Agent {
    /// A task of this node ends.
    pub(super) fn ends(&mut self, task: Task) {
        let rank = self.world.neighbours()[task as usize];
        if let Some(lock) = self.node.lock_of(task) {
            self.end_without(rank, &format!("with lock {lock}"));
        }
        let ended = Ended { task: rank, barriers: self.seats[task as usize].barriers };
        if let Some(network) = &mut self.engine.mesh {
            network.send_all(&Frame::Ended { task: rank, barriers: ended.barriers }.bytes(), &[]);
        }
        self.has_ended(ended);
    }

    /// A task of this node or another has ended. All messages that it has sent are here.
    pub(super) fn has_ended(&mut self, ended: Ended) {
        self.ended.push(ended);
        self.check_ended();
    }

    /// Ends the job if a task of this node waits in vain.
    pub(super) fn check_ended(&mut self) {
        for &Ended { task, barriers } in &self.ended {
            let mut seats = self.seats.iter();
            let waits = seats.find_map(|seat| match seat {
                seat if seat.is_at_barrier && seat.barriers > barriers => Some("at a barrier"),
                seat if seat.letters.waits_for(task) => Some("for a message"),
                _ => None,
            });
            if let Some(how) = waits {
                self.end_without(task, &format!("and another task waits for it {how}"));
            }
        }
    }

    fn end_without(&mut self, task: u32, how: &str) -> ! {
        self.end(1, &format!("task {task} has ended without jia_exit, {how}"))
    }
}
