//! Random programs with data races in random orders, with more nodes, tasks and pages than the
//! model checker can explore. `NAGAYA_SEED` replays one; `NAGAYA_WALKS` sets their number.

mod replicas;

use coherence::message::{NodeId, Page};
use coherence::random::Random;
use coherence::ride::Policy;
use coherence::sequential::Options;
use coherence::sequential::page::PageEvent;
use replicas::{Machine, Next, Operation, PAGE, Program, never_followed};

/// Returns a random program. Some are large, and most use few bytes, so that tasks conflict.
fn program(random: &mut Random) -> Program {
    let (large, wide) = (random.one_in(8), random.one_in(4));
    let nodes = 2 + random.below(if large { 14 } else { 4 });
    let pages = 1 + random.below(if wide { 12 } else { 3 });
    let length = 1 + random.below(12);
    let mut script = || {
        let sweeps = random.one_in(3);
        (0..length)
            .map(|at| {
                let page = if sweeps { at % pages } else { random.below(pages) } as u64;
                let byte = random.below(PAGE);
                match random.below(4) {
                    0 => Operation::Write(page, byte, random.below(256) as u8),
                    1 => Operation::Add(page, byte),
                    _ => Operation::Read(page, byte),
                }
            })
            .collect()
    };
    let mut scripts: Vec<Vec<Vec<Operation>>> = (0..nodes).map(|_| vec![script()]).collect();
    scripts[0].push(script());
    let owner = |random: &mut Random| (!random.one_in(5)).then(|| random.below(nodes) as NodeId);
    let first = Some(Some(0)).filter(|_| random.one_in(2));
    let owners = (0..pages).map(|_| first.unwrap_or_else(|| owner(random))).collect();
    let options = Options {
        nodes: 0,
        me: 0,
        pages_max: 1 + random.below(8) as u32,
        copies_max: if random.one_in(3) { random.below(3) as u64 } else { u64::MAX },
        rides: Policy::ALL[random.below(Policy::ALL.len())],
        migratory: random.below(4) as u8,
        rest: random.below(8) as u64,
    };
    let lost = random.one_in(6).then(|| random.below(nodes));
    let renewed = (lost.is_none() && random.one_in(4))
        .then(|| (random.below(pages) as Page, random.below(nodes) as NodeId));
    Program {
        nodes: scripts,
        owners,
        options,
        slow_faults: random.one_in(2),
        hasty: random.one_in(3),
        lost,
        loaded: random.one_in(2),
        renewed,
    }
}

fn walk(seed: u64) {
    let mut random = Random::new(seed);
    let program = program(&mut random);
    let mut machine = Machine::new(&program);
    let by_chance = random.one_in(2);
    let slow = random.below(8);
    loop {
        let next = machine.next(&program);
        if next.is_empty() {
            break;
        }
        // One of them is slow sometimes, and a node is lost late.
        let mut at = random.below(next.len());
        if at % 8 == slow || matches!(next[at], Next::Lose(_)) && !random.one_in(8) {
            at = random.below(next.len());
        }
        // Half of the walks prefetch random pages, the others prefetch predicted pages.
        let pages = program.owners.len() as u64;
        let prefetches = (0..pages).filter(|_| by_chance && random.one_in(2)).collect();
        // If pages may leave before their use, they may be sent as prefetches after some time.
        if program.hasty {
            machine.tick();
        }
        machine.go(&program, next[at], prefetches);
        assert_eq!(machine.wrong, None, "NAGAYA_SEED={seed}");
    }
    assert!(machine.is_done(&program), "NAGAYA_SEED={seed}: a task waits forever\n{machine:#?}");
}

#[test]
fn random_programs_in_random_orders_see_one_memory() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect(name));
    if let Some(seed) = number("NAGAYA_SEED") {
        return walk(seed);
    }
    for seed in 0..number("NAGAYA_WALKS").unwrap_or(20_000) {
        walk(seed);
    }
    // Only drivers decline requests; `sequential_steps` tests that.
    let mut never = never_followed();
    never.retain(|(_, on)| *on != PageEvent::Declined);
    assert!(never.is_empty(), "no walk has applied the rules of {never:?}");
}
