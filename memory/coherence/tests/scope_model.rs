//! Every order in which tasks go on and messages arrive, for small stories: all that tasks
//! read is what scope consistency promises, no write is lost, and nobody waits for ever.
//!
//! Each is explored without rides, and with any page that may riding on any grant: whatever a
//! predictor says is one of these orders.

mod machine;

use std::time::Instant;

use coherence::message::Page;
use coherence::ride::Policy;
use coherence::scope::homes::Homes;
use coherence::story::{Do, Story};
use machine::{Machine, Next};
use stateright::{Checker, Model, Property};

struct Explored {
    story: Story,
    slow_faults: bool,
    rides: bool,
}

/// A step, and the pages that go along with what it grants.
type Step = (Next, Vec<Page>);

impl Model for Explored {
    type State = Machine;
    type Action = Step;

    fn init_states(&self) -> Vec<Machine> {
        let mut machine = Machine::new(&self.story);
        machine.slow_faults = self.slow_faults;
        vec![machine]
    }

    fn actions(&self, state: &Machine, actions: &mut Vec<Step>) {
        let pages = if self.rides { self.story.pages } else { 0 };
        if state.wrong.is_none() {
            for next in state.next(&self.story) {
                for chosen in 0..1u64 << pages {
                    let chosen = (0..pages).filter(|page| chosen >> page & 1 == 1).collect();
                    actions.push((next, chosen));
                }
            }
        }
    }

    fn next_state(&self, state: &Machine, (next, rides): Step) -> Option<Machine> {
        let mut state = state.clone();
        state.go_with(&self.story, next, rides);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is read is what was promised", |_, state: &Machine| {
                state.wrong.is_none()
            }),
            Property::always("nobody waits for ever", |model: &Self, state: &Machine| {
                !state.next(&model.story).is_empty() || state.is_done(&model.story)
            }),
            Property::sometimes("it ends", |model: &Self, state: &Machine| {
                state.is_done(&model.story)
            }),
        ]
    }
}

fn explore(nodes: Vec<Vec<Vec<Do>>>, pages: u64) {
    explore_all(nodes, pages, false);
}

/// Explores the story with all pages at each node, in turns, and with each of the options.
fn explore_all(nodes: Vec<Vec<Vec<Do>>>, pages: u64, slow_faults: bool) {
    let homes = [Homes::At(0), Homes::At(1), Homes::Blocks { pages: 1, first: 1 }];
    for homes in &homes[..if pages == 1 { 2 } else { 3 }] {
        for (migrate, alone) in [(true, true), (false, true), (true, false)] {
            let nodes = nodes.clone();
            explore_one(story(nodes, pages, *homes, migrate, alone), slow_faults);
        }
    }
}

/// Explores it with all pages at home there, and all options on.
fn explore_once(nodes: Vec<Vec<Vec<Do>>>, pages: u64, homes: Homes) {
    explore_one(story(nodes, pages, homes, true, true), false);
}

fn story(nodes: Vec<Vec<Vec<Do>>>, pages: u64, homes: Homes, migrate: bool, alone: bool) -> Story {
    Story { nodes, pages, homes, migrate, alone, rides: Policy::Normal }
}

/// Explores a story, without rides and with all that may be.
fn explore_one(story: Story, slow_faults: bool) {
    for rides in [false, true] {
        explore_with(story.clone(), slow_faults, rides);
    }
}

fn explore_with(story: Story, slow_faults: bool, rides: bool) {
    let began = Instant::now();
    let Story { homes, migrate, alone, .. } = story;
    let model = Explored { story, slow_faults, rides };
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!(
        "{homes:?}, migrate {migrate}, alone {alone}, rides {rides}: {} states, {:.1} s",
        checker.unique_state_count(),
        began.elapsed().as_secs_f64()
    );
    for (name, path) in checker.discoveries() {
        if name != "it ends" {
            let last = path.last_state().clone();
            let steps = path.into_actions();
            let wrong = &last.wrong;
            panic!("{name}: {homes:?} {migrate} {alone} {rides} {wrong:?}\n{steps:#?}\n{last:#?}");
        }
    }
    checker.assert_any_discovery("it ends");
}

/// Everybody counts under a lock.
#[test]
fn a_counter_under_a_lock_counts_all() {
    let task = |nodes| {
        vec![Do::Lock(0), Do::Add(0, 0), Do::Unlock(0), Do::Barrier, Do::Expect(0, 0, nodes)]
    };
    explore(vec![vec![task(2)]; 2], 1);
    explore(vec![vec![task(3)]; 3], 1);
}

/// Two tasks of a node, and one of another.
#[test]
fn tasks_of_a_node_share_lock_and_page() {
    let task = || vec![Do::Lock(1), Do::Add(0, 0), Do::Unlock(1), Do::Barrier, Do::Expect(0, 0, 3)];
    explore(vec![vec![task(), task()], vec![task()]], 1);
}

/// Everybody writes a byte of one page, and reads the others' after the barrier; twice, so that
/// twins, homes and what was dropped are used again.
#[test]
fn bytes_of_one_page_written_at_once_are_not_lost() {
    let task = |me: usize| {
        let mut script = Vec::new();
        for round in [1, 2] {
            script.push(Do::Write(0, me, round * 10 + me as u8));
            script.push(Do::Barrier);
            script.push(Do::Expect(0, 1 - me, round * 10 + 1 - me as u8));
            script.push(Do::Barrier);
        }
        script
    };
    explore(vec![vec![task(0)], vec![task(1)]], 1);
    let three = |me: usize| {
        let mut script = vec![Do::Write(0, me, me as u8 + 1), Do::Barrier];
        script.extend((0..3).map(|at| Do::Expect(0, at, at as u8 + 1)));
        script
    };
    explore((0..3).map(|me| vec![three(me)]).collect(), 1);
}

/// What is written outside of the lock meets what is written inside, on the same page.
#[test]
fn writes_inside_and_outside_of_a_lock_meet_on_a_page() {
    let task = |me: usize| {
        vec![
            Do::Write(0, me, 7),
            Do::Lock(0),
            Do::Add(0, 2),
            Do::Unlock(0),
            Do::Write(0, me, 8 + me as u8),
            Do::Barrier,
            Do::Expect(0, 0, 8),
            Do::Expect(0, 1, 9),
            Do::Expect(0, 2, 2),
        ]
    };
    explore(vec![vec![task(0)], vec![task(1)]], 1);
}

/// Two locks, one inside the other.
#[test]
fn a_write_in_two_scopes_is_seen_in_either() {
    let first = vec![
        Do::Lock(0),
        Do::Lock(1),
        Do::Add(0, 0),
        Do::Unlock(1),
        Do::Unlock(0),
        Do::Barrier,
        Do::Expect(0, 0, 2),
    ];
    let second = vec![
        Do::Lock(1),
        Do::Add(0, 0),
        Do::Unlock(1),
        Do::Barrier,
        Do::Lock(0),
        Do::Expect(0, 0, 2),
        Do::Unlock(0),
    ];
    explore(vec![vec![first], vec![second]], 1);
}

/// A lock goes round after a barrier: what its manager remembers from before is of no harm.
#[test]
fn locks_go_on_after_a_barrier() {
    let task = |me: usize| {
        vec![
            Do::Lock(1),
            Do::Add(0, 0),
            Do::Unlock(1),
            Do::Write(1, me, 5),
            Do::Barrier,
            Do::Expect(1, 1 - me, 5),
            Do::Lock(1),
            Do::Add(0, 0),
            Do::Unlock(1),
            Do::Barrier,
            Do::Expect(0, 0, 4),
        ]
    };
    explore(vec![vec![task(0)], vec![task(1)]], 2);
}

/// Who writes changes at every barrier, so that the page's home moves and moves back.
#[test]
fn a_page_follows_its_writer() {
    let task = |me: usize| {
        let mut script = Vec::new();
        for round in 0..4 {
            if round % 2 == me {
                script.push(Do::Add(0, 0));
            }
            script.push(Do::Barrier);
        }
        script.push(Do::Expect(0, 0, 4));
        script
    };
    explore(vec![vec![task(0)], vec![task(1)]], 1);
}

/// Two write in turns, and the third reads in between.
#[test]
#[ignore = "half a minute: make soak"]
fn a_page_follows_its_writers_and_a_third_reads() {
    let task = |me: usize| {
        let mut script = Vec::new();
        for round in 0..3 {
            match round == me {
                true => script.push(Do::Add(0, 0)),
                false if me == 2 => script.push(Do::Expect(1, 0, 0)),
                false => {}
            }
            script.push(Do::Barrier);
            if me == 2 {
                script.push(Do::Expect(0, 0, round as u8 + 1));
            }
            script.push(Do::Barrier);
        }
        script.push(Do::Expect(0, 0, 3));
        script
    };
    explore((0..3).map(|me| vec![task(me)]).collect(), 2);
}

/// A page's home moves at the barrier, and its old home changes the page before the new one has
/// passed the barrier. (Found by a random walk.)
#[test]
fn a_node_that_lost_a_page_may_write_it_at_once() {
    let first = vec![
        Do::Barrier,
        Do::Lock(0),
        Do::Write(0, 0, 2),
        Do::Unlock(0),
        Do::Barrier,
        Do::Expect(0, 1, 1),
    ];
    let second = vec![Do::Write(0, 1, 1), Do::Barrier, Do::Barrier, Do::Expect(0, 0, 2)];
    explore(vec![vec![first.clone()], vec![second.clone()]], 1);
    let third = vec![Do::Barrier, Do::Expect(0, 1, 1), Do::Barrier, Do::Expect(0, 0, 2)];
    explore(vec![vec![first], vec![second], vec![third]], 1);
}

/// A second thread of a node touches pages while the first is at the barrier, as helper threads
/// of programs do.
#[test]
fn tasks_that_come_late_to_a_barrier_find_their_pages() {
    let early = vec![Do::Write(0, 0, 1), Do::Barrier, Do::Expect(0, 1, 2), Do::Expect(0, 2, 3)];
    let late = vec![Do::Write(0, 1, 2), Do::Expect(0, 1, 2), Do::Barrier, Do::Expect(0, 0, 1)];
    let other = vec![Do::Write(0, 2, 3), Do::Barrier, Do::Expect(0, 0, 1), Do::Expect(0, 1, 2)];
    explore(vec![vec![early, late], vec![other]], 1);
}

/// What was written before a condition variable was set, is seen by who waited; also along two
/// of them.
#[test]
fn condition_variables_carry_written_data() {
    let first = vec![Do::Write(0, 0, 1), Do::Set(0), Do::Barrier, Do::Expect(0, 1, 2)];
    let second =
        vec![Do::Wait(0), Do::Expect(0, 0, 1), Do::Write(0, 1, 2), Do::Set(1), Do::Barrier];
    let third = vec![Do::Wait(1), Do::Expect(0, 0, 1), Do::Expect(0, 1, 2), Do::Barrier];
    explore(vec![vec![first.clone()], vec![second[..5].to_vec()]], 1);
    explore(vec![vec![first], vec![second], vec![third]], 1);
    let again = vec![
        Do::Write(0, 0, 1),
        Do::Set(0),
        Do::Meet,
        Do::Reset(0),
        Do::Meet,
        Do::Write(0, 0, 2),
        Do::Set(0),
    ];
    let waits = vec![
        Do::Wait(0),
        Do::Expect(0, 0, 1),
        Do::Meet,
        Do::Meet,
        Do::Wait(0),
        Do::Expect(0, 0, 2),
    ];
    explore(vec![vec![again], vec![waits]], 1);
}

/// Tasks of a node fault at once: the second fault is known when the page is there already, or
/// dropped again.
#[test]
fn faults_that_are_under_way_find_what_has_changed() {
    let writes = |at| vec![Do::Write(0, at, 1), Do::Barrier, Do::Expect(0, 2, 3)];
    let other = vec![Do::Write(0, 2, 3), Do::Barrier, Do::Expect(0, 0, 1), Do::Expect(0, 1, 1)];
    explore_all(vec![vec![writes(0), writes(1)], vec![other]], 1, true);
    let counts = || vec![Do::Lock(0), Do::Add(0, 0), Do::Unlock(0)];
    let reads = vec![Do::Expect(0, 1, 0), Do::Expect(0, 1, 0)];
    explore_all(vec![vec![counts(), reads], vec![counts()]], 1, true);
}

/// Four nodes count under a lock.
#[test]
fn four_nodes_count_under_a_lock() {
    explore(vec![vec![vec![Do::Lock(0), Do::Add(0, 0), Do::Unlock(0)]]; 4], 1);
}

/// Four nodes write a byte of one page each, and one reads them all.
fn four_writers() -> Vec<Vec<Vec<Do>>> {
    let task = |me: usize| {
        let mut script = vec![Do::Write(0, me, me as u8 + 1), Do::Barrier];
        if me == 1 {
            script.extend((0..4).map(|at| Do::Expect(0, at, at as u8 + 1)));
        }
        script
    };
    (0..4).map(|me| vec![task(me)]).collect()
}

#[test]
fn four_nodes_write_bytes_of_one_page() {
    explore_once(four_writers(), 1, Homes::At(1));
}

#[test]
#[ignore = "minutes: make soak"]
fn four_nodes_write_bytes_of_one_page_in_all_ways() {
    explore(four_writers(), 1);
}

/// Two of four nodes write a page each, and the other two read both: the pages' homes move.
fn two_readers() -> Vec<Vec<Vec<Do>>> {
    let script = |me: usize| match me {
        0 | 1 => vec![Do::Write(me as u64, 0, 7), Do::Barrier, Do::Barrier],
        _ => vec![Do::Barrier, Do::Expect(0, 0, 7), Do::Expect(1, 0, 7), Do::Barrier],
    };
    (0..4).map(|me| vec![script(me)]).collect()
}

#[test]
fn four_nodes_and_two_pages_whose_homes_move() {
    explore_once(two_readers(), 2, Homes::Blocks { pages: 1, first: 2 });
}

#[test]
#[ignore = "minutes: make soak"]
fn four_nodes_and_two_pages_in_all_ways() {
    explore(two_readers(), 2);
}

/// A page goes from writer to writer, over a condition variable each.
#[test]
fn four_nodes_pass_a_page_on() {
    let task = |me: u32| {
        let mut script = Vec::new();
        if me > 0 {
            script.extend([Do::Wait(me), Do::Expect(0, me as usize - 1, me as u8)]);
        }
        script.extend([Do::Write(0, me as usize, me as u8 + 1), Do::Set(me + 1), Do::Barrier]);
        if me == 0 {
            script.push(Do::Expect(0, 3, 4));
        }
        script
    };
    explore((0..4).map(|me| vec![task(me)]).collect(), 1);
}

/// Four nodes count under two locks, one inside the other for some, and meet.
#[test]
#[ignore = "minutes: make soak"]
fn four_nodes_and_two_locks() {
    let outer = |page| {
        let inner = [Do::Lock(1), Do::Add(page, 0), Do::Unlock(1)];
        [&[Do::Lock(0), Do::Add(0, 1)], &inner[..], &[Do::Unlock(0), Do::Barrier]].concat()
    };
    let alone = |page| vec![Do::Lock(1), Do::Add(page, 0), Do::Unlock(1), Do::Barrier];
    let mut nodes = vec![vec![outer(1)], vec![outer(1)], vec![alone(1)], vec![alone(1)]];
    nodes[3][0].extend([Do::Expect(0, 1, 2), Do::Expect(1, 0, 4)]);
    explore_once(nodes, 2, Homes::At(1));
}

/// Two pages at one home, read and written after barriers: the page that was not asked for may
/// ride on the other's grant, or both on the barrier's.
#[test]
fn pages_ride_to_their_reader_and_back_home() {
    let writes = |value| [Do::Write(0, 0, value), Do::Write(1, 0, value + 1), Do::Barrier];
    let reads = |value| [Do::Expect(0, 0, value), Do::Expect(1, 0, value + 1), Do::Barrier];
    let home = [&writes(1)[..], &[Do::Barrier], &writes(3), &[Do::Barrier]].concat();
    let reader = [&[Do::Barrier][..], &reads(1), &[Do::Barrier], &reads(3)].concat();
    explore(vec![vec![home.clone()], vec![reader]], 2);
    // The reader writes to what came by a ride, and it is seen.
    let mut mixed = vec![Do::Barrier, Do::Write(1, 1, 7), Do::Barrier, Do::Barrier];
    mixed.extend([Do::Expect(1, 0, 4), Do::Barrier]);
    let mut sees = home;
    sees.push(Do::Expect(1, 1, 7));
    explore(vec![vec![sees], vec![mixed]], 2);
}

/// Two tasks of a node: while one fetches a page, on whose grant another rides, the other takes
/// a lock under which that one was written, and hears so.
#[test]
fn notices_during_a_ride_are_not_missed() {
    let fetches = [Do::Expect(0, 0, 0)];
    let locks = vec![Do::Lock(0), Do::Add(1, 0), Do::Unlock(0), Do::Barrier];
    let other = vec![Do::Lock(0), Do::Add(1, 0), Do::Unlock(0), Do::Barrier, Do::Expect(1, 0, 2)];
    let first = [&fetches[..], &[Do::Barrier]].concat();
    // Home, writer and reader are three: else one message would follow the other.
    let home = vec![Do::Barrier];
    explore_once(vec![vec![first, locks], vec![other], vec![home]], 2, Homes::At(2));
}

/// A page is counted under one lock, and written beside it: what this node wrote itself is not
/// in a page that rides on the lock's grant.
#[test]
fn a_ride_does_not_overwrite_a_nodes_own_writes() {
    let task = |me: usize| {
        vec![
            Do::Write(0, me, 5),
            Do::Lock(0),
            Do::Add(0, 2),
            Do::Add(1, 2),
            Do::Unlock(0),
            Do::Lock(1),
            Do::Expect(0, me, 5),
            Do::Add(1, 3),
            Do::Unlock(1),
            Do::Barrier,
            Do::Expect(0, 2, 2),
            Do::Expect(1, 3, 2),
        ]
    };
    explore(vec![vec![task(0)], vec![task(1)]], 2);
}

/// Three nodes, of which one grants a lock before it has passed the barrier that the others
/// have: what rides on that grant its home would believe to be nobody's. (Found by a random
/// walk.)
#[test]
fn a_lock_s_rides_do_not_cross_a_barrier() {
    let home = |me: usize| match me {
        1 => vec![Do::Lock(2), Do::Expect(0, 0, 1), Do::Write(0, 1, 2), Do::Unlock(2)],
        _ => vec![],
    };
    let task = |me: usize| {
        let mut script = if me == 2 { vec![Do::Write(0, 0, 1)] } else { vec![] };
        script.push(Do::Barrier);
        script.extend(home(me));
        script.push(Do::Barrier);
        script.push(Do::Expect(0, 1, 2));
        script
    };
    explore_once((0..3).map(|me| vec![task(me)]).collect(), 1, Homes::At(2));
    explore_once((0..3).map(|me| vec![task(me)]).collect(), 2, Homes::At(2));
}

/// A page's home moves at a barrier whose grant it rides on.
#[test]
fn a_page_rides_while_its_home_moves() {
    let task = |me: usize| {
        let mut script = Vec::new();
        for round in 0..2u8 {
            if me == 1 {
                script.push(Do::Add(0, 0));
            }
            script.push(Do::Barrier);
            if me == 2 {
                script.push(Do::Expect(0, 0, round + 1));
            }
            script.push(Do::Barrier);
        }
        script
    };
    for home in 0..3 {
        explore_once((0..3).map(|me| vec![task(me)]).collect(), 1, Homes::At(home));
    }
}
