//! Runs seeds of the simulator: `cargo run -p simulation -- --seeds 200 --from 1`. A seed that fails prints the command that
//! replays it, with all that happens.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use common::clock;
use simulation::{bugs::Bug, run, world::Options};

const USAGE: &str = "simulation [--seeds COUNT] [--from SEED] [--seed SEED] [--bug NAME] [--quick-return] [--threads COUNT]
  --seeds COUNT   how many seeds (200)
  --from SEED     the first of them (1)
  --seed SEED     one seed, with all that happens
  --bug NAME      with a bug put in
  --quick-return  a broker that has lost records may come back at once, which breaks what Kafka promises
  --threads COUNT how many seeds at a time (2)";

/// What is to be run.
struct Command {
    from: u64,
    count: u64,
    threads: u64,
    options: Options,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut command = Command { from: 1, count: 200, threads: 2, options: Options::default() };
    while let Some(name) = arguments.next() {
        if name == "--quick-return" {
            command.options.quick_return = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| USAGE.to_owned())?;
        let number = || value.parse::<u64>().map_err(|error| format!("{name} {value}: {error}"));
        match name.as_str() {
            "--seeds" => command.count = number()?,
            "--from" => command.from = number()?,
            "--threads" => command.threads = number()?.max(1),
            "--seed" => {
                (command.from, command.count) = (number()?, 1);
                command.options.verbose = true;
            }
            "--bug" => {
                let names = || Bug::ALL.map(|bug| format!("{bug:?}")).join(" ");
                let bug = Bug::from_name(&value).ok_or_else(|| format!("bugs: {}", names()))?;
                command.options.bug = Some(bug);
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(command)
}

fn main() -> ExitCode {
    let command = match parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let began = clock::now();
    let next = AtomicU64::new(0);
    let (failed, void) = (AtomicU64::new(0), AtomicU64::new(0));
    let (events, work) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..command.threads.min(command.count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= command.count {
                        return;
                    }
                    let seed = command.from + number;
                    let outcome = run(seed, command.options);
                    events.fetch_add(outcome.events, Ordering::Relaxed);
                    work.fetch_add(outcome.work, Ordering::Relaxed);
                    void.fetch_add(u64::from(outcome.is_void), Ordering::Relaxed);
                    if let Some(violation) = outcome.violation {
                        failed.fetch_add(1, Ordering::Relaxed);
                        let mut replay = format!("cargo run -p simulation -- --seed {seed}");
                        if let Some(bug) = command.options.bug {
                            replay += &format!(" --bug {bug:?}");
                        }
                        if command.options.quick_return {
                            replay += " --quick-return";
                        }
                        println!(
                            "seed {seed}: {} at {} ms: {}\n  {replay}",
                            violation.invariant, violation.at, violation.what
                        );
                    }
                }
            });
        }
    });
    let (failed, events) = (failed.into_inner(), events.into_inner());
    println!(
        "{} seeds from {}: {failed} failed, {} void; {events} events, {} batches and transactions acknowledged; {:.1} s",
        command.count,
        command.from,
        void.into_inner(),
        work.into_inner(),
        began.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
