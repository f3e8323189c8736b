//! Random programs in random orders, with more nodes, tasks, pages, locks and barriers than the
//! model checker can explore. `NAGAYA_SEED` replays one; `NAGAYA_WALKS` sets their number.

mod machine;

use coherence::random::{Random, Size, random_program};
use machine::{Machine, PAGE, never_followed};

fn walk(seed: u64) {
    let mut random = Random::new(seed);
    let program = random_program(&mut random, Size { nodes: 5, tasks: 3, same: false }, PAGE);
    let mut machine = Machine::new(&program);
    machine.slow_faults = !random.one_in(3);
    let by_chance = random.one_in(2);
    loop {
        let next = machine.next(&program);
        if next.is_empty() {
            break;
        }
        // One of them is slow sometimes.
        let slow = random.below(8);
        let mut at = random.below(next.len());
        if at % 8 == slow {
            at = random.below(next.len());
        }
        // Half of the walks send random rides, the others send predicted rides.
        let chance = (0..program.pages).filter(|_| by_chance && random.one_in(3)).collect();
        machine.go_with(&program, next[at], chance);
        assert_eq!(machine.wrong, None, "NAGAYA_SEED={seed}");
    }
    assert!(machine.is_done(&program), "NAGAYA_SEED={seed}: a task waits forever\n{machine:#?}");
}

#[test]
fn random_histories_in_random_orders_keep_the_guarantees() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect(name));
    if let Some(seed) = number("NAGAYA_SEED") {
        return walk(seed);
    }
    for seed in 0..number("NAGAYA_WALKS").unwrap_or(20_000) {
        walk(seed);
    }
    let never = never_followed();
    assert!(never.is_empty(), "no walk has applied the rules of {never:?}");
}
