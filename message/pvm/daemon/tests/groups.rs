//! Compares groups with a simple model of stock PVM's group server. Tasks on two hosts make random
//! calls. Results and waiting tasks must be the same, both if members count in a slot and if the
//! daemons count. `NAGAYA_SEED=n` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use pvm::error::Error;
use pvm::slots::{Arrival, Count, Found, SLOTS, Slot, Ticket, WANTED_MAX};
use pvm::tid::Tid;
use pvm::wire::{Answer, GroupRequest};
use pvmd::errand::Asker;
use pvmd::groups::{Closing, Effect, Groups, SlotChange};

const HOSTS: [u16; 2] = [1, 2];
const NAMES: [&str; 2] = ["one", "two"];

fn task(n: u32) -> Tid {
    Tid::task(HOSTS[n as usize % 2], n / 2 + 1)
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Join,
    Leave,
    Size,
    Barrier(i32),
    Freeze(i32),
    /// The task ends.
    End,
}

/// The result of a call: a number or an error code; `None` if the task waits.
type Outcome = Option<i32>;

/// Stock PVM's group server.
#[derive(Default)]
struct Stock {
    groups: BTreeMap<&'static str, StockGroup>,
    /// Results of the resumed waiters.
    released: BTreeMap<Tid, i32>,
}

#[derive(Default)]
struct StockGroup {
    tids: Vec<Option<Tid>>,
    barrier: Option<(i32, Vec<Tid>)>,
    static_: Option<(i32, Vec<Tid>)>,
    frozen: bool,
    dead: bool,
}

impl Stock {
    fn call(&mut self, tid: Tid, name: &'static str, call: Call) -> Outcome {
        let result = match call {
            Call::Join => self.join(tid, name),
            Call::Leave => self.leave(tid, name),
            Call::End => {
                for name in NAMES {
                    let _ = self.leave(tid, name);
                }
                Ok(0)
            }
            Call::Size => match self.groups.get(name) {
                Some(group) => Ok(group.tids.iter().flatten().count() as i32),
                None => Err(Error::NoGroup),
            },
            Call::Barrier(count) => return self.wait(tid, name, count, true),
            Call::Freeze(count) => return self.wait(tid, name, count, false),
        };
        Some(result.unwrap_or_else(Error::code))
    }

    fn join(&mut self, tid: Tid, name: &'static str) -> Result<i32, Error> {
        let group = self.groups.entry(name).or_default();
        if group.frozen || group.dead {
            return Err(Error::NotInGroup);
        }
        if group.tids.contains(&Some(tid)) {
            return Err(Error::DupGroup);
        }
        let free = group.tids.iter().position(Option::is_none).unwrap_or(group.tids.len());
        group.tids.resize(group.tids.len().max(free + 1), None);
        group.tids[free] = Some(tid);
        Ok(free as i32)
    }

    fn leave(&mut self, tid: Tid, name: &'static str) -> Result<i32, Error> {
        let group = self.groups.get_mut(name).ok_or(Error::NoGroup)?;
        let place = group.tids.iter().position(|other| *other == Some(tid));
        group.tids[place.ok_or(Error::NotInGroup)?] = None;
        if group.frozen {
            (group.frozen, group.dead) = (false, true);
            for waiting in group.barrier.take().map_or_else(Vec::new, |(_, waiting)| waiting) {
                self.released.insert(waiting, Error::NoGroup.code());
            }
        }
        if group.tids.iter().all(Option::is_none) {
            self.groups.remove(name);
        }
        Ok(0)
    }

    fn wait(&mut self, tid: Tid, name: &'static str, wanted: i32, barrier: bool) -> Outcome {
        let Some(group) = self.groups.get_mut(name) else { return Some(Error::NoGroup.code()) };
        if barrier && group.dead {
            return Some(Error::NoGroup.code());
        }
        if !barrier && group.frozen {
            return Some(Error::DupGroup.code());
        }
        if !group.tids.contains(&Some(tid)) {
            return Some(Error::NotInGroup.code());
        }
        let size = group.tids.iter().flatten().count() as i32;
        let wanted = if wanted == -1 { size } else { wanted };
        let count = if barrier { &mut group.barrier } else { &mut group.static_ };
        let count = count.get_or_insert((wanted, Vec::new()));
        if count.0 != wanted {
            return Some(Error::Mismatch.code());
        }
        let reached = count.1.len() as i32 + 1;
        if reached > wanted {
            return Some(Error::Mismatch.code());
        }
        count.1.push(tid);
        if reached < wanted {
            return None;
        }
        let result = if barrier { 0 } else { wanted };
        for &waiting in count.1.iter().filter(|&&waiting| waiting != tid) {
            self.released.insert(waiting, result);
        }
        if barrier {
            group.barrier = None;
        } else {
            group.frozen = true;
        }
        Some(result)
    }
}

/// A window's slots.
struct Window(Vec<[AtomicU64; 2]>);

impl Window {
    fn slot(&self, slot: u16) -> Slot<'_, AtomicU64> {
        let [version, barrier] = &self.0[usize::from(slot)];
        Slot { version, barrier }
    }
}

/// Nagaya's side: the groups, windows of two hosts, and tasks that behave like the library.
struct Ours {
    groups: Groups,
    windows: BTreeMap<u16, Window>,
    /// Counts of closed slots that were not applied yet.
    taken: Vec<(u16, Closing, Count)>,
    /// Waiting tasks: at a slot, or for an answer.
    waiting: BTreeMap<Tid, Option<(u16, Ticket)>>,
    ended: BTreeSet<Tid>,
    released: BTreeMap<Tid, i32>,
}

impl Ours {
    fn new() -> Ours {
        let window = || Window((0..SLOTS).map(|_| Default::default()).collect());
        Ours {
            groups: Groups::default(),
            windows: HOSTS.into_iter().map(|host| (host, window())).collect(),
            taken: Vec::new(),
            waiting: BTreeMap::new(),
            ended: BTreeSet::new(),
            released: BTreeMap::new(),
        }
    }

    fn call(&mut self, tid: Tid, name: &'static str, call: Call) -> Outcome {
        let owned = name.to_owned();
        match call {
            Call::Join => self.ask(tid, GroupRequest::Join(owned)),
            Call::Leave => self.ask(tid, GroupRequest::Leave(owned)),
            Call::Freeze(size) => self.ask(tid, GroupRequest::Freeze(owned, size)),
            Call::Size => Some(match self.groups.info(name) {
                Ok(info) => info.members.iter().filter(|&&tid| tid != 0).count() as i32,
                Err(error) => error.code(),
            }),
            Call::Barrier(wanted) => self.barrier(tid, name, wanted),
            Call::End => {
                self.waiting.remove(&tid);
                self.ended.insert(tid);
                let effects = self.groups.ended(tid);
                self.act(effects);
                Some(0)
            }
        }
    }

    /// Applies the counts of closed slots.
    fn settle(&mut self) {
        while !self.taken.is_empty() {
            let (host, closing, count) = self.taken.remove(0);
            let effects = self.groups.counted(host, &closing, count);
            self.act(effects);
        }
    }

    fn barrier(&mut self, tid: Tid, name: &str, wanted: i32) -> Outcome {
        let ask = GroupRequest::Barrier(name.to_owned(), wanted);
        let Ok(info) = self.groups.info(name) else { return self.ask(tid, ask) };
        let size = info.members.iter().filter(|&&member| member != 0).count();
        let count = if wanted == -1 { size as i32 } else { wanted };
        let (Some(index), true) = (info.slot, info.members.contains(&tid.0)) else {
            return self.ask(tid, ask);
        };
        if !(1..=i32::from(WANTED_MAX)).contains(&count) {
            return self.ask(tid, ask);
        }
        let slot = self.windows[&tid.host()].slot(index);
        match slot.arrive(info.version, count as u16) {
            Arrival::Last { .. } => {
                self.look();
                Some(0)
            }
            Arrival::Waits(ticket) => {
                self.waiting.insert(tid, Some((index, ticket)));
                None
            }
            Arrival::Mismatch => Some(Error::Mismatch.code()),
            Arrival::Closed => self.ask(tid, ask),
            Arrival::Dead => Some(Error::NoGroup.code()),
            Arrival::Changed => panic!("the version is the newest"),
        }
    }

    fn ask(&mut self, tid: Tid, request: GroupRequest) -> Outcome {
        let barrier = matches!(request, GroupRequest::Barrier(..));
        self.waiting.insert(tid, None);
        let effects = self.groups.request(Asker { tid, id: u32::from(barrier) }, &request);
        self.act(effects);
        self.released.remove(&tid)
    }

    fn act(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Answer(asker, reply) => {
                    if self.ended.contains(&asker.tid) {
                        continue; // nobody hears it
                    }
                    let was = self.waiting.remove(&asker.tid);
                    assert_eq!(was, Some(None), "{asker:?} was answered and does not wait");
                    let result = match reply {
                        Ok(Answer::Number(_)) if asker.id == 1 => 0,
                        Ok(Answer::Number(number)) => number,
                        Ok(_) => 0,
                        Err(code) => code,
                    };
                    self.released.insert(asker.tid, result);
                }
                Effect::Slot(index, change) => self.change(index, change),
            }
        }
        self.look();
    }

    fn change(&mut self, index: u16, change: SlotChange) {
        for (&host, window) in &self.windows {
            if change.host().is_some_and(|only| only != host) {
                continue;
            }
            let slot = window.slot(index);
            match &change {
                SlotChange::Clear(version) => slot.clear(*version),
                SlotChange::Changed(version) => slot.changed(*version),
                SlotChange::Open(_) => slot.open(),
                SlotChange::Close(_, closing) => {
                    self.taken.push((host, closing.clone(), slot.close()));
                }
                SlotChange::Complete => slot.complete(),
                SlotChange::Kill => slot.kill(),
                SlotChange::Wake => {}
            }
        }
    }

    /// Lets the waiters at slots poll.
    fn look(&mut self) {
        let windows = &self.windows;
        let released = &mut self.released;
        self.waiting.retain(|tid, at| {
            let Some((index, ticket)) = at else { return true };
            match windows[&tid.host()].slot(*index).look(*ticket) {
                Found::Waiting => return true,
                Found::Done => released.insert(*tid, 0),
                Found::Dead => released.insert(*tid, Error::NoGroup.code()),
            };
            false
        });
    }
}

/// Runs the calls on both sides. Returns the first difference.
fn difference(calls: &[(u32, usize, Call)]) -> Option<String> {
    let (mut stock, mut ours) = (Stock::default(), Ours::new());
    let mut waits = BTreeSet::new();
    for (n, &(number, name, call)) in calls.iter().enumerate() {
        let (tid, name) = (task(number), NAMES[name]);
        let ends = matches!(call, Call::End);
        if ours.ended.contains(&tid) || waits.contains(&tid) && !ends {
            continue;
        }
        let wanted = stock.call(tid, name, call);
        let got = ours.call(tid, name, call);
        ours.settle();
        let got = got.or_else(|| ours.released.remove(&tid));
        // Results of ended tasks have no receiver.
        stock.released.retain(|tid, _| !ours.ended.contains(tid));
        if got != wanted || stock.released != ours.released {
            return Some(format!(
                "call {n}, {call:?} of {tid} in {name}: {got:?}, not {wanted:?}; released \
                 {:?}, not {:?}",
                ours.released, stock.released
            ));
        }
        if wanted.is_none() {
            waits.insert(tid);
        }
        waits.retain(|tid| !stock.released.contains_key(tid) && !ours.ended.contains(tid));
        stock.released.clear();
        ours.released.clear();
    }
    None
}

fn calls() -> impl Strategy<Value = Vec<(u32, usize, Call)>> {
    let count = prop_oneof![Just(-1), 1..4, Just(2), Just(0), Just(i32::MAX)];
    let size = prop_oneof![Just(-1), 1..4, Just(0)];
    let call = prop_oneof![
        6 => Just(Call::Join),
        3 => Just(Call::Leave),
        1 => Just(Call::Size),
        10 => count.prop_map(Call::Barrier),
        3 => size.prop_map(Call::Freeze),
        1 => Just(Call::End),
    ];
    // Tasks of the first host have even numbers, and are more frequent.
    let task = prop_oneof![3 => (0..4u32).prop_map(|n| 2 * n), 1 => 0..8u32];
    prop::collection::vec((task, 0..NAMES.len(), call), 1..60)
}

fn seed() -> u64 {
    match std::env::var("NAGAYA_SEED") {
        Ok(seed) => seed.parse().expect("NAGAYA_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).expect("now").as_nanos() as u64,
    }
}

#[test]
fn random_calls_have_stock_pvms_results() {
    let seed = seed();
    eprintln!("NAGAYA_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases: 4000, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    runner
        .run(&calls(), |calls| match difference(&calls) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(difference)),
        })
        .unwrap_or_else(|error| panic!("NAGAYA_SEED={seed}: {error}"));
}

/// Members 0, 2 and 4 on one host; 1 on another.
fn three_on_one_host() -> Ours {
    let mut ours = Ours::new();
    for n in [0, 2, 4] {
        ours.call(task(n), "one", Call::Join);
    }
    ours
}

#[test]
fn a_waiter_at_a_closed_slot_has_arrived() {
    let mut ours = three_on_one_host();
    assert_eq!(ours.call(task(0), "one", Call::Barrier(4)), None);
    assert_eq!(ours.call(task(1), "one", Call::Join), Some(3));
    // Before the slot's count is known, others arrive at the daemons.
    assert_eq!(ours.call(task(1), "one", Call::Barrier(-1)), None);
    assert_eq!(ours.call(task(2), "one", Call::Barrier(4)), None);
    ours.settle();
    assert_eq!(ours.released, BTreeMap::new());
    assert_eq!(ours.call(task(4), "one", Call::Barrier(4)), Some(0));
    let released = [0, 1, 2].map(|n| (task(n), 0));
    assert_eq!(ours.released, BTreeMap::from(released));
}

#[test]
fn counts_that_differ_are_refused_when_they_meet() {
    let mut ours = three_on_one_host();
    assert_eq!(ours.call(task(0), "one", Call::Barrier(3)), None);
    ours.call(task(1), "one", Call::Join);
    assert_eq!(ours.call(task(1), "one", Call::Barrier(-1)), None);
    ours.settle();
    assert_eq!(ours.released, BTreeMap::from([(task(1), Error::Mismatch.code())]));
}

#[test]
fn a_host_that_is_lost_takes_its_members_and_its_count_along() {
    let mut ours = three_on_one_host();
    assert_eq!(ours.call(task(0), "one", Call::Barrier(3)), None);
    ours.call(task(1), "one", Call::Join);
    assert_eq!(ours.call(task(1), "one", Call::Barrier(1)), None);
    ours.taken.clear();
    ours.waiting.remove(&task(0));
    let effects = ours.groups.host_left(HOSTS[0]);
    ours.act(effects);
    assert_eq!(ours.released, BTreeMap::from([(task(1), 0)]));
    assert_eq!(ours.call(task(1), "one", Call::Size), Some(1));
    // All members are on one host again.
    assert_eq!(ours.call(task(1), "one", Call::Barrier(1)), Some(0));
    assert!(ours.taken.is_empty());
}

#[test]
fn a_host_that_is_lost_counts_no_longer() {
    let mut ours = three_on_one_host();
    ours.call(task(1), "one", Call::Join);
    let effects = ours.groups.host_left(HOSTS[0]);
    ours.act(effects);
    assert_eq!(ours.call(task(1), "one", Call::Barrier(1)), Some(0));
    assert!(ours.taken.is_empty());
}

#[test]
fn a_late_count_of_an_ended_group_is_ignored() {
    let mut ours = three_on_one_host();
    assert_eq!(ours.call(task(0), "one", Call::Barrier(4)), None);
    ours.call(task(1), "one", Call::Join);
    for n in [0, 2, 4, 1] {
        ours.call(task(n), "one", Call::End);
    }
    assert_eq!(ours.call(task(6), "one", Call::Join), Some(0));
    assert_eq!(ours.call(task(6), "one", Call::Barrier(2)), None);
    ours.settle();
    assert_eq!(ours.call(task(8), "one", Call::Join), Some(1));
    assert_eq!(ours.call(task(8), "one", Call::Barrier(2)), Some(0));
}

#[test]
fn a_new_host_knows_the_versions() {
    let ours = three_on_one_host();
    let info = ours.groups.info("one").expect("it is there");
    let index = info.slot.expect("there are enough");
    assert_eq!(ours.groups.slots(), [(index, SlotChange::Clear(info.version))]);
}

#[test]
fn a_group_beyond_the_slots_is_counted_by_the_daemons() {
    let mut ours = Ours::new();
    let names: Vec<String> = (0..=SLOTS).map(|n| format!("group {n}")).collect();
    let ask = |tid: u32, request| (Asker { tid: task(tid), id: 2 }, request);
    for name in &names {
        for member in [0, 2] {
            let (asker, request) = ask(member, GroupRequest::Join(name.clone()));
            ours.groups.request(asker, &request);
        }
    }
    let last = names.last().expect("there are some");
    assert_eq!(ours.groups.info(last).expect("it is there").slot, None);
    let (asker, request) = ask(0, GroupRequest::Barrier(last.clone(), 2));
    assert_eq!(ours.groups.request(asker, &request), []);
    let (asker, request) = ask(2, GroupRequest::Barrier(last.clone(), 2));
    let effects = ours.groups.request(asker, &request);
    let answers = effects.iter().filter(|effect| matches!(effect, Effect::Answer(..)));
    assert_eq!((effects.len(), answers.count()), (2, 2));
    // A group that ends frees its slot for the next one.
    ours.groups.request(
        ask(0, GroupRequest::Leave(names[5].clone())).0,
        &GroupRequest::Leave(names[5].clone()),
    );
    ours.groups.request(
        ask(2, GroupRequest::Leave(names[5].clone())).0,
        &GroupRequest::Leave(names[5].clone()),
    );
    ours.groups
        .request(ask(0, GroupRequest::Join("new".into())).0, &GroupRequest::Join("new".into()));
    assert_eq!(ours.groups.info("new").expect("it is there").slot, Some(5));
}
