//! Lives of groups, as scripts: what clients ask, and what they are told.
//!
//! A line is a time and an event; timers go off in between. The log commits each append at once, unless the
//! script says `hold`; then `done 1` and `fail 1 NOT_ENOUGH_REPLICAS` end the append of that number.
//! `join g client=a` makes member `a-1` (version 3 of the request); `v4` and `v9` are later versions; `as=` is
//! the static name; `protocols=range:x,other:y` names metadata, `range@t+u` a subscription. `sync`, `heartbeat`
//! and `commit` take group, member (`-` for none) and generation; `sync` also `assign=a-1:x,b-1:y`.
//! `reload` is another broker that takes over with the log. The rest speak for themselves.

mod golden;
mod join;
mod membership;
mod offsets;
mod print;
mod random;
mod rebalance;
mod records;
mod removal;
mod size;
mod world;

use std::hash::{BuildHasher, RandomState};

use expect_test::Expect;
use proptest::test_runner::{Config, RngSeed};

use self::world::World;

/// Settings of random tests: a seed of their own, shown when a test fails.
fn seeded(cases: u32) -> Config {
    let given = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("again: PROPTEST_RNG_SEED={seed} cargo test -p group_coordinator");
    let rng_seed = RngSeed::Fixed(seed);
    Config { cases, failure_persistence: None, rng_seed, ..Config::default() }
}

fn check(script: &str, expected: Expect) {
    let mut world = World::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        world.line(line);
    }
    expected.assert_eq(world.output.trim_end());
}
