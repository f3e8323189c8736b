//! A process of a virtual machine is killed, or stopped for a while, at a random instant. The
//! master ends within a limit, by itself, and its output is right or its status says that something
//! failed. The daemon serves the next job, unless it was killed. No process is left.
//!
//! `NAGAYA_CHAOS_ROUNDS=n` does n rounds, `NAGAYA_SEED=n` the same choices.

use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use nagaya_tests::pvm::Machine;
use nagaya_tests::remains::processes_with;
use nagaya_tests::{
    chaos_rounds, is_placeholder, program, random_signal, seed, strike, wait_until,
};
use rustix::process::Signal;

/// Time limit for a job, most of which is for a busy machine. Without a kill, it takes half a
/// second.
const END_MAX: Duration = Duration::from_secs(60);
/// Time until the instant, at most.
const INSTANT_MAX_US: u64 = 500_000;
const RIGHT: &str = "all sums are right\n";

fn round(random: &mut Rng, program: &Path) {
    let search = [program.parent().expect("a directory")];
    let in_space = random.bool();
    let machine = if in_space { Machine::in_space(&search) } else { Machine::ours(&search) };
    let variable = format!("PVM_TMP={}", machine.dir().display());
    let master = machine.task(program).time_limit(END_MAX).spawn();
    std::thread::sleep(Duration::from_micros(random.u64(..INSTANT_MAX_US)));
    let mut all = processes_with(&variable);
    all.retain(|&(pid, _)| !is_placeholder(pid));
    let signal = random_signal(random);
    let &(victim, ref command) = random.choice(&all).expect("the daemon at least");
    let is_daemon = victim == machine.daemon();
    let what = format!("{signal:?} to {command}({victim}), space: {in_space}");
    println!("{what}");
    strike(victim, signal);
    let is_master = victim == master.pid();
    let output = master.wait();
    let is_right = output.stdout == RIGHT && output.code() == 0;
    let has_words = !output.stdout.is_empty() || !output.stderr.is_empty();
    assert!(is_right || is_master || output.code() != 0 && has_words, "{what}: {output}");
    // Nothing is lost by a stop.
    assert!(is_right || signal == Signal::KILL, "{what}: {output}");
    if !(is_daemon && signal == Signal::KILL) {
        let next = machine.task(program).time_limit(END_MAX).run();
        assert_eq!(next.ok(), RIGHT, "{what}: the next job");
    }
    drop(machine);
    wait_until(&format!("after {what} all processes are gone"), END_MAX, || {
        processes_with(&variable).is_empty()
    });
}

#[test]
fn a_process_killed_or_stopped_at_any_instant_takes_nobody_along() {
    let program = program::c_pvm("pvm/sums.c", &["-O1", "-Wextra", "-Werror"]);
    let mut random = Rng::with_seed(seed());
    for _ in 0..chaos_rounds(6) {
        round(&mut random, &program);
    }
}
