//! What the node's tasks ask for.

use coherence::message::{NodeId, Page};
use coherence::scope::Event;
use coherence::scope::event::{Misuse, Task};
use coherence::scope::homes::Homes;

use super::{Agent, Seat};
use crate::desk::{ANY_TAG, Counted, Request, Setting};
use crate::frame::{Address, Frame};
use crate::mail::{Letter, Wanted};
use crate::report;
use crate::settings::Statistics;

/// An allocation that some task of the node has made.
pub(super) struct Allocation {
    request: Request,
    address: u64,
}

impl Agent {
    pub(super) fn requested(&mut self, task: Task, request: Request) {
        self.seats[task as usize].letter = Vec::new();
        match request {
            Request::Join => self.seats[task as usize].joins = true,
            Request::Allocate { .. } => {
                let answer = self.allocate(task, request);
                self.reply(task, answer.as_ref().map(|&at| [at, 0]).map_err(String::as_str));
            }
            Request::Acquire(lock) => self.wait(task, Event::Acquire(task, lock)),
            Request::Barrier => self.wait(task, Event::Barrier(task)),
            Request::Meet => self.wait(task, Event::Meet(task)),
            Request::Wait(lock) => self.wait(task, Event::Wait(task, lock)),
            Request::Leave => {
                self.seats[task as usize].leaves = true;
                self.wait(task, Event::Meet(task));
            }
            Request::Release(lock) => self.at_once(task, Event::Release(task, lock)),
            Request::Set(lock) => self.at_once(task, Event::Set(task, lock)),
            Request::Reset(lock) => self.at_once(task, Event::Reset(task, lock)),
            Request::Configure { option, on } => {
                match option {
                    Setting::Migrate => self.options.migrate = on,
                    Setting::Alone => self.options.alone = on,
                }
                let (migrate, alone) = (self.options.migrate, self.options.alone);
                self.at_once(task, Event::Configure { migrate, alone });
            }
            Request::Send { to, tag, at, bytes } => {
                // SAFETY: the task waits, and its letter is in its private memory.
                let text = unsafe { bytes_of(at, bytes) }.to_vec();
                self.post(task, to, tag, text);
                self.reply(task, Ok([0, 0]));
            }
            Request::Receive { from, tag } => {
                let wanted =
                    Wanted { from: u32::try_from(from).ok(), tag: (tag != ANY_TAG).then_some(tag) };
                if let Some(letter) = self.seats[task as usize].letters.take(wanted) {
                    self.deliver(task, letter);
                }
            }
            Request::Count { what, to } => {
                let is_there = self.count(what, to);
                self.reply(task, Ok([is_there.into(), 0]));
            }
            Request::CountAnew => {
                self.node.forget_statistics();
                self.traffic = report::Traffic::default();
                self.memory.changed = 0;
                self.reply(task, Ok([0, 0]));
            }
            Request::Report => {
                self.report();
                self.reply(task, Ok([0, 0]));
            }
            Request::Abort { status, at, bytes } => {
                // SAFETY: as above.
                let line = String::from_utf8_lossy(unsafe { bytes_of(at, bytes) }).into_owned();
                self.end(status, &line);
            }
        }
    }

    /// The task goes on when it is granted.
    fn wait(&mut self, task: Task, event: Event) {
        if let Some(misuse) = self.step(event, &[]) {
            self.reply(task, Err(&misuse));
        }
    }

    /// The task goes on at once.
    fn at_once(&mut self, task: Task, event: Event) {
        match self.step(event, &[]) {
            Some(misuse) => self.reply(task, Err(&misuse)),
            None => self.reply(task, Ok([0, 0])),
        }
    }

    /// The task goes on, if it waits for a grant.
    pub(super) fn granted(&mut self, task: Task) {
        let seat = &mut self.seats[task as usize];
        if std::mem::take(&mut seat.leaves) {
            seat.has_left = true;
        }
        self.reply(task, Ok([0, 0]));
    }

    pub(super) fn reply(&mut self, task: Task, answer: Result<[u64; 2], &str>) {
        self.waiting -= 1;
        self.desk.answer(task, answer);
    }

    /// Makes an allocation, or finds the one that another task of this node has made.
    fn allocate(&mut self, task: Task, request: Request) -> Result<u64, String> {
        let number = self.seats[task as usize].allocations;
        if let Some(made) = self.allocations.get(number) {
            if made.request != request {
                return Err(format!(
                    "this is the task's allocation number {number}, and another task's is \
                     {:?}; all tasks must make the same ones, in the same order",
                    made.request
                ));
            }
            self.seats[task as usize].allocations += 1;
            return Ok(made.address);
        }
        let Request::Allocate { bytes, block, first } = request else { unreachable!("it is one") };
        let page_bytes = self.memory.page_bytes() as u64;
        let pages = bytes.div_ceil(page_bytes);
        let page = match self.memory.region().grow(pages) {
            Ok(page) => page,
            // Others have it, perhaps.
            Err(error) => self.end(1, &format!("{bytes} B of shared memory: {error}")),
        };
        for (pages, homes) in self.homes(pages, block.div_ceil(page_bytes).max(1), first) {
            self.step(Event::Allocate { pages, homes }, &[]);
        }
        let address = self.memory.region().place().start as u64 + page * page_bytes;
        self.allocations.push(Allocation { request, address });
        self.seats[task as usize].allocations += 1;
        Ok(address)
    }

    /// Blocks of pages, given to tasks in turns, as homes of nodes.
    fn homes(&self, pages: u64, block: u64, first: u32) -> Vec<(u64, Homes)> {
        let world = &self.world;
        if world.nodes.len() == world.members.len() {
            return vec![(pages, Homes::Blocks { pages: block, first })];
        }
        let mut parts: Vec<(u64, NodeId)> = Vec::new();
        let mut task = first as usize;
        let mut left = pages;
        while left > 0 {
            let node = world.members[task].node;
            let part = block.min(left);
            match parts.last_mut() {
                Some(last) if last.1 == node => last.0 += part,
                _ => parts.push((part, node)),
            }
            left -= part;
            task = (task + 1) % world.members.len();
        }
        parts.into_iter().map(|(pages, node)| (pages, Homes::At(node))).collect()
    }

    fn post(&mut self, task: Task, to: u32, tag: i32, text: Vec<u8>) {
        let from = self.world.neighbours()[task as usize];
        let address = Address { from, to, tag };
        let node = self.world.members[to as usize].node;
        match node == self.options.me {
            true => self.came(Letter { address, text }),
            false => self.send(node, Frame::Letter(address), text),
        }
    }

    /// A letter for a task of this node.
    pub(super) fn came(&mut self, letter: Letter) {
        let local = self.world.members[letter.address.to as usize].local;
        if let Some(letter) = self.seats[local as usize].letters.put(letter) {
            self.deliver(local, letter);
        }
    }

    fn deliver(&mut self, task: Task, letter: Letter) {
        let seat: &mut Seat = &mut self.seats[task as usize];
        seat.letter = letter.text;
        let answer = [seat.letter.as_ptr().expose_provenance() as u64, seat.letter.len() as u64];
        self.reply(task, Ok(answer));
    }

    /// Writes numbers to the task's memory; whether there are any.
    fn count(&mut self, what: Counted, to: usize) -> bool {
        /// # Safety
        /// A task waits, and has such a place for us there.
        unsafe fn put<T>(to: usize, value: Option<T>) -> bool {
            let Some(value) = value else { return false };
            // SAFETY: as the caller promises.
            unsafe { std::ptr::with_exposed_provenance_mut::<T>(to).write(value) };
            true
        }
        let traffic = self.traffic();
        // SAFETY: `Task::count` makes the place that fits.
        unsafe {
            match what {
                Counted::Node => put(to, Some(report::totals(&self.node, traffic))),
                Counted::Page(address) => {
                    let page: Option<Page> = self.memory.region().page_at(address);
                    put(to, page.and_then(|page| report::of_page(&self.node, page)))
                }
                Counted::Lock(lock) => put(to, report::of_lock(&self.node, lock)),
            }
        }
    }

    /// Says what was counted, where the settings want it.
    pub(super) fn report(&mut self) {
        let (node, me, now) = (&self.node, self.options.me, self.now());
        let (traffic, page_bytes) = (self.traffic(), self.memory.page_bytes());
        match &self.statistics {
            Statistics::None => {}
            Statistics::Print => eprint!("{}", report::text(node, me, traffic, page_bytes, now)),
            Statistics::Files(beginning) => {
                let path = format!("{beginning}.{me}.json");
                let json = report::json(node, me, traffic, page_bytes, now);
                let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
                let written =
                    file.and_then(|mut file| std::io::Write::write_all(&mut file, json.as_bytes()));
                if let Err(error) = written {
                    eprintln!("nagaya: NAGAYA_DSM_STATISTICS: {path}: {error}");
                }
            }
        }
    }
}

/// In words.
pub(super) fn reason(misuse: Misuse) -> String {
    match misuse {
        Misuse::HasIt(lock) => format!("lock {lock}: the task has it already; unlock it first"),
        Misuse::HasItNot(lock) => format!("lock {lock}: the task has it not; lock it first"),
        Misuse::Holds(lock) => {
            format!("the task goes to a barrier and holds lock {lock}; unlock it first")
        }
    }
}

/// # Safety
/// The task that says so waits, and the bytes are in its private memory.
unsafe fn bytes_of<'a>(at: usize, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(at), bytes) }
}
