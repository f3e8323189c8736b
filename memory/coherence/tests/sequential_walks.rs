//! Random programs in random orders: more nodes, tasks and pages than can be explored, all of
//! them racing. `NAGAYA_SEED` replays one, `NAGAYA_WALKS` says how many.

mod replicas;

use coherence::message::{NodeId, Page};
use coherence::ride::Policy;
use coherence::sequential::Options;
use coherence::story::Random;
use replicas::{Do, Machine, Next, PAGE, Program, never_followed};

/// At times large, and mostly about few bytes, so that they meet.
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
                    0 => Do::Write(page, byte, random.below(256) as u8),
                    1 => Do::Add(page, byte),
                    _ => Do::Read(page, byte),
                }
            })
            .collect()
    };
    let mut scripts: Vec<Vec<Vec<Do>>> = (0..nodes).map(|_| vec![script()]).collect();
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
        // At times one of them is slow for long, and a node is lost late.
        let mut at = random.below(next.len());
        if at % 8 == slow || matches!(next[at], Next::Lose(_)) && !random.one_in(8) {
            at = random.below(next.len());
        }
        // Half of the walks hope for pages at random, the others for what is foreseen.
        let pages = program.owners.len() as u64;
        let hopes = (0..pages).filter(|_| by_chance && random.one_in(2)).collect();
        // Where pages may go before they were used, they may go along, too, after a while.
        if program.hasty {
            machine.tick();
        }
        machine.go(&program, next[at], hopes);
        assert_eq!(machine.wrong, None, "NAGAYA_SEED={seed}");
    }
    assert!(machine.is_done(&program), "NAGAYA_SEED={seed}: somebody waits for ever\n{machine:#?}");
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
    let never = never_followed();
    assert!(never.is_empty(), "no walk has followed the rules of {never:?}");
}
