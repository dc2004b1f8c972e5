//! Throws mutations of real input at everything that reads bytes of strangers or of disks.
//!
//! `cargo run --release -p tests --bin fuzz -- TARGET [--seconds 60] [--seed N] [--only I]`. A panic, a hang, an abort and an
//! input that takes more memory than its target allows end the run with exit code 1 and the command that replays it.
//! Each input follows from the seed and its number. The inputs run in a child process, so that even an abort is reported.

mod mutate;
mod record;
mod requests;
mod storage;
mod supervise;
mod zk;
mod zookeeper;

use std::alloc::System;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Duration;

use cap::Cap;
use common::clock;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::mutate::{Random, mutated};
use crate::supervise::Progress;

/// Counts every byte, and refuses what is over the limit of an input: the process then aborts.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// An input that takes longer is a finding, even when it ends.
const INPUT_TIME_MAX: Duration = Duration::from_secs(2);

const MIB: usize = 1 << 20;

const PROCESS_MEMORY_MAX: u64 = 2 << 30;

/// Something that reads bytes of others.
struct Target {
    name: &'static str,
    /// Panics where something does not hold.
    run: fn(&[u8]),
    /// Real input, to begin from.
    corpus: fn() -> Vec<Vec<u8>>,
    /// Bytes in use at a time that an input of this length may take.
    memory_max: fn(usize) -> usize,
}

const TARGETS: &[Target] = &[
    Target {
        name: "requests",
        run: requests::run,
        corpus: requests::corpus,
        // A struct of the codec for two bytes of a request is the worst.
        memory_max: |length| 64 * 1024 + 256 * length,
    },
    Target {
        name: "batches",
        run: record::batches,
        corpus: record::batch_corpus,
        memory_max: |length| 32 * MIB + 64 * length,
    },
    Target {
        name: "decompressors",
        run: record::decompressors,
        corpus: record::decompressor_corpus,
        memory_max: |_| 16 * MIB,
    },
    Target {
        name: "files",
        run: storage::run,
        corpus: storage::corpus,
        memory_max: |length| 32 * MIB + 64 * length,
    },
    Target {
        name: "znodes",
        run: zk::run,
        corpus: zk::corpus,
        memory_max: |length| MIB + 256 * length,
    },
    Target {
        name: "zookeeper",
        run: zookeeper::run,
        corpus: zookeeper::corpus,
        memory_max: |length| MIB + 256 * length,
    },
];

/// What the command line says.
struct Options {
    target: &'static Target,
    seconds: u64,
    seed: u64,
    /// One input alone, in this process.
    only: Option<u64>,
    /// The file that a child tells its progress in.
    progress: Option<String>,
}

fn main() -> ExitCode {
    let Some(options) = options(&std::env::args().skip(1).collect::<Vec<_>>()) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("usage: fuzz TARGET [--seconds 60] [--seed N] [--only I]");
        eprintln!("targets: {}", names.join(" "));
        return ExitCode::from(2);
    };
    match (&options.only, &options.progress) {
        (Some(number), _) => run_one(&options, *number),
        (None, Some(progress)) => run_all(&options, &Progress::open(progress)),
        (None, None) => supervise::run(options.target.name, options.seconds, options.seed),
    }
}

fn options(words: &[String]) -> Option<Options> {
    let (name, mut rest) = words.split_first()?;
    let target = TARGETS.iter().find(|target| target.name == name)?;
    let seed = common::clock::wall_clock().0.unsigned_abs();
    let mut options = Options { target, seconds: 60, seed, only: None, progress: None };
    while let [option, value, after @ ..] = rest {
        match option.as_str() {
            "--seconds" => options.seconds = value.parse().ok()?,
            "--seed" => options.seed = value.parse().ok()?,
            "--only" => options.only = Some(value.parse().ok()?),
            "--progress" => options.progress = Some(value.clone()),
            _ => return None,
        }
        rest = after;
    }
    rest.is_empty().then_some(options)
}

/// The input with a number. The first ones are the corpus as it is.
fn input(corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    match usize::try_from(number).ok().and_then(|index| corpus.get(index)) {
        Some(real) => real.clone(),
        None => mutated(corpus, &mut Random::of(seed, number)),
    }
}

/// Runs until the time is over or something is found.
fn run_all(options: &Options, progress: &Progress) -> ExitCode {
    let target = options.target;
    let corpus = (target.corpus)();
    assert!(!corpus.is_empty(), "there is real input to begin from");
    limit_memory_of_c();
    panic::set_hook(Box::new(|what| eprintln!("{what}")));
    let deadline = clock::now() + Duration::from_secs(options.seconds);
    let mut number = 0;
    while clock::now() < deadline || number < corpus.len() as u64 {
        progress.tell(number);
        let input = input(&corpus, options.seed, number);
        let begun = clock::now();
        let outcome = guarded(target, &input);
        let slow = begun.elapsed() > INPUT_TIME_MAX;
        if outcome.is_err() || slow {
            let what = if slow { "slow" } else { "panic" };
            supervise::report(what, target.name, options.seed, number, Some(&input));
            return ExitCode::FAILURE;
        }
        number += 1;
    }
    let (name, seed, real) = (target.name, options.seed, corpus.len());
    let peak = ALLOCATOR.max_allocated();
    println!(
        "{name}: {number} inputs from {real} real ones, seed {seed}, nothing found, peak {peak} bytes"
    );
    ExitCode::SUCCESS
}

/// What C allocates the allocator does not see, so the whole process has a bound as well.
fn limit_memory_of_c() {
    let limit = Rlimit { current: Some(PROCESS_MEMORY_MAX), maximum: Some(PROCESS_MEMORY_MAX) };
    setrlimit(Resource::As, limit).expect("a lower limit is always granted");
}

/// Runs one input without a guard, so that a debugger sees it.
fn run_one(options: &Options, number: u64) -> ExitCode {
    let corpus = (options.target.corpus)();
    let input = input(&corpus, options.seed, number);
    println!("{} bytes: {}", input.len(), supervise::hex(&input));
    let before = ALLOCATOR.total_allocated();
    (options.target.run)(&input);
    println!("allocated {} bytes in all", ALLOCATOR.total_allocated() - before);
    ExitCode::SUCCESS
}

fn guarded(target: &Target, input: &[u8]) -> std::thread::Result<()> {
    let memory_max = ALLOCATOR.allocated() + (target.memory_max)(input.len());
    ALLOCATOR.set_limit(memory_max).expect("the limit is above what is in use");
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    ALLOCATOR.set_limit(usize::MAX).expect("no limit is above everything");
    outcome
}
