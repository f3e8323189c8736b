//! Random programs on random clusters with faults: `NAGAYA_SEED` says which one, `NAGAYA_WALKS`
//! how many.

#[test]
fn random_programs_on_random_clusters_keep_what_is_promised() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seeds = match number("NAGAYA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NAGAYA_WALKS").unwrap_or(5_000),
    };
    for seed in seeds {
        if let Err(what) = sim::soak::run(seed) {
            panic!("NAGAYA_SEED={seed}: {what}");
        }
    }
}
