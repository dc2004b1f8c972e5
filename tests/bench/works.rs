//! The workloads: each against its floor, ours, and Kafka, one after the other.

use std::{net::SocketAddr, time::Duration};

use common::clock;
use serde::Deserialize;

use crate::{
    Options,
    floors::SENDFILE_BYTES,
    groups,
    load::{self, Load, Requests, Shape, ask},
    process::{Cpu, Process, cpu_of, cpu_of_threads, memory_of},
    requests::{self, Fetches, Same},
    targets::{Target, wait_for},
};

/// Kafka's code is compiled while it runs; this long it is let to.
pub(crate) const WARM_UP: Duration = Duration::from_secs(60);
/// Rounds of each measurement; the median counts.
pub(crate) const ROUNDS: usize = 3;

#[derive(Deserialize)]
struct Workloads {
    work: Vec<Work>,
}

#[derive(Clone, Deserialize)]
struct Work {
    name: String,
    kind: Kind,
    #[serde(default)]
    batch_bytes: usize,
    #[serde(default)]
    record_bytes: usize,
    connections: usize,
    in_flight: usize,
    floor: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Produce,
    Fetch,
    Metadata,
    ApiVersions,
    Heartbeat,
    OffsetCommit,
    Transaction,
}

/// What one round showed.
struct Measured {
    load: Load,
    cpu: Cpu,
}

impl Measured {
    fn cpu_per_gigabyte(&self) -> f64 {
        self.cpu.total() / (self.load.bytes.max(1) as f64 / 1e9)
    }

    /// Bytes of interest, or transactions, for a second of CPU.
    fn done_per_cpu(&self) -> f64 {
        self.load.bytes as f64 / self.cpu.total().max(1e-9)
    }

    fn cpu_us_per_request(&self) -> f64 {
        self.cpu.total() * 1e6 / self.load.requests.max(1) as f64
    }
}

/// Runs all that was asked for and prints the table.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let done = run_all(options);
    // Only our own folder below the system's temporary one.
    let _ = std::fs::remove_dir_all(&options.directory);
    done
}

fn run_all(options: &Options) -> Result<(), String> {
    let text = include_str!("workloads.toml");
    let workloads: Workloads = toml::from_str(text).map_err(|error| error.to_string())?;
    let wanted = |name: &str| {
        let only = options.only.as_ref();
        only.is_none_or(|only| only.split('|').any(|only| name.contains(only)))
    };
    let works: Vec<Work> = workloads.work.into_iter().filter(|work| wanted(&work.name)).collect();
    machine();
    if !works.is_empty() {
        let mut targets =
            vec![Target::ours(&options.binary, &options.directory.join("odradek"), &is_up)?];
        if let Some(peer) = &options.kafka {
            targets.push(Target::kafka(peer, &options.directory.join("kafka"))?);
        }
        println!(
            "\n| work | target | CPU-s/GB | us/request | user/kernel | MB/s | requests/s | p50 us | p99 us | p99.9 us |\n|---|---|---|---|---|---|---|---|---|---|"
        );
        for work in &works {
            one_work(options, work, &targets)?;
        }
    }
    if wanted("start") {
        start(options)?;
    }
    if wanted("partitions") {
        partitions(options)?;
    }
    if wanted("idle groups") {
        many_groups(options)?;
    }
    if wanted("members") {
        groups::members_that_join(options)?;
    }
    Ok(())
}

/// Says what this machine is.
pub(crate) fn machine() {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    println!(
        "machine: {cores} x {}, Linux {}",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim()
    );
}

fn is_up(address: SocketAddr) -> bool {
    ask(address, &requests::metadata("nothing")).is_ok()
}

fn one_work(options: &Options, work: &Work, targets: &[Target]) -> Result<(), String> {
    let duration = Duration::from_secs(options.seconds.unwrap_or(5));
    let shape = Shape { connections: work.connections, in_flight: work.in_flight, duration };
    let floor = floor(work, shape)?;
    print_row(&work.name, &format!("floor: {}", work.floor), &floor);
    let mut ours = None;
    for target in targets {
        let topic = format!("bench-{}", clock::wall_clock().0);
        prepare(work, target, &topic)?;
        if target.is_kafka() {
            measure(
                work,
                target.address,
                target.pid,
                &topic,
                Shape { duration: WARM_UP, ..shape },
            )?;
        }
        let measured = median(|| measure(work, target.address, target.pid, &topic, shape))?;
        print_row(&work.name, target.name, &measured);
        let cpu = measured.cpu_per_gigabyte() / floor.cpu_per_gigabyte();
        let rate = measured.load.requests_per_second() / floor.load.requests_per_second();
        println!(
            "|  | {}: CPU per GB x {cpu:.2} of the floor, rate x {rate:.2} of it |",
            target.name
        );
        if work.kind == Kind::Transaction {
            println!(
                "|  | {}: {:.0} transactions a CPU-second |",
                target.name,
                measured.done_per_cpu()
            );
        }
        match &ours {
            None => ours = Some(measured),
            Some(ours) => println!(
                "|  | beside {}: CPU per request x {:.2}, work per CPU x {:.2} |",
                target.name,
                ours.cpu_us_per_request() / measured.cpu_us_per_request(),
                ours.done_per_cpu() / measured.done_per_cpu(),
            ),
        }
    }
    Ok(())
}

fn median(mut once: impl FnMut() -> Result<Measured, String>) -> Result<Measured, String> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(once()?);
    }
    rounds.sort_by(|one, other| one.cpu_us_per_request().total_cmp(&other.cpu_us_per_request()));
    Ok(rounds.swap_remove(ROUNDS / 2))
}

fn print_row(work: &str, target: &str, measured: &Measured) {
    let load = &measured.load;
    println!(
        "| {work} | {target} | {:.2} | {:.1} | {:.2}/{:.2} s | {:.0} | {:.0} | {} | {} | {} |",
        measured.cpu_per_gigabyte(),
        measured.cpu_us_per_request(),
        measured.cpu.user,
        measured.cpu.kernel,
        load.megabytes_per_second(),
        load.requests_per_second(),
        load.percentile_us(0.5),
        load.percentile_us(0.99),
        load.percentile_us(0.999),
    );
}

fn floor(work: &Work, shape: Shape) -> Result<Measured, String> {
    let (process, address) = Process::start_role(&[&format!("floor-{}", work.floor)])?;
    let pid = process.pid();
    let frame = match work.kind {
        Kind::Produce => {
            requests::produce("floor", 0, 1, requests::batch(work.batch_bytes, work.record_bytes))
        }
        Kind::Fetch => requests::fetch("floor", 0, 0, 1 << 20),
        Kind::Metadata => requests::metadata("floor"),
        Kind::ApiVersions => requests::api_versions(),
        Kind::Heartbeat | Kind::OffsetCommit | Kind::Transaction => {
            groups::commit("floor", "floor")
        }
    };
    let bytes = if work.kind == Kind::Fetch { SENDFILE_BYTES as u64 } else { frame.len() as u64 };
    median(|| {
        let same = |_| -> Box<dyn Requests> { Same::new(frame.clone(), bytes, requests::any) };
        measured(address, pid, shape, &same)
    })
}

fn measured(
    address: SocketAddr,
    pid: u32,
    shape: Shape,
    requests: &dyn Fn(usize) -> Box<dyn Requests>,
) -> Result<Measured, String> {
    let before = cpu_of(pid);
    let load = load::run(address, shape, requests)?;
    Ok(Measured { load, cpu: cpu_of(pid).since(before) })
}

fn prepare(work: &Work, target: &Target, topic: &str) -> Result<(), String> {
    let ask = |frame: &[u8]| ask(target.address, frame).map_err(|error| error.to_string());
    create(target.address, topic, 1)?;
    if matches!(work.kind, Kind::Heartbeat | Kind::OffsetCommit | Kind::Transaction) {
        groups::await_coordinators(target.address)?;
    }
    if work.kind == Kind::OffsetCommit {
        // Until there is a coordinator.
        groups::ask_until(target.address, &groups::commit("any", topic), groups::committed)?;
    }
    if work.kind == Kind::Fetch {
        let frame = requests::produce(topic, 0, 1, requests::batch(65_536, 1024));
        for _ in 0..2048 {
            requests::produced(&ask(&frame)?)?;
        }
    }
    Ok(())
}

fn measure(
    work: &Work,
    address: SocketAddr,
    pid: u32,
    topic: &str,
    shape: Shape,
) -> Result<Measured, String> {
    let batch = requests::batch(work.batch_bytes.max(1), work.record_bytes);
    let produce = requests::produce(topic, 0, 1, batch);
    let produced = produce.len() as u64;
    let metadata = requests::metadata(topic);
    let prepared = groups_of(work, address, topic, shape.connections)?;
    let prepared = std::cell::RefCell::new(prepared);
    // 2,048 batches of 63 records were written; each fetch takes about 16 of them.
    let offsets: Vec<i64> = (0..128).map(|at| at * 63 * 16).collect();
    measured(address, pid, shape, &|_| -> Box<dyn Requests> {
        match work.kind {
            Kind::Produce => Same::new(produce.clone(), produced, requests::produced),
            Kind::Fetch => Fetches::new(topic, &offsets, 1 << 20),
            Kind::Metadata => Same::new(metadata.clone(), metadata.len() as u64, requests::any),
            Kind::ApiVersions => {
                let frame = requests::api_versions();
                let bytes = frame.len() as u64;
                Same::new(frame, bytes, requests::any)
            }
            Kind::Heartbeat | Kind::OffsetCommit | Kind::Transaction => {
                prepared.borrow_mut().pop().expect("one for each connection")
            }
        }
    })
}

/// What each connection sends, of works about groups and transactions: each has a group, or a producer, of its own.
fn groups_of(
    work: &Work,
    address: SocketAddr,
    topic: &str,
    connections: usize,
) -> Result<Vec<Box<dyn Requests>>, String> {
    // New names in each round: a member of the last one would keep a group waiting.
    let round = clock::wall_clock();
    let names = (0..connections).map(|index| format!("{topic}-{round}-{index}"));
    let same = |frame: bytes::Bytes, check| -> Box<dyn Requests> {
        let bytes = frame.len() as u64;
        Same::new(frame, bytes, check)
    };
    let each = names.map(|name| -> Result<Box<dyn Requests>, String> {
        Ok(match work.kind {
            Kind::Heartbeat => {
                same(groups::join_alone(address, &name)?.heartbeat(), groups::beaten)
            }
            Kind::OffsetCommit => same(groups::commit(&name, topic), groups::committed),
            _ => groups::Transactions::new(address, &name, topic)?,
        })
    });
    match work.kind {
        Kind::Heartbeat | Kind::OffsetCommit | Kind::Transaction => each.collect(),
        _ => Ok(Vec::new()),
    }
}

/// What ten thousand groups cost that only heartbeat.
fn many_groups(options: &Options) -> Result<(), String> {
    const GROUPS: usize = 10_000;
    let mut targets =
        vec![Target::ours(&options.binary, &options.directory.join("groups"), &is_up)?];
    if let Some(peer) = &options.kafka {
        targets.push(Target::kafka(peer, &options.directory.join("kafka-groups"))?);
    }
    println!("\n| groups | target | |\n|---|---|---|");
    for target in &targets {
        groups::await_coordinators(target.address)?;
        let members =
            (0..GROUPS).map(|index| groups::join_alone(target.address, &format!("one-{index}")));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let idle = |name: &str, address, pid| -> Result<(), String> {
            let (cpu, began) = (cpu_of(pid), clock::now());
            groups::idle_groups(address, &members, Duration::from_secs(12))?;
            let share = 100.0 * cpu_of(pid).since(cpu).total() / began.elapsed().as_secs_f64();
            println!(
                "| {GROUPS} groups of one, a heartbeat each 3 s | {name} | {share:.1} % CPU |"
            );
            Ok(())
        };
        if !target.is_kafka() {
            let (floor, address) = Process::start_role(&["floor-echo"])?;
            idle("floor: echo", address, floor.pid())?;
        }
        idle(target.name, target.address, target.pid)?;
    }
    Ok(())
}

/// From exec on an empty folder to the first answer, and what an idle broker costs.
fn start(options: &Options) -> Result<(), String> {
    println!("\n| start and idle | |\n|---|---|");
    let mut target = Target::ours(&options.binary, &options.directory.join("start"), &is_up)?;
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(target.restart(&options.binary, false, &is_up)?);
    }
    times.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (seconds, cpu) = times[times.len() / 2];
    println!("| start to the first answer | {:.0} ms, {:.3} CPU-s |", seconds * 1e3, cpu);
    std::thread::sleep(Duration::from_secs(2));
    let before = cpu_of_threads(target.pid);
    std::thread::sleep(Duration::from_secs(10));
    let idle = (cpu_of_threads(target.pid) - before) / 10.0;
    println!("| idle | {:.1} MB, {:.3} % CPU |", memory_of(target.pid) as f64 / 1e6, idle * 100.0);
    Ok(())
}

/// What idle partitions cost: to make, to keep, to stop and start with.
fn partitions(options: &Options) -> Result<(), String> {
    const COUNT: i32 = 10_000;
    println!("\n| {COUNT} idle partitions | |\n|---|---|");
    let mut target = Target::ours(&options.binary, &options.directory.join("many"), &is_up)?;
    let (memory, cpu) = (memory_of(target.pid), cpu_of(target.pid).total());
    let began = clock::now();
    for topic in 0..10 {
        create(target.address, &format!("many-{topic}"), COUNT / 10)?;
    }
    let used = cpu_of(target.pid).total() - cpu;
    println!(
        "| creation | {:.2} CPU-ms each, {:.1} s in all |",
        used * 1e3 / f64::from(COUNT),
        began.elapsed().as_secs_f64()
    );
    let per_partition = (memory_of(target.pid) - memory) as f64 / f64::from(COUNT);
    println!("| memory | {per_partition:.0} bytes each |");
    for (kill, what) in [(false, "clean restart"), (true, "restart after SIGKILL")] {
        let began = clock::now();
        target.restart(&options.binary, kill, &is_up)?;
        let all = format!("many-{}", 9);
        wait_for(target.address, &|address| leads(address, &all))?;
        let cpu = cpu_of_threads(target.pid).max(cpu_of(target.pid).total());
        println!(
            "| {what} | {cpu:.2} CPU-s, {:.1} s until the last topic is led |",
            began.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Creates a topic, once there is a controller.
fn create(address: SocketAddr, topic: &str, partitions: i32) -> Result<(), String> {
    let frame = requests::create_topic(topic, partitions);
    let deadline = clock::now() + Duration::from_secs(30);
    loop {
        let answer = ask(address, &frame).map_err(|error| error.to_string())?;
        match requests::created(&answer) {
            Ok(()) => return Ok(()),
            Err(reason) if clock::now() > deadline => return Err(reason),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Whether a topic's partitions are led: a produce to the first works.
fn leads(address: SocketAddr, topic: &str) -> bool {
    let frame = requests::produce(topic, 0, 1, requests::batch(64, 16));
    ask(address, &frame).is_ok_and(|answer| requests::produced(&answer).is_ok())
}
