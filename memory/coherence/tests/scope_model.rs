//! All orders of tasks and messages, for small programs. Every read returns the value that scope
//! consistency guarantees, no write is lost, and no task waits forever.
//!
//! Each program is explored without rides, and with every allowed page on every grant. So every
//! prediction is one of the explored orders.

mod machine;

use std::time::Instant;

use coherence::message::Page;
use coherence::random::{Operation, Program};
use coherence::ride::Policy;
use coherence::scope::homes::Homes;
use machine::{Machine, Next};
use stateright::{Checker, Model, Property};

struct Explored {
    program: Program,
    slow_faults: bool,
    rides: bool,
}

/// A step, and the pages that its grants carry.
type Step = (Next, Vec<Page>);

impl Model for Explored {
    type State = Machine;
    type Action = Step;

    fn init_states(&self) -> Vec<Machine> {
        let mut machine = Machine::new(&self.program);
        machine.slow_faults = self.slow_faults;
        vec![machine]
    }

    fn actions(&self, state: &Machine, actions: &mut Vec<Step>) {
        let pages = if self.rides { self.program.pages } else { 0 };
        if state.wrong.is_none() {
            for next in state.next(&self.program) {
                for chosen in 0..1u64 << pages {
                    let chosen = (0..pages).filter(|page| chosen >> page & 1 == 1).collect();
                    actions.push((next, chosen));
                }
            }
        }
    }

    fn next_state(&self, state: &Machine, (next, rides): Step) -> Option<Machine> {
        let mut state = state.clone();
        state.go_with(&self.program, next, rides);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is read is what was promised", |_, state: &Machine| {
                state.wrong.is_none()
            }),
            Property::always("nobody waits for ever", |model: &Self, state: &Machine| {
                !state.next(&model.program).is_empty() || state.is_done(&model.program)
            }),
            Property::sometimes("it ends", |model: &Self, state: &Machine| {
                state.is_done(&model.program)
            }),
        ]
    }
}

fn explore(nodes: Vec<Vec<Vec<Operation>>>, pages: u64) {
    explore_all(nodes, pages, false);
}

/// Explores the program with the pages' homes at each node in turn, and with each option.
fn explore_all(nodes: Vec<Vec<Vec<Operation>>>, pages: u64, slow_faults: bool) {
    let homes = [Homes::At(0), Homes::At(1), Homes::Blocks { pages: 1, first: 1 }];
    for homes in &homes[..if pages == 1 { 2 } else { 3 }] {
        for (migrate, alone) in [(true, true), (false, true), (true, false)] {
            let nodes = nodes.clone();
            explore_one(program(nodes, pages, *homes, migrate, alone), slow_faults);
        }
    }
}

/// Explores the program with all homes at one node, and with all options.
fn explore_once(nodes: Vec<Vec<Vec<Operation>>>, pages: u64, homes: Homes) {
    explore_one(program(nodes, pages, homes, true, true), false);
}

fn program(
    nodes: Vec<Vec<Vec<Operation>>>,
    pages: u64,
    homes: Homes,
    migrate: bool,
    alone: bool,
) -> Program {
    Program { nodes, pages, homes, migrate, alone, rides: Policy::Normal }
}

/// Explores a program without rides, and with all possible rides.
fn explore_one(program: Program, slow_faults: bool) {
    for rides in [false, true] {
        explore_with(program.clone(), slow_faults, rides);
    }
}

fn explore_with(program: Program, slow_faults: bool, rides: bool) {
    let began = Instant::now();
    let Program { homes, migrate, alone, .. } = program;
    let model = Explored { program, slow_faults, rides };
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

/// Every task increments under a lock.
#[test]
fn a_counter_under_a_lock_counts_all() {
    let task = |nodes| {
        vec![
            Operation::Lock(0),
            Operation::Add(0, 0),
            Operation::Unlock(0),
            Operation::Barrier,
            Operation::Expect(0, 0, nodes),
        ]
    };
    explore(vec![vec![task(2)]; 2], 1);
    explore(vec![vec![task(3)]; 3], 1);
}

/// Two tasks of one node and one task of another.
#[test]
fn tasks_of_a_node_share_lock_and_page() {
    let task = || {
        vec![
            Operation::Lock(1),
            Operation::Add(0, 0),
            Operation::Unlock(1),
            Operation::Barrier,
            Operation::Expect(0, 0, 3),
        ]
    };
    explore(vec![vec![task(), task()], vec![task()]], 1);
}

/// Every task writes a byte of one page, and reads the others' bytes after the barrier. Two rounds
/// use twins, homes and dropped copies again.
#[test]
fn bytes_of_one_page_written_at_once_are_not_lost() {
    let task = |me: usize| {
        let mut script = Vec::new();
        for round in [1, 2] {
            script.push(Operation::Write(0, me, round * 10 + me as u8));
            script.push(Operation::Barrier);
            script.push(Operation::Expect(0, 1 - me, round * 10 + 1 - me as u8));
            script.push(Operation::Barrier);
        }
        script
    };
    explore(vec![vec![task(0)], vec![task(1)]], 1);
    let three = |me: usize| {
        let mut script = vec![Operation::Write(0, me, me as u8 + 1), Operation::Barrier];
        script.extend((0..3).map(|at| Operation::Expect(0, at, at as u8 + 1)));
        script
    };
    explore((0..3).map(|me| vec![three(me)]).collect(), 1);
}

/// Writes outside of a lock and under it go to the same page.
#[test]
fn writes_inside_and_outside_of_a_lock_meet_on_a_page() {
    let task = |me: usize| {
        vec![
            Operation::Write(0, me, 7),
            Operation::Lock(0),
            Operation::Add(0, 2),
            Operation::Unlock(0),
            Operation::Write(0, me, 8 + me as u8),
            Operation::Barrier,
            Operation::Expect(0, 0, 8),
            Operation::Expect(0, 1, 9),
            Operation::Expect(0, 2, 2),
        ]
    };
    explore(vec![vec![task(0)], vec![task(1)]], 1);
}

/// Two nested locks.
#[test]
fn a_write_in_two_scopes_is_seen_in_either() {
    let first = vec![
        Operation::Lock(0),
        Operation::Lock(1),
        Operation::Add(0, 0),
        Operation::Unlock(1),
        Operation::Unlock(0),
        Operation::Barrier,
        Operation::Expect(0, 0, 2),
    ];
    let second = vec![
        Operation::Lock(1),
        Operation::Add(0, 0),
        Operation::Unlock(1),
        Operation::Barrier,
        Operation::Lock(0),
        Operation::Expect(0, 0, 2),
        Operation::Unlock(0),
    ];
    explore(vec![vec![first], vec![second]], 1);
}

/// A lock passes between nodes after a barrier. The manager's older records have no effect.
#[test]
fn locks_go_on_after_a_barrier() {
    let task = |me: usize| {
        vec![
            Operation::Lock(1),
            Operation::Add(0, 0),
            Operation::Unlock(1),
            Operation::Write(1, me, 5),
            Operation::Barrier,
            Operation::Expect(1, 1 - me, 5),
            Operation::Lock(1),
            Operation::Add(0, 0),
            Operation::Unlock(1),
            Operation::Barrier,
            Operation::Expect(0, 0, 4),
        ]
    };
    explore(vec![vec![task(0)], vec![task(1)]], 2);
}

/// The writer changes at every barrier, so the page's home moves and moves back.
#[test]
fn a_page_follows_its_writer() {
    let task = |me: usize| {
        let mut script = Vec::new();
        for round in 0..4 {
            if round % 2 == me {
                script.push(Operation::Add(0, 0));
            }
            script.push(Operation::Barrier);
        }
        script.push(Operation::Expect(0, 0, 4));
        script
    };
    explore(vec![vec![task(0)], vec![task(1)]], 1);
}

/// Two nodes write in turn, and the third reads in between.
#[test]
#[ignore = "half a minute: make soak"]
fn a_page_follows_its_writers_and_a_third_reads() {
    let task = |me: usize| {
        let mut script = Vec::new();
        for round in 0..3 {
            match round == me {
                true => script.push(Operation::Add(0, 0)),
                false if me == 2 => script.push(Operation::Expect(1, 0, 0)),
                false => {}
            }
            script.push(Operation::Barrier);
            if me == 2 {
                script.push(Operation::Expect(0, 0, round as u8 + 1));
            }
            script.push(Operation::Barrier);
        }
        script.push(Operation::Expect(0, 0, 3));
        script
    };
    explore((0..3).map(|me| vec![task(me)]).collect(), 2);
}

/// A page's home moves at the barrier. The old home changes the page before the new home passes the
/// barrier. (Found by a random walk.)
#[test]
fn a_node_that_lost_a_page_may_write_it_at_once() {
    let first = vec![
        Operation::Barrier,
        Operation::Lock(0),
        Operation::Write(0, 0, 2),
        Operation::Unlock(0),
        Operation::Barrier,
        Operation::Expect(0, 1, 1),
    ];
    let second = vec![
        Operation::Write(0, 1, 1),
        Operation::Barrier,
        Operation::Barrier,
        Operation::Expect(0, 0, 2),
    ];
    explore(vec![vec![first.clone()], vec![second.clone()]], 1);
    let third = vec![
        Operation::Barrier,
        Operation::Expect(0, 1, 1),
        Operation::Barrier,
        Operation::Expect(0, 0, 2),
    ];
    explore(vec![vec![first], vec![second], vec![third]], 1);
}

/// A second thread of a node accesses pages while the first is at the barrier, like the helper
/// threads of programs.
#[test]
fn tasks_that_come_late_to_a_barrier_find_their_pages() {
    let early = vec![
        Operation::Write(0, 0, 1),
        Operation::Barrier,
        Operation::Expect(0, 1, 2),
        Operation::Expect(0, 2, 3),
    ];
    let late = vec![
        Operation::Write(0, 1, 2),
        Operation::Expect(0, 1, 2),
        Operation::Barrier,
        Operation::Expect(0, 0, 1),
    ];
    let other = vec![
        Operation::Write(0, 2, 3),
        Operation::Barrier,
        Operation::Expect(0, 0, 1),
        Operation::Expect(0, 1, 2),
    ];
    explore(vec![vec![early, late], vec![other]], 1);
}

/// A task that waits for a condition variable sees the writes before its set, also through two
/// variables.
#[test]
fn condition_variables_carry_written_data() {
    let first = vec![
        Operation::Write(0, 0, 1),
        Operation::Set(0),
        Operation::Barrier,
        Operation::Expect(0, 1, 2),
    ];
    let second = vec![
        Operation::Wait(0),
        Operation::Expect(0, 0, 1),
        Operation::Write(0, 1, 2),
        Operation::Set(1),
        Operation::Barrier,
    ];
    let third = vec![
        Operation::Wait(1),
        Operation::Expect(0, 0, 1),
        Operation::Expect(0, 1, 2),
        Operation::Barrier,
    ];
    explore(vec![vec![first.clone()], vec![second[..5].to_vec()]], 1);
    explore(vec![vec![first], vec![second], vec![third]], 1);
    let again = vec![
        Operation::Write(0, 0, 1),
        Operation::Set(0),
        Operation::Meet,
        Operation::Reset(0),
        Operation::Meet,
        Operation::Write(0, 0, 2),
        Operation::Set(0),
    ];
    let waits = vec![
        Operation::Wait(0),
        Operation::Expect(0, 0, 1),
        Operation::Meet,
        Operation::Meet,
        Operation::Wait(0),
        Operation::Expect(0, 0, 2),
    ];
    explore(vec![vec![again], vec![waits]], 1);
}

/// Tasks of a node fault at once. The node learns of the second fault when the page has arrived, or
/// was dropped again.
#[test]
fn faults_that_are_under_way_find_what_has_changed() {
    let writes =
        |at| vec![Operation::Write(0, at, 1), Operation::Barrier, Operation::Expect(0, 2, 3)];
    let other = vec![
        Operation::Write(0, 2, 3),
        Operation::Barrier,
        Operation::Expect(0, 0, 1),
        Operation::Expect(0, 1, 1),
    ];
    explore_all(vec![vec![writes(0), writes(1)], vec![other]], 1, true);
    let counts = || vec![Operation::Lock(0), Operation::Add(0, 0), Operation::Unlock(0)];
    let reads = vec![Operation::Expect(0, 1, 0), Operation::Expect(0, 1, 0)];
    explore_all(vec![vec![counts(), reads], vec![counts()]], 1, true);
}

/// Four nodes increment under a lock.
#[test]
fn four_nodes_count_under_a_lock() {
    explore(vec![vec![vec![Operation::Lock(0), Operation::Add(0, 0), Operation::Unlock(0)]]; 4], 1);
}

/// Four nodes write one byte each of a page, and one node reads them all.
fn four_writers() -> Vec<Vec<Vec<Operation>>> {
    let task = |me: usize| {
        let mut script = vec![Operation::Write(0, me, me as u8 + 1), Operation::Barrier];
        if me == 1 {
            script.extend((0..4).map(|at| Operation::Expect(0, at, at as u8 + 1)));
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

/// Two of four nodes write one page each, and the other two read both. The pages' homes move.
fn two_readers() -> Vec<Vec<Vec<Operation>>> {
    let script = |me: usize| match me {
        0 | 1 => vec![Operation::Write(me as u64, 0, 7), Operation::Barrier, Operation::Barrier],
        _ => vec![
            Operation::Barrier,
            Operation::Expect(0, 0, 7),
            Operation::Expect(1, 0, 7),
            Operation::Barrier,
        ],
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

/// A page passes from writer to writer, with one condition variable for each step.
#[test]
fn four_nodes_pass_a_page_on() {
    let task = |me: u32| {
        let mut script = Vec::new();
        if me > 0 {
            script.extend([Operation::Wait(me), Operation::Expect(0, me as usize - 1, me as u8)]);
        }
        script.extend([
            Operation::Write(0, me as usize, me as u8 + 1),
            Operation::Set(me + 1),
            Operation::Barrier,
        ]);
        if me == 0 {
            script.push(Operation::Expect(0, 3, 4));
        }
        script
    };
    explore((0..4).map(|me| vec![task(me)]).collect(), 1);
}

/// Four nodes increment under two locks, which some of them nest, and meet.
#[test]
#[ignore = "minutes: make soak"]
fn four_nodes_and_two_locks() {
    let outer = |page| {
        let inner = [Operation::Lock(1), Operation::Add(page, 0), Operation::Unlock(1)];
        [
            &[Operation::Lock(0), Operation::Add(0, 1)],
            &inner[..],
            &[Operation::Unlock(0), Operation::Barrier],
        ]
        .concat()
    };
    let alone = |page| {
        vec![Operation::Lock(1), Operation::Add(page, 0), Operation::Unlock(1), Operation::Barrier]
    };
    let mut nodes = vec![vec![outer(1)], vec![outer(1)], vec![alone(1)], vec![alone(1)]];
    nodes[3][0].extend([Operation::Expect(0, 1, 2), Operation::Expect(1, 0, 4)]);
    explore_once(nodes, 2, Homes::At(1));
}

/// Two pages of one home are read and written after barriers. One page may ride on the other's
/// grant, or both on the barrier's grant.
#[test]
fn pages_ride_to_their_reader_and_back_home() {
    let writes = |value| {
        [Operation::Write(0, 0, value), Operation::Write(1, 0, value + 1), Operation::Barrier]
    };
    let reads = |value| {
        [Operation::Expect(0, 0, value), Operation::Expect(1, 0, value + 1), Operation::Barrier]
    };
    let home = [&writes(1)[..], &[Operation::Barrier], &writes(3), &[Operation::Barrier]].concat();
    let reader = [&[Operation::Barrier][..], &reads(1), &[Operation::Barrier], &reads(3)].concat();
    explore(vec![vec![home.clone()], vec![reader]], 2);
    // Other nodes see the reader's write to a page that arrived as a ride.
    let mut mixed =
        vec![Operation::Barrier, Operation::Write(1, 1, 7), Operation::Barrier, Operation::Barrier];
    mixed.extend([Operation::Expect(1, 0, 4), Operation::Barrier]);
    let mut sees = home;
    sees.push(Operation::Expect(1, 1, 7));
    explore(vec![vec![sees], vec![mixed]], 2);
}

/// Two tasks of a node. One fetches a page whose grant carries another page. Meanwhile the other
/// task acquires a lock and learns that the second page was written under it.
#[test]
fn notices_during_a_ride_are_not_missed() {
    let fetches = [Operation::Expect(0, 0, 0)];
    let locks =
        vec![Operation::Lock(0), Operation::Add(1, 0), Operation::Unlock(0), Operation::Barrier];
    let other = vec![
        Operation::Lock(0),
        Operation::Add(1, 0),
        Operation::Unlock(0),
        Operation::Barrier,
        Operation::Expect(1, 0, 2),
    ];
    let first = [&fetches[..], &[Operation::Barrier]].concat();
    // Home, writer and reader are three nodes. With two, the messages would be ordered.
    let home = vec![Operation::Barrier];
    explore_once(vec![vec![first, locks], vec![other], vec![home]], 2, Homes::At(2));
}

/// A page is incremented under one lock, and written without it. A page that rides on the lock's
/// grant lacks this node's own writes.
#[test]
fn a_ride_does_not_overwrite_a_nodes_own_writes() {
    let task = |me: usize| {
        vec![
            Operation::Write(0, me, 5),
            Operation::Lock(0),
            Operation::Add(0, 2),
            Operation::Add(1, 2),
            Operation::Unlock(0),
            Operation::Lock(1),
            Operation::Expect(0, me, 5),
            Operation::Add(1, 3),
            Operation::Unlock(1),
            Operation::Barrier,
            Operation::Expect(0, 2, 2),
            Operation::Expect(1, 3, 2),
        ]
    };
    explore(vec![vec![task(0)], vec![task(1)]], 2);
}

/// Three nodes. One grants a lock before it passes a barrier that the others have passed. The home
/// of a ride on that grant would assume that no node has a copy. (Found by a random walk.)
#[test]
fn a_lock_s_rides_do_not_cross_a_barrier() {
    let home = |me: usize| match me {
        1 => vec![
            Operation::Lock(2),
            Operation::Expect(0, 0, 1),
            Operation::Write(0, 1, 2),
            Operation::Unlock(2),
        ],
        _ => vec![],
    };
    let task = |me: usize| {
        let mut script = if me == 2 { vec![Operation::Write(0, 0, 1)] } else { vec![] };
        script.push(Operation::Barrier);
        script.extend(home(me));
        script.push(Operation::Barrier);
        script.push(Operation::Expect(0, 1, 2));
        script
    };
    explore_once((0..3).map(|me| vec![task(me)]).collect(), 1, Homes::At(2));
    explore_once((0..3).map(|me| vec![task(me)]).collect(), 2, Homes::At(2));
}

/// A page's home moves at the barrier whose grant carries the page.
#[test]
fn a_page_rides_while_its_home_moves() {
    let task = |me: usize| {
        let mut script = Vec::new();
        for round in 0..2u8 {
            if me == 1 {
                script.push(Operation::Add(0, 0));
            }
            script.push(Operation::Barrier);
            if me == 2 {
                script.push(Operation::Expect(0, 0, round + 1));
            }
            script.push(Operation::Barrier);
        }
        script
    };
    for home in 0..3 {
        explore_once((0..3).map(|me| vec![task(me)]).collect(), 1, Homes::At(home));
    }
}
