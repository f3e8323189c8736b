//! Tasks whose process exits with status 0 without having left. They leave then, as if they had
//! requested it. If another task waits for something that such a task would still have to do, the
//! agent of the waiting task ends the job.

use coherence::scope::event::Task;

use super::Agent;
use super::tasks::EndedTask;
use crate::frame::Frame;

impl Agent {
    /// A task of this node ends.
    pub(super) fn ends(&mut self, task: Task) {
        let rank = self.world.neighbours()[task as usize];
        if let Some(lock) = self.pages.node.lock_of(task) {
            self.end_without(rank, &format!("with lock {lock}"));
        }
        let ended = EndedTask { task: rank, barriers: self.tasks[task as usize].barriers };
        if let Some(network) = &mut self.engine.mesh {
            network.send_all(&Frame::Ended { task: rank, barriers: ended.barriers }.bytes(), &[]);
        }
        self.has_ended(ended);
    }

    /// A task of this node or another has ended. All its messages have arrived.
    pub(super) fn has_ended(&mut self, ended: EndedTask) {
        self.ended.push(ended);
        self.check_ended();
    }

    /// Ends the job if a task of this node waits for a task that has ended.
    pub(super) fn check_ended(&mut self) {
        for &EndedTask { task, barriers } in &self.ended {
            let waits = self.tasks.iter().find_map(|state| match state {
                it if it.is_at_barrier && it.barriers > barriers => Some("at a barrier"),
                it if it.mailbox.waits_for(task) => Some("for a message"),
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
