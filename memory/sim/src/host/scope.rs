//! The actions of scope consistency, and their cost.

use std::collections::BTreeMap;

use coherence::content::Content;
use coherence::message::{Header, NodeId};
use coherence::ride::{self, Ride};
use coherence::run::Run;
use coherence::scope::event::Body;
use coherence::scope::{Action, Event};

use super::{Diffs, Effect, Host};
use crate::frames::{Access, Frames};
use crate::protocol::{Message, Packet};
use crate::report::RunError;
use crate::setup::Setup;

impl Host {
    /// Performs a step that starts at the time `now`. Returns the time of its end.
    pub(super) fn step_scope(
        &mut self,
        setup: &Setup,
        mut now: u64,
        event: Event,
        packet: Option<&Packet>,
        effects: &mut Vec<(u64, Effect)>,
    ) -> Result<u64, RunError> {
        if let Some(recorder) = &mut self.recorder {
            recorder.event(now, &event);
        }
        let allocated = match event {
            Event::Allocate { pages, .. } => pages,
            _ => 0,
        };
        let mut actions = std::mem::take(&mut self.actions);
        let outcome = self.node.step(event, now, &mut actions);
        if let Some(recorder) = &mut self.recorder {
            recorder.outcome(&actions, &outcome);
        }
        if let Err(refused) = outcome {
            let what = format!("node {} refuses a message: {refused}", self.options.me);
            return Err(RunError::Violation(what));
        }
        self.frames.borrow_mut().grow(allocated);
        for action in actions.drain(..) {
            now = self.carry_out(setup, now, action, packet, effects)?;
        }
        self.actions = actions;
        Ok(now)
    }

    /// Carries out an action. Returns the time of its end.
    fn carry_out(
        &mut self,
        setup: &Setup,
        mut now: u64,
        action: Action,
        packet: Option<&Packet>,
        effects: &mut Vec<(u64, Effect)>,
    ) -> Result<u64, RunError> {
        let map_ns = setup.cluster.memory.map_ns;
        let page_bytes = setup.page_bytes;
        let body = packet.map_or(&[][..], |packet| &packet.body);
        let mut frames = self.frames.borrow_mut();
        match action {
            Action::Fill(page, index) => {
                now += setup.copy_ns(page_bytes);
                frames.fill(page, page_of(body, index, page_bytes));
            }
            Action::Keep(kept) => {
                self.kept.insert(kept, body.to_vec());
            }
            Action::FillKept(page, kept, index) => {
                now += setup.copy_ns(page_bytes);
                frames.fill(page, page_of(&self.kept[&kept], index, page_bytes));
            }
            Action::Forget(kept) => {
                self.kept.remove(&kept);
            }
            Action::Twin(page) => {
                now += setup.copy_ns(page_bytes);
                frames.twin(page);
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
            Action::Diff(page, to) => {
                now += setup.compare_ns(page_bytes);
                let batch = self.diffs.entry(to).or_default();
                let bytes = frames.diff(page, &mut batch.body);
                if bytes > 0 {
                    batch.pages.push(page);
                    batch.bytes += bytes;
                }
            }
            Action::Change => {
                now += setup.copy_ns(packet.map_or(0, |packet| packet.bytes));
                frames.apply_diffs(body);
            }
            Action::Send(header, body, rides) => {
                let packet = pack((header, body, rides), setup, &mut frames, &mut self.diffs)?;
                now += setup.cluster.network.send_ns + setup.message_ns(packet.bytes);
                effects.push((now, Effect::Send(Box::new(packet))));
            }
            Action::Grant(task) => effects.push((now, Effect::Grant(task))),
            Action::Misuse(task, misuse) => {
                let what = format!("node {}, task {task}: {misuse:?}", self.options.me);
                return Err(RunError::Violation(what));
            }
        }
        Ok(now)
    }
}

/// Returns the page with this index in a body, or nothing if the program has no contents.
fn page_of(body: &[u8], index: usize, page_bytes: usize) -> &[u8] {
    body.chunks(page_bytes).nth(index).unwrap_or_default()
}

/// Encodes a message. If the program has contents, checks that the receiver will decode the same
/// message.
fn pack(
    (header, body, rides): (Header, Body, Vec<Ride>),
    setup: &Setup,
    frames: &mut Frames,
    diffs: &mut BTreeMap<NodeId, Diffs>,
) -> Result<Packet, RunError> {
    let mut diff_bytes = Vec::new();
    let (content, bytes) = match &body {
        Body::Empty => (Content::Empty, 0),
        Body::Page(_) => (Content::Page, setup.page_bytes),
        Body::Diffs => {
            let batch = diffs.remove(&header.to).unwrap_or_default();
            diff_bytes = batch.body;
            (Content::Diffs(batch.pages), batch.bytes)
        }
        Body::Runs(runs) => (Content::Runs(runs.clone()), runs.len() * Run::BYTES),
    };
    let ride_bytes = ride::aboard(&rides) * setup.page_bytes + rides.len() * Ride::BYTES;
    let bytes = Header::BYTES + bytes + ride_bytes;
    let body = match frames.has_contents() {
        true => body.bytes(&rides, diff_bytes, |page, bytes| bytes.extend(frames.bytes(page))),
        false => Vec::new(),
    };
    if frames.has_contents() {
        let parsed_header = Header::parse(&header.bytes());
        let parsed = Content::parse(&header, &body, setup.page_bytes);
        let is_equal = parsed.as_ref().is_some_and(|(it, with)| *it == content && *with == rides);
        if parsed_header != Some(header) || !is_equal {
            let what =
                format!("{header:?}, {content:?} is decoded as {parsed_header:?}, {parsed:?}");
            return Err(RunError::Violation(what));
        }
    }
    let message = Message::Scope(header, content, rides);
    Ok(Packet { message, body, bytes, number: 0 })
}
