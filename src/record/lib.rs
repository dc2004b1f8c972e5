//! Record batches: view, check, build, compress; magic 0, 1 and 2.

#[cfg(test)]
mod answer_tests;
pub mod batch;
pub mod build;
mod checker;
pub mod compression;
pub mod control;
pub mod convert;
#[cfg(test)]
mod damage_tests;
pub mod entry;
#[cfg(test)]
mod golden_tests;
mod gzip;
mod legacy;
mod lz4;
pub mod produce_version;
#[cfg(test)]
mod property_tests;
pub mod record_errors;
pub mod records;
mod skim;
mod snappy;
mod up_convert;
pub mod validate;
mod varint;
pub mod view;
mod walk;
mod window;
mod zstandard;

/// Settings of random tests: a seed of their own, shown when a test fails.
#[cfg(test)]
pub(crate) fn seeded(cases: u32) -> proptest::test_runner::Config {
    use std::hash::{BuildHasher, RandomState};

    let given = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("again: PROPTEST_RNG_SEED={seed} cargo test -p record");
    proptest::test_runner::Config {
        cases,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed),
        ..proptest::test_runner::Config::default()
    }
}
