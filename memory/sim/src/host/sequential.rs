//! The actions of sequential consistency, and their cost.

use std::ops::Range;

use coherence::message::Page;
use coherence::sequential::message::{Body, Header, Pages, parse};
use coherence::sequential::{Action, Event};

use super::{Effect, Host};
use crate::frames::{Access, Frames};
use crate::protocol::{Message, Packet};
use crate::report::RunError;
use crate::setup::Setup;

impl Host {
    /// Performs a step that starts at the time `now`. Returns the time of its end.
    pub(super) fn step_sequential(
        &mut self,
        setup: &Setup,
        mut now: u64,
        event: Event,
        packet: Option<&Packet>,
        effects: &mut Vec<(u64, Effect)>,
    ) -> Result<u64, RunError> {
        let mut frames = self.frames.borrow_mut();
        if let Event::Allocate { pages, .. } = event {
            frames.grow(pages);
        }
        let body = packet.map_or(&[][..], |packet| &packet.body);
        let pages = match &event {
            Event::Message(header, _) if frames.has_contents() => {
                parse(header, body, setup.page_bytes).map(|(_, pages)| pages)
            }
            _ => None,
        };
        let node = self.sequential.as_mut().expect("pages are sequentially consistent");
        let mut actions = Vec::new();
        if let Err(refused) = node.step(event, now, &mut actions) {
            let what = format!("node {} refuses a message: {refused}", self.options.me);
            return Err(RunError::Violation(what));
        }
        for action in actions {
            now = carry_out(setup, now, action, pages.as_ref(), &mut frames, effects)?;
        }
        Ok(now)
    }
}

/// Carries out an action. `pages` are those of the message that just arrived. Returns the time of
/// the action's end.
fn carry_out(
    setup: &Setup,
    mut now: u64,
    action: Action,
    pages: Option<&Pages<'_>>,
    frames: &mut Frames,
    effects: &mut Vec<(u64, Effect)>,
) -> Result<u64, RunError> {
    let map_ns = setup.cluster.memory.map_ns;
    match action {
        Action::Fill(page, index) => {
            now += setup.copy_ns(setup.page_bytes);
            match pages.map(|pages| pages.get(index)) {
                Some(Some(bytes)) => frames.fill(page, bytes),
                Some(None) => frames.fill(page, &vec![0; setup.page_bytes]),
                None => {}
            }
        }
        Action::MapRead(page) => {
            now += map_ns;
            frames.change_access(page, |access| access.max(Access::Read));
            effects.push((now, Effect::Wake(page)));
        }
        Action::MapWrite(page) => {
            now += map_ns;
            frames.change_access(page, |_| Access::Write);
            effects.push((now, Effect::Wake(page)));
        }
        Action::Protect(page) => {
            now += map_ns;
            frames.change_access(page, |access| access.min(Access::Read));
        }
        Action::Unmap(page) => {
            now += map_ns;
            frames.drop(page);
        }
        Action::Wake(page) => effects.push((now, Effect::Wake(page))),
        Action::Hold(page) => {
            // Tasks that were resumed for the page continue before.
            let touched = now + setup.cluster.memory.wake_ns + 1;
            effects.push((touched, Effect::Hold(page)));
        }
        Action::Send(header, body) => {
            let packet = pack(header, body, setup, frames)?;
            now += setup.cluster.network.send_ns + setup.message_ns(packet.bytes);
            effects.push((now, Effect::Send(Box::new(packet))));
        }
        Action::Lost(..) => {}
        Action::Gone(page) => effects.push((now, Effect::Gone(page))),
    }
    Ok(now)
}

/// Encodes a message. If the program has contents, checks that the receiver will decode the same
/// message.
fn pack(
    header: Header,
    body: Body,
    setup: &Setup,
    frames: &mut Frames,
) -> Result<Packet, RunError> {
    let content = body.runs().to_vec();
    let pages = match &body {
        Body::Runs(_) | Body::New(_) => 0,
        Body::Pages { asked, rides } => {
            usize::from(asked.is_some()) + rides.iter().map(|run| run.pages as usize).sum::<usize>()
        }
    };
    let message = Message::Sequential(header, content.clone());
    if !frames.has_contents() {
        let bytes =
            Header::BYTES + body.bytes(|_: Range<Page>, _| {}).len() + pages * setup.page_bytes;
        return Ok(Packet { message, body: Vec::new(), bytes, number: 0 });
    }
    let body = body.bytes(|pages, bytes| {
        pages.for_each(|page| bytes.extend(frames.bytes(page)));
    });
    let parsed_header = Header::parse(&header.bytes());
    let parsed = parse(&header, &body, setup.page_bytes).map(|(content, _)| content);
    if parsed_header != Some(header) || parsed.as_ref() != Some(&content) {
        let what = format!("{header:?}, {content:?} is decoded as {parsed_header:?}, {parsed:?}");
        return Err(RunError::Violation(what));
    }
    let bytes = Header::BYTES + body.len();
    Ok(Packet { message, body, bytes, number: 0 })
}
