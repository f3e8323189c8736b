//! Rendezvous messages that an endpoint has sent, until their completion.
//!
//! A message with a record completes when the record returns to the sender's port. A message that
//! has claimed its receive has no record; it completes when its pieces say that all is copied.

use std::sync::atomic::Ordering::Relaxed;

use crate::abi;
use crate::engine::completion::Completion;
use crate::engine::space::Here;
use crate::engine::state::{Endpoint, Queue};
use crate::protocol::record::Called;
use crate::protocol::slab::Slab;

impl Endpoint {
    /// Takes the records that receivers have returned.
    pub fn take_returned(&mut self, queues: &mut Slab<Queue>) {
        let mut returned = self.port.take_returned();
        while let Some(record) = returned.pop() {
            let number = record.number.load(Relaxed) as usize;
            match record.join() {
                Called::Help => self.helping.push_back(number),
                Called::Done => self.end_send(queues, number, None),
            }
        }
    }

    /// Ends a message with a record. `error`: the message fails with it.
    pub fn end_send(&mut self, queues: &mut Slab<Queue>, number: usize, error: Option<i32>) {
        let Some(send) = self.pending.get_mut(number) else { return };
        let error = error.unwrap_or_else(|| send.record.error.load(Relaxed) as i32);
        send.done = Some(error);
        if send.is_helped {
            return;
        }
        self.complete_send(queues, number, error);
        self.helping.retain(|&helped| helped != number);
        let Some(send) = self.pending.remove(number) else { return };
        self.records.push(send.record);
    }

    /// Reports the completion of a message with a record, if it was not reported.
    fn complete_send(&mut self, queues: &mut Slab<Queue>, number: usize, error: i32) {
        let Some(send) = self.pending.get_mut(number) else { return };
        let Some(completion) = send.completion.take() else { return };
        self.send.complete(queues, Completion { error, ..completion }, send.wanted);
    }

    /// Notes that a thread of this task has helped to copy a message with a record. `copied`: all
    /// is copied, with this error or 0.
    pub fn helped(&mut self, queues: &mut Slab<Queue>, number: usize, copied: Option<i32>) {
        let Some(send) = self.pending.get_mut(number) else { return };
        send.is_helped = false;
        if let Some(error) = send.done {
            self.end_send(queues, number, Some(error));
        } else if let Some(error) = copied {
            // The receiver has yet to return the record, which stays.
            self.complete_send(queues, number, error);
        }
    }

    /// Notes that a thread of this task has copied its part of a message that has claimed its
    /// receive.
    pub fn claimed_helped(&mut self, here: &Here, queues: &mut Slab<Queue>, number: usize) {
        if let Some(send) = self.claimed_sends.get_mut(number) {
            send.is_helped = false;
            self.end_claimed_send(here, queues, number);
        }
    }

    /// Completes the messages that have claimed their receives and of which all is copied.
    pub fn finish_claimed_sends(&mut self, here: &Here, queues: &mut Slab<Queue>) {
        for number in 0..self.claimed_sends.end() {
            self.end_claimed_send(here, queues, number);
        }
    }

    /// Completes one of these messages, if all is copied.
    #[inline]
    fn end_claimed_send(&mut self, here: &Here, queues: &mut Slab<Queue>, number: usize) {
        let send = self.claimed_sends.get(number).filter(|send| !send.is_helped);
        let Some(send) = send else { return };
        // The task is asked before the pieces: a dead receiver copies no further piece.
        let lives = here.is_living(send.task);
        let Some(error) = send.shares.finished().or((!lives).then_some(abi::ECONNRESET)) else {
            return;
        };
        let Some(send) = self.claimed_sends.remove(number) else { return };
        let completion = Completion { error, ..send.completion };
        self.send.complete(queues, completion, send.wanted);
        if self.claimed_sends.is_empty() {
            self.holds.clear();
        }
    }
}
