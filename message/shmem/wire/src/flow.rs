//! The operations of one connection: their order and their completion.
//!
//! The agent handles requests in order, and replies in that order. So the reply to a request shows
//! that all before it have taken effect, and most puts need no reply of their own: the PE asks for
//! one, a *flush*, when the program waits for the completion of its puts.
//!
//! A large put may be received into its target at once, before the agent has handled earlier
//! requests: it takes effect *early*, never late. So it must not be sent as such while requests
//! before a fence are not known to be complete.
//!
//! Where the network has RDMA, large puts and all gets are *one-sided*: the network writes and
//! reads the target's memory without the agent. They have no order among each other or with
//! requests. So the PE *settles* them, which means that the network reports that all are complete,
//! before it sends anything after a fence, and before it reads after a write. It reads only when
//! all requests are complete, and writes only when those before a fence are.

use std::collections::VecDeque;

/// Most replies that a PE may wait for. It bounds the agent's memory.
pub const PENDING_MAX: usize = 1024;

/// The state of a connection. `T` is the use of a reply.
#[derive(Debug)]
pub struct Flow<T> {
    /// Number of requests.
    issued: u64,
    /// All requests up to this one are complete.
    completed: u64,
    /// Requests up to this one come before a fence.
    fenced: u64,
    /// The requests to which replies will come.
    pending: VecDeque<(u64, T)>,
    one_sided: OneSided,
}

/// Numbers of one-sided operations.
#[derive(Debug, Default)]
struct OneSided {
    /// Number of operations.
    issued: u64,
    /// The last write.
    written: u64,
    /// All operations up to this one are complete.
    settled: u64,
    /// Writes up to this one come before a fence.
    fenced: u64,
}

impl<T> Default for Flow<T> {
    fn default() -> Self {
        let (pending, one_sided) = (VecDeque::new(), OneSided::default());
        Self { issued: 0, completed: 0, fenced: 0, pending, one_sided }
    }
}

impl<T> Flow<T> {
    /// Returns the number of the next request, to which no reply will come.
    pub fn issue(&mut self) -> u64 {
        self.issued += 1;
        self.issued
    }

    /// Returns the number of the next request, whose reply is for `use_`.
    pub fn ask(&mut self, use_: T) -> u64 {
        let sequence = self.issue();
        self.pending.push_back((sequence, use_));
        sequence
    }

    /// The number of the last request.
    pub fn last(&self) -> u64 {
        self.issued
    }

    /// Orders the requests so far before all later ones.
    pub fn fence(&mut self) {
        self.fenced = self.issued;
        self.one_sided.fenced = self.one_sided.written;
    }

    /// Notes a one-sided write.
    pub fn write(&mut self) {
        self.one_sided.issued += 1;
        self.one_sided.written = self.one_sided.issued;
    }

    /// Notes a one-sided read that is not complete yet.
    pub fn read(&mut self) {
        self.one_sided.issued += 1;
    }

    /// Returns true if one-sided operations must be settled before any later operation.
    pub fn must_settle(&self) -> bool {
        self.one_sided.settled < self.one_sided.fenced
    }

    /// Returns true if one-sided operations must be settled before a read.
    pub fn must_settle_to_read(&self) -> bool {
        self.one_sided.settled < self.one_sided.written
    }

    /// The number of the last one-sided operation, unless all are complete.
    pub fn unsettled(&self) -> Option<u64> {
        let OneSided { issued, settled, .. } = self.one_sided;
        (settled < issued).then_some(issued)
    }

    /// Notes that the one-sided operations up to this one are complete.
    pub fn settle(&mut self, last: u64) {
        self.one_sided.settled = self.one_sided.settled.max(last);
    }

    /// Returns true if the next get may be one-sided.
    pub fn may_read(&self) -> bool {
        self.completed == self.issued
    }

    /// Returns true if the next put may take effect early, or be one-sided.
    pub fn may_be_early(&self) -> bool {
        self.completed >= self.fenced
    }

    /// Returns true if all requests up to `sequence` are complete.
    pub fn is_complete(&self, sequence: u64) -> bool {
        self.completed >= sequence
    }

    /// Returns true if no reply that is under way will show that the requests up to `sequence` are
    /// complete: a flush must be sent.
    pub fn needs_flush(&self, sequence: u64) -> bool {
        let asked = self.pending.back().map_or(0, |(asked, _)| *asked);
        sequence > self.completed.max(asked)
    }

    /// Returns true if there may be no further request with a reply now.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_MAX
    }

    /// Returns true if a reply is to come.
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the use of the reply to a request. None if no such reply is to come.
    pub fn expected(&self, sequence: u64) -> Option<&T> {
        let at = self.pending.binary_search_by_key(&sequence, |(number, _)| *number).ok()?;
        self.pending.get(at).map(|(_, use_)| use_)
    }

    /// Takes a reply. Returns its use; none if it is not the next reply: the agent has violated the
    /// protocol.
    pub fn reply(&mut self, sequence: u64) -> Option<T> {
        let (next, _) = self.pending.front()?;
        if *next != sequence {
            return None;
        }
        self.completed = sequence;
        self.pending.pop_front().map(|(_, use_)| use_)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replies_complete_all_requests_before_them() {
        let mut flow = Flow::default();
        let put = flow.issue();
        assert!(flow.needs_flush(put) && !flow.is_complete(put));
        let get = flow.ask("get");
        assert!(!flow.needs_flush(put), "the get's reply will do");
        let later = flow.issue();
        assert!(flow.needs_flush(later));
        let flush = flow.ask("flush");
        assert_eq!(flow.expected(get), Some(&"get"));
        assert_eq!(flow.expected(put), None);
        assert_eq!(flow.reply(flush), None, "not the next one");
        assert_eq!(flow.reply(get), Some("get"));
        assert!(flow.is_complete(put) && flow.is_complete(get) && !flow.is_complete(later));
        assert_eq!(flow.reply(get), None, "a second reply");
        assert_eq!(flow.reply(flush), Some("flush"));
        assert!(flow.is_complete(flow.last()) && !flow.is_waiting());
    }

    #[test]
    fn replies_under_way_are_bounded() {
        let mut flow = Flow::default();
        (0..PENDING_MAX).for_each(|_| assert!(flow.ask(()) > 0));
        assert!(flow.is_full());
        assert_eq!(flow.reply(1), Some(()));
        assert!(!flow.is_full());
    }

    #[test]
    fn reads_wait_for_requests_and_for_writes() {
        let mut flow = Flow::default();
        assert!(flow.may_read() && !flow.must_settle_to_read());
        flow.read();
        assert!(!flow.must_settle_to_read() && flow.unsettled() == Some(1), "a read to come");
        flow.write();
        assert!(flow.must_settle_to_read() && !flow.must_settle());
        flow.fence();
        assert!(flow.must_settle());
        flow.settle(flow.unsettled().expect("two"));
        assert!(!flow.must_settle() && !flow.must_settle_to_read());
        let flush = flow.ask(());
        assert!(!flow.may_read(), "a request may still change memory");
        flow.reply(flush);
        assert!(flow.may_read());
    }

    /// What a PE may do.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A put; a large one if true.
        Put(bool),
        /// A one-sided put.
        Write,
        /// The network completes a one-sided put.
        Land(usize),
        /// All one-sided puts are settled.
        Settle,
        Fence,
        Flush,
        /// A large put that was sent as early is received.
        Receive(usize),
        /// The agent handles the next request.
        Handle,
        /// The next reply comes.
        Reply,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<bool>().prop_map(Step::Put),
            Just(Step::Write),
            any::<usize>().prop_map(Step::Land),
            Just(Step::Settle),
            Just(Step::Fence),
            Just(Step::Flush),
            any::<usize>().prop_map(Step::Receive),
            Just(Step::Handle),
            Just(Step::Reply),
        ]
    }

    #[derive(Debug, Clone, Copy)]
    enum Sent {
        Put { number: usize, is_early: bool },
        Flush(u64),
    }

    proptest! {
        /// At any time, memory that shows a put after a fence shows all puts before the fence, and
        /// completion is never reported too soon.
        #[test]
        fn puts_keep_the_order_of_fences(steps in prop::collection::vec(step(), 0..200)) {
            let mut flow = Flow::default();
            let mut sent: VecDeque<Sent> = VecDeque::new();
            let mut replies: VecDeque<u64> = VecDeque::new();
            // For each put its fences before, and whether memory has it.
            let mut puts: Vec<(usize, bool)> = Vec::new();
            let (mut fences, mut marks) = (0, Vec::new());
            // One-sided puts, with their numbers, and the puts of which they are.
            let mut writes: Vec<(u64, usize)> = Vec::new();
            for step in steps {
                let is_later = matches!(step, Step::Put(_) | Step::Write);
                if (is_later && flow.must_settle()) || matches!(step, Step::Settle) {
                    writes.iter().for_each(|(_, number)| puts[*number].1 = true);
                    if let Some(last) = flow.unsettled() {
                        flow.settle(last);
                    }
                }
                match step {
                    Step::Write if flow.may_be_early() => {
                        flow.write();
                        writes.push((flow.unsettled().expect("just issued"), puts.len()));
                        puts.push((fences, false));
                    }
                    Step::Write | Step::Settle => {}
                    Step::Land(at) if !writes.is_empty() => {
                        puts[writes[at % writes.len()].1].1 = true;
                    }
                    Step::Land(_) => {}
                    Step::Put(is_large) => {
                        let is_early = is_large && flow.may_be_early();
                        marks.push((flow.issue(), puts.len()));
                        let number = puts.len();
                        sent.push_back(Sent::Put { number, is_early });
                        puts.push((fences, false));
                    }
                    Step::Fence => {
                        flow.fence();
                        fences += 1;
                    }
                    Step::Flush if flow.needs_flush(flow.last()) => {
                        sent.push_back(Sent::Flush(flow.ask(())));
                    }
                    Step::Flush => {}
                    Step::Receive(at) if !sent.is_empty() => {
                        let at = at % sent.len();
                        if let Sent::Put { number, is_early: true } = sent[at] {
                            puts[number].1 = true;
                        }
                    }
                    Step::Receive(_) => {}
                    Step::Handle => match sent.pop_front() {
                        Some(Sent::Put { number, .. }) => puts[number].1 = true,
                        Some(Sent::Flush(sequence)) => replies.push_back(sequence),
                        None => {}
                    },
                    Step::Reply => if let Some(sequence) = replies.pop_front() {
                        prop_assert!(flow.reply(sequence).is_some());
                    },
                }
                let shown = puts.iter().filter(|(_, is_shown)| *is_shown);
                let latest = shown.map(|(fences, _)| *fences).max().unwrap_or(0);
                let is_ordered = |(fences, is_shown): &(usize, bool)| *is_shown || *fences >= latest;
                prop_assert!(puts.iter().all(is_ordered), "{:?}", puts);
                for (sequence, number) in &marks {
                    prop_assert!(!flow.is_complete(*sequence) || puts[*number].1);
                }
                let is_settled = |last: u64| flow.unsettled().is_none() || last <= flow.one_sided.settled;
                for (last, number) in &writes {
                    prop_assert!(!is_settled(*last) || puts[*number].1);
                }
            }
        }
    }
}
