//! Tasks: what machines tell each other of theirs, and what those of this one ask the agent.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use coherence::message::{NodeId, Page};
use nagaya_gate::abi::ask;
use pager::shared::PAGE;

use crate::agent::Agent;
use crate::changes::{Then, What};
use crate::frame::Word;
use crate::publish::{block_of, pages_of};

/// Pages that are asked for at once, for a task that wants many.
const BRINGS: usize = 32;

/// What is known of tasks.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Which of ours others know, and the so-manieth with its ID each is.
    told: HashMap<u32, u64>,
    /// Ours that have ended, until the next with the same ID is about to begin.
    gone: HashSet<u32>,
    /// Ours that have ended: who has not forgotten them yet, and who waits for that.
    ending: HashMap<u32, (Vec<NodeId>, Sender<()>)>,
    /// Who has asked that memory begin anew.
    pub asked: HashSet<u32>,
    /// What others have of ours is brought, for who asked.
    bringing: Vec<(u32, VecDeque<Page>)>,
    /// The space's events that were told or are our own.
    events: u32,
    /// Who wakes sleepers.
    waker: Option<Sender<u64>>,
    /// Who prints, on the first machine.
    printer: Option<Sender<(u8, Vec<u8>)>>,
}

impl Tasks {
    /// Wakes who sleeps at a futex. The kernel looks at its page, which may be elsewhere: so a
    /// thread of its own asks.
    fn wake(&mut self, address: u64) {
        let waker = self.waker.get_or_insert_with(|| {
            let (waker, addresses) = channel::<u64>();
            let wake = move || {
                for address in addresses {
                    let all = i32::MAX;
                    // SAFETY: wakes at an address; where nothing is mapped it is an error.
                    unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE, all) };
                }
            };
            let _ = std::thread::Builder::new().name("nagaya-waker".into()).spawn(wake);
            waker
        });
        let _ = waker.send(address);
    }

    /// Prints what a task of some machine has written: whoever reads that may be slow.
    pub fn print(&mut self, stream: u8, bytes: Vec<u8>) {
        let printer = self.printer.get_or_insert_with(|| {
            let (printer, texts) = channel::<(u8, Vec<u8>)>();
            let print = move || {
                for (stream, bytes) in texts {
                    // Nobody may be left to read it.
                    let _ = match stream {
                        1 => std::io::stdout().lock().write_all(&bytes),
                        _ => std::io::stderr().lock().write_all(&bytes),
                    };
                    let _ = std::io::stdout().flush();
                }
            };
            let _ = std::thread::Builder::new().name("nagaya-print".into()).spawn(print);
            printer
        });
        let _ = printer.send((stream, bytes));
    }
}

impl Agent {
    /// Tells others of tasks that have begun, and of what else has happened.
    pub(super) fn look_at_tasks(&mut self) {
        for id in self.plan.ids[self.plan.me as usize].clone() {
            let Some(identity) = self.control.identity(id) else { continue };
            let generation = u64::from(identity.generation);
            if self.tasks.told.insert(id, generation) != Some(generation) {
                self.tell_others(Word::Task { id, generation, lives: true });
            }
        }
        let now = self.control.event().load(Ordering::Acquire);
        if now != self.tasks.events {
            self.tasks.events = now;
            self.tell_others(Word::Event);
        }
    }

    /// Before others see what a task of ours has written, they are told that it lives: a request
    /// of somebody of whom they have not heard would seem a dead task's.
    pub(super) fn tell_in_time(&mut self) {
        if self.control.event().load(Ordering::Acquire) != self.tasks.events {
            self.look_at_tasks();
        }
    }

    pub(super) fn record_tasks(&mut self, from: NodeId, word: Word) {
        match word {
            Word::Task { id, generation, lives } => {
                let is_its = self.plan.ids.get(from as usize).is_some_and(|ids| ids.contains(&id));
                if !is_its {
                    return self.nonsense(from, "what becomes of others' tasks");
                }
                self.control.mirror(id, generation, lives);
                self.tasks.events = self.tasks.events.wrapping_add(1);
                if !lives {
                    self.say(from, Word::Forgotten { id });
                }
            }
            Word::Forgotten { id } => {
                if let Some((by, _)) = self.tasks.ending.get_mut(&id) {
                    by.retain(|other| *other != from);
                    if by.is_empty() {
                        self.tasks.ending.remove(&id);
                    }
                }
            }
            _ => {
                self.control.announce();
                self.tasks.events = self.tasks.events.wrapping_add(1);
            }
        }
    }

    /// Whether a task of ours runs: its memory is its own affair.
    pub(super) fn runs(&self, id: u32) -> bool {
        self.control.is_announced(id) && !self.tasks.gone.contains(&id)
    }

    /// A task of ours has ended.
    pub(super) fn ended(&mut self, id: u32, done: Sender<()>) {
        self.tasks.gone.insert(id);
        self.control.ask(id).forget();
        self.tasks.bringing.retain(|(other, _)| *other != id);
        self.tasks.asked.remove(&id);
        let Some(generation) = self.tasks.told.remove(&id) else { return };
        self.tell_others(Word::Task { id, generation, lives: false });
        let others: Vec<NodeId> = self.others().collect();
        if !others.is_empty() {
            self.tasks.ending.insert(id, (others, done));
        }
    }

    /// What it had begins anew, where others know of it.
    pub(super) fn cleared(&mut self, id: u32, done: Sender<()>) {
        let segment = self.segment(id);
        let blocks = block_of(segment.start)..block_of(segment.end);
        let mut published = self.blocks.published.range(blocks);
        let (Some(&first), last) = (published.next(), published.next_back()) else { return };
        let last = last.copied().unwrap_or(first);
        let pages = pages_of(first).start..pages_of(last).end;
        self.change(What::Anew, pages, Then::Unpublish(done));
    }

    /// Memory was mapped for a task that is about to begin.
    pub(super) fn loaded(&mut self, id: u32) {
        self.tasks.gone.remove(&id);
        let segment = self.segment(id);
        self.take_stock_of_published(segment);
    }

    pub(super) fn segment(&self, id: u32) -> Range<Page> {
        let first = u64::from(id) * self.segment_pages;
        first..first + self.segment_pages
    }

    /// Does what tasks ask.
    pub(super) fn answer_asks(&mut self) {
        let control = self.control;
        for (id, it) in control.asks() {
            if self.is_answered_later(id) {
                continue;
            }
            let base = control.layout().base();
            let (address, size) =
                (it.address.load(Ordering::Relaxed), it.size.load(Ordering::Relaxed));
            if it.what.load(Ordering::Relaxed) == ask::WAKE {
                let page = address.wrapping_sub(base) / PAGE;
                if let Some(home) = self.home(page).filter(|&home| home != self.plan.me) {
                    self.say(home, Word::Wake { address });
                }
                control.answer(id);
                continue;
            }
            let segment = self.segment(id);
            let first = (address.wrapping_sub(base) / PAGE).clamp(segment.start, segment.end);
            let end = first.saturating_add(size.div_ceil(PAGE)).min(segment.end);
            // A task may write there what it likes.
            if first >= end || self.home(first) != Some(self.plan.me) {
                control.answer(id);
                continue;
            }
            match it.what.load(Ordering::Relaxed) {
                ask::DISCARD => self.change_by(id, What::Anew, first..end),
                ask::BRING => self.bring(id, first..end),
                _ if self.blocks.refused.range(first..end).next().is_some() => {
                    self.change_by(id, What::Mapped, first..end);
                }
                _ => {
                    self.take_stock_of_published(first..end);
                    control.answer(id);
                }
            }
        }
    }

    /// Somebody elsewhere has changed a word of ours.
    pub(super) fn wakes(&mut self, from: NodeId, address: u64) {
        let page = address.wrapping_sub(self.control.layout().base()) / PAGE;
        if !self.is_ours(page) || !address.is_multiple_of(4) {
            return self.nonsense(from, "a futex that is not ours");
        }
        self.tasks.wake(address);
    }

    fn change_by(&mut self, id: u32, what: What, pages: Range<Page>) {
        self.tasks.asked.insert(id);
        self.change(what, pages, Then::Answer(id));
    }

    fn is_answered_later(&self, id: u32) -> bool {
        self.tasks.asked.contains(&id) || self.tasks.bringing.iter().any(|(other, _)| *other == id)
    }

    /// The file is to hold what these pages hold, wherever they are.
    fn bring(&mut self, id: u32, pages: Range<Page>) {
        let mut away = VecDeque::new();
        let mut page = self.pages.node.next_touched(pages.clone());
        while page < pages.end {
            if !self.pages.node.can_be_read(page) {
                away.push_back(page);
            }
            page = self.pages.node.next_touched(page + 1..pages.end);
        }
        self.tasks.bringing.push((id, away));
        self.go_on_bringing();
    }

    pub(super) fn go_on_bringing(&mut self) {
        for (id, mut away) in std::mem::take(&mut self.tasks.bringing) {
            away.retain(|&page| !self.pages.node.can_be_read(page));
            if away.is_empty() {
                self.control.answer(id);
                continue;
            }
            let next: Vec<Page> = away.iter().copied().take(BRINGS).collect();
            self.tasks.bringing.push((id, away));
            for page in next {
                let is_asked = self.pages.node.first_busy(page..page + 1) == page;
                if !is_asked && !self.pages.closed.contains(page) {
                    self.ask(page, false);
                }
            }
        }
    }
}
