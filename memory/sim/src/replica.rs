//! A node's pages under sequential consistency: what carrying out the core's actions takes.

use std::ops::Range;

use coherence::message::Page;
use coherence::ride;
use coherence::sequential::message::{Body, Header, parse};
use coherence::sequential::{Action, Event, MIGRATORY_MAX, Node, Options};

use crate::frames::{Access, Frames};
use crate::host::{Effect, Host};
use crate::machine::{Mail, Setup, Stuck};
use crate::protocol::{Consistency, Letter};

/// The core's state, if pages are consistent sequentially.
pub(crate) fn node(setup: &Setup, me: u32) -> Option<Node> {
    (setup.consistency == Consistency::Sequential).then(|| {
        Node::new(Options {
            nodes: setup.nodes,
            me,
            pages_max: ride::pages_max(setup.page_bytes).min(32),
            copies_max: setup.copies_max,
            rides: setup.rides,
            migratory: MIGRATORY_MAX,
            // Ten round trips.
            rest: 20 * setup.cluster.network.latency_ns,
        })
    })
}

impl Host {
    /// Takes a step that begins at `now`, and answers when it ends.
    pub(crate) fn step_sequential(
        &mut self,
        setup: &Setup,
        mut now: u64,
        event: Event,
        mail: Option<&Mail>,
        effects: &mut Vec<(u64, Effect)>,
    ) -> Result<u64, Stuck> {
        let network = &setup.cluster.network;
        let map = setup.cluster.memory.map_ns;
        if let Some(mail) = mail {
            now += network.receive_ns + setup.per_bytes(mail.bytes);
        }
        let mut frames = self.frames.borrow_mut();
        if let Event::Allocate { pages, .. } = event {
            frames.grow(pages);
        }
        let body = mail.map_or(&[][..], |mail| &mail.body);
        let pages = match &event {
            Event::Message(header, _) if frames.has_contents() => {
                parse(header, body, setup.page_bytes).map(|(_, pages)| pages)
            }
            _ => None,
        };
        let node = self.sequential.as_mut().expect("pages are consistent sequentially");
        let mut actions = Vec::new();
        if let Err(refused) = node.step(event, now, &mut actions) {
            return Err(Stuck::Wrong(format!("node {} refuses: {refused:?}", self.options.me)));
        }
        for action in actions {
            match action {
                Action::Fill(page, place) => {
                    now += setup.copy(setup.page_bytes);
                    match pages.as_ref().map(|pages| pages.get(place)) {
                        Some(Some(bytes)) => frames.fill(page, bytes),
                        Some(None) => frames.fill(page, &vec![0; setup.page_bytes]),
                        None => {}
                    }
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
                Action::Hold(page) => {
                    // Whoever was woken for it goes on before.
                    let touched = now + setup.cluster.memory.wake_ns + 1;
                    effects.push((touched, Effect::Hold(page)));
                }
                Action::Send(header, body) => {
                    let mail = pack(header, body, setup, &mut frames)?;
                    now += network.send_ns + setup.per_bytes(mail.bytes);
                    effects.push((now, Effect::Send(Box::new(mail))));
                }
                Action::Lost(..) => {}
                Action::Gone(page) => effects.push((now, Effect::Gone(page))),
            }
        }
        Ok(now)
    }
}

/// A message as it is sent: where there are contents, what comes is parsed from the real bytes.
fn pack(header: Header, body: Body, setup: &Setup, frames: &mut Frames) -> Result<Mail, Stuck> {
    let content = body.runs().to_vec();
    let count = match &body {
        Body::Runs(_) | Body::New(_) => 0,
        Body::Pages { asked, rides } => {
            usize::from(asked.is_some()) + rides.iter().map(|run| run.pages as usize).sum::<usize>()
        }
    };
    let letter = Letter::Sequential(header, content.clone());
    if !frames.has_contents() {
        let bytes =
            Header::BYTES + body.bytes(|_: Range<Page>, _| {}).len() + count * setup.page_bytes;
        return Ok(Mail { letter, body: Vec::new(), bytes, number: 0 });
    }
    let body = body.bytes(|pages, bytes| {
        pages.for_each(|page| bytes.extend(frames.bytes(page)));
    });
    let came = Header::parse(&header.bytes());
    let parsed = parse(&header, &body, setup.page_bytes).map(|(content, _)| content);
    if came != Some(header) || parsed.as_ref() != Some(&content) {
        let what = format!("{header:?}, {content:?} is parsed as {came:?}, {parsed:?}");
        return Err(Stuck::Wrong(what));
    }
    let bytes = Header::BYTES + body.len();
    Ok(Mail { letter, body, bytes, number: 0 })
}
