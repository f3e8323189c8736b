//! Random stories in random orders: more nodes, tasks, pages, locks and barriers than can be
//! explored. `NAGAYA_SEED` replays one, `NAGAYA_WALKS` says how many.

mod machine;

use coherence::scope::homes::Homes;
use machine::{Do, Machine, PAGE, Story};

struct Random(u64);

impl Random {
    /// Below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

/// Each byte is either counted under one lock or has, between two barriers, one writer and no
/// reader, or readers only. What must be read is known when the story is made.
fn story(random: &mut Random) -> Story {
    let nodes = 1 + random.below(5);
    let tasks: Vec<usize> = (0..nodes).map(|_| 1 + random.below(3)).collect();
    let pages = 1 + random.below(4);
    let bytes = pages * PAGE;
    let lock_of: Vec<Option<u32>> =
        (0..bytes).map(|_| random.one_in(3).then(|| random.below(3) as u32)).collect();
    let mut values = vec![0u8; bytes];
    let mut scripts: Vec<Vec<Vec<Do>>> =
        tasks.iter().map(|&tasks| vec![Vec::new(); tasks]).collect();
    let place = |at: usize| ((at / PAGE) as u64, at % PAGE);
    for phase in 0..1 + random.below(6) as u32 {
        let writer: Vec<Option<(usize, usize)>> = (0..bytes)
            .map(|_| {
                random.one_in(2).then(|| {
                    let node = random.below(nodes);
                    (node, random.below(tasks[node]))
                })
            })
            .collect();
        let before = values.clone();
        for (node, scripts) in scripts.iter_mut().enumerate() {
            for (task, script) in scripts.iter_mut().enumerate() {
                let mut mine = before.clone();
                for _ in 0..random.below(8) {
                    let at = random.below(bytes);
                    let (page, byte) = place(at);
                    match (lock_of[at], writer[at]) {
                        (Some(lock), _) => {
                            script.push(Do::Lock(lock));
                            for _ in 0..1 + random.below(2) {
                                script.push(Do::Add(page, byte));
                                values[at] += 1;
                            }
                            // Another byte of the lock, or a lock inside the lock.
                            let other = random.below(bytes);
                            let inner = lock_of[other].filter(|&inner| inner >= lock);
                            if let Some(inner) = inner {
                                let (page, byte) = place(other);
                                let nested = inner > lock;
                                script.extend(nested.then_some(Do::Lock(inner)));
                                script.push(Do::Add(page, byte));
                                values[other] += 1;
                                script.extend(nested.then_some(Do::Unlock(inner)));
                            }
                            script.push(Do::Unlock(lock));
                        }
                        (None, Some(who)) if who == (node, task) => {
                            mine[at] = random.below(200) as u8;
                            script.push(Do::Write(page, byte, mine[at]));
                            values[at] = mine[at];
                            script.push(Do::Expect(page, byte, mine[at]));
                        }
                        (None, None) => script.push(Do::Expect(page, byte, before[at])),
                        (None, Some(_)) => {}
                    }
                }
                if random.one_in(4) {
                    script.push(Do::Lock(9));
                    script.push(Do::Unlock(9));
                }
            }
        }
        // One tells another of a byte on a page of its own, and all meet or do not.
        if random.one_in(2) {
            let (page, byte) = (pages as u64, phase as usize % PAGE);
            let mut somebody = || {
                let node = random.below(nodes);
                (node, random.below(tasks[node]))
            };
            let (tells, hears) = (somebody(), somebody());
            let meet = random.one_in(3);
            let script = &mut scripts[tells.0][tells.1];
            script.extend([Do::Write(page, byte, phase as u8), Do::Set(phase)]);
            let script = &mut scripts[hears.0][hears.1];
            script.extend([Do::Wait(phase), Do::Expect(page, byte, phase as u8)]);
            if meet {
                scripts.iter_mut().flatten().for_each(|script| script.push(Do::Meet));
                scripts[tells.0][tells.1].push(Do::Reset(phase));
            }
        }
        for script in scripts.iter_mut().flatten() {
            script.push(Do::Barrier);
        }
    }
    for script in scripts.iter_mut().flatten() {
        for (at, &value) in values.iter().enumerate() {
            let (page, byte) = place(at);
            script.push(Do::Expect(page, byte, value));
        }
    }
    let homes = match random.one_in(2) {
        true => Homes::At(random.below(nodes) as u32),
        false => {
            Homes::Blocks { pages: 1 + random.below(2) as u64, first: random.below(nodes) as u32 }
        }
    };
    Story {
        nodes: scripts,
        pages: pages as u64 + 1,
        homes,
        migrate: !random.one_in(3),
        alone: !random.one_in(3),
    }
}

fn walk(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let story = story(&mut random);
    let mut machine = Machine::new(&story);
    loop {
        let next = machine.next(&story);
        if next.is_empty() {
            break;
        }
        // At times one of them is slow for long.
        let slow = random.below(8);
        let mut at = random.below(next.len());
        if at % 8 == slow {
            at = random.below(next.len());
        }
        machine.go(&story, next[at]);
        assert_eq!(machine.wrong, None, "NAGAYA_SEED={seed}");
    }
    assert!(machine.is_done(&story), "NAGAYA_SEED={seed}: somebody waits for ever\n{machine:#?}");
}

#[test]
fn random_stories_in_random_orders_keep_what_is_promised() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect(name));
    if let Some(seed) = number("NAGAYA_SEED") {
        return walk(seed);
    }
    for seed in 0..number("NAGAYA_WALKS").unwrap_or(20_000) {
        walk(seed);
    }
}
