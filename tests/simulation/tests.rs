//! That a seed is one run, that runs without a bug hold, and that bugs are found.

use crate::{bugs::Bug, run, world::Options};

/// Seeds in which a bug has to show.
const SEEDS_MAX: u64 = 60;

#[test]
fn a_seed_is_one_run() {
    for seed in [3, 14] {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()), "seed {seed}");
    }
    assert_ne!(run(3, Options::default()).trace, run(14, Options::default()).trace);
}

#[test]
fn what_has_to_hold_holds() {
    for seed in 1..=10 {
        let outcome = run(seed, Options::default());
        assert_eq!(outcome.violation, None, "cargo run -p simulation -- --seed {seed}");
    }
}

/// Runs seeds with the bug until an invariant does not hold; gives its name.
fn find(bug: Bug) -> &'static str {
    let options = Options { bug: Some(bug), ..Options::default() };
    let mut outcomes = (1..=SEEDS_MAX).map(|seed| run(seed, options));
    let found = outcomes.find_map(|outcome| outcome.violation);
    found.unwrap_or_else(|| panic!("{bug:?} is not found in {SEEDS_MAX} seeds")).invariant
}

#[test]
fn bugs_are_found() {
    let bugs = [
        Bug::WatermarkIsTheLeadersEnd,
        Bug::TruncatesToTheWatermark,
        Bug::AnswersBeforeTheWatermark,
        Bug::TooFewInSyncAreEnough,
        Bug::ConsumersReadToTheEnd,
        Bug::OpenTransactionsAreRead,
        Bug::OneMarkerIsWrong,
    ];
    for bug in bugs {
        println!("{bug:?}: {}", find(bug));
    }
}
