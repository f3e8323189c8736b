//! Recordings of a node's events and actions. Replaying the events through the same state machine
//! must produce the same actions.
//!
//! A recording consists of [`MAGIC`], a byte with [`VERSION`], the node's [`Options`], and the
//! steps. A step has its time, its event, its actions, and the reason if the event was refused. All
//! values are in postcard's encoding. A recording may end anywhere, since the process may be
//! killed. It has no page contents, because the protocol does not read them.

use serde::{Deserialize, Serialize};

use crate::message::NodeId;
use crate::refusal::Refused;
use crate::scope::{Action, Event, Node, Options};

/// The first bytes of a recording.
pub const MAGIC: [u8; 8] = *b"NGYREC\r\n";
/// Version of the format. Every change of the format or of the recorded values increments it.
pub const VERSION: u8 = 4;

/// Returns the name of a node's recording in the directory of all recordings.
pub fn file_name(node: NodeId) -> String {
    format!("node-{node}.record")
}

/// Writes a node's recording. Call [`event`](Self::event) before each step, so that a step that
/// never returns is recorded too. Call [`outcome`](Self::outcome) after it.
#[derive(Clone, Debug)]
pub struct Recorder {
    bytes: Vec<u8>,
}

impl Recorder {
    /// Starts the recording of a node with these options.
    pub fn new(options: &Options) -> Self {
        let mut recorder = Self { bytes: MAGIC.to_vec() };
        recorder.bytes.push(VERSION);
        recorder.append(options);
        recorder
    }

    /// Records the next event, with the time that [`Node::step`] gets.
    pub fn event(&mut self, now: u64, event: &Event) {
        self.append(&(now, event));
    }

    /// Records the outcome of the step.
    pub fn outcome(&mut self, actions: &[Action], outcome: &Result<(), Refused>) {
        self.append(&(actions, outcome.as_ref().err().map(Refused::reason)));
    }

    /// Takes the bytes recorded since the last call. The caller appends them to the file.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the number of bytes that [`take`](Self::take) would return.
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    fn append(&mut self, value: &impl Serialize) {
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(value, bytes).expect("a vector takes all");
    }
}

/// A recorded step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Step {
    /// The time of the step.
    pub now: u64,
    /// The event.
    pub event: Event,
    /// The outcome. `None` if the recording ends before it.
    #[serde(skip)]
    pub outcome: Option<Outcome>,
}

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Outcome {
    /// The actions that the step produced.
    pub actions: Vec<Action>,
    /// The reason why the step refused a message.
    pub refused: Option<String>,
}

/// Reads a recording step by step.
#[derive(Clone, Debug)]
pub struct Recording<'a> {
    options: Options,
    rest: &'a [u8],
}

/// A difference between a recording and its replay, or a defect of the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Differs {
    /// The header is invalid or has another version.
    Head,
    /// The bytes after this number of complete steps are malformed.
    Broken(u64),
    /// The step with this number, counted from 0, has an event that cannot happen to the node.
    Impossible(u64, Box<Step>),
    /// The replay of the step with this number had this outcome instead.
    Step(u64, Box<(Step, Outcome)>),
}

impl<'a> Recording<'a> {
    /// Reads the header of a recording.
    ///
    /// # Errors
    /// [`Differs::Head`] if the header is invalid.
    pub fn of(bytes: &'a [u8]) -> Result<Self, Differs> {
        let rest = bytes.strip_prefix(&MAGIC).and_then(|rest| rest.strip_prefix(&[VERSION]));
        let (options, rest): (Options, _) =
            rest.and_then(|rest| postcard::take_from_bytes(rest).ok()).ok_or(Differs::Head)?;
        match options.me < options.nodes && (1..=MOST_TASKS).contains(&options.tasks) {
            true => Ok(Self { options, rest }),
            false => Err(Differs::Head),
        }
    }

    /// Returns the options of the recorded node.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Reads the next step. Returns `None` at the end.
    ///
    /// # Errors
    /// The next bytes are not a step.
    pub fn next_step(&mut self) -> Result<Option<Step>, postcard::Error> {
        let Some((mut step, rest)) = whole(postcard::take_from_bytes::<Step>(self.rest))? else {
            self.rest = &[];
            return Ok(None);
        };
        self.rest = rest;
        match whole(postcard::take_from_bytes::<Outcome>(rest))? {
            Some((outcome, rest)) => {
                step.outcome = Some(outcome);
                self.rest = rest;
            }
            None => self.rest = &[],
        }
        Ok(Some(step))
    }
}

/// Returns `None` if the bytes end before the value does.
fn whole<T>(taken: Result<T, postcard::Error>) -> Result<Option<T>, postcard::Error> {
    match taken {
        Err(postcard::Error::DeserializeUnexpectedEnd) => Ok(None),
        taken => taken.map(Some),
    }
}

/// Upper limit of tasks of a node. A recording with more is invalid.
const MOST_TASKS: u32 = 1 << 20;
/// Upper limit of pages of a node: 16 GiB in pages of 4 KiB. A replay has an entry for each page
/// whose home is the node.
const MOST_PAGES: u64 = 1 << 22;

/// Replays a recording. Returns the number of steps that produced the recorded outcome.
///
/// # Errors
/// The first difference.
pub fn replay(bytes: &[u8]) -> Result<u64, Differs> {
    let mut recording = Recording::of(bytes)?;
    let mut node = Node::new(*recording.options());
    for number in 0.. {
        let step = recording.next_step().map_err(|_| Differs::Broken(number))?;
        let Some(step) = step else { return Ok(number) };
        let Some(outcome) = &step.outcome else { return Ok(number) };
        if !can_happen(&node, recording.options(), &step.event) {
            return Err(Differs::Impossible(number, Box::new(step)));
        }
        let mut actions = Vec::new();
        let result = node.step(step.event.clone(), step.now, &mut actions);
        let now = Outcome { actions, refused: result.err().map(|refused| refused.reason()) };
        if now != *outcome {
            return Err(Differs::Step(number, Box::new((step, now))));
        }
    }
    unreachable!("a recording ends")
}

/// Returns true if a correct driver could produce this event. A recording may come from an
/// untrusted source.
fn can_happen(node: &Node, options: &Options, event: &Event) -> bool {
    use crate::scope::homes::Homes;
    match *event {
        Event::Allocate { pages, homes } => {
            let homes = match homes {
                Homes::Blocks { pages, first } => pages > 0 && first < options.nodes,
                Homes::At(home) => home < options.nodes,
            };
            homes && node.pages().checked_add(pages).is_some_and(|pages| pages <= MOST_PAGES)
        }
        Event::Read(page) | Event::Write(page) => page < node.pages(),
        Event::Acquire(task, _)
        | Event::Release(task, _)
        | Event::Barrier(task)
        | Event::Meet(task)
        | Event::Set(task, _)
        | Event::Reset(task, _)
        | Event::Wait(task, _) => task < options.tasks,
        Event::Message(..) | Event::Configure { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::message::{Header, Op};
    use crate::ride::Policy;
    use crate::scope::homes::Homes;
    use proptest::prelude::*;

    const OPTIONS: Options = Options {
        nodes: 2,
        me: 1,
        tasks: 2,
        migrate: true,
        alone: true,
        rides: Policy::Ainori3,
        pages_max: 8,
    };

    /// Records a node that fetches a page, acquires a lock, and receives invalid messages.
    fn recording() -> Vec<u8> {
        let header = |op, scope| Header { op, from: 0, to: 1, lock: 4, scope, epoch: 0, rides: 0 };
        let events = [
            Event::Allocate { pages: 8, homes: Homes::At(0) },
            Event::Read(3),
            Event::Message(header(Op::GetPageGrant, 3), Content::Page, vec![]),
            Event::Message(header(Op::GetPageGrant, 3), Content::Page, vec![]),
            Event::Acquire(1, 4),
            Event::Release(0, 4),
            Event::Message(header(Op::AcquireGrant, 0), Content::Runs(vec![]), vec![]),
            Event::Write(3),
            Event::Release(1, 4),
        ];
        let mut node = Node::new(OPTIONS);
        let mut recorder = Recorder::new(&OPTIONS);
        let mut bytes = recorder.take();
        for (now, event) in events.into_iter().enumerate() {
            let mut actions = Vec::new();
            recorder.event(now as u64, &event);
            let result = node.step(event, now as u64, &mut actions);
            recorder.outcome(&actions, &result);
            bytes.extend(recorder.take());
        }
        bytes
    }

    #[test]
    fn a_recording_replays_to_the_same_result() {
        assert_eq!(replay(&recording()), Ok(9));
        assert_eq!(Recording::of(&recording()).map(|it| *it.options()), Ok(OPTIONS));
    }

    #[test]
    fn a_recording_may_end_anywhere_after_its_head() {
        let bytes = recording();
        let head = Recorder::new(&OPTIONS).take().len();
        let mut most = 0;
        for cut in 0..bytes.len() {
            match replay(&bytes[..cut]) {
                Ok(steps) => {
                    assert!(cut >= head && steps >= most && steps < 9, "{cut}");
                    most = steps;
                }
                Err(Differs::Head) => assert!(cut < head, "{cut}"),
                Err(other) => panic!("{cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_step_that_was_another_is_named() {
        let mut node = Node::new(OPTIONS);
        let mut recorder = Recorder::new(&OPTIONS);
        let allocate = Event::Allocate { pages: 1, homes: Homes::At(0) };
        for event in [allocate, Event::Read(0), Event::Read(0)] {
            let mut actions = Vec::new();
            recorder.event(7, &event);
            let result = node.step(event, 7, &mut actions);
            // The second step sends a request, but the recording has a wake-up instead.
            if !actions.is_empty() {
                actions = vec![Action::Wake(0)];
            }
            recorder.outcome(&actions, &result);
        }
        match replay(&recorder.take()) {
            Err(Differs::Step(1, differs)) => {
                let (step, now) = *differs;
                assert_eq!(step.event, Event::Read(0));
                assert!(matches!(now.actions[..], [Action::Send(..)]));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_that_no_driver_makes_are_not_fed_to_the_core() {
        let none = Homes::Blocks { pages: 0, first: 0 };
        for event in [Event::Read(0), Event::Barrier(2), Event::Allocate { pages: 1, homes: none }]
        {
            let mut recorder = Recorder::new(&OPTIONS);
            recorder.event(0, &event);
            recorder.outcome(&[], &Ok(()));
            assert!(matches!(replay(&recorder.take()), Err(Differs::Impossible(0, _))));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let mut recorder = Recorder::new(&OPTIONS);
            recorder.event(0, &Event::Allocate { pages: 4, homes: Homes::At(0) });
            recorder.outcome(&[], &Ok(()));
            let mut all = recorder.take();
            all.extend(&bytes);
            let _ = replay(&all);
            let _ = replay(&bytes);
        }

        #[test]
        fn a_byte_changed_makes_no_panic(at: prop::sample::Index, to: u8) {
            let mut bytes = recording();
            // Keep the first 20 bytes: an allocation of the maximum number of pages would panic.
            let at = 20 + at.index(bytes.len() - 20);
            bytes[at] = to;
            let _ = replay(&bytes);
        }
    }
}
