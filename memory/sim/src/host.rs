//! A node: the protocol's state, and what carrying out its actions takes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use coherence::content::Content;
use coherence::message::{Header, NodeId, Page};
use coherence::record::Recorder;
use coherence::ride::{self, Ride};
use coherence::run::Run;
use coherence::scope::event::{Body, Kept};
use coherence::scope::{Action, Event, Node, Options};
use coherence::sequential;

use crate::frames::{Access, Frames};
use crate::machine::{Mail, Setup, Shared, Stuck};
use crate::protocol::{Letter, Told};
use crate::replica;

/// A node.
pub(crate) struct Host {
    pub options: Options,
    pub node: Node,
    /// Who keeps the pages, if that is not `node`.
    pub sequential: Option<sequential::Node>,
    pub frames: Shared<Frames>,
    /// Until when the protocol is busy.
    pub free: u64,
    /// What the protocol has taken of each task's processor.
    pub stolen: u64,
    pub lost: bool,
    pub recorder: Option<Recorder>,
    /// What is allocated before the program begins.
    pub allocations: Vec<Told>,
    /// Bodies of messages that came ahead of a barrier.
    kept: BTreeMap<Kept, Vec<u8>>,
    /// What will be sent to homes.
    changes: BTreeMap<NodeId, Changes>,
    /// Spare, so that no step allocates.
    actions: Vec<Action>,
}

#[derive(Default)]
struct Changes {
    pages: Vec<Page>,
    body: Vec<u8>,
    bytes: usize,
}

/// What others notice of a step, and when.
pub(crate) enum Effect {
    /// Tasks that wait for the page try again.
    Wake(Page),
    /// The task goes on.
    Grant(u32),
    /// A message leaves.
    Send(Box<Mail>),
    /// Tasks have used the page, or had time to.
    Hold(Page),
    /// Tasks that wait for the page never go on.
    Gone(Page),
}

impl Host {
    pub fn new(options: Options, setup: &Setup, contents: bool) -> Self {
        Self {
            options,
            node: Node::new(options),
            sequential: replica::node(setup, options.me),
            frames: Rc::new(RefCell::new(Frames::new(setup.page_bytes, contents))),
            free: 0,
            stolen: 0,
            lost: false,
            recorder: None,
            allocations: Vec::new(),
            kept: BTreeMap::new(),
            changes: BTreeMap::new(),
            actions: Vec::new(),
        }
    }

    /// Takes a step that begins at `at`, and answers when it ends.
    pub fn step(
        &mut self,
        setup: &Setup,
        at: u64,
        told: Told,
        mail: Option<&Mail>,
        effects: &mut Vec<(u64, Effect)>,
    ) -> Result<u64, Stuck> {
        match told {
            Told::Scope(event) => self.step_scope(setup, at, event, mail, effects),
            Told::Sequential(event) => self.step_sequential(setup, at, event, mail, effects),
        }
    }

    fn step_scope(
        &mut self,
        setup: &Setup,
        at: u64,
        event: Event,
        mail: Option<&Mail>,
        effects: &mut Vec<(u64, Effect)>,
    ) -> Result<u64, Stuck> {
        let network = &setup.cluster.network;
        let map = setup.cluster.memory.map_ns;
        let mut now = at;
        if let Some(mail) = mail {
            now += network.receive_ns + setup.per_bytes(mail.bytes);
        }
        let grows = match event {
            Event::Allocate { pages, .. } => pages,
            _ => 0,
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.event(now, &event);
        }
        let mut actions = std::mem::take(&mut self.actions);
        let outcome = self.node.step(event, now, &mut actions);
        if let Some(recorder) = &mut self.recorder {
            recorder.outcome(&actions, &outcome);
        }
        if let Err(refused) = outcome {
            return Err(Stuck::Wrong(format!("node {} refuses: {refused:?}", self.options.me)));
        }
        let mut frames = self.frames.borrow_mut();
        frames.grow(grows);
        let body = mail.map_or(&[][..], |mail| &mail.body);
        for action in actions.drain(..) {
            match action {
                Action::Fill(page, place) => {
                    now += setup.copy(setup.page_bytes);
                    let bytes = body.chunks(setup.page_bytes).nth(place).unwrap_or_default();
                    frames.fill(page, bytes);
                }
                Action::Keep(kept) => {
                    self.kept.insert(kept, body.to_vec());
                }
                Action::FillKept(page, kept, place) => {
                    now += setup.copy(setup.page_bytes);
                    let bytes = &self.kept[&kept];
                    let bytes = bytes.chunks(setup.page_bytes).nth(place).unwrap_or_default();
                    frames.fill(page, bytes);
                }
                Action::Forget(kept) => {
                    self.kept.remove(&kept);
                }
                Action::Twin(page) => {
                    now += setup.copy(setup.page_bytes);
                    frames.twin(page);
                }
                Action::MapRead(page) => {
                    now += map;
                    frames.allow(page, |access| access.max(Access::Read));
                    effects.push((now, Effect::Wake(page)));
                }
                Action::MapWrite(page) => {
                    now += map;
                    frames.allow(page, |_| Access::Write);
                    effects.push((now, Effect::Wake(page)));
                }
                Action::Protect(page) => {
                    now += map;
                    frames.allow(page, |access| access.min(Access::Read));
                }
                Action::Unmap(page) => {
                    now += map;
                    frames.drop(page);
                }
                Action::Wake(page) => effects.push((now, Effect::Wake(page))),
                Action::Diff(page, to) => {
                    now += setup.compare(setup.page_bytes);
                    let changes = self.changes.entry(to).or_default();
                    let bytes = frames.diff(page, &mut changes.body);
                    if bytes > 0 {
                        changes.pages.push(page);
                        changes.bytes += bytes;
                    }
                }
                Action::Change => {
                    now += setup.copy(mail.map_or(0, |mail| mail.bytes));
                    frames.change(body);
                }
                Action::Send(header, body, rides) => {
                    let what = (header, body, rides);
                    let mail = pack(what, setup, &mut frames, &mut self.changes)?;
                    now += network.send_ns + setup.per_bytes(mail.bytes);
                    effects.push((now, Effect::Send(Box::new(mail))));
                }
                Action::Grant(task) => effects.push((now, Effect::Grant(task))),
                Action::Misuse(task, misuse) => {
                    let what = format!("node {}, task {task}: {misuse:?}", self.options.me);
                    return Err(Stuck::Wrong(what));
                }
            }
        }
        drop(frames);
        self.actions = actions;
        Ok(now)
    }
}

/// A message as it is sent: where there are contents, what comes is parsed from the real bytes.
fn pack(
    (header, body, rides): (Header, Body, Vec<Ride>),
    setup: &Setup,
    frames: &mut Frames,
    changes: &mut BTreeMap<NodeId, Changes>,
) -> Result<Mail, Stuck> {
    let mut diffs = Vec::new();
    let (content, bytes) = match &body {
        Body::Empty => (Content::Empty, 0),
        Body::Page(_) => (Content::Page, setup.page_bytes),
        Body::Diffs => {
            let changes = changes.remove(&header.to).unwrap_or_default();
            diffs = changes.body;
            (Content::Diffs(changes.pages), changes.bytes)
        }
        Body::Runs(runs) => (Content::Runs(runs.clone()), runs.len() * Run::BYTES),
    };
    let riding = ride::aboard(&rides) * setup.page_bytes + rides.len() * Ride::BYTES;
    let bytes = Header::BYTES + bytes + riding;
    let body = match frames.has_contents() {
        true => body.bytes(&rides, diffs, |page, bytes| bytes.extend(frames.bytes(page))),
        false => Vec::new(),
    };
    if frames.has_contents() {
        let came = Header::parse(&header.bytes());
        let parsed = Content::parse(&header, &body, setup.page_bytes);
        match (came == Some(header), parsed) {
            (true, Some(said)) if said.0 == content && said.1 == rides => {}
            (_, parsed) => {
                let what = format!("{header:?}, {content:?} is parsed as {came:?}, {parsed:?}");
                return Err(Stuck::Wrong(what));
            }
        }
    }
    let letter = Letter::Scope(header, content, rides);
    Ok(Mail { letter, body, bytes, number: 0 })
}
