//! Chaos: processes are killed, stopped and continued at random instants. `NAGAYA_SEED`
//! repeats a run's random choices (not the scheduler's).

use std::time::Duration;

use nagaya_tests::{Cmd, program, seed};

/// Children of an owner are killed and stopped while its threads start them.
fn owner_survives(seed: u64, seconds: u64) {
    let command = Cmd::new(program::c_pvas("chaos_owner.c"))
        .args([seed.to_string(), seconds.to_string()])
        .time_limit(Duration::from_secs(seconds + 120));
    print!("{}", command.run().ok());
}

#[test]
fn an_owner_survives_the_ends_of_its_children_at_any_instant() {
    let seed = seed();
    for seed in seed..seed + 2 {
        owner_survives(seed, 4);
    }
}
