//! All orders of tasks and messages, for small programs on two to four nodes. All nodes see one
//! memory, no task waits forever, and there is no livelock.

mod replicas;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use coherence::message::{NodeId, Page};
use coherence::ride::Policy;
use coherence::sequential::Options;
use replicas::{Machine, Next, Operation, Program};
use stateright::{Checker, Model, Property};

/// All orders of a program.
struct Explored {
    program: Program,
    /// True if requests name all possible pages to prefetch; otherwise they name none.
    prefetches: bool,
}

/// A step, and the pages that its requests prefetch.
type Step = (Next, Vec<Page>);

impl Explored {
    fn steps(&self, state: &Machine) -> Vec<Step> {
        let mut steps = Vec::new();
        if state.wrong.is_none() {
            for next in state.next(&self.program) {
                let asks = matches!(next, Next::Task(..) | Next::Fault(..));
                let pages =
                    if self.prefetches && asks { self.program.owners.len() as u64 } else { 0 };
                for chosen in 0..1u64 << pages {
                    let chosen = (0..pages).filter(|page| chosen >> page & 1 == 1).collect();
                    steps.push((next, chosen));
                }
            }
        }
        steps
    }

    fn after(&self, state: &Machine, (next, prefetches): Step) -> Machine {
        let mut state = state.clone();
        state.go(&self.program, next, prefetches);
        state
    }
}

impl Model for Explored {
    type State = Machine;
    type Action = Step;

    fn init_states(&self) -> Vec<Machine> {
        vec![Machine::new(&self.program)]
    }

    fn actions(&self, state: &Machine, actions: &mut Vec<Step>) {
        actions.extend(self.steps(state));
    }

    fn next_state(&self, state: &Machine, step: Step) -> Option<Machine> {
        Some(self.after(state, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("memory is one", |_, state: &Machine| state.wrong.is_none()),
            Property::always("nobody waits for ever", |model: &Self, state: &Machine| {
                !state.next(&model.program).is_empty() || state.is_done(&model.program)
            }),
            Property::sometimes("it ends", |model: &Self, state: &Machine| {
                state.is_done(&model.program)
            }),
        ]
    }
}

/// Two nodes with the simplest options.
const OPTIONS: Options = Options {
    nodes: 2,
    me: 0,
    pages_max: 4,
    copies_max: u64::MAX,
    rides: Policy::Normal,
    migratory: 1,
    rest: 0,
};

fn program(nodes: Vec<Vec<Vec<Operation>>>, owners: &[Option<NodeId>]) -> Program {
    let owners = owners.to_vec();
    let options = OPTIONS;
    let (slow_faults, hasty, lost, loaded, renewed) = (false, false, None, false, None);
    Program { nodes, owners, options, slow_faults, hasty, lost, loaded, renewed }
}

/// One task per node.
fn tasks<const NODES: usize>(scripts: [Vec<Operation>; NODES]) -> Vec<Vec<Vec<Operation>>> {
    scripts.map(|script| vec![script]).to_vec()
}

/// Explores the program in all orders, without and with prefetching.
fn explore(program: &Program) {
    for prefetches in [false, true] {
        if prefetches && program.owners.len() == 1 {
            continue;
        }
        let began = Instant::now();
        let model = Explored { program: program.clone(), prefetches };
        let checker = model.checker().threads(2).spawn_bfs().join();
        println!(
            "{} nodes, prefetches {prefetches}, slow {}, hasty {}: {} states, {:.1} s",
            program.nodes.len(),
            program.slow_faults,
            program.hasty,
            checker.unique_state_count(),
            began.elapsed().as_secs_f64()
        );
        for (name, path) in checker.discoveries() {
            if name != "it ends" {
                let last = path.last_state().clone();
                let steps = path.into_actions();
                let wrong = &last.wrong;
                panic!("{name}, prefetches {prefetches}: {wrong:?}\n{steps:#?}\n{last:#?}");
            }
        }
        checker.assert_any_discovery("it ends");
    }
}

/// Explores the program with prompt and slow faults, and with pages that leave before their use.
fn explore_all(program: Program) {
    for (slow_faults, hasty) in [(false, false), (true, false), (false, true)] {
        explore(&Program { slow_faults, hasty, ..program.clone() });
    }
    explore(&Program { loaded: true, ..program });
}

/// Checks that no order of steps returns to an earlier state, if resumed tasks use each page once.
/// Then all tasks reach their end after a finite number of steps, in every order. Returns the
/// values that tasks may have read.
fn ends_always(program: Program, prefetches: bool) -> BTreeSet<Vec<Vec<u8>>> {
    let model = Explored { program, prefetches };
    let keys = RandomState::new();
    let start = Machine::new(&model.program);
    // True for each state on the current path.
    let mut seen = HashMap::from([(keys.hash_one(&start), true)]);
    let mut path = vec![(start.clone(), model.steps(&start))];
    let mut ends = BTreeSet::new();
    while let Some((state, steps)) = path.last_mut() {
        let Some(step) = steps.pop() else {
            if state.next(&model.program).is_empty() {
                assert!(state.is_done(&model.program), "a task waits forever: {state:#?}");
                ends.insert(state.read());
            }
            seen.insert(keys.hash_one(&*state), false);
            path.pop();
            continue;
        };
        let next = model.after(state, step);
        assert_eq!(next.wrong, None);
        let key = keys.hash_one(&next);
        match seen.get(&key) {
            Some(true) => panic!("livelock: {next:#?}"),
            Some(false) => {}
            None => {
                seen.insert(key, true);
                let steps = model.steps(&next);
                path.push((next, steps));
            }
        }
    }
    println!("{} nodes: {} states, no circle", model.program.nodes.len(), seen.len());
    ends
}

const HERE: Option<NodeId> = Some(0);

#[test]
fn two_nodes_write_and_read_a_page() {
    let task = |me: usize| {
        vec![Operation::Add(0, 0), Operation::Read(0, 1 - me), Operation::Write(0, me, 9)]
    };
    explore_all(program(tasks([task(0), task(1)]), &[HERE]));
    explore_all(program(tasks([task(0), task(1)]), &[None]));
}

#[test]
fn three_nodes_want_a_page_at_once() {
    explore_all(program(
        tasks([0, 1, 2].map(|_| vec![Operation::Add(0, 0), Operation::Add(0, 0)])),
        &[HERE],
    ));
    let reads = vec![Operation::Read(0, 0), Operation::Read(0, 0)];
    let writes = vec![Operation::Add(0, 0), Operation::Add(0, 0)];
    let both = vec![Operation::Read(0, 0), Operation::Add(0, 0)];
    explore_all(program(tasks([reads.clone(), writes.clone(), both.clone()]), &[HERE]));
    explore_all(program(tasks([both.clone(), reads, both]), &[None]));
}

/// Two threads of a node share a copy, and a thread of another node invalidates it.
#[test]
fn tasks_of_a_node_share_a_page() {
    let add = || vec![Operation::Add(0, 0), Operation::Read(0, 1)];
    let other = vec![Operation::Write(0, 1, 5), Operation::Add(0, 0), Operation::Read(0, 0)];
    let nodes = vec![vec![add(), vec![Operation::Read(0, 0), Operation::Add(0, 0)]], vec![other]];
    explore_all(program(nodes.clone(), &[HERE]));
    explore_all(program(nodes.into_iter().rev().collect(), &[HERE]));
}

#[test]
fn four_nodes_want_a_page_at_once() {
    let add = vec![Operation::Add(0, 0)];
    let reads = vec![Operation::Read(0, 0), Operation::Read(0, 0)];
    let both = vec![Operation::Read(0, 0), Operation::Add(0, 0)];
    explore(&program(tasks([add.clone(), reads, both.clone(), both]), &[Some(3)]));
    explore_all(program(tasks([0, 1, 2, 3].map(|_| add.clone())), &[HERE]));
}

/// Pages are prefetched for reading and for writing, while other nodes request them.
#[test]
fn two_pages_move_together() {
    let up = vec![Operation::Add(0, 0), Operation::Add(1, 0)];
    let down = vec![Operation::Add(1, 0), Operation::Add(0, 0)];
    let reads = vec![Operation::Read(0, 0), Operation::Read(1, 0)];
    for owners in [[HERE, HERE], [HERE, Some(1)], [None, HERE]] {
        explore_all(program(tasks([up.clone(), down.clone()]), &owners));
        explore_all(program(tasks([reads.clone(), up.clone()]), &owners));
        explore_all(program(tasks([up.clone(), reads.clone()]), &owners));
        explore(&program(tasks([vec![Operation::Add(0, 1)], up.clone(), reads.clone()]), &owners));
        explore(&program(tasks([vec![Operation::Add(1, 1)], up.clone(), down.clone()]), &owners));
    }
}

/// There is room for only one copy, so the other is evicted. Its invalidation arrives later.
#[test]
fn copies_that_have_no_room_are_dropped() {
    let reads = vec![
        Operation::Read(0, 0),
        Operation::Read(1, 0),
        Operation::Read(0, 0),
        Operation::Add(1, 0),
    ];
    let writes = vec![Operation::Add(0, 0), Operation::Add(1, 0)];
    for copies_max in [0, 1] {
        let options = Options { copies_max, ..OPTIONS };
        let nodes = tasks([writes.clone(), reads.clone()]);
        explore_all(Program { options, ..program(nodes, &[HERE, HERE]) });
        let nodes = tasks([
            writes.clone(),
            reads.clone(),
            vec![Operation::Read(1, 0), Operation::Add(0, 1)],
        ]);
        explore(&Program { options, ..program(nodes, &[HERE, HERE]) });
    }
}

/// A node is lost at any time. No task waits for it, and all reads stay correct.
#[test]
fn no_node_waits_for_a_lost_node() {
    let both = vec![Operation::Read(0, 0), Operation::Add(0, 0)];
    let adds = vec![Operation::Add(0, 0), Operation::Add(0, 1)];
    for lost in [0, 2] {
        let lost = Some(lost);
        let nodes = tasks([both.clone(), adds.clone(), both.clone()]);
        explore_all(Program { lost, ..program(nodes.clone(), &[HERE]) });
        explore_all(Program { lost, ..program(nodes, &[None]) });
        let two = vec![Operation::Read(0, 0), Operation::Add(1, 0)];
        let nodes = tasks([two.clone(), vec![Operation::Add(0, 0), Operation::Read(1, 0)], two]);
        explore(&Program { lost, ..program(nodes, &[HERE, Some(1)]) });
    }
}

/// A page is reset to zeros on one node at any time. No task reads its former contents.
#[test]
fn a_page_begins_anew() {
    let up = vec![Operation::Add(0, 0), Operation::Add(1, 0)];
    let down = vec![Operation::Read(1, 0), Operation::Read(0, 0), Operation::Add(0, 0)];
    for owner in [0, 1] {
        for page in [0, 1] {
            let renewed = Some((page, owner));
            explore_all(Program {
                renewed,
                ..program(tasks([up.clone(), down.clone()]), &[HERE; 2])
            });
        }
    }
}

#[test]
#[ignore = "half a minute: make soak"]
fn a_page_that_three_use_begins_anew() {
    for owner in [0, 1] {
        let nodes = tasks([0, 1, 2].map(|_| vec![Operation::Read(0, 0), Operation::Add(0, 0)]));
        let renewed = Some((0, owner));
        explore_all(Program { renewed, ..program(nodes, &[Some(2)]) });
    }
}

/// All tasks reach their end in every order: no node can take a page from another forever.
#[test]
fn no_thread_moves_in_circles() {
    let both = vec![Operation::Read(0, 0), Operation::Add(0, 0), Operation::Read(0, 0)];
    for slow_faults in [false, true] {
        let ends = |program| ends_always(Program { slow_faults, ..program }, false);
        ends(program(tasks([both.clone(), both.clone(), both.clone()]), &[HERE]));
        ends(program(tasks([0, 1, 2].map(|_| vec![Operation::Add(0, 0); 2])), &[HERE]));
    }
    let four = [0, 1, 2, 3].map(|_| vec![Operation::Read(0, 0), Operation::Add(0, 0)]);
    ends_always(program(tasks(four), &[HERE]), false);
    let up = vec![Operation::Add(0, 0), Operation::Read(1, 0)];
    let down = vec![Operation::Add(1, 0), Operation::Read(0, 0)];
    ends_always(program(tasks([up.clone(), down.clone(), up]), &[HERE, HERE]), true);
    let options = Options { copies_max: 0, ..OPTIONS };
    ends_always(Program { options, ..program(tasks([both, down]), &[HERE, HERE]) }, true);
}

/// Litmus tests of memory models. Tasks read exactly the values that sequential consistency allows.
/// The bytes lie on separate pages, or on one page.
mod litmus {
    use super::*;

    fn outcomes(scripts: Vec<Vec<Operation>>) -> BTreeSet<Vec<u8>> {
        let nodes: Vec<_> = scripts.into_iter().map(|script| vec![script]).collect();
        let ends = ends_always(program(nodes, &[HERE, HERE]), false);
        ends.into_iter().map(|read| read.concat()).collect()
    }

    fn all_but<const READS: usize>(forbidden: &[[u8; READS]]) -> BTreeSet<Vec<u8>> {
        let all = (0..1u8 << READS).map(|bits| (0..READS).map(|at| bits >> at & 1).collect());
        all.filter(|read: &Vec<u8>| forbidden.iter().all(|it| it[..] != read[..])).collect()
    }

    /// The places of x and y.
    const PLACES: [[(Page, usize); 2]; 2] = [[(0, 0), (1, 0)], [(0, 0), (0, 1)]];

    fn write((page, at): (Page, usize)) -> Operation {
        Operation::Write(page, at, 1)
    }

    fn read((page, at): (Page, usize)) -> Operation {
        Operation::Read(page, at)
    }

    #[test]
    fn store_buffering() {
        for [x, y] in PLACES {
            let seen = outcomes(vec![vec![write(x), read(y)], vec![write(y), read(x)]]);
            assert_eq!(seen, all_but(&[[0, 0]]), "x86 alone would allow it");
        }
    }

    #[test]
    fn message_passing() {
        for [x, y] in PLACES {
            let seen = outcomes(vec![vec![write(x), write(y)], vec![read(y), read(x)]]);
            assert_eq!(seen, all_but(&[[1, 0]]));
        }
    }

    #[test]
    fn independent_reads_of_independent_writes() {
        for [x, y] in PLACES {
            let seen = outcomes(vec![
                vec![write(x)],
                vec![write(y)],
                vec![read(x), read(y)],
                vec![read(y), read(x)],
            ]);
            assert_eq!(seen, all_but(&[[1, 0, 1, 0]]));
        }
    }

    #[test]
    fn coherence() {
        let [x, _] = PLACES[0];
        let seen = outcomes(vec![vec![write(x)], vec![read(x), read(x)], vec![read(x), read(x)]]);
        let backward = all_but::<4>(&[]).into_iter().filter(|it| it[..2] != [1, 0]);
        let forward: BTreeSet<_> = backward.filter(|it| it[2..] != [1, 0]).collect();
        assert_eq!(seen, forward);
    }
}

/// Larger programs, for `make soak`.
#[test]
#[ignore = "takes a minute"]
fn larger_programs() {
    let reads = vec![Operation::Read(0, 0), Operation::Read(0, 0)];
    let adds = vec![Operation::Read(0, 0), Operation::Add(0, 0)];
    let nodes = tasks([vec![Operation::Add(0, 0)], reads, adds.clone(), adds]);
    explore_all(program(nodes, &[Some(3)]));
    let both = vec![Operation::Read(0, 0), Operation::Add(0, 0), Operation::Read(0, 0)];
    explore_all(program(tasks([0, 1, 2].map(|_| both.clone())), &[HERE]));
    let up = vec![Operation::Add(0, 0), Operation::Add(1, 0), Operation::Read(0, 0)];
    let down = vec![Operation::Read(1, 0), Operation::Add(0, 0)];
    let nodes = tasks([up.clone(), down.clone(), up.clone()]);
    explore(&program(nodes, &[HERE, Some(2)]));
    let options = Options { copies_max: 1, ..OPTIONS };
    let lost = Some(1);
    explore(&Program { options, lost, ..program(tasks([up.clone(), down, up]), &[HERE, HERE]) });
}
