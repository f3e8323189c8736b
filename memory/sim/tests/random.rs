//! Random programs on random clusters with faults. `NAGAYA_SEED` selects one; `NAGAYA_WALKS` sets
//! their number.

fn all(programs: u64, run: impl Fn(u64) -> Result<(), String>) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seeds = match number("NAGAYA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NAGAYA_WALKS").unwrap_or(programs),
    };
    for seed in seeds {
        if let Err(what) = run(seed) {
            panic!("NAGAYA_SEED={seed}: {what}");
        }
    }
}

#[test]
fn random_programs_on_random_clusters_keep_the_guarantees() {
    all(5_000, sim::soak::run);
}

#[test]
fn random_programs_that_race_see_one_memory() {
    all(2_000, sim::soak::racing::run);
}
