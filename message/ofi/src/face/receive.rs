//! Receives: posts a receive, or gives it an unexpected message.

use libc::iovec;

use crate::abi::{self, Context};
use crate::engine::completion::completion;
use crate::engine::deliver::{deliver, drop_body};
use crate::engine::space::Here;
use crate::engine::state::{Endpoint, Queue, State};
use crate::face::endpoint_object::EndpointObject;
use crate::face::send::DEFAULTS;
use crate::protocol::matching::{Head, Match};
use crate::protocol::parts::Parts;
use crate::protocol::receive::Receive;
use crate::protocol::slab::Slab;
use crate::protocol::wire::Kind;

/// A call that receives a message.
pub struct Receiving<'a> {
    pub kind: Kind,
    pub parts: &'a [iovec],
    pub from: u64,
    pub tag: u64,
    pub ignore: u64,
    pub context: Context,
    /// [`DEFAULTS`]: the endpoint's flags apply.
    pub flags: u64,
}

impl Receiving<'_> {
    /// Posts the receive, or gives it an unexpected message.
    pub fn post(&self, object: &EndpointObject) -> Result<(), i32> {
        let core = &*object.core;
        let mut state = core.lock();
        let endpoint = state.endpoints.get(object.number).ok_or(abi::EINVAL)?;
        if !endpoint.receives {
            return Err(abi::EOPBADSTATE);
        }
        let flags = if self.flags == DEFAULTS { endpoint.receive_flags } else { self.flags };
        let source = match self.from {
            from if endpoint.directed && from != abi::ADDR_UNSPEC => {
                Some(state.source(core.here, object.number, from)?)
            }
            _ => None,
        };
        if flags & abi::PEEK != 0 {
            // A message in the ring counts as arrived.
            state.progress(core.here, object.number);
        }
        let State { endpoints, queues, .. } = &mut *state;
        let endpoint = endpoints.get_mut(object.number).ok_or(abi::EINVAL)?;
        let buffer = Parts::of(self.parts).ok_or(abi::EINVAL)?;
        let multiple = if flags & abi::MULTI_RECV != 0 && self.kind == Kind::Plain {
            endpoint.min_multiple
        } else {
            0
        };
        let mut receive = Receive {
            context: self.context as usize,
            source,
            tag: self.tag,
            ignore: self.ignore,
            buffer,
            completes: endpoint.receive.wants(flags),
            multiple,
            slot_use: None,
        };
        if flags & abi::PEEK != 0 {
            return self.peek(core.here, endpoint, queues, &receive, flags);
        }
        let here = core.here;
        if flags & abi::CLAIM != 0 {
            let claimed = endpoint.matching(self.kind).claimed(receive.context);
            let (head, body) = claimed.ok_or(abi::EINVAL)?;
            if flags & abi::DISCARD != 0 {
                drop_body(here, endpoint, body);
                let taken = nothing(&receive);
                let mut done = completion(self.kind, &head, &taken, endpoint.vector);
                (done.error, done.length, done.overflow) = (0, 0, 0);
                endpoint.receive.complete(queues, done, receive.completes);
                return Ok(());
            }
            let taken = Match {
                context: receive.context,
                buffer,
                completes: receive.completes,
                multiple: false,
                last: true,
            };
            deliver(here, endpoint, queues, self.kind, &taken, &head, body);
        } else {
            // A receive of several messages may get some now.
            loop {
                let found = endpoint.matching(self.kind).receive(&mut receive);
                let Some((taken, head, body)) = found else {
                    endpoint.publish(self.kind, &receive);
                    break;
                };
                deliver(here, endpoint, queues, self.kind, &taken, &head, body);
                if taken.last {
                    break;
                }
            }
        }
        core.run_work(state, object.number);
        Ok(())
    }

    /// Reports the message that a receive would get; claims or discards it as the flags say.
    #[cold]
    fn peek(
        &self,
        here: &Here,
        endpoint: &mut Endpoint,
        queues: &mut Slab<Queue>,
        receive: &Receive,
        flags: u64,
    ) -> Result<(), i32> {
        let found = if flags & abi::DISCARD != 0 {
            endpoint.matching(self.kind).discard(receive).map(|(head, body)| {
                drop_body(here, endpoint, body);
                head
            })
        } else {
            endpoint.matching(self.kind).peek(receive, flags & abi::CLAIM != 0)
        };
        let taken = nothing(receive);
        let none = Head { source: 0, tag: self.tag, data: None, length: 0 };
        let mut done = completion(self.kind, &found.unwrap_or(none), &taken, endpoint.vector);
        (done.overflow, done.buffer) = (0, 0);
        match found {
            Some(head) => (done.error, done.length) = (0, head.length),
            None => (done.error, done.source) = (abi::ENOMSG, None),
        }
        endpoint.receive.complete(queues, done, true);
        Ok(())
    }
}

/// Returns the match of a receive without a buffer.
fn nothing(receive: &Receive) -> Match {
    Match {
        context: receive.context,
        buffer: Parts::default(),
        completes: receive.completes,
        multiple: false,
        last: true,
    }
}
