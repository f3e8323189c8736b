//! Requests of this node's threads. The origin's own are in `origin_requests`.

use node::driver::Driver as _;

use super::state::Agent;
use crate::call::{self, Call};
use crate::context::Context;
use crate::frame::{Frame, Message, Question};
use crate::request::Request;

impl Agent {
    /// Answers the request of a thread of this node.
    pub(super) fn answer(&mut self, thread: u32, answer: i64) {
        self.waits.is_answered(thread, self.now());
        let slot = self.table.slot(thread);
        slot.store_answer(answer);
        self.wake_at(slot.answer_word(), thread);
    }

    /// Serves a request of a thread of this node.
    pub(super) fn serve_request(&mut self, thread: u32, request: Request) {
        if self.origin.is_some() {
            return self.serve_request_at_origin(thread, request);
        }
        match request {
            Request::Call(Call { number, arguments }) => {
                self.count_call(thread);
                let message = Message::Call { thread, number, arguments };
                let body = match call::takes_context(&Call { number, arguments }) {
                    // SAFETY: the thread has stored the child's context there, and waits for the
                    // answer.
                    true => unsafe { Context::bytes(self.table.slot(thread).context()) },
                    false => Vec::new(),
                };
                self.send(0, Frame::Word(message), body);
            }
            Request::Exited(status) => {
                let table = self.table;
                self.with_counts(|seen, _| seen.ends(table, thread));
                self.notify(0, Message::Exited { thread, status });
                self.threads -= 1;
                self.answer(thread, 0);
            }
            Request::Move(node) => self.hand_over(thread, node),
            Request::Exit(status) => self.notify(0, Message::Exit { status }),
            request => match Question::of(request) {
                Some(question) => self.notify(0, Message::Ask { thread, question }),
                None => unreachable!("{request:?} is made at the origin only"),
            },
        }
    }
}
