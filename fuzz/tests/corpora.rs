//! Every target runs on its kept corpus, and on mutations of it. `NAGAYA_SEED` gives the mutations
//! of an earlier run; `NAGAYA_FUZZ_RUNS` sets their number for each target, and
//! `NAGAYA_FUZZ_TARGET` names the only target.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fuzz::corpus;
use fuzz::mutate::mutate;
use fuzz::target::Target;
use fuzz::targets::TARGETS;
use fuzz::watch::Watch;

/// Mutations of each target's corpus.
const RUNS: u64 = 2_000;
/// Mutations end early after this time, so that a slow target does not delay the others.
const TIME_MAX: Duration = Duration::from_millis(1_500);

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect(variable))
}

/// The directory for inputs that fail.
fn failed() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Returns the contents of a target's corpus.
fn kept(target: &Target) -> Vec<Vec<u8>> {
    corpus::kept(target).into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn all_targets_pass_their_corpora() {
    for &target in TARGETS {
        let watch = Watch::new(target, failed());
        let files = corpus::kept(target);
        assert!(!files.is_empty(), "{} has no corpus: run `nagaya-fuzz seeds`", target.name);
        files.iter().for_each(|(name, bytes)| watch.run(name, bytes));
        watch.run("empty", &[]);
    }
}

#[test]
fn all_targets_pass_mutations_of_their_corpora() {
    let seed = number("NAGAYA_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("NAGAYA_SEED={seed}");
    let runs = number("NAGAYA_FUZZ_RUNS");
    let only = std::env::var("NAGAYA_FUZZ_TARGET").ok();
    for &target in TARGETS.iter().filter(|it| only.as_ref().is_none_or(|only| it.name == only)) {
        let (watch, corpus) = (Watch::new(target, failed()), kept(target));
        let mut random = fastrand::Rng::with_seed(seed);
        let begin = Instant::now();
        for run in 0..runs.unwrap_or(RUNS) {
            if runs.is_none() && begin.elapsed() > TIME_MAX {
                break;
            }
            watch.run(&format!("{seed}-{run}"), &mutate(&corpus, &mut random));
        }
    }
}

#[test]
fn all_seeds_are_kept() {
    for target in TARGETS {
        let names = corpus::kept(target).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        for (name, bytes) in (target.seeds)() {
            assert!(bytes.len() <= 16 << 10, "seed {name} of {} is long", target.name);
            let name = format!("seed-{name}");
            assert!(names.contains(&name), "{} lacks {name}: run `nagaya-fuzz seeds`", target.name);
        }
    }
}

/// scripts/fuzz lists the targets by the directories of their corpora.
#[test]
fn all_corpora_are_of_targets() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in std::fs::read_dir(corpora).expect("a directory") {
        let name = entry.expect("an entry").file_name();
        assert!(TARGETS.iter().any(|target| *target.name == *name), "{name:?} has no target");
    }
}

#[test]
fn a_seed_gives_the_same_mutations_again() {
    let corpus = [b"one".to_vec(), b"another".to_vec()];
    let inputs = |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..100).map(|_| mutate(&corpus, &mut random)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(7), inputs(7));
    assert_ne!(inputs(7), inputs(8));
}
